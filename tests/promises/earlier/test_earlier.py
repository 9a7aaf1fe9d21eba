"""A store that was killed in mid-run and a snapshot, both of an earlier layout of the source, resume under this one."""

import json
import shutil
from pathlib import Path

import pytest

from batonflow import Context, HumanResponseEvent
from tests.promises.earlier.programs import HERE, TIDES, Desk, clerk, order, writer


@pytest.fixture
def store(tmp_path: Path) -> str:
    return shutil.copy(HERE / "killed.db", tmp_path / "runs.db")


async def test_a_run_that_was_killed_goes_on_with_what_it_had_recorded(store: str) -> None:
    handler = order(store).resume("order-1")
    async for request in handler.inputs():
        assert request.event.prefix == "Pay 18?"
        request.respond("yes")
    assert await handler == "yes: packed lamp, rope, tide table for 18"


async def test_the_stream_of_the_killed_run_is_read_from_its_beginning(store: str) -> None:
    handler = order(store).resume("order-1")
    texts = []
    async for item in handler.subscribe():
        if type(item.event).__name__ == "Progress":
            texts.append(item.event.text)
        if type(item.event).__name__ == "InputRequiredEvent" and handler.open_inputs():
            break
    assert sorted(texts) == ["pricing lamp", "pricing rope", "pricing tide table"]
    await handler.interrupt()


async def test_an_approval_that_was_asked_for_is_given_now(store: str) -> None:
    handler = clerk(store).resume("clerk-1")
    async for request in handler.approvals():
        assert (request.tool_name, request.arguments) == ("publish", {"title": "Tides"})
        request.approve()
    assert str(await handler) == "It is out."


async def test_a_snapshot_is_restored() -> None:
    snapshot = json.loads((HERE / "snapshot.json").read_text())
    workflow = Desk()
    handler = workflow.run(ctx=Context.from_dict(workflow, snapshot))
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    assert await handler == ["Open?", "yes"]


@pytest.fixture
def talk(tmp_path: Path) -> str:
    """A session of two turns and a third one that asks, each of whose records has the whole conversation."""
    return shutil.copy(HERE / "conversation.db", tmp_path / "runs.db")


async def test_a_conversation_with_whole_records_goes_on_with_records_that_refer_to_parts(talk: str) -> None:
    agent = writer(talk)
    handler = agent.resume("talk:3")
    async for request in handler.approvals():
        request.approve()
    assert str(await handler).startswith("I have done it.")
    await agent.run(f"stars {TIDES}", session="talk")
    said = [message.content for message in await agent.session("talk").messages() if message.content]
    assert [text.split()[0] for text in said] == [
        "tides", "tides", "I", "moon", "moon", "I", "Publish", "published", "I", "stars", "stars", "I",
    ]  # fmt: skip
    assert len(await agent.run_store.read_parts((await agent.run_store.read_session("talk")).part_log)) > 0
    await agent.run_store.aclose()


async def test_a_run_with_whole_records_is_replayed_and_forked(talk: str) -> None:
    agent = writer(talk)
    store = agent.run_store
    replayed = await store.replay("talk:1", agent)
    assert str(replayed.result).startswith("I have done it.")
    for at in range(1, (await store.info("talk:2")).seq):
        branch = agent.fork("talk:2", at)
        assert str(await branch).startswith("I have done it."), at
        assert (await store.diff("talk:2", branch.run_id)).same >= at - 1
    await store.aclose()
