"""Methods of a workflow with a store: its runs outlive the process that began them."""

from collections.abc import Collection, Mapping
from copy import copy
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from batonflow.workflow_core.context.context import Context
from batonflow.workflow_core.engine.ports import Keeper, RunStoreLike, open_keeper
from batonflow.workflow_core.errors import WorkflowRuntimeError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.options import Options, checked
from batonflow.workflow_core.runs import new_run
from batonflow.workflow_core.turns import Turns
from batonflow.workflow_core.types import check_whole
from batonflow.workflow_core.validation.validate import check_once

if TYPE_CHECKING:
    from batonflow.workflow_core.inputs import InputRequest

__all__ = ["StoredRuns", "check_context", "check_run_id"]


def check_context(ctx: Any) -> None:
    """Refuse a value that cannot be the context of a run.

    Raises:
        TypeError: It is not a Context.
    """
    if ctx is not None and not isinstance(ctx, Context):
        raise TypeError(f"ctx is a Context, such as Context(workflow), not {ctx!r}")


def check_run_id(run_id: Any) -> None:
    """Refuse a value that cannot be the id of a new run; with None an id is generated.

    Raises:
        TypeError: It is not a text.
        ValueError: It is empty.
    """
    if run_id is not None:
        _check_id("run_id", run_id, ", or leave run_id out")


def _check_id(name: str, run_id: Any, otherwise: str = "") -> None:
    if not isinstance(run_id, str):
        raise TypeError(f"{name} is a text that names the run, not {run_id!r}")
    if not run_id:
        raise ValueError(f"{name} is empty: name the run{otherwise}")


def _check_texts(**given: Any) -> None:
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} is a text, not {value!r}")


def _keeper_for(workflow: "StoredRuns", what: str, *ids: Any) -> Keeper:
    """Return the keeper of a workflow for one of its methods, which may take the id of a run."""
    for run_id in ids:
        _check_id("run_id", run_id)
    keeper = workflow.__batonflow__.keeper
    if keeper is None:
        name = type(workflow).__name__
        raise WorkflowRuntimeError(f'{name}.{what}() needs a store: give the workflow one, {name}(store="runs.db")')
    return keeper


