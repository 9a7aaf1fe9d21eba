"""The typed state of agents: contexts whose store holds a model, alone, in teams, in stores and after a restart."""

import json
import warnings
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, Field, model_validator

from batonflow.agents import AgentWorkflow, FunctionAgent, Middleware, StateTypeWarning, ToolCall, ToolCallResult
from batonflow.llms import ChatMessage, ScriptedLLM, tool_call
from batonflow.tools import BaseTool, Toolset, tool
from batonflow.workflow_core import Context, MemoryStore, SQLiteStore, step
from batonflow.workflow_core.context import RunContext


class Person(BaseModel):
    name: str = ""
    born: date | None = None


class Case(BaseModel):
    count: int = 0
    topics: list[str] = Field(default_factory=list[str])
    owner: Person = Field(default_factory=Person)


class Longer(Case):
    notes: str = ""


seen: list[Any] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


async def open_case(ctx: Context[Case], topic: str) -> str:
    """Open a case."""
    async with ctx.store.edit_state() as state:
        seen.append(type(state))
        state.count += 1
        state.topics.append(topic)
    await ctx.store.set("owner.born", "2020-02-01")
    seen.append(await ctx.store.get("owner.born"))
    return f"case {await ctx.store.get('count')}"


def close_case(ctx: RunContext[Any, Case]) -> str:
    """Close a case, in a thread."""
    with ctx.store.edit_state_sync() as state:
        state.count -= 1
    ctx.store.set_sync("owner.name", "Ann")
    return f"left {ctx.store.get_state_sync().count}"


async def read(ctx: Context, topic: str) -> str:
    """Read the state as programs of LlamaIndex do."""
    state = await ctx.store.get("state")
    return f"{type(state).__name__} {await ctx.store.get('state.count')} {topic}"


def made(*turns: Any, **options: Any) -> FunctionAgent:
    tools = [open_case, close_case, read]
    return FunctionAgent(**{"llm": ScriptedLLM([*turns, "Done."]), "tools": tools, "state": Case, **options})


OPEN = tool_call("open_case", topic="tides")


class TestATool:
    async def test_gets_the_model_alone(self) -> None:
        agent = made(OPEN, tool_call("close_case"), tool_call("read", topic="x"))
        handler = agent.run("Go.")
        output = await handler
        assert [result.tool_output.content for result in output.tool_calls] == ["case 1", "left 0", "Case 0 x"]
        assert seen == [Case, date(2020, 2, 1)]
        state = await handler.state(Case)
        assert state == Case(topics=["tides"], owner=Person(name="Ann", born=date(2020, 2, 1)))

    async def test_gets_the_model_in_a_team(self) -> None:
        member = made(OPEN, name="clerk", description="Opens cases.")
        handler = AgentWorkflow(agents=[member]).run("Go.")
        await handler
        assert seen[0] is Case
        assert (await handler.state(Case)).topics == ["tides"]

    @pytest.mark.parametrize("kind", ["memory", "sqlite"])
    async def test_gets_the_model_after_a_restart(self, tmp_path: Path, kind: str) -> None:
        @tool(requires_approval=True)
        async def publish(ctx: Context[Case]) -> str:
            """Publish the case."""
            seen.append(await ctx.store.get_state())
            await ctx.store.set("count", 7)
            return "published"

        store: Any = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "runs.db")
        first = made(OPEN, tool_call("publish"), tools=[open_case, publish], store=store).run("Go.", run_id="r")
        async for _ in first.approvals():
            await first.interrupt()
            break
        again = MemoryStore(beside=store) if kind == "memory" else SQLiteStore(tmp_path / "runs.db")
        second = made(tools=[open_case, publish], store=again).resume("r")
        async for request in second.approvals():
            request.approve()
        await second
        assert seen[-1] == Case(count=1, topics=["tides"], owner=Person(born=date(2020, 2, 1)))
        assert (await second.state(Case)).count == 7

    async def test_gets_the_model_after_a_snapshot(self) -> None:
        agent = made(OPEN)
        handler = agent.run("Go.")
        await handler
        data = json.loads(json.dumps(handler.ctx.to_dict()))
        again = made(OPEN)
        later = again.run("More.", ctx=Context.from_dict(again, data))
        await later
        assert (await later.state(Case)).count == 2

    async def test_has_its_own_copy_of_a_given_instance(self) -> None:
        given = Case(count=40)
        agent = made(OPEN, "Done.", OPEN, state=given)
        first, second = agent.run("Go."), None
        await first
        second = agent.run("Go.")
        await second
        assert [(await one.state(Case)).count for one in (first, second)] == [41, 41]
        assert given == Case(count=40)

    async def test_gets_the_state_given_to_a_run(self) -> None:
        handler = made(OPEN).run("Go.", state=Longer(count=5, notes="kept"))
        await handler
        assert await handler.state(Longer) == Longer(
            count=6, topics=["tides"], notes="kept", owner=Person(born=date(2020, 2, 1))
        )


