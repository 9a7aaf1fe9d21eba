"""The Anthropic adapter, with the real SDK and a server on loopback."""

import copy
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonflow.llms import (
    Anthropic,
    AuthenticationError,
    CachePoint,
    ChatMessage,
    CitableBlock,
    ContextLengthError,
    DocumentBlock,
    ImageBlock,
    IncompleteResponseError,
    InvalidResponseError,
    LLMConfigurationError,
    LLMConnectionError,
    LLMError,
    LLMRequestError,
    NativeBlock,
    OverloadedError,
    RateLimitError,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolSelection,
    Usage,
    llm_from,
)
from batonflow.llms.anthropic import anthropic_messages
from batonflow.llms.blocks import CacheControl
from tests.llms.loopback import Answer, Loopback, loopback, pieces
from tests.llms.rules import check_anthropic

ASK = [ChatMessage("Be brief.", role="system"), ChatMessage("What is 2 + 40?")]
ADD = {
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
}


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one, ensure_ascii=False)}\n\n".encode() for one in events)


START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test-1",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 5,
            "cache_creation_input_tokens": 2,
            "output_tokens": 1,
        },
    },
}


def begin(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **content: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **content}}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def end(reason: str) -> list[dict[str, Any]]:
    return [
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    ]


TEXT = sse(
    START,
    begin(0, {"type": "text", "text": ""}),
    {"type": "ping"},
    delta(0, "text_delta", text="Zwölf "),
    delta(0, "text_delta", text="🌊 tides"),
    stop(0),
    *end("end_turn"),
)
CALLS = sse(
    START,
    begin(0, {"type": "thinking", "thinking": "", "signature": ""}),
    delta(0, "thinking_delta", thinking="add "),
    delta(0, "thinking_delta", thinking="them"),
    delta(0, "signature_delta", signature="c2ln"),
    stop(0),
    begin(1, {"type": "redacted_thinking", "data": "cmVk"}),
    stop(1),
    begin(2, {"type": "text", "text": ""}),
    delta(2, "text_delta", text="Adding."),
    stop(2),
    begin(3, {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}),
    delta(3, "input_json_delta", partial_json=""),
    delta(3, "input_json_delta", partial_json='{"a": 2, '),
    delta(3, "input_json_delta", partial_json='"b": 40}'),
    stop(3),
    begin(4, {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}}),
    stop(4),
    *end("tool_use"),
)


def calls(*ids: str) -> ChatMessage:
    return ChatMessage([ToolCallBlock(tool_call_id=one, tool_name="add") for one in ids], role="assistant")


def result(call_id: str) -> ChatMessage:
    return ChatMessage("42", role="tool", additional_kwargs={"tool_call_id": call_id})


def ids_of(turns: list[dict[str, Any]]) -> list[str]:
    """The ids of calls and results, in order."""
    blocks = [block for turn in turns for block in turn["content"]]
    return [block.get("tool_use_id") or block["id"] for block in blocks if block["type"] != "text"]


@pytest.fixture
async def server() -> AsyncIterator[Loopback]:
    async with loopback() as running:
        yield running


@pytest.fixture
async def llm(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Anthropic]:
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    made = Anthropic("claude-test", api_key="secret-key", base_url=server.url, max_retries=0, timeout=5)
    yield made
    await made.aclose()


