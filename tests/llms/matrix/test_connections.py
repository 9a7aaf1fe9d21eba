"""Connections: who leaves closes them at once, hundreds live side by side, and none is left."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

import pytest

from batonflow.llms import ChatMessage, LLMConnectionError, LLMTimeoutError
from batonflow.llms._bridge import run_sync
from batonflow.llms.sdk_model import SDKModel
from tests.llms.loopback import Answer, Loopback, Received, loopback
from tests.llms.matrix.apis import API, APIS
from tests.llms.matrix.content import ASK, SHORT, WEATHER
from tests.llms.wire.chunking import hanging, streamed
from tests.llms.wire.content import Said, Text
from tests.llms.wire.readers import http_client
from tests.sampling import sampled

each_api = pytest.mark.parametrize("api", APIS[:3], ids=lambda api: api.name)
one_api = pytest.mark.parametrize("api", sampled(APIS[:3], every=3), ids=lambda api: api.name)

# How long a test waits for what should come at once.
AT_ONCE = 30


@pytest.fixture
async def server() -> AsyncIterator[Loopback]:
    async with loopback() as running:
        yield running


@asynccontextmanager
async def asking(api: API, server: Loopback, **options: Any) -> AsyncIterator[SDKModel]:
    """An adapter, closed afterwards with all its connections."""
    async with http_client() as client:
        llm = api.model(server.url, http_client=client, **options)
        try:
            yield llm
        finally:
            await llm.aclose()
    async with asyncio.timeout(AT_ONCE):
        await asyncio.gather(*(one.left.wait() for one in server.connections))
    assert server.open == 0


async def left_midway(server: Loopback) -> bool:
    """Whether the other side of the only connection goes while its answer is under way."""
    [connection] = server.connections
    async with asyncio.timeout(AT_ONCE):
        await connection.left.wait()
    return connection.left_midway


async def cancelled(llm: SDKModel, begun: asyncio.Event) -> None:
    """A task that reads a stream is cancelled."""

    async def read() -> None:
        async for _ in await llm.astream_chat(ASK):
            begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancelled_while_it_waits_for_the_whole(llm: SDKModel, begun: asyncio.Event) -> None:
    """A task that waits for a whole answer is cancelled."""
    task = asyncio.create_task(llm.achat(ASK))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def broken_out_of(llm: SDKModel, begun: asyncio.Event) -> None:
    """A reader has seen enough and closes the stream."""
    async with aclosing(await llm.astream_chat(ASK)) as responses:
        async for _ in responses:
            break


async def broken_out_of_with_tools(llm: SDKModel, begun: asyncio.Event) -> None:
    """The same where tools are offered."""
    async with aclosing(await llm.astream_chat_with_tools([WEATHER], chat_history=ASK)) as responses:
        await anext(responses)


async def broken_out_of_a_completion(llm: SDKModel, begun: asyncio.Event) -> None:
    """The same with a completion."""
    async with aclosing(await llm.astream_complete("Wie hoch?")) as completions:
        await anext(completions)


async def forgotten(llm: SDKModel, begun: asyncio.Event) -> None:
    """A reader that closes nothing is collected; the event loop closes what it held."""
    responses = await llm.astream_chat(ASK)
    await anext(responses)
    del responses
    gc.collect()


async def out_of_time(llm: SDKModel, begun: asyncio.Event) -> None:
    """The caller's own time is up."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(llm.achat(ASK), 0.3)


WAYS_TO_LEAVE = (
    cancelled,
    cancelled_while_it_waits_for_the_whole,
    broken_out_of,
    broken_out_of_with_tools,
    broken_out_of_a_completion,
    forgotten,
    out_of_time,
)


