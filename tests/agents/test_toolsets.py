"""Toolsets: tools that an agent asks for before each request to its model."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from batonflow import Context, RunContext
from batonflow.agents import AgentWorkflow, CodeActAgent, FunctionAgent, Middleware, ReActAgent
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.tools import BaseTool, FunctionTool, ToolMetadata, ToolOutput, Toolset, tool
from batonflow.tools.schema import ToolDefinitionError
from batonflow.workflow_core import RunInterruptedError
from batonflow.workflow_core.events import InputRequiredEvent
from tests.tools.mcp_trial import trial
from tests.workflow_core.flows import until


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def sub(a: int, b: int) -> int:
    """Subtract two numbers."""
    return a - b


class Plain(BaseTool):
    """A synchronous tool that is not made of a function."""

    @property
    def metadata(self) -> ToolMetadata:
        return ToolMetadata(name="echo", description="Repeat a text.")

    def __call__(self, input: Any) -> ToolOutput:  # noqa: A002
        return ToolOutput(tool_name="echo", content=f"{input}!", raw_input={"input": input})


class Shop(Toolset[Any]):
    """A set whose tools are those of a list, which counts its calls."""

    def __init__(self, *given: Any) -> None:
        self.given = [one if isinstance(one, BaseTool) else FunctionTool.from_defaults(one) for one in given]
        self.asked = self.entered = self.left = 0
        self.tasks: list[Any] = []

    async def tools(self, ctx: Context[Any, Any]) -> Sequence[BaseTool]:
        assert self.entered > self.left
        self.asked += 1
        return list(self.given)

    async def __aenter__(self) -> Self:
        self.entered += 1
        self.tasks.append(asyncio.current_task())
        return self

    async def __aexit__(self, *error: object) -> None:
        self.left += 1
        self.tasks.append(asyncio.current_task())


def agent(*script: Any, **options: Any) -> FunctionAgent:
    return FunctionAgent(**{"llm": ScriptedLLM(list(script)), "name": "adder", **options})


def offered(agent: Any, request: int = 0) -> list[str]:
    return [one.name for one in agent.llm.requests[request].tools]


class TestAskingForTools:
    async def test_it_stands_beside_functions_and_tools_in_the_order_of_the_list(self) -> None:
        made = agent("Done.", tools=[sub, Toolset.of(add, Plain()), _named("plus")])
        await made.run("Go.")
        assert offered(made) == ["sub", "add", "echo", "plus"]

    async def test_a_set_is_asked_once_for_each_request(self) -> None:
        shop = Shop(add)
        async with agent(tool_call("add", a=1, b=2), "Done.", tools=[shop]) as made:
            output = await made.run("Go.")
        assert output.tool_calls[0].tool_output.content == "3"
        assert shop.asked == 2

    async def test_the_calls_of_an_answer_find_the_tools_of_its_request(self) -> None:
        shop = Shop(add)

        class Empty(Middleware):
            async def around_model(self, ctx: Any, request: Any, call_next: Any) -> Any:
                output = await call_next(request)
                shop.given = []
                return output

        async with agent(tool_call("add", a=1, b=2), "Done.", tools=[shop], middleware=[Empty()]) as made:
            output = await made.run("Go.")
        assert output.tool_calls[0].tool_output.content == "3"
        assert offered(made, 1) == []

    async def test_a_tool_that_is_gone_is_unknown_to_the_model(self) -> None:
        shop = Shop(add, sub)

        def keep(ctx: Context, one: BaseTool) -> bool:
            return one.metadata.name == "add"

        async with agent(tool_call("sub", a=1, b=2), "Done.", tools=[shop.filtered(keep)]) as made:
            output = await made.run("Go.")
        assert output.tool_calls[0].tool_output.content.startswith("Tool sub not found")

    async def test_it_sees_the_dependencies_and_state_of_the_run(self) -> None:
        @dataclass
        class Deps:
            clerk: bool

        class Office(Toolset[Deps]):
            async def tools(self, ctx: Context[Any, Deps]) -> Sequence[BaseTool]:
                return [_named("refund")] if ctx.deps.clerk else []

        made = agent("Done.", "Done.", tools=[Office()], deps_type=Deps)
        await asyncio.gather(made.run("Go.", deps=Deps(True)), made.run("Go.", deps=Deps(False)))
        assert sorted(offered(made, number) for number in range(2)) == [[], ["refund"]]

    async def test_in_a_team_each_member_has_its_own(self) -> None:
        one = agent(tool_call("handoff", to_agent="b", reason="x"), tools=[Toolset.of(add)], name="a", description="A")
        two = agent(tool_call("sub", a=3, b=1), "2", tools=[Toolset.of(sub)], name="b", description="B")
        output = await AgentWorkflow([one, two], root_agent="a").run("Go.")
        assert (str(output), offered(one), offered(two)) == ("2", ["add", "handoff"], ["sub", "handoff"])
        assert output.tool_calls[-1].tool_output.content == "2"

    async def test_a_reasoning_agent_reads_its_tools_in_the_prompt(self) -> None:
        llm = ScriptedLLM(['Thought: x\nAction: add\nAction Input: {"a": 1, "b": 2}', "Thought: easy.\nAnswer: 3"])
        output = await ReActAgent(llm=llm, tools=[Toolset.of(add)]).run("Go.")
        assert output.tool_calls[0].tool_output.content == "3"
        assert "add(a: int, b: int)" in str(llm.requests[0].messages[0].content)

    async def test_code_calls_them_as_functions(self) -> None:
        llm = ScriptedLLM(["<execute>\nprint(await math_add(a=1, b=2))\n</execute>", "Done."])
        output = await CodeActAgent(llm=llm, tools=[Toolset.of(add).prefixed("math_")]).run("Go.")
        assert [one.tool_output.content for one in output.tool_calls] == ["3"]
        assert "math_add(" in str(llm.requests[0].messages[0].content)

    async def test_a_list_that_changes_later_is_followed(self) -> None:
        made = agent("Done.", "Done.", tools=[sub])
        await made.run("Go.")
        made.tools.append(Toolset.of(add))
        await made.run("Go.")
        assert (offered(made, 0), offered(made, 1)) == (["sub"], ["sub", "add"])

    async def test_outside_of_a_run_the_agent_lists_them(self) -> None:
        made = agent(tools=[sub, Toolset.of(add)])
        assert [one.metadata.name for one in await made.get_tools()] == ["sub", "add"]

    async def test_agents_in_a_fixed_set_run_inside_the_caller_s_run(self) -> None:
        inner = agent("Inner.", name="inner")
        made = agent(tool_call("inner", input="Go."), "Done.", tools=[Toolset.of(inner.as_tool())])
        handler = made.run("Go.")
        await handler
        assert list(made.attached_workflows.values()) == [inner]
        with pytest.raises(ValueError, match="would be its own tool"):
            inner.tools = [Toolset.of(inner.as_tool())]

    async def test_a_resumed_run_asks_anew(self, tmp_path: Path) -> None:
        stop = asyncio.Event()

        async def wait() -> str:
            """Wait."""
            stop.set()
            await asyncio.Event().wait()
            return "over"

        def made(script: list[Any], *given: Any) -> FunctionAgent:
            tools = [Toolset.of(*given)]
            return FunctionAgent(name="a", llm=ScriptedLLM(script), tools=tools, store=str(tmp_path / "runs.db"))

        handler = made([tool_call("wait")], _idempotent(wait), add).run("Go.", run_id="r")
        await until(stop.is_set)
        await handler.interrupt()
        with pytest.raises(RunInterruptedError):
            await handler
        again = made(["Done."], sub)
        output = await again.resume("r")
        assert output.tool_calls[0].tool_output.content.startswith("Tool wait not found")
        assert offered(again) == ["sub"]


def _named(name: str) -> FunctionTool:
    return FunctionTool.from_defaults(add, name=name)


def _idempotent(function: Any) -> FunctionTool:
    return tool(idempotent=True)(function)


class TestEntering:
    async def test_it_is_entered_at_the_first_use_and_left_with_the_agent(self) -> None:
        shop = Shop(add)
        made = agent("Done.", "Done.", "Done.", tools=[shop.prefixed("x_"), shop.prefixed("y_")])
        assert shop.entered == 0
        async with made:
            await asyncio.gather(made.run("Go."), made.run("Go."))
            assert (shop.entered, shop.left) == (1, 0)
        assert (shop.entered, shop.left) == (1, 1)
        assert shop.tasks[0] is shop.tasks[1]
        await made.run("Again.")
        await made.aclose()
        assert (shop.entered, shop.left) == (2, 2)

    async def test_the_last_of_several_agents_leaves_it(self) -> None:
        shop = Shop(add)
        one, two = agent("Done.", tools=[shop]), agent("Done.", tools=[shop])
        await asyncio.gather(one.run("Go."), two.run("Go."))
        await one.aclose()
        assert (shop.entered, shop.left) == (1, 0)
        await two.aclose()
        assert (shop.entered, shop.left) == (1, 1)

    async def test_a_team_leaves_those_of_its_members_and_of_agents_among_their_tools(self) -> None:
        shop, mall = Shop(add), Shop(sub)
        inner = agent("Inner.", name="inner", tools=[mall])
        outer = agent(tool_call("inner", input="Go."), "Done.", tools=[shop, inner.as_tool()])
        async with AgentWorkflow([outer]) as team:
            await team.run("Go.")
            assert (shop.left, mall.entered, mall.left) == (0, 1, 0)
        assert (shop.left, mall.left) == (1, 1)

    def test_it_is_left_when_the_event_loop_ends(self) -> None:
        shop = Shop(add)
        made = agent("Done.", "Done.", tools=[shop])
        asyncio.run(_awaited(made.run, "Go."))
        assert (shop.entered, shop.left) == (1, 1)
        assert made.run_sync("Go.") is not None
        asyncio.run(made.aclose())
        assert (shop.entered, shop.left) == (2, 2)

    async def test_one_that_cannot_be_entered_fails_the_run_and_is_tried_again_in_the_next(self) -> None:
        class Flaky(Shop):
            async def __aenter__(self) -> "Shop":
                if not self.tasks:
                    self.tasks.append(None)
                    raise ConnectionError("no route")
                return await super().__aenter__()

        shop = Flaky(add)
        made = agent("Done.", tools=[shop])
        with pytest.raises(ConnectionError, match="no route") as caught:
            await made.run("Go.")
        assert "in toolset Flaky()" in caught.value.__notes__
        assert str(await made.run("Go.")) == "Done."
        await made.aclose()

    async def test_an_error_at_the_end_reaches_the_one_that_closes(self) -> None:
        class Stuck(Shop):
            async def __aexit__(self, *error: object) -> None:
                raise ConnectionError("stuck")

        made = agent("Done.", tools=[Stuck(add)])
        await made.run("Go.")
        with pytest.raises(ConnectionError, match="stuck"):
            await made.aclose()
        await made.aclose()

    async def test_a_run_that_is_cancelled_while_it_enters_leaves_the_others_alone(self) -> None:
        opening = asyncio.Event()

        class Slow(Shop):
            async def __aenter__(self) -> "Shop":
                await opening.wait()
                return await super().__aenter__()

        shop = Slow(add)
        made = agent("Done.", "Done.", tools=[shop])
        first, second = made.run("Go."), made.run("Go.")
        await asyncio.sleep(0.01)
        await first.cancel_run()
        with suppress(Exception):
            await first
        opening.set()
        assert str(await second) == "Done."
        await made.aclose()
        assert (shop.entered, shop.left) == (1, 1)


async def _awaited(function: Any, *args: Any) -> Any:
    return await function(*args)


class TestChangedSets:
    async def test_filtered_keeps_some(self) -> None:
        async def keep(ctx: Context, one: BaseTool) -> bool:
            return (await ctx.store.get("user_msg_str")) in (one.metadata.name or "")

        made = agent("Done.", tools=[Toolset.of(add, sub).filtered(keep)])
        await made.run("su")
        assert offered(made) == ["sub"]

    async def test_renamed_and_prefixed_tools_are_called_by_their_new_names(self) -> None:
        tools = Toolset.of(add, Plain()).renamed({"add": "plus"}).prefixed("math_")
        made = agent([tool_call("math_plus", a=1, b=2), tool_call("math_echo", input="x")], "Done.", tools=[tools])
        output = await made.run("Go.")
        assert offered(made) == ["math_plus", "math_echo"]
        assert [one.tool_output.content for one in output.tool_calls] == ["3", "x!"]
        assert made.llm.requests[0].tools[0].description.startswith("math_plus(a: int, b: int)")  # type: ignore[union-attr]

    async def test_the_tools_themselves_stay_as_they_are(self) -> None:
        plus = FunctionTool.from_defaults(add)
        changed = Toolset.of(plus).prefixed("x_").with_policy(max_calls=1)
        first, again = [await changed.tools(None) for _ in range(2)]  # type: ignore[arg-type]
        assert first[0] is again[0]
        assert (plus.metadata.name, plus.policy.max_calls) == ("add", None)
        assert (first[0].metadata.name, first[0].policy.max_calls) == ("x_add", 1)  # type: ignore[attr-defined]

    async def test_prepared_makes_others_of_all(self) -> None:
        def last(ctx: Context, tools: Sequence[BaseTool]) -> Sequence[BaseTool]:
            return tools[-1:]

        made = agent("Done.", tools=[Toolset.of(add, sub).prepared(last)])
        await made.run("Go.")
        assert offered(made) == ["sub"]

    @pytest.mark.parametrize("kind", [add, Plain()])
    async def test_with_policy_changes_fields(self, kind: Any) -> None:
        name = "echo" if isinstance(kind, Plain) else "add"
        call = tool_call(name, **({"input": "x"} if name == "echo" else {"a": 1, "b": 2}))
        made = agent([call, call], "Done.", tools=[Toolset.of(kind).with_policy(max_calls=1)])
        output = await made.run("Go.")
        assert [one.tool_output.is_error for one in output.tool_calls] == [False, True]

    async def test_approval_required_asks_where_the_function_says_so(self) -> None:
        def large(ctx: Context, name: str, arguments: dict[str, Any]) -> bool:
            assert name == "x_add"
            return arguments["a"] > 10

        calls = [tool_call("x_add", a=1, b=2), tool_call("x_add", a=11, b=2)]
        made = agent(calls, "Done.", tools=[Toolset.of(add).prefixed("x_").approval_required(large)])
        handler, asked = made.run("Go."), []
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                asked.append(event.arguments)
                handler.deny(event.id)
        output = await handler
        assert asked == [{"a": 11, "b": 2}]
        assert [one.tool_output.is_error for one in output.tool_calls] == [False, True]

    async def test_an_approval_that_a_tool_requires_itself_stays(self) -> None:
        guarded = tool(requires_approval=lambda arguments: arguments["b"] > 10)(add)
        changed = Toolset.of(guarded).approval_required(lambda ctx, name, arguments: False)
        policy: Any = (await changed.tools(None))[0].policy  # type: ignore[arg-type,attr-defined]
        assert await policy.requires_approval(None, {"b": 11})
        assert not await policy.requires_approval(None, {"b": 1})
        assert Toolset.of(guarded).approval_required(False) is not None

    def test_wrong_changes_are_refused(self) -> None:
        tools = Toolset.of(add)
        with pytest.raises(ToolDefinitionError, match=r"renamed\(\): Toolset.of\(add\) has no tool 'ad', only add"):
            tools.renamed({"ad": "plus"})
        with pytest.raises(ToolDefinitionError, match=r"with_policy\(\) does not know retries; a policy has requires"):
            tools.with_policy(retries=3)
        with pytest.raises(ToolDefinitionError, match="timeout=-1 is invalid"):
            tools.with_policy(timeout=-1)
        with pytest.raises(ToolDefinitionError, match=r"takes functions and tools, not 3"):
            Toolset.of(3)  # type: ignore[arg-type]
        with pytest.raises(ToolDefinitionError, match="two tools called 'add'"):
            Toolset.of(add, add)
        with pytest.raises(ToolDefinitionError, match="takes True or a function"):
            tools.approval_required(3)  # type: ignore[arg-type]
        with pytest.raises(ToolDefinitionError, match="approval_timeout=-1"):
            tools.approval_required(timeout=-1)

    async def test_a_filter_that_returns_something_else_fails_the_run_with_a_note(self) -> None:
        made = agent("Done.", tools=[Toolset.of(add).filtered(lambda ctx, one: 1)])  # type: ignore[arg-type, return-value]
        with pytest.raises(TypeError, match=r"filtered\(\): <lambda> returned 1, not True or False") as caught:
            await made.run("Go.")
        assert "in toolset Toolset.of(add).filtered(<lambda>)" in caught.value.__notes__


class TestNames:
    async def test_two_tools_of_one_name_are_refused_with_both_sets_and_the_remedy(self) -> None:
        made = agent("Done.", tools=[Toolset.of(add), Toolset.of(add, sub)])
        words = (
            r"called 'add' in one request, of the toolset Toolset.of\(add\) and of the toolset Toolset.of\(add, sub\)"
        )
        with pytest.raises(ToolDefinitionError, match=rf"{words}: give toolset.prefixed"):
            await made.run("Go.")
        made = agent("Done.", tools=[add, Toolset.of(add)])
        with pytest.raises(ToolDefinitionError, match="of the tools of agent adder and of the toolset"):
            await made.run("Go.")

    async def test_the_name_of_the_handoff_is_reserved(self) -> None:
        with pytest.raises(ToolDefinitionError, match=r"'handoff' of the toolset .* is reserved for teams"):
            await agent("Done.", tools=[Toolset.of(add).renamed({"add": "handoff"})]).run("Go.")

    async def test_the_tool_of_an_output_is_not_hidden(self) -> None:
        made = agent("Done.", tools=[Toolset.of(add).renamed({"add": "final_answer"})], output_type=int)
        with pytest.raises(ToolDefinitionError, match="two tools called 'final_answer'"):
            await made.run("Go.")

    async def test_a_set_returns_tools(self) -> None:
        shop = Shop()
        shop.given = [add]  # type: ignore[list-item]
        made = agent("Done.", tools=[shop])
        with pytest.raises(TypeError, match=r"Shop\(\).tools\(\) returns tools, not <function add"):
            await made.run("Go.")
        await made.aclose()


class TestPreparedTools:
    async def test_a_function_hides_or_replaces_the_tool_before_each_request(self) -> None:
        seen: list[str] = []

        async def early(ctx: Context, one: BaseTool) -> BaseTool | None:
            seen.append(one.metadata.name or "")
            return one if not await ctx.store.get("current_tool_calls") else None

        made = agent(
            tool_call("add", a=1, b=2), tool_call("add", a=1, b=2), "Done.", tools=[tool(prepare=early)(add), sub]
        )
        output = await made.run("Go.")
        assert [offered(made, number) for number in range(3)] == [["add", "sub"], ["sub"], ["sub"]]
        assert [one.tool_output.is_error for one in output.tool_calls] == [False, True]
        assert seen == ["add"] * 3

    async def test_it_works_for_tools_of_sets_and_of_middleware(self) -> None:
        hidden = tool(prepare=lambda ctx, one: None)(add)

        class Adds(Middleware):
            def tools(self) -> list[Any]:
                return [hidden, sub, Toolset.of(_named("plus"))]

        made = agent("Done.", tools=[Toolset.of(hidden)], middleware=[Adds()])
        await made.run("Go.")
        assert offered(made) == ["sub", "plus"]

    async def test_one_that_raises_or_returns_something_else_fails_the_run(self) -> None:
        def broken(ctx: Context, one: BaseTool) -> Any:
            raise KeyError("user")

        with pytest.raises(KeyError) as caught:
            await agent("Done.", tools=[tool(prepare=broken)(add)]).run("Go.")
        assert any(note.startswith("in prepare ") and note.endswith("of tool add") for note in caught.value.__notes__)
        with pytest.raises(TypeError, match="prepare returns a tool or None, not 3"):
            await agent("Done.", tools=[tool(prepare=lambda ctx, one: 3)(add)]).run("Go.")  # type: ignore[arg-type, return-value]
        with pytest.raises(ToolDefinitionError, match=r"tool 'add': prepare is a function of \(ctx, tool\): 3"):
            tool(prepare=3)(add)  # type: ignore[call-overload]


class TestApprovalByContext:
    async def test_the_function_may_take_the_context(self) -> None:
        @dataclass
        class Deps:
            limit: int

        async def large(ctx: RunContext[Deps], arguments: dict[str, Any]) -> bool:
            return arguments["a"] > ctx.deps.limit

        made = agent(
            tool_call("add", a=1, b=2), tool_call("add", a=11, b=2), "Done.",
            tools=[tool(requires_approval=large)(add)], deps_type=Deps,
        )  # fmt: skip
        handler = made.run("Go.", deps=Deps(10))
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                handler.deny(event.id)
        output = await handler
        assert [one.tool_output.is_error for one in output.tool_calls] == [False, True]


class TestMCP:
    async def test_a_server_is_a_toolset(self) -> None:
        llm = ScriptedLLM([tool_call("trial__add", a=2, b=40), "It is 42."])
        server = trial()
        async with FunctionAgent(
            llm=llm, tools=[server.filtered(lambda ctx, one: "add" in str(one.metadata.name))]
        ) as a:
            output = await a.run("2 + 40?")
            assert offered(a) == ["trial__add"]
        assert output.tool_calls[0].tool_output.raw_output == {"result": 42}

    async def test_one_that_a_program_has_opened_stays_open(self) -> None:
        async with trial() as server:
            async with FunctionAgent(llm=ScriptedLLM(["Done."]), tools=[server]) as made:
                await made.run("Go.")
            assert await server.aget_tools()
