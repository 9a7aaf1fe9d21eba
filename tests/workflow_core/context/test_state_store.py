"""The key-value state of a run: paths, typed state, edits that commit as a whole."""

import asyncio
import threading
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from batonflow.workflow_core import Context, Event, JsonSerializer, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.context.state_store import (
    DictState,
    InMemoryStateStore,
    StateStore,
    UnserializableKeyWarning,
)
from batonflow.workflow_core.errors import ContextSerdeError, WorkflowRuntimeError
from tests.contract import contract


class Address(BaseModel):
    city: str = "Bergen"
    lines: list[str] = []


class Person(BaseModel):
    name: str = "nobody"
    address: Address = Field(default_factory=Address)


class Employee(Person):
    salary: int = 0


class Boss(Employee):
    reports: list[str] = []


class Unrelated(BaseModel):
    x: int = 0


class NeedsName(BaseModel):
    name: str


class Next(Event):
    pass


def free(**values: Any) -> InMemoryStateStore[DictState]:
    return InMemoryStateStore(DictState(**values))


# --- methods ----------------------------------------------------------------------------------------------------------


@contract("5.1.0")
async def test_the_methods_of_a_store():
    store = free(a=1)
    assert isinstance(store, StateStore)
    assert store.state_type is DictState
    assert await store.get("a") == 1
    await store.set("b", 2)
    assert (await store.get_state()).b == 2
    await store.set_state(DictState(c=3))
    assert await store.get("b", default=None) is None
    async with store.edit_state() as state:
        state["d"] = 4
    assert await store.get("d") == 4
    await store.clear()
    assert (await store.get_state()).to_dict() == {}


@contract("5.1.0")
async def test_a_store_is_written_and_read_back():
    serializer = JsonSerializer()
    store = free(a=1, nested={"b": [1, {"c": None}]}, where=Address(city="Oslo"))
    again = InMemoryStateStore.from_dict(store.to_dict(serializer), serializer)
    assert await again.get("nested.b.1.c") is None
    assert (await again.get("where")).city == "Oslo"
    typed = InMemoryStateStore(Person(name="Ann"))
    payload = typed.to_dict(serializer)
    assert (payload["store_type"], payload["state_type"]) == ("in_memory", "Person")
    assert payload["state_module"] == __name__
    assert (await InMemoryStateStore.from_dict(payload, serializer).get_state()).name == "Ann"


# --- paths ------------------------------------------------------------------------------------------------------------


@contract("5.1.1")
async def test_paths_lead_through_dicts_lists_and_models():
    store = free(user={"tags": ["a", "b"], "home": Address(lines=["x", "y"])})
    assert await store.get("user.tags.1") == "b"
    assert await store.get("user.home.city") == "Bergen"
    assert await store.get("user.home.lines.0") == "x"
    await store.set("user.home.lines.0", "z")
    await store.set("user.home.city", "Oslo")
    assert await store.get("user.home") == Address(city="Oslo", lines=["z", "y"])


@contract("5.1.1")
async def test_a_number_in_a_path_is_the_key_that_is_there():
    store = free(texts={"1": "a"}, numbers={1: "a", -2: "b"}, both={"1": "a", 1: "b"})
    for path in ("texts.1", "numbers.1", "numbers.-2", "both.1", "texts.3"):
        await store.set(path, "new")
        assert await store.get(path) == "new"
    assert await store.get("texts") == {"1": "new", "3": "new"}
    assert await store.get("numbers") == {1: "new", -2: "new"}
    assert await store.get("both") == {"1": "new", 1: "b"}
    for odd in ("\u00b2", "--0", "01", "-"):
        assert await store.get(f"numbers.{odd}", None) is None
        await store.set(f"numbers.{odd}", "odd")
    assert await store.get("numbers") == {1: "new", -2: "new", "\u00b2": "odd", "--0": "odd", "01": "odd", "-": "odd"}


