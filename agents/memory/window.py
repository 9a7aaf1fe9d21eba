"""The window over a conversation that only grows, moved on without looking at all of it again."""

from collections.abc import Callable
from itertools import accumulate

from batonflow.agents.memory.turns import PRELUDE, call_ids, calls_of_results, cuts, next_start, result_id
from batonflow.llms import ChatMessage

__all__ = ["Window"]


class Window:
    """Says what ``turns.first_shown`` says, at the cost of the messages that are new since it was asked last.

    What it knows of the older ones is forgotten when the conversation did anything else than grow. A message that is
    changed in place keeps the size it had.
    """

    def __init__(self) -> None:
        self._forget((0, 0))

    def __eq__(self, other: object) -> bool:
        # What it knows follows from the conversation: two memories do not differ by what they were asked before.
        return isinstance(other, Window)

    __hash__ = None  # type: ignore[assignment] - equal to all others

    def _forget(self, limits: tuple[int, int]) -> None:
        self._limits = limits
        # All of these are about the messages up to the last one that is no system message; what a system message at
        # the end belongs to, the next message tells.
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
        if self._limits != (room, flush) or messages[: len(self._known)] != self._known:
            self._forget((room, flush))
        found = self._new_cuts(messages)
        if found is None:
            self._forget((room, flush))
            found = self._new_cuts(messages) or []
        known, sizes, at = len(self._known), self._sizes, self._cuts
        at += found
        sizes += accumulate(map(count, messages[known:]), initial=sizes.pop())
        settled = len(messages)
        while settled > known and messages[settled - 1].role in PRELUDE:
            settled -= 1
        for end in range(known + 1, settled + 1):
            self._start = next_start(sizes, at, self._start, end, room, flush)
        start = self._start
        for end in range(settled + 1, len(messages) + 1):
            start = next_start(sizes, at, start, end, room, flush)
        del sizes[settled + 1 :]
        for position in range(known, settled):
            self._calls.update(dict.fromkeys(call_ids(messages[position]), position))
        self._known += messages[known:settled]
        return start

    def _new_cuts(self, messages: list[ChatMessage]) -> list[int] | None:
        """The cuts among the new messages; None when one of them belongs to a call before a cut that is known."""
        offset = max(len(self._known) - 1, 0)
        new = messages[offset:]
        among_them, first = calls_of_results(new), offset
        for position, message in enumerate(new, offset):
            result = result_id(message)
            call = None if result is None or position - offset in among_them else self._calls.get(result)
            if call is not None and call < offset:
                if self._cuts and self._cuts[-1] > call:
                    return None
                first = position
        return [offset + cut for cut in cuts(new) if offset + cut > first]
