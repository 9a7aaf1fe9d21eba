"""Rows about what can go wrong."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx2

from batonflow.llms import (
    AuthenticationError,
    ChatResponse,
    ContentFilterError,
    ContextLengthError,
    IncompleteResponseError,
    InvalidResponseError,
    LLMConnectionError,
    LLMError,
    LLMRequestError,
    LLMServerError,
    ModelNotFoundError,
    OverloadedError,
    RateLimitError,
)
from batonflow.llms.sdk_model import SDKModel
from tests.llms.loopback import Answer, Received
from tests.llms.matrix.apis import HEADER_VALUE, KEY, MODEL, AnthropicAPI, ResponsesAPI, check_answer
from tests.llms.matrix.cells import REQUEST_ID, Bench, row
from tests.llms.matrix.content import ASK, SHORT
from tests.llms.wire import responses
from tests.llms.wire.chunking import as_json, failing, html_page, no_completion
from tests.llms.wire.content import Said, Text

_SECRETS = (KEY, HEADER_VALUE)


@dataclass
class Failed:
    """A request that failed.

    Args:
        error: How.
        shown: The responses before that; None when the answer was awaited whole.
    """

    error: LLMError
    shown: list[ChatResponse] | None = None


async def _fails(llm: SDKModel, *, stream: bool) -> Failed:
    """Ask, and tell how it fails."""
    shown: list[ChatResponse] = []
    error: LLMError | None = None
    try:
        if stream:
            async for response in await llm.astream_chat(ASK):
                shown.append(response)  # noqa: PERF401 - what came before the failure counts
        else:
            await llm.achat(ASK)
    except LLMError as raised:
        error = raised
    assert error is not None
    assert (error.vendor, error.model) == (llm.vendor, MODEL)
    told = f"{error} {error!r} {error.args}"
    assert [secret for secret in _SECRETS if secret in told] == []
    # What nobody has seen can be asked for again.
    assert error.shown == bool(shown)
    return Failed(error, shown if stream else None)


async def _refused(bench: Bench, names: dict[str, type[LLMError]], *, passing: bool) -> None:
    """Errors in the vendor's form before the answer begins, by name."""
    llm = bench.model()
    for name, kind in names.items():
        answer = bench.cut(bench.api.error(name))
        for stream in (False, True):
            bench.server.answers = [answer]
            error = (await _fails(llm, stream=stream)).error
            assert isinstance(error, kind)
            assert (error.status_code, error.request_id) == (answer.status, REQUEST_ID)
            assert error.retry_after == (2.0 if "retry-after" in answer.headers else None)
            assert error.retryable is passing
            assert isinstance(error.__cause__, bench.api.sdk.APIStatusError)
            assert _message_of(answer) in str(error)
    assert len(bench.requests) == 2 * len(names)


def _message_of(answer: Answer) -> str:
    return json.loads(b"".join(answer.body))["error"]["message"]


@row("400")
async def bad_request(bench: Bench) -> None:
    kinds: dict[str, type[LLMError]] = {"bad request": LLMRequestError, "context length": ContextLengthError}
    if not isinstance(bench.api, AnthropicAPI):
        kinds["content filter"] = ContentFilterError
    await _refused(bench, kinds, passing=False)


@row("401")
async def unauthorized(bench: Bench) -> None:
    await _refused(bench, {"authentication": AuthenticationError, "permission": AuthenticationError}, passing=False)

    def echo(request: Received) -> Answer:
        # Proxies quote what they do not understand.
        message = f"Incorrect key {KEY}; the headers were {json.dumps(request.headers)}"
        return bench.cut(failing(401, {"type": "error", "error": {"type": "authentication_error", "message": message}}))

    bench.server.answers = echo
    llm = bench.model(default_headers={"x-team-token": HEADER_VALUE})
    for stream in (False, True):
        error = (await _fails(llm, stream=stream)).error
        assert isinstance(error, AuthenticationError)
        assert "Incorrect key ***" in str(error)
    assert bench.requests[-1].headers["x-team-token"] == HEADER_VALUE


@row("404")
async def not_found(bench: Bench) -> None:
    await _refused(bench, {"not found": ModelNotFoundError}, passing=False)


