"""Sessions: conversations of many users with one agent, in its store or in this process."""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from batonflow import ChatMessage, FunctionAgent, SessionBusyError, SQLiteStore, StopEvent, step
from batonflow.agents import AgentInput, AgentWorkflow, AgentWorkflowStartEvent, ReActAgent
from batonflow.agents.memory import BaseMemoryBlock, Memory, StaticMemoryBlock
from batonflow.agents.sessions import in_process
from batonflow.durable.stores.memory import MemoryStore
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.run_facts import RunInfo
from batonflow.tools import tool
from batonflow.workflow_core import (
    Context,
    ContextStateError,
    RunInputMismatchError,
    StoreError,
    WorkflowCancelledByUser,
)

Made = Callable[..., Any]


class Counted(BaseModel):
    count: int = 0


class Learnt(BaseMemoryBlock[str]):
    """Keeps the first words of the messages that leave the conversation."""

    known: list[str] = []

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        return "; ".join(self.known)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        self.known = [*self.known, *((one.content or "")[:9] for one in messages)]


def said(request: Any) -> list[tuple[str, str]]:
    """Return the messages of a request as roles and texts."""
    return [(message.role.value, message.content or "") for message in request.messages]


def echo(request: Any) -> str:
    """Answer with the number of earlier messages and the last one."""
    return f"{len(request.messages) - 1}: {request.messages[-1].content}"


def of(message: ChatMessage) -> tuple[str, str]:
    return message.role.value, message.content or ""


