"""The methods of a workflow for runs in a store, which outlive the process."""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from batonflow.values.types import check_whole
from batonflow.workflow_core.context.context import Context
from batonflow.workflow_core.engine.ports import Keeper, RunStoreLike, open_keeper
from batonflow.workflow_core.errors import WorkflowRuntimeError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.options import Options, checked
from batonflow.workflow_core.runs import new_run
from batonflow.workflow_core.turns import Turns
from batonflow.workflow_core.typed import OfResult, ResultT
from batonflow.workflow_core.validation.validate import check_once

if TYPE_CHECKING:
    from batonflow.workflow_core.inputs import InputRequest

__all__ = ["StoredRuns", "check_context", "check_run_id"]


def check_context(ctx: Any) -> None:
    """Refuse a value that cannot be the context of a run.

    Raises:
        TypeError: The value is not a Context.
    """
    if ctx is not None and not isinstance(ctx, Context):
        raise TypeError(f"ctx must be a Context, such as Context(workflow), not {ctx!r}")


def check_run_id(run_id: Any) -> None:
    """Refuse a value that cannot be the id of a new run; None is allowed.

    Raises:
        TypeError: The value is not a string.
        ValueError: The value is empty.
    """
    if run_id is not None:
        _check_id("run_id", run_id, ", or leave run_id out")


def _check_id(name: str, run_id: Any, otherwise: str = "") -> None:
    if not isinstance(run_id, str):
        raise TypeError(f"{name} must be a string that names the run, not {run_id!r}")
    if not run_id:
        raise ValueError(f"{name} is empty: name the run{otherwise}")


def _check_texts(**given: Any) -> None:
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} must be a string, not {value!r}")


def _keeper_for(workflow: "StoredRuns[Any]", what: str, *ids: Any) -> Keeper:
    """Check the run ids of a call of method ``what``. Return the keeper of the workflow."""
    for run_id in ids:
        _check_id("run_id", run_id)
    keeper = workflow.__batonflow__.keeper
    if keeper is None:
        name = type(workflow).__name__
        raise WorkflowRuntimeError(f'{name}.{what}() needs a store: create the workflow with {name}(store="runs.db")')
    return keeper


def _with_deps(workflow: "StoredRuns[Any]", deps: Any) -> Context[Any] | None:
    """Return a context that gives dependencies to a run; None without dependencies."""
    if deps is None:
        return None
    if workflow.__batonflow__.deps is not None:
        workflow.__batonflow__.deps.check(deps)
    return Context(workflow, deps=deps)


