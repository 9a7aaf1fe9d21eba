"""The names in an agent or a team: which are the user's, and which are not."""

import asyncio
import warnings
from typing import Any

import pytest
from pydantic import BaseModel, PrivateAttr

from batonflow.agents import AgentOutput, AgentWorkflow, CodeActAgent, FunctionAgent, ReActAgent, ToolCall
from batonflow.agents.members import CALLED
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.workflow_core import Context, Event, StopEvent, Workflow, step
from batonflow.workflow_core.errors import WorkflowTimeoutError, WorkflowValidationError

# Those that LlamaIndex has too, some of which its users override.
SHARED = {
    "_call_tool", "_extract_code_from_response", "_get_handoff_tool", "_get_llm_response", "_get_prompt_modules",
    "_get_prompts", "_get_response", "_get_streaming_response", "_get_tool_descriptions", "_init_context",
    "_update_prompts",
}  # fmt: skip
OF_WORKFLOWS = {name for name in dir(Workflow) if not name.startswith("__")} - {"run", "validate"}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def llm() -> ScriptedLLM:
    return ScriptedLLM([tool_call("add", a=2, b=40), "It is 42."])


@pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent, CodeActAgent, AgentWorkflow])
def test_an_agent_keeps_no_ordinary_private_name_for_itself(kind: type) -> None:
    private = {name for name in dir(kind) if name.startswith("_") and not name.startswith(("__", "_bf_"))}
    assert private - set(dir(BaseModel)) - set(dir(Workflow)) - SHARED <= {"_abc_impl"}


async def test_an_agent_may_have_any_private_attribute_and_fields_of_its_own() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # pydantic warns of fields that hide something

        class Own(FunctionAgent):
            version: str
            run_store: str = "shop"
            _memory: list[str] = PrivateAttr(default_factory=list)
            _limits: dict[str, int] = PrivateAttr(default={"add": 2})
            _options: str = PrivateAttr(default="mine")

            def _answer(self) -> str:
                return f"{self.version} {self.run_store} {self._memory} {self._limits} {self._options}"

    with pytest.raises(ValueError, match="version"):
        Own(tools=[add], llm=llm())
    agent = Own(tools=[add], llm=llm(), version="1.2", store="memory:")
    agent._memory.append("a")
    agent._team = agent._task = "blue"
    assert str(await agent.run("What is 2 + 40?")) == "It is 42."
    assert agent._answer() == "1.2 shop ['a'] {'add': 2} mine"
    assert agent._team == agent._task == "blue"


@pytest.mark.parametrize("store", [None, "memory:"])
async def test_a_team_may_have_any_attribute(store: str | None) -> None:
    class Own(AgentWorkflow):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            for name in OF_WORKFLOWS - {"_timeout", "_num_concurrent_runs"}:
                setattr(self, name, "mine")
            self._memory = self._limits = self._team = self._member = self._handoffs = "mine"

    team = Own(agents=[FunctionAgent(tools=[add], llm=llm())], store=store)
    assert str(await team.run("What is 2 + 40?")) == "It is 42."


@pytest.mark.parametrize("name", sorted(CALLED))
@pytest.mark.parametrize("kind", [FunctionAgent, AgentWorkflow])
def test_a_step_with_the_name_of_what_the_loop_calls_is_refused(kind: type, name: str) -> None:
    async def named(self: Any, ev: Event) -> StopEvent:
        return StopEvent()

    named.__qualname__ = f"Own.{name}"
    with pytest.raises(
        WorkflowValidationError, match=rf"Own has a step called {name}, which hides Own\.{name}\(\): call the step"
    ):
        type("Own", (kind,), {name: step(named)})


async def test_a_step_of_an_agent_may_have_other_names() -> None:
    class Noted(Event):
        pass

    class Own(FunctionAgent):
        @step
        async def resume(self, ctx: Context, ev: Noted) -> None: ...

        @step
        async def parse_agent_output(self, ctx: Context, ev: AgentOutput) -> Noted | ToolCall | StopEvent:
            ctx.send_event(Noted())
            return StopEvent(result="mine")

    assert await Own(tools=[add], llm=llm(), store="memory:").run("What is 2 + 40?") == "mine"


@pytest.mark.parametrize("as_team", [False, True])
async def test_options_are_read_and_set_under_the_names_that_llamaindex_has(as_team: bool) -> None:
    async def slow() -> str:
        """Take long."""
        await asyncio.sleep(5)
        return "done"

    agent = FunctionAgent(tools=[slow], llm=ScriptedLLM([tool_call("slow"), "Done."]), verbose=True)
    flow: Workflow = AgentWorkflow(agents=[agent], verbose=True) if as_team else agent
    assert (flow._timeout, flow._num_concurrent_runs) == (None, None)
    assert (flow._verbose, flow._disable_validation) == (True, False)
    assert set(flow._get_steps()) >= {"init_run", "call_tool"}
    assert flow._validate() is False
    flow._verbose, flow._timeout = False, 0.05
    with pytest.raises(WorkflowTimeoutError):
        await flow.run("Go.")
    with pytest.raises(WorkflowValidationError, match="_timeout is the option timeout"):
        flow._timeout = "soon"
