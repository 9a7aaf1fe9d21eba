"""What OpenTelemetry is told of agents, models and tools."""

import asyncio
import json
from collections.abc import Iterator
from inspect import BoundArguments
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from batonflow import __version__
from batonflow.agents import AgentWorkflow, FunctionAgent
from batonflow.instrumentation import SimpleSpanHandler, get_dispatcher
from batonflow.llms import ChatMessage, ScriptedLLM, Usage, tool_call
from batonflow.llms.errors import RateLimitError
from batonflow.llms.stream import Finish, TextDelta
from batonflow.tools import ToolOutput, tool
from batonflow.workflow_core import MemoryStore
from tests.workflow_core.exported import Exported


@pytest.fixture
def exported() -> Iterator[Exported]:
    out = Exported()
    tracing = out.instrument()
    yield out
    tracing.uninstrument()
    out.close()


def depth(harbour: str) -> str:
    """How deep a harbour is."""
    return "8 m"


def path(exported: Exported, span: ReadableSpan) -> list[str]:
    """Names from the root to a span."""
    by_id = {one.context.span_id: one for one in exported.spans}
    names = [span.name]
    while span.parent is not None:
        span = by_id[span.parent.span_id]
        names.insert(0, span.name)
    return names


async def test_a_team_with_a_handoff(exported: Exported) -> None:
    def depth(harbour: str) -> str:
        """How deep it is."""
        return "eight metres"

    looks = ScriptedLLM(
        [tool_call("depth", harbour="Emden"), tool_call("handoff", to_agent="writer", reason="known")], model="small"
    )
    writes = ScriptedLLM(["Eight metres."], model="large")
    team = AgentWorkflow(
        agents=[
            FunctionAgent(name="looker", description="Looks.", tools=[depth], llm=looks),
            FunctionAgent(name="writer", description="Writes.", llm=writes),
        ],
        root_agent="looker",
        name="harbours",
    )
    await team.run("How deep is Emden?", run_id="r1")

    root = exported.one("invoke_workflow harbours")
    assert root.attributes["openinference.span.kind"] == "CHAIN"
    assert len({span.context.trace_id for span in exported.spans}) == 1
    looker, _ = exported.named("invoke_agent looker")
    assert looker.attributes["gen_ai.agent.description"] == "Looks."
    assert path(exported, exported.one("chat large")) == [
        "invoke_workflow harbours", "step run_agent_step", "invoke_agent writer", "chat large",
    ]  # fmt: skip
    call = exported.one("execute_tool depth")
    assert path(exported, call) == ["invoke_workflow harbours", "step call_tool", "execute_tool depth"]
    assert str(call.attributes["gen_ai.tool.call.id"]).endswith("_1_1")
    assert call.attributes["gen_ai.tool.type"] == "function"
    asked = exported.named("chat small")[0]
    assert asked.kind == SpanKind.CLIENT
    for name, value in {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "ScriptedLLM",
        "gen_ai.request.model": "small",
        "gen_ai.response.model": "small",
    }.items():
        assert asked.attributes[name] == value
    assert asked.attributes["gen_ai.usage.input_tokens"] > 0
    assert asked.attributes["gen_ai.usage.output_tokens"] > 0
    assert asked.attributes["gen_ai.response.time_to_first_chunk"] >= 0


async def test_tools_at_the_same_time_lie_in_steps_of_their_own(exported: Exported) -> None:
    tracer = exported.tracers.get_tracer("other")

    async def measure(harbour: str) -> str:
        """Measure."""
        with tracer.start_as_current_span(f"measuring {harbour}"):
            await asyncio.sleep(0.01)
        return harbour

    harbours = ("Emden", "Husum", "Wismar")
    llm = ScriptedLLM([[tool_call("measure", harbour=one) for one in harbours], "done"])
    await FunctionAgent(llm=llm, tools=[measure]).run("Measure them.")
    calls = {span.context.span_id: span for span in exported.named("execute_tool measure")}
    inner = [exported.one(f"measuring {one}").parent.span_id for one in harbours]
    assert sorted(inner) == sorted(calls)
    assert len({call.parent.span_id for call in calls.values()}) == 3