class TestABadValue:
    @pytest.mark.parametrize(
        ("path", "value", "words"),
        [
            ("cuont", 1, "Case has no field 'cuont'; its fields: count, topics, owner"),
            ("count", "many", "valid integer"),
            ("owner.born", "soon", "valid date"),
            ("owner.nmae", "Ann", "nmae"),
            ("topics.0.x", 1, "topics"),
        ],
    )
    async def test_is_refused_where_it_is_set(self, path: str, value: Any, words: str) -> None:
        async def change(ctx: Context[Case]) -> str:
            """Change the state."""
            before = (await ctx.store.get_state()).model_dump()
            with pytest.raises(ValueError, match=words):
                await ctx.store.set(path, value)
            assert (await ctx.store.get_state()).model_dump() == before
            return "refused"

        output = await made(tool_call("change"), tools=[change]).run("Go.")
        assert output.tool_calls[0].tool_output.content == "refused"

    async def test_is_refused_at_the_end_of_an_edit(self) -> None:
        async def change(ctx: Context[Case]) -> str:
            """Change the state."""
            with pytest.raises(ValueError, match="valid integer"):
                async with ctx.store.edit_state() as state:
                    state.count = "many"  # type: ignore[assignment]
            with pytest.raises(ValueError, match="cuont"):
                async with ctx.store.edit_state() as state:
                    state.cuont = 1  # type: ignore[attr-defined]
            return str((await ctx.store.get_state()).count)

        output = await made(tool_call("change"), tools=[change]).run("Go.")
        assert output.tool_calls[0].tool_output.content == "0"

    async def test_of_another_class_is_refused(self) -> None:
        async def change(ctx: Context[Case]) -> str:
            """Change the state."""
            with pytest.raises(TypeError, match="Person, not a Case"):
                await ctx.store.set_state(Person())  # type: ignore[arg-type]
            await ctx.store.set_state(Case(count=3))
            await ctx.store.clear()
            return str(await ctx.store.get("count"))

        handler = made(tool_call("change"), tools=[change]).run("Go.")
        assert (await handler).tool_calls[0].tool_output.content == "0"
        with pytest.raises(TypeError, match=r"is a Case, not a Longer: construct the agent with state=Longer"):
            await handler.state(Longer)

    @pytest.mark.parametrize("path", ["cuont", "owner.nmae"])
    async def test_a_path_without_a_value(self, path: str) -> None:
        async def look(ctx: Context[Case]) -> str:
            """Look at the state."""
            with pytest.raises(ValueError, match=path.rpartition(".")[2]):
                await ctx.store.get(path)
            return str(await ctx.store.get(path, default=None))

        output = await made(tool_call("look"), tools=[look]).run("Go.")
        assert output.tool_calls[0].tool_output.content == "None"


class Counts(FunctionAgent):
    @step
    async def call_tool(self, ctx: Context[Case], ev: ToolCall) -> ToolCallResult:
        async with ctx.store.edit_state() as state:
            seen.append(type(state))
            state.count += 10
        return await super().call_tool(ctx, ev)


class Order(BaseModel):
    prices: list[int] = Field(default_factory=list[int])
    total: int = 0

    @model_validator(mode="after")
    def add_up(self) -> "Order":
        object.__setattr__(self, "total", sum(self.prices))
        return self