class StoredRuns:
    """The part of a workflow that needs a store."""

    __batonflow_handler__: ClassVar[type[WorkflowHandler]] = WorkflowHandler
    __batonflow__: Options

    def with_store(
        self, store: str | PathLike[str] | RunStoreLike, *, idle_release: float | None = None, name: str | None = None
    ) -> Self:
        """The same workflow with its runs in a store; this one stays as it is. Attached workflows are shared.

        Args:
            store: Where the runs of the other one are kept, as for ``Workflow(store=...)``.
            idle_release: For the other one, where this one has no value.
            name: The workflow name of the other one; the same as here when left out.

        Raises:
            WorkflowValidationError: The workflow is not sound, or an option has a value that it cannot have.
            StoreError: ``store`` does not name a store.

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
        # Set past any __setattr__ of the subclass: agents, for one, are pydantic models too.
        object.__setattr__(other, "__batonflow__", options)
        check_once(other)
        return other

    def live_handler(self, run_id: str) -> WorkflowHandler | None:
        """A handler on a run that goes on in this process; None for an unknown id.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
        """
        run = _keeper_for(self, "live_handler", run_id).live_run(self, run_id)
        return None if run is None else self.__batonflow_handler__(run)

    def live_handlers(self) -> list[WorkflowHandler]:
        """Handlers on all the runs of this workflow that go on in this process.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
        """
        return [self.__batonflow_handler__(run) for run in _keeper_for(self, "live_handlers").live_runs(self)]

    def forget_sleeping(self) -> int:
        """Let go of runs that left memory and have no handlers; return their number.

        This process keeps what such a run has streamed, and brings it back when something comes for it. From here on
        it is in the store only, and somebody has to call ``recover`` or ``resume``.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
        """
        return _keeper_for(self, "forget_sleeping").forget_sleeping(self)

    async def open_inputs(self, run_id: str) -> "list[InputRequest]":
        """The questions to people that stand open in a run that the store has, whether a process drives it or not.

        ``request.respond()`` answers one of a run that goes on in this process. For any other make the event with
        ``request.answer()`` and give it to ``send_to_run``.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
            ReplayIncompatible: The code of the workflow does not fit the records any more.
            StoreError: There is no such run, or the store fails.
        """
        return await _keeper_for(self, "open_inputs", run_id).open_inputs(self, run_id)

    async def awaited_events(self, run_id: str, at: int | None = None) -> set[type[Event]]:
        """Return the classes of the events that the steps of a run, and of attached workflows, wait for.

        Args:
            run_id: A run that the store has.
            at: What they waited for after this commit; now, when left out.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
            ReplayIncompatible: The code of the workflow does not fit the records any more.
            StoreError: There is no such run or commit, or the store fails.
        """
        return await _keeper_for(self, "awaited_events", run_id).awaited_events(self, run_id, at)

    def resume(self, run_id: str) -> WorkflowHandler:
        """Go on with a run that the store has, and return its handler at once.

        Awaiting the handler raises what stands in the way: ``StoreError`` when there is no such run, ``RunInUseError``
        when another live process drives it, ``ReplayIncompatible`` when the code does not fit its records.

        Args:
            run_id: Of the run; one that is over gives its recorded result.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
        """
        keeper = _keeper_for(self, "resume", run_id)
        run = keeper.live_run(self, run_id)
        if run is None:
            run = new_run(self, None, run_id)
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
    ) -> WorkflowHandler:
        """Begin a run that shares the work of another one up to a commit, and return its handler at once.

        What the steps did outside is not undone; what they do from here on, the new run does for itself. Awaiting the
        handler raises ``StoreError`` when there is no such commit, or the run was over with it.

        Args:
            run_id: The run to branch off from; it is left as it is.
            at: The number of the last commit that both have, as in ``store.history(run_id)``.
            state: Values to put into the state: dotted path -> value. Its class checks them: when they do not fit,
                there is no new run, and awaiting the handler raises ``WorkflowRuntimeError``.
            event: Sent to the new run when it goes on.
            new_id: Id of the new run.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
            StoreError: No run can have ``new_id``.
            ValueError: ``at`` is less than 1, or an id is empty.

        Example:
            >>> handler = team.fork("tides-1", at=12, state={"state.topic": "moons"})
        """
        _check_id("run_id", run_id)
        if new_id is not None:
            _check_id("new_id", new_id, ", or leave new_id out")
        check_whole(at, "at is the number of a commit, from 1 on", least=1)
        changes: Any = {} if state is None else state
        if not isinstance(changes, Mapping) or not all(isinstance(path, str) for path in cast("Any", changes)):
            raise TypeError(f"state is a dict of paths with their values, not {changes!r}")
        sent: Any = event
        if sent is not None and not isinstance(sent, Event):
            raise TypeError(f"event is an Event, not {sent!r}")
        keeper = _keeper_for(self, "fork")
        if new_id is not None:
            keeper.check_run_id(new_id)
        run = new_run(self, None, new_id)
        keeper.fork(self, run, run_id, at, state or {}, event)
        return self.__batonflow_handler__(run)

    async def recover(self, limit: int = 10_000, *, skip: Collection[str] = ()) -> list[WorkflowHandler]:
        """Take up every unfinished run of this workflow that no living process drives; for when a program starts.

        Runs that wait for something which has not come stay in the store until it does.

        Args:
            limit: How many at the most.
            skip: Ids of runs that are left alone, for example as they could not be taken up a moment ago.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
            StoreError: The store fails.
        """
        check_whole(limit, "limit is a whole number, 0 or more")
        ids: Any = skip
        if isinstance(ids, str) or not isinstance(ids, Collection):
            raise TypeError(f"skip is a list of ids of runs, not {ids!r}")
        runs = await _keeper_for(self, "recover").recover(self, limit, skip)
        return [self.__batonflow_handler__(run) for run in runs]

    async def send_to_run(self, run_id: str, event: Event, *, key: str | None = None, step: str | None = None) -> bool:
        """Send an event to a run that the store has, whether a process drives it or not.

        Args:
            run_id: The run.
            event: The event.
            key: The same key again is the same event, and is not sent twice; a new one when left out.
            step: The only step that the event goes to, ``child.step`` for one of an attached workflow.

        Returns:
            Whether it was sent now, and not before.

        Raises:
            WorkflowRuntimeError: The workflow has no store, or no such step that takes the event.
            StoreError: There is no such run, it is over, or the event cannot be written.
        """
        _check_texts(key=key, step=step)
        sent: Any = event
        if not isinstance(sent, Event):
            raise TypeError(f"send_to_run() takes an event, not {sent!r}")
        return await _keeper_for(self, "send_to_run", run_id).send(self, run_id, event, key, step)

    async def cancel_run(self, run_id: str, reason: str = "") -> None:
        """Cancel a run that the store has, whichever process drives it.

        Args:
            run_id: The run.
            reason: Why; its last event says so.

        Raises:
            WorkflowRuntimeError: The workflow has no store.
            StoreError: There is no such run, or it is over.
        """
        _check_texts(reason=reason)
        await _keeper_for(self, "cancel_run", run_id).cancel(run_id, reason)
