"""Handoffs: what goes along with the task, and handoffs that were only said."""

import json
from typing import Any

import pytest

from batonflow.agents import AgentWorkflow, FunctionAgent, ReActAgent, ToolCallResult
from batonflow.agents.handoff import HandoffArguments, HandoffMetadata, meant
from batonflow.llms import ChatMessage, ScriptedLLM, tool_call
from batonflow.tools import ToolMetadata, tool
from batonflow.workflow_core import Context

NAMES = ["writer", "fact checker", "code_reviewer", "Ann", "web"]

HANDED_OVER = [
    ("I will hand this over to the writer.", "writer"),
    ("I'll hand off to writer now.", "writer"),
    ("I'm handing this over to the writer agent.", "writer"),
    ("Let me transfer you to the fact checker.", "fact checker"),
    ("Handing off to **writer**.", "writer"),
    ("Transferring to `code_reviewer`…", "code_reviewer"),
    ("I'll pass this on to the code_reviewer.", "code_reviewer"),
    ("I am passing the task to the code reviewer.", "code_reviewer"),
    ("The facts are in. Handing over to the fact_checker!", "fact checker"),
    ("I'll delegate this to Ann.", "Ann"),
    ("I will now forward the draft to our writer, who can finish it.", "writer"),
    ("We should let Ann decide. I'll connect you with Ann.", "Ann"),
    ("I have found the facts.\n\nPassing it to the writer.", "writer"),
    ("Routing your question to *Ann*.", "Ann"),
    ("I'm redirecting this request to the agent `fact checker`.", "fact checker"),
    ('I hand over to "writer".', "writer"),
    ("Now I am going to hand the conversation over to the Writer.", "writer"),
    ("→ Handing over to writer", "writer"),
    ("- I'll hand this to writer", "writer"),
    ("Let's hand this off to the fact checker for a second look.", "fact checker"),
    ("Okay! I'm transferring the task to agent Ann.", "Ann"),
    ("I have handed the task over to the writer.", "writer"),
    ("It's time to hand over. I'll pass it to [writer].", "writer"),
]

NOT_HANDED_OVER = [
    "The tide comes twice a day.",
    "I will write to Ann tomorrow.",
    "I could hand this over to the writer, but I will do it myself.",
    "I will not hand this over to the writer.",
    "I won't transfer you to Ann.",
    "There is no need for me to pass this on to the writer.",
    "I cannot delegate this to Ann.",
    "Should I hand this over to the writer?",
    "Do you want me to transfer you to Ann?",
    "Shall we pass this to the fact checker?",
    "If you like, I can hand this over to the writer.",
    "I will hand it over to you.",
    "I'll hand the parcel to the postman.",
    "The writer handed the text to Ann.",
    "She is passing the ball to Ann.",
    "I will forward it to the webmaster.",
    "I read that merchants would route goods to Ann Arbor.",
    "The letter was forwarded to the writer.",
    "I would hand over to the writer if I had the facts.",
    "Never pass this on to Ann.",
    "I'll connect the cable to the web of wires and explain it.",
    "Rain is passing to the west.",
    "I did it without handing over to the writer.",
    "Before I hand over to the writer, what is the topic?",
    "The writer is the one who knows.",
    "",
]


class TestSaid:
    @pytest.mark.parametrize(("text", "name"), HANDED_OVER)
    def test_to_hand_over(self, text: str, name: str) -> None:
        assert meant(text, NAMES) == name

    @pytest.mark.parametrize("text", NOT_HANDED_OVER)
    def test_something_else(self, text: str) -> None:
        assert meant(text, NAMES) is None

    def test_a_name_inside_another_is_not_it(self) -> None:
        assert meant("I'll hand over to the web_searcher.", ["web", "web_searcher"]) == "web_searcher"
        assert meant("I'll hand over to the web searcher.", ["web", "web searcher"]) == "web searcher"

    def test_a_long_text_takes_no_time(self) -> None:
        assert meant("I will think about it and pass by " * 5_000, NAMES) is None


