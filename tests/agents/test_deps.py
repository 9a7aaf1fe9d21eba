"""Dependencies: objects of the program that tools, guards, middleware and steps reach as ``ctx.deps``."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from batonflow import RunContext
from batonflow.agents import AgentWorkflow, BaseWorkflowAgent, FunctionAgent, ToolCall, ToolCallResult, each_step
from batonflow.agents.middleware import Middleware
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.tools import BaseTool, Toolset, tool
from batonflow.workflow_core import (
    Context,
    DepsMissingError,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowCancelledByUser,
    step,
)
from batonflow.workflow_core.dependencies import RunInfo
from tests.workflow_core.exported import Exported

CANARY = "canary-3fd1"


@dataclass
class Deps:
    """A connection and a user."""

    user: str = CANARY


@dataclass
class MoreDeps(Deps):
    """The dependencies of a larger program."""


async def whoami(ctx: RunContext[Deps]) -> str:
    """Return how long the user's name is."""
    return f"{len(ctx.deps.user)} characters"


def seen_by(seen: list[Any]) -> Any:
    async def look(ctx: Context[Any, Any]) -> str:
        """Look."""
        seen.append(ctx.deps)
        return "looked"

    return look


def agent(*turns: Any, **options: Any) -> FunctionAgent[Any, Any]:
    options.setdefault("tools", [whoami])
    options.setdefault("deps_type", Deps)
    return FunctionAgent(llm=ScriptedLLM([*turns] or [tool_call("whoami"), "Done."]), **options)


class TestOneObjectForAll:
    async def test_it_reaches_everything_that_gets_a_context(self) -> None:
        seen: list[Any] = []

        class Watching(Middleware):
            async def around_model(self, ctx: Any, request: Any, call_next: Any) -> Any:
                seen.append(ctx.deps)
                return await call_next(request)

        class Overriding(FunctionAgent[Any, Any]):
            @step
            async def call_tool(self, ctx: Context[Any], ev: ToolCall) -> ToolCallResult:
                seen.append(ctx.deps)
                return await super().call_tool(ctx, ev)

        def note(ctx: Context[Any, Any], *_: Any) -> None:
            seen.append(ctx.deps)

        def approves(ctx: Context[Any, Any]) -> str:
            seen.append(ctx.deps)
            return "Be brief."

        helper = agent(tool_call("look"), "Helped.", tools=[seen_by(seen)], name="helper")
        member = Overriding(
            llm=ScriptedLLM([[tool_call("look"), tool_call("helper", input="Help.")], "Done."]),
            tools=[seen_by(seen), helper.as_tool()],
            before_tool=[note],
            input_guards=[note],
            instructions=[approves],
            middleware=[Watching()],
            deps_type=Deps,
        )
        deps = Deps()
        await AgentWorkflow(agents=[member]).run("Go.", deps=deps)
        assert len(seen) == 10
        assert all(one is deps for one in seen)

    async def test_an_inner_team_gets_the_deps_of_the_team_around(self) -> None:
        seen: list[Any] = []
        inner = AgentWorkflow(agents=[agent(tool_call("look"), "In.", tools=[seen_by(seen)], name="a")], name="inner")
        deps = MoreDeps()
        await AgentWorkflow(agents=[inner], deps_type=MoreDeps).run("Go.", deps=deps)
        assert seen == [deps]

    async def test_a_tool_may_make_other_deps_for_its_agent(self) -> None:
        seen: list[Any] = []
        helper = agent(tool_call("look"), "Helped.", tools=[seen_by(seen)], deps_type=int, name="helper")
        made = agent(
            tool_call("helper", input="x"), "Done.", tools=[helper.as_tool(deps=lambda ctx: len(ctx.deps.user))]
        )
        await made.run("Go.", deps=Deps())
        assert seen == [len(CANARY)]

    async def test_runs_at_once_see_their_own(self) -> None:
        seen: dict[str, set[str]] = {}

        async def look(ctx: RunContext[Deps]) -> str:
            """Look."""
            await asyncio.sleep(0)
            seen.setdefault(ctx.run_id, set()).add(ctx.deps.user)
            return ctx.deps.user

        runs = [agent(tool_call("look"), "Done.", tools=[look]).run("Go.", deps=Deps(str(n))) for n in range(100)]
        await asyncio.gather(*runs)
        assert sorted(seen.values(), key=str) == sorted(({str(n)} for n in range(100)), key=str)


