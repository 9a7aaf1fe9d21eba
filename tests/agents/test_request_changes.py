"""``fork(changes=RequestChanges(...))``: a fork whose models get other requests, and whose tools ask first."""

from typing import Any

import pytest

from batonflow.agents import AgentHandler, AgentWorkflow, FunctionAgent, RequestChanges
from batonflow.durable.stores.memory import MemoryStore
from batonflow.llms import ChatMessage, ScriptedLLM, tool_call
from batonflow.tools import AsyncBaseTool, ToolMetadata, ToolOutput
from batonflow.workflow_core import RunInterruptedError
from tests.workflow_core.flows import until

LOOKED: list[str] = []


@pytest.fixture(autouse=True)
def nothing_looked_at() -> None:
    LOOKED.clear()


def look(place: str) -> str:
    """Look at a place."""
    LOOKED.append(place)
    return f"{place} is calm"


def agent(store: Any, *script: Any, **options: Any) -> FunctionAgent:
    llm = ScriptedLLM(list(script))
    return FunctionAgent(name="one", system_prompt="Be kind.", tools=[look], llm=llm, store=store, **options)


def requests_of(made: Any) -> list[list[str]]:
    return [[str(message.content) for message in one.messages] for one in made.llm.requests]


async def first_run(store: Any) -> list[ChatMessage]:
    """A run with a tool call; returns the messages of its second request."""
    made = agent(store, tool_call("look", place="sea"), "Calm.")
    assert str(await made.run("How is the sea?", run_id="r")) == "Calm."
    return list(made.llm.requests[1].messages)  # type: ignore[union-attr]


async def before_call(store: MemoryStore, run_id: str, number: int) -> int:
    """The commit before a call of the model."""
    asked = [record["commit"] for record in await store.history(run_id) if record.get("calls")]
    return asked[number] - 1


class TestMessages:
    async def test_another_text_is_sent_in_every_request_and_the_memory_keeps_the_first(self) -> None:
        store = MemoryStore()
        sent = await first_run(store)
        made = agent(store, tool_call("look", place="lake"), "Rude.", "Kind.")
        changes = RequestChanges(messages=[(sent[0], ChatMessage("Be rude.", role="system"))])
        handler = made.fork("r", await before_call(store, "r", 0), changes=changes)
        assert str(await handler) == "Rude."
        assert [texts[0] for texts in requests_of(made)] == ["Be rude."] * 2
        assert str(await made.run("And now?", ctx=handler.ctx)) == "Kind."
        assert requests_of(made)[2][0] == "Be kind.", "the next run is not a fork"

    async def test_a_tool_result_is_changed_or_left_out(self) -> None:
        store = MemoryStore()
        sent = await first_run(store)
        assert sent[-1].role == "tool"
        changed = sent[-1].model_copy(deep=True)
        changed.content = "the sea is rough"
        for after, texts in ((changed, ["the sea is rough"]), (None, [])):
            made = agent(store, "Done.")
            changes = RequestChanges(messages=[(sent[-1], after)])
            await made.fork("r", await before_call(store, "r", 1), changes=changes)
            assert requests_of(made) == [["Be kind.", "How is the sea?", "None", *texts]]

    async def test_a_fork_of_a_fork_has_the_changes_of_both(self) -> None:
        store = MemoryStore()
        sent = await first_run(store)
        rude, brief = ChatMessage("Be rude.", role="system"), ChatMessage("Be brief.")
        made = agent(store, "One.", "Two.")
        at = await before_call(store, "r", 1)
        await made.fork("r", at, changes=RequestChanges(messages=[(sent[0], rude)]), new_id="f")
        again = RequestChanges(messages=[(sent[1], brief)])
        await made.fork("f", await before_call(store, "f", 1), changes=again)
        assert requests_of(made)[1][:2] == ["Be rude.", "Be brief."]

    async def test_each_message_is_changed_once_and_one_of_equal_ones_alone(self) -> None:
        store = MemoryStore()
        history = [ChatMessage("yes"), ChatMessage("Yes?", role="assistant"), ChatMessage("yes")]
        made = agent(store, "First.", "Second.", "Third.")
        await made.run("no", chat_history=history, run_id="r")
        at, sent = await before_call(store, "r", 0), made.llm.requests[0].messages  # type: ignore[union-attr]
        swapped = [(sent[1], ChatMessage("no")), (sent[-1], ChatMessage("yes"))]
        await made.fork("r", at, changes=RequestChanges(messages=swapped))
        await made.fork("r", at, changes=RequestChanges(messages=[(sent[3], None, 1)]))
        assert requests_of(made)[1:] == [["Be kind.", "no", "Yes?", "no", "yes"], ["Be kind.", "yes", "Yes?", "no"]]

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"messages": ["Be rude."]}, "pairs of a ChatMessage"),
            ({"messages": None}, "a list of pairs"),
            ({"options": ["top_p"]}, "a dict of names"),
            ({"options": {"": 1}}, "a dict of names"),
            ({"ask_before_tools": "no"}, "True, False or None"),
        ],
    )
    def test_what_they_hold(self, given: dict[str, Any], told: str) -> None:
        with pytest.raises(TypeError, match=told):
            RequestChanges(**given)

    async def test_parts_of_a_request_are_not_options_and_changes_are_not_a_dict(self) -> None:
        with pytest.raises(ValueError, match="options cannot hold messages, tools"):
            RequestChanges(options={"messages": [], "tools": []})
        with pytest.raises(TypeError, match="changes is a RequestChanges"):
            agent(MemoryStore()).fork("r", 1, changes={"options": {}})  # type: ignore[arg-type]


