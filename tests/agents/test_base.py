"""BaseWorkflowAgent: what a subclass may do, and what is refused."""

import json
import re
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, computed_field

from batonflow.agents import (
    AgentInput,
    AgentOutput,
    AgentSetup,
    AgentWorkflow,
    AgentWorkflowStartEvent,
    BaseWorkflowAgent,
    Budget,
    CodeActAgent,
    FunctionAgent,
    ReActAgent,
    ToolCallResult,
)
from batonflow.agents.events import PydanticConversionWarning
from batonflow.agents.memory import ChatMemoryBuffer
from batonflow.durable.stores.memory import MemoryStore
from batonflow.llms import ChatMessage, MessageRole, ScriptedLLM, tool_call
from batonflow.llms.prompts import ChatPromptTemplate
from batonflow.tools import AsyncBaseTool, BaseToolSpec, FunctionTool
from batonflow.tools.mcp import MCPTools
from batonflow.workflow_core import Context, StopEvent, step
from batonflow.workflow_core.errors import WorkflowTimeoutError


def look() -> str:
    """Look when the water is high."""
    return "high at six"


class Echo(BaseWorkflowAgent):
    """Answers with what it was shown, after as many retries as it is told to."""

    prefix: str = "echo"
    retries: int = 0

    async def take_step(
        self, ctx: Context[Any], llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool], memory: Any
    ) -> AgentOutput:
        said = ChatMessage(f"{self.prefix}: {llm_input[-1].content}", role=MessageRole.ASSISTANT)
        tried = await ctx.store.get("tried", default=0)
        await ctx.store.set("tried", tried + 1)
        again = [ChatMessage("once more")] if tried < self.retries else []
        return AgentOutput(response=said, retry_messages=again, current_agent_name=self.name)

    async def handle_tool_call_results(self, ctx: Context[Any], results: list[ToolCallResult], memory: Any) -> None:
        """Has no tools."""

    async def finalize(self, ctx: Context[Any], output: AgentOutput, memory: Any) -> AgentOutput:
        await memory.aput(output.response)
        return output


class TestSubclasses:
    async def test_three_methods_make_an_agent(self) -> None:
        assert str(await Echo(prefix="you said").run("hello")) == "you said: hello"

    async def test_retry_messages_are_shown_to_the_model(self) -> None:
        assert str(await Echo(retries=2).run("hello")) == "echo: once more"

    async def test_a_step_of_its_own(self) -> None:
        class Polite(Echo):
            @step(replaces="setup_agent")
            async def greet(self, ev: AgentInput) -> AgentSetup:
                return AgentSetup(input=[ChatMessage("good day")], current_agent_name=ev.current_agent_name)

        assert str(await Polite().run("hello")) == "echo: good day"

    async def test_an_agent_is_a_workflow_with_its_options(self) -> None:
        agent = Echo(timeout=5, verbose=False, workflow_name="parrot")
        assert agent.workflow_name == "parrot"
        assert len({agent, Echo()}) == 2
        assert agent == agent
        assert agent != Echo(timeout=5)

    async def test_no_timeout_unless_given(self) -> None:
        class Sleeper(Echo):
            async def take_step(self, ctx: Context[Any], *args: Any) -> AgentOutput:
                await ctx.wait_for_event(StopEvent)
                raise AssertionError

        with pytest.raises(WorkflowTimeoutError):
            await Sleeper(timeout=0.01).run("hello")

    def test_an_unknown_field_is_refused(self) -> None:
        with pytest.raises(ValueError, match="temperament"):
            Echo(temperament="calm")

    def test_what_is_no_tool_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="tools takes tools and functions, got int"):
            Echo(tools=[3])
        with pytest.raises(ValidationError, match=r"got Echo; an agent or a team becomes a tool by as_tool\(\)"):
            Echo(tools=[Echo()])
        with pytest.raises(
            ValidationError, match=r"got the class Echo: make an object of it; an agent .* by as_tool\(\)"
        ):
            Echo(tools=[Echo])
        with pytest.raises(ValidationError, match="got the class FunctionTool: make an object of it"):
            Echo(tools=[FunctionTool])

    @pytest.mark.parametrize("tools", [5, "search", {"search": print}])
    def test_what_is_no_list_of_tools_is_refused(self, tools: Any) -> None:
        with pytest.raises(
            ValidationError, match=f"tools is a list of tools and functions, not {re.escape(repr(tools))}"
        ):
            Echo(tools=tools)

    def test_a_single_agent_is_no_list_of_tools(self) -> None:
        with pytest.raises(ValidationError, match=r"tools is a list: write tools=\[...\] .*by as_tool\(\)"):
            Echo(tools=Echo())

    def test_a_name_says_something(self) -> None:
        with pytest.raises(ValidationError, match=r"name identifies the agent .* cannot be empty"):
            Echo(name=" ")

    def test_a_name_that_is_given_later_says_something_too(self) -> None:
        agent = Echo(name="first")
        for wrong, said in (("", "cannot be empty"), (5, "a text, not 5"), (None, "a text, not None")):
            with pytest.raises(ValueError, match=f"name identifies the agent .*{said}"):
                agent.name = wrong  # type: ignore[assignment]
        assert agent.name == "first"
        agent.name = "second"
        assert agent.name == "second"