class StoredRuns(OfResult[ResultT]):
    """The methods of a workflow that need a store."""

    __batonflow_keeper__ = _keeper_for

    __batonflow_handler__: ClassVar[type[WorkflowHandler]] = WorkflowHandler
    __batonflow__: Options

    def with_store(
        self, store: str | PathLike[str] | RunStoreLike, *, idle_release: float | None = None, name: str | None = None
    ) -> Self:
        """Return a copy of the workflow that keeps its runs in a store. The copy shares the attached workflows.

        Args:
            store: The store of the copy, as for ``Workflow(store=...)``.
            idle_release: The ``idle_release`` of the copy, if this workflow does not set its own.
            name: The workflow name of the copy; by default the name of this workflow.

        Raises:
            WorkflowValidationError: The steps or an option are not valid.
            StoreError: ``store`` is neither a store nor the name of a store.

        Example:
            >>> kept = flow.with_store(SQLiteStore("runs.db"))
        """
        other = copy(self)
        options = copy(self.__batonflow__)
        options.keeper = open_keeper(store)
        options.name = options.name if name is None else checked("workflow_name", name)
        given = checked("idle_release", idle_release)
        options.idle_release = given if options.idle_release is None else options.idle_release
        options.last_state = None
        options.turns = Turns(options)
        # Bypasses __setattr__ of subclasses; agents, for example, are pydantic models.
        object.__setattr__(other, "__batonflow__", options)
        check_once(other)
        return other

    def live_handler(self, run_id: str) -> WorkflowHandler | None:
        """Return a handler for a run in this process; None for an unknown id.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
        """
        run = _keeper_for(self, "live_handler", run_id).live_run(self, run_id)
        return None if run is None else self.__batonflow_handler__(run)

    def live_handlers(self) -> list[WorkflowHandler[ResultT]]:
        """Return handlers for all runs of this workflow in this process.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
        """
        return [self.__batonflow_handler__(run) for run in _keeper_for(self, "live_handlers").live_runs(self)]

    def forget_sleeping(self) -> int:
        """Forget released runs without handlers, and return their number.

        Otherwise the process keeps their streams, and restores these runs when input arrives. Forgotten runs exist only
        in the store; ``recover`` or ``resume`` continues them.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
        """
        return _keeper_for(self, "forget_sleeping").forget_sleeping(self)

    async def open_inputs(self, run_id: str) -> "list[InputRequest]":
        """Return the questions that a stored run asks people, even if no process drives the run.

        ``request.respond()`` answers a question of a run in this process. For other runs, create the event with
        ``request.answer()`` and pass it to ``send_to_run``.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
            ReplayIncompatible: The code of the workflow does not fit the records.
            StoreError: The run does not exist, or the store fails.
        """
        return await _keeper_for(self, "open_inputs", run_id).open_inputs(self, run_id)

    async def awaited_events(self, run_id: str, at: int | None = None) -> set[type[Event]]:
        """Return the classes of the events that a run waits for, also in its attached workflows.

        Args:
            run_id: The run.
            at: The number of a commit, for the events awaited after it; by default the events awaited now.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
            ReplayIncompatible: The code of the workflow does not fit the records.
            StoreError: The run or the commit does not exist, or the store fails.
        """
        return await _keeper_for(self, "awaited_events", run_id).awaited_events(self, run_id, at)

    def resume(self, run_id: str, *, deps: Any = None) -> WorkflowHandler[ResultT]:
        """Resume a stored run, and return its handler at once.

        Awaiting the handler raises ``StoreError`` if the run does not exist, ``RunInUseError`` if another live process
        drives it, and ``ReplayIncompatible`` if the code does not fit the records.

        Args:
            run_id: The run. For a finished run, the handler returns the recorded result.
            deps: The dependencies of the run; stores do not keep them.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
            TypeError: ``deps`` is not of the declared type.
        """
        keeper = _keeper_for(self, "resume", run_id)
        run = keeper.live_run(self, run_id)
        if run is None:
            run = new_run(self, _with_deps(self, deps), run_id, debug=None)
            keeper.resume(self, run)
        return self.__batonflow_handler__(run)

    def fork(
        self,
        run_id: str,
        at: int,
        *,
        state: Mapping[str, Any] | None = None,
        event: Event | None = None,
        new_id: str | None = None,
        deps: Any = None,
    ) -> WorkflowHandler[ResultT]:
        """Start a run that shares another run's work up to a commit. Return its handler at once.

        External effects of the shared steps are not undone. Awaiting the handler raises ``StoreError`` if the commit
        does not exist or ended the run.

        Args:
            run_id: The run to fork; it does not change.
            at: The number of the last shared commit, as in ``store.history(run_id)``.
            state: New values in the state, by dotted path. The state class validates them; if a value is not valid,
                no run is created, and awaiting the handler raises ``WorkflowRuntimeError``.
            event: An event to send to the new run.
            new_id: The id of the new run.
            deps: The dependencies of the new run.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
            StoreError: ``new_id`` is not a valid id.
            ValueError: ``at`` is less than 1, or an id is empty.

        Example:
            >>> handler = team.fork("tides-1", at=12, state={"state.topic": "moons"})
        """
        _check_id("run_id", run_id)
        if new_id is not None:
            _check_id("new_id", new_id, ", or leave new_id out")
        check_whole(at, "at must be the number of a commit, 1 or more", least=1)
        changes: Any = {} if state is None else state
        if not isinstance(changes, Mapping) or not all(isinstance(path, str) for path in cast("Any", changes)):
            raise TypeError(f"state must be a dict from paths to values, not {changes!r}")
        sent: Any = event
        if sent is not None and not isinstance(sent, Event):
            raise TypeError(f"event must be an Event, not {sent!r}")
        keeper = _keeper_for(self, "fork")
        if new_id is not None:
            keeper.check_run_id(new_id)
        run = new_run(self, _with_deps(self, deps), new_id, debug=None)
        keeper.fork(self, run, run_id, at, state or {}, event)
        return self.__batonflow_handler__(run)

    async def recover(
        self, limit: int = 10_000, *, skip: Collection[str] = (), queues: Sequence[str] | None = None, deps: Any = None
    ) -> list[WorkflowHandler[ResultT]]:
        """Resume the unfinished runs of this workflow that no live process drives; call it when a program starts.

        A released run stays in the store until an event or a timer is due for it.

        Args:
            limit: The maximum number of runs.
            skip: The ids of runs to leave out, for example after a failed attempt to resume them.
            queues: The queues of the runs; None for all.
            deps: The dependencies that all these runs share. For an agent, ``deps_for`` can create them for each run.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
            StoreError: The store fails.
        """
        check_whole(limit, "limit must be a whole number, 0 or more")
        ids: Any = skip
        if isinstance(ids, str) or not isinstance(ids, Collection):
            raise TypeError(f"skip must be a list of run ids, not {ids!r}")
        if isinstance(queues, str):
            raise TypeError(f"queues must be a list of names, such as [{queues!r}]")
        runs = await _keeper_for(self, "recover").recover(self, limit, skip, queues, _with_deps(self, deps))
        return [self.__batonflow_handler__(run) for run in runs]

    async def send_to_run(self, run_id: str, event: Event, *, key: str | None = None, step: str | None = None) -> bool:
        """Send an event to a stored run, even if no process drives it.

        Args:
            run_id: The run.
            event: The event.
            key: The key of the event; an event with a known key is not sent again. By default, a new key.
            step: The only step that gets the event; ``child.step`` for a step of an attached workflow.

        Returns:
            False if an event with this key was sent before.

        Raises:
            WorkflowRuntimeError: The workflow has no store, or no step named ``step`` accepts the event.
            StoreError: The run does not exist or is over, or the event cannot be written.
        """
        _check_texts(key=key, step=step)
        sent: Any = event
        if not isinstance(sent, Event):
            raise TypeError(f"send_to_run() takes an event, not {sent!r}")
        return await _keeper_for(self, "send_to_run", run_id).send(self, run_id, event, key, step)

    async def cancel_run(self, run_id: str, reason: str = "") -> None:
        """Cancel a stored run, whether or not a process drives it.

        Args:
            run_id: The run.
            reason: The reason, for the last event of the run.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
            StoreError: The run does not exist or is over.
        """
        _check_texts(reason=reason)
        await _keeper_for(self, "cancel_run", run_id).cancel(run_id, reason)
