"""Dependencies: the objects that a program gives to a run for its steps and tools. They are never recorded."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from batonflow.run_facts import RunInfo, info_of_run
from batonflow.workflow_core.errors import DepsMissingError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.run import Run

__all__ = ["DepsSource", "RunInfo", "deps_of", "give_deps", "known_deps", "open_run", "provide_deps"]

# A released run keeps its object, so its dependencies stay while the process lives.
_given: "WeakKeyDictionary[Run, Any]" = WeakKeyDictionary()


@dataclass(frozen=True)
class DepsSource:
    """The dependencies that a workflow declares.

    Args:
        deps_type: Their class; ``object`` when every run goes without.
        deps_for: Makes them for a run that was given no dependencies.
    """

    deps_type: Any = object
    deps_for: Callable[[RunInfo], Any | Awaitable[Any]] | None = None

    @property
    def is_required(self) -> bool:
        """Tell whether a run needs dependencies."""
        return self.deps_type not in (object, None, type(None))

    def check(self, deps: Any) -> None:
        """Refuse dependencies of another type; protocols and generic types are not checked.

        Raises:
            TypeError: ``deps`` is not an instance of ``deps_type``.
        """
        try:
            fits = not self.is_required or isinstance(deps, self.deps_type)
        except TypeError:
            return
        if not fits:
            wanted, got = self.deps_type.__qualname__, type(deps).__qualname__
            raise TypeError(f"deps is of type {wanted}, as deps_type says, not {got}")

    def check_known(self, run: Run) -> None:
        """Refuse a run without dependencies that nothing makes."""
        if self.is_required and self.deps_for is None and known_deps(run) is None:
            raise self.missing(run.state.run_id, run.workflow.__batonflow__.workflow_name)

    def missing(self, run_id: str, workflow: str) -> DepsMissingError:
        """Return the error for a run without dependencies."""
        name = getattr(self.deps_type, "__qualname__", str(self.deps_type))
        run = f"Run {run_id!r}" if run_id else "A run"
        needs = f"needs deps of type {name}" if self.is_required else "was given no deps"
        return DepsMissingError(
            f"{run} of {workflow} {needs}: give deps=... to run(), resume(), fork() or "
            "recover(), or construct the agent with deps_for=function, which makes them for a run"
        )


def give_deps(run: Run, deps: Any) -> None:
    """Give dependencies to a run and its child runs."""
    _given[run] = deps


def known_deps(run: Run | None) -> Any:
    """Return the dependencies of a run or of the nearest run around it; None without any."""
    while run is not None:
        if run in _given:
            return _given[run]
        around = None if run.family is None else run.family.parent
        run = None if around is None else around.run
    return None


def deps_of(run: Run) -> Any:
    """Return the dependencies of a run.

    Raises:
        DepsMissingError: The run has no dependencies.
    """
    deps = known_deps(run)
    if deps is None:
        options = run.workflow.__batonflow__
        raise (options.deps or DepsSource()).missing(run.state.run_id, options.workflow_name)
    return deps


async def provide_deps(workflow: AnyWorkflow, run: Run) -> None:
    """Make the dependencies of a run that has no dependencies yet, where the workflow declares some.

    Raises:
        DepsMissingError: The workflow cannot make them.
        TypeError: The created object is not of the declared type.
    """
    source: DepsSource | None = workflow.__batonflow__.deps
    if source is None or known_deps(run) is not None:
        return
    source.check_known(run)
    if source.deps_for is None:
        return
    name = workflow.__batonflow__.workflow_name
    made: Any = source.deps_for(info_of_run(run.state.run_id, name, run.variables))
    if inspect.isawaitable(made):
        made = await made
    source.check(made)
    give_deps(run, made)


def open_run(workflow: AnyWorkflow, run: Run, event: Event | None) -> None:
    """Begin a run without a store after its dependencies are made."""

    async def opened() -> None:
        try:
            await provide_deps(workflow, run)
        except Exception as error:  # noqa: BLE001 - the task is not awaited, so the handler reports every error
            workflow.__batonflow__.runtime.discard(run)
            run.ending.refuse(error)
            return
        finally:
            run.opening = None
        if run.ending.over:  # it was cancelled meanwhile
            run.ending.recorded()
        else:
            workflow.__batonflow__.turns.launch(run, event)

    run.opening = asyncio.get_running_loop().create_task(opened(), name="batonflow-make-deps")
