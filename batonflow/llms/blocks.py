"""Content blocks: the pieces a message consists of.

Binary data is kept base64-encoded, whatever it was given as, so that messages can be written as JSON at any time.
"""

import base64
import binascii
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, field_validator, model_validator

from batonflow import llms
from batonflow.lazy import at_first_use
from batonflow.llms.lazy_fields import assembled
from batonflow.workflow_core.served_input import is_reading_input

__all__ = [
    "AudioBlock",
    "BaseContentBlock",
    "CacheControl",
    "CachePoint",
    "CitableBlock",
    "CitationBlock",
    "ContentBlock",
    "DocumentBlock",
    "ImageBlock",
    "MediaBlock",
    "NativeBlock",
    "TextBlock",
    "ThinkingBlock",
    "ToolCallBlock",
    "VideoBlock",
    "in_words",
    "opened",
]

# Most messages hold no addresses.
guess_type = at_first_use("mimetypes", "guess_type")

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    (b"%PDF", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
)


def _sniff(data: bytes) -> str | None:
    """The MIME type that the first bytes tell."""
    for signature, kind in _SIGNATURES:
        if data.startswith(signature):
            return kind
    if data[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}.get(data[8:12])
    if data[4:8] == b"ftyp":
        return "video/mp4"
    return None


def _decode(data: bytes) -> bytes | None:
    """The bytes behind base64 text, None for what is not base64."""
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        return None


def _to_base64(value: Any) -> Any:
    if hasattr(value, "read"):
        value = value.read()
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(value, bytes | bytearray):
        return value
    data = bytes(value)
    # Blocks are read back from JSON with their data already encoded, and users may hand over either form.
    return data if _decode(data) is not None else base64.b64encode(data)


def _to_text(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else str(value)


Base64 = Annotated[
    bytes, BeforeValidator(_to_base64), PlainSerializer(lambda data: data.decode(), return_type=str, when_used="json")
]
Url = Annotated[str, BeforeValidator(_to_text)]


def _download(url: str) -> bytes:
    if url.startswith("data:"):
        head, _, body = url.partition(",")
        return base64.b64decode(body) if head.endswith(";base64") else unquote_to_bytes(body)
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"cannot fetch {url.partition(':')[0]!r} addresses; only http, https and data")
    return llms.fetching.fetch(url).data


def _resolve(data: bytes | None, path: Path | None, url: str | None, as_base64: bool) -> BytesIO:
    if data is not None:
        return BytesIO(data if as_base64 else base64.b64decode(data))
    if path is not None:
        found = path.read_bytes()
    elif url is not None:
        found = _download(url)
    else:
        raise ValueError("the block has neither data nor path nor url")
    return BytesIO(base64.b64encode(found) if as_base64 else found)


def _mimetype(data: bytes | None, path: Path | None, url: str | None) -> str | None:
    """What kind of data this is, as far as it can be told without fetching it."""
    if data is not None:
        return _sniff(base64.b64decode(data[:64]))
    if path is not None:
        return guess_type(path.name)[0]
    if url is not None and url.startswith("data:"):
        return url[5:].partition(",")[0].partition(";")[0] or None
    return guess_type(url)[0] if url else None


class BaseContentBlock(BaseModel):
    """What all blocks have in common."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


class TextBlock(BaseContentBlock):
    """Text."""

    block_type: Literal["text"] = "text"
    text: str


class MediaBlock(BaseContentBlock):
    """What blocks with data have in common: the data lie in the block, in a file or at an address."""

    path: Path | None = None
    url: Url | None = None

    @field_validator("path")
    @classmethod
    def _is_of_this_machine(cls, path: Path | None) -> Path | None:
        if path is not None and is_reading_input():
            raise ValueError("a message that comes over a server names no files of this machine: send the data")
        return path

    def _data(self) -> bytes | None:
        raise NotImplementedError

    def _kind(self) -> str | None:
        raise NotImplementedError

    def inline_url(self) -> str:
        """The data as a ``data:`` address, read or fetched if need be."""
        encoded = _resolve(self._data(), self.path, self.url, as_base64=True).read().decode()
        return f"data:{self._kind() or 'application/octet-stream'};base64,{encoded}"


class ImageBlock(MediaBlock):
    """A picture.

    Args:
        image: Its bytes, as they are or base64-encoded.
        path: Or the file.
        url: Or the address.
        image_mimetype: Found out from the data when left out.
        detail: ``"low"``, ``"high"`` or ``"auto"``, for models that know it.
    """

    block_type: Literal["image"] = "image"
    image: Base64 | None = None
    image_mimetype: str | None = None
    detail: str | None = None

    @model_validator(mode="after")
    def _guess(self) -> Self:
        if self.image_mimetype is None:
            self.image_mimetype = _mimetype(self.image, self.path, self.url)
        return self

    def _data(self) -> bytes | None:
        return self.image

    def _kind(self) -> str | None:
        return self.image_mimetype

    def resolve_image(self, as_base64: bool = False) -> BytesIO:
        """The picture's bytes, read from the file or the address if need be; ValueError when there is none."""
        return _resolve(self.image, self.path, self.url, as_base64)