async def test_a_missing_path_raises_unless_there_is_a_default():
    store = free(a={"b": 1})
    for path in ("x", "a.x", "a.b.x", "a.0"):
        with pytest.raises(ValueError, match="not in the state"):
            await store.get(path)
        assert await store.get(path, default="d") == "d"
        assert await store.get(path, default=None) is None


@contract("5.1.1")
async def test_writing_makes_the_dicts_on_the_way():
    store = free()
    await store.set("a.b.c", 1)
    assert (await store.get_state()).to_dict() == {"a": {"b": {"c": 1}}}


@contract("5.1.1")
async def test_limits_of_paths():
    store = free()
    with pytest.raises(ValueError, match="empty"):
        await store.set("", 1)
    with pytest.raises(ValueError, match="1001"):
        await store.set(".".join("a" * 1001), 1)
    with pytest.raises(ValueError, match="1001"):
        await store.get(".".join("a" * 1001))
    await store.set(".".join("a" * 900), 1)
    assert await store.get(".".join("a" * 900)) == 1


@contract("5.1.1")
async def test_a_path_cannot_lead_through_something_that_holds_nothing():
    store = free(number=3, items_=[1])
    with pytest.raises(ValueError, match=r"'number\.x'"):
        await store.set("number.x", 1)
    with pytest.raises(ValueError, match=r"'items_\.5'"):
        await store.set("items_.5", 1)
    assert await store.get("number") == 3


@contract("5.1.1")
async def test_names_of_dict_methods_are_ordinary_keys():
    store = free()
    for name in ("items", "get", "keys", "to_dict", "model_dump"):
        await store.set(name, name.upper())
        assert await store.get(name) == name.upper()
    await store.set("inner", {"items": 1})
    assert await store.get("inner.items") == 1


@contract("5.1.1")
async def test_writing_leaves_alone_what_is_not_on_the_path():
    untouched = {"deep": [1, 2]}
    before = {"left": untouched, "right": {"n": 1}}
    store = free(tree=before)
    held = await store.get("tree")
    await store.set("tree.right.n", 2)
    assert held == {"left": {"deep": [1, 2]}, "right": {"n": 1}}
    assert (await store.get("tree.left")) is untouched
    assert await store.get("tree.right.n") == 2


segment = st.text(st.characters(categories=["L"], exclude_characters="."), min_size=1, max_size=4)


@contract("5.1.1")
@given(st.lists(st.tuples(st.lists(segment, min_size=1, max_size=4), st.integers()), min_size=1, max_size=8))
def test_what_was_written_last_at_a_path_is_read_there(writes: list[tuple[list[str], int]]):
    async def scenario() -> None:
        store = free()
        model: dict[str, Any] = {}
        for path, value in writes:
            inner = model
            fits = True
            for part in path[:-1]:
                inner = inner.setdefault(part, {})
                if not isinstance(inner, dict):
                    fits = False
                    break
            if fits:
                inner[path[-1]] = value
                await store.set(".".join(path), value)
            else:
                with pytest.raises(ValueError, match="cannot be written"):
                    await store.set(".".join(path), value)
        assert (await store.get_state()).to_dict() == model

    # A model is a dict of dicts; where it cannot hold a path, neither may the store, and it is left as it was.
    asyncio.run(scenario())


# --- types ------------------------------------------------------------------------------------------------------------


@contract("5.1.2")
async def test_state_is_free_by_default():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            async with ctx.store.edit_state() as state:
                state["a"] = 1
                state.b = 2
            state = await ctx.store.get_state()
            return StopEvent(result=(type(state) is DictState, state.a, state["b"]))

    assert await Flow().run() == (True, 1, 2)


@contract("5.1.2")
async def test_the_most_derived_of_the_asked_types_is_used():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context[Person], ev: StartEvent) -> Next:
            await ctx.store.set("name", "Ann")
            return Next()

        @step
        async def middle(self, ctx: Context[Boss], ev: Next) -> StopEvent:
            state = await ctx.store.get_state()
            return StopEvent(result=(type(state) is Boss, state.name, state.reports))

        @step
        async def untyped(self, ctx: Context, ev: Next) -> None: ...

    assert await Flow().run() == (True, "Ann", [])
    assert Flow().run_state_type is Boss


