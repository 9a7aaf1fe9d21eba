"""The OpenAI adapter, with the real SDK and a server on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from batonflow.durable.stores.memory import MemoryStore
from batonflow.llms import (
    AudioBlock,
    AuthenticationError,
    ChatMessage,
    ChatResponse,
    CitableBlock,
    ContextLengthError,
    DeepSeek,
    DocumentBlock,
    ImageBlock,
    IncompleteResponseError,
    InvalidResponseError,
    LLMConfigurationError,
    LLMConnectionError,
    LLMError,
    LLMRequestError,
    LLMServerError,
    LLMTimeoutError,
    ModelNotFoundError,
    OpenAI,
    OpenAIResponses,
    OverloadedError,
    RateLimitError,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
    llm_from,
    openai,
)
from batonflow.llms._bridge import run_sync
from batonflow.llms.openai import openai_messages
from batonflow.tools import FunctionTool
from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step
from tests.llms.loopback import Answer, Loopback, loopback, pieces
from tests.llms.rules import check_chat

ASK = [ChatMessage("Be brief.", role="system"), ChatMessage("What is 2 + 40?")]
ADD = {
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
}


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-test-2026",
        "choices": choices,
        **more,
    }


def sse(*chunks: dict[str, Any], done: bool = True) -> bytes:
    lines = b"".join(b"data: " + json.dumps(one, ensure_ascii=False).encode() + b"\n\n" for one in chunks)
    return lines + (b"data: [DONE]\n\n" if done else b"")


def call(index: int, arguments: str = "", **begin: Any) -> dict[str, Any]:
    function = {"arguments": arguments}
    if "name" in begin:
        function["name"] = begin.pop("name")
    return chunk({"tool_calls": [{"index": index, "function": function, **begin}]})


PICTURE = ImageBlock(url="https://x.test/a.png")
USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 9,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 4},
}
TEXT = sse(
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Zwölf "}),
    chunk({"content": "🌊 tides"}),
    chunk({}, finish="stop"),
    chunk(usage=USAGE),
)
CALLS = sse(
    chunk({"role": "assistant", "content": None}),
    call(0, id="call_a", type="function", name="add"),
    call(0, '{"a": 2, '),
    call(0, '"b": 40}'),
    call(1, id="call_b", type="function", name="now"),
    call(1, ""),
    chunk({}, finish="tool_calls"),
)


@pytest.fixture
async def server() -> AsyncIterator[Loopback]:
    async with loopback() as running:
        yield running


@pytest.fixture
async def llm(server: Loopback) -> AsyncIterator[OpenAI]:
    made = OpenAI("gpt-test", api_key="secret-key", base_url=f"{server.url}/v1", max_retries=0, timeout=5)
    yield made
    await made.aclose()


async def collect(llm: OpenAI, **kwargs: Any) -> list[ChatResponse]:
    return [response async for response in await llm.astream_chat_with_tools(chat_history=ASK, tools=[ADD], **kwargs)]


# Pieces of a call that say late what it is.
LATE: list[list[dict[str, Any]]] = [
    [{"arguments": ""}, {"id": "x", "name": "add", "arguments": '{"a": 1}'}],
    [{"arguments": '{"a": '}, {"name": "add", "arguments": "1}"}, {"id": "x"}],
    [{"id": "x", "arguments": '{"a": 1}'}, {"name": "add"}],
    [{"name": "add"}, {"id": "x", "arguments": '{"a": 1}'}],
]


class TestStreams:
    @pytest.mark.parametrize("size", [1, 7, 10_000])
    async def test_text_arrives_in_true_deltas_however_the_bytes_are_cut(
        self, server: Loopback, llm: OpenAI, size: int
    ) -> None:
        server.answers.append(Answer(pieces(TEXT, size), headers={"x-request-id": "req-1"}))
        responses = [response async for response in await llm.astream_chat(ASK)]
        assert [response.delta for response in responses] == ["Zwölf ", "🌊 tides", ""]
        assert [response.message.content for response in responses] == ["Zwölf ", "Zwölf 🌊 tides", "Zwölf 🌊 tides"]
        last = responses[-1]
        assert (last.stop_reason, last.model) == ("stop", "gpt-test-2026")
        assert last.usage == Usage(
            input_tokens=20, output_tokens=9, cached_tokens=8, cache_write_tokens=2, reasoning_tokens=4
        )
        assert responses[0].raw.choices[0].delta.content == "Zwölf "

    @pytest.mark.parametrize("size", [1, 7, 10_000])
    async def test_tool_calls_show_when_their_arguments_are_whole(
        self, server: Loopback, llm: OpenAI, size: int
    ) -> None:
        server.answers.append(Answer(pieces(CALLS, size)))
        responses = await collect(llm, allow_parallel_tool_calls=True)
        shown = [llm.get_tool_calls_from_response(one, error_on_no_tool_call=False) for one in responses]
        assert [len(calls) for calls in shown] == [0, 0, 1, 1, 1, 2]
        assert [(one.tool_id, one.tool_name, one.tool_kwargs) for one in shown[-1]] == [
            ("call_a", "add", {"a": 2, "b": 40}),
            ("call_b", "now", {}),
        ]
        assert responses[-1].stop_reason == "tool_calls"

    async def test_synchronously(self, server: Loopback) -> None:
        server.answers += [Answer([TEXT]), Answer([TEXT])]

        def ask() -> list[str | None]:
            made = OpenAI("gpt-test", api_key="k", base_url=f"{server.url}/v1")
            deltas = [response.delta for response in made.stream_chat(ASK)]
            assert made.chat(ASK).message.content == "Zwölf 🌊 tides"
            run_sync(made.aclose())
            return deltas

        assert await asyncio.to_thread(ask) == ["Zwölf ", "🌊 tides", ""]

    async def test_leaving_a_stream_closes_the_connection(self, server: Loopback, llm: OpenAI) -> None:
        server.answers.append(Answer([sse(chunk({"content": "on "}), done=False)], hangs=True))
        stream = await llm.astream_chat(ASK)
        assert (await anext(stream)).delta == "on "
        await stream.aclose()
        await server.left.wait()

    async def test_thoughts_of_compatible_servers(self, server: Loopback, llm: OpenAI) -> None:
        body = sse(
            chunk({"reasoning_content": "let me "}),
            chunk({"reasoning_content": "see"}),
            chunk({"content": "42"}),
            chunk({}, finish="stop"),
        )
        server.answers.append(Answer([body]))
        responses = [response async for response in await llm.astream_chat(ASK)]
        assert [one.additional_kwargs.get("thinking_delta") for one in responses] == ["let me ", "see", None, None]
        thought = ThinkingBlock(content="let me see", additional_information={"vendor": "openai"})
        assert responses[-1].message.blocks == [thought, TextBlock(text="42")]

    async def test_refusals_are_text(self, server: Loopback, llm: OpenAI) -> None:
        server.answers.append(Answer([sse(chunk({"refusal": "I cannot."}), chunk({}, finish="stop"))]))
        assert (await llm.achat(ASK)).message.content == "I cannot."

    async def test_arguments_that_are_broken_are_kept_as_text(self, server: Loopback, llm: OpenAI) -> None:
        body = sse(call(0, '{"a": 2, ', id="c", name="add"), chunk({}, finish="length"))
        server.answers.append(Answer([body]))
        responses = await collect(llm)
        [selection] = llm.get_tool_calls_from_response(responses[-1])
        assert (selection.tool_kwargs, selection.invalid_arguments) == ({}, '{"a": 2, ')
        assert responses[-1].stop_reason == "length"

    @pytest.mark.parametrize("number", ["missing", "always 0"])
    async def test_servers_that_do_not_number_calls(self, server: Loopback, llm: OpenAI, number: str) -> None:
        chunks = [
            call(0, '{"a": 1}', id="x", name="add"),
            call(0, '{"a": 2}', id="y", name="add"),
            chunk({}, finish="stop"),
        ]
        if number == "missing":
            for one in chunks[:2]:
                del one["choices"][0]["delta"]["tool_calls"][0]["index"]
        server.answers.append(Answer([sse(*chunks)]))
        responses = await collect(llm)
        found = llm.get_tool_calls_from_response(responses[-1])
        assert [(one.tool_id, one.tool_kwargs) for one in found] == [("x", {"a": 1}), ("y", {"a": 2})]
        assert responses[-1].stop_reason == "tool_calls"

    @pytest.mark.parametrize(
        "parts",
        [
            *LATE,
            *([{**part, "index": 0} for part in parts] for parts in LATE),
            # Without numbers these would be two calls.
            [
                {"index": 0, "name": "add", "arguments": '{"a"'},
                {"index": 0, "id": "x", "name": "add", "arguments": ":1}"},
            ],
        ],
    )
    async def test_id_and_name_of_a_call_may_come_late(
        self, server: Loopback, llm: OpenAI, parts: list[dict[str, Any]]
    ) -> None:
        chunks: list[dict[str, Any]] = []
        for part in parts:
            function = {name: value for name, value in part.items() if name in {"name", "arguments"}}
            piece = {name: value for name, value in part.items() if name in {"id", "index"}}
            chunks.append(chunk({"tool_calls": [{**piece, "function": function}]}))
        server.answers.append(Answer([sse(*chunks, chunk({}, finish="tool_calls"))]))
        responses = await collect(llm)
        [found] = llm.get_tool_calls_from_response(responses[-1])
        assert (found.tool_name, found.tool_kwargs) == ("add", {"a": 1})
        # An id that comes behind the whole call is too late: it has been shown under another one.
        assert found.tool_id == "x" or "arguments" not in parts[-1]
        shown = [block for one in responses for block in one.message.blocks if isinstance(block, ToolCallBlock)]
        assert {block.tool_name for block in shown} == {"add"}

    async def test_the_older_form_of_calls(self, server: Loopback, llm: OpenAI) -> None:
        deltas: list[dict[str, Any]] = [
            {"content": "Let me add.", "function_call": {}},
            {"function_call": {"name": "add", "arguments": ""}},
            {"function_call": {"arguments": '{"a": '}},
            {"function_call": {"arguments": "1}"}},
        ]
        server.answers.append(Answer([sse(*map(chunk, deltas), chunk({}, finish="function_call"))]))
        response = (await collect(llm))[-1]
        [found] = llm.get_tool_calls_from_response(response)
        assert (found.tool_name, found.tool_kwargs) == ("add", {"a": 1})
        assert found.tool_id.startswith("call_")
        assert (response.message.content, response.stop_reason) == ("Let me add.", "tool_calls")

    async def test_calls_in_both_forms_are_made_once(self, server: Loopback, llm: OpenAI) -> None:
        both = call(0, "{}", id="c", name="now")
        both["choices"][0]["delta"]["function_call"] = {"name": "now", "arguments": "{}"}
        server.answers.append(Answer([sse(both, chunk({}, finish="tool_calls"))]))
        [found] = llm.get_tool_calls_from_response((await collect(llm))[-1])
        assert found.tool_id == "c"

    async def test_calls_without_id_get_one_and_extras_go_back(self, server: Loopback, llm: OpenAI) -> None:
        extra = {"google": {"thought_signature": "sig"}}
        body = sse(call(0, "{}", id="", name="now", extra_content=extra), chunk({}, finish="tool_calls"))
        server.answers.append(Answer([body]))
        response = (await collect(llm))[-1]
        [selection] = llm.get_tool_calls_from_response(response)
        assert selection.tool_id.startswith("call_")
        [sent] = openai_messages([response.message])
        assert sent["tool_calls"][0]["extra_content"] == extra
        assert sent["tool_calls"][0]["id"] == selection.tool_id


class TestServersThatDoNotHangUp:
    """The answer is whole once the reason for its end is there; only the token counts are waited for, and not long."""

    END = sse(chunk({"content": "42"}), chunk({}, finish="stop"), done=False)
    COUNTS = sse(chunk(usage=USAGE), done=False)

    @staticmethod
    async def asked(llm: OpenAI) -> ChatResponse:
        async with asyncio.timeout(20):  # the client itself would wait for minutes
            response = await llm.achat(ASK)
        assert (response.message.content, response.stop_reason) == ("42", "stop")
        return response

    @pytest.mark.parametrize("done", [b"", b"data: [DONE]\n\n"])
    async def test_with_the_counts_it_is_given_out_at_once(self, server: Loopback, llm: OpenAI, done: bytes) -> None:
        server.answers.append(Answer([self.END, self.COUNTS, done], hangs=True))
        response = await self.asked(llm)
        assert response.usage is not None

    async def test_also_when_the_counts_come_with_the_reason(self, server: Loopback, llm: OpenAI) -> None:
        body = sse(chunk({"content": "42"}), chunk({}, finish="stop", usage=USAGE), done=False)
        server.answers.append(Answer([body], hangs=True))
        response = await self.asked(llm)
        assert response.usage is not None

    async def test_counts_that_come_late_are_waited_for(self, server: Loopback, llm: OpenAI) -> None:
        server.answers.append(Answer([self.END, self.COUNTS], pause=0.4, hangs=True))
        response = await self.asked(llm)
        assert response.usage is not None
        assert response.usage.output_tokens == 9

    async def test_those_that_never_come_are_not(self, server: Loopback, llm: OpenAI) -> None:
        server.answers.append(Answer([self.END], hangs=True))
        response = await self.asked(llm)
        assert response.usage is None

    @pytest.mark.parametrize("end", [{"hangs": True}, {"breaks": True}, {"resets": True}])
    async def test_nothing_that_happens_to_the_connection_then_matters(
        self, server: Loopback, end: dict[str, Any]
    ) -> None:
        impatient = OpenAI("gpt-test", api_key="k", base_url=f"{server.url}/v1", max_retries=0, timeout=0.3)
        # A reset may overtake what was sent before it.
        server.answers.append(Answer([self.END, b": kept alive\n\n"], pause=0.1, **end))
        await self.asked(impatient)
        await impatient.aclose()

    async def test_pieces_behind_a_reason_belong_to_the_answer(self, server: Loopback, llm: OpenAI) -> None:
        """Some servers give every piece a reason."""
        parts = [chunk({"content": "4"}, finish="stop", usage=USAGE), chunk({"content": "2"}, finish="stop")]
        server.answers.append(Answer([sse(one, done=False) for one in parts], pause=0.4))
        await self.asked(llm)

    async def test_one_of_these_that_breaks_off_gives_no_answer(self, server: Loopback, llm: OpenAI) -> None:
        parts = [chunk({"content": "The answer"}, finish="stop"), chunk({"content": " is"}, finish="stop")]
        server.answers.append(Answer([sse(one, done=False) for one in parts], breaks=True))
        with pytest.raises(LLMConnectionError):
            await llm.achat(ASK)

    async def test_a_reason_ahead_of_the_answer_is_not_its_end(
        self, server: Loopback, llm: OpenAI, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(openai, "_COUNTS_TIME", 0.05)
        parts = [chunk({"role": "assistant"}, finish="stop"), chunk({"content": "42"}, finish="stop")]
        server.answers.append(Answer([sse(one, done=False) for one in parts], pause=0.3))
        await self.asked(llm)


class TestRequests:
    @pytest.mark.parametrize("model", [OpenAI, OpenAIResponses])
    async def test_a_tool_is_chosen_by_the_name_that_it_goes_by_there(self, server: Loopback, model: Any) -> None:
        named = FunctionTool.from_defaults(lambda a: a, name="my tool", description="Add.")
        server.answers.append(Answer([TEXT]))
        with suppress(LLMError):  # what matters is the request
            await model("m", api_key="k", base_url=f"{server.url}/v1").achat_with_tools(
                [named], chat_history=ASK, tool_choice="my tool"
            )
        body = server.received[0].body
        [tool] = body["tools"]
        assert tool.get("function", tool)["name"] == "my_tool"
        assert body["tool_choice"].get("function", body["tool_choice"])["name"] == "my_tool"

    async def test_what_is_sent(self, server: Loopback, llm: OpenAI) -> None:
        server.answers.append(Answer([TEXT]))
        await llm.achat_with_tools(
            [ADD], chat_history=ASK, tool_choice="add", temperature=0.5, max_tokens=64, user="someone"
        )
        [request] = server.received
        assert request.path == "/v1/chat/completions"
        assert request.headers["authorization"] == "Bearer secret-key"
        assert request.body == {
            "model": "gpt-test",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 + 40?"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.5,
            "max_tokens": 64,
            "user": "someone",
            "tools": [{"type": "function", "function": ADD}],
            "tool_choice": {"type": "function", "function": {"name": "add"}},
            "parallel_tool_calls": False,
        }

    async def test_settings_of_the_model_and_the_name_of_the_limit(self, server: Loopback) -> None:
        made = OpenAI(
            "gpt-test",
            api_key="k",
            api_base=f"{server.url}/v1",
            max_tokens=5,
            max_tokens_field="max_completion_tokens",
            reasoning_effort="low",
            include_usage=False,
            additional_kwargs={"seed": 7},
            default_headers={"x-team": "tides"},
        )
        server.answers.append(Answer([TEXT]))
        await made.achat(ASK)
        await made.aclose()
        body = server.received[0].body
        assert {name: body[name] for name in ("max_completion_tokens", "reasoning_effort", "seed")} == {
            "max_completion_tokens": 5,
            "reasoning_effort": "low",
            "seed": 7,
        }
        assert "stream_options" not in body
        assert server.received[0].headers["x-team"] == "tides"
        assert made.metadata.num_output == 5

    def test_every_kind_of_message(self) -> None:
        history = [
            ChatMessage("Be kind.", role="developer"),
            ChatMessage(blocks=[TextBlock(text="look"), ImageBlock(url="https://x.test/a.png", detail="low")]),
            ChatMessage(blocks=[ImageBlock(image=b"\x89PNG\r\n\x1a\n"), AudioBlock(audio=b"ID3\x04")]),
            ChatMessage(blocks=[DocumentBlock(data=b"%PDF-1.7\xff", title="paper.pdf")]),
            ChatMessage(
                role="assistant",
                blocks=[
                    ThinkingBlock(content="hm"),
                    ToolCallBlock(tool_call_id="1", tool_name="add", tool_kwargs={"a": 1}),
                    ToolCallBlock(tool_call_id="2", tool_name="add", tool_kwargs='{"broken'),
                ],
            ),
            ChatMessage("2", role="tool", additional_kwargs={"tool_call_id": "1"}),
            ChatMessage("done", role="assistant"),
            ChatMessage(role="assistant"),
        ]
        sent = openai_messages(history)
        assert sent[0] == {"role": "developer", "content": "Be kind."}
        assert sent[1]["content"] == [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "low"}},
        ]
        assert sent[2]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
        assert sent[2]["content"][1] == {"type": "input_audio", "input_audio": {"data": "SUQzBA==", "format": "mp3"}}
        assert sent[3]["content"][0]["file"]["file_data"].startswith("data:application/pdf;base64,")
        assert sent[4] == {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
                {"id": "2", "type": "function", "function": {"name": "add", "arguments": '{"broken'}},
            ],
        }
        assert sent[5] == {"role": "tool", "tool_call_id": "1", "content": "2"}
        assert sent[6] == {"role": "assistant", "content": "done"}
        assert sent[7] == {"role": "assistant", "content": ""}

    @pytest.mark.parametrize("official", [True, False])
    def test_ids_of_calls_that_are_too_long_for_openai_are_shortened_one_to_one(self, official: bool) -> None:
        """Other servers get theirs back: there may be more in them than a name."""
        ids = ["call_" + "0123456789" * 4 + end for end in "ab"] + ["c" * 40]
        extras = {one: {"extra_content": one} for one in ids}
        asked = ChatMessage(
            [ToolCallBlock(tool_call_id=one, tool_name="add", tool_kwargs={}) for one in ids],
            role="assistant",
            additional_kwargs={"tool_call_extras": extras},
        )
        results = [ChatMessage([PICTURE], role="tool", additional_kwargs={"tool_call_id": one}) for one in ids]
        sent = openai_messages([asked, *results], official=official)
        check_chat({"messages": sent})
        wire = [one["id"] for one in sent[0]["tool_calls"]]
        assert [one["tool_call_id"] for one in sent[1:4]] == wire
        assert [len(one) for one in wire] == ([40, 40, 40] if official else [46, 46, 40])
        assert [one["extra_content"] for one in sent[0]["tool_calls"]] == ids
        assert wire[0] in sent[4]["content"][0]["text"]
        assert [block.tool_call_id for block in asked.blocks if isinstance(block, ToolCallBlock)] == ids
        assert openai_messages([asked, *results], official=official) == sent

    @pytest.mark.parametrize(
        ("blocks", "sent", "behind"),
        [
            ([CitableBlock(title="t", source="s", content="cite me")], "cite me", []),
            (
                [TextBlock(text="a"), CitableBlock(title="t", source="s", content=[TextBlock(text="b"), PICTURE])],
                "a\nb",
                ["image_url"],
            ),
            ([TextBlock(text="a"), PICTURE], "a", ["image_url"]),
            ([PICTURE], "[picture, image/png, https://x.test/a.png]", ["image_url"]),
            ([], "", []),
        ],
    )
    def test_results_of_tools_are_text_and_what_else_there_is_follows(
        self, blocks: list[Any], sent: str, behind: list[str]
    ) -> None:
        told = openai_messages([ChatMessage(blocks, role="tool", additional_kwargs={"tool_call_id": "1"})])
        assert told[0] == {"role": "tool", "tool_call_id": "1", "content": sent}
        assert [part["type"] for message in told[1:] for part in message["content"][1:]] == behind


class TestErrors:
    @pytest.mark.parametrize(
        ("status", "body", "kind"),
        [
            (400, {"error": {"message": "bad"}}, LLMRequestError),
            (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}, ContextLengthError),
            (401, {"error": {"message": "wrong key"}}, AuthenticationError),
            (403, {"error": {"message": "not yours"}}, AuthenticationError),
            (404, {"error": {"message": "no such model"}}, ModelNotFoundError),
            (429, {"error": {"message": "slow down"}}, RateLimitError),
            (500, {"error": {"message": "oops"}}, LLMServerError),
            (503, {"error": {"message": "overloaded"}}, OverloadedError),
        ],
    )
    async def test_a_refused_request_says_who_what_and_when_to_come_back(
        self, server: Loopback, llm: OpenAI, status: int, body: dict[str, Any], kind: type[LLMError]
    ) -> None:
        headers = {"x-request-id": "req-9", "retry-after": "3", "x-should-retry": "false"}
        server.answers.append(
            Answer([json.dumps(body).encode()], status=status, headers=headers, content_type="application/json")
        )
        with pytest.raises(kind) as raised:
            await llm.achat(ASK)
        error = raised.value
        assert type(error) is kind
        assert (error.status_code, error.request_id, error.retry_after) == (status, "req-9", 3.0)
        assert (error.vendor, error.model) == ("openai", "gpt-test")
        assert body["error"]["message"] in str(error)
        assert "secret-key" not in str(error)
        assert error.__cause__ is not None

    async def test_a_key_that_a_vendor_quotes_is_in_no_record(self, server: Loopback) -> None:
        key = "the colour of the sea"
        body = json.dumps({"error": {"message": f"Incorrect key: {key}."}}).encode()
        server.answers.append(Answer([body], status=401, content_type="application/json"))
        store = MemoryStore()
        made = OpenAI("gpt-test", api_key=key, base_url=f"{server.url}/v1", max_retries=0, timeout=5)

        class Asking(Workflow):
            @step
            async def ask(self, ev: StartEvent) -> StopEvent:
                return StopEvent(result=await made.achat(ASK))

        with pytest.raises(AuthenticationError) as raised:
            await Asking(store=store).run(run_id="r")
        await made.aclose()
        assert key in str(raised.value.__cause__)
        written = json.dumps(await store.history("r"))
        assert "Incorrect key" in written
        assert key not in written

    async def test_a_stream_that_ends_early_without_a_sound(self, server: Loopback, llm: OpenAI) -> None:
        server.answers.append(Answer([sse(chunk({"content": "half"}), done=False)]))
        with pytest.raises(IncompleteResponseError, match="half way") as raised:
            await llm.achat(ASK)
        assert raised.value.retryable

    @pytest.mark.parametrize("reason", ["insufficient_system_resource", "error", "network_error"])
    async def test_a_server_that_says_that_it_broke_off(self, server: Loopback, llm: OpenAI, reason: str) -> None:
        server.answers.append(Answer([sse(chunk({"content": "half"}), chunk({}, finish=reason))]))
        with pytest.raises(IncompleteResponseError, match="half way"):
            await llm.achat(ASK)

    async def test_a_connection_that_breaks_half_way(self, server: Loopback, llm: OpenAI) -> None:
        server.answers.append(Answer([sse(chunk({"content": "half"}), done=False)], breaks=True))
        with pytest.raises(LLMConnectionError):
            await llm.achat(ASK)

    async def test_a_server_that_is_not_there(self, server: Loopback) -> None:
        made = OpenAI("gpt-test", api_key="k", base_url="http://127.0.0.1:9/v1", max_retries=0)
        with pytest.raises(LLMConnectionError, match="openai gpt-test: no connection"):
            await made.achat(ASK)
        await made.aclose()

    async def test_a_server_that_does_not_answer(self, server: Loopback) -> None:
        made = OpenAI("gpt-test", api_key="k", base_url=f"{server.url}/v1", max_retries=0, timeout=0.2)
        server.answers.append(Answer([], hangs=True))
        with pytest.raises(LLMTimeoutError, match=r"within 0\.2 s"):
            await made.achat(ASK)
        await made.aclose()

    @pytest.mark.parametrize(
        ("body", "kind"),
        [
            ({"message": "overloaded", "type": "server_error"}, LLMServerError),
            ({"message": "slow", "code": "rate_limit_exceeded"}, RateLimitError),
            ({"message": "too long", "code": "context_length_exceeded"}, ContextLengthError),
            ({"message": "no reason given"}, LLMServerError),
        ],
    )
    async def test_an_error_in_the_middle_of_a_stream(
        self, server: Loopback, llm: OpenAI, body: dict[str, Any], kind: type[LLMError]
    ) -> None:
        server.answers.append(Answer([sse(chunk({"content": "half"}), {"error": body})]))
        with pytest.raises(kind, match=body["message"]) as raised:
            await llm.achat(ASK)
        assert type(raised.value) is kind

    @pytest.mark.parametrize("content_type", ["text/html", "application/json"])
    async def test_an_answer_that_is_no_stream(self, server: Loopback, llm: OpenAI, content_type: str) -> None:
        server.answers.append(Answer([b"<html>proxy</html>"], content_type=content_type))
        with pytest.raises(InvalidResponseError, match=content_type):
            await llm.achat(ASK)

    async def test_broken_json_in_a_stream(self, server: Loopback, llm: OpenAI) -> None:
        server.answers.append(Answer([b"data: {broken\n\n"]))
        with pytest.raises(InvalidResponseError, match="not JSON"):
            await llm.achat(ASK)

    async def test_the_sdk_retries_before_the_answer_begins(self, server: Loopback) -> None:
        made = OpenAI("gpt-test", api_key="k", base_url=f"{server.url}/v1", max_retries=1)
        server.answers += [Answer([b"{}"], status=500, headers={"retry-after-ms": "1"}), Answer([TEXT])]
        assert (await made.achat(ASK)).message.content == "Zwölf 🌊 tides"
        assert len(server.received) == 2
        await made.aclose()

    async def test_an_unreadable_message_is_the_caller_s_error(self, llm: OpenAI) -> None:
        with pytest.raises(ValueError, match="neither data nor path nor url"):
            await llm.achat([ChatMessage(blocks=[ImageBlock()])])


class TestConstruction:
    def test_without_a_key_the_variable_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("OPENAI_API_KEY", "DEEPSEEK_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(LLMConfigurationError, match="OPENAI_API_KEY"):
            OpenAI("gpt-test")
        with pytest.raises(LLMConfigurationError, match="DEEPSEEK_API_KEY"):
            DeepSeek()

    def test_the_key_is_never_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "env-secret")
        made = OpenAI("gpt-test")
        assert "env-secret" not in repr(made) + str(made.model_dump()) + str(made.to_payload())

    def test_by_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
        monkeypatch.delenv("OLLAMA_HOST", raising=False)
        monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
        openai = llm_from("openai:gpt-5.6", temperature=0.1)
        assert isinstance(openai, OpenAI)
        assert (openai.model, openai.temperature) == ("gpt-5.6", 0.1)
        deepseek = llm_from("deepseek:deepseek-chat")
        assert isinstance(deepseek, DeepSeek)
        assert deepseek.base_url == "https://api.deepseek.com"
        ollama = llm_from("ollama:qwen3:8b")
        assert isinstance(ollama, OpenAI)
        assert (ollama.model, ollama.base_url) == ("qwen3:8b", "http://127.0.0.1:11434/v1")
        compatible = llm_from("compatible:m", base_url="http://127.0.0.1:1/v1")
        assert isinstance(compatible, OpenAI)
        with pytest.raises(LLMConfigurationError, match="base_url"):
            llm_from("compatible:m")

    @pytest.mark.parametrize("name", ["gpt-5.6", "nobody:m", "openai:", ""])
    def test_unknown_names_list_the_known(self, name: str) -> None:
        with pytest.raises(LLMConfigurationError, match=r"anthropic:<model>, .*openai:<model>"):
            llm_from(name)