async def _passes(bench: Bench, name: str) -> None:
    """One failure, then an answer: the SDK asks again, and nobody else does."""
    llm = bench.model(max_retries=2)
    failing_once = bench.cut(bench.api.error(name), retry_after_ms="2", retry_after="0.01")
    for stream in (False, True):
        bench.server.received.clear()
        bench.server.answers = [failing_once, bench.streamed(bench.api.stream(SHORT))]
        if stream:
            *_, response = [one async for one in await llm.astream_chat(ASK)]
        else:
            response = await llm.achat(ASK)
        assert len(bench.requests) == 2
        assert bench.bodies[0] == bench.bodies[1]
        bench.answers(SHORT)
        check_answer(bench.api, response, await bench.raw())


async def _persists(bench: Bench, name: str, kind: type[LLMError]) -> None:
    """A failure that lasts: as many requests as the SDK is allowed, and the last one's error."""
    answer = bench.cut(bench.api.error(name), retry_after_ms="2", retry_after="0.01")
    for retries in (0, 2):
        bench.server.received.clear()
        bench.server.answers = lambda _: answer
        error = (await _fails(bench.model(max_retries=retries), stream=bool(retries))).error
        assert isinstance(error, kind)
        assert (error.status_code, error.request_id, error.retryable) == (answer.status, REQUEST_ID, True)
        assert error.retry_after == 0.002
        assert len(bench.requests) == retries + 1


@row("429 then success")
async def rate_limit(bench: Bench) -> None:
    await _refused(bench, {"rate limit": RateLimitError}, passing=True)
    await _passes(bench, "rate limit")
    await _persists(bench, "rate limit", RateLimitError)


@row("500")
async def server_error(bench: Bench) -> None:
    await _refused(bench, {"server": LLMServerError, "overloaded": OverloadedError}, passing=True)
    await _passes(bench, "server")
    await _persists(bench, "server", LLMServerError)
    # From a proxy, in its own words.
    bench.answers_with(html_page(502))
    error = (await _fails(bench.model(), stream=True)).error
    assert type(error) is LLMServerError
    assert error.status_code == 502


_STORY = Said((Text("Zwölf 🌊 Gezeiten."),))


@row("cut connection")
async def cut_connection(bench: Bench) -> None:
    llm, stream = bench.model(), bench.api.stream(_STORY)
    begun, middle = stream.index(b"\n\n") + 2, len(bench.api.unfinished(_STORY)) - 30
    for after, reset in ((0, False), (begun, False), (middle, False), (middle, True)):
        answer = bench.streamed(stream[:after], breaks=not reset, resets=reset)
        for streamed in (False, True):
            bench.server.answers = [answer]
            failed = await _fails(llm, stream=streamed)
            assert type(failed.error) is LLMConnectionError
            assert isinstance(failed.error.__cause__, bench.api.sdk.APIConnectionError | httpx2.TransportError)
            assert failed.error.retryable is not bool(failed.shown)
        if not reset:
            # What has arrived was handed out; a reset may overtake it.
            assert bool(failed.shown) is (after == middle)
    # The SDK does not ask again, or the same words would come twice.
    bench.server.received.clear()
    bench.server.answers = [bench.streamed(stream[:middle], breaks=True)]
    await _fails(bench.model(max_retries=2), stream=True)
    assert len(bench.server.received) == 1


@row("clean truncation")
async def clean_truncation(bench: Bench) -> None:
    llm, whole = bench.model(), bench.api.unfinished(_STORY)
    ends = [place + 2 for place in range(len(whole)) if whole[place : place + 2] == b"\n\n"]
    for after in (*ends[:3], ends[-1]):
        for stream in (False, True):
            bench.server.answers = [bench.streamed(whole[:after])]
            failed = await _fails(llm, stream=stream)
            assert isinstance(failed.error, IncompleteResponseError)
            assert failed.error.retryable is not bool(failed.shown)
    assert "".join(response.delta or "" for response in failed.shown or ()) == _STORY.text
    # Also in the middle of an event, and before the first.
    for after in (0, ends[0] - 9, ends[-1] - 20):
        bench.server.answers = [bench.streamed(whole[:after])]
        failed = await _fails(llm, stream=True)
        assert isinstance(failed.error, IncompleteResponseError | InvalidResponseError)


