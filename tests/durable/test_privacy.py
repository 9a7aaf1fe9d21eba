"""What is kept out of a store: secrets wherever they are not needed, and the stream where it is not wanted."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, SecretStr, field_serializer

from batonflow.durable.stores.memory import MemoryStore
from batonflow.durable.stores.packing import unpacked
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    StreamResetEvent,
    Workflow,
    step,
)
from tests.workflow_core.flows import until

CANARY = "canary-7391"
TOKEN = "sk-canary7391canary7391"


class Begin(StartEvent):
    password: SecretStr
    draft: str = Field(default="", exclude=True)


class Shown(Event):
    api_key: str
    text: str


class Ask(InputRequiredEvent):
    text: str


class Secretive(Workflow):
    @step
    async def go(self, ctx: Context, ev: Begin) -> StopEvent:
        assert ev.password.get_secret_value() == CANARY
        ctx.write_event_to_stream(Shown(api_key=CANARY, text=f"called with {TOKEN}"))
        await ctx.store.set("password", ev.password)
        raise ValueError(f"{TOKEN} was refused")


def all_bytes(folder: Path) -> bytes:
    """All files of a store, and the records in them that are compressed."""
    files = b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
    with closing(sqlite3.connect(folder / "runs.db")) as connection:
        columns = [f"SELECT body FROM {table}" for table in ("commits", "snapshots", "results", "parts")]
        found = connection.execute(" UNION ALL ".join(columns)).fetchall()
    return files + b"".join(unpacked(body) for (body,) in found)


async def test_secrets_are_in_no_file(tmp_path: Path) -> None:
    flow = Secretive(store=SQLiteStore(tmp_path / "runs.db"))
    handler = flow.run(run_id="r", password=CANARY, draft=CANARY)
    with pytest.raises(ValueError, match=TOKEN):
        await handler
    streamed = [item.event async for item in handler.subscribe()]
    assert isinstance(streamed[0], Shown)
    assert streamed[0].api_key == CANARY, "the run itself sees what it streams"
    assert flow.run_store is not None
    kept = await flow.run_store.read("r")
    await flow.run_store.aclose()
    written = all_bytes(tmp_path)
    assert len(kept) > 2
    for secret in (CANARY, TOKEN):
        assert secret.encode() not in written
    assert b"was refused" in written


class Streams(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Shown(api_key="", text=CANARY))
        answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=Ask(text="go on?"))
        ctx.write_event_to_stream(Shown(api_key="", text=CANARY))
        return StopEvent(result=answer.get("text"))


async def test_the_stream_can_be_left_out_but_for_questions() -> None:
    store: Any = MemoryStore()
    first = Streams(store=MemoryStore(beside=store), store_streamed=False).run(run_id="r")
    await until(lambda: first.open_inputs())
    await first.interrupt()
    again = Streams(store=store, store_streamed=False).resume("r")
    await until(lambda: again.open_inputs())
    [request] = again.open_inputs()
    assert request.event == Ask(text="go on?")
    request.respond(text="yes")
    assert await again == "yes"
    run = await store.replay("r")
    assert [type(entry.event) for entry in run.events] == [Ask, StreamResetEvent, StopEvent]
    assert all(CANARY.encode() not in commit.body for commit in await store.read("r"))
    shown = [item.event for item in [item async for item in again.subscribe()] if isinstance(item.event, Shown)]
    assert len(shown) == 1, "what was streamed before the interruption is not streamed again"


class Discreet(Event):
    text: str

    @field_serializer("text")
    def _shorten(self, value: str) -> str:
        return value[:3]


async def test_what_a_class_writes_of_itself_is_what_is_kept() -> None:
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(Discreet(text=CANARY))
            return StopEvent()

    store = MemoryStore()
    await Flow(store=store).run(run_id="r")
    run = await store.replay("r")
    assert run.events[0].event == Discreet(text="can")