class AudioBlock(MediaBlock):
    """Sound.

    Args:
        audio: Its bytes, as they are or base64-encoded.
        path: Or the file.
        url: Or the address.
        format: ``"mp3"``, ``"wav"``; found out from the data when left out.
    """

    block_type: Literal["audio"] = "audio"
    audio: Base64 | None = None
    format: str | None = None

    @model_validator(mode="after")
    def _guess(self) -> Self:
        if self.format is None:
            kind = _mimetype(self.audio, self.path, self.url)
            if kind is not None:
                name = kind.partition("/")[2]
                self.format = {"mpeg": "mp3", "x-wav": "wav"}.get(name, name)
        return self

    def _data(self) -> bytes | None:
        return self.audio

    def _kind(self) -> str | None:
        return None if self.format is None else f"audio/{self.format}"

    def resolve_audio(self, as_base64: bool = False) -> BytesIO:
        """The sound's bytes, read from the file or the address if need be; ValueError when there is none."""
        return _resolve(self.audio, self.path, self.url, as_base64)


class VideoBlock(MediaBlock):
    """A film.

    Args:
        video: Its bytes, as they are or base64-encoded.
        path: Or the file.
        url: Or the address.
        video_mimetype: Found out from the data when left out.
        detail: For models that know it.
        fps: Pictures a second the model should look at.
    """

    block_type: Literal["video"] = "video"
    video: Base64 | None = None
    video_mimetype: str | None = None
    detail: str | None = None
    fps: int | None = None

    @model_validator(mode="after")
    def _guess(self) -> Self:
        if self.video_mimetype is None:
            self.video_mimetype = _mimetype(self.video, self.path, self.url)
        return self

    def _data(self) -> bytes | None:
        return self.video

    def _kind(self) -> str | None:
        return self.video_mimetype

    def resolve_video(self, as_base64: bool = False) -> BytesIO:
        """The film's bytes, read from the file or the address if need be; ValueError when there is none."""
        return _resolve(self.video, self.path, self.url, as_base64)


class DocumentBlock(MediaBlock):
    """A document, a PDF for instance.

    Args:
        data: Its bytes, as they are or base64-encoded.
        path: Or the file.
        url: Or the address.
        title: Its name; the file's name when left out.
        document_mimetype: Found out from the data when left out.
    """

    block_type: Literal["document"] = "document"
    data: Base64 | None = None
    title: str | None = None
    document_mimetype: str | None = None

    @model_validator(mode="after")
    def _guess(self) -> Self:
        if self.document_mimetype is None:
            self.document_mimetype = _mimetype(self.data, self.path, self.url)
        if self.title is None:
            self.title = self.path.name if self.path is not None else "input_document"
        return self

    def _data(self) -> bytes | None:
        return self.data

    def _kind(self) -> str | None:
        return self.document_mimetype

    def resolve_document(self) -> BytesIO:
        """The document's bytes, read from the file or the address if need be; ValueError when there is none."""
        return _resolve(self.data, self.path, self.url, as_base64=False)


class CacheControl(BaseContentBlock):
    """How long a vendor should keep what stands before a cache point."""

    type: str = "ephemeral"
    ttl: str = "5m"


class CachePoint(BaseContentBlock):
    """Asks the vendor to cache the conversation up to here."""

    block_type: Literal["cache"] = "cache"
    cache_control: CacheControl = Field(default_factory=CacheControl)


