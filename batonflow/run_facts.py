"""Facts about a run beside its input: its session, its metadata, and its place among the runs that are ready."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple

from batonflow.instrumentation.context import model_calls
from batonflow.instrumentation.logs import session_here

__all__ = [
    "NO_METADATA", "QueuePlace", "RunInfo", "describe_run", "enqueued", "info_of_run", "metadata_of",
    "note_model_calls", "place_of_new_runs",
]  # fmt: skip

NO_METADATA: Mapping[str, str] = MappingProxyType({})

_metadata: ContextVar[Mapping[str, str]] = ContextVar("batonflow_metadata", default=NO_METADATA)


class RunInfo(NamedTuple):
    """The run for which ``deps_for`` makes dependencies.

    Args:
        run_id: The id of the run.
        workflow: The name of the workflow.
        session: The name of the session; empty for a run outside of sessions.
        metadata: The texts of ``run(metadata=...)``.
    """

    run_id: str
    workflow: str
    session: str = ""
    metadata: Mapping[str, str] = NO_METADATA


class QueuePlace(NamedTuple):
    """The place of a run among those that are ready to be taken up.

    Args:
        queue: The queue; None for the default one.
        priority: Runs with a larger number are taken up first.
        not_before: The time before which nobody takes the run up, in wall-clock seconds.
    """

    queue: str | None = None
    priority: int = 0
    not_before: float | None = None

    def as_fields(self) -> dict[str, Any]:
        """Return the fields of a ``NewRun``."""
        return {name: value for name, value in self._asdict().items() if value is not None}


place_of_new_runs: ContextVar[QueuePlace | None] = ContextVar("batonflow_queue_place", default=None)
"""The place of runs that are stored for another process; None where runs start at once."""


@contextmanager
def enqueued(place: QueuePlace) -> Generator[None, None, None]:
    """Store the runs that are begun inside the block, and leave their work to whichever process takes them up.

    Args:
        place: Their place.
    """
    token = place_of_new_runs.set(place)
    try:
        yield
    finally:
        place_of_new_runs.reset(token)


def describe_run(run: Any, session: str, metadata: Mapping[str, str] | None) -> None:
    """Set the session and the metadata of a run in its context variables."""
    run.variables.run(session_here.set, session)
    run.variables.run(_metadata.set, MappingProxyType(dict(metadata or {})))


def note_model_calls(run: Any, note: Callable[[Any], None]) -> None:
    """Record the calls of models in a run with ``note``, from its next step on."""
    run.variables.run(model_calls.set, note)


def metadata_of(variables: Context) -> Mapping[str, str]:
    """Return the metadata of the run with these context variables."""
    return variables.get(_metadata, NO_METADATA)


def info_of_run(run_id: str, workflow: str, variables: Context) -> RunInfo:
    """Return the facts about a run for ``deps_for``."""
    return RunInfo(run_id, workflow, variables.get(session_here, ""), metadata_of(variables))
