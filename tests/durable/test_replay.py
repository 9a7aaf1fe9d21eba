"""Looking back at stored runs: what they streamed, how their state came about, and where two of them part."""

from typing import Any

import pytest

from batonflow.agents import AgentStream
from batonflow.durable.stores.memory import MemoryStore
from batonflow.workflow_core import Context, Event, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.errors import StoreError


class Said(Event):
    text: str


class Question(InputRequiredEvent):
    text: str


class Draft(Event):
    n: int


class Writes(Workflow):
    calls = 0

    @step
    async def draft(self, ctx: Context, ev: StartEvent) -> Draft | Question:
        type(self).calls += 1
        await ctx.store.set("draft.title", ev.title)
        ctx.write_event_to_stream(Said(text="drafted"))
        if ev.get("asks"):
            return Question(text="go on?")
        return Draft(n=1)

    @step
    async def publish(self, ctx: Context, ev: Draft) -> StopEvent:
        await ctx.store.set("draft.title", "final")
        await ctx.store.set("published", True)
        ctx.write_event_to_stream(Said(text="published"))
        if await ctx.store.get("draft.title") == "fails":
            raise ValueError("no")
        return StopEvent(result=ev.n)


async def kept(*titles: str) -> MemoryStore:
    """A store with a finished run for each title."""
    store = MemoryStore()
    for title in titles:
        await Writes(store=store).run(run_id=title, title=title)
    return store


async def test_a_replay_streams_the_same_events_and_runs_nothing() -> None:
    store = MemoryStore()
    handler = Writes(store=store).run(run_id="r", title="tides")
    streamed = [event async for event in handler.stream_events()]
    calls = Writes.calls
    run = await store.replay("r")
    replayed = [event async for event in run.stream_events()]
    assert [(type(event), event.model_dump()) for event in replayed] == [
        (type(event), event.model_dump()) for event in streamed
    ]
    assert (run.status, run.result, Writes.calls) == ("completed", 1, calls)


async def test_events_tell_where_they_come_from() -> None:
    run = await (await kept("tides")).replay("tides")
    assert [(entry.step, entry.path) for entry in run.events] == [("draft", ""), ("publish", ""), ("", "")]
    assert [entry.seq for entry in run.events] == sorted(entry.seq for entry in run.events)
    assert all(entry.commit for entry in run.events)


class Talks(Workflow):
    """Streams an answer in pieces, with a thought and another event between them."""

    @step
    async def talk(self, ctx: Context, ev: StartEvent) -> StopEvent:
        text = ""
        for word in ("one ", "two ", "", "three ", "four "):
            text += word
            thought = None if word else "hm"
            ctx.write_event_to_stream(
                AgentStream(delta=word, response=text, current_agent_name="a", thinking_delta=thought)
            )
            if word == "two ":
                ctx.write_event_to_stream(Said(text="so far"))
        return StopEvent(result=text)


@pytest.mark.parametrize("after", range(-1, 7))
async def test_a_reader_that_returns_after_the_end_gets_the_rest_of_each_answer(after: int) -> None:
    flow = Talks(store=MemoryStore(), workflow_name="talks")
    handler = flow.run(run_id="r")
    live = [item async for item in handler.subscribe()]
    await handler
    again = Talks(store=flow.run_store, workflow_name="talks").resume("r")
    stored = [item async for item in again.subscribe(after=after)]
    missed = [item for item in live if item.seq > after]

    def told(items: list[Any]) -> tuple[str, str, list[str]]:
        pieces = [item.event for item in items if isinstance(item.event, AgentStream)]
        said = [item.event.text for item in items if isinstance(item.event, Said)]
        return "".join(one.delta for one in pieces), "".join(one.thinking_delta or "" for one in pieces), said

    assert told(stored) == told(missed)
    assert [item.seq for item in stored] == sorted(item.seq for item in stored)
    assert type(stored[-1].event) is StopEvent


