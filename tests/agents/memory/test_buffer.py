"""ChatMemoryBuffer: the newest messages that fit, never torn apart."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from batonflow.agents.memory import ChatMemoryBuffer, SimpleChatStore, SQLiteChatStore
from batonflow.agents.memory.turns import as_shown, is_observation
from batonflow.llms import ChatMessage, ImageBlock, MessageRole, ScriptedLLM
from batonflow.workflow_core import JsonSerializer
from tests.agents.memory.conversations import called, conversations, of_size, result, shows_whole_calls


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


def test_tokens_that_are_taken_leave_less_room() -> None:
    memory = ChatMemoryBuffer.from_defaults(chat_history=[message(MessageRole.USER, 40)] * 3, token_limit=30)
    assert [len(memory.get(initial_token_count=taken)) for taken in (0, 1, 10, 11, 30)] == [3, 2, 2, 1, 1]


def test_a_count_beyond_the_limit_is_an_error() -> None:
    with pytest.raises(ValueError, match="Initial token count exceeds token limit: 31 of 30"):
        ChatMemoryBuffer(token_limit=30).get(initial_token_count=31)


def test_the_newest_turn_is_shown_whole_even_if_it_is_too_long() -> None:
    turn = [message(MessageRole.USER, 40), called("1"), result("1", 100), message(MessageRole.ASSISTANT, 40)]
    memory = ChatMemoryBuffer.from_defaults(chat_history=[message(MessageRole.USER, 40), *turn], token_limit=30)
    assert memory.get() == turn


@given(conversations(), st.integers(1, 150), st.integers(0, 150))
def test_what_is_shown_is_the_end_of_what_is_kept_with_whole_calls(
    conversation: list[ChatMessage], limit: int, taken: int
) -> None:
    memory = ChatMemoryBuffer.from_defaults(chat_history=conversation, token_limit=limit)
    shown = memory.get(initial_token_count=min(taken, limit))
    assert shown == as_shown(conversation)[len(conversation) - len(shown) :]
    assert bool(shown) == bool(conversation)
    assert shows_whole_calls(shown, conversation)
    if len(shown) < len(conversation):
        assert shown[0].role in ("user", "system")
        assert not is_observation(conversation[-len(shown)])
    assert ChatMemoryBuffer.from_string(memory.to_string()).get(initial_token_count=min(taken, limit)) == [
        ChatMessage.model_validate(message.model_dump(mode="json")) for message in shown
    ]


def test_the_beginning_of_what_is_shown_stays_for_a_tenth_of_the_limit() -> None:
    memory = ChatMemoryBuffer(token_limit=1000)
    beginnings: list[str | None] = []
    for number in range(200):
        memory.put(of_size("user", 10, str(number)))
        beginnings.append(memory.get()[0].content)
    changes = sum(one != other for one, other in pairwise(beginnings))
    assert changes == 10  # 2,000 tokens, of which the last 1,000 are shown: a tenth of the limit leaves at a time


def test_how_much_leaves_at_a_time_may_be_chosen() -> None:
    memory = ChatMemoryBuffer.from_defaults(
        chat_history=[of_size("user", 10) for _ in range(11)], token_limit=100, token_flush_size=50
    )
    assert len(memory.get()) == 6


class TestPersistence:
    def test_survives_every_form_of_json(self) -> None:
        memory = ChatMemoryBuffer.from_defaults(
            chat_history=[ChatMessage("hi"), called("1"), result("1")], token_limit=70, chat_store_key="ann"
        )
        serializer = JsonSerializer()
        for again in (
            ChatMemoryBuffer.from_string(memory.to_string()),
            ChatMemoryBuffer.from_dict(json.loads(json.dumps(memory.to_dict()))),
            serializer.deserialize(serializer.serialize(memory)),
        ):
            assert again == memory

    def test_a_store_shared_with_others_is_written_without_what_is_theirs(self) -> None:
        store = SimpleChatStore()
        ann, ben = (ChatMemoryBuffer(chat_store=store, chat_store_key=name) for name in ("ann", "ben"))
        ann.put(ChatMessage("a secret"))
        ben.put(ChatMessage("hello"))
        assert "a secret" not in ben.to_string()
        assert store.get_keys() == ["ann", "ben"]

    def test_of_messages_of_a_class_of_their_own_what_every_message_has_is_written(self) -> None:
        class Noted(ChatMessage):
            note: object = None

        memory = ChatMemoryBuffer.from_defaults(chat_history=[Noted("hello", note=object())])
        serializer = JsonSerializer()
        for again in (
            ChatMemoryBuffer.from_dict(memory.to_dict()),
            serializer.deserialize(serializer.serialize(memory)),
        ):
            assert again.get() == [ChatMessage("hello")]

    @pytest.mark.parametrize("option", ["exclude_unset", "exclude_defaults", "exclude_none", "round_trip"])
    def test_options_of_who_writes_it_leave_it_readable(self, option: str) -> None:
        memory = ChatMemoryBuffer.from_defaults(chat_history=[ChatMessage([ImageBlock(image=b"GIF89a")])])
        for written in (memory.model_dump(**{option: True}), json.loads(memory.model_dump_json(**{option: True}))):
            assert ChatMemoryBuffer.from_dict(json.loads(json.dumps(written))) == memory

    def test_messages_in_a_file_are_not_in_the_dump(self, tmp_path: Path) -> None:
        memory = ChatMemoryBuffer.from_defaults(
            chat_history=[ChatMessage("hello")], chat_store=tmp_path / "chats.db", chat_store_key="ann"
        )
        assert isinstance(memory.chat_store, SQLiteChatStore)
        assert "hello" not in memory.to_string()
        again = ChatMemoryBuffer.from_string(memory.to_string())
        again.put(ChatMessage("there"))
        assert [one.content for one in memory.get()] == ["hello", "there"]

    def test_data_that_name_an_unknown_store_are_refused(self) -> None:
        data = {**ChatMemoryBuffer().to_dict(), "chat_store": {"class_name": "somewhere.RedisChatStore"}}
        with pytest.raises(ValidationError, match=r"somewhere\.RedisChatStore, which is not a loaded BaseChatStore"):
            ChatMemoryBuffer.from_dict(data)


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


def test_what_llamaindex_has_kept_is_read() -> None:
    said = {"role": "user", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": "I am Ann"}]}
    kept = {"chat_store_key": "chat_history", "token_limit": 3000, "class_name": "ChatMemoryBuffer"}
    store = {"store": {"chat_history": [said]}, "class_name": "SimpleChatStore"}
    for data in ({**kept, "chat_store": store}, {**kept, "chat_history": [said]}):
        assert ChatMemoryBuffer.from_dict(data).get() == [ChatMessage("I am Ann")]
        assert ChatMemoryBuffer.from_string(json.dumps(data)).token_limit == 3000
    with pytest.raises(ValueError, match="The data names LostStore, which is not a loaded BaseChatStore"):
        ChatMemoryBuffer.from_dict({**kept, "chat_store": {**store, "class_name": "LostStore"}})
