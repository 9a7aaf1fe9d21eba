"""Window: asked again and again while a conversation grows, it says what looking at all of it would say."""

from hypothesis import given
from hypothesis import strategies as st

from batonflow.agents.memory.turns import Window, cuts, first_shown
from batonflow.llms import ChatMessage
from tests.agents.memory.conversations import called, conversations, of_size, result


def size(message: ChatMessage) -> int:
    return 1 + len(message.content or "") // 4


def expected(messages: list[ChatMessage], room: int, flush: int) -> int:
    return first_shown([size(message) for message in messages], cuts(messages), room, flush)


@given(conversations(), st.data(), st.integers(1, 150), st.integers(1, 40))
def test_a_growing_conversation(conversation: list[ChatMessage], data: st.DataObject, room: int, flush: int) -> None:
    window, end = Window(), 0
    while end < len(conversation):
        end = data.draw(st.integers(end + 1, len(conversation)), label="asked at")
        messages = conversation[:end]
        assert window.start(messages, size, room, flush) == expected(messages, room, flush)
        assert window.start(messages, size, room, flush) == expected(messages, room, flush), "asked twice"


@given(conversations(), conversations(), st.integers(1, 150))
def test_another_conversation(one: list[ChatMessage], other: list[ChatMessage], room: int) -> None:
    window = Window()
    window.start(one, size, room, 10)
    assert window.start(other, size, room, 10) == expected(other, room, 10)


def test_other_limits() -> None:
    conversation, window = [of_size("user", 20) for _ in range(9)], Window()
    starts = [window.start(conversation, size, room, 1) for room in (200, 50, 200)]
    assert starts == [expected(conversation, room, 1) for room in (200, 50, 200)]
    assert len(set(starts)) == 2


def test_a_result_that_comes_late_takes_back_a_cut() -> None:
    window, room = Window(), 12
    conversation = [of_size("user", 1), called("1"), of_size("user", 40)]
    assert window.start(conversation, size, room, 1) == 2
    conversation.append(result("1"))
    assert window.start(conversation, size, room, 1) == expected(conversation, room, 1) == 0


def test_messages_that_were_looked_at_are_not_counted_again() -> None:
    counted: list[ChatMessage] = []

    def count(message: ChatMessage) -> int:
        counted.append(message)
        return 1

    window, conversation = Window(), [of_size("user", 1) for _ in range(50)]
    window.start(conversation, count, 1000, 1)
    for _ in range(5):
        conversation.append(of_size("assistant", 1))
        window.start(conversation, count, 1000, 1)
    assert len(counted) == 55
