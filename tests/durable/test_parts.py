"""A conversation is written once: records refer to its messages, in a run, the next ones and in other processes."""

import asyncio
import random
import sqlite3
import string
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import count, pairwise, product
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, RootModel, model_validator

from batonflow.agents import AgentInput, AgentWorkflow, FunctionAgent, ReActAgent
from batonflow.agents.memory import ChatMemoryBuffer, Memory, StaticMemoryBlock
from batonflow.clock import Source
from batonflow.durable.parts.references import has_references
from batonflow.durable.replay import compare
from batonflow.durable.store_protocol import PartsGoneError, PartStore, RunStore
from batonflow.durable.stores import bounds
from batonflow.durable.stores.memory import MemoryStore
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.instrumentation.redaction import never_show
from batonflow.llms import ChatMessage, Messages, ScriptedLLM, TextBlock, ToolCallBlock, tool_call
from batonflow.tools import tool
from batonflow.values.serializers import as_json, read_json
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    StartEvent,
    StopEvent,
    StoreCorruptedError,
    StoreError,
    Workflow,
    step,
)
from tests.durable.conftest import Stores
from tests.durable.runs import begin, entry, new_run, write
from tests.sampling import sampled

TEXT = 1000


def text(number: int, size: int = TEXT) -> str:
    """A text of its own for each number."""
    return "".join(random.Random(number).choices(string.ascii_lowercase + " ", k=size))


@tool(idempotent=True)
def look_up(number: int) -> str:
    """Look a text up."""
    return text(number)


def agent_with(store: RunStore, calls: int = 1, **options: Any) -> FunctionAgent:
    """An agent that makes some calls in each turn, each of which gets a new text, and then says a new text."""
    numbers = count(1_000_000)

    def turn(request: Any) -> Any:
        since = [message.role for message in request.messages][::-1]
        done = next(at for at, role in enumerate(since) if role == "user") // 2
        number = next(numbers)
        call = ToolCallBlock(tool_call_id=f"call {number}", tool_name="look_up", tool_kwargs={"number": number})
        return call if done < calls else text(number)

    llm = ScriptedLLM([turn] * 10_000)
    return FunctionAgent(name="a", llm=llm, tools=[look_up], store=store, timeout=None, **options)


async def talk(agent: FunctionAgent, turns: int, ctx: Context[Any] | None = None, first: int = 0) -> Context[Any]:
    """Have turns of one conversation, whose runs are named by their numbers."""
    ctx = ctx or Context(agent)
    memory = ChatMemoryBuffer.from_defaults(token_limit=10**9)
    for number in range(first, first + turns):
        options = {} if number else {"memory": memory}
        await agent.run(text(number), ctx=ctx, run_id=f"r{number}", **options)
    return ctx


async def stored_parts(store: RunStore, run_id: str) -> list[bytes]:
    loaded = await store.load(run_id)
    assert loaded is not None
    return loaded.parts


async def lean_size(store: RunStore, run_id: str) -> int:
    loaded = await store.load(run_id)
    assert loaded is not None
    return sum(len(commit.body) for commit in loaded.commits)


# --- what is written --------------------------------------------------------------------------------------------------


async def test_a_turn_costs_what_is_new_in_it(store: RunStore) -> None:
    agent = agent_with(store)
    await talk(agent, 30)
    sizes = [len(await stored_parts(store, f"r{number}")) for number in range(30)]
    assert max(after - before for before, after in pairwise(sizes)) <= 10
    assert await lean_size(store, "r29") <= 1.1 * await lean_size(store, "r3")
    # Four texts of a turn are written once each.
    assert sum(map(len, await stored_parts(store, "r29"))) <= 30 * 4 * TEXT * 1.3


async def test_a_call_of_a_tool_costs_the_same_in_a_long_run(store: RunStore) -> None:
    sizes = {}
    for calls in (10, 160):
        agent = agent_with(store, calls)
        await agent.run("Go.", run_id=f"of-{calls}", max_iterations=1000)
        parts = await stored_parts(store, f"of-{calls}")
        sizes[calls] = (sum(map(len, parts)) + await lean_size(store, f"of-{calls}")) / calls
    assert sizes[160] <= 1.5 * sizes[10]


async def test_records_with_references_say_the_same_as_whole_ones() -> None:
    class Whole(MemoryStore):
        keeps_parts = False

    lean, whole = MemoryStore(), Whole()
    for one in (lean, whole):
        await talk(agent_with(one, 2), 4)
    assert isinstance(lean, PartStore)
    for number in range(4):
        one, other = await lean.history(f"r{number}"), await whole.history(f"r{number}")
        assert compare(one, other).differences == []
        loaded = await whole.load(f"r{number}")
        assert loaded is not None
        assert not any(has_references(commit.body) for commit in loaded.commits)


