"""Facts about a run beside its input: its session and its metadata."""

from collections.abc import Callable, Mapping
from contextvars import Context, ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple

from batonflow.instrumentation.context import model_calls
from batonflow.instrumentation.logs import session_here

__all__ = ["NO_METADATA", "RunInfo", "describe_run", "info_of_run", "metadata_of", "note_model_calls"]

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
