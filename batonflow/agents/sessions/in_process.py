"""Sessions of an agent without a store, which live as long as the agent."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any

from batonflow.clock import current_source
from batonflow.durable.session_protocol import NewTurn, SessionChange, TurnOpened, TurnRefused
from batonflow.durable.store_protocol import NewRun
from batonflow.durable.stores.memory_sessions import SessionsInMemory, SessionTable
from batonflow.workflow_core.errors import WorkflowCancelledByUser
from batonflow.workflow_core.events import StopEvent
from batonflow.workflow_core.run import Run

__all__ = ["ProcessSessions", "process_sessions"]

_making = threading.Lock()

REQUESTS_KEPT = 1000
"""The number of requests whose results are known to an agent without a store."""


class ProcessSessions(SessionsInMemory):
    """The sessions of one agent, with the part of a store that sessions use."""

    def __init__(self) -> None:
        self.owner = current_source().token()
        self._lock = threading.RLock()
        self._sessions = SessionTable(lambda _: False, lambda _: True)
        # The runs of turns under way, with the session and the data for the end of each.
        self._live: dict[str, tuple[Run, str, Any]] = {}
        self.requests: OrderedDict[tuple[str | None, str], Run] = OrderedDict()

    def remember(self, key: tuple[str | None, str], run: Run) -> None:
        """Remember the run of a request."""
        self.requests[key] = run
        while len(self.requests) > REQUESTS_KEPT:
            self.requests.popitem(last=False)

    def watch(self, run: Run, session: str, end_of_turn: Any) -> None:
        """End the turn of a run when the run ends."""
        run_id, ending = run.state.run_id, run.ending
        self._live[run_id] = run, session, end_of_turn
        over = run.loop.create_future()
        # Before the callers that await the run: the next turn can begin when they go on.
        futures: Any = ending
        futures._futures = [over, *(futures._futures or ())]
        over.add_done_callback(partial(self._over, run_id))

    def live(self, run_id: str) -> Run | None:
        """Return the run of a turn under way."""
        found = self._live.get(run_id)
        return None if found is None else found[0]

    def _over(self, run_id: str, _: Any = None) -> None:
        found = self._live.pop(run_id, None)
        if found is None:
            return
        run, session, end_of_turn = found
        error = run.ending.error
        cancelled = isinstance(error, WorkflowCancelledByUser) or not run.ending.done
        status = "cancelled" if cancelled else "completed" if error is None else "failed"
        body = end_of_turn(status, run.ending.event or StopEvent())
        with self._lock:
            self._sessions.end_turn(session, run_id, status, body)

    def _settle(self) -> None:
        """End the turns of runs that have ended, or whose event loop was closed."""
        for run_id, (run, *_) in list(self._live.items()):
            if run.ending.resolved or run.loop.is_closed():
                self._over(run_id)

    # --- the part of a store ------------------------------------------------------------------------------------------

    async def open_turn(self, turn: NewTurn, run: NewRun, owner: str, ttl: float) -> TurnOpened | TurnRefused:  # noqa: ARG002 - the same signature
        """See ``SessionStore.open_turn``."""
        self._settle()
        with self._lock:
            return self._sessions.open_turn(turn, run.run_id, owner) or TurnOpened(1)

    def _drop_runs(self, change: SessionChange, run_ids: Sequence[str]) -> None:  # noqa: ARG002 - the same signature
        for key in [key for key in self.requests if key[0] == change.session]:
            del self.requests[key]


def process_sessions(agent: Any) -> ProcessSessions:
    """Return the sessions of an agent without a store."""
    options = agent.__batonflow__  # copies of an agent with another model share them
    if options.sessions is None:
        with _making:
            options.sessions = options.sessions or ProcessSessions()
    return options.sessions
