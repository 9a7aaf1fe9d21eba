"""The window over a growing conversation, moved on without reading all of it again."""

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from batonflow.agents.memory.turns import PRELUDE, Calls, cuts, next_start
from batonflow.llms import ChatMessage

__all__ = ["Window"]


class Window:
    """The window of ``turns.first_shown``, at the cost of the new messages only.

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
        """Return the cuts after ``offset``, or None when a result there belongs to a call before a known cut."""
        first = offset
        for position, result in calls.strangers.items():
            call = self._calls.get(result)
            if call is not None and call < offset:
                if self._cuts and self._cuts[-1] > call:
                    return None
                first = offset + position
        return [offset + cut for cut in cuts(messages[offset:], calls) if offset + cut > first]