class TestStartEvent:
    async def test_a_start_event_may_be_given(self) -> None:
        assert str(await Echo().run(start_event=AgentWorkflowStartEvent(user_msg="hi"))) == "echo: hi"

    async def test_positional_context_and_start_event(self) -> None:
        agent = Echo()
        assert str(await agent.run(Context(agent), AgentWorkflowStartEvent(user_msg="hi"))) == "echo: hi"

    def test_messages_may_be_dicts_and_the_memory_is_not_written(self) -> None:
        event = AgentWorkflowStartEvent(
            chat_history=[{"role": "user", "blocks": []}], memory=ChatMemoryBuffer.from_defaults(), extra=1
        )
        assert isinstance(event.chat_history[0], ChatMessage)
        assert set(event.model_dump()) <= {"user_msg", "chat_history", "max_iterations", "early_stopping_method"}


class TestStructuredOutput:
    class Tide(BaseModel):
        """When the water is high."""

        hour: int
        metres: float

    async def test_the_answer_as_a_model(self) -> None:
        llm = ScriptedLLM(["At six, 5.4 metres.", tool_call("Tide", hour=6, metres=5.4)])
        output = await FunctionAgent(llm=llm, output_cls=self.Tide).run("When?")
        assert output.structured_response == {"hour": 6, "metres": 5.4}
        assert output.get_pydantic_model(self.Tide) == self.Tide(hour=6, metres=5.4)

    async def test_a_function_of_your_own(self) -> None:
        agent = FunctionAgent(llm=ScriptedLLM(["six"]), structured_output_fn=lambda messages: {"count": len(messages)})
        assert (await agent.run("When?")).structured_response == {"count": 2}

    async def test_a_function_may_return_a_model_and_nothing_else_that_is_no_dict(self) -> None:
        tide = self.Tide(hour=6, metres=5.4)
        agent = FunctionAgent(llm=ScriptedLLM(["six"]), structured_output_fn=lambda messages: tide)
        assert (await agent.run("When?")).structured_response == {"hour": 6, "metres": 5.4}
        agent = FunctionAgent(llm=ScriptedLLM(["six"]), structured_output_fn=lambda messages: "six")
        with pytest.warns(UserWarning, match="returns a dict or a pydantic object, not str"):
            output = await agent.run("When?")
        assert (str(output), output.structured_response) == ("six", None)

    async def test_answers_before_their_time_have_it_too(self) -> None:
        form = tool_call("Tide", hour=6, metres=5.4)
        llm = ScriptedLLM([tool_call("look"), "At six.", form])
        agent = FunctionAgent(llm=llm, tools=[look], output_cls=self.Tide, early_stopping_method="generate")
        output = await agent.run("When?", max_iterations=1)
        assert (str(output), output.structured_response) == ("At six.", {"hour": 6, "metres": 5.4})

        direct = FunctionTool.from_defaults(look, return_direct=True)
        agent = FunctionAgent(llm=ScriptedLLM([tool_call("look"), form]), tools=[direct], output_cls=self.Tide)
        output = await agent.run("When?")
        assert (str(output), output.structured_response) == ("high at six", {"hour": 6, "metres": 5.4})

    async def test_an_answer_outside_of_a_budget_does_not_ask_once_more_for_it(self) -> None:
        budget = Budget(max_tool_calls=1, max_tokens=2_000, on_exceeded="answer")
        llm = ScriptedLLM([tool_call("look"), tool_call("look"), "At six."])
        agent = FunctionAgent(llm=llm, tools=[look], output_cls=self.Tide, budget=budget)
        with pytest.warns(UserWarning, match="generation of the structured output"):
            output = await agent.run("When?")
        assert (str(output), output.structured_response) == ("At six.", None)

    async def test_an_answer_that_does_not_fit_is_a_warning_not_a_lost_answer(self) -> None:
        llm = ScriptedLLM(["At six.", "I would rather not."])
        with pytest.warns(UserWarning, match="There was a problem with the generation of the structured output"):
            output = await FunctionAgent(llm=llm, output_cls=self.Tide).run("When?")
        assert (str(output), output.structured_response) == ("At six.", None)

    def test_conversion_warns(self) -> None:
        output = AgentOutput(response=ChatMessage("x"), structured_response={"hour": "?"}, current_agent_name="a")
        with pytest.warns(PydanticConversionWarning):
            assert output.get_pydantic_model(self.Tide) is None
        with warnings.catch_warnings():
            assert AgentOutput(response=ChatMessage("x"), current_agent_name="a").get_pydantic_model(self.Tide) is None


