"""The checker of requests: what it lets through, and what it must refuse."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.llms.rules import BrokenRule, check, check_anthropic, check_chat, check_responses


def text(role: str, said: str | None = "Hello.") -> dict[str, Any]:
    return {"role": role, "content": said}


def cases(*some: tuple[str, str, list[dict[str, Any]]]) -> Callable[[Any], Any]:
    """Parameters ``(words, messages)``, each under a name."""
    return pytest.mark.parametrize(("words", "messages"), [one[1:] for one in some], ids=[one[0] for one in some])


def fine(**some: list[dict[str, Any]]) -> Callable[[Any], Any]:
    return pytest.mark.parametrize("messages", some.values(), ids=[one.replace("_", " ") for one in some])


class TestChat:
    @staticmethod
    def calls(*ids: str, said: str | None = None) -> dict[str, Any]:
        function = {"name": "add", "arguments": "{}"}
        calls = [{"id": one, "type": "function", "function": function} for one in ids]
        return {"role": "assistant", "content": said, "tool_calls": calls}

    @staticmethod
    def result(call_id: str, said: str | None = "3") -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": call_id, "content": said}

    @fine(
        no_calls=[text("system"), text("user"), text("assistant"), text("user")],
        one_call=[text("user"), calls("a"), result("a")],
        calls_in_parallel=[text("user"), calls("a", "b", "c", said="Wait."), result("a"), result("b"), result("c")],
        the_same_id_in_two_answers=[text("user"), calls("a"), result("a"), calls("a"), result("a"), text("user")],
        an_empty_answer=[text("user"), text("assistant", ""), text("user")],
    )
    def test_fine(self, messages: list[dict[str, Any]]) -> None:
        check_chat({"messages": messages})

    @cases(
        ("nothing", "messages: there are none", []),
        ("missing", r"messages\[1\]: 'b' has no result", [text("user"), calls("a", "b"), result("a")]),
        ("all missing", r"messages\[1\]: 'a' has no result", [text("user"), calls("a"), text("user")]),
        ("missing at the end", r"messages\[1\]: 'a' has no result", [text("user"), calls("a")]),
        ("doubled", r"messages\[1\]: 'a' has two results", [text("user"), calls("a"), result("a"), result("a")]),
        ("swapped", r"messages\[1\]: .*order", [text("user"), calls("a", "b"), result("b"), result("a")]),
        ("orphan", r"messages\[1\]: the result 'a'", [text("user"), result("a")]),
        (
            "of another call",
            r"messages\[1\]: result 1 answers 'x'",
            [text("user"), calls("a"), result("a"), result("x")],
        ),
        ("late", r"messages\[0\]: 'a' has no result", [calls("a"), text("user"), result("a")]),
        ("behind an answer", r"messages\[0\]: 'a' has no result", [calls("a"), text("assistant"), result("a")]),
        (
            "text among results",
            r"messages\[0\]: 'b' has no result",
            [calls("a", "b"), result("a"), text("user"), result("b")],
        ),
        ("repeated later", r"messages\[3\]: the result 'a'", [calls("a"), result("a"), text("user"), result("a")]),
        ("one id twice", r"messages\[0\]: the id 'a' names two", [calls("a", "a"), result("a"), result("a")]),
        ("no id", r"messages\[0\]: call 0 has no id", [calls(""), result("")]),
        ("no calls in the list", r"messages\[0\]: tool_calls is empty", [calls(), text("user")]),
        ("nothing said", r"messages\[1\]: an assistant's message", [text("user"), text("assistant", None)]),
        ("nothing asked", r"messages\[0\]: a message of the user without content", [text("user", None)]),
        ("a result without content", r"messages\[1\]: the result 'a' has no content", [calls("a"), result("a", None)]),
        ("wrong role", r"messages\[0\]: there is no role 'function'", [text("function")]),
        (
            "arguments that are no text",
            r"messages\[0\]: call 0, 'a'",
            [{**calls("a"), "tool_calls": [{"id": "a", "type": "function", "function": {"name": "add"}}]}, result("a")],
        ),
    )
    def test_refused(self, words: str, messages: list[dict[str, Any]]) -> None:
        with pytest.raises(BrokenRule, match=words):
            check_chat({"messages": messages})


class TestResponses:
    @staticmethod
    def call(call_id: str) -> dict[str, Any]:
        return {"type": "function_call", "call_id": call_id, "name": "add", "arguments": "{}"}

    @staticmethod
    def result(call_id: str, said: str | None = "3") -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": call_id, "output": said}

    thought = {"type": "reasoning", "id": "r", "summary": []}

    @fine(
        no_calls=[text("developer"), text("user"), text("assistant"), text("user")],
        one_call=[text("user"), text("assistant"), call("a"), result("a")],
        calls_in_parallel=[text("user"), call("a"), call("b"), result("a"), result("b")],
        thoughts_among_calls=[text("user"), thought, call("a"), thought, call("b"), result("a"), result("b")],
        one_answer_after_the_other=[text("user"), call("a"), result("a"), call("b"), result("b"), text("user")],
    )
    def test_fine(self, messages: list[dict[str, Any]]) -> None:
        check_responses({"input": messages})

    @cases(
        ("nothing", "input: it is empty", []),
        ("missing", r"input\[1\]: 'b' has no result", [text("user"), call("a"), call("b"), result("a")]),
        ("missing at the end", r"input\[1\]: 'a' has no result", [text("user"), call("a")]),
        ("doubled", r"input\[0\]: 'a' has two results", [call("a"), result("a"), result("a")]),
        ("swapped", r"input\[0\]: .*order", [call("a"), call("b"), result("b"), result("a")]),
        ("a thought alone", r"input\[1\]: the thought 'r' is without", [text("user"), thought, text("user")]),
        ("a thought at the end", r"input\[2\]: the thought", [text("user"), text("assistant"), thought]),
        ("a thought before a result", r"input\[1\]: the thought", [call("a"), thought, result("a")]),
        ("orphan", r"input\[1\]: the result 'a'", [text("user"), result("a")]),
        ("of another call", r"input\[0\]: result 1 answers 'x'", [call("a"), result("a"), result("x")]),
        ("late", r"input\[0\]: 'a' has no result", [call("a"), text("user"), result("a")]),
        ("behind an answer", r"input\[0\]: 'a' has no result", [call("a"), text("assistant"), result("a")]),
        ("text among results", r"input\[0\]: 'b'", [call("a"), call("b"), result("a"), text("user"), result("b")]),
        ("one id twice", r"input\[0\]: the id 'a' names two", [call("a"), call("a"), result("a"), result("a")]),
        ("no id", r"input\[0\]: call 0 has no id", [call(""), result("")]),
        ("no output", r"input\[1\]: the result 'a' has no output", [call("a"), result("a", None)]),
        ("no arguments", r"input\[0\]: the call 'a'", [{**call("a"), "arguments": {}}, result("a")]),
        ("wrong role", r"input\[0\]: there is no role 'tool'", [text("tool")]),
        ("nothing said", r"input\[0\]: a message without content", [text("assistant", None)]),
    )
    def test_refused(self, words: str, messages: list[dict[str, Any]]) -> None:
        with pytest.raises(BrokenRule, match=words):
            check_responses({"input": messages})


class TestAnthropic:
    @staticmethod
    def said(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
        return {"role": role, "content": list(blocks)}

    @staticmethod
    def words(some: str = "Hello.") -> dict[str, Any]:
        return {"type": "text", "text": some}

    @staticmethod
    def call(call_id: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": call_id, "name": "add", "input": {}}

    @staticmethod
    def result(call_id: str) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "text", "text": "3"}]}

    @fine(
        no_calls=[text("user"), text("assistant"), text("user")],
        one_call=[text("user"), said("assistant", words(), call("a")), said("user", result("a"))],
        calls_in_parallel=[
            text("user"),
            said("assistant", call("a"), call("b")),
            said("user", result("a"), result("b"), words()),
        ],
        one_answer_after_the_other=[
            text("user"),
            said("assistant", call("a")),
            said("user", result("a")),
            said("assistant", call("b")),
            said("user", result("b")),
        ],
    )
    def test_fine(self, messages: list[dict[str, Any]]) -> None:
        check_anthropic({"messages": messages})

    @cases(
        ("nothing", "messages: there are none", []),
        (
            "missing",
            r"messages\[2\]: 'b' has no result",
            [text("user"), said("assistant", call("a"), call("b")), said("user", result("a"))],
        ),
        ("all missing", r"messages\[2\]: 'a' has no", [text("user"), said("assistant", call("a")), text("user")]),
        ("missing at the end", r"messages\[1\]: 'a' has no result", [text("user"), said("assistant", call("a"))]),
        (
            "doubled",
            r"messages\[2\]: 'a' has two results",
            [text("user"), said("assistant", call("a")), said("user", result("a"), result("a"))],
        ),
        (
            "swapped",
            r"messages\[2\]: .*order",
            [text("user"), said("assistant", call("a"), call("b")), said("user", result("b"), result("a"))],
        ),
        ("orphan", r"messages\[0\]: result 0 answers 'a'", [said("user", result("a"))]),
        (
            "of another call",
            r"messages\[2\]: result 1 answers 'x'",
            [text("user"), said("assistant", call("a")), said("user", result("a"), result("x"))],
        ),
        (
            "late",
            r"messages\[2\]: 'a' has no result",
            [text("user"), said("assistant", call("a")), text("user"), text("assistant"), said("user", result("a"))],
        ),
        (
            "text before results",
            r"messages\[2\]: something stands before block 1, result 'a'",
            [text("user"), said("assistant", call("a")), said("user", words(), result("a"))],
        ),
        (
            "text among results",
            r"messages\[2\]: something stands before block 2, result 'b'",
            [text("user"), said("assistant", call("a"), call("b")), said("user", result("a"), words(), result("b"))],
        ),
        (
            "one id twice",
            r"messages\[1\]: the id 'a' names two",
            [text("user"), said("assistant", call("a"), call("a"))],
        ),
        (
            "the same id in two answers",
            r"messages\[3\]: the id 'a' names a call of messages\[1\] too",
            [text("user"), *[said("assistant", call("a")), said("user", result("a"))] * 2],
        ),
        ("a clumsy id", r"messages\[1\]: block 0 has the id 'a:1'", [text("user"), said("assistant", call("a:1"))]),
        ("no id", r"messages\[1\]: block 0 has the id ''", [text("user"), said("assistant", call(""))]),
        ("the assistant first", r"messages\[0\]: the role is 'assistant'", [text("assistant"), text("user")]),
        ("two users", r"messages\[1\]: the role is 'user'", [text("user"), text("user")]),
        ("wrong role", r"messages\[1\]: the role is 'tool'", [text("user"), said("tool", result("a"))]),
        ("the assistant last", r"messages\[1\]: the assistant speaks last", [text("user"), text("assistant")]),
        ("a call by the user", r"messages\[0\]: block 0, 'a', is a call by the user", [said("user", call("a"))]),
        ("a result by the assistant", r"messages\[1\]: .*assistant's", [text("user"), said("assistant", result("a"))]),
        ("an empty text", r"messages\[0\]: block 1 is an empty text", [said("user", words(), words(" "))]),
        ("no content", r"messages\[0\]: a message without content", [said("user")]),
        (
            "an input that is no object",
            r"messages\[1\]: the call 'a'",
            [text("user"), said("assistant", {**call("a"), "input": "{}"})],
        ),
    )
    def test_refused(self, words: str, messages: list[dict[str, Any]]) -> None:
        with pytest.raises(BrokenRule, match=words):
            check_anthropic({"messages": messages})


class TestByPath:
    @pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
    def test_it_chooses_the_rules(self, path: str) -> None:
        check(path, {"messages": [text("user")]})
        with pytest.raises(BrokenRule):
            check(path, {"messages": [text("user"), text("tool")]})

    def test_responses(self) -> None:
        with pytest.raises(BrokenRule):
            check("/v1/responses", {"input": [TestResponses.call("a")]})

    def test_an_unknown_path_is_no_pass(self) -> None:
        with pytest.raises(ValueError, match="no rules for /v1/completions"):
            check("/v1/completions", {})


@pytest.mark.parametrize("name", ["", "functions.add", "add numbers", None])
def test_names_that_are_none_of_a_function(name: str | None) -> None:
    chat = TestChat.calls("a")
    chat["tool_calls"][0]["function"]["name"] = name
    item = {"type": "function_call", "call_id": "a", "name": name, "arguments": "{}"}
    block = {"type": "tool_use", "id": "a", "name": name, "input": {}}
    for rules, body in (
        (check_chat, {"messages": [text("user"), chat, TestChat.result("a")]}),
        (check_responses, {"input": [text("user"), item]}),
        (check_anthropic, {"messages": [text("user"), {"role": "assistant", "content": [block]}]}),
    ):
        with pytest.raises(BrokenRule, match="is no name of a function"):
            rules(body)
