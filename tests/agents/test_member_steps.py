"""Steps that an agent overrides act alone, in a team, in an inner team, as a tool, after kill -9 and in a fork."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import pytest

from batonflow.agents import (
    AgentInput,
    AgentOutput,
    AgentSetup,
    AgentWorkflow,
    BaseWorkflowAgent,
    FunctionAgent,
    ToolCall,
    ToolCallResult,
)
from batonflow.durable.stores.memory import MemoryStore
from batonflow.llms import ChatMessage, FunctionCallingLLM, ScriptedLLM, ToolSelection, tool_call
from batonflow.tools import ToolOutput
from batonflow.workflow_core import Context, Event, Resource, StepFailedEvent, StopEvent, Workflow, catch_error, step
from batonflow.workflow_core.errors import WorkflowValidationError
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt
from tests.agents import overriding
from tests.agents.overriding import STEPS, made, wired_team
from tests.sampling import sampled

PLACES = ("alone", "team", "team in team", "as tool", "forked")


def placed(place: str, name: str, **options: Any) -> Any:
    """The workflow of a place, with an agent that overrides the step ``name``."""
    agent = made(name, **(options if place in ("alone", "forked") else {}))
    if place in ("alone", "forked"):
        return agent
    if place == "as tool":
        asks = ScriptedLLM([tool_call("worker", input="Go."), "Done."])
        return FunctionAgent(name="boss", llm=asks, tools=[agent.as_tool()], **options)
    team = wired_team(agent)
    return team if place == "team" else AgentWorkflow(agents=[team], **options)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", STEPS)
async def test_an_override_acts_and_its_super_runs_the_loop(name: str, place: str) -> None:
    overriding.LEDGER.clear()
    store = MemoryStore()
    workflow = placed(place, name, store=store) if place == "forked" else placed(place, name)
    output = await workflow.run("Go.", run_id="r")
    if place == "forked":
        overriding.LEDGER.clear()
        output = await workflow.fork("r", 1)
    assert str(output) == "Done."
    ran = overriding.LEDGER
    assert f"override {name}" in ran
    assert f"base {name}" in ran, "super() came back"
    assert ("body" in ran) is (name != "call_tool"), "the override of call_tool forbids the tool"


@pytest.mark.parametrize(("name", "place"), sampled(product(STEPS, ["alone", "team"]), every=3))
async def test_an_override_acts_after_kill_9_in_another_process(name: str, place: str, tmp_path: Path) -> None:
    program = Path(overriding.__file__)
    arguments = (sys.executable, str(program), name, place)
    environment = {**os.environ, "PYTHONPATH": str(program.parents[2])}
    first = await asyncio.create_subprocess_exec(
        *arguments, "kill", cwd=tmp_path, env=environment, stderr=asyncio.subprocess.PIPE
    )
    await first.wait()
    assert first.returncode == -signal.SIGKILL
    second = await asyncio.create_subprocess_exec(
        *arguments, cwd=tmp_path, env=environment, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await second.communicate()
    assert said.decode() == "Done.\n"
    ran = (tmp_path / "ledger").read_text().splitlines()
    assert f"override {name}" in ran
    assert f"base {name}" in ran
    assert ("body" in ran) is (name != "call_tool")
    if name in ("run_agent_step", "parse_agent_output"):  # the others may have been committed before the kill
        assert f"override {name}" in ran[ran.index("killed") :]


class TestAgents:
    async def test_only_the_override_of_the_acting_member_runs(self) -> None:
        overriding.LEDGER.clear()
        first = FunctionAgent(
            name="first", description="One.", llm=ScriptedLLM([tool_call("handoff", to_agent="worker", reason="r")])
        )
        team = AgentWorkflow(agents=[first, made("setup_agent")], root_agent="first")
        assert str(await team.run("Go.")) == "Done."
        assert overriding.LEDGER == ["override setup_agent", "base setup_agent"], "not for the first agent"

    async def test_an_agent_of_a_team_also_runs_alone(self) -> None:
        agent = made("call_tool")
        wired_team(agent)
        assert str(await agent.run("Go.")) == "Done."

    async def test_the_loop_of_a_team_has_the_memory_and_the_handoffs_of_the_team(self) -> None:
        class Polite(FunctionAgent):
            @step
            async def run_agent_step(self, ctx: Context[Any], ev: AgentSetup) -> AgentOutput:
                return await super().run_agent_step(ctx, ev)

        llm = ScriptedLLM([tool_call("handoff", to_agent="second", reason="r")])
        first = Polite(name="first", description="One.", llm=llm)
        second = FunctionAgent(name="second", description="Two.", llm=ScriptedLLM(["It is mine."]))
        output = await AgentWorkflow(agents=[first, second], root_agent="first").run("Go.")
        assert (str(output), output.current_agent_name) == ("It is mine.", "second")

    async def test_a_step_that_replaces_one_of_the_loop_acts_too(self) -> None:
        class Greeting(FunctionAgent):
            @step(replaces="setup_agent")
            async def greet(self, ctx: Context[Any], ev: AgentInput) -> AgentSetup:
                setup = await self.setup_agent(ctx, ev)
                return AgentSetup(input=[ChatMessage("good day"), *setup.input], current_agent_name="a")

        llm = ScriptedLLM(["hello"])
        agent = Greeting(name="a", description="A.", llm=llm)
        assert str(await AgentWorkflow(agents=[agent]).run("Go.")) == "hello"
        assert [message.content for message in llm.requests[0].messages] == ["good day", "Go."]

    async def test_an_override_has_its_own_signature(self) -> None:
        def greeting() -> str:
            return "good day"

        class Greeting(FunctionAgent):
            @step
            def setup_agent(self, ev: AgentInput, words: Annotated[str, Resource(greeting)]) -> AgentSetup:
                return AgentSetup(input=[ChatMessage(words)], current_agent_name=ev.current_agent_name)

        llm = ScriptedLLM(["hello"])
        await AgentWorkflow(agents=[Greeting(name="a", description="A.", llm=llm)]).run("Go.")
        assert [message.content for message in llm.requests[0].messages] == ["good day"]

    async def test_a_fork_with_another_model_calls_the_override(self) -> None:
        overriding.LEDGER.clear()
        store = MemoryStore()
        team = wired_team(made("setup_agent"), store=store)
        await team.run("Go.", run_id="r")
        overriding.LEDGER.clear()
        assert str(await team.fork("r", 1, llm=ScriptedLLM(["Other."]))) == "Other."
        assert "override setup_agent" in overriding.LEDGER


class TestTeams:
    async def test_the_class_of_a_team_wins_and_asks_the_member(self) -> None:
        seen: list[str] = []

        class Watching(AgentWorkflow):
            @step
            async def call_tool(self, ctx: Context[Any], ev: ToolCall) -> ToolCallResult:
                seen.append(f"team {ev.tool_name}")
                return await self.member_step(ctx, ev)

            @step
            async def setup_agent(self, ctx: Context[Any], ev: AgentInput) -> AgentSetup:
                seen.append("team setup")
                return await super().setup_agent(ctx, ev)

        overriding.LEDGER.clear()
        both = Watching(agents=[made("call_tool")])
        assert str(await both.run("Go.")) == "Done."
        assert seen == ["team setup", "team act", "team setup"]
        assert overriding.LEDGER == ["override call_tool", "base call_tool"]
        assert str(await Watching(agents=[made("setup_agent")]).run("Go.")) == "Done."
        assert overriding.LEDGER[2:] == ["body"], "the override of the team wins, and does not ask"

    async def test_a_member_without_an_override_runs_the_loop(self) -> None:
        class Watching(AgentWorkflow):
            @step
            async def setup_agent(self, ctx: Context[Any], ev: AgentInput) -> AgentSetup:
                return await self.member_step(ctx, ev)

        agent = FunctionAgent(name="a", description="A.", llm=ScriptedLLM(["hello"]))
        assert str(await Watching(agents=[agent]).run("Go.")) == "hello"

    async def test_member_step_takes_events_of_the_loop(self) -> None:
        team = wired_team(made("call_tool"))
        with pytest.raises(TypeError, match="takes an event of the loop, not StopEvent"):
            await team.member_step(Context(team), StopEvent())


class Own(Event):
    pass


def alone_and_in_a_team(kind: Any) -> Any:
    return AgentWorkflow(agents=[kind(name="worker", description="Works.", llm=ScriptedLLM(["x"]))])


class TestWarnings:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"num_workers": 1}, "num_workers"),
            ({"timeout": 3, "retry_policy": retry_policy(stop=stop_after_attempt(2))}, "retry_policy, timeout"),
        ],
    )
    def test_decorators_of_an_override_do_not_act(self, options: Any, words: str) -> None:
        class Slow(FunctionAgent):
            @step(**options)
            async def call_tool(self, ctx: Context[Any], ev: ToolCall) -> ToolCallResult:
                return await super().call_tool(ctx, ev)

        with pytest.warns(UserWarning, match=f"Step call_tool of agent worker has {words} in its decorator"):
            alone_and_in_a_team(Slow)

    def test_an_event_that_no_step_of_the_team_takes(self) -> None:
        class Odd(FunctionAgent):
            @step
            async def call_tool(self, ctx: Context[Any], ev: ToolCall) -> ToolCallResult | Own:
                return Own()

        with pytest.warns(UserWarning, match="call_tool of agent worker may return Own, which no step of the team"):
            alone_and_in_a_team(Odd)

        class Taking(AgentWorkflow):
            @step
            async def take(self, ev: Own) -> None:
                pass

        Taking(agents=[Odd(name="worker", description="Works.", llm=ScriptedLLM(["x"]))])

    def test_an_attached_workflow_may_take_it(self) -> None:
        class Takes(Workflow, entry=[Own]):
            @step
            async def take(self, ev: Own) -> StopEvent:
                return StopEvent()

        class Odd(FunctionAgent):
            @step
            async def call_tool(self, ctx: Context[Any], ev: ToolCall) -> ToolCallResult | Own:
                return Own()

        agent = Odd(name="worker", description="Works.", llm=ScriptedLLM(["x"]))
        AgentWorkflow(agents=[agent], workflows={"takes": Takes()})

    def test_other_steps_do_not_run(self) -> None:
        class Watching(FunctionAgent):
            @step
            async def watch(self, ev: ToolCallResult) -> None:
                pass

            @catch_error
            async def give_up(self, ev: StepFailedEvent) -> StopEvent:
                return StopEvent()

        with pytest.warns(UserWarning, match="does not run in a team") as warned:
            alone_and_in_a_team(Watching)
        assert [str(one.message) for one in warned] == [
            f"Step {name} of agent worker does not run in a team: put it into the class of the team, or give the agent "
            "to another one as a tool with as_tool()"
            for name in ("watch", "give_up")
        ]

    def test_a_step_that_the_team_has_too_runs(self) -> None:
        class Watching:
            @step
            async def watch(self, ev: ToolCallResult) -> None:
                pass

        class Agent(Watching, FunctionAgent):
            pass

        class Team(Watching, AgentWorkflow):
            pass

        Team(agents=[Agent(name="worker", description="Works.", llm=ScriptedLLM(["x"]))])


class TestClassCreation:
    def test_a_method_that_hides_a_step_is_decorated(self) -> None:
        with pytest.raises(WorkflowValidationError, match="call_tool of DryRun hides a step: decorate it with @step"):

            class DryRun(FunctionAgent):
                async def call_tool(self, ctx: Context[Any], ev: ToolCall) -> ToolCallResult:
                    raise NotImplementedError

    @pytest.mark.parametrize("base", [FunctionAgent, AgentWorkflow])
    def test_a_step_beside_one_of_the_loop_is_refused(self, base: Any) -> None:
        with pytest.raises(
            WorkflowValidationError,
            match=r"Step prepare of Twice takes AgentInput and returns AgentSetup, .* step setup_agent of the loop: "
            r"decorate it with @step\(replaces='setup_agent'\)",
        ):

            class Twice(base):
                @step
                async def prepare(self, ev: AgentInput) -> AgentSetup:
                    raise NotImplementedError

    def test_a_free_function_beside_one_of_the_loop_is_refused(self) -> None:
        class Open(FunctionAgent):
            pass

        with pytest.raises(WorkflowValidationError, match="Step prepare of Open takes AgentInput"):

            @step(workflow=Open)
            async def prepare(ev: AgentInput) -> AgentSetup:
                raise NotImplementedError

    def test_a_step_of_its_own_events_or_without_a_result_is_allowed(self) -> None:
        class Watching(FunctionAgent):
            @step
            async def watch(self, ev: AgentOutput) -> Own | None:
                return None

            @step
            async def note(self, ev: Own) -> AgentInput | None:
                return None

        assert set(Watching(llm=ScriptedLLM(["x"]))._get_steps()) >= {"watch", "note"}


class Plain(BaseWorkflowAgent):
    """An agent as articles print it: outputs without a name, calls without an id."""

    answers: list[AgentOutput]

    async def take_step(self, ctx: Context[Any], llm_input: Any, tools: Sequence[Any], memory: Any) -> AgentOutput:
        return self.answers.pop(0)

    async def handle_tool_call_results(self, ctx: Context[Any], results: list[ToolCallResult], memory: Any) -> None:
        for result in results:
            await memory.aput(ChatMessage(result.tool_output.content, role="user"))

    async def finalize(self, ctx: Context[Any], output: AgentOutput, memory: Any) -> AgentOutput:
        return AgentOutput(response=output.response)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class TestProgramsOfArticles:
    @pytest.mark.parametrize("in_a_team", [False, True])
    async def test_an_output_without_a_name_and_a_call_without_an_id(self, in_a_team: bool) -> None:
        calls = [ToolSelection(tool_name="add", tool_kwargs={"a": 1, "b": n}) for n in (1, 2)]
        assert calls[0].tool_id != calls[1].tool_id
        answers = [
            AgentOutput(response=ChatMessage(""), tool_calls=list(calls)),
            AgentOutput(response=ChatMessage("3")),
        ]
        other = FunctionAgent(name="other", description="Other.", llm=ScriptedLLM(["x"]))
        agent: Any = Plain(name="plain", description="Plain.", answers=answers, tools=[add])
        if in_a_team:
            agent = AgentWorkflow(agents=[other, agent], root_agent="plain")
        handler = agent.run("Go.")
        seen = [event async for event in handler.stream_events()]
        output = await handler
        assert (str(output), output.current_agent_name) == ("3", "plain")
        assert {event.current_agent_name for event in seen if type(event) is AgentOutput} == {"plain"}
        contents = [event.tool_output.content for event in seen if isinstance(event, ToolCallResult)]
        assert sorted(contents) == ["2", "3"]  # in the order in which the threads end

    async def test_a_run_agent_step_of_its_own_may_leave_out_the_name(self) -> None:
        class Canned(FunctionAgent):
            @step
            async def run_agent_step(self, ctx: Context[Any], ev: AgentSetup) -> AgentOutput:
                return AgentOutput(response=ChatMessage("canned", role="assistant"))

        first = FunctionAgent(
            name="first", description="One.", llm=ScriptedLLM([tool_call("handoff", to_agent="canned", reason="r")])
        )
        canned = Canned(name="canned", description="Two.", llm=ScriptedLLM(["x"]))
        output = await AgentWorkflow(agents=[first, canned], root_agent="first").run("Go.")
        assert (str(output), output.current_agent_name) == ("canned", "canned")

    def test_an_answer_without_calls_names_the_option(self) -> None:
        llm: FunctionCallingLLM = ScriptedLLM(["hello"])
        response = llm.chat([ChatMessage("hi")])
        with pytest.raises(ValueError, match="error_on_no_tool_call=False"):
            llm.get_tool_calls_from_response(response)

    async def test_a_checkpoint_callback_is_warned_of_once(self) -> None:
        class Checked(FunctionAgent):
            pass

        with pytest.warns(UserWarning, match=r"checkpoint_callback=...\) has no effect: Checked\(store=...\)"):
            await Checked(llm=ScriptedLLM(["hello"])).run("Go.", checkpoint_callback=print)
        await Checked(llm=ScriptedLLM(["hello"])).run("Go.", checkpoint_callback=print)

    async def test_a_call_tool_that_answers_itself(self) -> None:
        class DryRun(FunctionAgent):
            @step
            async def call_tool(self, ctx: Context[Any], ev: ToolCall) -> ToolCallResult:
                output = ToolOutput(tool_name=ev.tool_name, content="not run", raw_input=ev.tool_kwargs)
                return ToolCallResult(
                    tool_name=ev.tool_name,
                    tool_kwargs=ev.tool_kwargs,
                    tool_id=ev.tool_id,
                    tool_output=output,
                    return_direct=False,
                )

        llm = ScriptedLLM([[tool_call("add", a=1, b=2), tool_call("add", a=3, b=4)], "Dry."])
        output = await DryRun(llm=llm, tools=[add]).run("Go.")
        assert [call.tool_output.content for call in output.tool_calls] == ["not run", "not run"]