def test_raw_answers_are_never_written() -> None:
    output = AgentOutput(response=ChatMessage("x"), raw=object(), current_agent_name="a")
    assert "raw" not in json.loads(output.model_dump_json())


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"max_iterations": 5}, r"has no option max_iterations: it is one of run\(max_iterations=\.\.\.\)"),
        ({"system_promt": "x"}, "has no option system_promt: is system_prompt meant?"),
        ({"colour": "red"}, "FunctionAgent has no option colour$"),
        ({"timout": None}, "has no option timout: is timeout meant?"),
        ({"stor": "runs.db"}, "has no option stor: is store meant?"),
        ({"tools": look}, r"tools is a list: write tools=\[\.\.\.\]"),
    ],
)
def test_an_option_that_an_agent_does_not_have_is_named_with_what_may_be_meant(option: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FunctionAgent(llm=ScriptedLLM(["Hello."]), **option)


@pytest.mark.parametrize(
    ("prompt", "missing"), [("Known: {state}", "{msg}"), ("{msg}", "{state}"), ("?", "{state} and {msg}")]
)
def test_a_state_prompt_that_would_not_show_everything_is_refused(prompt: str, missing: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"state_prompt must contain {missing}")):
        FunctionAgent(llm=ScriptedLLM([]), initial_state={"order": 1}, state_prompt=prompt)
    assert FunctionAgent(llm=ScriptedLLM([]), state_prompt=prompt).state_prompt.get_template() == prompt


class Says(Echo):
    """Returns something else than it should."""

    def take_step(self, *args: Any) -> Any:
        async def text() -> str:
            return "an answer"

        return text() if self.prefix == "text" else "an answer"


