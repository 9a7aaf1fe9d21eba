"""Where a conversation may be cut, and where a window over it begins."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from batonflow.agents.memory.turns import as_shown, cuts, first_shown, is_observation, observation, without_orphans
from batonflow.llms import ChatMessage, MessageRole
from tests.agents.memory.conversations import called, conversations, of_size, result, shows_whole_calls

USER, ASSISTANT, SYSTEM = of_size("user", 1), of_size("assistant", 1), of_size("system", 1)


def test_a_conversation_is_cut_where_the_user_speaks() -> None:
    assert cuts([USER, ASSISTANT, USER, ASSISTANT, USER]) == [2, 4]
    assert cuts([ASSISTANT, ASSISTANT]) == []
    assert cuts([]) == []


def test_system_messages_go_with_the_user_message_after_them() -> None:
    assert cuts([USER, ASSISTANT, SYSTEM, USER, ASSISTANT, SYSTEM, ASSISTANT, SYSTEM]) == [2, 3]


def test_no_conversation_begins_with_what_a_model_observed() -> None:
    told = observation("Result of the code: 42")
    assert cuts([USER, ASSISTANT, told, ASSISTANT, USER, ASSISTANT, SYSTEM, told]) == [4]
    assert told.role == "user"


def test_marks_survive_json_and_are_not_shown() -> None:
    told = observation("42", MessageRole.TOOL)
    told.additional_kwargs["tool_call_id"] = "1"
    again = ChatMessage.model_validate_json(told.model_dump_json())
    assert is_observation(again)
    assert as_shown([USER, again]) == [USER, ChatMessage("42", role="tool", additional_kwargs={"tool_call_id": "1"})]
    assert is_observation(again), "the message that is kept stays as it is"


def test_a_call_is_not_cut_from_a_result_that_comes_after_the_next_question() -> None:
    assert cuts([USER, called("1"), USER, result("1"), USER]) == [4]
    assert cuts([USER, called("1", form="data"), USER, result("1"), USER]) == [4]
    assert cuts([USER, called("1", form="selections"), USER, result("1"), USER]) == [4]


def test_ids_that_are_used_again_belong_to_the_newest_call() -> None:
    assert cuts([USER, called("1"), result("1"), USER, called("1"), result("1"), USER]) == [3, 6]


def test_a_call_without_a_result_keeps_nothing_together() -> None:
    assert cuts([USER, called("1"), USER, ASSISTANT]) == [2]


def test_results_whose_call_is_gone_are_orphans() -> None:
    kept = [USER, called("1"), result("1")]
    assert without_orphans([result("0"), *kept, result("2")]) == kept


def test_the_window_moves_over_a_flush_at_least_and_until_everything_fits() -> None:
    assert first_shown([10, 10, 10, 10], [1, 2, 3], room=30, flush=1) == 1
    assert first_shown([10, 10, 10, 10], [1, 2, 3], room=30, flush=11) == 2
    assert first_shown([10, 10, 10, 25], [1, 2, 3], room=36, flush=1) == 2
    assert first_shown([10, 10, 10, 90], [1, 2, 3], room=30, flush=1) == 3


@given(conversations())
def test_no_cut_parts_a_call_from_its_results(conversation: list[ChatMessage]) -> None:
    for cut in cuts(conversation):
        assert conversation[cut].role in ("user", "system")
        assert not is_observation(conversation[cut])
        assert shows_whole_calls(conversation[cut:], conversation)


@given(conversations(), st.integers(1, 150), st.integers(1, 40))
def test_the_window_moves_only_when_it_must_and_far_enough_to_stay(
    conversation: list[ChatMessage], room: int, flush: int
) -> None:
    tokens = [1 + len(message.content or "") // 4 for message in conversation]
    sizes = [0, *accumulate(tokens)]
    at = cuts(conversation)
    before = 0
    for end in range(1, len(conversation) + 1):
        start = first_shown(tokens[:end], at, room, flush)
        assert start >= before
        if start != before:
            assert sizes[end] - sizes[before] > room, "moved although everything fitted"
            newest = max(cut for cut in at if cut < end)
            assert sizes[start] - sizes[before] >= flush or start == newest, "moved by too little"
        fits = sizes[end] - sizes[start] <= room
        assert fits or start == max((cut for cut in at if cut < end), default=0), "shows more than it must"
        before = start
