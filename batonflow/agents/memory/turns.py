"""Cuts in a conversation, and the windows over it as it grows."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, cast

from batonflow.llms import ChatMessage, MessageRole, TextBlock, ToolCallBlock
from batonflow.llms.tool_protocol import kept_calls

__all__ = [
    "PRELUDE",
    "Calls",
    "Window",
    "as_shown",
    "call_ids",
    "cuts",
    "first_shown",
    "is_observation",
    "is_question",
    "next_start",
    "observation",
    "result_id",
    "text_of",
    "transcript_of",
    "without_orphans",
]

PRELUDE = (MessageRole.SYSTEM, MessageRole.DEVELOPER)
"""The roles of messages that stand before a user's message and belong to it."""

_OBSERVATION = "observation"


def observation(text: str, role: MessageRole = MessageRole.USER) -> ChatMessage:
    """Return a message under the name of the user that tells a model the outcome of its text.

    A turn does not begin with it. Memories keep the mark that says so and leave it out of the shown messages.
    """
    return ChatMessage(text, role=role, additional_kwargs={_OBSERVATION: True})


def is_question(message: ChatMessage) -> bool:
    """Return whether ``message`` is the user's own, and not one made by ``observation``."""
    return message.role == MessageRole.USER and not is_observation(message)


def text_of(message: ChatMessage) -> str:
    """The text blocks of a message, a line each."""
    return "\n".join(block.text for block in message.blocks if isinstance(block, TextBlock))


def is_observation(message: ChatMessage) -> bool:
    """Return whether ``message`` was made by ``observation``."""
    return _OBSERVATION in message.additional_kwargs