class Forgets(Echo):
    """Returns nothing at the end."""

    async def finalize(self, *args: Any) -> Any:
        await super().finalize(*args)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (Says(), r"Says\.take_step is not a coroutine function: write it with `async def`"),
        (Says(prefix="text"), r"Says\.take_step returned str, not an AgentOutput"),
        (Forgets(), r"Forgets\.finalize returned NoneType, not an AgentOutput"),
    ],
    ids=["no coroutine", "a text", "nothing"],
)
async def test_methods_of_one_s_own_that_return_something_else_are_named(made: Echo, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        await made.run("Go.")


@pytest.mark.parametrize("kind", [list[int], int, list[int] | str])
def test_a_structured_answer_is_an_object(kind: Any) -> None:
    form: Any = type("Numbers", (RootModel[kind],), {})
    for make in (FunctionAgent, lambda **options: AgentWorkflow(agents=[FunctionAgent(llm=None)], **options)):
        with pytest.raises(ValueError, match="output_cls Numbers is not an object in JSON"):
            make(output_cls=form)
    assert FunctionAgent(output_cls=RootModel[dict[str, int]]).output_cls is not None


async def test_a_structured_answer_with_names_of_its_own_is_made_into_the_model_again() -> None:
    class Person(BaseModel):
        full_name: str = Field(alias="fullName")

    agent = FunctionAgent(llm=ScriptedLLM(['{"fullName": "Ann"}']), output_cls=Person)
    output = await agent.run("Who?")
    assert output.structured_response == {"full_name": "Ann"}
    person = output.get_pydantic_model(Person)
    assert person is not None
    assert person.full_name == "Ann"


@pytest.mark.parametrize("extra", ["allow", "ignore"])
def test_also_where_a_dump_has_more_than_its_fields(extra: Any) -> None:
    class Two(BaseModel):
        model_config = ConfigDict(extra=extra)

        first: str = Field(alias="second")
        second: str = Field(alias="first")

        @computed_field
        def both(self) -> str:
            return self.first + self.second

    given = Two.model_validate({"second": "F", "first": "S"})
    output = AgentOutput(
        response=ChatMessage("", role="assistant"), structured_response=given.model_dump(), current_agent_name="a"
    )
    assert output.get_pydantic_model(Two) == given


@pytest.mark.parametrize("data", [{"temp": 7}, {"temperatureCelsius": 7}, {"temperatureCelsius": 7, "more": 1}])
def test_data_may_have_names_of_either_kind(data: dict[str, Any]) -> None:
    class Weather(BaseModel):
        temp: int | None = Field(default=None, alias="temperatureCelsius")

    output = AgentOutput(response=ChatMessage("", role="assistant"), structured_response=data, current_agent_name="a")
    weather = output.get_pydantic_model(Weather)
    assert weather is not None
    assert weather.temp == 7


def test_names_of_fields_come_before_names_of_its_own() -> None:
    class Crossed(BaseModel):
        id: int = Field(alias="name")
        name: int = Field(alias="title")

    output = AgentOutput(
        response=ChatMessage("", role="assistant"), structured_response={"id": 1, "name": 2}, current_agent_name="a"
    )
    crossed = output.get_pydantic_model(Crossed)
    assert crossed is not None
    assert (crossed.id, crossed.name) == (1, 2)
    output.structured_response = {"name": 1, "title": 2}
    crossed = output.get_pydantic_model(Crossed)
    assert crossed is not None
    assert (crossed.id, crossed.name) == (1, 2)


async def test_a_message_of_data_may_be_its_content_alone() -> None:
    agent = FunctionAgent(llm=ScriptedLLM(["Hello."]))
    await agent.run({"content": "Hi."})  # type: ignore[arg-type]
    assert isinstance(agent.llm, ScriptedLLM)
    assert agent.llm.requests[0].messages[0].content == "Hi."


async def test_a_message_of_data_says_something() -> None:
    with pytest.raises(ValueError, match="user_msg is not a ChatMessage but"):
        await FunctionAgent(llm=ScriptedLLM(["No."])).run({"a": 1})  # type: ignore[arg-type]


async def test_an_agent_may_cut_its_answer_out_of_what_was_said() -> None:
    class Short(FunctionAgent):
        async def finalize(self, ctx: Any, output: AgentOutput, memory: Any) -> AgentOutput:
            output = await super().finalize(ctx, output, memory)
            output.response.content = (output.response.content or "").rpartition("Answer: ")[2]
            return output

    handler = Short(llm=ScriptedLLM(["Thought: easy\nAnswer: 3"])).run("1 + 2?")
    said = [str(event) async for event in handler.stream_events() if isinstance(event, AgentOutput)]
    assert (str(await handler), said) == ("3", ["Thought: easy\nAnswer: 3"])


class TestDumps:
    @pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent, CodeActAgent])
    async def test_an_agent_is_made_again_with_another_model(self, kind: Any) -> None:
        first = kind(llm=ScriptedLLM(["one"]), tools=[look], state_prompt="{state} of {place}: {msg}", name="again")
        first.state_prompt = first.state_prompt.partial_format(place="Brest")
        second = kind(**first.model_dump(exclude={"llm"}), llm=ScriptedLLM(["two"]))
        assert second.name == "again"
        assert [tool.metadata.name for tool in second.tools] == [tool.metadata.name for tool in first.tools]
        assert second.state_prompt.format(state="s", msg="m") == "s of Brest: m"
        assert str(await second.run("Hello?")) == "two"

    def test_a_prompt_of_messages_stays_one(self) -> None:
        prompt = ChatPromptTemplate.from_messages([("user", "{state}: {msg}")])
        first = FunctionAgent(llm=ScriptedLLM(["one"]), state_prompt=prompt)
        second = FunctionAgent(**first.model_dump(exclude={"llm"}))
        assert second.state_prompt.get_template() == prompt.get_template()