@contract("5.1.2")
async def test_types_on_different_lines_of_inheritance_are_refused():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context[Person], ev: StartEvent) -> Next: ...

        @step
        async def end(self, ctx: Context[Unrelated], ev: Next) -> StopEvent: ...

    with pytest.raises(ValueError, match="compatible inheritance"):
        Context(Flow())


@contract("5.1.2")
async def test_typed_state_needs_defaults():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context[NeedsName], ev: StartEvent) -> StopEvent:
            return StopEvent(result=await ctx.store.get("name"))

    with pytest.raises(ValueError, match="State must have defaults for all fields"):
        await Flow().run()


# --- whole states -----------------------------------------------------------------------------------------------------


@contract("5.1.3")
async def test_set_state_replaces_by_class_or_subclass():
    store = InMemoryStateStore(Employee(name="Ann", salary=3))
    await store.set_state(Employee(name="Bob"))
    assert (await store.get_state()) == Employee(name="Bob")
    await store.set_state(Boss(name="Cid", reports=["Bob"]))
    assert type(await store.get_state()) is Boss


@contract("5.1.3")
async def test_set_state_of_a_parent_class_merges_its_fields():
    store = InMemoryStateStore[Person](Employee(name="Ann", salary=3))
    await store.set_state(Person(name="Bob"))
    assert (await store.get_state()) == Employee(name="Bob", salary=3)


@contract("5.1.3")
async def test_set_state_of_another_class_is_refused():
    store = InMemoryStateStore[Any](Person())
    with pytest.raises(ValueError, match=r"State must be of type Person.*Unrelated"):
        await store.set_state(Unrelated())


@contract("5.1.3")
async def test_get_state_is_a_shallow_copy():
    store = InMemoryStateStore(Person())
    copy = await store.get_state()
    copy.name = "changed"
    assert await store.get("name") == "nobody"
    copy.address.city = "Oslo"
    assert await store.get("address.city") == "Oslo"


@contract("5.1.3")
async def test_clear_goes_back_to_the_defaults_of_the_current_type():
    store = InMemoryStateStore[Person](Person(name="Ann"))
    await store.set_state(Boss(name="Ann", reports=["x"]))
    await store.clear()
    assert (await store.get_state()) == Boss()


# --- edit_state -------------------------------------------------------------------------------------------------------


@contract("5.1.4")
async def test_an_edit_counts_only_when_the_block_ends_well():
    store = free(tags=["a"])
    async with store.edit_state() as state:
        state.tags.append("b")
        assert await store.get("tags") == ["a"], "readers see what is committed, also inside the block"
    assert await store.get("tags") == ["a", "b"]

    async def fail() -> None:
        async with store.edit_state() as state:
            state.tags.append("c")
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        await fail()
    assert await store.get("tags") == ["a", "b"]


@contract("5.1.4")
async def test_writers_are_exclusive_and_readers_never_wait():
    store = free(n=0)
    order: list[str] = []
    inside, has_read = asyncio.Event(), asyncio.Event()

    async def edit(name: str) -> None:
        async with store.edit_state() as state:
            order.append(f"{name} in")
            inside.set()
            read = state["n"]
            await has_read.wait()
            state["n"] = read + 1
            order.append(f"{name} out")

    async def write() -> None:
        await inside.wait()
        await store.set("m", 1)
        order.append("set")

    async def read() -> None:
        await inside.wait()
        await asyncio.sleep(0)  # the writer is on its way
        order.append(f"read {await store.get('n')}")
        has_read.set()

    await asyncio.gather(edit("a"), edit("b"), write(), read())
    assert await store.get("n") == 2
    assert await store.get("m") == 1
    assert order[:2] == ["a in", "read 0"]
    assert order.index("a out") < order.index("b in")
    assert order.index("a out") < order.index("set")


