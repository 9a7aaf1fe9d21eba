"""Marks of new runs: input of a client of a server, and a place in a queue.

Input of a client must not choose the files and addresses that are read.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, Protocol, cast

__all__ = [
    "Enqueueing", "QueuePlace", "Ringing", "input_is_served", "is_reading_input", "mark_input", "place_of_new_runs",
    "reading_input", "served_input",
]  # fmt: skip

_served: ContextVar[bool] = ContextVar("batonflow_served_input", default=False)
_reading: ContextVar[bool] = ContextVar("batonflow_reading_input", default=False)


def input_is_served() -> bool:
    """Tell whether a server started the running code's run."""
    return _served.get()


def is_reading_input() -> bool:
    """Tell whether a client's message is being read."""
    return _reading.get()


def mark_input(variables: Context, *, served: bool) -> None:
    """Set in the context variables of a run whether a server started it."""
    if variables.get(_served, False) is not served:
        variables.run(_served.set, served)


@contextmanager
def served_input() -> Generator[None]:
    """Mark all runs and tasks that start inside the block as started by a server."""
    token = _served.set(True)
    try:
        yield
    finally:
        _served.reset(token)


@contextmanager
def reading_input() -> Generator[None]:
    """Mark the values that are created inside the block as a client's input."""
    token = _reading.set(True)
    try:
        yield
    finally:
        _reading.reset(token)


class QueuePlace(NamedTuple):
    """The place of a run among those that are ready to be taken up.

    Args:
        queue: The queue; None for the default one.
        priority: Runs with a larger number are taken up first.
        not_before: The time before which no process takes the run up, in wall-clock seconds.
    """

    queue: str | None = None
    priority: int = 0
    not_before: float | None = None

    def as_fields(self) -> dict[str, Any]:
        """Return the fields of a ``NewRun``."""
        return {name: value for name, value in self._asdict().items() if value is not None}


place_of_new_runs: ContextVar[QueuePlace | None] = ContextVar("batonflow_queue_place", default=None)
"""The place of runs that are stored for another process; None where runs start at once."""


class Ringing(Protocol):
    """The part of a dispatcher that tells a worker of a run; see ``batonflow.fleet.Dispatcher``."""

    async def ring(self, run_id: str, not_before: datetime | None = None, priority: int = 0) -> None:
        """Tell a worker that a run is ready."""
        ...


class Enqueueing:
    """The part of a workflow that stores new runs for other processes."""

    __batonflow_keeper__: ClassVar[Any]

    async def enqueue(
        self,
        *args: Any,
        run_id: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        not_before: datetime | None = None,
        dispatcher: Ringing | None = None,
        **kwargs: Any,
    ) -> str:
        """Store a new run for any process that takes it up, and return its id.

        A server of the workflow, and ``recover()``, take up the runs of their store that no process drives. A run with
        this id and the same input that exists already is left as it is.

        Args:
            args: The arguments of ``run``.
            run_id: The id of the run; by default a new one.
            queue: The name of a queue; by default ``"default"``.
            priority: Ready runs with a larger number are taken up first; from -1000 to 1000.
            not_before: The time before which no process takes the run up; without a time zone it is local.
            dispatcher: The dispatcher that tells a worker of the run; None to let workers find it.
            kwargs: The keyword arguments of ``run``.

        Raises:
            WorkflowRuntimeError: The workflow has no store, or a step of the workflow around it calls this.
            StoreError: The run cannot be stored, or another run has this id.
            ValueError: An argument does not go with ``enqueue``.

        Example:
            >>> run_id = await workflow.enqueue(topic="tides", priority=5)
        """
        self.__batonflow_keeper__("enqueue")
        if kwargs.get("session") is not None or kwargs.get("stepwise"):
            given = "session" if kwargs.get("session") is not None else "stepwise"
            name = type(self).__name__
            raise ValueError(f"{name}.enqueue({given}=...): another process takes the run up, so leave {given} out")
        if not_before is not None and not isinstance(not_before, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"not_before must be a datetime, not {not_before!r}")
        place = QueuePlace(queue, priority, None if not_before is None else not_before.timestamp())
        token = place_of_new_runs.set(place)
        try:
            handler = cast("Any", self).run(*args, **({} if run_id is None else {"run_id": run_id}), **kwargs)
        finally:
            place_of_new_runs.reset(token)
        await handler.started()
        if dispatcher is not None:
            await dispatcher.ring(handler.run_id, not_before, priority)
        return handler.run_id
