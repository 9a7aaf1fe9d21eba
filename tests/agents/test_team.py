"""AgentWorkflow: who may hand over to whom, what each sees, and who goes on."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel

from batonflow.agents import AgentOutput, AgentWorkflow, CodeActAgent, FunctionAgent, ReActAgent, ToolCallResult
from batonflow.agents.prompts import STATE_PROMPT
from batonflow.llms import ChatMessage, MockLLM, ScriptedLLM, tool_call
from batonflow.llms.prompts import PromptTemplate
from batonflow.tools import ToolOutput, tool
from batonflow.workflow_core import Context, WorkflowRuntimeError


async def note(ctx: Context, text: str) -> str:
    """Keep a note."""
    async with ctx.store.edit_state() as state:
        state["state"]["notes"] = [*state["state"].get("notes", []), text]
    return f"noted {text}"


def handoff(to: str, reason: str = "it knows better") -> Any:
    return tool_call("handoff", to_agent=to, reason=reason)


def agent(name: str, *turns: Any, **options: Any) -> FunctionAgent:
    options.setdefault("tools", [note])
    return FunctionAgent(name=name, description=f"The {name}.", llm=ScriptedLLM(turns), **options)


def requests(member: FunctionAgent) -> list[Any]:
    llm = member.llm
    assert isinstance(llm, ScriptedLLM)
    return llm.requests


async def results_of(handler: Any) -> list[ToolCallResult]:
    return [event async for event in handler.stream_events() if isinstance(event, ToolCallResult)]


class TestHandoff:
    async def test_the_next_agent_goes_on_with_the_whole_conversation(self) -> None:
        first = agent("first", tool_call("note", text="tides"), handoff("second"))
        second = agent("second", "Twice a day.")
        output = await AgentWorkflow(agents=[first, second], root_agent="first").run("How often?")
        assert (str(output), output.current_agent_name) == ("Twice a day.", "second")
        (seen,) = requests(second)
        said = [(message.role.value, message.content) for message in seen.messages]
        assert said[0] == ("user", STATE_PROMPT.format(state={"notes": ["tides"]}, msg="How often?"))
        assert ("tool", "noted tides") in said
        assert said[-1][0] == "tool"
        assert "second is in charge" in (said[-1][1] or "")

    async def test_a_handoff_is_a_tool_that_names_those_one_may_hand_over_to(self) -> None:
        first = agent("first", "Done.", can_handoff_to=["second"])
        team = AgentWorkflow(agents=[first, agent("second"), agent("third")], root_agent="first")
        await team.run("Go.")
        (request,) = requests(first)
        shown = next(tool for tool in request.tools if tool.name == "handoff")
        assert "The second." in shown.description
        assert "third" not in shown.description
        assert set(shown.parameters["properties"]) == {"to_agent", "reason"}

    @pytest.mark.parametrize(("allowed", "there"), [(None, True), (["second"], True), ([], False)])
    async def test_nobody_to_hand_over_to_means_no_such_tool(self, allowed: Any, there: bool) -> None:
        first = agent("first", "Done.", can_handoff_to=allowed)
        await AgentWorkflow(agents=[first, agent("second")], root_agent="first").run("Go.")
        assert ("handoff" in [tool.name for tool in requests(first)[0].tools]) is there

    @pytest.mark.parametrize(
        ("to", "words"), [("nobody", "Agent nobody not found"), ("third", "Agent first may not hand over to third")]
    )
    async def test_a_handoff_that_cannot_be_is_refused_in_words_and_the_agent_goes_on(
        self, to: str, words: str
    ) -> None:
        first = agent("first", handoff(to), "Then I do it.", can_handoff_to=["second"])
        team = AgentWorkflow(agents=[first, agent("second"), agent("third")], root_agent="first")
        handler = team.run("Go.")
        (result,) = await results_of(handler)
        assert words in result.tool_output.content
        assert "Valid agents: second" in result.tool_output.content
        output = await handler
        assert (str(output), output.current_agent_name) == ("Then I do it.", "first")
        assert [message.role.value for message in requests(first)[1].messages] == ["user", "assistant", "tool"]

    async def test_of_several_in_one_turn_the_first_permitted_one_is_made(self) -> None:
        first = agent("first", [handoff("nobody"), handoff("third"), handoff("second")])
        second, third = agent("second"), agent("third", "Here.")
        handler = AgentWorkflow(agents=[first, second, third], root_agent="first").run("Go.")
        results = sorted(await results_of(handler), key=lambda one: one.tool_kwargs["to_agent"])
        assert [one.tool_output.is_error for one in results] == [True, True, False]
        assert (await handler).current_agent_name == "third"
        told = [message for message in requests(third)[0].messages if message.role.value == "tool"]
        assert len(told) == 3

    async def test_what_was_called_beside_it_is_not_lost(self) -> None:
        first = agent("first", [tool_call("note", text="a"), handoff("second"), tool_call("note", text="b")])
        second = agent("second", "Here.")
        await AgentWorkflow(agents=[first, second], root_agent="first", initial_state={"notes": []}).run("Go.")
        told = [message.content for message in requests(second)[0].messages if message.role.value == "tool"]
        assert [told[0], told[2]] == ["noted a", "noted b"]

    async def test_a_team_may_say_what_its_agents_can_call(self) -> None:
        class Guarded(AgentWorkflow):
            async def get_tools(self, agent_name: str, input_str: str | None = None) -> Any:
                return [one for one in await super().get_tools(agent_name, input_str) if one.metadata.name != "note"]

        first = agent("first", tool_call("note", text="a"), "Done.")
        handler = Guarded(agents=[first, agent("second")], root_agent="first").run("Go.")
        (result,) = await results_of(handler)
        assert "note not found" in result.tool_output.content
        await handler
        assert [tool.name for tool in requests(first)[0].tools] == ["handoff"]
        llm = ScriptedLLM(["<execute>\nawait note('a')\n</execute>", "Done."])
        coder = CodeActAgent(name="coder", description="Codes.", llm=llm, tools=[note])
        (result,) = await results_of(Guarded(agents=[coder]).run("Go."))
        assert "Name `note` used when not defined" in result.tool_output.content

    async def test_a_coder_behind_a_member_has_its_own_tools(self) -> None:
        llm = ScriptedLLM(["<execute>\nawait note('a')\n</execute>", "Done."])
        inner = CodeActAgent(name="inner", llm=llm, tools=[note])

        class Behind(FunctionAgent):
            async def get_tools(self, input_str: str | None = None) -> Any:
                return await inner.get_tools(input_str)

            async def take_step(self, *arguments: Any) -> Any:
                return await inner.take_step(*arguments)

            async def handle_tool_call_results(self, *arguments: Any) -> None:
                await inner.handle_tool_call_results(*arguments)

            async def finalize(self, *arguments: Any) -> Any:
                return await inner.finalize(*arguments)

        outer = Behind(name="outer", description="Codes.", llm=llm)
        results = await results_of(AgentWorkflow(agents=[outer], initial_state={"notes": []}).run("Go."))
        assert [one.tool_output.content for one in results if one.tool_name == "note"] == ["noted a"]

    async def test_there_and_back_again(self) -> None:
        first = agent("first", handoff("second"), "Done.")
        second = agent("second", handoff("first"))
        output = await AgentWorkflow(agents=[first, second], root_agent="first").run("Go.")
        assert output.current_agent_name == "first"
        assert [call.tool_name for call in output.tool_calls] == ["handoff", "handoff"]

    async def test_a_cycle_is_bounded(self) -> None:
        first, second = agent("first", *[handoff("second")] * 9), agent("second", *[handoff("first")] * 9)
        with pytest.raises(WorkflowRuntimeError, match="Max iterations of 6 reached"):
            await AgentWorkflow(agents=[first, second], root_agent="first").run("Go.", max_iterations=6)

    async def test_and_so_is_their_number_when_asked(self) -> None:
        first, second = agent("first", handoff("second"), "Never."), agent("second", handoff("first"), "I do it.")
        team = AgentWorkflow(agents=[first, second], root_agent="first", max_handoffs=1)
        output = await team.run("Go.")
        assert (str(output), output.current_agent_name) == ("I do it.", "second")


class TestWhatIsShared:
    async def test_state_and_usage(self) -> None:
        first = agent("first", tool_call("note", text="a"), handoff("second"))
        second = agent("second", tool_call("note", text="b"), "Done.")
        team = AgentWorkflow(agents=[first, second], root_agent="first", initial_state={"notes": []})
        handler = team.run("Go.")
        output = await handler
        assert (await handler.ctx.store.get("state"))["notes"] == ["a", "b"]
        assert team.initial_state == {"notes": []}
        assert set(output.usage_by_agent) == {"first", "second"}
        assert output.usage.total_tokens == sum(one.total_tokens for one in output.usage_by_agent.values())

    async def test_the_next_run_begins_where_the_last_one_ended(self) -> None:
        first, second = agent("first", handoff("second")), agent("second", "One.", "Two.")
        team = AgentWorkflow(agents=[first, second], root_agent="first")
        ctx: Context[Any] = Context(team)
        await team.run("Go.", ctx=ctx)
        restored = Context.from_dict(team, ctx.to_dict())
        output = await team.run("Go on.", ctx=restored)
        assert (str(output), output.current_agent_name) == ("Two.", "second")
        assert [message.content for message in requests(second)[1].messages][-1] == "Go on."

    async def test_what_users_read_from_the_store(self) -> None:
        first = agent("first", "Done.", can_handoff_to=["second"])
        team = AgentWorkflow(agents=[first, agent("second")], root_agent="first")
        handler = team.run("Go.")
        await handler
        assert await handler.ctx.store.get("agents") == ["first", "second"]
        assert await handler.ctx.store.get("can_handoff_to") == {"first": ["second"], "second": None}
        assert await handler.ctx.store.get("current_agent_name") == "first"

    async def test_agents_of_several_kinds(self) -> None:
        first = ReActAgent(
            name="first",
            description="The first.",
            llm=ScriptedLLM(
                ['Thought: Not mine.\nAction: handoff\nAction Input: {"to_agent": "second", "reason": "not mine"}']
            ),
        )
        second = agent("second", "Mine.")
        output = await AgentWorkflow(agents=[first, second], root_agent="first").run("Whose?")
        assert str(output) == "Mine."
        assert any("Not mine." in (message.content or "") for message in requests(second)[0].messages)


class Tide(BaseModel):
    """A tide."""

    metres: float


class TestStructuredOutput:
    async def test_that_of_the_team_wins(self) -> None:
        member = agent("one", "4.8 metres.", tool_call("Tide", metres=4.8), output_cls=BaseModel)
        output = await AgentWorkflow(agents=[member], output_cls=Tide).run("How high?")
        assert output.get_pydantic_model(Tide) == Tide(metres=4.8)

    async def test_else_that_of_the_agent_that_answered(self) -> None:
        first = agent("first", handoff("second"))
        second = agent("second", "4.8 metres.", tool_call("Tide", metres=4.8), output_cls=Tide)
        output = await AgentWorkflow(agents=[first, second], root_agent="first").run("How high?")
        assert output.structured_response == {"metres": 4.8}


class TestOfOne:
    async def test_one_agent_needs_no_root_and_no_handoff(self) -> None:
        member = agent("one", "Done.")
        assert str(await AgentWorkflow(agents=[member]).run("Go.")) == "Done."
        assert [tool.name for tool in requests(member)[0].tools] == ["note"]

    @pytest.mark.parametrize(("llm", "kind"), [(ScriptedLLM([]), FunctionAgent), (MockLLM(), ReActAgent)])
    def test_made_from_tools_it_is_of_the_kind_that_its_model_can_be(self, llm: Any, kind: type) -> None:
        team = AgentWorkflow.from_tools_or_functions([note], llm=llm, system_prompt="Be brief.")
        (member,) = team.agents.values()
        assert (type(member), member.name) == (kind, "Agent")

    async def test_a_name_is_enough_for_a_model(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        team = AgentWorkflow.from_tools_or_functions([note], llm="openai:gpt-test")
        assert team.agents["Agent"].the_llm().metadata.model_name == "gpt-test"


class TestMistakes:
    def test_handing_over_to_somebody_who_is_not_there(self) -> None:
        members = [agent("one", can_handoff_to=["two", "tow"]), agent("two")]
        with pytest.warns(UserWarning, match="Agent one may hand over to tow, but the team .* There are: one, two"):
            AgentWorkflow(agents=members, root_agent="one")

    @pytest.mark.parametrize(
        ("agents", "options", "words"),
        [
            ([], {}, "At least one agent"),
            ([agent("a"), agent("b")], {}, "Exactly one root agent must be provided"),
            ([agent("a"), agent("b")], {"root_agent": "c"}, "Root agent c not found"),
            ([agent("a"), agent("a")], {"root_agent": "a"}, "Two agents are named 'a'"),
            ([agent("a"), FunctionAgent(description="b")], {"root_agent": "a"}, "must have a name"),
            ([agent("a"), FunctionAgent(name="b")], {"root_agent": "a"}, "must have a description"),
            ([agent("a", initial_state={"x": 1})], {}, "has an initial_state"),
            ([agent("a")], {"handoff_prompt": "go"}, "handoff_prompt must contain {agent_info}"),
            ([agent("a")], {"handoff_output_prompt": "{reason}"}, "must contain {to_agent}"),
            ([agent("a")], {"state_prompt": "{state}"}, "state_prompt must contain {msg}"),
            ("researcher", {}, "agents is a list of agents and teams, not str"),
            (5, {}, "agents is a list of agents and teams, not int"),
            (agent("a"), {}, "agents is a list of agents and teams, not"),
            ({"a": agent("a")}, {}, "agents is a list of agents and teams, not"),
            ([agent("a"), "b"], {"root_agent": "a"}, "is neither an agent nor a team: 'b'"),
            ([agent("a")], {"name": 5}, "name is a text that says something, not 5"),
            ([agent("a")], {"description": ""}, "description is a text that says something, not ''"),
            ([agent("a")], {"max_handoffs": -1}, "max_handoffs is a whole number from 0 on, or None for no limit, not"),
            ([agent("a")], {"max_handoffs": True}, "not True"),
        ],
    )
    def test_are_told_when_the_team_is_made(self, agents: Any, options: Any, words: str) -> None:
        with pytest.raises(ValueError, match=words.replace("{", r"\{").replace("}", r"\}")):
            AgentWorkflow(agents=agents, **options)


def test_prompts_can_be_exchanged_also_those_of_the_members() -> None:
    team = AgentWorkflow(agents=[ReActAgent(name="thinker", llm=MockLLM())])
    names = {"handoff_prompt", "handoff_output_prompt", "state_prompt", "thinker:react_header"}
    assert names <= set(team.get_prompts())
    header = PromptTemplate("{tool_desc} {tool_names}")
    team.update_prompts({"state_prompt": "{state} {msg}", "thinker:react_header": header})
    assert team.state_prompt.get_template() == "{state} {msg}"


async def test_the_result_is_the_last_output() -> None:
    output = await AgentWorkflow(agents=[agent("one", "Done.")]).run(ChatMessage("Go."))
    assert isinstance(output, AgentOutput)


@tool(requires_approval=True)
async def publish(title: str) -> str:
    """Publish."""
    PUBLISHED.append(title)
    return f"published {title}"


PUBLISHED: list[str] = []


class TestTeamsInTeams:
    @pytest.fixture(autouse=True)
    def _nothing_published(self) -> None:
        PUBLISHED.clear()

    def two_levels(self, *turns: Any) -> tuple[AgentWorkflow, dict[str, FunctionAgent]]:
        """A team in a team in a team: chief -> (press: desk -> (print: setter))."""
        members = {
            "setter": agent("setter", *turns, tools=[publish, note]),
            "desk": agent("desk", handoff("print")),
            "chief": agent("chief", handoff("press")),
        }
        inner = AgentWorkflow(agents=[members["setter"]], name="print", description="Prints.")
        middle = AgentWorkflow(
            agents=[members["desk"], inner], root_agent="desk", name="press", description="Publishes."
        )
        return AgentWorkflow(agents=[members["chief"], middle], root_agent="chief"), members

    async def test_a_team_that_is_handed_the_task_answers_for_it(self) -> None:
        outer, members = self.two_levels(tool_call("publish", title="a"), "It is out.")
        handler = outer.run("Publish it.")
        async for request in handler.approvals():
            assert (request.agent, request.arguments) == ("setter", {"title": "a"})
            request.approve()
        output = await handler
        assert (str(output), output.current_agent_name) == ("It is out.", "press")
        assert set(output.usage_by_agent) == {"chief", "desk", "setter"}
        assert PUBLISHED == ["a"]
        assert requests(members["setter"])[0].messages[0].content == "Publish it."

    async def test_two_levels_deep_an_interruption_loses_nothing(self) -> None:
        outer, members = self.two_levels(
            [tool_call("publish", title="a"), tool_call("publish", title="b")], "Both are out."
        )
        handler = outer.run("Publish both.")
        asking = handler.approvals()
        (await anext(asking)).approve()
        second = await anext(asking)
        for _ in range(200):  # until the approved one is done
            await asyncio.sleep(0)
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        await asking.aclose()
        await handler.cancel_run()
        handler = outer.run(ctx=Context.from_dict(outer, saved))
        async for request in handler.approvals():
            assert (request.id, request.digest) == (second.id, second.digest)
            request.deny("enough")
        output = await handler
        assert str(output) == "Both are out."
        assert len(PUBLISHED) == 1
        assert [len(requests(member)) for member in members.values()] == [2, 1, 1]
        assert output.usage is not None
        told = [one.content for one in requests(members["setter"])[1].messages if one.role == "tool"]
        assert sum("published" in (one or "") for one in told) == 1
        assert sum("denied it: enough" in (one or "") for one in told) == 1

    async def test_the_answer_is_in_the_memory_of_the_outer_team(self) -> None:
        inner = AgentWorkflow(agents=[agent("in", "Twice a day.", "As I said.")], name="inner", description="Knows.")
        outer = AgentWorkflow(agents=[inner])
        ctx: Context[Any] = Context(outer)
        await outer.run("How often?", ctx=ctx)
        output = await outer.run("Sure?", ctx=ctx)
        assert str(output) == "As I said."
        kept = await (await ctx.store.get("memory")).aget_all()
        assert [one.content for one in kept] == ["How often?", "Twice a day.", "Sure?", "As I said."]

    async def test_what_the_members_of_an_inner_team_do_is_in_the_stream(self) -> None:
        outer, _ = self.two_levels(tool_call("note", text="x"), "Done.")
        handler = outer.run("Go.", ctx=None)
        names = [result.tool_name for result in await results_of(handler)]
        assert names == ["handoff", "handoff", "note"]

    async def test_cancelling_the_outer_team_cancels_the_inner_ones(self) -> None:
        begun, over = asyncio.Event(), asyncio.Event()

        async def forever(_: Any) -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                over.set()
            return "never"

        outer, _ = self.two_levels(forever)
        handler = outer.run("Go.")
        await begun.wait()
        await handler.cancel_run()
        await asyncio.wait_for(over.wait(), 30)

    async def test_an_inner_team_that_fails_fails_the_run(self) -> None:
        outer, _ = self.two_levels(OSError("no paper"))
        with pytest.raises(OSError, match="no paper"):
            await outer.run("Go.")

    def test_a_name_of_its_own_is_needed_here_too(self) -> None:
        inner = AgentWorkflow(agents=[agent("in")])
        with pytest.raises(ValueError, match="Two agents are named 'Team'"):
            AgentWorkflow(agents=[inner, AgentWorkflow(agents=[agent("in")])], root_agent="Team")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"initial_state": ["a"]}, "initial_state is a dict, not"),
        ({"output_cls": dict}, "output_cls is a class of pydantic models, not"),
        ({"structured_output_fn": "json"}, "structured_output_fn is a function that is given the messages, not 'json'"),
    ],
)
def test_what_a_team_cannot_begin_with_is_refused_at_once(option: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AgentWorkflow(agents=[agent("one", "Hi.")], **option)


def test_an_option_that_a_team_does_not_have_is_named_with_what_may_be_meant() -> None:
    with pytest.raises(TypeError, match=r"AgentWorkflow has no option handoff_carry: is handoff_carries meant?"):
        AgentWorkflow(agents=[agent("one", "Hi.")], handoff_carry="own")
    with pytest.raises(TypeError, match=r"AgentWorkflow has no option max_iterations: it is one of run"):
        AgentWorkflow(agents=[agent("one", "Hi.")], max_iterations=3)


class Logged(AgentWorkflow):
    async def _call_tool(self, ctx: Context[Any], tool: Any, tool_input: dict[str, Any]) -> ToolOutput:
        return await super()._call_tool(ctx, tool, tool_input)


class TestGuardsAroundItsTools:
    """Programs of LlamaIndex replace ``_call_tool`` of a team, or ask it in a step of their own."""

    @staticmethod
    def of(kind: type[AgentWorkflow]) -> AgentWorkflow:
        first = agent("first", tool_call("note", text="tides"), handoff("second"))
        return kind(agents=[first, agent("second", tool_call("note", text="moon"), "Done.")], root_agent="first")

    async def test_one_of_a_subclass_is_asked_for_every_call(self) -> None:
        asked: list[str] = []

        class Guarded(AgentWorkflow):
            async def _call_tool(self, ctx: Context[Any], tool: Any, tool_input: dict[str, Any]) -> ToolOutput:
                asked.append(tool.metadata.name)
                if tool_input == {"text": "moon"}:
                    return ToolOutput(content="refused", tool_name="note", raw_input={}, raw_output=None, is_error=True)
                return await super()._call_tool(ctx, tool, tool_input)

        output = await self.of(Guarded).run("Go.")
        assert asked == ["note", "handoff", "note"]
        assert [call.tool_output.content for call in output.tool_calls][::2] == ["noted tides", "refused"]

    async def test_one_put_in_its_place_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []
        usual: Any = AgentWorkflow._call_tool  # pyright: ignore[reportPrivateUsage]

        async def guarded(self: Any, ctx: Context[Any], tool: Any, tool_input: dict[str, Any]) -> Any:
            asked.append(tool.metadata.name)
            return await usual(self, ctx, tool, tool_input)

        monkeypatch.setattr(AgentWorkflow, "_call_tool", guarded)
        assert str(await self.of(AgentWorkflow).run("Go.")) == "Done."
        assert asked == ["note", "handoff", "note"]

    async def test_it_is_asked_for_what_code_calls(self) -> None:
        asked: list[str] = []

        class Guarded(AgentWorkflow):
            async def _call_tool(self, ctx: Context[Any], tool: Any, tool_input: dict[str, Any]) -> ToolOutput:
                asked.append(tool.metadata.name)
                return await super()._call_tool(ctx, tool, tool_input)

        llm = ScriptedLLM(["<execute>\nprint(await note(text='tides'))\n</execute>", "Done."])
        coder = CodeActAgent(name="coder", description="Codes.", llm=llm, tools=[note])
        output = await Guarded(agents=[coder], root_agent="coder").run("Go.")
        assert asked == ["execute", "note"]
        assert "noted tides" in output.tool_calls[0].tool_output.content

    @pytest.mark.parametrize("kind", [AgentWorkflow, Logged])
    async def test_the_members_own_is_asked_behind_it(self, kind: type[AgentWorkflow]) -> None:
        class Own(FunctionAgent):
            async def _call_tool(self, ctx: Context[Any], tool: Any, tool_input: dict[str, Any]) -> ToolOutput:
                return ToolOutput(content="own", tool_name=tool.metadata.name, raw_input={}, raw_output="own")

        llm = ScriptedLLM([tool_call("note", text="a"), "Done."])
        member = Own(name="own", description="Own.", llm=llm, tools=[note])
        output = await kind(agents=[member], root_agent="own").run("Go.")
        assert output.tool_calls[0].tool_output.content == "own"


async def test_a_team_may_have_a_handoff_tool_of_its_own() -> None:
    class Alone(AgentWorkflow):
        def _get_handoff_tool(self, current_agent: Any) -> Any:
            return None if current_agent.name == "first" else super()._get_handoff_tool(current_agent)

    first, second = agent("first", handoff("second"), "Done."), agent("second", "No.")
    output = await Alone(agents=[first, second], root_agent="first").run("Go.")
    assert (str(output), output.current_agent_name) == ("Done.", "first")
