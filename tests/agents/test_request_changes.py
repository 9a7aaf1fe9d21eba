"""``fork(changes=RequestChanges(...))``: a fork whose models get other requests, and whose tools ask first."""

import asyncio
from typing import Any

import pytest

from batonflow.agents import AgentHandler, AgentWorkflow, FunctionAgent, RequestChanges
from batonflow.durable.stores.memory import MemoryStore
from batonflow.llms import ChatMessage, ScriptedLLM, tool_call
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

    def test_they_are_pairs(self) -> None:
        with pytest.raises(TypeError, match="pairs of a ChatMessage"):
            RequestChanges(messages=["Be rude."])  # type: ignore[list-item]


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
        for _ in range(2):
            await until(handler.open_inputs)
            [question] = handler.open_inputs()
            asked.append(question.event.tool_name)
            question.respond(approved=True)
            await asyncio.sleep(0.01)
        assert str(await handler) == "Done."
        assert (asked, LOOKED) == (["inner", "look"], ["lake"])