@pytest.mark.parametrize("store", [None, "memory:"])
async def test_fields_that_a_validator_of_the_model_sets_are_kept(store: str | None) -> None:
    async def buy(ctx: Context[Order]) -> str:
        """Buy."""
        await ctx.store.set("prices", [2, 3])
        return str(await ctx.store.get("total"))

    llm = ScriptedLLM([tool_call("buy"), "Done."])
    handler = FunctionAgent(llm=llm, tools=[buy], state=Order, store=store).run("Go.")
    assert (await handler).tool_calls[0].tool_output.content == "5"
    assert (await handler.state(Order)).total == 5


class TestAStep:
    async def test_of_an_agent_sees_the_model_and_the_loop_the_whole_store(self) -> None:
        handler = Counts(llm=ScriptedLLM([OPEN, "Done."]), tools=[open_case], state=Case).run("Go.")
        await handler
        assert (await handler.state(Case)).count == 11
        assert seen[0] is Case

    async def test_of_a_member_sees_the_model(self) -> None:
        member = Counts(
            name="clerk", description="Opens cases.", llm=ScriptedLLM([OPEN, "Done."]), tools=[open_case], state=Case
        )
        handler = AgentWorkflow(agents=[member]).run("Go.")
        await handler
        assert (await handler.state(Case)).count == 11


class Counted(Middleware):
    async def around_model(self, ctx: Context[Case], request: Any, call_next: Any) -> Any:
        async with ctx.store.edit_state() as state:
            state.count += 100
        return await call_next(request)

    async def before_run(self, ctx: Context[Any], message: ChatMessage) -> None:
        assert isinstance(await ctx.store.get("state"), Case)


class TestOtherParts:
    async def test_an_instruction_and_a_middleware_see_the_model(self) -> None:
        async def told(ctx: Context[Case]) -> str:
            return f"{len((await ctx.store.get_state()).topics)} topics"

        llm = ScriptedLLM(["Done."])
        handler = made(llm=llm, state=Case(topics=["tides"]), instructions=[told], middleware=[Counted()]).run("Go.")
        await handler
        assert llm.requests[0].messages[0].content == "1 topics"
        assert (await handler.state(Case)).count == 100

    def test_are_warned_of_without_the_state(self) -> None:
        def told(ctx: Context[Case]) -> str:
            return ""

        with pytest.warns(StateTypeWarning) as warned:
            FunctionAgent(llm=ScriptedLLM([]), instructions=[told], middleware=[Counted()])
        said = [str(one.message).partition(",")[0] for one in warned]
        assert [one.rpartition(" names ")[::2] for one in said] == [
            (f"Instruction {told.__qualname__}", "Context[Case]"),
            ("Middleware Counted", "Context[Case]"),
        ]


class TestTheModel:
    async def test_is_shown_the_state_as_json(self) -> None:
        llm = ScriptedLLM(["Done."])
        await made(llm=llm, state=Case(count=3)).run("Go.")
        assert '{"count":3,"topics":[],"owner":{"name":"","born":null}}' in (
            llm.requests[-1].messages[-1].content or ""
        )

    async def test_is_shown_the_named_fields(self) -> None:
        class Secret(BaseModel):
            __batonflow_shown__: ClassVar[set[str]] = {"public"}
            public: str = "seen"
            pin: str = "1234"

        llm = ScriptedLLM(["Done."])
        await FunctionAgent(llm=llm, state=Secret).run("Go.")
        assert '{"public":"seen"}' in (llm.requests[-1].messages[-1].content or "")
        assert "1234" not in (llm.requests[-1].messages[-1].content or "")


