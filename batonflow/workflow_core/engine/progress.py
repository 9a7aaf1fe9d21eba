"""How far a delivery has come, by number, so that a repeated attempt neither doubles nor loses what it did.

What a step does inside ``ctx.once(key, fn)`` is numbered within that call: a call with a record is passed over whole,
and nothing outside it is numbered otherwise for that. Calls beside one another do not disturb each other's numbers.
"""

from contextvars import ContextVar
from typing import Any

from batonflow.workflow_core.events import Event

__all__ = ["Number", "Numbers", "OnceCall", "Progress", "current_call"]

Number = int | tuple[str, int]
"""A place in an attempt; inside ``ctx.once`` its key and the place within the call."""


class Numbers:
    """Counts what is done in one place, a step or a call of ``ctx.once``.

    ``sends``, ``writes`` and ``streamed`` count the current attempt; the ``skip_*`` numbers say how many of them were
    already done before a restore and are passed over. Outcomes of collects stay until the place is done.
    """

    __slots__ = (
        "calls", "collected", "collects", "sends", "skip_sends", "skip_streamed", "skip_writes", "streamed", "waits",
        "writes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.sends = self.writes = self.streamed = 0
        self.skip_sends = self.skip_writes = self.skip_streamed = 0
        self.collects = 0
        self.collected: list[list[Event] | None] | None = None
        self.waits = 0
        # Runs of attached workflows that the step started itself.
        self.calls = 0

    def begin_again(self) -> None:
        """Count anew for the next attempt; nothing of a failed one is skipped, but outcomes stay."""
        self.sends = self.writes = self.streamed = self.collects = self.waits = self.calls = 0
        self.skip_sends = self.skip_writes = self.skip_streamed = 0

    def named(self, number: int) -> Number:
        """A number of this place as one of the whole attempt."""
        return number


class OnceCall(Numbers):
    """The inside of a call of ``ctx.once`` that has no record yet.

    Args:
        key: Of the call.
        progress: Of the delivery that it belongs to.
    """

    __slots__ = ("key", "progress")

    def __init__(self, key: str, progress: "Progress") -> None:
        super().__init__()
        self.key = key
        self.progress = progress

    def named(self, number: int) -> Number:
        """A number of this call as one of the whole attempt."""
        return self.key, number


class Progress(Numbers):
    """What a delivery has done so far: outside of ``ctx.once``, in the calls without a record, and the records.

    Answers of waits and records of ``once`` stay with the delivery until it ends.
    """

    __slots__ = ("_answers", "begun", "intents", "once", "once_calls", "unreturned")

    def __init__(self) -> None:
        super().__init__()
        self._answers: dict[str, Event | None] | None = None
        self.once: dict[str, Any] | None = None
        # Calls of effects whose outcome nobody knows, by key; of an earlier owner of the run.
        self.intents: dict[str, Any] | None = None
        # What is recorded of calls that go on in this process: intents, and results that are not given out yet.
        self.begun: dict[str, Any] = {}
        self.unreturned: dict[str, Any] = {}
        # None until the first call, so that steps without one do not look for it.
        self.once_calls: dict[str, OnceCall] | None = None

    def begin_again(self) -> None:
        """Count anew for the next attempt, also in the calls of ``ctx.once`` that failed."""
        super().begin_again()
        for call in (self.once_calls or {}).values():
            call.begin_again()

    @property
    def answers(self) -> dict[str, Event | None]:
        """The answers of waits by the key of the wait."""
        if self._answers is None:
            self._answers = {}
        return self._answers

    @property
    def has_called(self) -> bool:
        """Whether the step may have started runs of attached workflows in this attempt."""
        return self.calls > 0 or self.once_calls is not None

    def once_call(self, key: str) -> OnceCall:
        """The inside of a call; after a failure or a restore it goes on counting where it was."""
        if self.once_calls is None:
            self.once_calls = {}
        call = self.once_calls.get(key)
        if call is None:
            call = self.once_calls[key] = OnceCall(key, self)
        return call

    def here(self) -> Numbers:
        """What counts the things that are done in this very place of the code."""
        if self.once_calls is None:
            return self
        call = current_call.get()
        # Another delivery's call is around us when that one runs the workflow which this one belongs to.
        return call if call is not None and call.progress is self else self


current_call: ContextVar[OnceCall | None] = ContextVar("batonflow_once", default=None)
"""The call of ``ctx.once`` that is running here."""
