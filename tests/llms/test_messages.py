"""Messages and content blocks."""

import asyncio
import base64
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonflow.llms import (
    AudioBlock,
    CachePoint,
    ChatMessage,
    ChatResponse,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    LLMRequestError,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolSelection,
    Usage,
    VideoBlock,
)
from batonflow.llms.blocks import CacheControl, in_words
from batonflow.llms.fetching import FetchPolicy, fetching
from batonflow.llms.messages import messages_to_prompt
from batonflow.llms.tool_protocol import ToolSpec, tool_selections, tool_specs
from tests.llms.loopback import Answer, loopback

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR"


class TestChatMessage:
    def test_text_is_one_block_of_the_user(self) -> None:
        message = ChatMessage("Hello")
        assert message.blocks == [TextBlock(text="Hello")]
        assert message.role == "user"
        assert message.role is MessageRole.USER
        assert str(message) == "user: Hello"
        assert ChatMessage(content="Hello") == message

    def test_a_list_is_the_blocks(self) -> None:
        blocks = [TextBlock(text="a"), ThinkingBlock(content="hm"), TextBlock(text="b")]
        message = ChatMessage(blocks, role="assistant")
        assert message.content == "a\nb"
        assert message.role is MessageRole.ASSISTANT

    def test_no_text_and_empty_text_differ(self) -> None:
        assert ChatMessage().content is None
        assert ChatMessage("").content == ""
        assert ChatMessage(blocks=[ToolCallBlock(tool_name="add")]).content is None

    def test_content_can_be_set_while_there_is_one_text(self) -> None:
        message = ChatMessage("a")
        message.content = "b"
        assert message.content == "b"
        empty = ChatMessage()
        empty.content = "c"
        assert empty.content == "c"
        for blocks in ([TextBlock(text="a"), TextBlock(text="b")], [ToolCallBlock(tool_name="add")]):
            several = ChatMessage(blocks=blocks)
            with pytest.raises(ValueError, match="several blocks"):
                several.content = "x"

    def test_other_content_is_refused(self) -> None:
        with pytest.raises(TypeError, match="not int"):
            ChatMessage(5)

    def test_from_str(self) -> None:
        assert ChatMessage.from_str("hi", "system").role is MessageRole.SYSTEM

    def test_additional_kwargs_are_dumped_however_deep(self) -> None:
        message = ChatMessage(
            "hi",
            additional_kwargs={
                "calls": [ToolSelection(tool_id="1", tool_name="t", tool_kwargs={})],
                "x": {"b": b"\xff"},
            },
        )
        dumped = message.model_dump()["additional_kwargs"]
        assert dumped == {"calls": [{"tool_id": "1", "tool_name": "t", "tool_kwargs": {}}], "x": {"b": "/w=="}}

    def test_every_block_survives_json(self) -> None:
        message = ChatMessage(
            blocks=[
                TextBlock(text="t"),
                ImageBlock(image=PNG, detail="low"),
                AudioBlock(audio=b"ID3\x04rest"),
                VideoBlock(video=b"\x00\x00\x00\x20ftypisom", fps=2),
                DocumentBlock(data=b"%PDF-1.7\xff", title="paper"),
                CachePoint(cache_control=CacheControl(type="ephemeral")),
                CitableBlock(title="t", source="s", content="text"),
                CitationBlock(cited_content="c", source="s", title="t", additional_location_info={"page": 1}),
                ThinkingBlock(content="hm", additional_information={"signature": "s"}),
                ToolCallBlock(tool_call_id="1", tool_name="add", tool_kwargs={"a": 1}),
            ]
        )
        assert ChatMessage.model_validate_json(message.model_dump_json()) == message

    def test_responses_show_their_message(self) -> None:
        assert str(ChatResponse(message=ChatMessage("hi", role="assistant"))) == "assistant: hi"


