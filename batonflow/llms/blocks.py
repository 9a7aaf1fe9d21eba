"""Content blocks, the parts of a message, and data that vendors and stores accept: valid Unicode, finite numbers.

Binary data is kept base64-encoded, so that messages can be serialized as JSON at any time.
"""

import base64
import binascii
from collections.abc import Callable, Iterable
from io import BytesIO
from itertools import count
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, cast
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, field_validator, model_validator

from batonflow import llms
from batonflow.lazy import at_first_use
from batonflow.new_runs import is_reading_input

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
    "Watchable",
    "WatchedList",
    "expand_citable",
    "has_halves",
    "in_words",
    "json_data",
    "lose_watch",
    "notice_changes",
    "sendable",
    "watch_count",
    "whole_texts",
]

# Most messages contain no URLs, so the module is loaded at first use.
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
    """Return the MIME type shown by the first bytes."""
    for signature, kind in _SIGNATURES:
        if data.startswith(signature):
            return kind
    if data[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}.get(data[8:12])
    if data[4:8] == b"ftyp":
        return "video/mp4"
    return None


def _decode(data: bytes) -> bytes | None:
    """Return the bytes of base64 text, None when the text is not base64."""
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
    # Data read from JSON are encoded already, and callers may pass either form.
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
    """Return the MIME type of the data, without fetching them."""
    if data is not None:
        return _sniff(base64.b64decode(data[:64]))
    if path is not None:
        return guess_type(path.name)[0]
    if url is not None and url.startswith("data:"):
        return url[5:].partition(",")[0].partition(";")[0] or None
    return guess_type(url)[0] if url else None


class _Count:
    """A count of changes from any thread; after each change ``value`` differs from the value before."""

    __slots__ = ("_numbers", "value")

    def __init__(self) -> None:
        self.value = 0
        self._numbers = count(1)

    def add(self) -> None:
        """Count a change."""
        self.value = next(self._numbers)


watch_count = _Count()
"""The number of changes of watched messages in this process; see ``llms.watched``."""


class Watchable(BaseModel):
    """The base class of models that tell when they are changed; see ``llms.watched``."""

    __slots__ = ("batonflow_watch",)

    # pydantic's own way of setting attributes takes it for a field.
    put_watch: ClassVar[Callable[[Any, object], None]]

    def __setattr__(self, name: str, value: Any) -> None:
        lose_watch(self)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        lose_watch(self)
        super().__delattr__(name)


_slot: Any = Watchable.__dict__["batonflow_watch"]
Watchable.put_watch = _slot.__set__


def lose_watch(part: Any) -> None:
    """Note that a part of a message changes, if it is watched."""
    if getattr(part, "batonflow_watch", None) is not None:
        cast("Any", type(part)).batonflow_watch.__set__(part, None)
        watch_count.add()


def notice_changes(cls: type, base: Any, names: str) -> None:
    """Let the methods of a container that change it note the change.

    Args:
        cls: The class of the container.
        base: The class with the methods.
        names: The names of the methods, separated by spaces.
    """

    def changing(name: str) -> Any:
        method = getattr(base, name)

        def change(self: Any, *arguments: Any, **named: Any) -> Any:
            lose_watch(self)
            return method(self, *arguments, **named)

        change.__name__, change.__doc__ = name, method.__doc__
        return change

    for name in names.split():
        setattr(cls, name, changing(name))


class WatchedList(list[Any]):
    """The blocks of a message, which can be watched; copies of it are plain lists."""

    __slots__ = ("batonflow_watch",)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


notice_changes(
    WatchedList, list, "append extend insert pop remove clear sort reverse __setitem__ __delitem__ __iadd__ __imul__"
)


class BaseContentBlock(Watchable):
    """The base class of blocks."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


class TextBlock(BaseContentBlock):
    """Text."""

    block_type: Literal["text"] = "text"
    text: str


class MediaBlock(BaseContentBlock):
    """The base class of blocks with binary data: in the block, in a file or at a URL."""

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
        """Return the data as a ``data:`` URL; a file is read, a URL is fetched."""
        encoded = _resolve(self._data(), self.path, self.url, as_base64=True).read().decode()
        return f"data:{self._kind() or 'application/octet-stream'};base64,{encoded}"


class ImageBlock(MediaBlock):
    """An image.

    Args:
        image: The bytes, plain or base64-encoded.
        path: A file instead.
        url: A URL instead.
        image_mimetype: Detected from the data by default.
        detail: ``"low"``, ``"high"`` or ``"auto"``, for models with this option.
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
        """Return the bytes of the image, from the file or URL if needed. Raise ValueError without data."""
        return _resolve(self.image, self.path, self.url, as_base64)