def as_shown(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages without the marks of observations, which vendors do not know."""
    return [_unmarked(one) if _OBSERVATION in one.additional_kwargs else one for one in messages]


def _unmarked(message: ChatMessage) -> ChatMessage:
    kept = {name: value for name, value in message.additional_kwargs.items() if name != _OBSERVATION}
    return message.model_copy(update={"additional_kwargs": kept})


class Calls:
    """Which calls of tools stand in a conversation, and which results.

    Args:
        messages: The conversation.

    Attributes:
        newest: By id, the position of the newest call.
        of_results: For the position of a result, the position of the newest call before it that has its id.
        strangers: For the position of a result without such a call, the id.
    """

    __slots__ = ("newest", "of_results", "strangers")

    def __init__(self, messages: Sequence[ChatMessage]) -> None:
        self.newest: dict[str, int] = {}
        self.of_results: dict[int, int] = {}
        self.strangers: dict[int, str] = {}
        for position, message in enumerate(messages):
            # A text and nothing else, as most messages are.
            blocks = message.blocks
            if not message.additional_kwargs and len(blocks) == 1 and type(blocks[0]) is TextBlock:
                continue
            result = result_id(message)
            if result in self.newest:
                self.of_results[position] = self.newest[result]
            elif result is not None:
                self.strangers[position] = result
            for call in call_ids(message):
                self.newest[call] = position


def cuts(messages: Sequence[ChatMessage], calls: Calls | None = None) -> list[int]:
    """Return the positions at which a conversation may begin without the messages before them.

    That is where a user speaks (system messages right before that go with it) and not where an observation is told,
    unless a tool's result behind the position belongs to a call before it. Position 0 is not among them: nothing is cut
    there.

    Args:
        messages: The conversation.
        calls: The calls in it, if they are known already.
    """
    found: list[int] = []
    of_results = (calls or Calls(messages)).of_results
    earliest_call, user_speaks = len(messages), False
    for position in range(len(messages) - 1, 0, -1):
        if position in of_results:
            earliest_call = min(earliest_call, of_results[position])
        message = messages[position]
        if message.role not in PRELUDE:
            user_speaks = is_question(message)
        if user_speaks and earliest_call >= position:
            found.append(position)
    found.reverse()
    return found


def next_start(sizes: Sequence[int], at: Sequence[int], start: int, end: int, room: int, flush: int) -> int:
    """Return the next beginning of a window that began at ``start``, so that its messages fit again.

    It stays while it fits. When it must move, it moves over at least ``flush`` tokens, so that it can stay again for a
    while. It never moves beyond the last cut: the newest turn is always shown, whole, even if it does not fit.

    Args:
        sizes: The tokens before each message, and after the last.
        at: The cuts.
        start: Where the window began.
        end: Where it ends.
        room: The tokens it may show.
        flush: The tokens it moves over at least.
    """
    if sizes[end] - sizes[start] <= room:
        return start
    best = start
    for position in range(bisect_right(at, start), bisect_left(at, end)):
        best = at[position]
        if sizes[best] - sizes[start] >= flush and sizes[end] - sizes[best] <= room:
            break
    return best


def first_shown(tokens: Sequence[int], at: Sequence[int], room: int, flush: int) -> int:
    """Return the beginning of the window that ``next_start`` has moved after every message of a conversation.

    So the answer depends on the conversation alone, and does not change while nothing has to be left out: consecutive
    requests to a model begin alike, and its vendor finds them in its cache.

    Args:
        tokens: The size of each message.
        at: The cuts.
        room: The tokens that may be shown.
        flush: The tokens that the window moves over at least.
    """
    sizes = [0, *accumulate(tokens)]
    start = 0
    for end in range(1, len(sizes)):
        start = next_start(sizes, at, start, end, room, flush)
    return start


def without_orphans(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages without results of calls that are not among the messages before them."""
    strangers = Calls(messages).strangers
    return [one for position, one in enumerate(messages) if position not in strangers]


def result_id(message: ChatMessage) -> str | None:
    """Return the id of the call that the message is the result of, or None."""
    found = message.additional_kwargs.get("tool_call_id")
    return None if found is None else str(found)


def call_ids(message: ChatMessage) -> list[str]:
    """The ids of the calls that the message asks for."""
    found = [block.tool_call_id for block in message.blocks if isinstance(block, ToolCallBlock)]
    calls = kept_calls(message)
    for call in cast("list[Any]", calls) if isinstance(calls, list) else ():
        # ToolSelections, objects of a vendor's SDK, or either of them as data.
        for name in ("tool_id", "id"):
            one = cast("dict[str, Any]", call).get(name) if isinstance(call, dict) else getattr(call, name, None)
            if one is not None:
                found.append(str(one))
                break
    return [call for call in found if call is not None]


class Window:
    """The window of :func:`first_shown`, at the cost of the new messages only.

    Its knowledge of older messages is dropped when the conversation has changed otherwise than by growing. A message
    changed in place keeps the size it had.
    """

    def __init__(self) -> None:
        self._forget((0, 0))

    def __eq__(self, other: object) -> bool:
        # Its state follows from the conversation, so two memories do not differ by the calls before.
        return isinstance(other, Window)

    __hash__ = None  # type: ignore[assignment] - equal to all others

    def _forget(self, limits: tuple[int, int]) -> None:
        self._limits = limits
        # All of these are about the messages up to the last one that is not a system message; the next message decides
        # about a system message at the end.
        self._known: list[ChatMessage] = []
        self._sizes = [0]
        self._cuts: list[int] = []
        self._calls: dict[str, int] = {}
        self._start = 0

    def start(self, messages: list[ChatMessage], count: Callable[[ChatMessage], int], room: int, flush: int) -> int:
        """The position of the first message to show.

        Args:
            messages: The whole conversation.
            count: The tokens of a message.
            room: The tokens that may be shown.
            flush: The tokens that the window moves over at least.
        """
        # A comparison of the very same objects takes no time.
        if self._limits != (room, flush):
            self._forget((room, flush))
        elif messages == self._known:  # as long as a turn goes on
            return self._start
        elif messages[: len(self._known)] != self._known:
            self._forget((room, flush))
        offset = max(len(self._known) - 1, 0)
        calls = Calls(messages[offset:])
        found = self._new_cuts(messages, offset, calls)
        if found is None:
            self._forget((room, flush))
            offset, calls = 0, Calls(messages)
            found = self._new_cuts(messages, offset, calls) or []
        known, sizes, at = len(self._known), self._sizes, self._cuts
        at += found
        sizes += accumulate(map(count, messages[known:]), initial=sizes.pop())
        settled = len(messages)
        while settled > known and messages[settled - 1].role in PRELUDE:
            settled -= 1
        start, end = self._start, known
        # From one end that does not fit to the next one; nearly always the first one fits.
        while (end := bisect_right(sizes, sizes[start] + room, end + 1)) <= len(messages):
            start = next_start(sizes, at, start, end, room, flush)
            if end <= settled:
                self._start = start
        del sizes[settled + 1 :]
        for call, position in calls.newest.items():
            if offset + position < settled:
                self._calls[call] = offset + position
        self._known += messages[known:settled]
        return start

    def _new_cuts(self, messages: list[ChatMessage], offset: int, calls: Calls) -> list[int] | None:
        """Return the cuts after ``offset``. None means that a result there belongs to a call before a known cut."""
        first = offset
        for position, result in calls.strangers.items():
            call = self._calls.get(result)
            if call is not None and call < offset:
                if self._cuts and self._cuts[-1] > call:
                    return None
                first = offset + position
        return [offset + cut for cut in cuts(messages[offset:], calls) if offset + cut > first]


def transcript_of(messages: Sequence[ChatMessage]) -> str:
    """Return messages as a text, one in each line."""
    return "\n".join(map(_line, messages))


def _line(message: ChatMessage) -> str:
    """Return a message of a transcript; calls of tools and media are named."""
    parts = [message.content] if message.content else []
    for block in message.blocks:
        if isinstance(block, ToolCallBlock):
            parts.append(f"(calls {block.tool_name} with {block.tool_kwargs})")
        elif block.block_type not in ("text", "thinking", "cache"):
            parts.append(f"({block.block_type})")
    if kept_calls(message):
        parts.append(f"(calls {message.additional_kwargs['tool_calls']})")
    return f"{message.role.value}: {' '.join(parts)}"