class CitableBlock(BaseContentBlock):
    """Content the model may cite."""

    block_type: Literal["citable"] = "citable"
    title: str
    source: str
    content: list[Annotated[TextBlock | ImageBlock | DocumentBlock, Field(discriminator="block_type")]]

    @field_validator("content", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return [TextBlock(text=value)] if isinstance(value, str) else value


class CitationBlock(BaseContentBlock):
    """What a model cited, and from where."""

    block_type: Literal["citation"] = "citation"
    cited_content: Annotated[TextBlock | ImageBlock, Field(discriminator="block_type")]
    source: str
    title: str
    additional_location_info: dict[str, int]

    @field_validator("cited_content", mode="before")
    @classmethod
    def _single(cls, value: Any) -> Any:
        if isinstance(value, list):
            items = cast("list[Any]", value)
            if len(items) != 1:
                raise ValueError("cited_content holds exactly one block")
            value = items[0]
        return TextBlock(text=value) if isinstance(value, str) else value


class ThinkingBlock(BaseContentBlock):
    """What a model thought before it answered.

    Args:
        content: The thoughts, empty or None when the vendor hides them.
        num_tokens: How many tokens they took.
        additional_information: What the vendor wants back with them: ``signature`` (Anthropic), ``data`` (Anthropic,
            thoughts that are withheld), ``encrypted_content`` and ``id`` (OpenAI's Responses).
    """

    block_type: Literal["thinking"] = "thinking"
    content: str | None = None
    num_tokens: int | None = None
    additional_information: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_sealed(self) -> bool:
        """Whether it carries a vendor's seal, which no other vendor can read."""
        return not _SEALS.isdisjoint(self.additional_information)


_SEALS = frozenset({"signature", "encrypted_content", "data"})


class ToolCallBlock(BaseContentBlock):
    """A model's wish to call a tool.

    Args:
        tool_call_id: The vendor's id of the call.
        tool_name: Which tool.
        tool_kwargs: Its arguments; the text as it came when it is not a JSON object.
    """

    block_type: Literal["tool_call"] = "tool_call"
    tool_call_id: str | None = None
    tool_name: str
    tool_kwargs: dict[str, Any] | str = Field(default_factory=lambda: cast("dict[str, Any]", {}))

    @staticmethod
    def made(tool_call_id: str | None, tool_name: str, tool_kwargs: dict[str, Any] | str) -> "ToolCallBlock":
        """A call of values that fit, unvalidated; a dict is kept."""
        return assembled(
            ToolCallBlock,
            {
                "block_type": "tool_call",
                "tool_call_id": tool_call_id,
                "tool_name": tool_name,
                "tool_kwargs": tool_kwargs,
            },
        )


class NativeBlock(BaseContentBlock):
    """A part of an answer that only its vendor understands: a search the vendor ran, a compacted conversation.

    It goes back to that vendor as it came, and is left out for others.

    Args:
        vendor: Whose it is.
        data: The vendor's own form.
    """

    block_type: Literal["native"] = "native"
    vendor: str
    data: dict[str, Any]


ContentBlock = Annotated[
    TextBlock
    | ImageBlock
    | AudioBlock
    | VideoBlock
    | DocumentBlock
    | CachePoint
    | CitableBlock
    | CitationBlock
    | ThinkingBlock
    | ToolCallBlock
    | NativeBlock,
    Field(discriminator="block_type"),
]
"""Any block."""


def opened(blocks: Iterable[Any]) -> list[Any]:
    """The blocks, with what citable ones hold in their place, for vendors that know no such blocks."""
    return [part for block in blocks for part in (block.content if isinstance(block, CitableBlock) else [block])]


def in_words(blocks: Iterable[Any]) -> str:
    r"""What text can say of blocks: the texts in them, a line each, and of what cannot be read that it is there.

    Example:
        >>> in_words([TextBlock(text="The tides:"), ImageBlock(url="https://x.test/tides.png")])
        'The tides:\n[picture, image/png, https://x.test/tides.png]'
    """
    return "\n".join(said for said in map(_words, opened(blocks)) if said is not None)


def _words(block: Any) -> str | None:
    match block:
        case TextBlock():
            return block.text
        case CitationBlock():
            return _words(block.cited_content)
        case DocumentBlock() if block.data is not None and (block.document_mimetype or "").startswith("text/"):
            return base64.b64decode(block.data).decode(errors="replace")
        case DocumentBlock():
            return _named(block, "document", block.title, block.document_mimetype)
        case ImageBlock():
            return _named(block, "picture", block.image_mimetype)
        case AudioBlock():
            return _named(block, "sound", block.format)
        case VideoBlock():
            return _named(block, "film", block.video_mimetype)
        case _:
            return None


def _named(block: MediaBlock, *about: str | None) -> str:
    place = block.url if block.url is not None and block.url.startswith(("http://", "https://")) else None
    return f"[{', '.join(filter(None, (*about, place)))}]"
