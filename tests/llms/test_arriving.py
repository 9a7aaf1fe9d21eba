"""Streams that keep silent, go on without end, or end and fail in ways of their own."""

import asyncio
from collections.abc import AsyncIterator
from itertools import cycle
from typing import Any

import httpx2
import pytest

from batonflow.llms import (
    Anthropic,
    ChatMessage,
    IncompleteResponseError,
    InvalidResponseError,
    LLMError,
    LLMRequestError,
    LLMServerError,
    LLMTimeoutError,
    OpenAI,
    OpenAIResponses,
    RateLimitError,
)
from batonflow.llms.sdk_body import Silence
from batonflow.llms.sdk_model import SDKModel
from tests.llms.loopback import Answer, Loopback, loopback
from tests.llms.wire import anthropic, chat, responses
from tests.llms.wire.chunking import CHUNKINGS, as_json, encoded, html_page, streamed
from tests.llms.wire.content import Said, Text

ASK = [ChatMessage("Hello?")]
SAID = Said((Text("Twice a day."),))

MODELS: dict[str, tuple[type[SDKModel], Any, str]] = {
    "chat": (OpenAI, chat, "/v1"),
    "responses": (OpenAIResponses, responses, "/v1"),
    "anthropic": (Anthropic, anthropic, ""),
}
EMPTY = b'data: {"id": "1", "model": "m", "choices": [{"index": 0, "delta": {"content": ""}}]}\n\n'
PINGS = {
    "comments": ("chat", b": OPENROUTER PROCESSING\n\n"),
    "empty pieces": ("chat", EMPTY),
    "comments of Responses": ("responses", b": still here\n\n"),
    "keepalive": ("responses", b'event: keepalive\ndata: {"type": "keepalive", "sequence_number": 1}\n\n'),
    "pings": ("anthropic", b'event: ping\ndata: {"type": "ping"}\n\n'),
}


@pytest.fixture
async def server() -> AsyncIterator[Loopback]:
    async with loopback() as told:
        yield told


def made(server: Loopback, name: str, **options: Any) -> SDKModel:
    kind, _, base = MODELS[name]
    return kind("m", **{"api_key": "k", "base_url": server.url + base, "max_retries": 0, **options})


async def failure(llm: SDKModel) -> tuple[str, LLMError]:
    """What was shown of an answer that fails, and the error."""
    shown = ""
    try:
        async for response in await llm.astream_chat(ASK):
            shown += response.delta or ""
    except LLMError as err:
        return shown, err
    finally:
        await llm.aclose()
    raise AssertionError("the answer came")


class TestSilence:
    @pytest.mark.parametrize("ping", PINGS)
    @pytest.mark.parametrize("begun", [False, True])
    async def test_pings_are_not_content(self, server: Loopback, ping: str, begun: bool) -> None:
        name, sent = PINGS[ping]
        before = [MODELS[name][1].unfinished(SAID)] if begun else []
        server.answers.append(Answer([*before, *[sent] * 1000], pause=0.02))  # type: ignore[union-attr]
        shown, error = await failure(made(server, name, timeout=0.3))
        assert isinstance(error, LLMTimeoutError)
        assert "no content within 0.3 s" in str(error)
        assert error.shown == bool(shown) == begun
        await server.connections[0].left.wait()

    @pytest.mark.parametrize("name", MODELS)
    async def test_content_between_pings_sets_the_clock_back(self, server: Loopback, name: str) -> None:
        _, wire, _ = MODELS[name]
        events = [event + b"\n\n" for event in wire.stream(SAID).split(b"\n\n") if event]
        body = [piece for event in events for piece in (event, b": ping\n\n", b": ping\n\n")]
        # Longer in all than the timeout, which holds between two events.
        server.answers.append(Answer(body, pause=0.05))  # type: ignore[union-attr]
        llm = made(server, name, timeout=1)
        assert (await llm.achat(ASK)).message.content == SAID.text
        await llm.aclose()

    async def test_a_consumer_that_takes_its_time_is_not_silence(self, server: Loopback) -> None:
        events = [event + b"\n\n" for event in chat.stream(SAID).split(b"\n\n") if event]
        server.answers.append(Answer(events))  # type: ignore[union-attr]
        llm = made(server, "chat", timeout=0.2)
        text = ""
        async for response in await llm.astream_chat(ASK):
            text += response.delta or ""
            if response.delta:
                await asyncio.sleep(0.3)
        assert text == SAID.text
        await llm.aclose()

    async def test_a_cancelled_reader_is_cancelled(self, server: Loopback) -> None:
        server.answers.append(Answer([chat.unfinished(SAID)], hangs=True))  # type: ignore[union-attr]
        llm = made(server, "chat", timeout=5)
        task = asyncio.create_task(llm.achat(ASK))
        while not server.received:  # noqa: ASYNC110 - the server's list has no event
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await llm.aclose()

    async def test_a_cancellation_at_the_deadline_wins(self) -> None:
        silence = Silence(0.01, {})

        async def wait() -> None:
            silence.begin()
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                if silence.broken():
                    raise silence.error() from None
                raise
            finally:
                silence.stop()

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()  # before the deadline's own
        silence._look()
        with pytest.raises(asyncio.CancelledError):
            await task


