"""Errors of tools: the model is told, the run fails, and a person sees what happened."""

import logging
from pathlib import Path
from typing import Any

import pytest

from batonflow.agents import AgentWorkflow, AgentWorkflowStartEvent, CodeActAgent, FunctionAgent
from batonflow.agents.middleware import Middleware
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.testing import WorkflowTestRunner
from batonflow.tools import FunctionTool, ToolDefinitionError, ToolError, ToolPolicy, ToolRetry, run_tool, tool
from batonflow.tools.code.unsafe import UnsafeLocalExecutor
from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from tests.promises.programs.running import run_program

BUG = NameError("name 'rows' is not defined")
FAULT = ValueError("no such customer")


def failing(error: Exception, **options: Any) -> FunctionTool:
    async def search(name: str) -> str:
        """Search a customer."""
        raise error

    return tool(**options)(search)


def clerk(made: FunctionTool, **options: Any) -> FunctionAgent:
    llm = ScriptedLLM([tool_call("search", name="Ann"), lambda request: f"told: {request.messages[-1].content}"] * 2)
    return FunctionAgent(name="clerk", description="Searches.", llm=llm, tools=[made], **options)


class TestTheWayOfAnError:
    @pytest.mark.parametrize(
        ("mode", "error", "leaves"),
        [
            ("tell", BUG, False),
            ("tell", FAULT, False),
            ("raise_bugs", BUG, True),
            ("raise_bugs", FAULT, False),
            ("raise", BUG, True),
            ("raise", FAULT, True),
            ("raise", ToolRetry("say the number"), False),
            ("raise", ToolError("closed"), False),
        ],
    )
    @pytest.mark.parametrize("where", ["agent", "team", "tool", "member"])
    async def test_it_is_told_or_fails_the_run(self, mode: Any, error: Exception, leaves: bool, where: str) -> None:
        made = failing(error, on_error=mode if where == "tool" else None)
        agent: Any = clerk(made, tool_errors=mode if where in ("agent", "member") else "tell")
        if where in ("team", "member"):
            agent = AgentWorkflow(agents=[agent], tool_errors=mode if where == "team" else "tell")
        if leaves:
            with pytest.raises(type(error)) as raised:
                await agent.run("Who?")
            assert raised.value is error
        else:
            assert str(await agent.run("Who?")) == f"told: {error}"

    async def test_the_setting_of_a_tool_has_priority(self) -> None:
        assert str(await clerk(failing(FAULT, on_error="tell"), tool_errors="raise").run("Who?")) == f"told: {FAULT}"

    async def test_an_argument_that_does_not_fit_is_told(self) -> None:
        llm = ScriptedLLM([tool_call("search", nonsense=1), "Then not."])
        agent = FunctionAgent(llm=llm, tools=[failing(BUG)], tool_errors="raise")
        assert str(await agent.run("Who?")) == "Then not."

    async def test_code_that_calls_a_tool_fails_the_run_too(self) -> None:
        code = "<execute>\nawait search(name='Ann')\n</execute>"
        agent = CodeActAgent(
            llm=ScriptedLLM([code, "told"]), tools=[failing(FAULT)], executor=UnsafeLocalExecutor(), tool_errors="raise"
        )
        with pytest.raises(ValueError, match="no such customer"):
            await agent.run("Who?")

    async def test_an_override_of_the_call_keeps_the_setting(self) -> None:
        class Own(FunctionAgent):
            async def _call_tool(self, ctx: Any, tool: Any, tool_input: Any) -> Any:
                return await super()._call_tool(ctx, tool, tool_input)

        agent = Own(llm=ScriptedLLM([tool_call("search", name="Ann")]), tools=[failing(FAULT)], tool_errors="raise")
        with pytest.raises(ValueError, match="no such customer"):
            await agent.run("Who?")

    async def test_a_middleware_passes_it_on_without_a_note_of_its_own(self) -> None:
        class Counts(Middleware):
            async def around_tool(self, ctx: Any, request: Any, call_next: Any) -> Any:
                return await call_next(request)

        with pytest.raises(ValueError, match="no such customer") as raised:
            await clerk(failing(ValueError("no such customer")), tool_errors="raise", middleware=[Counts()]).run("Who?")
        assert [note for note in raised.value.__notes__ if "middleware" in note] == []

    async def test_a_tool_that_is_called_by_hand_has_the_choice_too(self) -> None:
        assert (await run_tool(failing(FAULT), {"name": "Ann"})).is_error
        with pytest.raises(ValueError, match="no such customer"):
            await run_tool(failing(FAULT), {"name": "Ann"}, on_error="raise")

    async def test_retries_come_first(self) -> None:
        tries: list[int] = []

        @tool(retry=retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(3)), on_error="raise")
        async def search(name: str) -> str:
            """Search a customer."""
            tries.append(1)
            raise FAULT

        with pytest.raises(ValueError, match="no such customer"):
            await clerk(search).run("Who?")
        assert len(tries) == 3

    def test_other_values_are_refused(self) -> None:
        with pytest.raises(ValueError, match="tool_errors"):
            clerk(failing(BUG), tool_errors="never")
        with pytest.raises(ValueError, match="tool_errors is one of tell, raise_bugs, raise, not 'never'"):
            AgentWorkflow(agents=[clerk(failing(BUG))], tool_errors="never")  # pyright: ignore[reportArgumentType]
        with pytest.raises(ToolDefinitionError, match="on_error='never' is invalid"):
            ToolPolicy(on_error="never")  # pyright: ignore[reportArgumentType]