@pytest.fixture(params=["process", "memory", "sqlite"])
async def made(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Make agents whose sessions are in this process, in a store in memory, or in a file; all share the store."""
    kind = request.param
    store: Any = {"process": lambda: None, "memory": MemoryStore, "sqlite": lambda: SQLiteStore(tmp_path / "runs.db")}[
        kind
    ]()

    def make(*turns: Any, **options: Any) -> FunctionAgent[Any, Any]:
        return FunctionAgent(llm=ScriptedLLM([*turns] or [echo] * 50), store=store, **options)

    make.kind, make.store = kind, store  # type: ignore[attr-defined]
    yield make
    if store is not None:
        await store.aclose()


class TestTurns:
    async def test_a_turn_knows_the_turns_before(self, made: Made) -> None:
        agent = made()
        handler = agent.run("Hello", session="ann")
        assert str(await handler) == "0: Hello"
        assert handler.run_id == "ann:1"
        assert str(await agent.run("And tomorrow?", session="ann")) == "2: And tomorrow?"
        assert [of(one) for one in await agent.session("ann").messages()] == [
            ("user", "Hello"),
            ("assistant", "0: Hello"),
            ("user", "And tomorrow?"),
            ("assistant", "2: And tomorrow?"),
        ]

    async def test_sessions_are_apart(self, made: Made) -> None:
        agent = made()
        await agent.run("Hello", session="ann")
        assert str(await agent.run("Hi", session="bob")) == "0: Hi"
        assert [one.name for one in await agent.sessions()] == ["ann", "bob"]
        assert [one.name for one in await agent.sessions(prefix="b")] == ["bob"]
        assert [one.name for one in await agent.sessions(limit=1)] == ["ann"]

    async def test_turns_are_listed(self, made: Made) -> None:
        agent = made()
        chat = agent.session("ann")
        await chat.run("Hello", request_id="m1")
        await chat.run("And?")
        turns = [turn async for turn in chat.turns()]
        assert [(one.number, one.run_id, one.request_id, one.status) for one in turns] == [
            (1, "ann:1", "m1", "completed"),
            (2, "ann:2", None, "completed"),
        ]
        assert turns[0].user_msg == ChatMessage("Hello")
        assert [turn.output for turn in turns] == ["0: Hello", "2: And?"]
        assert turns[1].ended >= turns[1].started >= turns[0].ended

    async def test_a_turn_holds_only_its_own_messages(self, made: Made) -> None:
        @tool
        def look() -> str:
            """Look."""
            return "rain"

        agent = made("One.", [tool_call("look")], "Two.", tools=[look])
        chat = agent.session("ann")
        await chat.run("a")
        await chat.run("b")
        turns = [[of(one) for one in turn.messages] async for turn in chat.turns()]
        assert turns == [
            [("user", "a"), ("assistant", "One.")],
            [("user", "b"), ("assistant", ""), ("tool", "rain"), ("assistant", "Two.")],
        ]

    async def test_the_last_messages(self, made: Made) -> None:
        chat = made().session("ann")
        for number in range(12):
            await chat.run(str(number))
        assert [of(one)[1] for one in await chat.messages(last=3)] == ["20: 10", "11", "22: 11"]
        assert len(await chat.messages(last=1000)) == 24
        with pytest.raises(ValueError, match="last is a whole number, 1 or more"):
            await chat.messages(last=0)

    async def test_an_output_has_its_type(self, made: Made) -> None:
        class Answer(BaseModel):
            days: int

        agent = made(tool_call("final_answer", days=3), tool_call("final_answer", days=4), output_type=Answer)
        chat = agent.session("ann")
        await chat.run("How long?")
        assert [turn.output async for turn in chat.turns()] == [Answer(days=3)]

    async def test_usage_is_the_sum_of_the_turns(self, made: Made) -> None:
        chat = made().session("ann")
        assert (await chat.usage()).total_tokens == 0
        outputs = [await chat.run("Hello"), await chat.run("And?")]
        spent = [0 if one.usage is None else one.usage.total_tokens for one in outputs]
        assert (await chat.usage()).total_tokens == sum(spent)

    def test_a_turn_in_synchronous_code(self, tmp_path: Path) -> None:
        for store in (None, tmp_path / "runs.db"):
            agent = FunctionAgent(llm=ScriptedLLM([echo] * 4), store=store)
            chat = agent.session("ann")
            assert str(chat.run_sync("Hello")) == "0: Hello"
            assert str(agent.run_sync("And?", session="ann")) == "2: And?"

    def test_a_turn_whose_event_loop_ended_is_cancelled(self) -> None:
        agent = FunctionAgent(llm=ScriptedLLM([TestOtherProcesses.never, echo]))

        async def begin() -> None:
            agent.run("a", session="ann")
            await asyncio.sleep(0.05)

        async def go_on() -> list[str]:
            await agent.run("b", session="ann")
            return [turn.status async for turn in agent.session("ann").turns()]

        asyncio.run(begin())
        assert asyncio.run(go_on()) == ["cancelled", "completed"]

    async def test_a_session_goes_on_in_another_process(self, tmp_path: Path) -> None:
        for number in range(3):
            store = SQLiteStore(tmp_path / "runs.db")
            agent = FunctionAgent(llm=ScriptedLLM([echo]), store=store)
            assert str(await agent.run("Hello", session="ann")) == f"{2 * number}: Hello"
            await store.aclose()

    async def test_turns_take_linear_space(self, tmp_path: Path) -> None:
        store = SQLiteStore(tmp_path / "runs.db")
        text = "x" * 400
        agent = FunctionAgent(llm=ScriptedLLM([text] * 40), store=store)
        for _ in range(40):
            await agent.run(text, session="ann")
        turns = await store.read_turns("ann")
        assert sum(len(turn.asked) + len(turn.body) for turn in turns) < 1.3 * 40 * 800
        await store.aclose()

    async def test_a_store_without_sessions_says_so(self) -> None:
        class Bare:
            """A store of runs that keeps no sessions."""

            def __init__(self) -> None:
                self._store = MemoryStore()

            def __getattr__(self, name: str) -> Any:
                if name in {"open_turn", "read_session"}:
                    raise AttributeError(name)
                return getattr(self._store, name)

        agent = FunctionAgent(llm=ScriptedLLM(["Hi."]), store=Bare())  # type: ignore[arg-type]
        with pytest.raises(StoreError, match="Bare does not keep sessions: it lacks the methods of SessionStore"):
            agent.run("Hello", session="ann")
        with pytest.raises(StoreError, match="does not keep sessions"):
            agent.session("ann")


class TestArguments:
    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"chat_history": [ChatMessage("x")]}, r"does not go with chat_history=: the messages before are those of"),
            ({"memory": Memory()}, r"does not go with memory=: the messages of a session are its memory"),
            ({"run_id": "r"}, r"does not go with run_id=: the run of a turn is named by the session"),
        ],
    )
    async def test_arguments_that_do_not_go_together(self, made: Made, given: dict[str, Any], says: str) -> None:
        with pytest.raises(ValueError, match=says):
            made().run("Hello", session="ann", **given)

    async def test_a_history_in_the_start_event_does_not_go_with_a_session(self, made: Made) -> None:
        event = AgentWorkflowStartEvent(user_msg="Hello", chat_history=[ChatMessage("Before")])
        with pytest.raises(ValueError, match=r"run\(session=...\) does not go with chat_history="):
            made().run(start_event=event, session="ann")

    async def test_a_context_does_not_go_with_a_session(self, made: Made) -> None:
        agent = made()
        with pytest.raises(ValueError, match="does not go with ctx="):
            agent.run("Hello", session="ann", ctx=Context(agent))

    async def test_a_request_has_no_other_id(self, made: Made) -> None:
        with pytest.raises(ValueError, match="both name the run"):
            made().run("Hello", request_id="m1", run_id="r")

    @pytest.mark.parametrize("name", ["", "ann smith", "ü", "x" * 181, 7])
    async def test_names_of_sessions(self, made: Made, name: Any) -> None:
        with pytest.raises(ValueError, match="is not the name of a session"):
            made().run("Hello", session=name)
        with pytest.raises(ValueError, match="is not the name of a session"):
            made().session(name)

    async def test_values_of_options(self, made: Made) -> None:
        with pytest.raises(ValueError, match="if_busy is one of raise, wait, cancel, not 'queue'"):
            made().run("Hello", session="ann", if_busy="queue")
        with pytest.raises(ValueError, match="run\\(if_busy='wait'\\) needs session="):
            made().run("Hello", if_busy="wait")
        with pytest.raises(ValueError, match="request_id is a text"):
            made().run("Hello", session="ann", request_id=7)
        with pytest.raises(ValueError, match="metadata is a dict of texts"):
            made().run("Hello", metadata={"user": 7})

    async def test_a_field_of_the_start_event_keeps_its_name(self) -> None:
        class Begin(AgentWorkflowStartEvent):
            session: str = ""

        seen: list[str] = []

        class Declares(FunctionAgent[Any, Any]):
            @step
            async def init_run(self, ctx: Context, ev: Begin) -> AgentInput | StopEvent:
                seen.append(ev.session)
                return await super().init_run(ctx, ev)

        handler = Declares(llm=ScriptedLLM(["Hi."])).run("Hello", session="of the event")
        assert str(await handler) == "Hi."
        assert seen == ["of the event"]
        assert not handler.run_id.startswith("of")


class TestBusy:
    async def test_a_session_has_one_turn_at_a_time(self, made: Made) -> None:
        going_on = asyncio.Event()

        async def slow(request: Any) -> str:
            await going_on.wait()
            return echo(request)

        agent = made(slow, echo)
        first, second = agent.run("a", session="ann"), agent.run("b", session="ann")
        with pytest.raises(SessionBusyError, match="Session 'ann' is busy: run 'ann:1' is running") as caught:
            await second
        assert (caught.value.session, caught.value.run_id, caught.value.status) == ("ann", "ann:1", "running")
        going_on.set()
        await first
        assert str(await agent.run("c", session="ann")) == "2: c"

    async def test_messages_wait_in_the_order_of_their_arrival(self, made: Made) -> None:
        agent = made()
        handlers = [agent.run(str(number), session="ann", if_busy="wait") for number in range(8)]
        assert [str(await handler) for handler in handlers] == [f"{2 * n}: {n}" for n in range(8)]
        assert [handler.run_id for handler in handlers] == [f"ann:{n}" for n in range(1, 9)]

    async def test_a_queue_of_one_process_moves_on_at_once(self, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("batonflow.agents.sessions.waiting.LONGEST_PAUSE", 600)
        chat = made().session("ann")
        async with asyncio.timeout(30):
            answers = await asyncio.gather(*(chat.run(str(number), if_busy="wait") for number in range(5)))
        assert [str(one) for one in answers] == [f"{2 * number}: {number}" for number in range(5)]

    async def test_a_message_that_waits_can_be_cancelled(self, made: Made) -> None:
        going_on = asyncio.Event()

        async def slow(request: Any) -> str:
            await going_on.wait()
            return echo(request)

        agent = made(slow, echo)
        first = agent.run("a", session="ann")
        second, third = (agent.run(text, session="ann", if_busy="wait") for text in "bc")
        await asyncio.sleep(0.05)
        await second.cancel_run()
        with pytest.raises(WorkflowCancelledByUser):
            await second
        going_on.set()
        await first
        assert str(await third) == "2: c"

    async def test_a_caller_that_leaves_gives_up_its_place(self, made: Made) -> None:
        going_on = asyncio.Event()

        async def slow(request: Any) -> str:
            await going_on.wait()
            return echo(request)

        agent = made(slow, echo)
        first = agent.run("a", session="ann")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await agent.run("b", session="ann", if_busy="wait")
        going_on.set()
        await first
        assert str(await agent.run("c", session="ann")) == "2: c"

    async def test_a_block_that_ends_gives_up_its_place(self, made: Made) -> None:
        going_on = asyncio.Event()

        async def slow(request: Any) -> str:
            await going_on.wait()
            return echo(request)

        agent = made(slow, echo)
        first = agent.run("a", session="ann")
        async with agent.run("b", session="ann", if_busy="wait", request_id="m2") as second:
            await asyncio.sleep(0.05)
        assert second.is_done()
        going_on.set()
        await first
        assert str(await agent.run("b", session="ann", request_id="m2")) == "2: b"

    async def test_a_repeated_request_does_not_hold_up_other_messages(self, made: Made) -> None:
        going_on = asyncio.Event()

        async def slow(request: Any) -> str:
            await going_on.wait()
            return echo(request)

        agent = made(slow)
        handlers = [agent.run("a", session="ann", request_id="m1") for _ in range(2)]
        await asyncio.sleep(0.05)
        with pytest.raises(SessionBusyError):
            await agent.run("b", session="ann")
        going_on.set()
        assert {str(await handler) for handler in handlers} == {"0: a"}

    async def test_the_other_turn_is_cancelled_first(self, made: Made) -> None:
        begun = asyncio.Event()

        async def never(request: Any) -> str:
            begun.set()
            await asyncio.sleep(60)
            return ""

        agent = made(never, echo)
        first = agent.run("a", session="ann")
        await begun.wait()
        assert str(await agent.run("b", session="ann", if_busy="cancel")) == "1: b"
        with pytest.raises(WorkflowCancelledByUser):
            await first
        turns = [turn async for turn in agent.session("ann").turns()]
        assert [(turn.status, [of(one)[1] for one in turn.messages]) for turn in turns] == [
            ("cancelled", ["a"]),
            ("completed", ["b", "1: b"]),
        ]

    async def test_a_question_to_a_person_is_named(self, made: Made) -> None:
        @tool(requires_approval=True)
        def publish(title: str) -> str:
            """Publish."""
            return f"published {title}"

        agent = made([tool_call("publish", title="Tides")], "Done.", echo, tools=[publish])
        chat = agent.session("ann")
        handler = chat.run("Publish it.")
        request = await anext(aiter(handler.approvals()))
        with pytest.raises(
            SessionBusyError, match=r"is waiting. It waits for an answer to ApprovalRequired .* publish;"
        ):
            await chat.run("Well?")
        with pytest.raises(SessionBusyError):
            await chat.undo()
        request.approve()
        assert str(await handler) == "Done."
        assert str(await chat.run("Well?")) == "4: Well?"


class TestTurnsThatEndEarly:
    async def test_a_failed_turn_leaves_its_message_and_a_note_of_its_calls(self, made: Made) -> None:
        @tool
        def send(to: str) -> str:
            """Send."""
            return f"sent to {to}"

        def fails(_: Any) -> str:
            raise RuntimeError("no answer")

        agent = made("Hello.", [tool_call("send", to="bob")], fails, echo, tools=[send])
        chat = agent.session("ann")
        await chat.run("Hi")
        with pytest.raises(RuntimeError, match="no answer"):
            await chat.run("Send it.")
        messages = await chat.messages()
        assert [of(one) for one in messages[:3]] == [("user", "Hi"), ("assistant", "Hello."), ("user", "Send it.")]
        assert messages[3].content.startswith("The turn for the message above ended before an answer: it failed.")
        assert "- send(to='bob'): sent to bob" in messages[3].content
        assert len(messages) == 4
        await chat.run("Did it work?")
        request = agent.llm.requests[-1]
        assert said(request)[2:] == [("user", "Send it."), ("user", messages[3].content), ("user", "Did it work?")]
        [_, failed, _] = [turn async for turn in chat.turns()]
        assert (failed.status, failed.output, failed.error) == ("failed", None, "RuntimeError: no answer")

    async def test_a_call_without_a_result_may_have_taken_effect(self, made: Made) -> None:
        begun = asyncio.Event()

        @tool
        async def send(to: str) -> str:
            """Send."""
            begun.set()
            await asyncio.sleep(60)
            return to

        agent = made([tool_call("send", to="bob")], echo, tools=[send])
        handler = agent.run("Send it.", session="ann")
        await begun.wait()
        await handler.cancel_run()
        messages = await agent.session("ann").messages()
        assert of(messages[0]) == ("user", "Send it.")
        assert "- send(to='bob'): no result; it may have taken effect" in messages[1].content

    @pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
    async def test_a_call_that_waited_for_an_approval_was_not_made(self, kind: Any) -> None:
        @tool(requires_approval=True)
        async def send(to: str) -> str:
            """Send."""
            raise AssertionError("nobody approved it")

        step = 'Thought: I send it.\nAction: send\nAction Input: {"to": "bob"}'
        agent = kind(llm=ScriptedLLM([step if kind is ReActAgent else tool_call("send", to="bob")]), tools=[send])
        handler = agent.run("Send it.", session="ann")
        async for _ in handler.approvals():
            break
        await handler.cancel_run()
        messages = await agent.session("ann").messages()
        assert "- send(to='bob'): not made; it waited for an approval" in messages[1].content

    async def test_reasoning_is_noted_too(self) -> None:
        @tool
        def look(at: str) -> str:
            """Look."""
            return f"saw {at}"

        def fails(_: Any) -> str:
            raise RuntimeError("no answer")

        step = 'Thought: I need to look.\nAction: look\nAction Input: {"at": "sea"}'
        agent = ReActAgent(llm=ScriptedLLM([step, fails]), tools=[look])
        with pytest.raises(RuntimeError):
            await agent.run("Look.", session="ann")
        messages = await agent.session("ann").messages()
        assert "- look(at='sea'): saw sea" in messages[1].content


class TestRequests:
    async def test_a_repeated_request_gives_the_same_result(self, made: Made) -> None:
        agent = made(echo)  # a second request to the model would fail
        first = await agent.run("Hello", session="ann", request_id="m1")
        again = agent.run("Hello", session="ann", request_id="m1")
        assert str(await again) == str(first) == "0: Hello"
        assert again.run_id == "ann:1"
        assert len([turn async for turn in agent.session("ann").turns()]) == 1

    async def test_a_live_request_gives_a_second_handler(self, made: Made) -> None:
        agent = made(echo)
        handlers = [agent.run("Hello", session="ann", request_id="m1") for _ in range(3)]
        assert {str(await handler) for handler in handlers} == {"0: Hello"}
        assert {handler.run_id for handler in handlers} == {"ann:1"}

    async def test_a_request_with_other_input_is_refused(self, made: Made) -> None:
        agent = made(echo)
        await agent.run("Hello", session="ann", request_id="m1")
        with pytest.raises(
            RunInputMismatchError, match=r"'ann:1' was .* or another run_id or request_id to start a new"
        ):
            await agent.run("Good bye", session="ann", request_id="m1")

    async def test_the_same_id_in_another_session_is_another_request(self, made: Made) -> None:
        agent = made()
        await agent.run("Hello", session="ann", request_id="m1")
        assert str(await agent.run("Hi", session="bob", request_id="m1")) == "0: Hi"

    async def test_a_failed_request_fails_again(self, made: Made) -> None:
        def fails(_: Any) -> str:
            raise RuntimeError("no answer")

        agent = made(fails)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no answer"):
                await agent.run("Hello", session="ann", request_id="m1")

    async def test_a_request_without_a_session(self, made: Made) -> None:
        agent = made(echo)
        first = agent.run("Hello", request_id="<m1@mail>")
        second = agent.run("Hello", request_id="<m1@mail>")
        assert str(await first) == str(await second) == "0: Hello"
        assert str(await agent.run("Hello", request_id="<m1@mail>")) == "0: Hello"
        assert first.run_id == second.run_id
        with pytest.raises(RunInputMismatchError):
            await agent.run("Good bye", request_id="<m1@mail>")

    @pytest.mark.parametrize("session", [None, "ann"])
    async def test_threads_that_make_the_same_request_share_its_result(self, made: Made, session: str | None) -> None:
        answered: list[str] = []

        async def slow(request: Any) -> str:
            answered.append(request.messages[-1].content)
            await asyncio.sleep(0.2)
            return "Hi."

        agent = made(*[slow] * 3)

        def ask() -> str:
            return str(agent.run_sync("Hello", session=session, request_id="m1", if_busy="wait"))

        assert await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(3))) == ["Hi."] * 3
        assert answered == ["Hello"]

    @pytest.mark.parametrize("session", [None, "ann"])
    async def test_threads_share_a_failure_too(self, made: Made, session: str | None) -> None:
        async def fails(_: Any) -> str:
            await asyncio.sleep(0.2)
            raise RuntimeError("no answer")

        agent = made(fails)

        def ask() -> None:
            with pytest.raises(RuntimeError, match="no answer"):
                agent.run_sync("Hello", session=session, request_id="m1", if_busy="wait")

        await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(3)))

    async def test_threads_that_come_first_at_once_share_the_sessions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Slow(in_process.ProcessSessions):
            def __init__(self) -> None:
                time.sleep(0.05)
                super().__init__()

        monkeypatch.setattr(in_process, "ProcessSessions", Slow)
        agent = FunctionAgent(llm=ScriptedLLM([]))
        found = await asyncio.gather(*(asyncio.to_thread(in_process.process_sessions, agent) for _ in range(3)))
        assert found == [found[0]] * 3

    async def test_a_refused_message_can_be_repeated(self, made: Made) -> None:
        going_on = asyncio.Event()

        async def slow(request: Any) -> str:
            await going_on.wait()
            return echo(request)

        agent = made(slow, echo)
        first, second = agent.run("a", session="ann"), agent.run("b", session="ann", request_id="m2")
        with pytest.raises(SessionBusyError):
            await second
        going_on.set()
        await first
        assert str(await agent.run("b", session="ann", request_id="m2")) == "2: b"

    async def test_a_request_stays_known_when_its_turn_is_undone(
        self, made: Made, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("batonflow.agents.sessions.in_process.REQUESTS_KEPT", 1)
        chat = made().session("ann")
        first = await chat.run("Hi", request_id="m1")
        await chat.undo()
        await chat.run("Well?", request_id="m2")
        assert str(await chat.run("Hi", request_id="m1")) == str(first)

    async def test_a_result_outlives_its_run(self, tmp_path: Path) -> None:
        store = SQLiteStore(tmp_path / "runs.db")
        agent = FunctionAgent(llm=ScriptedLLM([echo, echo]), store=store)
        await agent.run("Hello", session="ann", request_id="m1")
        assert await store.retain(seconds=0) == ["ann:1"]
        assert str(await agent.run("Hello", session="ann", request_id="m1")) == "0: Hello"
        assert str(await agent.run("And?", session="ann")) == "2: And?"
        await store.aclose()


class TestChanges:
    async def test_messages_are_added(self, made: Made) -> None:
        agent = made()
        chat = agent.session("ann")
        await chat.add([ChatMessage("I am Ann."), ChatMessage("Hello Ann.", role="assistant")])
        assert str(await chat.run("Who am I?")) == "2: Who am I?"
        turns = [turn async for turn in chat.turns()]
        assert [(one.number, one.run_id) for one in turns] == [(1, ""), (2, "ann:2")]
        with pytest.raises(TypeError, match="add\\(\\) takes a list of ChatMessage"):
            await chat.add(["Hello"])  # type: ignore[list-item]

    async def test_turns_are_undone(self, made: Made) -> None:
        agent = made()
        chat = agent.session("ann")
        for text in "abc":
            await chat.run(text)
        await chat.undo(turns=2)
        assert [of(one)[1] for one in await chat.messages()] == ["a", "0: a"]
        handler = chat.run("d")
        assert str(await handler) == "2: d"
        assert handler.run_id == "ann:4", "the runs of undone turns are kept"
        with pytest.raises(ValueError, match="has 2 turns, so 3 cannot be undone"):
            await chat.undo(turns=3)

    async def test_changes_at_once_act_one_after_the_other(self, made: Made) -> None:
        chat = made().session("ann")
        for text in "abcd":
            await chat.run(text)
        await asyncio.gather(chat.undo(), chat.undo(), chat.add([ChatMessage("e")]), chat.undo())
        assert len([turn.number async for turn in chat.turns()]) == 2, "four turns, one is added, three are undone"

    async def test_a_session_branches_off(self, made: Made) -> None:
        agent = made()
        chat = agent.session("ann")
        for text in "abc":
            await chat.run(text)
        branch = await chat.fork("ann-2", at_turn=2)
        handler = branch.run("x")
        assert str(await handler) == "4: x"
        assert handler.run_id == "ann-2:3"
        assert str(await chat.run("d")) == "6: d"
        with pytest.raises(ValueError, match="There is a session 'ann-2' already"):
            await chat.fork("ann-2")
        with pytest.raises(ValueError, match="has no turn 9 that is over; there are 1, 2, 3, 4"):
            await chat.fork("ann-3", at_turn=9)

    async def test_a_session_is_deleted_with_its_runs(self, made: Made) -> None:
        agent = made()
        chat = agent.session("ann")
        await chat.run("a", request_id="m1")
        branch = await chat.fork("ann-2")
        await chat.delete()
        await chat.delete()
        assert [one.name for one in await agent.sessions()] == ["ann-2"]
        assert await chat.messages() == []
        assert len(await branch.messages()) == 2
        if made.store is not None:
            assert await made.store.list_runs() == []
        handler = chat.run("b", request_id="m1")
        assert str(await handler) == "0: b"
        assert handler.run_id == "ann:1"


class TestState:
    async def test_the_state_goes_on(self, made: Made) -> None:
        @tool
        async def count(ctx: Context) -> str:
            """Count."""
            state = await ctx.store.get("state")
            await ctx.store.set("state", {**state, "count": state["count"] + 1})
            return "counted"

        agent = made(
            [tool_call("count")], "One.", [tool_call("count")], "Two.", tools=[count], initial_state={"count": 0}
        )
        chat = agent.session("ann")
        assert await chat.state() == {"count": 0}
        await chat.run("a")
        await chat.run("b")
        assert await chat.state() == {"count": 2}
        assert await chat.state(Counted) == Counted(count=2)
        await chat.undo()
        assert await chat.state() == {"count": 1}

    async def test_the_state_before_the_first_turn_is_that_of_the_agent(self, made: Made) -> None:
        given = Counted(count=3)
        team = AgentWorkflow([made(name="a", workflow_name="a")], state=given, store=made.store)  # type: ignore[attr-defined]
        for agent in (made(state=given), team):
            chat = agent.session("ann")
            found = await chat.state(Counted)
            assert found == given
            assert found is not given
            assert await chat.state() == {"count": 3}

    async def test_a_typed_state_goes_on(self, made: Made) -> None:
        @tool
        async def count(ctx: Context[Counted]) -> str:
            """Count."""
            async with ctx.store.edit_state() as state:
                state.count += 1
            return "counted"

        agent = made([tool_call("count")], "One.", [tool_call("count")], "Two.", tools=[count], state=Counted)
        chat = agent.session("ann")
        await chat.run("a")
        await chat.run("b")
        assert await chat.state(Counted) == Counted(count=2)
        assert await chat.state() == {"count": 2}

    async def test_the_agent_that_acted_last_acts_next(self, made: Made) -> None:
        front = FunctionAgent(
            name="front",
            description="Greets.",
            llm=ScriptedLLM([tool_call("handoff", to_agent="back", reason="asked")]),
        )
        back = FunctionAgent(name="back", description="Answers.", llm=ScriptedLLM(["One.", "Two."]), can_handoff_to=[])
        team = AgentWorkflow([front, back], root_agent="front", store=made.store)
        assert str(await team.run("a", session="ann")) == "One."
        output = await team.run("b", session="ann")
        assert (str(output), output.current_agent_name) == ("Two.", "back")

    async def test_agents_with_conversations_of_their_own(self, made: Made) -> None:
        handoff = tool_call("handoff", to_agent="back", reason="asked")
        front = FunctionAgent(name="front", description="Greets.", llm=ScriptedLLM([handoff]))
        back = FunctionAgent(name="back", description="Answers.", llm=ScriptedLLM(["One.", echo]), can_handoff_to=[])
        team = AgentWorkflow([front, back], root_agent="front", handoff_carries="own", store=made.store)
        await team.run("a", session="ann")
        await team.run("b", session="ann")
        roles = [role for role, _ in said(back.llm.requests[-1])]
        assert roles == ["user", "assistant", "user"]

    async def test_a_memory_with_blocks_is_the_pattern(self, made: Made) -> None:
        pattern = Memory(memory_blocks=[StaticMemoryBlock(name="user", static_content="The user is Ann.")])
        agent = made(memory=pattern)
        for number, text in enumerate("ab"):
            await agent.run(text, session="ann")
            shown = said(agent.llm.requests[-1])
            assert "The user is Ann." in shown[0][1]
            assert len(shown) == 2 + 2 * number
        assert await pattern.aget_all() == []
        await agent.run("alone")
        assert "The user is Ann." in said(agent.llm.requests[-1])[0][1]

    async def test_archived_messages_stay_archived(self, made: Made) -> None:
        agent = made(memory=Memory(token_limit=60, token_flush_size=20))
        chat = agent.session("ann")
        for number in range(10):
            await chat.run(f"message {number} " + "word " * 10)
        assert len(await chat.messages()) == 20
        assert len(agent.llm.requests[-1].messages) < 12

    async def test_what_a_block_has_learnt_is_kept_for_each_session(self, made: Made) -> None:
        agent = made(memory=Memory(token_limit=60, token_flush_size=20, memory_blocks=[Learnt(name="learnt")]))
        for number in range(6):
            await agent.run(f"message {number} " + "word " * 10, session="ann")
        learnt = said(agent.llm.requests[-1])[0][1]
        assert "message 0" in learnt
        await agent.run("message 9 " + "word " * 10, session="bob")
        assert "message 0" not in said(agent.llm.requests[-1])[0][1]

    async def test_a_memory_is_a_memory(self) -> None:
        with pytest.raises(ValueError, match="memory is a memory such as Memory"):
            FunctionAgent(llm=ScriptedLLM([]), memory="ann")  # type: ignore[call-overload]


class TestMetadata:
    async def test_runs_are_found_by_metadata(self, made: Made) -> None:
        agent = made()
        await agent.run("a", session="ann", metadata={"user": "ann", "place": "web"})
        await agent.run("b", metadata={"user": "bob"}, run_id="bob-1")
        await agent.run("c")
        if made.store is not None:
            store = made.store

            async def found(**wanted: str) -> list[str]:
                return [info.run_id for info in await store.list_runs(metadata=wanted)]

            assert await found(user="ann") == ["ann:1"]
            assert await found(user="ann", place="mail") == []
            assert await found(user="bob") == ["bob-1"]
            assert len(await store.list_runs()) == 3
            info = await store.info("ann:1")
            assert (dict(info.metadata), info.session) == ({"user": "ann", "place": "web"}, "ann")

    async def test_the_rules_of_other_runs_hold(self, made: Made) -> None:
        agent = made()
        handler = agent.run("a")
        with pytest.raises(ContextStateError, match="is already running"):
            agent.run("b", ctx=handler.ctx, metadata={"user": "ann"})
        await handler
        assert str(await agent.run("b", ctx=handler.ctx, metadata={"user": "ann"})) == "2: b"
        with pytest.raises(ValueError, match="run_id is empty"):
            agent.run("c", run_id="", metadata={"user": "ann"})

    async def test_a_store_without_metadata_says_so(self) -> None:
        class Bare(MemoryStore):
            async def list_runs(self, *, limit: int = 100) -> list[Any]:  # type: ignore[override]
                return (await super().list_runs())[:limit]

        agent = FunctionAgent(llm=ScriptedLLM(["Hi."]), store=Bare())
        with pytest.raises(StoreError, match="Bare does not keep metadata"):
            agent.run("Hello", metadata={"user": "ann"})

    async def test_deps_are_made_for_the_session(self, made: Made) -> None:
        seen: list[RunInfo] = []

        def make(info: RunInfo) -> str:
            seen.append(info)
            return "deps"

        agent = made(deps_type=str, deps_for=make)
        await agent.run("a", session="ann", metadata={"user": "ann"})
        [info] = seen
        assert (info.run_id, info.session, dict(info.metadata)) == ("ann:1", "ann", {"user": "ann"})

    async def test_records_of_logs_name_the_session(self, made: Made, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, logger="batonflow")
        await made().run("a", session="ann")
        about = {getattr(record, "session", None) for record in caplog.records if record.name == "batonflow.workflow"}
        assert about == {"ann"}

    async def test_tools_know_the_session_and_the_turn(self, made: Made) -> None:
        seen: list[tuple[str, int]] = []

        @tool
        async def look(ctx: Context) -> str:
            """Look."""
            assert ctx.agent is not None
            seen.append((ctx.agent.session, ctx.agent.turn))
            return "looked"

        inner = FunctionAgent(name="inner", llm=ScriptedLLM([tool_call("look"), "Done."]), tools=[look])
        turns = [tool_call("look"), "One.", tool_call("inner", input="look"), "Two."]
        agent = made(*turns, tools=[look, inner.as_tool()])
        for text in "ab":
            await agent.run(text, session="ann")
        assert seen == [("ann", 1), ("ann", 2)]


class TestOtherProcesses:
    """Two objects of a store are as apart as two processes are."""

    @pytest.fixture
    async def agents(self, tmp_path: Path) -> Any:
        stores = [SQLiteStore(tmp_path / "runs.db") for _ in range(2)]

        def make(number: int, *turns: Any, **options: Any) -> FunctionAgent[Any, Any]:
            return FunctionAgent(llm=ScriptedLLM([*turns] or [echo] * 20), store=stores[number], **options)

        make.stores = stores  # type: ignore[attr-defined]
        yield make
        for store in stores:
            await store.aclose()

    @staticmethod
    async def interrupted(agent: FunctionAgent[Any, Any], **options: Any) -> None:
        """Begin a turn, and leave it in the store as a process leaves it that ends."""
        handler = agent.run("a", session="ann", **options)
        await handler.started()
        await asyncio.sleep(0.01)
        await handler.interrupt()

    @staticmethod
    async def never(_: Any) -> str:
        await asyncio.sleep(60)
        return ""

    async def test_a_busy_session_is_known_in_the_other_process(self, agents: Made) -> None:
        going_on = asyncio.Event()

        async def slow(request: Any) -> str:
            await going_on.wait()
            return echo(request)

        first, second = agents(0, slow), agents(1)
        handler = first.run("a", session="ann")
        await handler.started()
        with pytest.raises(SessionBusyError, match="run 'ann:1' is running"):
            await second.run("b", session="ann")
        waits = second.run("b", session="ann", if_busy="wait")
        again = second.run("a", session="ann", if_busy="wait")
        await asyncio.sleep(0.1)
        going_on.set()
        assert [str(await one) for one in (handler, waits, again)] == ["0: a", "2: b", "4: a"]

    async def test_the_turn_of_the_other_process_is_cancelled(self, agents: Made) -> None:
        handler = agents(0, self.never).run("a", session="ann")
        await handler.started()
        assert str(await agents(1).run("b", session="ann", if_busy="cancel")) == "1: b"
        with pytest.raises(WorkflowCancelledByUser, match="another message of the session took its place"):
            await handler

    async def test_a_request_that_runs_elsewhere_gives_its_result(self, agents: Made) -> None:
        going_on = asyncio.Event()

        async def slow(request: Any) -> str:
            await going_on.wait()
            return echo(request)

        first = agents(0, slow).run("a", session="ann", request_id="m1")
        await first.started()
        second = agents(1, "not asked").run("a", session="ann", request_id="m1")
        await asyncio.sleep(0.05)
        going_on.set()
        assert str(await second) == str(await first) == "0: a"

    @pytest.mark.parametrize("session", ["ann", None])
    async def test_a_request_that_runs_elsewhere_has_begun(self, agents: Made, session: str | None) -> None:
        going_on = asyncio.Event()

        async def slow(request: Any) -> str:
            await going_on.wait()
            return echo(request)

        first = agents(0, slow).run("a", session=session, request_id="m1")
        await first.started()
        second = agents(1, "not asked").run("a", session=session, request_id="m1")
        await asyncio.wait_for(second.started(), 5)
        assert second.run_id == first.run_id
        assert not second.is_done()
        going_on.set()
        assert str(await second) == "0: a"

    async def test_a_request_finds_the_turn_that_its_process_recovers(self, agents: Made) -> None:
        @tool(requires_approval=True)
        def pay() -> str:
            """Pay."""
            return "paid"

        first = agents(0, tool_call("pay"), tools=[pay]).run("a", session="ann", request_id="m1")
        await anext(first.approvals())
        await first.interrupt()
        agent = agents(1, "Done.", tools=[pay])
        [recovered] = await agent.recover()
        await recovered.started()
        again = agent.run("a", session="ann", request_id="m1")
        (await anext(again.approvals())).approve()
        assert str(await again) == str(await recovered) == "Done."

    async def test_a_request_that_waits_twice_leaves_no_place_in_the_queue(self, agents: Made) -> None:
        going_on = asyncio.Event()

        async def slow(request: Any) -> str:
            await going_on.wait()
            return echo(request)

        first, second = agents(0, slow, echo), agents(1)
        begun = first.run("a", session="ann")
        await begun.started()
        both = [agent.run("b", session="ann", request_id="m2", if_busy="wait") for agent in (first, second)]
        await asyncio.sleep(0.2)
        going_on.set()
        assert {str(await one) for one in both} == {"2: b"}
        assert (await agents.stores[0].read_session("ann")).queue == ()  # type: ignore[attr-defined]

    async def test_a_request_without_a_session_that_runs_elsewhere(self, agents: Made) -> None:
        going_on = asyncio.Event()

        async def slow(request: Any) -> str:
            await going_on.wait()
            return echo(request)

        first = agents(0, slow).run("a", request_id="m1")
        await first.started()
        second = agents(1, "not asked").run("a", request_id="m1")
        await asyncio.sleep(0.05)
        going_on.set()
        assert str(await second) == str(await first) == "0: a"

    async def test_an_interrupted_turn_is_taken_up_by_the_session(self, agents: Made) -> None:
        await self.interrupted(agents(0, self.never))
        agent = agents(1)
        chat = agent.session("ann")
        with pytest.raises(SessionBusyError, match=r"is interrupted. No process drives it: take it up with resume"):
            await chat.run("b")
        handler = await chat.resume()
        assert handler is not None
        assert str(await handler) == "0: a"
        assert await chat.resume() is None
        assert str(await chat.run("b")) == "2: b"
        assert [turn.status async for turn in chat.turns()] == ["completed", "completed"]

    async def test_an_interrupted_turn_is_taken_up_by_recover(self, agents: Made) -> None:
        await self.interrupted(agents(0, self.never))
        agent = agents(1)
        [handler] = await agent.recover()
        assert str(await handler) == "0: a"
        assert len(await agent.session("ann").messages()) == 2

    async def test_a_message_that_waits_takes_an_interrupted_turn_up(self, agents: Made) -> None:
        await self.interrupted(agents(0, self.never))
        assert str(await agents(1).run("b", session="ann", if_busy="wait")) == "2: b"

    async def test_a_message_does_not_wait_for_a_turn_that_cannot_be_taken_up(self, agents: Made) -> None:
        await self.interrupted(agents(0, self.never, deps_type=Counted), deps=Counted())
        chat = agents(1, deps_type=Counted).session("ann")
        async with asyncio.timeout(30):
            with pytest.raises(
                SessionBusyError, match=r"ann:1' is interrupted. .*cannot take it up: Run 'ann:1' .* needs"
            ):
                await chat.run("b", if_busy="wait", deps=Counted())
        handler = await chat.resume(deps=Counted())
        assert handler is not None
        assert str(await handler) == "0: a"
        assert str(await chat.run("b", if_busy="wait", deps=Counted())) == "2: b"

    async def test_a_repeated_request_takes_its_turn_up(self, agents: Made) -> None:
        await self.interrupted(agents(0, self.never), request_id="m1")
        handler = agents(1).run("a", session="ann", request_id="m1")
        assert str(await handler) == "0: a"
        assert handler.run_id == "ann:1"

    async def test_metadata_and_session_are_known_after_a_takeover(self, agents: Made) -> None:
        seen: list[RunInfo] = []

        def make(info: RunInfo) -> str:
            seen.append(info)
            return "deps"

        options = {"deps_type": str, "deps_for": make}
        await self.interrupted(agents(0, self.never, **options), metadata={"user": "ann"})
        [handler] = await agents(1, **options).recover()
        await handler
        assert [(one.session, dict(one.metadata)) for one in seen] == [("ann", {"user": "ann"})] * 2

    async def test_a_session_of_another_workflow_is_refused(self, agents: Made) -> None:
        await agents(0).run("a", session="ann")
        other = agents(1, workflow_name="Other")
        with pytest.raises(RunInputMismatchError, match="Session 'ann' belongs to workflow"):
            await other.run("b", session="ann")
        with pytest.raises(RunInputMismatchError, match="Session 'ann' belongs to workflow"):
            await other.session("ann").undo()

    async def test_a_turn_that_waits_in_the_store_can_be_cancelled(self, agents: Made) -> None:
        @tool(requires_approval=True)
        def publish(title: str) -> str:
            """Publish."""
            return f"published {title}"

        first = agents(0, [tool_call("publish", title="Tides")], tools=[publish], idle_release=0.0)
        handler = first.run("Publish.", session="ann")
        while not handler.is_released:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        second = agents(1, tools=[publish])
        answer = str(await second.run("Stop.", session="ann", if_busy="cancel"))
        assert answer == "2: Stop."
        messages = await second.session("ann").messages()
        assert "- publish(title='Tides'): not made; it waited for an approval" in messages[1].content
        with pytest.raises(WorkflowCancelledByUser):
            await handler

    async def test_a_turn_that_waits_in_the_store_can_be_answered(self, agents: Made) -> None:
        @tool(requires_approval=True)
        def publish(title: str) -> str:
            """Publish."""
            return f"published {title}"

        call = [tool_call("publish", title="Tides")]
        first = agents(0, call, "Done.", tools=[publish], idle_release=0.0)
        handler = first.run("Publish.", session="ann")
        while not handler.is_released:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        second = agents(1, "Done.", tools=[publish])
        with pytest.raises(SessionBusyError, match=r"is waiting. It waits for an answer to ApprovalRequired"):
            await second.run("b", session="ann")
        chat = await second.session("ann").resume()
        assert chat is not None
        request = await anext(aiter(chat.approvals()))
        request.approve()
        assert str(await chat) == "Done."
        assert len(await second.session("ann").messages()) == 4
        assert str(await handler) == "Done."
