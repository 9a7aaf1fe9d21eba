"""ChatSummaryMemoryBuffer: what no longer fits is summed up."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonflow.agents.memory import BaseMemory, ChatSummaryMemoryBuffer
from batonflow.agents.memory.turns import as_shown
from batonflow.llms import ChatMessage, ScriptedLLM
from batonflow.llms.errors import RateLimitError
from batonflow.llms.stream import ChatRequest
from batonflow.workflow_core import JsonSerializer
from tests.agents.memory.conversations import called, conversations, of_size, result, shows_whole_calls


def numbered(request: ChatRequest) -> str:
    """A model that writes ever new summaries."""
    return f"Summary of {len(request.messages[-1].content or '')} characters"


def contents(messages: list[ChatMessage]) -> list[str]:
    return [(message.content or "").rstrip(".") for message in messages]


def talk(memory: BaseMemory, *marks: str, tokens: int = 10) -> None:
    for mark in marks:
        memory.put(of_size("user" if mark.startswith("q") else "assistant", tokens, mark))


def test_everything_is_shown_while_it_fits_and_the_model_is_not_asked() -> None:
    llm = ScriptedLLM([])
    memory = ChatSummaryMemoryBuffer.from_defaults(llm=llm, token_limit=40)
    talk(memory, "q1", "a1", "q2", "a2")
    assert contents(memory.get()) == ["q1", "a1", "q2", "a2"]
    assert memory.get_token_count() == 40


def test_what_falls_out_is_summed_up_in_a_system_message() -> None:
    llm = ScriptedLLM(["Earlier: q1."])
    memory = ChatSummaryMemoryBuffer.from_defaults(llm=llm, token_limit=40)
    talk(memory, "q1", "a1", "q2", "a2", "q3")
    shown = memory.get()
    assert contents(shown) == ["Earlier: q1", "q2", "a2", "q3"]
    assert shown[0].role == "system"
    assert contents(memory.get_all()) == ["q1", "a1", "q2", "a2", "q3"]
    assert memory.get_token_count() == 33
    instruction, task = llm.requests[0].messages
    assert (instruction.role, task.role) == ("system", "user")
    assert "user: q1" in task.content
    assert "assistant: a1" in task.content
    assert "q2" not in task.content


def test_the_next_summary_is_made_from_the_one_before_and_what_falls_out_now() -> None:
    llm = ScriptedLLM(["The first.", "The second."])
    memory = ChatSummaryMemoryBuffer.from_defaults(llm=llm, token_limit=40, summarize_prompt="Sum up.")
    talk(memory, "q1", "a1", "q2", "a2", "q3")
    assert memory.get()[0].content == "The first."
    talk(memory, "a3", "q4")
    assert contents(memory.get()) == ["The second", "q3", "a3", "q4"]
    instruction, task = llm.requests[1].messages
    assert instruction.content == "Sum up."
    assert "The first." in task.content
    assert "q2" in task.content
    assert "q1" not in task.content


def test_the_summary_takes_room_too() -> None:
    memory = ChatSummaryMemoryBuffer.from_defaults(llm=ScriptedLLM(["s" * 60, "t" * 60]), token_limit=40)
    talk(memory, "q1", "a1", "q2", "a2", "q3")
    memory.get()
    assert contents(memory.get()) == ["t" * 60, "q3"]


def test_looking_again_asks_nobody_and_shows_the_same() -> None:
    llm = ScriptedLLM(["Once."])
    memory = ChatSummaryMemoryBuffer.from_defaults(llm=llm, token_limit=20)
    talk(memory, "q1", "a1", "q2")
    assert memory.get() == memory.get()


def test_calls_and_results_are_in_the_transcript() -> None:
    llm = ScriptedLLM(["Done."])
    history = [of_size("user", 5), called("1"), called("2", form="data"), result("1"), result("2"), of_size("user", 5)]
    ChatSummaryMemoryBuffer.from_defaults(chat_history=history, llm=llm, token_limit=8).get()
    assert (llm.requests[0].messages[1].content or "").count("calls") == 2


def test_without_a_model_the_oldest_are_left_out() -> None:
    memory = ChatSummaryMemoryBuffer.from_defaults(token_limit=30)
    talk(memory, "q1", "a1", "q2", "a2")
    assert contents(memory.get()) == ["q2", "a2"]
    assert len(memory.get_all()) == 4


def test_tokens_that_are_taken_count_when_asked_to() -> None:
    memory = ChatSummaryMemoryBuffer.from_defaults(token_limit=40)
    talk(memory, "q1", "a1", "q2", "a2")
    assert len(memory.get(initial_token_count=1000)) == 4
    memory.count_initial_tokens = True
    assert len(memory.get(initial_token_count=10)) == 2
    assert memory.get_token_count() == 30
    with pytest.raises(ValueError, match="Initial token count exceeds token limit: 41 of 40"):
        memory.get(initial_token_count=41)


def test_a_model_that_fails_changes_nothing_and_is_asked_again() -> None:
    memory = ChatSummaryMemoryBuffer.from_defaults(
        llm=ScriptedLLM([RateLimitError("busy"), "At last."]), token_limit=20
    )
    talk(memory, "q1", "a1", "q2")
    with pytest.raises(RateLimitError):
        memory.get()
    assert contents(memory.get()) == ["At last", "q2"]


async def test_the_model_is_asked_once_by_many_at_a_time() -> None:
    async def slow(request: ChatRequest) -> str:
        await asyncio.sleep(0.01)
        return "Once."

    memory = ChatSummaryMemoryBuffer.from_defaults(llm=ScriptedLLM([slow]), token_limit=20)
    await memory.aput_messages([of_size("user", 10), of_size("assistant", 10), of_size("user", 10)])
    shown = await asyncio.gather(*(memory.aget() for _ in range(5)))
    assert all(one == shown[0] for one in shown)
    assert memory.get() == shown[0]  # also in a synchronous call under a running loop


async def test_new_messages_begin_anew() -> None:
    memory = ChatSummaryMemoryBuffer.from_defaults(llm=ScriptedLLM(["Old.", "Older."]), token_limit=20)
    history = [of_size("user", 10, "q1"), of_size("user", 10, "q2"), of_size("user", 10, "q3")]
    await memory.aset(history)
    assert (await memory.aget())[0].content == "Old."
    await memory.aset([ChatMessage("hello")])
    assert contents(await memory.aget()) == ["hello"]
    memory.set(history)
    assert (await memory.aget())[0].content == "Older."
    await memory.areset()
    assert await memory.aget() == []
    assert memory.summary is None


def test_a_store_that_others_emptied_is_seen() -> None:
    memory = ChatSummaryMemoryBuffer.from_defaults(llm=ScriptedLLM(["Old."]), token_limit=20)
    talk(memory, "q1", "q2", "q3")
    memory.get()
    memory.chat_store.set_messages(memory.chat_store_key, [])
    assert memory.get() == []


class TestSnapshots:
    def test_the_summary_survives_and_a_model_is_lent(self) -> None:
        memory = ChatSummaryMemoryBuffer.from_defaults(llm=ScriptedLLM(["First."]), token_limit=20)
        talk(memory, "q1", "a1", "q2")
        memory.get()
        serializer = JsonSerializer()
        for again in (
            serializer.deserialize(serializer.serialize(memory)),
            ChatSummaryMemoryBuffer.from_dict(json.loads(json.dumps(memory.to_dict()))),
        ):
            assert contents(again.get()) == ["First", "q2"]
            assert again.llm is None
            lent = ScriptedLLM(["Second."])
            again.attach_llm(lent)
            talk(again, "a2", "q3")
            assert contents(again.get()) == ["Second", "q3"]
            assert "First." in (lent.requests[0].messages[1].content or "")

    def test_without_one_it_says_so_and_catches_up_later(self) -> None:
        memory = ChatSummaryMemoryBuffer.from_defaults(llm=ScriptedLLM(["First."]), token_limit=20)
        talk(memory, "q1", "a1", "q2")
        memory.get()
        again = ChatSummaryMemoryBuffer.from_string(memory.to_string())
        talk(again, "a2", "q3")
        with pytest.warns(UserWarning, match=r"leaves messages out without a summary: set memory\.llm"):
            assert contents(again.get()) == ["First", "q3"]
        late = ScriptedLLM(["All of it."])
        again.llm = late
        talk(again, "a3", "q4")
        assert contents(again.get()) == ["All of it", "q4"]
        assert "q2" in (late.requests[0].messages[1].content or "")

    def test_a_model_given_by_name_comes_back(self) -> None:
        memory = ChatSummaryMemoryBuffer.from_defaults(llm="openai:gpt-5.6", token_limit=20)
        again = ChatSummaryMemoryBuffer.from_string(memory.to_string())
        again.attach_llm(ScriptedLLM([]))
        assert again.llm == "openai:gpt-5.6"

    def test_one_that_never_had_a_model_takes_none(self) -> None:
        memory = ChatSummaryMemoryBuffer.from_defaults(token_limit=20)
        memory.attach_llm(ScriptedLLM([]))
        assert memory.llm is None


def test_the_limit_follows_the_model_or_the_caller() -> None:
    assert ChatSummaryMemoryBuffer.from_defaults().token_limit == 2000
    llm = ScriptedLLM([], context_window=1000)
    assert ChatSummaryMemoryBuffer.from_defaults(llm=llm).token_limit == 750
    with pytest.raises(ValueError, match="token_limit must be at least 1"):
        ChatSummaryMemoryBuffer.from_defaults(token_limit=0)


@given(conversations(), st.integers(1, 150), st.booleans())
def test_whole_calls_behind_the_summary_of_the_rest(
    conversation: list[ChatMessage], limit: int, with_model: bool
) -> None:
    turns: list[Any] = [numbered] * len(conversation)
    llm = ScriptedLLM(turns) if with_model else None
    memory = ChatSummaryMemoryBuffer.from_defaults(chat_history=conversation, llm=llm, token_limit=limit)
    shown = memory.get()
    if memory.summary is not None:
        assert shown.pop(0).content == memory.summary
    assert shown == as_shown(conversation)[len(conversation) - len(shown) :]
    assert bool(shown) == bool(conversation)
    assert shows_whole_calls(shown, conversation)
    assert (memory.summary is not None) == (with_model and len(shown) < len(conversation))
