"""ChatMemoryBuffer: the newest messages that fit, never torn apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonflow.agents.memory import ChatMemoryBuffer
from batonflow.llms import ChatMessage, MessageRole, ScriptedLLM

ROLES = (MessageRole.USER, MessageRole.ASSISTANT, MessageRole.TOOL)


def message(role: MessageRole, size: int) -> ChatMessage:
    return ChatMessage("x" * size, role=role)


def test_everything_is_shown_while_it_fits() -> None:
    memory = ChatMemoryBuffer.from_defaults(chat_history=[message(MessageRole.USER, 40)] * 3, token_limit=30)
    assert len(memory.get()) == 3


def test_the_oldest_are_left_out_but_kept() -> None:
    memory = ChatMemoryBuffer.from_defaults(chat_history=[message(MessageRole.USER, 40)] * 4, token_limit=30)
    assert len(memory.get()) == 3
    assert len(memory.get_all()) == 4


def test_what_is_shown_does_not_begin_with_an_answer_or_a_result() -> None:
    history = [
        message(role, 40) for role in (MessageRole.USER, MessageRole.ASSISTANT, MessageRole.TOOL, MessageRole.USER)
    ]
    memory = ChatMemoryBuffer.from_defaults(chat_history=history, token_limit=30)
    assert memory.get() == history[3:]


def test_one_message_that_is_too_long_is_shown_all_the_same() -> None:
    memory = ChatMemoryBuffer.from_defaults(chat_history=[message(MessageRole.USER, 400)], token_limit=10)
    assert len(memory.get()) == 1


def test_the_limit_follows_the_model_or_the_caller() -> None:
    assert ChatMemoryBuffer.from_defaults().token_limit == 3000
    assert ChatMemoryBuffer.from_defaults(llm=ScriptedLLM([], context_window=1000)).token_limit == 750
    assert ChatMemoryBuffer.from_defaults(token_limit=7).token_limit == 7
    with pytest.raises(ValueError, match="token_limit must be at least 1"):
        ChatMemoryBuffer.from_defaults(token_limit=0)


def test_a_tokenizer_of_your_own_counts() -> None:
    memory = ChatMemoryBuffer.from_defaults(
        chat_history=[ChatMessage("one two three"), ChatMessage("four")], token_limit=2, tokenizer_fn=str.split
    )
    assert [shown.content for shown in memory.get()] == ["four"]


def test_a_count_beyond_the_limit_is_an_error() -> None:
    with pytest.raises(ValueError, match="Initial token count exceeds token limit: 31 of 30"):
        ChatMemoryBuffer(token_limit=30).get(initial_token_count=31)


@given(st.lists(st.tuples(st.sampled_from(ROLES), st.integers(0, 60))), st.integers(1, 40))
def test_what_is_shown_is_the_end_of_what_is_kept(history: list[tuple[MessageRole, int]], limit: int) -> None:
    messages = [message(role, size) for role, size in history]
    memory = ChatMemoryBuffer.from_defaults(chat_history=messages, token_limit=limit)
    shown = memory.get()
    assert shown == (messages[-len(shown) :] if shown else [])
    assert bool(shown) == bool(messages)
    assert ChatMemoryBuffer.from_string(memory.to_string()).get() == shown


async def test_the_async_forms_do_the_same() -> None:
    memory = ChatMemoryBuffer()
    await memory.aput_messages([ChatMessage("a"), ChatMessage("b")])
    assert (
        [kept.content for kept in await memory.aget_all()]
        == ["a", "b"]
        == [kept.content for kept in await memory.aget()]
    )
    await memory.aset([ChatMessage("c")])
    assert [kept.content for kept in memory.get_all()] == ["c"]
    await memory.areset()
    assert memory.get_all() == []