class TestNothingOfItIsKept:
    async def test_in_store_stream_trace_or_prompt(self, tmp_path: Path) -> None:
        exported = Exported()
        tracing = exported.instrument(content=True)
        llm = ScriptedLLM([tool_call("whoami"), "Done."])
        made = FunctionAgent(llm=llm, tools=[whoami], deps_type=Deps, store=SQLiteStore(tmp_path / "runs.db"))
        handler = made.run("Go.", deps=Deps(), run_id="one")
        streamed = [
            str(event) + json.dumps(event.model_dump(mode="json"), default=str)
            async for event in handler.stream_events()
        ]
        await handler
        tracing.uninstrument()
        exported.close()
        written = b"".join(path.read_bytes() for path in tmp_path.glob("runs.db*") if path.is_file())  # noqa: ASYNC240
        assert f"{len(CANARY)} characters".encode() in written
        assert CANARY.encode() not in written
        traced = "".join(span.to_json() for span in exported.spans)
        assert f"{len(CANARY)} characters" in traced
        assert CANARY not in traced
        assert CANARY not in "".join(streamed) + str(llm.requests) + json.dumps(handler.ctx.to_dict())


class TestMissing:
    @pytest.mark.parametrize("store", [None, "runs.db"])
    async def test_no_step_runs_without(self, store: str | None, tmp_path: Path) -> None:
        made = agent(store=None if store is None else tmp_path / store)
        with pytest.raises(DepsMissingError, match=r"A run of Agent needs deps of type Deps: give deps=.*deps_for="):
            made.run("Go.")

    async def test_a_resumed_run_stays_as_it_was(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.db"
        asks = tool(requires_approval=True)(whoami)
        handler = agent(tools=[asks], store=path).run("Go.", deps=Deps(), run_id="one")
        async for _ in handler.inputs():
            break
        await handler.interrupt()
        before = await SQLiteStore(path).load("one")
        again = agent("Done.", tools=[asks], store=path)
        with pytest.raises(DepsMissingError, match=r"Run 'one' of .* needs deps of type Deps"):
            await again.resume("one")
        after = await SQLiteStore(path).load("one")
        assert before is not None
        assert after is not None
        assert [commit.seq for commit in after.commits] == [commit.seq for commit in before.commits]
        resumed = again.resume("one", deps=Deps())
        async for request in resumed.inputs():
            request.respond(approved=True)
            break
        assert str(await resumed) == "Done."

    async def test_a_finished_run_gives_its_result_without(self, tmp_path: Path) -> None:
        await agent(store=tmp_path / "runs.db").run("Go.", deps=Deps(), run_id="one")
        assert str(await agent(store=tmp_path / "runs.db").resume("one")) == "Done."

    async def test_a_tool_that_wants_some_in_a_run_without_says_so(self) -> None:
        made = FunctionAgent(llm=ScriptedLLM([tool_call("look"), "Done."]), tools=[seen_by([])])
        output = await made.run("Go.")
        assert "was given no deps" in str(output.tool_calls[0].tool_output)  # type: ignore[union-attr]


class TestMade:
    @pytest.mark.parametrize("stored", [False, True])
    @pytest.mark.parametrize("is_async", [False, True])
    async def test_for_a_run_that_was_given_no_deps(self, stored: bool, is_async: bool, tmp_path: Path) -> None:
        made_for: list[RunInfo] = []

        def make(info: RunInfo) -> Deps:
            made_for.append(info)
            return Deps(info.run_id)

        async def make_later(info: RunInfo) -> Deps:
            await asyncio.sleep(0)
            return make(info)

        seen: list[Any] = []
        made = agent(
            tool_call("look"), "Done.", tools=[seen_by(seen)], deps_for=make_later if is_async else make,
            store=tmp_path / "runs.db" if stored else None,
        )  # fmt: skip
        assert str(await made.run("Go.", run_id="one")) == "Done."
        assert [info.run_id for info in made_for] == ["one"]
        assert seen == [Deps("one")]

    @pytest.mark.parametrize("given", [{"deps": Deps("given")}, {}])
    async def test_for_runs_that_are_recovered(self, given: Mapping[str, Any], tmp_path: Path) -> None:
        store, seen = tmp_path / "runs.db", list[Any]()

        @tool(requires_approval=True)
        async def look(ctx: RunContext[Deps]) -> str:
            """Look."""
            seen.append(ctx.deps.user)
            return "looked"

        first = agent(tool_call("look"), tools=[look], store=store, deps_for=lambda info: Deps("made"))
        handler = first.run("Go.", run_id="one")
        async for request in handler.inputs():
            answer = request.answer(approved=True)
            break
        await handler.interrupt()
        second = agent("Done.", tools=[look], store=store, deps_for=lambda info: Deps("made"))
        await second.send_to_run("one", answer)
        [recovered] = await second.recover(**given)
        assert str(await recovered) == "Done."
        assert seen == ["given" if given else "made"]

    async def test_an_error_of_the_function_fails_the_run(self) -> None:
        def make(info: RunInfo) -> Deps:
            raise ConnectionError("no database")

        with pytest.raises(ConnectionError, match="no database") as raised:
            await agent(deps_for=make, name="clerk").run("Go.")
        assert "in deps_for of agent clerk" in raised.value.__notes__

    def test_it_is_a_function(self) -> None:
        with pytest.raises(ValueError, match="deps_for is a function of"):
            agent(deps_for=Deps())

    async def test_for_an_agent_that_is_a_tool_of_an_agent_without(self) -> None:
        seen: list[Any] = []
        helper = agent(
            tool_call("look"), "Helped.", tools=[seen_by(seen)], deps_for=lambda info: Deps("made"), name="helper"
        )
        caller = FunctionAgent(llm=ScriptedLLM([tool_call("helper", input="x"), "Done."]), tools=[helper.as_tool()])
        await caller.run("Go.")
        assert seen == [Deps("made")]

    async def test_a_run_that_is_cancelled_while_they_are_made_is_over(self) -> None:
        async def make(info: RunInfo) -> Deps:
            await asyncio.sleep(0.05)
            return Deps()

        made = agent(deps_for=make, num_concurrent_runs=1)
        handler = made.run("Go.", run_id="one")
        await handler.cancel_run()
        with pytest.raises(WorkflowCancelledByUser):
            await asyncio.wait_for(handler, 5)
        assert str(await asyncio.wait_for(made.run("Go.", run_id="one"), 5)) == "Done."


class TestTypes:
    async def test_deps_of_another_type_are_refused(self) -> None:
        with pytest.raises(TypeError, match="deps is of type Deps, as deps_type says, not int"):
            agent().run("Go.", deps=7)

    async def test_a_protocol_is_not_checked(self) -> None:
        class HasUser(Protocol):
            user: str

        def look(ctx: RunContext[HasUser]) -> str:
            """Look."""
            return ctx.deps.user

        for deps_type in (HasUser, Deps):
            made = agent(tool_call("look"), "Done.", deps_type=deps_type, tools=[look])
            output = await made.run("Go.", deps=Deps())
            assert [call.tool_output.content for call in output.tool_calls] == [Deps().user]

    def test_a_tool_that_wants_another_type_is_refused_at_construction(self) -> None:
        with pytest.raises(ValueError, match="Tool whoami wants deps of type Deps, and agent Agent has deps_type=int"):
            agent(deps_type=int)

    def test_a_member_that_wants_another_type_too(self) -> None:
        with pytest.raises(ValueError, match="a wants deps of type Deps, and the team has deps_type=int"):
            AgentWorkflow(agents=[agent(name="a", description="A.")], deps_type=int)
        other = agent(name="b", description="B.", deps_type=int, tools=[])
        with pytest.raises(ValueError, match="a wants deps of type Deps, and b of type int: give the team deps_type="):
            AgentWorkflow(agents=[agent(name="a", description="A."), other], root_agent="a")

    def test_a_team_has_the_deps_of_its_members(self) -> None:
        members: list[BaseWorkflowAgent[Any, Any]] = [
            agent(name="a", description="A."),
            agent(name="b", description="B.", deps_type=MoreDeps),
        ]
        with pytest.raises(TypeError, match="deps is of type MoreDeps"):
            AgentWorkflow(agents=members, root_agent="a").run("Go.", deps=Deps())


class TestPlainWorkflows:
    async def test_a_context_gives_them(self) -> None:
        class Greet(Workflow):
            @step
            async def greet(self, ctx: Context[Any, Deps], ev: StartEvent) -> StopEvent:
                return StopEvent(result=ctx.deps.user)

        assert await Greet().run(ctx=Context(Greet(), deps=Deps("ann"))) == "ann"
        with pytest.raises(DepsMissingError, match="was given no deps"):
            await Greet().run()

    async def test_an_argument_of_this_name_stays_data_of_the_start_event(self) -> None:
        class Echo(Workflow):
            @step
            async def echo(self, ev: StartEvent) -> StopEvent:
                return StopEvent(result=ev.get("deps"))

        assert await Echo().run(deps=7) == 7


class TestPartsThatWantDeps:
    """Toolsets, instructions and middleware that name a type of dependencies are checked at construction."""

    def test_one_of_another_type_is_refused_with_both_types(self) -> None:
        @dataclass
        class Wanted:
            user: str

        class Desk(Toolset[Wanted]):
            async def tools(self, ctx: Context[Any, Wanted]) -> list[BaseTool]:
                return []

        class Named(Toolset[Any]):
            async def tools(self, ctx: RunContext[Wanted]) -> list[BaseTool]:
                return []

        class Audit(Middleware[Wanted]):
            pass

        class Reads(Middleware[Any]):
            async def after_run(self, ctx: RunContext[Wanted], output: Any) -> None:
                pass

        async def customer(ctx: RunContext[Wanted]) -> str:
            return ctx.deps.user

        def keep(ctx: RunContext[Wanted], one: BaseTool) -> bool:
            return True

        def look(ctx: RunContext[Wanted]) -> str:
            """Look."""
            return ctx.deps.user

        parts: list[tuple[str, dict[str, Any]]] = [
            (r"Toolset Desk\(\)\.prefixed\('a_'\)", {"tools": [Desk().prefixed("a_")]}),
            (r"Toolset Named\(\)", {"tools": [Named()]}),
            (r"Toolset Toolset.of\(\)\.filtered\(keep\)", {"tools": [Toolset.of().filtered(keep)]}),
            ("Tool look", {"tools": [Toolset.of(look)]}),
            ("Instruction .*customer", {"instructions": customer}),
            ("Instruction .*customer", {"instructions": ["Be brief.", each_step(customer)]}),
            ("Middleware Audit", {"middleware": [Audit()]}),
            ("Middleware Reads", {"middleware": [Reads()]}),
        ]
        for said, options in parts:
            wanted = rf"{said} wants deps of type .*Wanted, and agent Agent has deps_type=(object|int): give the agent "
            with pytest.raises(ValueError, match=wanted):
                FunctionAgent(llm=ScriptedLLM(), **options)
            with pytest.raises(ValueError, match=wanted):
                FunctionAgent(llm=ScriptedLLM(), deps_type=int, **options)
            FunctionAgent(llm=ScriptedLLM(), deps_type=Wanted, **options)

    def test_the_middleware_of_a_team_is_checked_too(self) -> None:
        class Audit(Middleware[int]):
            pass

        plain = FunctionAgent(llm=ScriptedLLM())
        with pytest.raises(
            ValueError, match="Middleware Audit wants deps of type int, and the team has deps_type=object"
        ):
            AgentWorkflow([plain], middleware=[Audit()])
        AgentWorkflow([plain], middleware=[Audit()], deps_type=int)

    def test_parts_that_name_no_dependencies_fit_everywhere(self) -> None:
        class Quiet(Middleware):
            async def before_run(self, ctx: Context, message: Any) -> None:
                pass

        FunctionAgent(
            llm=ScriptedLLM(), middleware=[Quiet(), Middleware.of(after_run=len)], instructions=[lambda: "x", dict]
        )  # type: ignore[arg-type]