async def test_a_question_that_a_step_returned_stands_in_its_place() -> None:
    store = MemoryStore()
    flow = Writes(store=store, disable_validation=True)
    handler = flow.run(run_id="r", title="tides", asks=True)
    async for event in handler.stream_events():
        if isinstance(event, Question):
            break
    await handler.interrupt()
    run = await store.replay("r")
    assert [type(entry.event) for entry in run.events] == [Said, Question]
    assert run.stop_event is None
    with pytest.raises(StoreError, match="'r' is not over"):
        _ = run.result


async def test_the_state_after_each_commit() -> None:
    run = await (await kept("tides")).replay("tides")
    states: list[dict[str, Any]] = [run.state_at(commit) for commit in range(1, 4)]
    assert states == [{}, {"draft.title": "tides"}, {"draft.title": "final", "published": True}]


async def test_a_failed_run_raises_what_it_failed_with() -> None:
    class Fails(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            raise ValueError("no luck")

    store = MemoryStore()
    with pytest.raises(ValueError, match="no luck"):
        await Fails(store=store).run(run_id="r")
    run = await store.replay("r")
    assert run.status == "failed"
    with pytest.raises(ValueError, match="no luck"):
        _ = run.result


async def test_events_of_functions_need_the_workflow() -> None:
    class Local(Event):
        n: int

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(Local(n=1))
            return StopEvent()

    store = MemoryStore()
    flow = Flow(store=store, types=[Local])
    await flow.run(run_id="r")
    with pytest.raises(StoreError, match="Local"):
        await store.replay("r")
    run = await store.replay("r", flow)
    assert [type(entry.event) for entry in run.events] == [Local, StopEvent]


class TestDifferences:
    async def test_runs_that_did_the_same(self) -> None:
        store = await kept("tides")
        await Writes(store=store).run(run_id="again", title="tides")
        diff = await store.diff("tides", "again")
        assert diff.first is None
        assert str(diff) == "the runs are the same"

    async def test_the_first_difference_and_those_behind_it(self) -> None:
        diff = await (await kept("tides", "moons")).diff("tides", "moons")
        assert diff.same == 0
        assert diff.first is not None
        assert diff.first.left is not None
        assert diff.first.right is not None
        assert (diff.first.left["kind"], diff.first.right["event"][1]) == ("started", {"title": "moons"})
        assert [one.left and one.left.get("step") for one in diff.differences] == [None, "draft"]
        assert '+ commit 2, draft: {"kind":"segment"' in str(diff)

    async def test_a_run_that_is_longer(self) -> None:
        store = await kept("tides")
        flow = Writes(store=store)
        fork = flow.fork("tides", 1, new_id="f")
        await fork
        await store.delete("f")
        await store.fork("tides", 2, "f")
        diff = await store.diff("tides", "f")
        assert diff.same == 2
        assert [one.right for one in diff.differences] == [None, None]


@pytest.mark.parametrize("workflow", ["Writes", Writes, 5])
async def test_a_replay_takes_an_object_of_a_workflow(workflow: Any) -> None:
    store = await kept("tides")
    with pytest.raises(TypeError, match=r"workflow is an object of a workflow, such as Flow\(\), not "):
        await store.replay("tides", workflow)


@pytest.mark.parametrize("commit", ["1", None, -1, True])
async def test_the_state_is_asked_by_the_number_of_a_commit(commit: Any) -> None:
    run = await (await kept("tides")).replay("tides")
    wrong = ValueError if commit == -1 else TypeError
    with pytest.raises(wrong, match=f"commit is the number of a commit, .* not {commit!r}"):
        run.state_at(commit)


async def test_an_id_that_is_no_text() -> None:
    store = await kept("tides")
    for ask in (store.history(5), store.replay(5), store.diff("tides", 5)):  # type: ignore[arg-type]
        with pytest.raises(StoreError, match="5 is not a run id: use 1 to 200 characters"):
            await ask


async def test_a_run_that_is_not_there() -> None:
    store = MemoryStore()
    with pytest.raises(StoreError, match="no run 'nobody'"):
        await store.history("nobody")