class TestLeaving:
    @each_api
    @pytest.mark.parametrize("leave", WAYS_TO_LEAVE, ids=lambda leave: leave.__name__)
    async def test_in_the_middle_of_an_answer(
        self, server: Loopback, api: API, leave: Callable[[SDKModel, asyncio.Event], Coroutine[Any, Any, None]]
    ) -> None:
        begun = asyncio.Event()

        def answer(_: Received) -> Answer:
            if leave is cancelled_while_it_waits_for_the_whole:
                # Nothing else tells that the answer has begun.
                asyncio.get_running_loop().call_later(0.02, begun.set)
            return hanging(api.unfinished(SHORT))

        server.answers = answer
        async with asking(api, server) as llm:
            await leave(llm, begun)
            assert await left_midway(server)

    @each_api
    async def test_the_next_request_is_as_good_as_any(self, server: Loopback, api: API) -> None:
        server.answers = [hanging(api.unfinished(SHORT)), streamed(api.stream(SHORT))]
        async with asking(api, server) as llm:
            await broken_out_of(llm, asyncio.Event())
            assert (await llm.achat(ASK)).message.content == SHORT.text

    @each_api
    async def test_an_answer_that_was_read_leaves_its_connection_for_the_next(self, server: Loopback, api: API) -> None:
        server.answers = lambda _: streamed(api.stream(SHORT))
        async with asking(api, server) as llm:
            for _ in range(3):
                await llm.achat(ASK)
            assert len(server.connections) == 1
            await llm.aclose()
            assert (await llm.achat(ASK)).message.content == SHORT.text

    @each_api
    async def test_what_follows_the_terminal_mark_does_not_matter(self, server: Loopback, api: API) -> None:
        stream = api.stream(SHORT)
        server.answers = [hanging(stream), streamed(stream, breaks=True), streamed(stream + b"data: {broken\n\n")]
        async with asking(api, server) as llm:
            for _ in range(3):
                assert (await llm.achat(ASK)).message.content == SHORT.text


class TestTime:
    @each_api
    async def test_no_answer_in_time(self, server: Loopback, api: API) -> None:
        server.answers = [Answer([], head=False, hangs=True)]
        async with asking(api, server, timeout=0.1) as llm:
            with pytest.raises(LLMTimeoutError, match=r"0\.1 s") as raised:
                await llm.achat(ASK)
            assert raised.value.retryable
            assert await left_midway(server)

    @each_api
    async def test_an_answer_that_stops_half_way(self, server: Loopback, api: API) -> None:
        server.answers = [hanging(api.unfinished(SHORT))]
        async with asking(api, server, timeout=0.3) as llm:
            responses = await llm.astream_chat(ASK)
            assert (await anext(responses)).delta
            with pytest.raises(LLMTimeoutError) as raised:
                _ = [response async for response in responses]
            assert (raised.value.shown, raised.value.retryable) == (True, False)
            assert await left_midway(server)


class TestBeforeTheAnswer:
    @each_api
    async def test_a_connection_that_breaks_is_tried_again_by_the_sdk_alone(self, server: Loopback, api: API) -> None:
        server.answers = [Answer([], head=False, breaks=True), streamed(api.stream(SHORT))]
        async with asking(api, server, max_retries=1) as llm:
            assert (await llm.achat(ASK)).message.content == SHORT.text
        assert len(server.received) == 2

    @each_api
    async def test_nobody_there(self, api: API) -> None:
        async with loopback() as gone:
            pass
        async with asking(api, gone) as llm:
            with pytest.raises(LLMConnectionError, match="no connection") as raised:
                await llm.achat(ASK)
        assert raised.value.retryable
        assert raised.value.status_code is None