@tool
def note(text: str) -> str:
    """Keep a note."""
    return f"noted {text}"


@tool(requires_approval=True)
def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


def agent(name: str, *turns: Any, **options: Any) -> FunctionAgent:
    options.setdefault("tools", [note, publish])
    return FunctionAgent(name=name, description=f"The {name}.", llm=ScriptedLLM(turns), **options)


def handoff(to: str, reason: str = "it knows better") -> Any:
    return tool_call("handoff", to_agent=to, reason=reason)


def shown(member: Any, number: int = -1) -> list[str]:
    """What the texts of a request were."""
    return [message.content or "" for message in member.llm.requests[number].messages]


class TestOnlySaid:
    async def test_a_tool_that_the_first_answer_must_call_is_not_asked_for_again(self) -> None:
        turns = [tool_call("note", text="tides"), "I'll hand this over to second.", handoff("second")]
        first = agent("first", *turns, initial_tool_choice="note")
        await AgentWorkflow(agents=[first, agent("second", "Here.")], root_agent="first").run("Go.")
        llm: Any = first.llm
        assert [request.tool_choice for request in llm.requests] == ["note", None, None]

    async def test_the_agent_is_told_and_hands_over(self) -> None:
        first = agent("first", "I'll hand this over to second.", handoff("second"))
        second = agent("second", "Here.")
        output = await AgentWorkflow(agents=[first, second], root_agent="first").run("Go.")
        assert (str(output), output.current_agent_name) == ("Here.", "second")
        assert "you did not call the tool handoff, so nothing has happened" in shown(first)[-1]

    async def test_or_answers_which_counts(self) -> None:
        first = agent("first", "I'll hand this over to second.", "I'll hand this over to second. Or not.")
        output = await AgentWorkflow(agents=[first, agent("second")], root_agent="first").run("Go.")
        assert (str(output), output.current_agent_name) == ("I'll hand this over to second. Or not.", "first")

    async def test_nobody_is_told_who_may_not_hand_over_there(self) -> None:
        first = agent("first", "I'll hand this over to third.", can_handoff_to=["second"])
        team = AgentWorkflow(agents=[first, agent("second"), agent("third")], root_agent="first")
        assert str(await team.run("Go.")) == "I'll hand this over to third."

    async def test_at_the_last_allowed_step_it_is_the_answer(self) -> None:
        first = agent("first", "I'll hand this over to second.")
        team = AgentWorkflow(agents=[first, agent("second")], root_agent="first")
        assert str(await team.run("Go.", max_iterations=1)) == "I'll hand this over to second."

    async def test_reasoning_in_text(self) -> None:
        turns = [
            "Thought: Not mine.\nAnswer: I'll hand this over to second.",
            'Thought: Right.\nAction: handoff\nAction Input: {"to_agent": "second", "reason": "not mine"}',
        ]
        first = ReActAgent(name="first", description="First.", llm=ScriptedLLM(turns))
        output = await AgentWorkflow(agents=[first, agent("second", "Here.")], root_agent="first").run("Go.")
        assert str(output) == "Here."


def team_of(carries: Any, first: list[Any], second: list[Any]) -> AgentWorkflow:
    members = [agent("first", *first), agent("second", *second)]
    return AgentWorkflow(agents=members, root_agent="first", handoff_carries=carries)