class TestBounds:
    @pytest.mark.parametrize("name", MODELS)
    async def test_a_stream_without_end(self, server: Loopback, name: str) -> None:
        class Endless(list[bytes]):
            def __iter__(self) -> Any:
                return cycle(super().__iter__())

        wire = MODELS[name][1]
        [*_, piece] = [event for event in wire.unfinished(SAID).split(b"\n\n") if b"day" in event]
        server.answers.append(Answer(Endless([wire.unfinished(SAID), piece + b"\n\n"])))  # type: ignore[union-attr]
        shown, error = await failure(made(server, name, max_answer_bytes=50_000))
        assert isinstance(error, InvalidResponseError)
        assert "longer than 50,000 bytes; raise max_answer_bytes=" in str(error)
        assert len(shown) < 50_000

    @pytest.mark.parametrize("name", MODELS)
    async def test_a_line_without_end(self, server: Loopback, name: str) -> None:
        server.answers.append(Answer([b"data: ", *[b"x" * 1000] * 1000]))  # type: ignore[union-attr]
        _, error = await failure(made(server, name, max_answer_bytes=50_000))
        assert "longer than 50,000 bytes" in str(error)

    def test_the_bound_is_above_the_longest_answers(self) -> None:
        assert OpenAI("m", api_key="k").max_answer_bytes == 256 * 1024 * 1024


class TestDone:
    @pytest.mark.parametrize("chunking", CHUNKINGS)
    async def test_it_ends_an_answer_without_a_reason(self, server: Loopback, chunking: str) -> None:
        server.answers.append(streamed(chat.unfinished(SAID) + b"data: [DONE]\n\n", chunking))  # type: ignore[union-attr]
        llm = made(server, "chat")
        response = await llm.achat(ASK)
        assert (response.message.content, response.stop_reason) == (SAID.text, "stop")
        await llm.aclose()

    async def test_in_a_text_it_ends_nothing(self, server: Loopback) -> None:
        said = Said((Text("Write\ndata: [DONE]\n at the end. data: [DONE]"),))
        server.answers.append(streamed(chat.unfinished(said)))  # type: ignore[union-attr]
        shown, error = await failure(made(server, "chat"))
        assert isinstance(error, IncompleteResponseError)
        assert shown == said.text

    async def test_alone_it_is_not_an_answer(self, server: Loopback) -> None:
        server.answers.append(Answer([b"data: [DONE]\n\n"]))  # type: ignore[union-attr]
        _, error = await failure(made(server, "chat"))
        assert isinstance(error, IncompleteResponseError)


def _with_reasons(reasons: list[str | None]) -> bytes:
    """A stream whose chunks have these reasons, the last one for the empty chunk at the end."""
    chunks = [one for one in chat.chunks(Said((Text("Twice"),), usage=None)) if one["choices"]]
    for chunk in chunks:
        chunk["choices"][0]["finish_reason"] = reasons.pop(0) if len(reasons) > 1 else reasons[0]
    return b"".join(b"data: " + encoded(one) + b"\n\n" for one in chunks)