async def test_an_agent_as_a_tool_lies_in_the_call(exported: Exported) -> None:
    inner = FunctionAgent(name="inner", description="Knows.", llm=ScriptedLLM(["42"], model="inner-model"))
    outer = FunctionAgent(llm=ScriptedLLM([tool_call("inner", input="?"), "done"]), tools=[inner.as_tool()])
    await outer.run("Go.")
    (call,) = exported.named("execute_tool inner")
    assert path(exported, exported.one("chat inner-model"))[:3] == [*path(exported, call)]


async def test_a_tool_that_fails_says_so_without_what_it_said(exported: Exported) -> None:
    def broken() -> str:
        """Breaks."""
        raise ConnectionError("the secret line is dead")

    await FunctionAgent(llm=ScriptedLLM([tool_call("broken"), "sorry"]), tools=[broken]).run("Go.")
    call = exported.one("execute_tool broken")
    assert call.status.status_code == StatusCode.ERROR
    assert call.attributes["error.type"] == "ConnectionError"
    assert exported.one("step aggregate_tool_results").status.status_code == StatusCode.UNSET
    # As of all failures, the text of the exception is there; what the model was told is not.
    assert call.status.description == "ConnectionError: the secret line is dead"
    (event,) = call.events
    assert event.name == "exception"
    assert event.attributes["exception.type"] == "ConnectionError"
    assert event.attributes["exception.message"] == "the secret line is dead"
    assert "in broken\n" in event.attributes["exception.stacktrace"]
    assert "secret" not in str([dict(span.attributes) for span in exported.spans])


async def test_a_tool_that_tells_of_a_failure_without_an_exception_has_a_status(exported: Exported) -> None:
    def broken() -> ToolOutput:
        """Breaks."""
        return ToolOutput(tool_name="broken", content="the line is dead", raw_input={}, raw_output=None, is_error=True)

    await FunctionAgent(llm=ScriptedLLM([tool_call("broken"), "sorry"]), tools=[broken]).run("Go.")
    call = exported.one("execute_tool broken")
    assert (call.status.status_code, call.status.description) == (StatusCode.ERROR, "ToolOutput")


async def test_spans_of_models_and_tools_say_whose_they_are(exported: Exported) -> None:
    def helper(question: str) -> str:
        """Help."""
        return "help"

    def member(name: str, *script: Any, **options: Any) -> FunctionAgent:
        llm = ScriptedLLM(list(script), model=f"{name}-model")
        return FunctionAgent(name=name, description=name, llm=llm, tools=[helper], **options)

    first = member(
        "first", tool_call("helper", question="?"), tool_call("handoff", to_agent="second", reason="r"),
        can_handoff_to=["second"],
    )  # fmt: skip
    second = member("second", tool_call("helper", question="?"), "done")
    await AgentWorkflow(agents=[first, second], root_agent="first", name="team").run("Go.", run_id="talk-1")
    asked = [span for span in exported.spans if span.name.startswith(("chat ", "execute_tool "))]
    assert len(asked) == 7
    assert {span.attributes["gen_ai.conversation.id"] for span in asked} == {"talk-1"}
    for span in exported.spans:
        if span.name.startswith("chat "):
            assert span.name == f"chat {span.attributes['gen_ai.agent.name']}-model"
    helped = [span.attributes["gen_ai.agent.name"] for span in exported.named("execute_tool helper")]
    assert helped == ["first", "second"]


