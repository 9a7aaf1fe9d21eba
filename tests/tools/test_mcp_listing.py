"""One list of tools for all who want it at the same time."""

import asyncio

import pytest

from batonflow.tools.mcp.definitions import ToolDefinition
from batonflow.tools.mcp.listing import Listing


class Server:
    """Says what its tools are when it is let; what it says is the number of the question."""

    def __init__(self) -> None:
        self.asked = 0
        self.failing = False
        self.may_answer = asyncio.Event()
        self.listing = Listing(self.answer)

    async def answer(self) -> dict[str, ToolDefinition]:
        self.asked += 1
        name = str(self.asked)
        await self.may_answer.wait()
        if self.failing:
            self.failing = False
            raise ConnectionError("out of tea")
        return {name: ToolDefinition(name, "", {})}

    def ask(self, newest: bool = False) -> asyncio.Task[list[str]]:
        async def names() -> list[str]:
            return list(await self.listing.tools(newest))

        return asyncio.create_task(names())


async def turns() -> None:
    """Let every task run as far as it comes."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def server() -> Server:
    return Server()


async def test_who_comes_while_the_server_is_asked_waits_for_its_answer(server: Server) -> None:
    everybody = [server.ask() for _ in range(3)]
    await turns()
    server.may_answer.set()
    assert await asyncio.gather(*everybody) == [["1"], ["1"], ["1"]]


async def test_what_is_known_is_not_asked_again(server: Server) -> None:
    server.may_answer.set()
    assert [await server.ask(), await server.ask()] == [["1"], ["1"]]


async def test_the_newest_list_is_asked_for_once_for_all_who_wait_for_it(server: Server) -> None:
    everybody = [server.ask(newest=True)]
    await turns()
    everybody += [server.ask(newest=True) for _ in range(3)]
    await turns()
    server.may_answer.set()
    # The first question was under way already, so its answer may be older than what the others want.
    assert await asyncio.gather(*everybody) == [["1"], ["2"], ["2"], ["2"]]


async def test_what_is_known_is_given_while_somebody_asks_for_the_newest(server: Server) -> None:
    server.may_answer.set()
    await server.ask()
    server.may_answer.clear()
    newest = server.ask(newest=True)
    await turns()
    assert await server.ask() == ["1"]
    server.may_answer.set()
    assert await newest == ["2"]


async def test_when_who_asks_is_cancelled_the_next_one_asks(server: Server) -> None:
    first, second = server.ask(), server.ask()
    await turns()
    first.cancel()
    server.may_answer.set()
    assert await second == ["2"]


async def test_when_asking_fails_the_next_one_asks(server: Server) -> None:
    server.failing = True
    first, second = server.ask(), server.ask()
    await turns()
    server.may_answer.set()
    with pytest.raises(ConnectionError, match="out of tea"):
        await first
    assert await second == ["2"]


async def test_a_change_that_is_told_while_the_server_is_asked_counts(server: Server) -> None:
    first = server.ask()
    await turns()
    server.listing.changed()
    server.may_answer.set()
    assert await first == ["1"]
    assert await server.ask() == ["2"]
