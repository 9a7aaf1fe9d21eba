"""``run(llm=..., instructions=..., tool_choice=...)``: options of one run."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from batonflow import Context, RunContext
from batonflow.agents import AgentInput, AgentWorkflow, AgentWorkflowStartEvent, FunctionAgent, Middleware, ReActAgent
from batonflow.llms import LLM, MessageRole, ScriptedLLM, Settings, tool_call
from batonflow.tools import tool
from batonflow.workflow_core import RunInterruptedError, StopEvent, step
from tests.workflow_core.flows import until


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(*script: Any, **options: Any) -> FunctionAgent:
    return FunctionAgent(**{"llm": ScriptedLLM(list(script)), "tools": [add], "name": "adder", **options})


def system(llm: Any, request: int = 0) -> list[str]:
    first = llm.requests[request].messages[0]
    return [block.text for block in first.blocks] if first.role == MessageRole.SYSTEM else []


class TestTheModel:
    async def test_it_answers_in_this_run_only(self) -> None:
        other = ScriptedLLM([tool_call("add", a=1, b=2), "Other."])
        made = agent("Own.")
        handler = made.run("Go.", llm=other)
        assert str(await handler) == "Other."
        assert str(await made.run("Go on.", ctx=handler.ctx)) == "Own."
        assert len(other.requests) == 2

    async def test_runs_at_once_have_their_own(self) -> None:
        made = agent(*["Own."] * 5)
        models = [ScriptedLLM([f"Answer {n}."]) for n in range(20)]
        answers = await asyncio.gather(*(made.run("Go.", llm=one) for one in models), made.run("Go."))
        assert [str(one) for one in answers] == [*(f"Answer {n}." for n in range(20)), "Own."]

    async def test_all_members_of_a_team_ask_it_but_agents_as_tools_keep_theirs(self) -> None:
        inner = agent("Inner.", name="inner")
        one = agent(name="a", description="A", tools=[inner.as_tool()])
        two = agent(name="b", description="B")
        team = AgentWorkflow([one, two], root_agent="a")
        llm = ScriptedLLM([tool_call("inner", input="x"), tool_call("handoff", to_agent="b", reason="x"), "Done."])
        output = await team.run("Go.", llm=llm)
        assert (str(output), output.current_agent_name) == ("Done.", "b")
        assert output.tool_calls[0].tool_output.content == "Inner."

    async def test_an_agent_without_a_model_of_its_own_takes_it(self) -> None:
        assert Settings.llm is None
        assert str(await FunctionAgent().run("Go.", llm=ScriptedLLM(["Done."]))) == "Done."

    async def test_middleware_and_structured_answers_see_it(self) -> None:
        seen: list[Any] = []

        class Watch(Middleware):
            async def around_model(self, ctx: Context[Any], request: Any, call_next: Any) -> Any:
                seen.append(request.llm)
                return await call_next(request)

        other = ScriptedLLM(["Other."])
        await agent("Own.", middleware=[Watch()]).run("Go.", llm=other)
        assert seen == [other]

    async def test_a_name_is_looked_up_and_another_value_refused(self) -> None:
        made = agent()
        with pytest.raises(ValueError, match="nobody"):
            made.run("Go.", llm="nobody:gpt")
        with pytest.raises(ValueError, match=r"llm of a run is a model or its name, .*, not 5"):
            made.run("Go.", llm=5)  # type: ignore[arg-type]


class TestInstructions:
    async def test_they_follow_those_of_the_agent(self) -> None:
        async def say(ctx: Context) -> str:
            return "It rains."

        made = agent("Done.", "Done.", system_prompt="You help.", instructions="Be brief.")
        handler = made.run("Go.", instructions=[say, "Be kind."])
        await handler
        await made.run("Go.", ctx=handler.ctx)
        assert system(made.llm) == ["You help.", "Be brief.", "Be kind.", "It rains."]
        assert system(made.llm, 1) == ["You help.", "Be brief."]

    async def test_other_values_are_refused(self) -> None:
        with pytest.raises(ValueError, match="instructions must be strings and functions, not 3"):
            agent().run("Go.", instructions=3)  # type: ignore[arg-type]

    async def test_they_see_the_dependencies(self) -> None:
        def who(ctx: RunContext[str]) -> str:
            return f"I am {ctx.deps}."

        made = agent("Done.", deps_type=str)
        await made.run("Go.", deps="ann", instructions=who)
        assert system(made.llm) == ["I am ann."]


class TestTheChoiceOfTools:
    async def test_it_stands_in_the_place_of_the_agent_s(self) -> None:
        made = agent(tool_call("add", a=1, b=2), "Done.", "Done.", tool_choice="required")
        handler = made.run("Go.", tool_choice="add")
        await handler
        await made.run("Go.", ctx=handler.ctx)
        llm: Any = made.llm
        assert [one.tool_choice for one in llm.requests] == ["add", None, "required"]

    async def test_a_function_is_asked_before_each_request(self) -> None:
        async def choose(ctx: Context) -> str | None:
            return "add" if not await ctx.store.get("current_tool_calls") else "none"

        made = agent(tool_call("add", a=1, b=2), "Done.", initial_tool_choice="required")
        await made.run("Go.", tool_choice=choose)
        llm: Any = made.llm
        assert [one.tool_choice for one in llm.requests] == ["add", "none"]

    async def test_agents_without_a_choice_refuse_it(self) -> None:
        made = ReActAgent(llm=ScriptedLLM(["Thought: easy.\nAnswer: Done."]))
        with pytest.raises(ValueError, match="tool_choice is an option of FunctionAgent; ReActAgent does not take it"):
            made.run("Go.", tool_choice="required")
        with pytest.raises(ValueError, match=r"tool_choice is 'auto', .*, not 3"):
            agent().run("Go.", tool_choice=3)  # type: ignore[arg-type]


class TestStartEvents:
    async def test_the_names_are_no_data_of_the_start_event(self) -> None:
        seen: list[Any] = []

        class Watch(Middleware):
            async def before_run(self, ctx: Context[Any], message: Any) -> None:
                seen.append(await ctx.store.get("run_options"))

        await agent("Done.", middleware=[Watch()]).run("Go.", instructions="Be brief.", tool_choice="auto")
        assert seen == [{"instructions": ["Be brief."], "tool_choice": "auto"}]

    async def test_an_event_of_the_program_goes_with_them_and_stays_as_it_is(self) -> None:
        begins = AgentWorkflowStartEvent(user_msg="Go.")
        made = agent("Own.")
        assert str(await made.run(start_event=begins, llm=ScriptedLLM(["Other."]))) == "Other."
        assert begins.to_dict() == {"user_msg": "Go."}

    async def test_a_start_event_that_declares_one_of_the_names_keeps_it(self) -> None:
        seen: list[Any] = []

        class Begin(AgentWorkflowStartEvent):
            instructions: str = ""

        class Reads(FunctionAgent):
            @step
            async def init_run(self, ctx: Context, ev: Begin) -> AgentInput | StopEvent:  # type: ignore[override]
                seen.append(ev.instructions)
                return await super().init_run(ctx, ev)

        made = Reads(llm=ScriptedLLM(["Own."]))
        other = ScriptedLLM(["Other."])
        assert str(await made.run("Go.", instructions="Be brief.", llm=other)) == "Other."
        assert (seen, system(other)) == (["Be brief."], [])


class TestStoredRuns:
    @pytest.fixture
    def stop(self) -> asyncio.Event:
        return asyncio.Event()

    def made(self, path: Path, script: list[Any], stop: asyncio.Event | None = None) -> FunctionAgent:
        async def wait() -> str:
            """Wait."""
            if stop is not None:
                stop.set()
                await asyncio.Event().wait()
            return "over"

        return FunctionAgent(
            name="a", llm=ScriptedLLM(script), tools=[tool(idempotent=True)(wait)], store=str(path / "runs.db")
        )

    async def interrupted(self, path: Path, stop: asyncio.Event, **options: Any) -> None:
        first = self.made(path, [tool_call("wait")], stop)
        handler = first.run("Go.", run_id="r", **options)
        await until(stop.is_set)
        await handler.interrupt()
        with pytest.raises(RunInterruptedError):
            await handler

    async def test_a_resumed_run_keeps_texts(self, tmp_path: Path, stop: asyncio.Event) -> None:
        async def say(ctx: Context) -> str:
            return "It rains."

        await self.interrupted(tmp_path, stop, instructions=[say, "Be brief."], tool_choice="required")
        again = self.made(tmp_path, ["Done."])
        assert str(await again.resume("r")) == "Done."
        assert system(again.llm) == ["Be brief.", "It rains."]

    async def test_the_name_of_a_model_is_kept(
        self, tmp_path: Path, stop: asyncio.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = [ScriptedLLM([tool_call("wait")]), ScriptedLLM(["Named."])]
        named: list[str] = []

        def look_up(name: str) -> LLM:
            named.append(name)
            return other.pop(0)

        monkeypatch.setattr("batonflow.agents.run_options.llm_from", look_up)
        await self.interrupted(tmp_path, stop, llm="openai:gpt-5.6")
        assert str(await self.made(tmp_path, ["Own."]).resume("r")) == "Named."
        assert named == ["openai:gpt-5.6"] * 2

    async def test_an_object_is_given_anew(self, tmp_path: Path, stop: asyncio.Event) -> None:
        await self.interrupted(tmp_path, stop, llm=ScriptedLLM([tool_call("wait")]))
        again = self.made(tmp_path, ["Own."])
        assert str(await again.resume("r", llm=ScriptedLLM(["Given."]))) == "Given."

    async def test_without_it_the_agent_s_own_is_used_with_one_warning(
        self, tmp_path: Path, stop: asyncio.Event, caplog: pytest.LogCaptureFixture
    ) -> None:
        await self.interrupted(tmp_path, stop, llm=ScriptedLLM([tool_call("wait")]), tool_choice=lambda ctx: None)
        again = self.made(tmp_path, [tool_call("wait"), "Own."])
        with caplog.at_level(logging.WARNING, "batonflow.agent"):
            assert str(await again.resume("r")) == "Own."
        said = [one.getMessage() for one in caplog.records]
        assert len(said) == 2
        assert "run r was started with run(llm=...), which cannot be recorded" in said[0]
        assert "run(tool_choice=...)" in said[1]

    async def test_members_of_a_resumed_team_go_on_with_their_own_models(
        self, tmp_path: Path, stop: asyncio.Event
    ) -> None:
        def team(one: list[Any], two: list[Any], stop: asyncio.Event | None = None) -> AgentWorkflow:
            first = self.made(tmp_path, one, stop)
            first.name, first.description = "a", "A"
            second = FunctionAgent(name="b", description="B", llm=ScriptedLLM(two))
            return AgentWorkflow([first, second], root_agent="a", store=str(tmp_path / "team.db"))

        handler = team([], [], stop).run("Go.", run_id="r", llm=ScriptedLLM([tool_call("wait")]))
        await until(stop.is_set)
        await handler.interrupt()
        with pytest.raises(RunInterruptedError):
            await handler
        again = team([tool_call("handoff", to_agent="b", reason="x")], ["Own of b."])
        assert str(await again.resume("r")) == "Own of b."

    async def test_a_run_that_had_none_takes_them_too(self, tmp_path: Path, stop: asyncio.Event) -> None:
        await self.interrupted(tmp_path, stop)
        again = self.made(tmp_path, ["Own."])
        other = ScriptedLLM(["Given."])
        assert str(await again.resume("r", llm=other, instructions="Be brief.")) == "Given."
        assert system(other) == ["Be brief."]
        with pytest.raises(ValueError, match="not 5"):
            again.resume("r", llm=5)  # type: ignore[arg-type]

    async def test_functions_are_asked_that_the_turn_did_not_have_before(
        self, tmp_path: Path, stop: asyncio.Event
    ) -> None:
        await self.interrupted(tmp_path, stop, instructions=lambda: "It rains.")
        again = self.made(tmp_path, ["Done."])
        handler = again.resume("r", instructions=[lambda: "Sun.", lambda: "Be brief."])
        assert str(await handler) == "Done."
        assert system(again.llm) == ["It rains.", "Be brief."]

    async def test_the_model_of_a_fork_wins(self, tmp_path: Path, stop: asyncio.Event) -> None:
        first = self.made(tmp_path, ["Own."])
        await first.run("Go.", run_id="r", llm=ScriptedLLM(["One."]))
        forked = first.fork("r", at=1, llm=ScriptedLLM(["Forked."]))
        assert str(await forked) == "Forked."