async def test_a_run_of_one_agent_is_one_invocation(exported: Exported) -> None:
    llm = ScriptedLLM([tool_call("depth", harbour="Emden"), "done"])
    await FunctionAgent(name="looker", llm=llm, tools=[depth]).run("Go.", run_id="talk-1")
    assert exported.one("invoke_agent looker").parent is None
    turns = [span for span in exported.spans if span.name.startswith("turn ")]
    assert [span.name for span in turns] == ["turn 1", "turn 2"]
    assert [span.attributes["batonflow.agent.turn"] for span in turns] == [1, 2]
    assert path(exported, exported.named("chat scripted")[0]) == [
        "invoke_agent looker", "step run_agent_step", "turn 1", "chat scripted",
    ]  # fmt: skip


async def test_the_scope_says_of_which_version_it_is_and_of_which_conventions(exported: Exported) -> None:
    await FunctionAgent(llm=ScriptedLLM(["done"]), tools=[]).run("Go.")
    scope = exported.spans[0].instrumentation_scope
    assert (scope.name, scope.version) == ("batonflow", __version__)
    assert scope.schema_url.startswith("https://opentelemetry.io/schemas/1.")


async def test_content_has_the_instructions_and_the_tools_of_a_request() -> None:
    for content in (False, True):
        out = Exported()
        tracing = out.instrument(content=content)
        try:
            llm = ScriptedLLM(["done"])
            await FunctionAgent(llm=llm, tools=[depth], system_prompt="Be kind; key sk-0123456789abcdefghij.").run(
                "Go."
            )
        finally:
            tracing.uninstrument()
            out.close()
        told = out.one("chat scripted").attributes
        if not content:
            assert "gen_ai.system_instructions" not in told
            assert "gen_ai.tool.definitions" not in told
            continue
        [part] = json.loads(told["gen_ai.system_instructions"])
        assert part == {"type": "text", "content": "Be kind; key [redacted]."}
        [definition] = json.loads(told["gen_ai.tool.definitions"])
        assert (definition["type"], definition["name"]) == ("function", "depth")
        assert "harbour" in definition["parameters"]["properties"]


async def test_a_model_that_fails(exported: Exported) -> None:
    with pytest.raises(RateLimitError):
        await FunctionAgent(llm=ScriptedLLM([RateLimitError("too many")])).run("Go.")
    span = exported.one("chat scripted")
    assert span.status.status_code == StatusCode.ERROR
    (point,) = exported.points("gen_ai.client.operation.duration")
    assert point.attributes["error.type"] == "RateLimitError"


async def test_the_parameters_of_a_request(exported: Exported) -> None:
    llm = ScriptedLLM(["Hello."], temperature=0.5)
    await llm.achat([ChatMessage("Hello?")], top_p=0.9, seed=7, extra_headers={"x-key": "hidden"}, temperature=0.25)
    told = dict(exported.one("chat scripted").attributes)
    assert {name: value for name, value in told.items() if name.startswith("gen_ai.request.")} == {
        "gen_ai.request.model": "scripted",
        "gen_ai.request.temperature": 0.25,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.seed": 7,
    }


class Priced(ScriptedLLM):
    """A model with a price."""

    async def _stream(self, request: Any) -> Any:
        yield TextDelta(text="Hello.")
        yield Finish(reason="stop", usage=Usage(input_tokens=100, output_tokens=7, cost=0.25))


async def test_metrics_of_models(exported: Exported) -> None:
    for _ in range(2):
        await FunctionAgent(llm=Priced(model="dear")).run("Go.")
    tokens = {point.attributes["gen_ai.token.type"]: point for point in exported.points("gen_ai.client.token.usage")}
    assert (tokens["input"].sum, tokens["output"].sum, tokens["input"].count) == (200, 14, 2)
    (cost,) = exported.points("batonflow.cost")
    assert cost.value == 0.5
    assert dict(cost.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "Priced",
        "gen_ai.request.model": "dear",
        "gen_ai.response.model": "dear",
    }
    assert exported.points("gen_ai.client.operation.duration")[0].count == 2
    assert exported.points("gen_ai.client.operation.time_to_first_chunk")[0].count == 2