class TestWhatIsCarried:
    async def test_everything(self) -> None:
        team = team_of("full", [tool_call("note", text="tides"), handoff("second")], ["Done."])
        await team.run("Go.")
        assert "noted tides" in shown(team.agents["second"])

    async def test_only_the_task_and_the_reason(self) -> None:
        team = team_of("own", [tool_call("note", text="tides"), handoff("second", "you write")], ["Done."])
        assert str(await team.run("Write about tides.")) == "Done."
        (task,) = shown(team.agents["second"])
        assert task.startswith("Write about tides.")
        assert "first has handed this task over to you, for this reason: you write" in task
        assert "noted" not in task

    async def test_a_summary_with_it(self) -> None:
        turns = [tool_call("note", text="tides"), handoff("second"), "A note about tides was kept."]
        team = team_of("summary", turns, ["Done."])
        output = await team.run("Write about tides.")
        (task,) = shown(team.agents["second"])
        assert task.endswith("[What was done so far:]\nA note about tides was kept.")
        assert "noted tides" in shown(team.agents["first"])
        assert output.usage_by_agent["first"].output_tokens > 9

    async def test_there_and_back_each_knows_what_it_said_itself(self) -> None:
        team = team_of(
            "own", [handoff("second", "look"), "Done."], [tool_call("note", text="x"), handoff("first", "seen")]
        )
        await team.run("Go.")
        known = shown(team.agents["first"])
        assert known[0] == "Go."
        assert "for this reason: seen" in known[-1]
        assert "noted x" not in known

    @pytest.mark.parametrize("carries", ["own", "summary", "full"])
    async def test_the_next_run_goes_on_from_there(self, carries: Any) -> None:
        summary = ["Nothing yet."] if carries == "summary" else []
        team = team_of(carries, [handoff("second"), *summary], ["My name is Second.", "As I said: Second."])
        ctx: Context[Any] = Context(team)
        await team.run("Who are you?", ctx=ctx)
        ctx = Context.from_dict(team, json.loads(json.dumps(ctx.to_dict())))
        output = await team.run("Again?", ctx=ctx)
        assert (str(output), output.current_agent_name) == ("As I said: Second.", "second")
        known = shown(team.agents["second"])
        assert known[-2:] == ["My name is Second.", "Again?"]
        memory = await (await ctx.store.get("memory")).aget_all()
        texts = [one.content for one in memory if one.content and one.role != "tool"]
        assert texts == ["Who are you?", "My name is Second.", "Again?", "As I said: Second."]

    async def test_over_an_interruption(self) -> None:
        team = team_of("own", [handoff("second", "publish it")], [tool_call("publish", title="a"), "It is out."])
        handler = team.run("Go.")
        requests = handler.approvals()
        await anext(requests)
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        await requests.aclose()
        await handler.cancel_run()
        handler = team.run(ctx=Context.from_dict(team, saved))
        async for request in handler.approvals():
            request.approve()
        assert str(await handler) == "It is out."
        known = shown(team.agents["second"])
        assert "for this reason: publish it" in known[0]
        assert known[-1] == "published a"

    async def test_what_history_there_was_is_the_first_agents(self) -> None:
        team = team_of("own", [handoff("second")], ["Done."])
        history = [ChatMessage("I am Ann."), ChatMessage("Hello Ann.", role="assistant")]
        await team.run("Go.", chat_history=history)
        assert shown(team.agents["first"])[:3] == ["I am Ann.", "Hello Ann.", "Go."]
        assert "I am Ann." not in " ".join(shown(team.agents["second"]))

    async def test_what_was_called_beside_a_handoff_is_known_to_who_called(self) -> None:
        first = [[tool_call("note", text="a"), handoff("second")], "Done."]
        team = team_of("own", first, [handoff("first")])
        results = [call for call in (await team.run("Go.")).tool_calls if isinstance(call, ToolCallResult)]
        assert [one.tool_name for one in results] == ["note", "handoff", "handoff"]
        assert "noted a" in shown(team.agents["first"])
        assert "noted a" not in " ".join(shown(team.agents["second"]))

    def test_anything_else_is_told_when_the_team_is_made(self) -> None:
        with pytest.raises(ValueError, match="handoff_carries is one of full, summary, own, not 'all'"):
            AgentWorkflow(agents=[agent("one")], handoff_carries="all")  # type: ignore[arg-type]


def test_what_a_model_reads_of_the_arguments_is_what_their_class_says() -> None:
    written, derived = (
        cls("Hand over.", name="handoff", fn_schema=HandoffArguments).get_parameters_dict()
        for cls in (HandoffMetadata, ToolMetadata)
    )
    assert written == derived