def test_what_a_start_was_not_given_is_none() -> None:
    event = AgentWorkflowStartEvent(user_msg="hello")
    assert event.early_stopping_method is None
    assert (event.max_iterations, event.chat_history, event.memory) == (None, None, None)
    assert AgentWorkflowStartEvent(early_stopping_method="generate").early_stopping_method == "generate"
    assert event.get("early_stopping_method", "force") == "force"
    assert event.model_dump() == {"user_msg": "hello"}
    with pytest.raises(AttributeError):
        _ = event.anything_else


def test_what_makes_tools_says_how_it_is_given() -> None:
    class Spec(BaseToolSpec):
        spec_functions = ("look",)

    mcp = MCPTools("uvx mcp-server-time")
    with pytest.raises(ValueError, match=r"tools is a list .*; write tools=\[tools\], where tools is the MCPTools"):
        FunctionAgent(llm=ScriptedLLM(), tools=mcp)
    with pytest.raises(ValueError, match="got the class MCPTools: make an object of it"):
        FunctionAgent(llm=ScriptedLLM(), tools=[MCPTools])
    with pytest.raises(ValueError, match=r"got Spec; write tools=spec\.to_tool_list\(\), where spec is the Spec"):
        FunctionAgent(llm=ScriptedLLM(), tools=[Spec()])


class TestSharedNames:
    def agent(self, name: str, store: Any, **options: Any) -> FunctionAgent:
        return FunctionAgent(name=name, llm=ScriptedLLM([]), store=store, **options)

    def test_agents_that_would_take_up_each_others_runs_are_named(self) -> None:
        store = MemoryStore()
        self.agent("rocket", store)
        with pytest.warns(UserWarning, match="rocket and cook share a store and the workflow name .*FunctionAgent"):
            self.agent("cook", store)
        team = AgentWorkflow([FunctionAgent(name="a", description="A.", llm=ScriptedLLM([]))], store=store)
        assert team.workflow_name.endswith("AgentWorkflow")
        with pytest.warns(UserWarning, match="Team of a and Team of b share a store"):
            AgentWorkflow([FunctionAgent(name="b", description="B.", llm=ScriptedLLM([]))], store=store)

    def test_names_of_their_own_stores_of_their_own_and_the_same_agent_again_are_fine(self) -> None:
        store = MemoryStore()
        for name in ("rocket", "cook"):
            self.agent(name, store, workflow_name=name)
            self.agent(name, MemoryStore())
            self.agent(name, None)
        for _ in range(2):
            self.agent("clerk", store)
