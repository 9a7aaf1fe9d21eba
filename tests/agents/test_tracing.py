"""What traces say of agents, models and tools: spans, their parents, and tags under OpenTelemetry's names."""

import json
from collections.abc import Generator
from inspect import BoundArguments
from typing import Any

import pytest

from batonflow.agents import AgentWorkflow, FunctionAgent, ToolCall
from batonflow.agents.events import AgentWorkflowStartEvent
from batonflow.instrumentation import BaseEvent, BaseEventHandler, BaseSpan, BaseSpanHandler, get_dispatcher
from batonflow.instrumentation.events.agent import AgentRunStepEndEvent, AgentRunStepStartEvent
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.llms.genai import CAPTURE_CONTENT


class Kept(BaseSpanHandler[BaseSpan]):
    ended: list[BaseSpan] = []
    given: dict[str, dict[str, Any]] = {}

    def new_span(
        self,
        id_: str,
        bound_args: BoundArguments,
        instance: Any = None,
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> BaseSpan:
        self.given.setdefault(id_.rpartition("-")[0], dict(bound_args.arguments))
        return BaseSpan(id_=id_, parent_id=parent_span_id, tags=tags or {})

    def prepare_to_exit_span(self, id_: str, *args: Any, **kwargs: Any) -> BaseSpan | None:
        self.ended.append(self.open_spans[id_])
        return self.open_spans[id_]

    prepare_to_drop_span = prepare_to_exit_span

    def one(self, name: str) -> BaseSpan:
        return next(span for span in self.ended if span.id_.rpartition("-")[0] == name)


class Heard(BaseEventHandler):
    events: list[BaseEvent] = []

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        self.events.append(event)


@pytest.fixture
def spans() -> Generator[Kept, None, None]:
    root, handler = get_dispatcher(), Kept()
    before = list(root.span_handlers)
    root.add_span_handler(handler)
    yield handler
    root.span_handlers = before


@pytest.fixture
def heard() -> Generator[list[BaseEvent], None, None]:
    root, handler = get_dispatcher(), Heard()
    before = list(root.event_handlers)
    root.add_event_handler(handler)
    yield handler.events
    root.event_handlers = before


def tide(place: str, api_key: str = "") -> str:
    """When the water is high."""
    if place == "nowhere":
        raise LookupError("no such place")
    return f"High at six in {place}."


def agent(*turns: Any) -> FunctionAgent:
    return FunctionAgent(name="pilot", description="Knows the sea.", llm=ScriptedLLM(turns), tools=[tide])


async def test_the_run_the_agent_the_model_and_the_tool_lie_in_one_another(spans: Kept) -> None:
    await agent(tool_call("tide", place="Brest"), "At six.").run("When?")
    run, step = spans.one("FunctionAgent.run"), spans.one("FunctionAgent.run_agent_step")
    answer, model = spans.one("FunctionAgent.take_step"), spans.one("ScriptedLLM.astream_chat")
    assert [step.parent_id, answer.parent_id, model.parent_id] == [run.id_, step.id_, answer.id_]
    assert spans.one("FunctionTool.acall").parent_id == spans.one("FunctionAgent.call_tool").id_


async def test_tags_have_the_names_of_the_conventions(spans: Kept) -> None:
    handler = agent(tool_call("tide", place="Brest"), "At six.").run("When?")
    await handler
    run, model, tool = (
        spans.one("FunctionAgent.run").tags,
        spans.one("ScriptedLLM.astream_chat").tags,
        spans.one("FunctionTool.acall").tags,
    )
    assert (run["gen_ai.operation.name"], run["gen_ai.agent.name"]) == ("invoke_agent", "pilot")
    assert run["gen_ai.conversation.id"] == handler.run_id
    assert (model["gen_ai.operation.name"], model["gen_ai.request.model"]) == ("chat", "scripted")
    assert model["gen_ai.usage.output_tokens"] > 0
    assert model["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert model["gen_ai.response.time_to_first_chunk"] >= 0
    assert (tool["gen_ai.operation.name"], tool["gen_ai.tool.name"]) == ("execute_tool", "tide")
    assert tool["gen_ai.tool.call.id"].startswith("call")


async def test_handlers_are_told_what_everything_was_given(spans: Kept) -> None:
    asks = agent(tool_call("tide", place="Brest"), "At six.")
    await asks.run("When?")
    given = spans.given
    start = given["FunctionAgent.run"]["start_event"]
    assert isinstance(start, AgentWorkflowStartEvent)
    assert start.user_msg == "When?"
    assert list(given["FunctionAgent.call_tool"]) == ["ctx", "ev"]
    assert isinstance(given["FunctionAgent.call_tool"]["ev"], ToolCall)
    assert given["FunctionTool.acall"] == {"kwargs": {"place": "Brest"}}
    asked = given["ScriptedLLM.astream_chat"]
    assert [message.content for message in asked["messages"]] == ["When?"]
    assert [one.metadata.name for one in asked["kwargs"]["tools"]] == ["tide"]
    assert list(given["FunctionAgent.take_step"]) == ["ctx", "llm_input", "tools", "memory"]


async def test_a_team_is_a_workflow_of_agents(spans: Kept) -> None:
    team = AgentWorkflow(agents=[agent("At six.")], name="harbour")
    await team.run("When?")
    assert spans.one("AgentWorkflow.run").tags["gen_ai.workflow.name"] == "harbour"
    assert spans.one("FunctionAgent.take_step").tags["gen_ai.agent.name"] == "pilot"


async def test_what_was_said_is_left_out(spans: Kept) -> None:
    await agent(tool_call("tide", place="Brest"), "At six.").run("When?")
    tags = [value for span in spans.ended for name, value in span.tags.items() if name.startswith("gen_ai.")]
    assert not [value for value in tags if "Brest" in str(value) or "six" in str(value)]


async def test_what_was_said_is_there_on_request_without_secrets(spans: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAPTURE_CONTENT, "true")
    await agent(tool_call("tide", place="Brest", api_key="hunter2"), "At six.").run("When?")
    tool, models = (
        spans.one("FunctionTool.acall").tags,
        [span.tags for span in spans.ended if span.id_.startswith("ScriptedLLM")],
    )
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"place": "Brest", "api_key": "[redacted]"}
    assert "High at six in Brest." in tool["gen_ai.tool.call.result"]
    assert "At six." in models[-1]["gen_ai.output.messages"]
    assert "When?" in models[-1]["gen_ai.input.messages"]
    said = [str(value) for span in spans.ended for name, value in span.tags.items() if name.startswith("gen_ai")]
    assert not any("hunter2" in one for one in said)


async def test_a_tool_that_fails_says_how(spans: Kept) -> None:
    await agent(tool_call("tide", place="nowhere"), "Nowhere.").run("When?")
    assert spans.one("FunctionTool.acall").tags["error.type"] == "LookupError"


async def test_answers_of_agents_are_events_too(heard: list[BaseEvent]) -> None:
    handler = agent(tool_call("tide", place="Brest"), "At six.").run("When?")
    await handler
    starts = [event for event in heard if isinstance(event, AgentRunStepStartEvent)]
    ends = [event for event in heard if isinstance(event, AgentRunStepEndEvent)]
    assert [(event.task_id, event.step, event.input) for event in starts] == [
        (handler.run_id, 1, "When?"),
        (handler.run_id, 2, "When?"),
    ]
    assert [str(event.step_output) for event in ends] == ["", "At six."]
    assert [event.span_id for event in starts] == [event.span_id for event in ends]