def searching(store: RunStore) -> AgentWorkflow:
    """A team with an agent as a tool, a tool that fails, and a handoff."""
    inner = FunctionAgent(name="inner", description="Looks.", tools=[look_up], llm=ScriptedLLM([look(1), text(2)]))
    hands_over = tool_call("handoff", to_agent="second", reason=text(5))
    first = FunctionAgent(
        name="first", description="Begins.", tools=[inner.as_tool(), look_up], can_handoff_to=["second"],
        llm=ScriptedLLM([[text(3), tool_call("inner", input=text(4))], look(5), hands_over]),
    )  # fmt: skip
    second = FunctionAgent(name="second", description="Ends.", tools=[look_up], llm=ScriptedLLM([look(6), text(7)]))
    return AgentWorkflow(agents=[first, second], root_agent="first", store=store)


def look(number: int) -> ToolCallBlock:
    return tool_call("look_up", number=number)


class Harbour(BaseModel):
    name: str
    about: str


def structured(store: RunStore) -> FunctionAgent:
    form = tool_call("Harbour", name="Dover", about=text(8))
    return FunctionAgent(tools=[look_up], llm=ScriptedLLM([look(9), text(10), form]), output_cls=Harbour, store=store)


def reacting(store: RunStore) -> ReActAgent:
    asked = 'Thought: I look it up.\nAction: look_up\nAction Input: {"number": 11}'
    llm = ScriptedLLM([asked, f"Thought: I know it.\nAnswer: {text(12)}"])
    return ReActAgent(tools=[look_up], llm=llm, store=store)


def remembering(store: RunStore) -> FunctionAgent:
    memory = Memory.from_defaults(
        token_limit=300, memory_blocks=[StaticMemoryBlock(name="facts", static_content=text(13))]
    )
    return FunctionAgent(tools=[look_up], llm=ScriptedLLM([look(14), text(15), text(16)]), memory=memory, store=store)


class Said(Event):
    messages: list[ChatMessage]