class TestBlocks:
    def test_bytes_are_kept_as_base64_and_resolved_back(self) -> None:
        block = ImageBlock(image=PNG)
        assert block.image == base64.b64encode(PNG)
        assert block.image_mimetype == "image/png"
        assert block.resolve_image().read() == PNG
        assert block.resolve_image(as_base64=True).read() == base64.b64encode(PNG)
        assert ImageBlock(image=base64.b64encode(PNG)) == block
        assert ImageBlock(image=BytesIO(PNG)) == block
        assert block.inline_url() == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"

    def test_files_are_read_when_needed(self, tmp_path: Path) -> None:
        file = tmp_path / "paper.pdf"
        file.write_bytes(b"%PDF-1.7")
        block = DocumentBlock(path=file)
        assert (block.title, block.document_mimetype, block.data) == ("paper.pdf", "application/pdf", None)
        assert block.resolve_document().read() == b"%PDF-1.7"

    def test_data_addresses_need_no_network(self) -> None:
        assert AudioBlock(url="data:audio/mpeg;base64,SUQz").resolve_audio().read() == b"ID3"
        assert VideoBlock(url="data:video/mp4,a%20b").resolve_video().read() == b"a b"
        assert AudioBlock(url="data:audio/mpeg;base64,SUQz").format == "mp3"

    def test_what_cannot_be_resolved_says_so(self) -> None:
        with pytest.raises(ValueError, match="neither data nor path nor url"):
            ImageBlock().resolve_image()
        with pytest.raises(ValueError, match="file"):
            ImageBlock(url="file:///etc/passwd").resolve_image()

    async def test_an_address_that_gives_nothing_is_named_without_its_signature(self) -> None:
        async with loopback() as server:
            server.answers = [Answer([b"gone"], status=404, content_type="text/plain")]
            block = DocumentBlock(url=f"{server.url}/tides.pdf?signature=secret")
            here = FetchPolicy(private_addresses=True)
            with fetching(here), pytest.raises(LLMRequestError, match=r"cannot fetch \S+/tides\.pdf: .*404") as caught:
                await asyncio.to_thread(block.resolve_document)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        ("data", "kind"),
        [
            (b"\xff\xd8\xff\xe0", "image/jpeg"),
            (b"GIF89a", "image/gif"),
            (b"RIFF\x00\x00\x00\x00WEBP", "image/webp"),
            (b"RIFF\x00\x00\x00\x00WAVE", "audio/wav"),
            (b"nothing known!", None),
        ],
    )
    def test_kinds_are_told_by_the_first_bytes(self, data: bytes, kind: str | None) -> None:
        assert ImageBlock(image=data).image_mimetype == kind

    def test_text_can_say_what_there_is(self) -> None:
        cited = CitationBlock(cited_content="cited", source="s", title="t", additional_location_info={})
        blocks = [
            TextBlock(text="first"),
            CitableBlock(title="t", source="s", content=[TextBlock(text="inside"), ImageBlock(image=b"GIF89a")]),
            CachePoint(),
            TextBlock(text=""),
            cited,
            AudioBlock(audio=b"ID3"),
            VideoBlock(url="https://x.test/ebb.webm"),
            DocumentBlock(data="Zw\u00f6lf".encode(), document_mimetype="text/plain"),
            DocumentBlock(data=b"%PDF-1.7", title="paper.pdf"),
            ImageBlock(url="data:image/png;base64,AAAA"),
        ]
        assert in_words(blocks).split("\n") == [
            *("first", "inside", "[picture, image/gif]", "", "cited", "[sound, mp3]"),
            "[film, video/webm, https://x.test/ebb.webm]",
            *("Zw\u00f6lf", "[document, paper.pdf, application/pdf]", "[picture, image/png]"),
        ]

    def test_a_citation_cites_one_thing(self) -> None:
        with pytest.raises(ValueError, match="exactly one"):
            CitationBlock(cited_content=["a", "b"], source="s", title="t", additional_location_info={})  # type: ignore[arg-type]


