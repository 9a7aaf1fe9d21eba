"""Results of a server as outputs for models."""

import json
from pathlib import PurePosixPath
from typing import Any, cast
from urllib.parse import urlsplit

from batonflow.llms.blocks import AudioBlock, DocumentBlock, ImageBlock, TextBlock, VideoBlock
from batonflow.tools.base import ToolOutput

__all__ = ["output_of"]

_SOUND_NAMES = {"mpeg": "mp3", "x-wav": "wav"}


def output_of(tool_name: str, arguments: dict[str, Any], result: Any) -> ToolOutput:
    """Return the output of a call.

    Its blocks are the content; its ``raw_output`` is the structured content if there is any, else the text.

    Args:
        tool_name: The name that models use.
        arguments: The arguments.
        result: The protocol's ``CallToolResult``.
    """
    blocks = [_block(content) for content in result.content]
    structured: Any = result.structured_content
    if structured is not None and not any(isinstance(block, TextBlock) for block in blocks):
        # Servers should repeat structured content as text for models, but not all do.
        blocks.insert(0, TextBlock(text=json.dumps(structured, ensure_ascii=False)))
    if not blocks:
        blocks = [TextBlock(text="The tool failed without an error text." if result.is_error else "Done; no output.")]
    output = ToolOutput(tool_name=tool_name, blocks=blocks, raw_input=arguments, is_error=bool(result.is_error))
    output.raw_output = output.content if structured is None else structured
    return output


def _block(content: Any) -> Any:
    match content.type:
        case "text":
            return TextBlock(text=content.text)
        case "image":
            return ImageBlock(image=content.data, image_mimetype=content.mime_type)
        case "audio":
            return AudioBlock(audio=content.data, format=_sound_name(content.mime_type))
        case "resource_link":
            about = f": {content.description}" if content.description else ""
            return TextBlock(text=f"{content.title or content.name} <{content.uri}>{about}")
        case "resource":
            return _resource(content.resource)
        case _:
            return TextBlock(text=cast("str", content.model_dump_json(by_alias=True, exclude_none=True)))


def _resource(resource: Any) -> Any:
    text: str | None = getattr(resource, "text", None)
    if text is not None:
        return TextBlock(text=text)
    kind: str = resource.mime_type or "application/octet-stream"
    match kind.partition("/")[0]:
        case "image":
            return ImageBlock(image=resource.blob, image_mimetype=kind)
        case "audio":
            return AudioBlock(audio=resource.blob, format=_sound_name(kind))
        case "video":
            return VideoBlock(video=resource.blob, video_mimetype=kind)
        case _:
            title = PurePosixPath(urlsplit(str(resource.uri)).path).name or str(resource.uri)
            return DocumentBlock(data=resource.blob, title=title, document_mimetype=kind)


def _sound_name(kind: str) -> str:
    name = kind.partition("/")[2]
    return _SOUND_NAMES.get(name, name)