@contract("5.1.4")
@pytest.mark.parametrize("writer", ["set", "set_state", "clear", "edit_state"])
async def test_writing_inside_the_block_of_the_same_task_is_refused(writer: str):
    store = free(a=1)

    async def write() -> None:
        if writer == "set":
            await store.set("a", 2)
        elif writer == "set_state":
            await store.set_state(DictState())
        elif writer == "clear":
            await store.clear()
        else:
            async with store.edit_state():
                pass

    async with store.edit_state() as state:
        with pytest.raises(RuntimeError, match="edit_state"):
            await write()
        state.a = 3
    assert await store.get("a") == 3
    await write()


@contract("5.1.4")
async def test_what_cannot_be_copied_is_shared():
    lock = threading.Lock()
    store = free(lock=lock, tags=["a"])
    async with store.edit_state() as state:
        assert state.lock is lock
        assert state.tags is not await store.get("tags")


@contract("5.1.4")
async def test_excluded_fields_are_shared():
    class Holder(BaseModel):
        client: Any = Field(default=None, exclude=True)
        n: int = 0

    client = ["not a plain value"]
    store = InMemoryStateStore(Holder(client=client))
    async with store.edit_state() as state:
        state.n = 1
        assert state.client is client
    assert (await store.get_state()).client is client


@contract("5.1.4")
async def test_a_step_that_knows_the_parent_type_keeps_the_derived_fields():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context[Employee], ev: StartEvent) -> Next:
            async with ctx.store.edit_state() as state:
                state.salary = 5
            return Next()

        @step
        async def end(self, ctx: Context[Person], ev: Next) -> StopEvent:
            async with ctx.store.edit_state() as state:
                state.name = "Ann"
            return StopEvent(result=await ctx.store.get_state())

    assert await Flow().run() == Employee(name="Ann", salary=5)


@contract("5.1.4")
async def test_two_steps_that_edit_one_key_lose_nothing():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[Next]:
            return [Next(n=n) for n in range(10)]

        @step(num_workers=10)
        async def add(self, ctx: Context, ev: Next) -> StopEvent | Next | None:
            async with ctx.store.edit_state() as state:
                seen = state.get("n", 0)
                await asyncio.sleep(0)
                state["n"] = seen + 1
            return StopEvent(result=state["n"]) if state["n"] == 10 else None

    assert await Flow(disable_validation=True).run() == 10


async def test_an_aborted_edit_lets_the_next_writer_in():
    store = free()

    async def aborted() -> None:
        async with store.edit_state():
            await asyncio.sleep(100)

    task = asyncio.create_task(aborted())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(store.set("a", 1), 1)


# --- as data ----------------------------------------------------------------------------------------------------------


@contract("5.2.5")
async def test_decoding_goes_by_the_shape_of_the_data():
    serializer = JsonSerializer()
    payload = free(a=[1]).to_dict(serializer)
    assert payload["state_data"] == {"_data": {"a": "[1]"}}
    payload.update(state_module="os", state_type="system")
    assert await InMemoryStateStore.from_dict(payload, serializer).get("a") == [1]


@contract("5.2.5")
async def test_a_key_that_cannot_be_written_is_named():
    with pytest.raises(ValueError, match=r"'socket'.*object"):
        free(socket=object()).to_dict(JsonSerializer())


@contract("5.2.5")
async def test_memory_alone_may_be_left_out():
    with pytest.warns(UnserializableKeyWarning, match="'memory'"):
        payload = free(memory=object(), a=1).to_dict(JsonSerializer())
    assert payload["state_data"] == {"_data": {"a": "1"}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        free(memory=[1]).to_dict(JsonSerializer())


@contract("5.2.7")
async def test_a_payload_whose_state_lives_in_a_durable_store_is_refused():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

    flow = Flow()
    payload = Context(flow).to_dict()
    payload["state"] = {"store_type": "sqlite", "db": "x.db"}
    ctx = Context.from_dict(flow, payload)
    with pytest.raises(ContextSerdeError, match="durable state store"):
        await ctx.store.get("a")
    with pytest.raises(WorkflowRuntimeError, match="durable state store"):
        flow.run(ctx=ctx)
