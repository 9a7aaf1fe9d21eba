"""An estimate of the tokens in a message, without a tokenizer to download."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from batonflow.agents.memory.turns import as_shown
from batonflow.llms import (
    AudioBlock,
    CachePoint,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    NativeBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)

__all__ = ["Content", "MediaTokens", "Tokenizer", "count_tokens"]

Tokenizer = Callable[[str], Sequence[object]]
"""A function that splits a string into tokens."""

Content = str | ChatMessage | ContentBlock | Sequence[ChatMessage] | Sequence[ContentBlock]
"""The values whose tokens can be counted."""

BYTES_PER_TOKEN = 4
_PLAIN = (str, int, float, NoneType)


@dataclass(frozen=True)
class MediaTokens:
    """The number of tokens that each image, audio clip, video or document counts as."""

    image: int = 256
    audio: int = 256
    video: int = 256
    document: int = 2048


_MEDIA = MediaTokens()


def count_tokens(content: Content, tokenizer_fn: Tokenizer | None = None, media: MediaTokens = _MEDIA) -> int:
    """Estimate the number of tokens in ``content``.

    A string counts as one token per four bytes of UTF-8, rounded up. One token is then four English letters, two
    Russian or Greek letters, or 1.3 Chinese characters. Vendors' counts can be a third higher or lower.

    Args:
        content: A string, a message, a block, or a list of messages or blocks.
        tokenizer_fn: Splits a string into tokens; their number replaces the estimate.
        media: The sizes of images, audio, video and documents.

    Example:
        >>> count_tokens(ChatMessage("How high is the tide?"))
        6
    """
    if isinstance(content, str):
        return _text_tokens(content, tokenizer_fn)
    if isinstance(content, ChatMessage):
        count = 0
        for block in content.blocks:
            if type(block) is TextBlock:  # nearly always
                count += _text_tokens(block.text, tokenizer_fn)
            else:
                count += _block_tokens(block, tokenizer_fn, media)
        if not content.additional_kwargs:
            return count
        (shown,) = as_shown([content])
        if shown.additional_kwargs:
            # Count objects as JSON data, so that the count is the same after they are restored from a snapshot.
            more: Any = shown.additional_kwargs
            if not all(isinstance(value, _PLAIN) for value in more.values()):
                more = shown.model_dump(include={"additional_kwargs"})["additional_kwargs"]
            count += count_tokens(str(more), tokenizer_fn)
        return count
    if isinstance(content, Sequence):
        return sum(count_tokens(one, tokenizer_fn, media) for one in content)
    return _block_tokens(content, tokenizer_fn, media)


def _text_tokens(text: str, tokenizer_fn: Tokenizer | None) -> int:
    if tokenizer_fn is not None:
        return len(tokenizer_fn(text))
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    return -(-size // BYTES_PER_TOKEN)


def _block_tokens(block: ContentBlock, tokenizer_fn: Tokenizer | None, media: MediaTokens) -> int:
    match block:
        case TextBlock():
            return _text_tokens(block.text, tokenizer_fn)
        case ImageBlock():
            return media.image
        case AudioBlock():
            return media.audio
        case VideoBlock():
            return media.video
        case DocumentBlock():
            return media.document
        case CachePoint():
            return 0
        case CitableBlock():
            return count_tokens(block.title, tokenizer_fn) + count_tokens(block.content, tokenizer_fn, media)
        case CitationBlock():
            return _block_tokens(block.cited_content, tokenizer_fn, media)
        case ThinkingBlock():
            # Prefer the vendor's count, because the text of the thoughts may be hidden.
            return block.num_tokens or count_tokens(block.content or "", tokenizer_fn)
        case ToolCallBlock():
            return count_tokens(f"{block.tool_name} {block.tool_kwargs}", tokenizer_fn)
        case NativeBlock():
            return count_tokens(str(block.data), tokenizer_fn)
