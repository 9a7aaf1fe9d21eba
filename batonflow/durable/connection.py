"""The connection between the runs of an event loop and a store, with grouped commits and incoming events.

One StoreConnection serves all runs of a store on a loop. Commits that something waits for are written after the present
turn of the loop, together with all others. The others are written a few milliseconds later. Commits that are made while
an earlier group is being written wait for its end: a slow disk makes the groups larger, not the queue longer.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary, ref

from batonflow.durable.codec import Codec
from batonflow.durable.lease import RunLease
from batonflow.durable.live_streams import SECONDS_UNTIL_UNREAD, LivePublisher, LiveStore
from batonflow.durable.store_protocol import Claimed, CommitVerdict, InboxItem, PartStore, RunCommit, RunStore
from batonflow.instrumentation.logs import logger_named
from batonflow.values.serializers import read_json
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.inputs import asker_of, close_answered, is_answer

if TYPE_CHECKING:
    from batonflow.workflow_core.run import Run

__all__ = ["StoreConnection", "connection_of"]

logger = logger_named("batonflow.store")

SECONDS_OF_SHORT_RUNS = 0.05
"""A run that is over sooner needs no renewed lease and has an empty inbox."""

SECONDS_TO_GATHER = 0.005
"""The longest time that commits wait for others if nothing waits for them."""

SECONDS_BETWEEN_LOOKS = 1.0
SLEEPERS_PER_LOOK = 100

_PAUSE_AFTER_TROUBLE = 1.0
_MOST_LEFT = 10_000


@dataclass(slots=True)
class Sleeper:
    """A run that was released from memory."""

    run: "Run"
    connection: "StoreConnection"
    timer: asyncio.TimerHandle | None = None


class StoreConnection:
    """The connection of a store with its runs on one event loop.

    Args:
        store: The store.
        loop: The loop.
    """

    def __init__(self, store: RunStore, loop: asyncio.AbstractEventLoop) -> None:
        self.store = store
        self.loop = loop
        self.part_store = store if isinstance(store, PartStore) and store.keeps_parts else None
        self.leases: dict[str, RunLease] = {}
        self._thread = threading.get_ident()
        # Without the context variables of the running step, which would keep its run in memory.
        self._variables = copy_context()
        self._dirty: dict[RunLease, None] = {}
        # Whether something waits for one of them.
        self._awaited = False
        self._scheduled: asyncio.Handle | None = None
        self._writing = False
        self._watching: asyncio.Task[None] | None = None
        self._new: list[RunLease] = []
        self._attending: asyncio.TimerHandle | None = None
        self._parking: set[asyncio.Task[None]] = set()
        # Released runs with handlers in this process, with their timers.
        self._sleepers: dict[str, Sleeper] = {}
        # The task that checks whether another process has ended one of them.
        self._looking: asyncio.Task[None] | None = None
        # Released runs with their last epochs in this process.
        self._left: dict[str, int] = {}
        # Runs whose streams other processes read.
        self._published: dict[str, LivePublisher] = {}
        # Questions about runs that may be claimed here soon, with their ends.
        self._questions: dict[str, tuple[float, int, int]] = {}
        if isinstance(store, LiveStore):
            store.when_asked(self._asked)

    def _asked(self, run_id: str, after: int, commit: int) -> None:
        """Pass a question of a reader to the loop. The store calls this on its own thread."""
        with suppress(RuntimeError):  # the loop was closed
            self.loop.call_soon_threadsafe(self.publish, run_id, after, commit)

    def publish(self, run_id: str, after: int, commit: int) -> None:
        """Send the events of a run after a place to a reader in another process."""
        for known in [known for known, one in self._published.items() if one.is_over]:
            del self._published[known]
        now = self.loop.time()
        self._questions = {known: one for known, one in self._questions.items() if one[0] > now}
        lease, store = self.leases.get(run_id), self.store
        if lease is None:
            self._questions[run_id] = now + SECONDS_UNTIL_UNREAD, after, commit
            return
        if not (isinstance(store, LiveStore) and lease.run.workflow.__batonflow__.store_streamed):
            return
        publisher = self._published.get(run_id)
        if publisher is None or publisher.lease is not lease:
            publisher = self._published[run_id] = LivePublisher(store, lease)
        publisher.ask(after, commit)

    def add(self, lease: RunLease) -> None:
        """Add a run."""
        self.leases[lease.run_id] = lease
        self._new.append(lease)
        if (question := self._questions.pop(lease.run_id, None)) is not None:
            self.loop.call_soon(self.publish, lease.run_id, *question[1:])
        if self._attending is None:
            self._attending = self.loop.call_later(SECONDS_OF_SHORT_RUNS, self._attend)

    def _attend(self) -> None:
        """Renew the leases and watch the inboxes of runs that last longer than a moment."""
        self._attending = None
        new, self._new = self._new, []
        for lease in new:
            if self.leases.get(lease.run_id) is lease:
                self.store.hold(lease.run_id, lease.epoch, self._when_lost(lease))
                lease.is_held = True
        self._watch_on()

    def _when_lost(self, lease: RunLease) -> Callable[[], None]:
        """Return the callback for a run that another process claims. The store calls it on its own thread."""
        known, loop = ref(lease), self.loop

        def lose() -> None:
            lease = known()
            if lease is not None and self.leases.get(lease.run_id) is lease:
                lease.lose()

        def lost() -> None:
            if not loop.is_closed():
                with suppress(RuntimeError):  # the loop has just been closed
                    loop.call_soon_threadsafe(lose)

        return lost

    def remove(self, lease: RunLease) -> None:
        """Remove a run."""
        if self.leases.get(lease.run_id) is lease:
            del self.leases[lease.run_id]
            if lease.is_held:
                self.store.let_go(lease.run_id)
        self._dirty.pop(lease, None)
        self._watch_on()

    def _watch_on(self) -> None:
        """Watch the inboxes as long as there are runs."""
        if self._sleepers and (self._looking is None or self._looking.done()):
            self._looking = self.loop.create_task(
                self._look_for_ended(), name="batonflow-sleepers", context=self._variables.copy()
            )
        elif not self._sleepers and self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self.leases or self._sleepers:
            if self._watching is None or self._watching.done():
                self._watching = self.loop.create_task(
                    self._watch(), name="batonflow-inbox", context=self._variables.copy()
                )
        elif self._watching is not None:
            self._watching.cancel()
            self._watching = None

    # --- released runs ------------------------------------------------------------------------------------------------

    def park(self, lease: RunLease) -> None:
        """Release a run from memory."""
        task = lease.parking = self.loop.create_task(lease.park(), name="batonflow-park")
        self._parking.add(task)
        task.add_done_callback(self._parking.discard)

    def asleep(self, run: "Run", wake_at: float | None) -> None:
        """Keep a released run until its restore."""
        sleeper = self._sleepers[run.state.run_id] = Sleeper(run, self)
        if wake_at is not None:
            sleeper.timer = self.loop.call_later(max(0.0, wake_at - run.now()), self.wake, run)
        self._watch_on()

    def note_left(self, lease: RunLease) -> None:
        """Note that a run was released with its whole stream."""
        self._left[lease.run_id] = lease.epoch
        if len(self._left) > _MOST_LEFT:  # otherwise a gap in the stream would be reported for these runs
            del self._left[next(iter(self._left))]

    def claimed_here(self, claimed: Claimed, run: "Run") -> None:
        """Restore a released run that was claimed in this process beside its handler; its stream stays complete."""
        if self._left.get(claimed.run_id) == claimed.epoch - 1:
            self._left[claimed.run_id] = claimed.epoch
        self.wake(run)

    def has_left(self, claimed: Claimed) -> bool:
        """Tell whether the stream of a run is complete: no other process claimed it since its release here."""
        return self._left.pop(claimed.run_id, None) == claimed.epoch - 1

    def wake(self, run: "Run") -> None:
        """Restore a run into memory."""
        if run.state.run_id in self._sleepers:
            self.forget(run)
            run.restore()
            self._watch_on()

    def forget(self, run: "Run") -> None:
        """Forget a released run."""
        sleeper = self._sleepers.pop(run.state.run_id, None)
        if sleeper is not None:
            if sleeper.timer is not None:
                sleeper.timer.cancel()
            self._watch_on()

    async def _look_for_ended(self) -> None:
        """Restore released runs that another process has ended or left, because their handlers wait for the result.

        Each call checks only some of them, in turn, so that thousands of runs cost little.
        """
        while self._sleepers:
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            for run_id in list(self._sleepers)[:SLEEPERS_PER_LOOK]:
                sleeper = self._sleepers.get(run_id)
                if sleeper is None:
                    continue
                try:
                    info = await self.store.info(run_id)
                except StoreError as error:
                    logger.warning("runs that left memory cannot be looked for: %s", error)
                    break
                if self._sleepers.get(run_id) is not sleeper:
                    continue
                if info is None or not (info.status == "waiting" or info.is_driven):
                    self.wake(sleeper.run)
                else:
                    self._sleepers[run_id] = self._sleepers.pop(run_id)

    # --- commits ------------------------------------------------------------------------------------------------------

    def dirty(self, lease: RunLease, *, awaited: bool = False) -> None:
        """Note that a run has commits to write.

        Args:
            lease: The lease of the run.
            awaited: Whether something waits for them.
        """
        self._dirty[lease] = None
        if awaited and not self._awaited:
            self._awaited = True
            if self._scheduled is not None:
                self._scheduled.cancel()
                self._scheduled = None
        if self._scheduled is None:
            self._schedule()

    def _schedule(self) -> None:
        if self._writing:
            return
        if self._awaited:
            self._scheduled = self.loop.call_soon(self._write)
        else:
            self._scheduled = self.loop.call_later(SECONDS_TO_GATHER, self._write)

    def _write(self) -> None:
        self._scheduled, self._awaited = None, False
        leases, self._dirty = list(self._dirty), {}
        batch: list[tuple[RunLease, RunCommit]] = []
        for lease in leases:
            commit = lease.take()
            if commit is not None:
                batch.append((lease, commit))
        if not batch:
            return
        self._writing = True

        def done(verdicts: list[CommitVerdict] | None, error: BaseException | None) -> None:
            if threading.get_ident() == self._thread:
                self._written(batch, verdicts, error)
            elif not self.loop.is_closed():
                try:
                    self.loop.call_soon_threadsafe(self._written, batch, verdicts, error)
                except RuntimeError:
                    logger.debug("a loop was closed while its runs were being written")

        self.store.commit_soon([commit for _, commit in batch], done)

    def _written(
        self, batch: list[tuple[RunLease, RunCommit]], verdicts: list[CommitVerdict] | None, error: BaseException | None
    ) -> None:
        self._writing = False
        if verdicts is None:
            failure = error if isinstance(error, StoreError) else StoreError(f"The store failed: {error!r}")
            for lease, _ in batch:
                lease.fail(failure)
        else:
            for (lease, commit), verdict in zip(batch, verdicts, strict=True):
                if verdict.outcome == "fenced":
                    if lease.run_id in self.leases:  # otherwise it was released in the meantime
                        lease.lose()
                else:
                    lease.was_written(commit)
        if self._dirty:
            self._schedule()

    # --- inboxes ------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Deliver the events that other processes append to inboxes."""
        seen = -1
        while True:
            try:
                changes = await self.store.changed(seen)
                seen = changes.number
                places = dict.fromkeys(self._sleepers, 0)
                places |= {lease.run_id: lease.inbox_seen for lease in self.leases.values()}
                if changes.runs is not None:
                    places = {run_id: places[run_id] for run_id in changes.runs & places.keys()}
                found = await self.store.unread(places) if places else {}
                for run_id, items in found.items():
                    lease = self.leases.get(run_id)
                    if run_id in self._sleepers:
                        self.wake(self._sleepers[run_id].run)
                    if lease is not None:
                        for item in items:
                            self.deliver(lease, item)
            except StoreError as error:
                logger.warning("the inboxes of runs cannot be read: %s", error)
                await asyncio.sleep(_PAUSE_AFTER_TROUBLE)

    def deliver(self, lease: RunLease, item: InboxItem) -> None:
        """Deliver an item of the inbox to a run, once."""
        if item.position <= lease.inbox_seen:
            return
        lease.inbox_seen = item.position
        run = lease.run
        if run.ending.over:
            return
        if item.kind == "cancel":
            lease.consumed(item)
            run.ending.cancel(item.payload.decode(errors="replace"))
            return
        step: str | None = None
        try:
            data = read_json(item.payload)
            if isinstance(data, dict):  # for a single step
                told = cast("dict[str, Any]", data)
                data, step = told["event"], told["step"]
            event: Any = Codec.of(run.workflow.__batonflow__).read(data)
        except (StoreError, KeyError) as error:
            run.ending.warn(f"inbox item {item.position} cannot be used and is passed over: {error}")
            lease.consumed(item, passed_over=True)
            self.dirty(lease)
            return

        def send() -> None:
            lease.consumed(item)
            asker = asker_of(run, item.key)
            close_answered(run, item.key, event)
            if asker is not None:
                asker[0].send(event, asker[1], None)
            elif is_answer(item.key):
                run.ending.warn(
                    f"{type(event).__name__} in its inbox answers a question that is not open any more, and is dropped"
                )
            elif step is not None and "." in step and run.family is not None:
                run.family.send_to(event, step, ())
            else:
                run.send(event, step, None)

        # The answer belongs to a wait that may not be restored yet.
        ready = (lambda: asker_of(run, item.key) is not None) if is_answer(item.key) else None
        run.when_taken(event, send, ready)


_connections: WeakKeyDictionary[RunStore, WeakKeyDictionary[asyncio.AbstractEventLoop, StoreConnection]] = (
    WeakKeyDictionary()
)


def connection_of(store: RunStore) -> StoreConnection:
    """Return the connection of a store on the running loop."""
    loop = asyncio.get_running_loop()
    connections = _connections.setdefault(store, WeakKeyDictionary())
    connection = connections.get(loop)
    if connection is None:
        # A connection refers to its loop, so the weak keys alone would never be dropped.
        for closed in [other for other in connections if other.is_closed()]:
            del connections[closed]
        connection = connections[loop] = StoreConnection(store, loop)
    return connection