class TestConstruction:
    def test_warns_of_a_tool_without_the_state(self) -> None:
        with pytest.warns(StateTypeWarning, match=r"Tool open_case names Context\[Case\].*agent clerk.*state=Case"):
            FunctionAgent(name="clerk", llm=ScriptedLLM([]), tools=[open_case])

    def test_warns_of_a_step_without_the_state(self) -> None:
        with pytest.warns(StateTypeWarning, match=r"Step call_tool names Context\[Case\]"):
            Counts(llm=ScriptedLLM([]))

    async def test_leaves_the_context_of_such_a_tool_untyped(self) -> None:
        async def plain(ctx: Context[Case]) -> str:
            """Use the whole store."""
            await ctx.store.set("mine", 1)
            return str(await ctx.store.get("mine"))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StateTypeWarning)
            agent = FunctionAgent(llm=ScriptedLLM([tool_call("plain"), "Done."]), tools=[plain])
        assert (await agent.run("Go.")).tool_calls[0].tool_output.content == "1"

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"state": Case, "initial_state": {"a": 1}}, "two states"),
            ({"state": {"a": 1}}, "a dict is an initial_state"),
            ({"state": 5}, "pydantic model"),
        ],
    )
    def test_refuses(self, options: dict[str, Any], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            made(**options)

    def test_refuses_a_state_without_defaults(self) -> None:
        class Needs(BaseModel):
            name: str

        with pytest.raises(ValueError, match="defaults for all fields"):
            made(state=Needs, tools=[])

    def test_refuses_a_member_with_another_state(self) -> None:
        member = made(name="clerk", description="Opens cases.")
        with pytest.raises(ValueError, match=r"Agent clerk has state=Case, and the team has state=Person"):
            AgentWorkflow(agents=[member], state=Person)
        AgentWorkflow(agents=[member], state=Longer)

    def test_a_run_refuses_a_dict(self) -> None:
        with pytest.raises(ValueError, match="initial_state"):
            made().run("Go.", state={"a": 1})

    async def test_a_run_refuses_another_state_than_that_of_the_agent(self) -> None:
        with pytest.raises(ValueError, match=r"agent Agent has state=Case.* got Person"):
            made().run("Go.", state=Person)
        assert await made().run("Go.", state=Longer)


async def test_instructions_toolsets_middleware_and_their_functions_see_the_typed_state() -> None:
    class Trip(BaseModel):
        city: str = "Rome"

    seen: dict[str, Any] = {}

    async def note(place: str, ctx: Context[Trip]) -> None:
        seen[place] = type(await ctx.store.get_state())

    async def say(ctx: Context[Trip]) -> str:
        await note("instruction", ctx)
        return "Be brief."

    class Desk(Toolset):
        async def tools(self, ctx: Context[Trip]) -> list[BaseTool]:
            await note("toolset", ctx)
            return [tool(prepare=prepare)(add), tool(requires_approval=approve)(mul)]

    async def keep(ctx: Context[Trip], one: BaseTool) -> bool:
        await note("filter", ctx)
        return True

    async def prepare(ctx: Context[Trip], one: BaseTool) -> BaseTool:
        await note("prepare", ctx)
        return one

    async def approve(ctx: Context[Trip], arguments: dict[str, Any]) -> bool:
        await note("approval", ctx)
        return False

    async def choose(ctx: Context[Trip]) -> str | None:
        await note("choice", ctx)
        return None

    class Watch(Middleware):
        async def before_run(self, ctx: Context[Trip], message: Any) -> None:
            await note("before_run", ctx)

        async def around_model(self, ctx: Context[Trip], request: Any, call_next: Any) -> Any:
            await note("around_model", ctx)
            return await call_next(request)

        async def around_tool(self, ctx: Context[Trip], request: Any, call_next: Any) -> Any:
            await note("around_tool", ctx)
            return await call_next(request)

        async def after_run(self, ctx: Context[Trip], output: Any) -> None:
            await note("after_run", ctx)

    agent = FunctionAgent(
        llm=ScriptedLLM([tool_call("mul", a=1, b=2), "Done."]), state=Trip, instructions=say, tool_choice=choose,
        tools=[Desk().filtered(keep)], middleware=[Watch()],
    )  # fmt: skip
    await agent.run("Go.")
    assert len(seen) == 10
    assert set(seen.values()) == {Trip}


async def test_hooks_and_guards_see_the_typed_state() -> None:
    seen: list[tuple[str, Any]] = []

    def before(ctx: Context[Case], call: Any) -> None:
        seen.append(("before", type(ctx.store.get_state_sync())))

    async def after(ctx: Context[Case], result: Any) -> None:
        seen.append(("after", type(await ctx.store.get_state())))

    async def guard(ctx: Context[Case], message: ChatMessage) -> None:
        seen.append((message.role.value, type(await ctx.store.get_state())))

    guards = {"input_guards": [guard], "output_guards": [guard]}
    await made(OPEN, before_tool=[before], after_tool=[after], **guards).run("Go.")
    assert seen == [("user", Case), ("before", Case), ("after", Case), ("assistant", Case)]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def mul(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b
