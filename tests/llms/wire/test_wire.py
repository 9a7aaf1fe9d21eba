"""The wire formats, read by the vendors' SDKs themselves: what is described is what arrives."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import anthropic as anthropic_sdk
import httpx2
import openai as openai_sdk
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.shared import ErrorResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.shared import ErrorObject
from pydantic import ValidationError

from tests.llms.loopback import Answer, Loopback, Received, loopback
from tests.llms.wire import anthropic, chat, responses
from tests.llms.wire.chunking import (
    CHUNKINGS,
    as_asked,
    as_json,
    cut_off,
    ending_early,
    events_of,
    hanging,
    html_page,
    no_completion,
    slow,
    streamed,
)
from tests.llms.wire.content import SAMPLES, Said, Text, Thinking, deltas
from tests.llms.wire.readers import (
    anthropic_client,
    http_client,
    openai_client,
    raw_read_anthropic,
    raw_read_chat,
    raw_read_responses,
)
from tests.llms.wire.strict import check


@dataclass(frozen=True)
class API:
    """One of the three, with what its SDK says about it."""

    wire: ModuleType
    read: Callable[..., Coroutine[Any, Any, Said]]
    sdk: Any
    event: Any
    whole: Any
    extras: frozenset[str] = frozenset()


APIS = {
    "chat": API(chat, raw_read_chat, openai_sdk, ChatCompletionChunk, ChatCompletion),
    "responses": API(responses, raw_read_responses, openai_sdk, ResponseStreamEvent, Response, extras=responses.EXTRAS),
    "anthropic": API(anthropic, raw_read_anthropic, anthropic_sdk, RawMessageStreamEvent, Message),
}
SHORT = Said((Text("Zwölf 🌊 Gezeiten, one after another."),))

each_api = pytest.mark.parametrize("api", APIS.values(), ids=APIS.keys())
each_chunking = pytest.mark.parametrize("chunking", CHUNKINGS)
each_sample = pytest.mark.parametrize("said", SAMPLES.values(), ids=SAMPLES.keys())
each_dialect = pytest.mark.parametrize("dialect", chat.DIALECTS.values(), ids=chat.DIALECTS.keys())


@pytest.fixture
async def server() -> AsyncIterator[Loopback]:
    async with loopback() as running:
        yield running


class TestFormats:
    @each_api
    @each_sample
    def test_every_event_is_one_of_the_sdk_s(self, api: API, said: Said) -> None:
        events = events_of(api.wire.stream(said))
        assert events
        for event in events:
            if event != {"type": "ping"}:
                check(api.event, event, extras=api.extras)

    @each_api
    @each_sample
    def test_the_whole_body_is_the_sdk_s(self, api: API, said: Said) -> None:
        if api.wire is anthropic and said.broken:
            with pytest.raises(ValueError, match="Unterminated string"):
                api.wire.body(said)
        else:
            check(api.whole, api.wire.body(said))

    @each_dialect
    @each_sample
    def test_dialects_depart_in_known_fields_only(self, dialect: chat.Dialect, said: Said) -> None:
        extras = {"reasoning_content", "reasoning", "extra_content"}
        for one in chat.chunks(said, dialect):
            filled = copy.deepcopy(one)
            for choice in filled["choices"]:
                for call in choice["delta"].get("tool_calls", ()):
                    call.setdefault("index", 0)
            check(ChatCompletionChunk, filled, extras=extras)
        check(ChatCompletion, chat.body(said, dialect), extras=extras)

    @each_api
    @pytest.mark.parametrize("sample", ["text", "calls in parallel"])
    def test_a_misspelt_or_missing_field_is_found(self, api: API, sample: str) -> None:
        found = 0
        for event in events_of(api.wire.stream(SAMPLES[sample])):
            if event == {"type": "ping"}:
                continue
            for name in event:
                with pytest.raises((AssertionError, ValidationError)):
                    check(api.event, {f"{key}x" if key == name else key: value for key, value in event.items()})
                found += 1
        assert found > 20

    @pytest.mark.parametrize("name", chat.ERRORS)
    def test_errors_of_openai(self, name: str) -> None:
        check(ErrorObject, chat.ERRORS[name][1], extras={"innererror"})

    @pytest.mark.parametrize("name", anthropic.ERRORS)
    def test_errors_of_anthropic(self, name: str) -> None:
        [body] = events_of(anthropic.error_event(name))
        check(ErrorResponse, body, extras={"details"})

    def test_errors_inside_a_stream_of_responses(self) -> None:
        [flat] = events_of(responses.error_event("server", nested=False))
        check(ResponseStreamEvent, flat)
        for event in events_of(responses.failed(SHORT)):
            check(ResponseStreamEvent, event, extras=responses.EXTRAS)

    def test_ciphertexts_differ_each_time_they_are_shown(self) -> None:
        events = events_of(responses.stream(SAMPLES["a summary of thoughts, then a call"]))
        items = [event["item"] for event in events if "item" in event] + events[-1]["response"]["output"]
        texts = [item["encrypted_content"] for item in items if item["type"] == "reasoning"]
        assert texts == ["added-Z0FBQUFBL3M=", "Z0FBQUFBL3M=", "completed-Z0FBQUFBL3M="]

    @pytest.mark.parametrize(
        ("api", "kinds"),
        [
            ("anthropic", {"text_delta", "thinking_delta", "signature_delta", "input_json_delta", "citations_delta"}),
            (
                "responses",
                {
                    "response.created",
                    "response.in_progress",
                    "response.output_item.added",
                    "response.output_item.done",
                    "response.content_part.added",
                    "response.content_part.done",
                    "response.output_text.delta",
                    "response.output_text.done",
                    "response.output_text.annotation.added",
                    "response.refusal.delta",
                    "response.refusal.done",
                    "response.reasoning_summary_part.added",
                    "response.reasoning_summary_part.done",
                    "response.reasoning_summary_text.delta",
                    "response.reasoning_summary_text.done",
                    "response.reasoning_text.delta",
                    "response.reasoning_text.done",
                    "response.function_call_arguments.delta",
                    "response.function_call_arguments.done",
                    "response.web_search_call.in_progress",
                    "response.web_search_call.searching",
                    "response.web_search_call.completed",
                    "response.completed",
                    "response.incomplete",
                },
            ),
        ],
    )
    def test_the_samples_make_every_kind_of_event(self, api: str, kinds: set[str]) -> None:
        events = [event for said in SAMPLES.values() for event in events_of(APIS[api].wire.stream(said))]
        seen = {
            event["delta"].get("type") if api == "anthropic" else event["type"]
            for event in events
            if api != "anthropic" or event["type"] == "content_block_delta"
        }
        assert seen == kinds


class TestReading:
    @each_api
    @each_sample
    @each_chunking
    async def test_a_stream(self, server: Loopback, api: API, said: Said, chunking: str) -> None:
        server.answers = as_asked(api.wire.stream(said), None, chunking)
        assert await api.read(server.url) == api.wire.carried(said)

    @each_api
    @each_sample
    async def test_a_whole_body(self, server: Loopback, api: API, said: Said) -> None:
        if api.wire is anthropic and said.broken:
            return
        server.answers = as_asked(b"", api.wire.body(said), "single bytes")
        assert await api.read(server.url, "body") == api.wire.carried(said)

    @each_api
    @each_sample
    async def test_the_sdk_s_own_accumulation_of_a_stream(self, server: Loopback, api: API, said: Said) -> None:
        server.answers = as_asked(api.wire.stream(said), None, "inside characters")
        expected = api.wire.carried(said)
        unwanted = {"length": "length limit", "content_filter": "content filter"}
        if api.wire is not anthropic and expected.stop in unwanted:
            # OpenAI's helpers have no answer for those who got only a part of one.
            words = r"response\.completed" if api.wire is responses else unwanted[expected.stop]
            with pytest.raises((RuntimeError, openai_sdk.OpenAIError), match=words):
                await api.read(server.url, "helper")
            return
        if api.wire is responses:
            parts = [
                replace(part, signature=f"completed-{part.signature}")
                if isinstance(part, Thinking) and part.signature
                else part
                for part in expected.parts
            ]
            expected = replace(expected, parts=tuple(parts))
        if api.wire is anthropic and said.broken:
            # The helper leaves out what is not whole.
            expected = replace(expected, parts=tuple(replace(call, arguments="{}") for call in expected.calls))
        assert await api.read(server.url, "helper") == expected

    @each_dialect
    @each_sample
    @pytest.mark.parametrize("how", ["stream", "body"])
    async def test_dialects_of_chat(self, server: Loopback, dialect: chat.Dialect, said: Said, how: str) -> None:
        server.answers = as_asked(chat.stream(said, dialect), chat.body(said, dialect), "crlf")
        assert await raw_read_chat(server.url, how) == chat.carried(said, dialect)

    async def test_the_pieces_arrive_as_they_were_cut(self, server: Loopback) -> None:
        data = chat.stream(SHORT)
        async with http_client() as client:
            for chunking, cut in CHUNKINGS.items():
                server.answers = [streamed(data, chunking)]
                async with client.stream("POST", f"{server.url}/v1/chat/completions", json={}) as answer:
                    assert [piece async for piece in answer.aiter_raw()] == cut(data)

    def test_each_chunking_cuts_where_it_says(self) -> None:
        data = "ä🌊\n\n".encode()
        assert CHUNKINGS["whole"](data) == [data]
        assert CHUNKINGS["single bytes"](data) == [bytes([byte]) for byte in data]
        assert CHUNKINGS["inside characters"](data) == [b"\xc3", b"\xa4\xf0", b"\x9f", b"\x8c", b"\x8a\n\n"]
        assert CHUNKINGS["crlf"](data) == ["ä🌊\r".encode(), b"\n\r", b"\n"]

    def test_deltas_are_several_and_whole(self) -> None:
        assert deltas("Zwölf 🌊 Gezeiten") == ["Zwö", "l", "f 🌊 Gez", "ei", "ten"]
        assert deltas("") == []


class TestErrors:
    @each_api
    @pytest.mark.parametrize("how", ["stream", "body"])
    async def test_a_refused_request(self, server: Loopback, api: API, how: str) -> None:
        kinds = {
            400: api.sdk.BadRequestError,
            401: api.sdk.AuthenticationError,
            403: api.sdk.PermissionDeniedError,
            404: api.sdk.NotFoundError,
            413: api.sdk.APIStatusError,
            429: api.sdk.RateLimitError,
            500: api.sdk.InternalServerError,
            503: api.sdk.InternalServerError,
            529: api.sdk.APIStatusError,
        }
        for name in api.wire.ERRORS:
            answer = api.wire.error(name)
            server.answers = [answer]
            with pytest.raises(kinds[answer.status]) as raised:
                await api.read(server.url, how)
            assert raised.value.status_code == answer.status
            assert raised.value.request_id == "req_wire"
            assert raised.value.response.headers.get("retry-after") == ("2" if name == "rate limit" else None)

    @each_api
    async def test_an_error_in_the_middle_of_a_stream(self, server: Loopback, api: API) -> None:
        for name in api.wire.ERRORS:
            server.answers = [streamed(api.wire.unfinished(SHORT) + api.wire.error_event(name), "inside characters")]
            with pytest.raises(api.sdk.APIError) as raised:
                await api.read(server.url)
            told = api.wire.ERRORS[name]
            assert (told[2] if api.wire is anthropic else told[1]["message"]) in str(raised.value)

    async def test_errors_that_the_sdk_hands_on_as_events(self, server: Loopback) -> None:
        server.answers = [
            streamed(responses.unfinished(SHORT) + responses.error_event("server", nested=False)),
            streamed(responses.failed(SHORT)),
        ]
        async with openai_client(server.url) as client:
            for kind in ("error", "response.failed"):
                async with await client.responses.create(model="m", input="?", stream=True) as events:
                    *_, last = [event async for event in events]
                assert last.type == kind

    @each_api
    async def test_a_connection_that_breaks(self, server: Loopback, api: API) -> None:
        data = api.wire.stream(SHORT)
        for reset in (False, True):
            server.answers = [cut_off(data, len(data) // 2, reset=reset)]
            with pytest.raises((api.sdk.APIConnectionError, httpx2.TransportError)):
                await api.read(server.url)

    @each_api
    async def test_a_connection_that_breaks_before_the_answer(self, server: Loopback, api: API) -> None:
        server.answers = [Answer([], head=False, breaks=True)]
        with pytest.raises(api.sdk.APIConnectionError):
            await api.read(server.url)

    @each_api
    async def test_a_stream_that_ends_early_is_nothing_to_the_sdk(self, server: Loopback, api: API) -> None:
        server.answers = [streamed(api.wire.unfinished(SHORT))]
        read = await api.read(server.url)
        assert (read.stop, read.text) == (None, SHORT.text)
        first = api.wire.unfinished(SHORT).index(b"\n\n") + 2
        server.answers = [ending_early(api.wire.stream(SHORT), first)]
        assert (await api.read(server.url)).text == ""

    @each_api
    @pytest.mark.parametrize("answer", [html_page(), no_completion()], ids=["a page", "other JSON"])
    async def test_an_answer_that_is_none(self, server: Loopback, api: API, answer: Answer) -> None:
        server.answers = [answer, answer]
        with pytest.raises((AttributeError, TypeError, KeyError, api.sdk.APIError)):
            await api.read(server.url, "body")
        try:
            read = await api.read(server.url)
        except (KeyError, api.sdk.APIError):
            return
        assert (read.parts, read.stop) == ((), None)

    @each_api
    async def test_a_stream_that_hangs(self, server: Loopback, api: API) -> None:
        server.answers = [hanging(api.wire.unfinished(SHORT)), Answer([], head=False, hangs=True)]
        for _ in range(2):
            with pytest.raises((api.sdk.APITimeoutError, httpx2.ReadTimeout)):
                await api.read(server.url, timeout=0.2)

    @each_api
    async def test_slow_tokens(self, server: Loopback, api: API) -> None:
        server.answers = [slow(api.wire.stream(SHORT), 0.001)]
        assert await api.read(server.url) == api.wire.carried(SHORT)


class TestServer:
    @each_api
    async def test_one_connection_serves_one_request_after_another(self, server: Loopback, api: API) -> None:
        server.answers = as_asked(api.wire.stream(SHORT), api.wire.body(SHORT))
        client_of = anthropic_client if api.wire is anthropic else openai_client
        async with client_of(server.url) as client:
            for how in ("stream", "body", "stream"):
                assert await api.read(client, how) == api.wire.carried(SHORT)
            assert [connection.requests for connection in server.connections] == [3]
            assert server.open == 1
        await server.connections[0].left.wait()
        assert (server.open, server.connections[0].left_midway) == (0, False)

    async def test_a_client_that_leaves_midway_is_noticed_at_once(self, server: Loopback) -> None:
        server.answers = [hanging(chat.unfinished(SHORT)), slow(chat.stream(SHORT), 3600)]
        async with openai_client(server.url) as client:
            for number in range(2):
                got = asyncio.Event()

                async def read(client: Any = client, got: asyncio.Event = got) -> None:
                    async with await client.chat.completions.create(model="m", messages=[], stream=True) as chunks:
                        async for _ in chunks:
                            got.set()

                task = asyncio.create_task(read())
                await got.wait()
                assert server.open == 1
                task.cancel()
                await asyncio.wait([task])
                await server.connections[number].left.wait()
                assert server.connections[number].left_midway
        assert server.left.is_set()

    async def test_the_test_lets_the_pieces_go_one_by_one(self, server: Loopback) -> None:
        permits = asyncio.Semaphore(0)
        server.answers = [Answer([b"a", b"b", b"c"], permits=permits)]
        async with http_client() as client, client.stream("POST", server.url, json={}) as answer:
            arriving = answer.aiter_raw()
            for expected in (b"a", b"b", b"c"):
                waiting = asyncio.ensure_future(anext(arriving))
                await asyncio.wait([waiting], timeout=0.01)
                assert not waiting.done()
                permits.release()
                assert await waiting == expected

    async def test_two_hundred_streams_at_once(self, server: Loopback) -> None:
        everybody_here = asyncio.Barrier(200)
        # Each answers its own request: the number comes in with it.
        server.answers = lambda request: streamed(chat.stream(Said((Text(f"für {request.body['user']} 🌊"),))))

        async def read(client: Any, number: int) -> str:
            chunks = await client.chat.completions.create(model="m", messages=[], stream=True, user=str(number))
            async with chunks:
                first = await anext(chunks)
                await everybody_here.wait()
                rest = [chunk async for chunk in chunks]
            return "".join(one.choices[0].delta.content or "" for one in [first, *rest] if one.choices)

        async with openai_client(server.url) as client:
            texts = await asyncio.gather(*(read(client, number) for number in range(200)))
        assert texts == [f"für {number} 🌊" for number in range(200)]
        assert server.most_open == 200

    async def test_an_answer_may_depend_on_the_request(self, server: Loopback) -> None:
        def answer(request: Received) -> Answer:
            return as_json({"path": request.path, "model": request.body["model"], "key": request.headers["x-key"]})

        server.answers = answer
        async with http_client() as client:
            got = await client.post(f"{server.url}/v1/x", json={"model": "m"}, headers={"X-Key": "k"})
        assert got.json() == {"path": "/v1/x", "model": "m", "key": "k"}

    async def test_a_request_without_an_answer_fails_with_words(self, server: Loopback) -> None:
        with pytest.raises(openai_sdk.InternalServerError, match="no answer for POST /v1/chat/completions"):
            await raw_read_chat(server.url)