class TestStreams:
    @pytest.mark.parametrize("size", [1, 7, 10_000])
    async def test_text_arrives_in_true_deltas_however_the_bytes_are_cut(
        self, server: Loopback, llm: Anthropic, size: int
    ) -> None:
        server.answers.append(Answer(pieces(TEXT, size)))
        responses = [response async for response in await llm.astream_chat(ASK)]
        assert [response.delta for response in responses] == ["Zwölf ", "🌊 tides", ""]
        last = responses[-1]
        assert (last.message.content, last.stop_reason, last.model) == ("Zwölf 🌊 tides", "stop", "claude-test-1")
        assert last.usage == Usage(input_tokens=17, output_tokens=9, cached_tokens=5, cache_write_tokens=2)

    @pytest.mark.parametrize("size", [1, 7, 10_000])
    async def test_thoughts_text_and_calls_keep_their_order(self, server: Loopback, llm: Anthropic, size: int) -> None:
        server.answers.append(Answer(pieces(CALLS, size)))
        responses = [one async for one in await llm.astream_chat_with_tools([ADD], chat_history=ASK)]
        assert "".join(one.additional_kwargs.get("thinking_delta", "") for one in responses) == "add them"
        message = responses[-1].message
        assert message.blocks == [
            ThinkingBlock(content="add them", additional_information={"signature": "c2ln"}),
            ThinkingBlock(content="", additional_information={"data": "cmVk"}),
            TextBlock(text="Adding."),
            ToolCallBlock(tool_call_id="toolu_1", tool_name="add", tool_kwargs={"a": 2, "b": 40}),
            ToolCallBlock(tool_call_id="toolu_2", tool_name="now", tool_kwargs={}),
        ]
        assert responses[-1].stop_reason == "tool_calls"

    async def test_what_was_thought_goes_back_as_it_came(self, server: Loopback, llm: Anthropic) -> None:
        server.answers.append(Answer([CALLS]))
        response = await llm.achat_with_tools([ADD], chat_history=ASK)
        _, [turn] = anthropic_messages([response.message])
        assert turn["content"][:2] == [
            {"type": "thinking", "thinking": "add them", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "cmVk"},
        ]

    @pytest.mark.parametrize(
        ("told", "meant"),
        [("max_tokens", "length"), ("stop_sequence", "stop"), ("pause_turn", "pause"), ("refusal", "refusal")],
    )
    async def test_reasons(self, server: Loopback, llm: Anthropic, told: str, meant: str) -> None:
        server.answers.append(Answer([sse(START, *end(told))]))
        assert (await llm.achat(ASK)).stop_reason == meant

    @pytest.mark.parametrize("begun", [None, {}, START["message"]["usage"]])
    @pytest.mark.parametrize("ended", [None, {}, {"output_tokens": 9}])
    async def test_counts_that_a_server_leaves_out(
        self, server: Loopback, llm: Anthropic, begun: Any, ended: Any
    ) -> None:
        first, (last, done) = copy.deepcopy(START), copy.deepcopy(end("end_turn"))
        for event, counts in ((first["message"], begun), (last, ended)):
            del event["usage"]
            if counts is not None:
                event["usage"] = counts
        server.answers.append(Answer([sse(first, begin(0, {"type": "text", "text": "42"}), stop(0), last, done)]))
        response = await llm.achat(ASK)
        assert (response.message.content, response.stop_reason) == ("42", "stop")
        told = None if begun is ended is None else (17 if begun else 0, 9 if ended else 1 if begun else 0)
        usage = response.usage
        assert (None if usage is None else (usage.input_tokens, usage.output_tokens)) == told

    async def test_kinds_of_events_and_blocks_that_are_new_are_passed_over(
        self, server: Loopback, llm: Anthropic
    ) -> None:
        body = sse(
            START,
            begin(0, {"type": "hologram", "light": 1}),
            delta(0, "hologram_delta", light=2),
            stop(0),
            {"type": "weather"},
            begin(1, {"type": "text", "text": "from the start"}),
            *end("end_turn"),
        )
        server.answers.append(Answer([body]))
        assert (await llm.achat(ASK)).message.content == "from the start"