class AudioBlock(MediaBlock):
    """An audio recording.

    Args:
        audio: The bytes, plain or base64-encoded.
        path: A file instead.
        url: A URL instead.
        format: ``"mp3"``, ``"wav"``; detected from the data by default.
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
        """Return the bytes of the audio, from the file or URL if needed. Raise ValueError without data."""
        return _resolve(self.audio, self.path, self.url, as_base64)


class VideoBlock(MediaBlock):
    """A video.

    Args:
        video: The bytes, plain or base64-encoded.
        path: A file instead.
        url: A URL instead.
        video_mimetype: Detected from the data by default.
        detail: For models with this option.
        fps: Frames per second for the model to look at.
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
        """Return the bytes of the video, from the file or URL if needed. Raise ValueError without data."""
        return _resolve(self.video, self.path, self.url, as_base64)


class DocumentBlock(MediaBlock):
    """A document, for example a PDF.

    Args:
        data: The bytes, plain or base64-encoded.
        path: A file instead.
        url: A URL instead.
        title: The title; by default the name of the file.
        document_mimetype: Detected from the data by default.
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
        """Return the bytes of the document, from the file or URL if needed. Raise ValueError without data."""
        return _resolve(self.data, self.path, self.url, as_base64=False)


class CacheControl(BaseContentBlock):
    """The lifetime of a cache entry at the vendor."""

    type: str = "ephemeral"
    ttl: str = "5m"


class CachePoint(BaseContentBlock):
    """A mark up to which the vendor caches the conversation."""

    block_type: Literal["cache"] = "cache"
    cache_control: CacheControl = Field(default_factory=CacheControl)


class CitableBlock(BaseContentBlock):
    """Content that the model may cite."""

    block_type: Literal["citable"] = "citable"
    title: str
    source: str
    content: list[Annotated[TextBlock | ImageBlock | DocumentBlock, Field(discriminator="block_type")]]

    @field_validator("content", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return [TextBlock(text=value)] if isinstance(value, str) else value


class CitationBlock(BaseContentBlock):
    """A citation of a model, with its source."""

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
    """A thought of a model before its answer.

    Args:
        content: The text, empty or None when the vendor hides it.
        num_tokens: The number of tokens.
        additional_information: Data that the vendor wants back: ``signature`` (Anthropic), ``data`` (Anthropic, hidden
            thoughts), ``encrypted_content`` and ``id`` (OpenAI's Responses).
    """

    block_type: Literal["thinking"] = "thinking"
    content: str | None = None
    num_tokens: int | None = None
    additional_information: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_sealed(self) -> bool:
        """Return whether it has a signature or encryption that no other vendor can read."""
        return not _SEALS.isdisjoint(self.additional_information)


_SEALS = frozenset({"signature", "encrypted_content", "data"})


class ToolCallBlock(BaseContentBlock):
    """A call to a tool that a model asks for.

    Args:
        tool_call_id: The vendor's id of the call.
        tool_name: The name of the tool.
        tool_kwargs: The arguments; the original text when it is not a JSON object.
    """

    block_type: Literal["tool_call"] = "tool_call"
    tool_call_id: str | None = None
    tool_name: str
    tool_kwargs: dict[str, Any] | str = Field(default_factory=lambda: cast("dict[str, Any]", {}))


class NativeBlock(BaseContentBlock):
    """A part of a response that only its vendor understands, such as a search that the vendor ran.

    It is sent back to that vendor unchanged, and left out for others.

    Args:
        vendor: The vendor.
        data: The part in the vendor's form.
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


def expand_citable(blocks: Iterable[Any]) -> list[Any]:
    """Return the blocks with citable blocks replaced by their content, for vendors without them."""
    return [part for block in blocks for part in (block.content if isinstance(block, CitableBlock) else [block])]


def in_words(blocks: Iterable[Any]) -> str:
    r"""Return blocks as text: a line for each text, and a placeholder for other blocks.

    Example:
        >>> in_words([TextBlock(text="The tides:"), ImageBlock(url="https://x.test/tides.png")])
        'The tides:\n[picture, image/png, https://x.test/tides.png]'
    """
    return "\n".join(said for said in map(_words, expand_citable(blocks)) if said is not None)


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


def has_halves(text: str) -> bool:
    """Return whether ``text`` contains lone surrogates, which UTF-8 cannot encode."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def sendable(text: str) -> str:
    r"""Return ``text`` as valid Unicode: surrogate pairs are joined, and lone surrogates become U+FFFD.

    Servers that count in UTF-16 send surrogates, and file names may contain them. Neither a request nor a snapshot can
    hold them.

    Example:
        >>> sendable("wave \ud83c" + "\udf0a") == "wave \U0001f30a"
        True
    """
    if not has_halves(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole_texts(value: Any) -> Any:
    """Return data with valid Unicode in all texts and keys."""
    return _changed(value, _whole)


def json_data(value: Any) -> Any:
    """Return data with valid Unicode, and None in place of NaN and infinity."""
    return _changed(value, _written)


def _written(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else _whole(value)


def _whole(value: Any) -> Any:
    return sendable(value) if isinstance(value, str) else value


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_changed(one, change) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {_whole(name): _changed(one, change) for name, one in cast("dict[Any, Any]", value).items()}
    return change(value)