class TestWhatIsLogged:
    async def test_a_bug_is_one_warning_with_traceback_run_and_agent(self, caplog: pytest.LogCaptureFixture) -> None:
        assert str(await clerk(failing(BUG)).run("Who?", run_id="r1")) == f"told: {BUG}"
        (record,) = caplog.records
        assert (record.name, record.levelno) == ("batonflow.tool", logging.WARNING)
        assert record.getMessage() == "tool search of agent clerk, run r1 raised NameError"
        assert record.exc_info is not None
        assert record.exc_info[1] is BUG
        about: Any = record
        found = (about.run_id, about.step, about.agent, about.tool, about.attempt, about.session)
        assert found == ("r1", "call_tool", "clerk", "search", 1, "")
        assert about.workflow.endswith("FunctionAgent")

    async def test_a_text_for_the_model_is_not_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        await clerk(failing(ToolRetry("say the number"))).run("Who?")
        await clerk(failing(ToolError("closed"))).run("Who?")
        assert caplog.records == []

    async def test_an_error_that_fails_the_run_is_not_logged_twice(self, caplog: pytest.LogCaptureFixture) -> None:
        with pytest.raises(ValueError, match="no such customer"):
            await clerk(failing(FAULT), tool_errors="raise").run("Who?")
        assert caplog.records == []

    async def test_each_retry_of_a_tool_is_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        made = failing(FAULT, retry=retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(2)))
        await clerk(made).run("Who?", run_id="r1")
        first, last = [record.getMessage() for record in caplog.records]
        assert first.startswith(
            "tool search of agent clerk, run r1 failed at attempt 1 and is called again in 0 seconds"
        )
        assert last == "tool search of agent clerk, run r1 raised ValueError"

    async def test_it_is_shown_at_default_settings(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(PROGRAM)
        code, output, errors = await run_program(program, tmp_path)
        assert (code, output) == (0, "told: name 'rows' is not defined\n")
        assert errors.startswith("tool search of agent Agent, run r1 raised NameError\n")
        assert f'File "{program}"' in errors
        assert "return rows[name]" in errors


PROGRAM = """
import asyncio
import sys
from batonflow import FunctionAgent, ScriptedLLM
from batonflow.llms import tool_call

def search(name: str) -> str:
    "Search a customer."
    return rows[name]

async def main():
    llm = ScriptedLLM([tool_call("search", name="Ann"), lambda request: f"told: {request.messages[-1].content}"])
    options = {"debug": True} if sys.argv[1:] else {}
    print(await FunctionAgent(llm=llm, tools=[search]).run("Who?", run_id="r1", **options))

asyncio.run(main())
"""


class TestDebugging:
    @pytest.mark.parametrize("asks", ["agent", "run", "environment", "team"])
    async def test_a_bug_fails_the_run_at_the_line_of_the_user(
        self, asks: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if asks == "environment":
            monkeypatch.setenv("BATONFLOW_DEBUG", "1")
        made = FunctionTool.from_defaults(buggy, name="search")
        agent: Any = clerk(made, **({"debug": True} if asks == "agent" else {}))
        if asks == "team":
            agent = AgentWorkflow(agents=[agent], debug=True)
        with pytest.raises(NameError) as raised:
            await agent.run("Who?", **({"debug": True} if asks == "run" else {}))
        assert raised.traceback[-1].path == Path(__file__)
        assert "rows" in str(raised.traceback[-1].statement)

    async def test_another_value_is_refused(self) -> None:
        with pytest.raises(ValueError, match="debug is True or False, not 1"):
            clerk(buggy).run("Who?", debug=1)

    async def test_an_agent_as_a_tool_is_debugged_with_its_caller(self) -> None:
        inner = clerk(FunctionTool.from_defaults(buggy, name="search"))
        llm = ScriptedLLM([tool_call("clerk", input="Who?"), "told"])
        with pytest.raises(NameError):
            await FunctionAgent(name="boss", llm=llm, tools=[inner.as_tool()], debug=True).run("Go.")

    async def test_the_test_runner_debugs(self) -> None:
        agent = clerk(FunctionTool.from_defaults(buggy, name="search"))
        with pytest.raises(NameError):
            await WorkflowTestRunner(agent).run(AgentWorkflowStartEvent(user_msg="Who?"))

    async def test_zero_is_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BATONFLOW_DEBUG", "0")
        assert str(await clerk(failing(BUG)).run("Who?")) == f"told: {BUG}"

    async def test_a_field_of_this_name_belongs_to_the_start_event(self) -> None:
        class Begin(StartEvent):
            debug: bool

        class Flow(Workflow):
            @step
            async def go(self, ev: Begin) -> StopEvent:
                return StopEvent(result=ev.debug)

        assert await Flow().run(debug=True) is True

    async def test_the_run_is_told_on_stderr(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(PROGRAM.replace("return rows[name]", "return 'Ann of Kiel'"))
        code, output, errors = await run_program(program, tmp_path, "debug")
        assert (code, output) == (0, "told: Ann of Kiel\n")
        assert "  -> search(name='Ann')\n  <- Ann of Kiel\nAgent: told: Ann of Kiel\n" in without_records(errors)
        assert "DEBUG batonflow.workflow: step call_tool of " in errors

    async def test_other_runs_of_the_process_are_not_told(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(PROGRAM.replace("asyncio.run(main())", TWO_RUNS))
        code, output, errors = await run_program(program, tmp_path)
        assert (code, output) == (0, "5\n")
        assert "one" in errors
        assert "two" not in errors


TWO_RUNS = """
from batonflow import StartEvent, StopEvent, Workflow, step

class Flow(Workflow):
    @step
    async def go(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=5)

async def both():
    await Flow().run(run_id="one", debug=True)
    print(await Flow().run(run_id="two"))

asyncio.run(both())
"""


def without_records(errors: str) -> str:
    return "".join(line for line in errors.splitlines(keepends=True) if not line.startswith(("DEBUG", "INFO")))


def buggy(name: str) -> str:
    """Search a customer."""
    return rows[name]  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


class TestNotes:
    async def test_an_exception_of_a_step_says_where_it_happened(self) -> None:
        class DeepResearch(Workflow):
            @step(retry_policy=retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(2)))
            async def search(self, ev: StartEvent) -> StopEvent:
                raise ValueError("no page")

        with pytest.raises(ValueError, match="no page") as raised:
            await DeepResearch().run(run_id="r1")
        assert raised.value.__notes__ == ["in step search of DeepResearch, run r1, attempt 2 of 2"]

    async def test_a_step_without_retries_has_no_attempts(self) -> None:
        class Fails(Workflow):
            @step
            async def search(self, ev: StartEvent) -> StopEvent:
                raise ValueError("no page")

        with pytest.raises(ValueError, match="no page") as raised:
            await Fails().run(run_id="r1")
        assert raised.value.__notes__ == ["in step search of Fails, run r1"]

    async def test_an_exception_of_a_tool_names_agent_tool_and_call(self) -> None:
        with pytest.raises(ValueError, match="no such customer") as raised:
            await clerk(failing(ValueError("no such customer")), tool_errors="raise").run("Who?", run_id="r1")
        (note,) = raised.value.__notes__
        assert note.startswith("in step call_tool of FunctionAgent, run r1: agent clerk, tool search, call ")

    async def test_an_exception_that_goes_through_two_runs_keeps_the_inner_note(self) -> None:
        inner = clerk(failing(ValueError("no such customer")), tool_errors="raise")
        llm = ScriptedLLM([tool_call("clerk", input="Who?")])
        outer = FunctionAgent(name="boss", llm=llm, tools=[inner.as_tool()], tool_errors="raise")
        with pytest.raises(ValueError, match="no such customer") as raised:
            await outer.run("Go.", run_id="r1")
        (note,) = raised.value.__notes__
        assert "agent clerk, tool search" in note