class TestMany:
    @one_api
    async def test_two_hundred_streams_of_one_model(self, server: Loopback, api: API) -> None:
        held = asyncio.Semaphore(0)

        def answer(request: Received) -> Answer:
            # Each answers its own request: the number comes in with it.
            [number] = [word for word in str(request.body).split("'") if word.startswith("Nummer ")]
            said = Said((Text(f"{number} 🌊"),))
            begun = len(api.unfinished(said))
            stream = api.stream(said)
            return Answer([stream[:begun], stream[begun:]], permits=held)

        server.answers = answer
        everybody = asyncio.Barrier(201)

        async def read(llm: SDKModel, number: int) -> str:
            responses = await llm.astream_chat([ChatMessage(f"Nummer {number}")])
            text = (await anext(responses)).delta or ""
            await everybody.wait()
            return text + "".join([response.delta or "" async for response in responses])

        before = asyncio.all_tasks()
        async with asking(api, server) as llm:
            reading = [asyncio.create_task(read(llm, number)) for number in range(200)]
            for _ in range(200):
                held.release()
            async with asyncio.timeout(30):
                await everybody.wait()
            # Every stream is half read now, and none has ended.
            assert server.most_open == server.open == 200
            for _ in range(200):
                held.release()
            assert await asyncio.gather(*reading) == [f"Nummer {number} 🌊" for number in range(200)]
            assert not any(connection.left_midway for connection in server.connections)
        async with asyncio.timeout(AT_ONCE):
            await asyncio.wait((asyncio.all_tasks() - before) | {asyncio.create_task(asyncio.sleep(0))})

    @one_api
    async def test_two_hundred_that_are_left_alone(self, server: Loopback, api: API) -> None:
        server.answers = lambda _: hanging(api.unfinished(SHORT))
        everybody, waiting = asyncio.Event(), 0

        async def read(llm: SDKModel) -> None:
            nonlocal waiting
            async for response in await llm.astream_chat(ASK):
                # All that comes has come, and the next step is to wait for more.
                waiting += response.message.content == SHORT.text
                if waiting == 200:
                    everybody.set()

        async with asking(api, server) as llm:
            reading = [asyncio.create_task(read(llm)) for _ in range(200)]
            async with asyncio.timeout(30):
                await everybody.wait()
            assert server.open == 200
            for task in reading:
                task.cancel()
            await asyncio.wait(reading)
            async with asyncio.timeout(AT_ONCE):
                await asyncio.gather(*(one.left.wait() for one in server.connections))
            assert server.open == 0


@contextmanager
def server_elsewhere() -> Iterator[Loopback]:
    """A server on an event loop of its own, for callers that block theirs."""
    started: Future[tuple[Loopback, asyncio.Event, asyncio.AbstractEventLoop]] = Future()

    async def serve() -> None:
        ended = asyncio.Event()
        async with loopback() as running:
            started.set_result((running, ended, asyncio.get_running_loop()))
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    running, ended, loop = started.result(timeout=AT_ONCE)
    try:
        yield running
    finally:
        # Connections that the server itself cuts short are reported as errors.
        assert _wait(running)
        loop.call_soon_threadsafe(ended.set)
        thread.join()


class TestSynchronous:
    @one_api
    async def test_inside_a_running_loop(self, api: API) -> None:
        with server_elsewhere() as server:
            server.answers = lambda _: streamed(api.stream(SHORT), "inside characters")
            llm = api.model(server.url, http_client=http_client)
            # The asynchronous one first: its connections belong to this loop, and the others must have their own.
            assert (await llm.achat(ASK)).message.content == SHORT.text
            assert llm.chat(ASK).message.content == SHORT.text
            deltas = [response.delta or "" for response in llm.stream_chat(ASK)]
            assert "".join(deltas) == SHORT.text
            assert len(deltas) > 2
            assert llm.complete("Wie hoch?").text == SHORT.text
            assert len(server.connections) == 2
            await llm.aclose()
            run_sync(llm.aclose())

    @one_api
    async def test_leaving_a_stream_closes_the_connection(self, api: API) -> None:
        with server_elsewhere() as server:
            server.answers = lambda _: hanging(api.unfinished(SHORT))
            llm = api.model(server.url, http_client=http_client)
            for _ in llm.stream_chat(ASK):
                break
            left = asyncio.to_thread(_wait, server)
            assert await left
            run_sync(llm.aclose())


def _wait(server: Loopback) -> bool:
    """Whether the other side of the only connection goes within a bounded time, seen from another thread."""
    gone = threading.Event()
    for _ in range(AT_ONCE * 100):
        if all(connection.left.is_set() for connection in server.connections):
            return True
        gone.wait(0.01)
    return False
