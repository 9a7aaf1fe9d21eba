"""The form in which OpenAI's Responses take a conversation."""

from typing import Any

from batonflow.llms import ChatMessage, NativeBlock, TextBlock, ThinkingBlock, ToolCallBlock
from batonflow.llms.openai_responses import responses_input
from tests.llms.rules import check_responses


def thought(name: str) -> ThinkingBlock:
    return ThinkingBlock(additional_information={"id": name, "encrypted_content": "sealed"})


def said(*blocks: Any) -> ChatMessage:
    return ChatMessage(list(blocks), role="assistant")


def kinds(*messages: ChatMessage) -> list[str]:
    """What is sent: the roles of messages, the types of other items, the ids of thoughts."""
    items = responses_input(messages)
    check_responses({"input": items})
    return [one["id"] if one.get("type") == "reasoning" else one.get("role") or one["type"] for one in items]


ASK, CALL = ChatMessage("What is 2 + 40?"), ToolCallBlock(tool_call_id="c", tool_name="add", tool_kwargs={})
RESULT = ChatMessage("42", role="tool", additional_kwargs={"tool_call_id": "c"})


class TestThoughts:
    def test_they_go_back_with_what_they_led_to(self) -> None:
        searched = NativeBlock(vendor="openai", data={"type": "web_search_call", "id": "ws"})
        assert kinds(ASK, said(thought("r1"), TextBlock(text="42"))) == ["user", "r1", "assistant"]
        assert kinds(ASK, said(thought("r1"), thought("r2"), TextBlock(text="42"))) == ["user", "r1", "r2", "assistant"]
        assert kinds(ASK, said(thought("r1"), searched, thought("r2"), CALL), RESULT) == [
            *("user", "r1", "web_search_call", "r2", "function_call", "function_call_output")
        ]

    def test_those_of_an_answer_that_was_cut_off_before_it_said_anything_are_left_out(self) -> None:
        assert kinds(ASK, said(thought("r1"), thought("r2")), ASK) == ["user", "user"]
        assert kinds(ASK, said(thought("r1"))) == ["user"]
        assert kinds(ASK, said(thought("r1"), TextBlock(text="")), ASK) == ["user", "user"]

    def test_so_are_those_behind_the_last_that_it_said(self) -> None:
        assert kinds(ASK, said(thought("r1"), TextBlock(text="4"), thought("r2")), ASK) == [
            *("user", "r1", "assistant", "user")
        ]
        assert kinds(ASK, said(thought("r1"), CALL, thought("r2")), RESULT) == [
            *("user", "r1", "function_call", "function_call_output")
        ]

    def test_an_answer_that_was_kept_in_two_messages_stays_whole(self) -> None:
        assert kinds(ASK, said(thought("r1")), said(CALL), RESULT) == [
            *("user", "r1", "function_call", "function_call_output")
        ]


class TestIdsOfCalls:
    LONG = "mcp_calendar.search_events_" + "0123456789" * 5

    def sent(self, *ids: str, official: bool = True) -> list[str]:
        """The ids of calls and, behind them, of their results."""
        calls = [ToolCallBlock(tool_call_id=one, tool_name="add", tool_kwargs={}) for one in ids]
        told = [ChatMessage("42", role="tool", additional_kwargs={"tool_call_id": one}) for one in ids]
        items = responses_input([ASK, said(*calls), *told], official)
        check_responses({"input": items})
        return [one["call_id"] for one in items if "call_id" in one]

    def test_those_that_are_too_long_for_the_vendor_are_shortened_one_to_one(self) -> None:
        first, second, short, *results = self.sent(f"{self.LONG}a", f"{self.LONG}b", "c" * 64)
        assert results == [first, second, short]
        assert (len(first), len(second), short) == (64, 64, "c" * 64)
        assert first != second
        assert self.sent(f"{self.LONG}a") == [first, first]

    def test_other_servers_get_theirs_back(self) -> None:
        assert self.sent(self.LONG, official=False) == [self.LONG] * 2
