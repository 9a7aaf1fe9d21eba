"""Characters that a server has cut in two."""

from collections.abc import Sequence
from dataclasses import replace

from batonflow.llms.blocks import ThinkingBlock
from batonflow.llms.sendable import has_halves, sendable
from batonflow.llms.stream import BlockDone, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta

__all__ = ["Halves"]

_Piece = TextDelta | ThinkingDelta | ToolCallDelta
_TEXTS = (TextDelta, ThinkingDelta)


class Halves:
    """Joins the halves of characters that come in two pieces of an answer, as servers that count in UTF-16 send them.

    A half waits for the next piece of the same text. One that nothing follows becomes U+FFFD: nobody could send it, and
    no record hold it.
    """

    def __init__(self) -> None:
        self._waiting: _Piece | None = None

    def concern(self, event: StreamEvent) -> bool:
        """Whether ``event`` has to go through :meth:`whole`; nearly none has."""
        if self._waiting is not None:
            return True
        if isinstance(event, _TEXTS):
            return has_halves(event.text)
        if isinstance(event, BlockDone):
            return isinstance(event.block, ThinkingBlock) and has_halves(event.block.content or "")
        return has_halves(_text(event))

    def whole(self, event: StreamEvent) -> Sequence[StreamEvent]:
        """What can be given out now, in whole characters."""
        told: list[StreamEvent] = []
        before, self._waiting = self._waiting, None
        text = _text(event)
        if before is not None:
            if _strand(before) == _strand(event):
                text = _text(before) + text
            else:
                told.append(_with_text(before, sendable(_text(before))))
        if isinstance(event, BlockDone) and isinstance(event.block, ThinkingBlock) and event.block.content:
            # Adapters put it together from the pieces as they came.
            event.block.content = sendable(event.block.content)
        if not isinstance(event, _Piece):
            return [*told, event]
        if "\ud800" <= text[-1:] <= "\udbff":
            self._waiting = _with_text(event, text[-1])
            text = text[:-1]
        # A piece of a call says whose it is, also when it has no text left.
        if text or self._waiting is None or isinstance(event, ToolCallDelta):
            told.append(_with_text(event, sendable(text)))
        return told


def _text(event: StreamEvent) -> str:
    match event.kind:
        case "text" | "thinking":
            return event.text
        case "tool_call":
            return event.arguments
        case _:
            return ""


def _with_text(event: _Piece, text: str) -> _Piece:
    return replace(event, arguments=text) if isinstance(event, ToolCallDelta) else replace(event, text=text)


def _strand(event: StreamEvent) -> tuple[str, int]:
    """Which text of the answer the event is a piece of."""
    match event:
        case TextDelta():
            return event.kind, event.part
        case ToolCallDelta():
            return event.kind, event.index
        case _:
            return event.kind, 0