async def test_content_only_when_asked_for_and_without_secrets() -> None:
    def login(api_key: str, town: str) -> str:
        """Log in."""
        return "welcome, sk-aaaaaaaaaaaaaaaaaaaaaaaa"

    async def run() -> str:
        out = Exported()
        tracing = out.instrument(content=wanted)
        llm = ScriptedLLM([tool_call("login", api_key="hidden-key", town="Emden"), "You are in."])
        try:
            await FunctionAgent(llm=llm, tools=[login]).run("Let me into the harbour.")
        finally:
            tracing.uninstrument()
            out.close()
        return json.dumps([dict(span.attributes) for span in out.spans])

    wanted = False
    said, told = ("harbour", "Emden", "You are in", "welcome"), await run()
    assert not [text for text in said if text in told]
    wanted = True
    told = await run()
    assert [text for text in said if text not in told] == []
    assert "hidden-key" not in told
    assert "sk-aaaa" not in told
    wanted = False
    assert "harbour" not in await run()  # it was undone


async def test_what_span_handlers_are_told_of_arguments_is_exported_in_no_case(exported: Exported) -> None:
    heard: list[str] = []

    class Hears(SimpleSpanHandler):
        def span_enter(self, id_: str, bound_args: BoundArguments, *args: Any, **kwargs: Any) -> None:
            heard.append(repr(bound_args))

    root, handler = get_dispatcher(), Hears()
    assert not root.tells_arguments
    root.add_span_handler(handler)
    try:
        await FunctionAgent(llm=ScriptedLLM([tool_call("enter", town="Emden"), "Done."]), tools=[enter]).run("Harbour?")
    finally:
        root.span_handlers.remove(handler)
    assert "Emden" in str(heard)
    assert "Harbour?" in str(heard)
    told = json.dumps([[span.name, dict(span.attributes), str(span.events)] for span in exported.spans])
    assert not [text for text in ("Emden", "Harbour?") if text in told]
    assert {"chat scripted", "execute_tool enter"} <= {span.name for span in exported.spans}


def enter(town: str) -> str:
    """Enter a harbour."""
    return "entered"


async def test_messages_have_the_form_of_the_conventions() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    out = Exported()
    tracing = out.instrument(content=True)
    try:
        script = [tool_call("add", a=2, b=40), "42"]
        await FunctionAgent(llm=ScriptedLLM(script), tools=[add], system_prompt="Be brief.").run("2 + 40?")
    finally:
        tracing.uninstrument()
        out.close()
    last = out.named("chat scripted")[1].attributes
    call_id = json.loads(last["gen_ai.input.messages"])[2]["parts"][0]["id"]
    assert json.loads(last["gen_ai.input.messages"]) == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "content": "2 + 40?"}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": call_id, "name": "add", "arguments": {"a": 2, "b": 40}}],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": "42"}]},
    ]
    assert json.loads(last["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "42"}], "finish_reason": "stop"}
    ]


async def test_the_environment_asks_for_content_elsewhere_only(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    await FunctionAgent(llm=ScriptedLLM(["Hello."])).run("harbour")
    assert "harbour" not in json.dumps([dict(span.attributes) for span in exported.spans])


async def test_an_approval_in_another_process_links_the_traces(exported: Exported) -> None:
    @tool(requires_approval=True)
    def publish(title: str) -> str:
        """Publish."""
        return "published"

    def agent() -> FunctionAgent:
        script = [tool_call("publish", title="Tides"), "done"]
        return FunctionAgent(llm=ScriptedLLM(script[asked:]), tools=[publish], store=store)

    store, asked = MemoryStore(), 0
    handler = agent().run("Go.", run_id="r1")
    async for _ in handler.approvals():
        await handler.interrupt()
    asked = 1
    handler = agent().resume("r1")
    async for request in handler.approvals():
        request.approve()
    await handler
    first, second = (span for span in exported.named("invoke_agent Agent") if span.parent is None)
    assert second.links[0].context.span_id == first.context.span_id
    assert exported.one("execute_tool publish").context.trace_id == second.context.trace_id
    await store.aclose()