class Passes(Workflow):
    """Passes messages on in events and in its state, and asks a model."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Said:
        messages = [ChatMessage(text(17)), ChatMessage(text(18), role="assistant")]
        await ctx.store.set("said", messages)
        return Said(messages=messages)

    @step
    async def end(self, ctx: Context, ev: Said) -> StopEvent:
        answer = await ScriptedLLM([text(19)]).achat(ev.messages)
        said = await ctx.store.get("said")
        said.append(answer.message)
        return StopEvent(result=[message.content for message in said])


PROGRAMS: dict[str, Callable[[RunStore], Workflow]] = {
    "team": searching, "structured": structured, "react": reacting, "memory": remembering,
    "workflow": lambda store: Passes(store=store),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
async def test_every_kind_of_program_is_recorded_the_same_with_references(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    class Whole(MemoryStore):
        keeps_parts = False

    monkeypatch.setattr("batonflow.agents.memory.memory.uuid4", lambda: "of the memory")
    lean, whole = MemoryStore(), Whole()
    for store in (lean, whole):
        numbers = count()
        monkeypatch.setattr(Source, "token", lambda _self, length, numbers=numbers: f"{next(numbers):0{length}}")
        await PROGRAMS[name](store).run(user_msg=text(20), run_id="r")
    assert compare(await lean.history("r"), await whole.history("r")).differences == []
    loaded = await lean.load("r")
    assert loaded is not None
    assert any(has_references(commit.body) for commit in loaded.commits)


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_commit_refers_to_parts_of_the_same_or_an_earlier_commit_alone(store: RunStore, name: str) -> None:
    await PROGRAMS[name](store).run(user_msg=text(20), run_id="r")
    loaded = await store.load("r")
    assert loaded is not None
    found = 0
    for commit in loaded.commits:
        body = read_json(commit.body)
        numbers = list(referred(body["r"]))
        assert max(numbers, default=-1) < body.get("p", 0)
        found += len(numbers)
    assert found
    for number, part in enumerate(loaded.parts):
        assert max(referred(read_json(part)), default=-1) < number or number == 0


def referred(value: Any) -> Iterator[int]:
    """Yield the numbers of the parts that a value of a record refers to."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "$":
                yield from numbers_in(inner)
            else:
                yield from referred(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from referred(inner)


def numbers_in(reference: Any) -> Iterator[int]:
    if isinstance(reference, int):
        yield reference
    elif isinstance(reference, list):
        for item in reference:
            yield item if isinstance(item, int) else item[0]
    elif "items" in reference:
        yield from numbers_in(reference["items"])
    else:
        yield from referred(reference)


async def test_a_store_without_parts_gets_whole_records() -> None:
    class Plain:
        """A store of a program: it has the methods of RunStore and nothing else."""

        def __init__(self, inner: MemoryStore) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            if name in ("keeps_parts", "read_parts"):
                raise AttributeError(name)
            return getattr(self._inner, name)

    inner = MemoryStore()
    agent = agent_with(Plain(inner))  # type: ignore[arg-type]
    await agent.run("Go.", run_id="r")
    loaded = await inner.load("r")
    assert loaded is not None
    assert loaded.parts == []
    assert not any(has_references(commit.body) for commit in loaded.commits)


async def test_the_result_of_a_run_is_whole(store: RunStore) -> None:
    agent = agent_with(store)
    await agent.run("Go.", run_id="r")
    info = await store.info("r")
    assert info is not None
    assert info.result is not None
    assert text(1_000_001) in info.result.decode()


async def test_a_list_of_messages_in_an_event_of_a_program_is_written_once(store: RunStore) -> None:
    class Asked(Event):
        messages: Messages

    class Asks(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> Asked:
            messages = [ChatMessage(text(number)) for number in range(20)]
            await ctx.store.set("conversation", messages)
            return Asked(messages=messages)

        @step
        async def end(self, ctx: Context, ev: Asked) -> StopEvent:
            assert [message.content for message in ev.messages] == [text(number) for number in range(20)]
            return StopEvent(result="done")

    await Asks(store=store, timeout=None, types=[Asked]).run(run_id="r")
    loaded = await store.load("r")
    assert loaded is not None
    assert sum(map(len, loaded.parts)) + await lean_size(store, "r") < 20 * TEXT * 1.5


# --- changes in place -------------------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[ChatMessage], Any]] = {
    "content": lambda one: setattr(one, "content", "changed"),
    "blocks": lambda one: one.blocks.append(TextBlock(text="changed")),
    "text": lambda one: setattr(one.blocks[0], "text", "changed"),
    "data": lambda one: one.additional_kwargs.update(note="changed"),
    "item": lambda one: one.blocks.__setitem__(0, TextBlock(text="changed")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_message_that_a_step_changes_in_place_is_in_its_record(
    store: RunStore, change: Callable[[ChatMessage], Any]
) -> None:
    class Edits(FunctionAgent):
        async def finalize(self, ctx: Any, output: Any, memory: Any) -> Any:
            output = await super().finalize(ctx, output, memory)
            change((await memory.aget_all())[1])
            return output

    numbers = count(100)
    llm = ScriptedLLM([lambda _: text(next(numbers))] * 10)
    agent = Edits(name="a", llm=llm, store=store, timeout=None)
    ctx = Context(agent)
    for number in range(3):
        memory = {"memory": ChatMemoryBuffer.from_defaults([ChatMessage("old"), ChatMessage("older")])}
        await agent.run(text(number), ctx=ctx, run_id=f"r{number}", **({} if number else memory))
        state = (await store.replay(f"r{number}", agent)).state_at(10**6)
        told = (await state["memory"].aget_all())[1]
        assert "changed" in told.model_dump_json()
        assert told == (await (await ctx.store.get("memory")).aget_all())[1]


async def test_a_copy_of_a_kept_message_is_another_message(store: RunStore) -> None:
    agent = agent_with(store)
    ctx = await talk(agent, 1)
    messages = await (await ctx.store.get("memory")).aget_all()
    copy = messages[0].model_copy(deep=True)
    copy.blocks.append(TextBlock(text="of the copy"))
    assert type(copy.blocks) is list
    await talk(agent, 1, ctx, first=1)
    state = (await store.replay("r1", agent)).state_at(10**6)
    assert (await state["memory"].aget_all())[0].content == text(0)


# --- across runs and processes ----------------------------------------------------------------------------------------


async def test_after_a_restart_at_any_commit_no_message_is_written_again(stores: Stores) -> None:
    store = stores.open()
    await talk(agent_with(store), 3)
    info = await store.info("r2")
    assert info is not None
    before = await stored_parts(store, "r2")
    for at in range(1, info.seq):
        agent = agent_with(stores.open())
        branch = agent.fork("r2", at, new_id=f"fork-{at}")
        await branch
        await agent.run(text(10), ctx=branch.ctx, run_id=f"after-{at}")
        parts = await stored_parts(store, f"after-{at}")
        assert parts[: len(before)] == before
        assert len(set(parts)) == len(parts), at
        said = b"".join(parts[len(before) :]).decode()
        assert not any(text(number)[:50] in said for number in range(3)), at


async def test_two_runs_from_one_context_keep_their_own_messages(store: RunStore) -> None:
    agent = agent_with(store)
    ctx = await talk(agent, 2)
    copy = Context.from_dict(agent, ctx.to_dict())
    await agent.run(text(20), ctx=ctx, run_id="left")
    await agent.run(text(30), ctx=copy, run_id="right")
    for run_id, number in (("left", 20), ("right", 30)):
        state = (await store.replay(run_id, agent)).state_at(10**6)
        said = [message.content for message in await state["memory"].aget_all()]
        assert [text(0), text(1), text(number)] == [said[0], said[4], said[8]]


async def test_a_conversation_goes_on_after_its_runs_were_deleted(store: RunStore) -> None:
    agent = agent_with(store)
    ctx = await talk(agent, 2)
    assert await store.retain(seconds=0) == ["r0", "r1"]
    await talk(agent, 1, ctx, first=2)
    state = (await store.replay("r2", agent)).state_at(10**6)
    assert [message.content for message in await state["memory"].aget_all()][::4] == [text(0), text(1), text(2)]


async def test_a_session_writes_its_messages_once_in_any_process(stores: Stores) -> None:
    for number in range(6):
        agent = agent_with(stores.open())
        await agent.run(text(number), session="s")
    store = stores.open()
    last = await store.read_session("s")  # type: ignore[attr-defined]
    parts = await store.read_parts(last.part_log)  # type: ignore[attr-defined]
    assert len(set(parts)) == len(parts)
    assert [body for body in parts if text(0)[:50].encode() in body] == [as_json(text(0))]
    assert await lean_size(store, "s:6") <= 1.1 * await lean_size(store, "s:3")


# --- secrets ----------------------------------------------------------------------------------------------------------


async def test_a_secret_in_a_message_is_not_shown_in_the_stream(store: RunStore) -> None:
    secret = "sk-abcdefghijklmnop1234"
    agent = agent_with(store)
    await agent.run(f"My key is {secret}", run_id="r")
    shown = [one.event for one in (await store.replay("r", agent)).events if isinstance(one.event, AgentInput)]
    assert shown
    assert not any(secret in str(message.content) for event in shown for message in event.input)
    state = (await store.replay("r", agent)).state_at(10**6)
    assert secret in (await state["memory"].aget_all())[0].content


# --- logs in stores ---------------------------------------------------------------------------------------------------


def commit(refers_to: Sequence[int], number: int) -> bytes:
    """The body of a commit that refers to parts."""
    record = {"kind": "edited", "id": number, "path": "", "writes": [[0, "x", [{"$": list(refers_to)}]]]}
    return b'{"p":%d,"t":1.0,"e":0.0,"r":[%b]}' % (10**6, as_json(record))


async def values(store: RunStore, run_id: str) -> list[Any]:
    return [read_json(one.body)["r"][0]["writes"][0][2][0] for one in await store.read(run_id)]


@pytest.mark.parametrize("seed", sampled(range(20), every=5))
async def test_parts_stay_as_long_as_something_needs_them(stores: Stores, seed: int) -> None:
    """Runs begin, continue one another, are forked and deleted in any order; each that is left is whole."""
    store, chance = stores.open(), random.Random(seed)
    names, numbers = (f"r{number}" for number in count()), count()
    # Of each run: its log, its parts, and the values of its commits.
    runs: dict[str, tuple[int, list[bytes], list[Any]]] = {}
    gone: list[tuple[int, int]] = []
    for _ in range(60):
        action = chance.choice(["begin", "begin", "continue", "continue", "fork", "delete"])
        source = chance.choice([*runs]) if runs else None
        name, new = next(names), [as_json(f"part {next(numbers)}") for _ in range(chance.randint(0, 3))]
        if action == "delete" and source is not None:
            log, parts, _ = runs.pop(source)
            gone.append((log, len(parts)))
            await store.delete(source, force=True)
            continue
        if action == "fork" and source is not None:
            log, parts, said = runs[source]
            at = chance.randint(0, len(said))
            assert await store.fork(source, at, name, []) == "forked"
            loaded = await store.load(name)
            assert loaded is not None
            assert loaded.parts == (await store.load(source)).parts  # type: ignore[union-attr]
            runs[name] = loaded.part_log, loaded.parts, said[:at]
            continue
        log, parts, _ = runs[source] if action == "continue" and source is not None else (None, [], [])
        at = chance.randint(0, len(parts))
        continues = None if log is None or not at else (log, at)
        known = [*(parts[:at] if continues else []), *new]
        body = commit(range(len(known)), 1)
        run = new_run(name, first=body, parts=new, continues=continues)
        created = await store.create(run, store.owner, 15.0)
        said = [[read_json(part) for part in known]]
        more = [as_json(f"part {next(numbers)}") for _ in range(chance.randint(0, 3))]
        last = entry(store, created.epoch, 1, [commit(range(len(known) + len(more)), 2)], name)  # type: ignore[union-attr]
        last.parts, last.first_part, last.status = more, len(known), "completed"
        await store.commit([last])
        runs[name] = created.part_log, [*known, *more], [*said, [read_json(part) for part in (*known, *more)]]  # type: ignore[union-attr]
        for run_id, (_, _, expected) in runs.items():
            assert await values(store, run_id) == expected, run_id
    for run_id in list(runs):
        await store.delete(run_id, force=True)
    for log, length in [*gone, *((log, len(parts)) for log, parts, _ in runs.values())]:
        assert await store.read_parts(log) == []  # type: ignore[attr-defined]
        if length:
            with pytest.raises(PartsGoneError):
                await store.create(new_run(next(names), continues=(log, length)), store.owner, 15.0)


async def test_an_unfinished_run_is_the_only_one_that_writes_into_its_log(store: RunStore) -> None:
    created = await store.create(new_run("a", parts=[b'"one"']), store.owner, 15.0)
    log = created.part_log  # type: ignore[union-attr]
    beside = await store.create(new_run("b", parts=[b'"two"'], continues=(log, 1)), store.owner, 15.0)
    assert beside.part_log != log  # type: ignore[union-attr]
    assert await stored_parts(store, "a") == [b'"one"']
    assert await stored_parts(store, "b") == [b'"one"', b'"two"']
    await write(store, 1, 0, [b"x"], "a", status="completed")
    after = await store.create(new_run("c", parts=[b'"three"'], continues=(log, 1)), store.owner, 15.0)
    assert after.part_log == log  # type: ignore[union-attr]


async def test_a_conversation_is_deleted_with_all_its_runs(store: RunStore) -> None:
    agent = agent_with(store)
    ctx = await talk(agent, 3)
    await agent.fork("r1", 2, new_id="fork")
    await talk(agent, 1, ctx, first=3)
    await agent.run("Other.", run_id="other")
    loaded = await store.load("r3")
    assert loaded is not None
    assert await store.delete("r1", conversation=True)
    assert [info.run_id for info in await store.list_runs()] == ["other"]
    assert await store.read_parts(loaded.part_log) == []  # type: ignore[attr-defined]
    assert not await store.delete("r1", conversation=True)


async def test_a_conversation_with_a_run_at_work_stays_whole(store: RunStore) -> None:
    created = await store.create(new_run("a", parts=[b'"one"']), store.owner, 15.0)
    await write(store, 1, 0, [b"x"], "a", status="completed")
    await store.create(new_run("b", continues=(created.part_log, 1)), store.owner, 15.0)  # type: ignore[union-attr]
    with pytest.raises(StoreError, match="Run 'b' is being driven by"):
        await store.delete("a", conversation=True)
    assert {info.run_id for info in await store.list_runs()} == {"a", "b"}
    assert await store.delete("a", conversation=True, force=True)
    assert await store.list_runs() == []


async def test_a_conversation_of_a_session_is_deleted_with_the_session(store: RunStore) -> None:
    agent = agent_with(store)
    await agent.run(text(0), session="s")
    with pytest.raises(StoreError, match=r"Run 's:1' is a turn of session 's'.*agent.session\('s'\).delete\(\)"):
        await store.delete("s:1", conversation=True)
    assert await store.info("s:1") is not None


async def test_a_session_keeps_its_messages_when_its_runs_are_deleted(store: RunStore) -> None:
    agent = agent_with(store)
    for number in range(3):
        await agent.run(text(number), session="s")
    for number in range(1, 4):
        await store.delete(f"s:{number}")
    found = await store.read_session("s")  # type: ignore[attr-defined]
    parts = await store.read_parts(found.part_log)  # type: ignore[attr-defined]
    assert parts
    await agent.run(text(3), session="s")
    assert (await stored_parts(store, "s:4"))[: len(parts)] == parts
    await agent.session("s").delete()
    assert await store.read_parts(found.part_log) == []  # type: ignore[attr-defined]


async def test_a_damaged_part_is_reported_with_the_runs_that_need_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SQLiteStore(path)
    await talk(agent_with(store), 2)
    await store.aclose()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE parts SET body = x'22' WHERE place = (SELECT min(place) FROM parts)")
    connection.close()
    store = SQLiteStore(path)
    with pytest.raises(
        StoreCorruptedError, match=r"Part 0 of the conversation of the runs 'r1', 'r0' in .* is damaged"
    ):
        await store.history("r1")
    await store.aclose()


async def test_a_part_that_is_too_large_is_refused(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_RECORD", 100)
    with pytest.raises(StoreError, match="A message or text of run 'a' has 101 bytes"):
        await store.create(new_run("a", parts=[b"x" * 101]), store.owner, 15.0)
    epoch = await begin(store)
    large = entry(store, epoch, 0, [b"x"])
    large.parts = [b"x" * 101]
    with pytest.raises(StoreError, match="A message or text of run 'a' has 101 bytes"):
        await store.commit([large])
    assert await stored_parts(store, "a") == []


async def test_a_commit_that_is_repeated_adds_its_parts_once(store: RunStore) -> None:
    epoch = await begin(store, first=b"0")
    one = entry(store, epoch, 1, [commit([0], 1)])
    one.parts = [b'"one"']
    assert [verdict.outcome for verdict in await store.commit([one])] == ["committed"]
    assert [verdict.outcome for verdict in await store.commit([one])] == ["already"]
    assert await stored_parts(store, "a") == [b'"one"']


# --- data and objects of programs -------------------------------------------------------------------------------------


class Asked(Event):
    number: int


class Data(Workflow):
    """Keeps data that look like references, and returns them."""

    given: Any = None
    long = False

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Asked:
        await ctx.store.set("given", self.given)
        if self.long:
            await ctx.store.set("long", text(0))
        return Asked(number=1)

    @step
    async def end(self, ctx: Context, ev: Asked) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent, timeout=None)
        return StopEvent(result=[await ctx.store.get("given"), answer.response])


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("given", [{"$": 0}, {"$": [0, 1]}, {"$": {"data": {"$": 0}}}, {"$": {"of": "x", "items": []}}])
async def test_data_that_look_like_references_stay_data(stores: Stores, given: Any, long: bool) -> None:
    class Kept(Data):
        pass

    Kept.given, Kept.long = given, long
    run = Kept(store=stores.open(), timeout=None).run(run_id="r")
    await asyncio.sleep(0.05)
    await run.interrupt()
    for at in range(1, (await stores.open().info("r")).seq + 1):  # type: ignore[union-attr]
        branch = Kept(store=stores.open(), timeout=None).fork("r", at, new_id=f"f{at}", state={"x.y": given})
        branch.ctx.send_event(HumanResponseEvent(response=given))
        assert await branch == [given, given]
        assert (await stores.open().replay(f"f{at}")).state_at(10**6)["x.y"] == given
    again = Kept(store=stores.open(), timeout=None).resume("r")
    again.ctx.send_event(HumanResponseEvent(response=given))
    assert await again == [given, given]
    assert await Kept(store=stores.open(), timeout=None).run(run_id="r") == [given, given]
    assert (await stores.open().replay("r")).result == [given, given]


async def test_an_event_whose_only_data_have_the_name_of_references_comes_back(stores: Stores) -> None:
    class Only(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("long", text(0))
            answer = await ctx.wait_for_event(HumanResponseEvent, timeout=None)
            return StopEvent(result=[ev.to_dict(), answer.response])

    run = Only(store=stores.open(), timeout=None).run(**{"$": 3}, run_id="r")  # type: ignore[arg-type]
    await asyncio.sleep(0.05)
    await run.interrupt()
    again = Only(store=stores.open(), timeout=None).resume("r")
    again.ctx.send_event(HumanResponseEvent(response="yes"))
    assert await again == [{"$": 3}, "yes"]


async def test_values_set_between_runs_on_a_context_belong_to_the_next_run(store: RunStore) -> None:
    agent = agent_with(store)
    ctx = await talk(agent, 1)
    for number in range(1, 4):
        await ctx.store.set("between", text(100 + number))
        await asyncio.sleep(0)
        handler = agent.run(text(number), ctx=ctx, run_id=f"r{number}")
        await handler.ctx.store.set("beside", text(200 + number))
        await handler
    parts = await stored_parts(store, "r3")
    assert len(set(parts)) == len(parts)
    assert [as_json(text(0))] == [part for part in parts if text(0)[:50].encode() in part]
    for number in range(1, 4):
        state = (await store.replay(f"r{number}", agent)).state_at(10**6)
        assert state["between"] == text(100 + number)


class OwnBuffer(ChatMemoryBuffer):
    """A memory with a field that memories of another class have."""

    session_id: str = "ann"


class Validated(BaseModel):
    """A model with a validator of the program, and anything in it."""

    held: Any = None

    @model_validator(mode="after")
    def check(self) -> "Validated":
        return self


async def test_memories_and_models_of_programs_come_back(stores: Stores) -> None:
    class Holds(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            memory = OwnBuffer.from_defaults([ChatMessage(text(number)) for number in range(10)])
            own = OwnBuffer(chat_store=memory.chat_store)
            await ctx.store.set("own", own)
            await ctx.store.set("held", Validated(held=own))
            await ctx.store.set("messages", Validated(held=[ChatMessage(text(0))]))
            await ctx.store.set("blocks", own.get_all()[0].blocks)
            await ctx.wait_for_event(HumanResponseEvent, timeout=None)
            return StopEvent()

    run = Holds(store=stores.open(), timeout=None).run(run_id="r")
    await asyncio.sleep(0.05)
    await run.interrupt()
    again = Holds(store=stores.open(), timeout=None).resume("r")
    await again.started()
    for name in ("own", "held"):
        found = await again.ctx.store.get(name)
        memory = found if name == "own" else found.held
        assert [message.content for message in memory.get_all()] == [text(number) for number in range(10)]
    assert (await again.ctx.store.get("messages")).held[0].content == text(0)
    assert (await again.ctx.store.get("blocks"))[0].text == text(0)
    await again.interrupt()


async def test_a_list_of_blocks_that_a_step_holds_is_that_of_its_message(store: RunStore) -> None:
    class Holds(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            message = ChatMessage("one")
            blocks = message.blocks
            await ctx.store.set("messages", [message])
            await ctx.once("recorded", str)
            blocks.append(TextBlock(text="two"))
            return StopEvent(result=message.content)

    assert await Holds(store=store, timeout=None).run(run_id="r") == "one\ntwo"
    state = (await store.replay("r")).state_at(10**6)
    assert state["messages"][0].content == "one\ntwo"


async def test_equal_messages_of_two_memories_are_two_messages_after_a_restart(stores: Stores) -> None:
    class Two(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            for name in ("one", "other"):
                memory = ChatMemoryBuffer.from_defaults([ChatMessage("hi")])
                await ctx.store.set(name, memory)
            await ctx.wait_for_event(HumanResponseEvent, timeout=None)
            (await ctx.store.get("one")).get_all()[0].content = "changed"
            return StopEvent(result=(await ctx.store.get("other")).get_all()[0].content)

    run = Two(store=stores.open(), timeout=None).run(run_id="r")
    await asyncio.sleep(0.05)
    await run.interrupt()
    again = Two(store=stores.open(), timeout=None).resume("r")
    await again.started()
    one, other = [(await again.ctx.store.get(name)).get_all()[0] for name in ("one", "other")]
    assert one is not other
    await again.interrupt()


class Shown(Event):
    messages: Messages


async def test_a_secret_that_is_only_streamed_is_in_no_part(store: RunStore) -> None:
    class Shows(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(Shown(messages=[ChatMessage("key sk-abcdefghijklmnop1234")]))
            return StopEvent()

    await Shows(store=store).run(run_id="r")
    loaded = await store.load("r")
    assert loaded is not None
    assert b"abcdefghijklmnop1234" not in b"".join([*loaded.parts, *(commit.body for commit in loaded.commits)])
    [shown] = [one.event for one in (await store.replay("r")).events if isinstance(one.event, Shown)]
    assert shown.messages[0].content == "key [redacted]"


async def test_a_secret_that_is_known_later_is_not_streamed_any_more(stores: Stores) -> None:
    secret = f"the word is {text(7, 30)}"
    agent = agent_with(stores.open())
    ctx = Context(agent)
    await agent.run(secret, ctx=ctx, run_id="before")
    never_show(secret)
    await agent.run("And now?", ctx=ctx, run_id="after")
    assert agent.run_store is not None
    assert secret in str(await agent.run_store.history("before"))
    shown = [one.event for one in (await agent.run_store.replay("after", agent)).events]
    assert any(isinstance(event, AgentInput) for event in shown)
    assert secret not in str([event for event in shown if isinstance(event, AgentInput)])
    [call, *_] = (await agent.run_store.replay("after", agent)).model_calls
    assert secret not in str(call)


async def test_references_deep_in_an_event_are_written(store: RunStore) -> None:
    class Deep(Event):
        inner: Any

    class Shows(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            inner: Any = Shown(messages=[ChatMessage("deep")])
            for _ in range(30):
                inner = {"in": inner}
            ctx.write_event_to_stream(Deep(inner=inner))
            return StopEvent()

    await Shows(store=store, types=[Deep]).run(run_id="r")
    [deep] = [one.event for one in (await store.replay("r", Shows(types=[Deep]))).events if isinstance(one.event, Deep)]
    inner = deep.inner
    for _ in range(30):
        inner = inner["in"]
    assert inner.messages[0].content == "deep"


async def test_forks_of_forks_are_read(store: RunStore) -> None:
    agent = agent_with(store)
    await agent.run("Go.", run_id="f0")
    for number in range(60):
        assert await store.fork(f"f{number}", 3, f"f{number + 1}", []) == "forked"
    assert len(await store.history("f60")) >= 3


class OwnMessage(ChatMessage):
    note: str = ""


class Box(BaseModel):
    free: Any = None
    messages: Messages = []


class Conversations(RootModel[list[ChatMessage]]):
    """A list of messages as a model."""


class FreeRoot(RootModel[Any]):
    """Any data as a model."""


class Held(Event):
    messages: Messages
    plain: list[ChatMessage]
    named: dict[str, Messages]
    free: Any
    box: Box


ODD_MESSAGES: dict[str, ChatMessage] = {
    "date": ChatMessage("odd", additional_kwargs={"at": date(2026, 1, 2)}),
    "class": OwnMessage("odd", note="kept"),
    "marks": ChatMessage("odd", additional_kwargs={"__is_pydantic": True, "value": {}, "qualified_name": "x"}),
    "reference": ChatMessage("odd", additional_kwargs={"$": 0}),
}
ODD_DATA = [
    {"$": 0},
    {"$": 99},
    [{"$": "usd"}],
    {"$": {"data": 5}},
    {"$": date(2026, 1, 2)},
    (1, {"$": 0}),
    "long " * 99,
]


@pytest.mark.parametrize(("kind", "data"), sampled(product(ODD_MESSAGES, ODD_DATA), every=5))
async def test_odd_messages_and_data_are_the_same_after_a_restart_at_any_commit(
    stores: Stores, kind: str, data: Any
) -> None:
    def messages() -> list[ChatMessage]:
        return [ODD_MESSAGES[kind].model_copy(deep=True), *(ChatMessage(text(n)) for n in range(10))]

    def box() -> Box:
        return Box(free=data, messages=messages())

    def held() -> Held:
        more: dict[str, Any] = {"$": data}
        return Held(messages=messages(), plain=messages(), named={"one": messages()}, free=data, box=box(), **more)

    class Holds(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> Held:
            await ctx.store.set("box", box())
            await ctx.store.set("roots", [Conversations(messages()), FreeRoot(data)])
            await ctx.once("box", box)
            return held()

        @step
        async def end(self, ctx: Context, ev: Held) -> StopEvent:
            assert ev == held()
            assert await ctx.store.get("box") == await ctx.once("again", box) == box()
            assert await ctx.store.get("roots") == [Conversations(messages()), FreeRoot(data)]
            return StopEvent(result=ev.box)

    first = stores.open()
    assert await Holds(store=first).run(run_id="r") == box()
    info = await first.info("r")
    assert info is not None
    for at in range(1, info.seq):
        assert await Holds(store=stores.open()).fork("r", at=at, new_id=f"fork.{at}") == box()


@pytest.mark.parametrize("kind", ODD_MESSAGES)
async def test_a_model_is_asked_with_odd_messages_after_a_restart(stores: Stores, kind: str) -> None:
    agent = FunctionAgent(llm=ScriptedLLM(["one", "two"]), store=stores.open())
    ctx = Context(agent)
    await agent.run(ODD_MESSAGES[kind], ctx=ctx, run_id="first")
    await agent.run("And?", ctx=ctx, run_id="second")
    for at in (1, 2, 3):
        other = ScriptedLLM(["three"])
        await FunctionAgent(llm=other, store=stores.open()).fork("second", at=at, new_id=f"fork.{at}")
        assert [message.content for message in other.requests[0].messages] == ["odd", "one", "And?"]


async def test_a_result_of_a_tool_that_looks_like_a_reference_is_the_same_after_a_restart(stores: Stores) -> None:
    for number, given in enumerate(ODD_DATA[:4]):

        def odd(given: Any = given) -> Any:
            """Return odd data."""
            return given

        def agent(store: RunStore) -> FunctionAgent:
            call = ToolCallBlock(tool_call_id="1", tool_name="odd", tool_kwargs={})
            llm = ScriptedLLM([lambda request: "done" if len(request.messages) > 2 else call] * 2)
            return FunctionAgent(llm=llm, tools=[tool(odd, idempotent=True)], store=store)

        first = stores.open()
        await agent(first).run("Go.", run_id=f"run.{number}")
        info = await first.info(f"run.{number}")
        assert info is not None
        for at in range(1, info.seq):
            output = await agent(stores.open()).fork(f"run.{number}", at=at, new_id=f"fork.{number}.{at}")
            assert [call.tool_output.raw_output for call in output.tool_calls] == [given]