class TestToolSelections:
    def test_blocks_become_selections(self) -> None:
        message = ChatMessage(
            blocks=[
                ToolCallBlock(tool_call_id="1", tool_name="add", tool_kwargs={"a": 1}),
                ToolCallBlock(tool_call_id="2", tool_name="add", tool_kwargs='{"a": 2}'),
                ToolCallBlock(tool_call_id="3", tool_name="now", tool_kwargs=""),
            ]
        )
        assert [(one.tool_id, one.tool_kwargs) for one in tool_selections(message)] == [
            ("1", {"a": 1}),
            ("2", {"a": 2}),
            ("3", {}),
        ]

    def test_arguments_that_are_no_object_are_kept_for_the_model_to_read(self) -> None:
        message = ChatMessage(blocks=[ToolCallBlock(tool_call_id="1", tool_name="add", tool_kwargs='{"a": ')])
        [selection] = tool_selections(message)
        assert selection.tool_kwargs == {}
        assert selection.invalid_arguments == '{"a": '
        assert selection.model_dump()["invalid_arguments"] == '{"a": '

    def test_missing_ids_are_made_and_stay_and_repeated_ids_are_changed(self) -> None:
        message = ChatMessage(
            blocks=[
                ToolCallBlock(tool_name="a"),
                ToolCallBlock(tool_call_id="same", tool_name="b"),
                ToolCallBlock(tool_call_id="same", tool_name="c"),
            ]
        )
        ids = [one.tool_id for one in tool_selections(message)]
        assert len(set(ids)) == 3
        assert all(ids)
        assert [one.tool_id for one in tool_selections(message)] == ids

    @given(st.lists(st.sampled_from(["x", "x_1", "x_2", "x_1_2", "x_2_2"]), max_size=6))
    def test_no_new_id_is_one_that_is_there_already(self, given_ids: list[str]) -> None:
        blocks = [ToolCallBlock(tool_call_id=one, tool_name="add") for one in given_ids]
        ids = [one.tool_id for one in tool_selections(ChatMessage(blocks, role="assistant"))]
        assert len(set(ids)) == len(ids)
        for number, (call_id, made) in enumerate(zip(given_ids, ids, strict=True)):
            assert made == call_id or call_id in ids[:number], "changed without need"
        begun = tool_selections(ChatMessage(blocks[:-1], role="assistant"))
        assert [one.tool_id for one in begun] == ids[: len(begun)], "another one while the answer arrives"

    def test_the_older_forms_in_additional_kwargs(self) -> None:
        own = ToolSelection(tool_id="1", tool_name="a", tool_kwargs={"x": 1})
        calls = [own, own.model_dump(), {"id": "2", "function": {"name": "b", "arguments": '{"y": 2}'}}]
        message = ChatMessage(additional_kwargs={"tool_calls": calls})
        found = tool_selections(message)
        assert [(one.tool_name, one.tool_kwargs) for one in found] == [
            ("a", {"x": 1}),
            ("a", {"x": 1}),
            ("b", {"y": 2}),
        ]
        assert len({one.tool_id for one in found}) == 3
        assert own.tool_id == "1"

    def test_whatever_is_not_a_dict_becomes_an_empty_one(self) -> None:
        assert ToolSelection(tool_id="1", tool_name="a", tool_kwargs="oops").tool_kwargs == {}  # type: ignore[arg-type]

    def test_specs_from_dicts_and_specs(self) -> None:
        spec = ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {}})
        assert tool_specs([spec, {"type": "function", "function": spec.model_dump()}, spec.model_dump()]) == [spec] * 3
        with pytest.raises(TypeError, match="is not a tool"):
            tool_specs([5])

    def test_a_tool_needs_a_name_and_no_description(self) -> None:
        class Metadata:
            name: str | None = "add"
            description = None

            def get_parameters_dict(self) -> dict[str, Any]:
                return {"type": "object", "properties": {}}

        tool = SimpleNamespace(metadata=Metadata())
        assert tool_specs([tool]) == [ToolSpec(name="add")]
        tool.metadata.name = None
        with pytest.raises(ValueError, match="has no name"):
            tool_specs([tool])

    def test_arguments_nested_without_end_are_told_to_the_model(self) -> None:
        text = '{"a": ' + "[" * 100_000
        call = ToolCallBlock(tool_call_id="1", tool_name="add", tool_kwargs=text)
        [selection] = tool_selections(ChatMessage([call], role="assistant"))
        assert (selection.tool_kwargs, selection.invalid_arguments) == ({}, text)


def test_usage_adds_up() -> None:
    total = Usage(input_tokens=3, output_tokens=2, cached_tokens=1) + Usage(input_tokens=1, reasoning_tokens=4)
    assert total == Usage(input_tokens=4, output_tokens=2, cached_tokens=1, reasoning_tokens=4)
    assert total.total_tokens == 6


def test_a_conversation_as_one_prompt() -> None:
    messages = [ChatMessage("Be kind.", role="system"), ChatMessage("Hi", additional_kwargs={"k": 1})]
    assert messages_to_prompt(messages) == "system: Be kind.\nuser: Hi\n{'k': 1}\nassistant: "