# Of a form that no API has, at every depth.
_MISSHAPEN: tuple[Any, ...] = (
    {"status": "ok"},
    [1, 2],
    "words",
    7,
    None,
    {"choices": "abc", "model": 3},
    {"choices": [{"delta": "x", "index": "y"}]},
    {"choices": [{"delta": {"tool_calls": [7]}}]},
    {"choices": [{"delta": {"content": {"deep": 1}}}]},
    {"choices": [None], "usage": "none"},
    {"type": "response.output_item.added", "item": "x"},
    {"type": "response.output_item.done", "item": {"type": "message", "content": 7}},
    {"type": "response.output_text.delta", "delta": 7, "output_index": "x"},
    {"type": "response.completed"},
    {"type": "response.failed", "response": 7},
    {"type": "message_start", "message": 7},
    {"type": "content_block_start", "index": 0},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": [1]}},
    {"type": "content_block_delta", "delta": None},
    {"type": "message_delta", "delta": 7, "usage": 7},
)


def _as_events(bodies: Sequence[Any]) -> bytes:
    lines = b""
    for body in bodies:
        kind = body.get("type", "message_delta") if isinstance(body, dict) else "message_delta"
        lines += f"event: {kind}\ndata: {json.dumps(body)}\n\n".encode()
    return lines


@row("non-JSON 200")
async def no_answer(bench: Bench) -> None:
    llm = bench.model()
    others = (
        html_page(),
        no_completion(),
        as_json([1]),
        Answer([b"{broken"], content_type="application/json"),
        Answer([b""], content_type="application/json"),
    )
    for answer in others:
        for stream in (False, True):
            bench.answers_with(replace(answer, headers={bench.api.request_id_header: REQUEST_ID}))
            error = (await _fails(llm, stream=stream)).error
            assert isinstance(error, InvalidResponseError)
            assert (error.status_code, error.request_id) == (200, REQUEST_ID)
            assert error.retryable
    for data in (b"event: message_start\ndata: <html>\n\n", b"event: message_start\ndata: {broken\n\n"):
        bench.server.answers = [bench.streamed(data)]
        error = (await _fails(llm, stream=True)).error
        assert isinstance(error, InvalidResponseError)
        assert error.__cause__ is not None


@row("JSON of another form, as events", further=True)
async def misshapen(bench: Bench) -> None:
    llm = bench.model()
    understood = 0
    for body in _MISSHAPEN:
        bench.server.answers = [bench.streamed(_as_events([body]))]
        error = (await _fails(llm, stream=True)).error
        assert isinstance(error, InvalidResponseError | IncompleteResponseError | LLMServerError)
        understood += isinstance(error, InvalidResponseError)
    assert understood > 0


@row("an error inside a stream", further=True)
async def error_inside(bench: Bench) -> None:
    llm, api = bench.model(), bench.api
    kinds: dict[str, type[LLMError]] = {
        "rate limit": RateLimitError,
        "server": LLMServerError,
        "context length": ContextLengthError,
    }
    if isinstance(api, AnthropicAPI):
        kinds["overloaded"] = OverloadedError
    for name, kind in kinds.items():
        events = [api.wire.error_event(name)]
        if isinstance(api, ResponsesAPI) and name != "context length":
            events.append(responses.error_event(name, nested=False))
        for event in events:
            for begun in (b"", api.unfinished(_STORY)):
                bench.server.answers = [bench.streamed(begun + event)]
                failed = await _fails(llm, stream=True)
                assert isinstance(failed.error, kind)
                assert bool(failed.shown) is bool(begun)
                assert _message_of(api.error(name)) in str(failed.error)
    if isinstance(api, ResponsesAPI):
        bench.server.answers = [bench.streamed(responses.failed(_STORY))]
        failed = await _fails(llm, stream=True)
        assert isinstance(failed.error, LLMServerError)
        assert "The model could not finish. 💥" in str(failed.error)
        assert (failed.error.request_id, failed.error.retryable) == (REQUEST_ID, False)