class TestEmptyReasons:
    async def test_behind_pieces_without_one_it_is_the_end(self, server: Loopback) -> None:
        chunks = [one for one in chat.chunks(SAID) if one["choices"]]
        chunks[-1]["choices"][0]["finish_reason"] = ""
        server.answers.append(Answer([b"data: " + encoded(one) + b"\n\n" for one in chunks]))  # type: ignore[union-attr]
        llm = made(server, "chat")
        response = await llm.achat(ASK)
        assert (response.message.content, response.stop_reason) == (SAID.text, "stop")
        await llm.aclose()

    async def test_in_every_piece_it_says_nothing(self, server: Loopback) -> None:
        stream = _with_reasons([""])
        *begun, _ = [event + b"\n\n" for event in stream.split(b"\n\n") if event]
        server.answers.append(Answer(begun))  # type: ignore[union-attr]
        _, error = await failure(made(server, "chat"))
        assert isinstance(error, IncompleteResponseError)
        server.answers = [Answer([*begun, b"data: [DONE]\n\n"]), Answer([stream])]
        for _ in range(2):
            llm = made(server, "chat")
            assert (await llm.achat(ASK)).message.content == "Twice"
            await llm.aclose()

    async def test_in_a_whole_answer(self, server: Loopback) -> None:
        body = chat.body(SAID)
        body["choices"][0]["finish_reason"] = ""
        server.answers.append(as_json(body))  # type: ignore[union-attr]
        llm = made(server, "chat", streaming=False)
        assert (await llm.achat(ASK)).stop_reason == "stop"
        await llm.aclose()


ERRORS = {
    "in the vendor's form": (b'{"error": {"message": "Slow down.", "code": 429}}', RateLimitError, "Slow down."),
    "without a frame": (b'{"message": "Slow down.", "code": 429}', RateLimitError, "Slow down."),
    "in words": (b"upstream timed out", LLMServerError, "upstream timed out"),
    "a text in a frame": (b'{"error": "upstream timed out"}', LLMServerError, "upstream timed out"),
}


class TestErrorEvents:
    @pytest.mark.parametrize("chunking", CHUNKINGS)
    @pytest.mark.parametrize("form", ERRORS)
    @pytest.mark.parametrize("begun", [False, True])
    async def test_is_the_error_that_it_tells(self, server: Loopback, form: str, chunking: str, begun: bool) -> None:
        data, kind, words = ERRORS[form]
        before = chat.unfinished(SAID) if begun else b""
        server.answers.append(streamed(before + b"event: error\ndata: " + data + b"\n\n", chunking))  # type: ignore[union-attr]
        shown, error = await failure(made(server, "chat"))
        assert isinstance(error, kind)
        assert words in str(error)
        assert shown == (SAID.text if begun else "")
        assert error.shown == begun

    async def test_in_a_text_it_is_text(self, server: Loopback) -> None:
        said = Said((Text("A stream says\nevent: error\ndata: no\n\nand ends. event: error"),))
        server.answers.append(streamed(chat.stream(said), "single bytes"))  # type: ignore[union-attr]
        llm = made(server, "chat")
        assert (await llm.achat(ASK)).message.content == said.text
        await llm.aclose()


class TestRedirects:
    @pytest.mark.parametrize("name", MODELS)
    @pytest.mark.parametrize("status", [301, 302, 303])
    @pytest.mark.parametrize("streaming", [True, False])
    async def test_are_errors_that_name_the_place(
        self, server: Loopback, name: str, status: int, streaming: bool
    ) -> None:
        place = f"{server.url}/login"
        server.answers = lambda one: (
            html_page() if one.path.startswith("/login") else Answer([], status=status, headers={"location": place})
        )
        _, error = await failure(made(server, name, streaming=streaming))
        assert isinstance(error, LLMRequestError)
        assert error.status_code == status
        assert f"the server redirects to {place}" in str(error)
        assert "base_url" in str(error)

    async def test_also_where_the_client_does_not_follow(self, server: Loopback) -> None:
        server.answers.append(Answer([], status=302, headers={"location": "https://login.example/?token=1"}))  # type: ignore[union-attr]
        async with httpx2.AsyncClient(follow_redirects=False) as client:
            _, error = await failure(made(server, "chat", http_client=client))
        assert error.status_code == 302
        assert "redirects to https://login.example/;" in str(error)

    async def test_that_keep_the_request_are_followed(self, server: Loopback) -> None:
        moved = Answer([], status=307, headers={"location": f"{server.url}/v2/chat/completions"})
        server.answers = [moved, Answer([chat.stream(SAID)])]
        llm = made(server, "chat")
        assert (await llm.achat(ASK)).message.content == SAID.text
        assert [one.path for one in server.received] == ["/v1/chat/completions", "/v2/chat/completions"]
        await llm.aclose()