class TestModelsAndOptions:
    async def test_options_are_those_of_all_requests_and_of_the_recorded_calls(self) -> None:
        store = MemoryStore()
        await first_run(store)
        made = agent(store, tool_call("look", place="lake"), "Done.")
        changes = RequestChanges(options={"temperature": 0})
        await made.fork("r", await before_call(store, "r", 0), changes=changes, new_id="f")
        assert [one.options["temperature"] for one in made.llm.requests] == [0, 0]  # type: ignore[union-attr]
        calls = [call for record in await store.history("f") for call in record.get("calls", ())]
        assert [call["options"]["temperature"] for call in calls] == [0, 0]

    async def test_names_with_dots_are_names_and_none_takes_an_option_out(self) -> None:
        store = MemoryStore()
        await first_run(store)
        made = agent(store, "One.", "Two.")
        at = await before_call(store, "r", 1)
        options = {"a.b": 1, "top_p": 0.5}
        await made.fork("r", at, changes=RequestChanges(options=options), new_id="f")
        await made.fork("f", at, changes=RequestChanges(options={"top_p": None}))
        first, second = [one.options for one in made.llm.requests]  # type: ignore[union-attr]
        assert (first["a.b"], first["top_p"]) == (1, 0.5)
        assert "top_p" not in second

    async def test_the_name_of_a_model_is_recorded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []

        answers: list[Any] = [tool_call("look", place="lake")]

        def named(name: str) -> ScriptedLLM:
            asked.append(name)
            return ScriptedLLM(answers)

        monkeypatch.setattr("batonflow.agents.run_options.llm_from", named)
        store = MemoryStore()
        await first_run(store)
        made = agent(store)
        changes = RequestChanges(ask_before_tools=True)
        handler = made.fork("r", await before_call(store, "r", 0), llm="openai:big", changes=changes, new_id="f")
        await until(handler.open_inputs)
        await handler.interrupt()
        with pytest.raises(RunInterruptedError):
            await handler
        answers[:] = ["Named again."]
        again = made.resume("f")
        await approved(again)
        assert (str(await again), asked) == ("Named again.", ["openai:big"] * 2)


async def approved(handler: AgentHandler[Any]) -> None:
    await until(handler.open_inputs)
    handler.open_inputs()[0].respond(approved=True)


class TestToolsThatAskFirst:
    async def test_each_call_waits_for_a_person(self) -> None:
        store = MemoryStore()
        await first_run(store)
        assert LOOKED == ["sea"]
        made = agent(store, tool_call("look", place="lake"), tool_call("look", place="pond"), "Done.")
        changes = RequestChanges(ask_before_tools=True)
        handler = made.fork("r", await before_call(store, "r", 0), changes=changes)
        await until(handler.open_inputs)
        assert LOOKED == ["sea"]
        handler.open_inputs()[0].respond(approved=True)
        await until(lambda: LOOKED == ["sea", "lake"] and handler.open_inputs())
        handler.open_inputs()[0].respond(approved=False, reason="not now")
        output = await handler
        assert "not now" in output.tool_calls[-1].tool_output.content
        assert LOOKED == ["sea", "lake"]

    async def test_agents_inside_of_tools_ask_too_and_handoffs_do_not(self) -> None:
        store = MemoryStore()

        def team(*script: Any, inside: list[Any]) -> AgentWorkflow:
            inner = FunctionAgent(name="inner", description="Looks.", tools=[look], llm=ScriptedLLM(inside))
            llm = ScriptedLLM(list(script))
            one = FunctionAgent(name="a", description="A", tools=[inner.as_tool()], llm=llm)
            two = FunctionAgent(name="b", description="B", tools=[look], llm=llm)
            return AgentWorkflow([one, two], root_agent="a", store=store)

        assert str(await team("Done.", inside=[]).run("Go.", run_id="t")) == "Done."
        handed = [tool_call("handoff", to_agent="b", reason="x"), tool_call("inner", input="x")]
        made = team(handed[1], handed[0], "Done.", inside=[tool_call("look", place="lake"), "Seen."])
        changes = RequestChanges(ask_before_tools=True)
        handler = made.fork("t", await before_call(store, "t", 0), changes=changes)
        asked: list[str] = []
        for name in ("inner", "look"):
            await until(lambda name=name: [one for one in handler.open_inputs() if one.event.tool_name == name])
            [question] = handler.open_inputs()
            asked.append(question.event.tool_name)
            question.respond(approved=True)
        assert str(await handler) == "Done."
        assert (asked, LOOKED) == (["inner", "look"], ["lake"])

    async def test_a_tool_of_another_class_asks_too(self) -> None:
        class Bell(AsyncBaseTool):
            @property
            def metadata(self) -> ToolMetadata:
                return ToolMetadata(name="bell", description="Ring.")

            def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
                raise AssertionError("it is called asynchronously")

            async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
                LOOKED.append("rung")
                return ToolOutput(tool_name="bell", content="ding")

        store = MemoryStore()
        await first_run(store)
        llm = ScriptedLLM([tool_call("bell", input="x"), "Done."])
        made = FunctionAgent(name="one", tools=[look, Bell()], llm=llm, store=store)
        changes = RequestChanges(ask_before_tools=True)
        handler = made.fork("r", await before_call(store, "r", 1), changes=changes)
        await until(handler.open_inputs)
        assert "rung" not in LOOKED
        handler.open_inputs()[0].respond(approved=True)
        assert str(await handler) == "Done."