class TestRequests:
    async def test_what_is_sent(self, server: Loopback, llm: Anthropic) -> None:
        server.answers.append(Answer([TEXT]))
        await llm.achat_with_tools(
            [ADD], chat_history=ASK, tool_choice="add", temperature=0.5, max_tokens=64, stop_sequences=["END"]
        )
        [request] = server.received
        assert request.path == "/v1/messages"
        assert request.body == {
            "model": "claude-test",
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "What is 2 + 40?"}]}],
            "stream": True,
            "max_tokens": 64,
            "temperature": 0.5,
            "stop_sequences": ["END"],
            "tools": [{"name": "add", "description": "Adds.", "input_schema": ADD["parameters"]}],
            "tool_choice": {"type": "tool", "name": "add", "disable_parallel_tool_use": True},
        }

    @pytest.mark.parametrize(
        ("choice", "parallel", "sent"),
        [
            (None, True, None),
            (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
            ("auto", True, None),
            ("required", True, {"type": "any"}),
            ("none", False, {"type": "none"}),
            ({"type": "any"}, False, {"type": "any"}),
            # Under the name that the tool goes by there.
            ("my tool", True, {"type": "tool", "name": "my_tool"}),
        ],
    )
    async def test_choices(
        self, server: Loopback, llm: Anthropic, choice: Any, parallel: bool, sent: dict[str, Any] | None
    ) -> None:
        server.answers.append(Answer([TEXT]))
        await llm.achat_with_tools([ADD], chat_history=ASK, tool_choice=choice, allow_parallel_tool_calls=parallel)
        assert server.received[0].body.get("tool_choice") == sent

    async def test_settings_of_the_model(self, server: Loopback) -> None:
        thinking = {"type": "enabled", "budget_tokens": 1024}
        made = Anthropic(
            "claude-test", api_key="k", base_url=server.url, thinking=thinking, additional_kwargs={"top_k": 3}
        )
        server.answers.append(Answer([TEXT]))
        await made.achat(ASK)
        await made.aclose()
        body = server.received[0].body
        assert (body["thinking"], body["top_k"], body["max_tokens"]) == (thinking, 3, 4096)

    def test_the_last_four_cache_points_count(self) -> None:
        point = CachePoint(cache_control=CacheControl(type="ephemeral"))
        history = [
            ChatMessage(blocks=[TextBlock(text="Rules."), point], role="system"),
            ChatMessage(blocks=[TextBlock(text="1"), point]),
            ChatMessage(role="assistant", blocks=[ToolCallBlock(tool_call_id="a", tool_name="add", tool_kwargs={})]),
            ChatMessage(role="tool", blocks=[TextBlock(text="2"), point], additional_kwargs={"tool_call_id": "a"}),
            ChatMessage("3", role="assistant"),
            ChatMessage(blocks=[TextBlock(text="4"), point, TextBlock(text="5"), point]),
        ]
        for points, kept in ((5, ["1", "2", "4", "5"]), (4, ["Rules.", "1", "2", "4"])):
            if points == 4:
                history[-1].blocks.pop()
            system, turns = anthropic_messages(history)
            blocks = [*system, *(block for turn in turns for block in turn["content"])]
            inner = [part for block in blocks for part in (block, *(block.get("content") or ()))]
            assert [part["text"] for part in inner if "cache_control" in part] == kept

    def test_every_kind_of_message(self) -> None:
        history = [
            ChatMessage(
                blocks=[TextBlock(text="Long rules."), CachePoint(cache_control=CacheControl(type="ephemeral"))],
                role="system",
            ),
            ChatMessage(
                blocks=[
                    TextBlock(text="look"),
                    TextBlock(text=""),
                    ImageBlock(image=b"\x89PNG\r\n\x1a\n"),
                    ImageBlock(url="https://x.test/a.png"),
                    DocumentBlock(data=b"%PDF-1.7\xff", title="paper.pdf"),
                    DocumentBlock(url="data:text/plain,plain%20text", title="note"),
                    CitableBlock(title="t", source="s", content="cite me"),
                ]
            ),
            ChatMessage(
                role="assistant",
                blocks=[
                    ThinkingBlock(content="another vendor's"),
                    ToolCallBlock(tool_call_id="a.1", tool_name="add", tool_kwargs={"a": 1}),
                    ToolCallBlock(tool_call_id="2", tool_name="add", tool_kwargs='{"broken'),
                ],
            ),
            ChatMessage("2", role="tool", additional_kwargs={"tool_call_id": "a.1"}),
            ChatMessage("no", role="tool", additional_kwargs={"tool_call_id": "2", "is_error": True}),
            ChatMessage("and now?"),
            ChatMessage(
                role="assistant",
                additional_kwargs={"tool_calls": [ToolSelection(tool_id="3", tool_name="now", tool_kwargs={})]},
            ),
        ]
        system, turns = anthropic_messages(history)
        assert system == [{"type": "text", "text": "Long rules.", "cache_control": {"type": "ephemeral", "ttl": "5m"}}]
        assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant"]
        first = turns[0]["content"]
        assert [part["type"] for part in first] == ["text", "image", "image", "document", "document", "document"]
        assert first[1]["source"] == {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
        assert first[2]["source"] == {"type": "url", "url": "https://x.test/a.png"}
        assert first[3]["source"]["media_type"] == "application/pdf"
        assert first[4]["source"] == {"type": "text", "media_type": "text/plain", "data": "plain text"}
        assert first[5]["citations"] == {"enabled": True}
        assert turns[1]["content"] == [
            {"type": "tool_use", "id": "a_1", "name": "add", "input": {"a": 1}},
            {"type": "tool_use", "id": "2", "name": "add", "input": {"invalid_json": '{"broken'}},
        ]
        assert turns[2]["content"] == [
            {"type": "tool_result", "tool_use_id": "a_1", "content": [{"type": "text", "text": "2"}]},
            {"type": "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "no"}], "is_error": True},
            {"type": "text", "text": "and now?"},
        ]
        assert turns[3]["content"] == [{"type": "tool_use", "id": "3", "name": "now", "input": {}}]

    def test_what_an_assistant_cannot_have_said_is_left_out(self) -> None:
        """The API refuses pictures and documents there, as answers of direct tools may hold."""
        said = [TextBlock(text="Drawn:"), ImageBlock(url="https://x.test/a.png"), DocumentBlock(data=b"plain text")]
        _, turns = anthropic_messages([ChatMessage("Draw!"), ChatMessage(said, role="assistant")])
        assert turns[-1]["content"] == [{"type": "text", "text": "Drawn:"}]

    def test_a_failure_is_marked_where_it_is_told_in_words_alone(self) -> None:
        """The API refuses the mark beside pictures, and beside nothing."""
        picture = ImageBlock(url="https://x.test/a.png")
        for blocks, marked in (
            ([TextBlock(text="no such file")], True),
            ([TextBlock(text="see"), picture], False),
            ([TextBlock(text=" ")], False),
            ([], False),
        ):
            failed = {"tool_call_id": "1", "is_error": True}
            _, turns = anthropic_messages([calls("1"), ChatMessage(blocks, role="tool", additional_kwargs=failed)])
            assert turns[-1]["content"][0].get("is_error", False) is marked

    def test_what_the_system_says_later_stays_where_it_is(self) -> None:
        system, turns = anthropic_messages(
            [
                ChatMessage("Be brief.", role="system"),
                ChatMessage("And kind.", role="developer"),
                ChatMessage("What is 2 + 40?"),
                ChatMessage("42.", role="assistant"),
                ChatMessage("Be formal from now on.", role="system"),
                ChatMessage("And 1 more?"),
                ChatMessage("It amounts to 43.", role="assistant"),
                ChatMessage("Sum it up.", role="developer"),
            ]
        )
        assert [block["text"] for block in system] == ["Be brief.", "And kind."]
        assert [(turn["role"], [block["text"] for block in turn["content"]]) for turn in turns] == [
            ("user", ["What is 2 + 40?"]),
            ("assistant", ["42."]),
            ("user", ["Be formal from now on.", "And 1 more?"]),
            ("assistant", ["It amounts to 43."]),
            ("user", ["Sum it up."]),
        ]

    def test_results_come_before_what_the_system_says_among_them(self) -> None:
        _, turns = anthropic_messages(
            [
                ChatMessage("Add."),
                calls("1", "2"),
                ChatMessage("Hurry.", role="system"),
                result("1"),
                result("2"),
                ChatMessage("Go on.", role="system"),
            ]
        )
        assert [block.get("text") or block["tool_use_id"] for block in turns[-1]["content"]] == [
            "1",
            "2",
            "Hurry.",
            "Go on.",
        ]

    def test_calls_that_were_numbered_anew_in_each_answer_have_names_of_their_own(self) -> None:
        round_ = [ChatMessage("Add."), calls("call_0", "call_1"), result("call_0"), result("call_1")]
        _, turns = anthropic_messages([*round_, *round_, calls("call_0_2"), result("call_0_2")])
        check_anthropic({"messages": turns})
        assert ids_of(turns) == [
            *["call_0", "call_1", "call_0", "call_1"],
            *["call_0_2", "call_1_2", "call_0_2", "call_1_2"],
            *["call_0_2_2", "call_0_2_2"],
        ]

    def test_ids_that_differ_in_signs_the_api_does_not_take(self) -> None:
        history = [ChatMessage("Add."), calls("a:b", "a/b"), result("a:b"), result("a/b"), calls("a.b"), result("a.b")]
        _, turns = anthropic_messages(history)
        check_anthropic({"messages": turns})
        assert ids_of(turns) == ["a_b", "a_b_2", "a_b", "a_b_2", "a_b_3", "a_b_3"]

    @given(st.lists(st.lists(st.sampled_from(["a", "a_2", "a:2", "b"]), min_size=1, max_size=3, unique=True)))
    def test_a_conversation_that_grows_keeps_the_names_it_had(self, rounds: list[list[str]]) -> None:
        history = [ChatMessage("Add.")]
        sent: list[dict[str, Any]] = []
        for ids in rounds:
            history += [calls(*ids), *map(result, ids)]
            before, (_, sent) = sent, anthropic_messages(history)
            check_anthropic({"messages": sent})
            assert sent[: len(before)] == before

    def test_a_cache_point_marks_what_takes_a_mark_and_leaves_the_message_as_it_is(self) -> None:
        point = CachePoint(cache_control=CacheControl(type="ephemeral"))
        search = NativeBlock(vendor="anthropic", data={"type": "server_tool_use", "id": "s"})
        thought = ThinkingBlock(content="Hm.", additional_information={"signature": "seal"})
        said = ChatMessage([search, thought, point], role="assistant")
        _, [turn] = anthropic_messages([said])
        assert ["cache_control" in one for one in turn["content"]] == [True, False]
        assert search.data == {"type": "server_tool_use", "id": "s"}


class TestErrors:
    @pytest.mark.parametrize(
        ("status", "kind_of_error", "message", "kind"),
        [
            (400, "invalid_request_error", "bad", LLMRequestError),
            (400, "invalid_request_error", "prompt is too long: 300000 tokens", ContextLengthError),
            (401, "authentication_error", "wrong key", AuthenticationError),
            (429, "rate_limit_error", "slow down", RateLimitError),
            (529, "overloaded_error", "overloaded", OverloadedError),
        ],
    )
    async def test_a_refused_request(
        self, server: Loopback, llm: Anthropic, status: int, kind_of_error: str, message: str, kind: type[LLMError]
    ) -> None:
        body = {"type": "error", "error": {"type": kind_of_error, "message": message}}
        headers = {"request-id": "req-9", "retry-after": "3"}
        server.answers.append(
            Answer([json.dumps(body).encode()], status=status, headers=headers, content_type="application/json")
        )
        with pytest.raises(kind, match=message) as raised:
            await llm.achat(ASK)
        error = raised.value
        assert type(error) is kind
        assert (error.status_code, error.request_id, error.retry_after) == (status, "req-9", 3.0)
        assert (error.vendor, error.model) == ("anthropic", "claude-test")

    async def test_a_stream_that_ends_early_without_a_sound(self, server: Loopback, llm: Anthropic) -> None:
        half = TEXT[: TEXT.index(b"event: message_stop")]
        server.answers.append(Answer([half]))
        with pytest.raises(IncompleteResponseError, match="half way"):
            await llm.achat(ASK)

    async def test_a_connection_that_breaks_half_way(self, server: Loopback, llm: Anthropic) -> None:
        server.answers.append(Answer([TEXT[:600]], breaks=True))
        with pytest.raises(LLMConnectionError, match="anthropic"):
            await llm.achat(ASK)

    @pytest.mark.parametrize(
        ("kind_of_error", "kind"), [("overloaded_error", OverloadedError), ("rate_limit_error", RateLimitError)]
    )
    async def test_an_error_in_the_middle_of_a_stream(
        self, server: Loopback, llm: Anthropic, kind_of_error: str, kind: type[LLMError]
    ) -> None:
        error = {"type": "error", "error": {"type": kind_of_error, "message": "later"}}
        server.answers.append(Answer([sse(START, error)]))
        with pytest.raises(kind, match="later") as raised:
            await llm.achat(ASK)
        assert type(raised.value) is kind

    async def test_broken_json_in_a_stream(self, server: Loopback, llm: Anthropic) -> None:
        server.answers.append(Answer([b"event: message_start\ndata: {broken\n\n"]))
        with pytest.raises(InvalidResponseError, match="not JSON"):
            await llm.achat(ASK)

    async def test_an_answer_that_is_no_stream(self, server: Loopback, llm: Anthropic) -> None:
        server.answers.append(Answer([b"<html>proxy</html>"], content_type="text/html"))
        with pytest.raises(InvalidResponseError, match="text/html"):
            await llm.achat(ASK)


class TestConstruction:
    def test_without_a_key_the_variable_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(LLMConfigurationError, match="ANTHROPIC_API_KEY"):
            Anthropic()

    def test_by_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        made = llm_from("anthropic:claude-sonnet-5", max_tokens=10)
        assert isinstance(made, Anthropic)
        assert (made.model, made.max_tokens, made.metadata.context_window) == ("claude-sonnet-5", 10, 200_000)
