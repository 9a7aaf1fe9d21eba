"""The threads of a PostgresStore: one writer, whose operations share round trips, and a few readers."""

import math
import queue
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from batonflow.durable.stores.hints import Hints
from batonflow.durable.stores.postgres_claims import renew_held
from batonflow.durable.stores.postgres_connection import OUTAGE_SECONDS, Database, is_lost, is_temporary
from batonflow.durable.stores.postgres_listener import Listener
from batonflow.durable.stores.postgres_rows import Query, Snapshot, Steps, Writing
from batonflow.durable.stores.threads import HeldLeases, Job, StoreThreads
from batonflow.workflow_core.errors import StoreError

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["Readers", "Writer"]

MOST_IN_ONE_TRANSACTION = 1000
"""Jobs; the next ones wait for the next transaction, so that it stays short."""
_PAUSES = (0.05, 1.0)
"""Seconds between attempts to reach the database: the first and the longest."""

_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


@dataclass(slots=True)
class _Operation:
    """A job under way.

    Attributes:
        job: The job.
        steps: Its operation.
        queries: The queries that it waits for.
        answers: The rows for them.
    """

    job: Job
    steps: Steps[Any]
    asked: Query | Sequence[Query] | Snapshot | None = None
    answers: list[list[Any]] = field(default_factory=list[list[Any]])

    @property
    def queries(self) -> Sequence[Query]:
        """The queries that it waits for."""
        if isinstance(self.asked, Query):
            return [self.asked]
        return self.asked.queries if isinstance(self.asked, Snapshot) else self.asked or []

    @property
    def shares(self) -> bool:
        """True if its queries may be in a transaction with those of other operations."""
        if isinstance(self.asked, Snapshot) or self.job.stuck_since is not None:
            return False
        return all(query.key is not None for query in self.queries)

    def begin(self) -> bool:
        """Go to the first queries; return False at the end."""
        return self._go_on(None)

    def resume(self) -> bool:
        """Go on with the answers; return False at the end."""
        return self._go_on(self.answers[0] if isinstance(self.asked, Query) else self.answers)

    def _go_on(self, answer: Any) -> bool:
        try:
            self.asked = self.steps.send(answer)
        except StopIteration as end:
            self.job.finish(end.value, None)
            return False
        return True


class _Threads(StoreThreads):
    """Threads with connections to one database.

    Args:
        database: The database.
        listener: The session that holds the locks of owners.
        most: The largest number of threads.
    """

    def __init__(self, database: Database, listener: Listener, most: int) -> None:
        super().__init__(database.address, most)
        self._database = database
        self._listener = listener

    def _settle(self, session: "_Session", jobs: list[Job]) -> None:
        """Carry out jobs; try again while the database cannot be reached, or locks of other sessions stay."""
        retries = False
        pause = _PAUSES[0]
        while jobs := [job for job in jobs if not job.is_finished]:
            writing = Writing(self._listener.vouch, retries=retries)
            try:
                session.carry_out(jobs, writing)
            except Exception as error:  # noqa: BLE001 - the callers wait for the error
                if not is_lost(error):
                    for job in jobs:
                        session.fail(job, error)
                    continue
                session.close()
                if not self._database.was_reached or (
                    retries and self._database.note_loss(error, is_patient=jobs[0].is_patient) < time.monotonic()
                ):
                    for job in jobs:
                        session.give_up(job, error)
                elif retries:  # otherwise the session may be older than the present server
                    time.sleep(pause)
                    pause = min(2 * pause, _PAUSES[1])
                    if self._lets_others_begin():
                        return
                retries = True
            else:
                self._database.note_return()
                if not retries and not all(job.is_finished for job in jobs):
                    jobs += self._due()
            finally:
                self._noted(writing)

    def _due(self) -> list[Job]:
        """Return jobs that need not wait for those that are stuck."""
        return []

    def _lets_others_begin(self) -> bool:
        """Tell whether the jobs are to be left for later, while the database cannot be reached."""
        return False

    def _noted(self, writing: Writing) -> None:
        """Take note of what was written."""


class Writer(_Threads):
    """The only writer, whose queued operations go to the database together."""

    name = "writer"

    def __init__(self, database: Database) -> None:
        self.hints = Hints(self._listen)
        """The readers that wait for commits, of this and of other processes."""
        self._held = HeldLeases()
        self.listener = Listener(database, self.hints, self._held)
        super().__init__(database, self.listener, most=1)
        self._session = _Session(database)
        self._shortest_ttl = math.inf
        self._renew_at = math.inf

    def _listen(self) -> None:
        with suppress(StoreError):  # closed
            self.submit(Job(_nothing, _ignore))  # its thread ends that of the listener
            self.listener.start()

    def hold(self, run_id: str, epoch: int, lost: Any) -> None:
        """Renew the lease of a run from now on."""
        self._held.hold(run_id, epoch, lost)
        with suppress(StoreError):  # closed
            self.submit(Job(_nothing, _ignore))

    def let_go(self, run_id: str) -> None:
        """Stop the automatic renewal of a run's lease. In an outage the run is dropped, and given back later."""
        self._held.let_go(run_id, is_dropped=self._database.lost_at is not None)
        if self._held.dropped:
            self.listener.start()

    def _run(self) -> None:
        try:
            while True:
                patience = max(0.0, min(self._renew_at - time.monotonic(), 3600.0)) if self._held else None
                try:
                    job = self._jobs.get(timeout=patience)
                except queue.Empty:
                    job = Job(_nothing, _ignore)
                if job is None:
                    return
                self._settle(self._session, self._due(job))
        finally:
            self._session.close()
            self.listener.stop()
            self.listener.join()

    @override
    def _due(self, first: Job | None = None) -> list[Job]:
        """Return the renewal of the leases, if it is time for it, and the queued jobs."""
        jobs = [] if first is None else [first]
        while len(jobs) < MOST_IN_ONE_TRANSACTION and not self._jobs.empty():
            job = self._jobs.get()
            if job is None:  # the end, after these jobs
                self._jobs.put(None)
                break
            jobs.append(job)
        jobs = [job for job in jobs if job.operation is not _nothing]
        now = time.monotonic()
        if self._held and now >= self._renew_at:
            self._renew_at = now + self._shortest_ttl / 3
            held = self._held.epochs()
            jobs.insert(0, Job(lambda writing: renew_held(writing, held), self._held.tell_lost))
        return jobs

    def _noted(self, writing: Writing) -> None:
        if writing.shortest_ttl < self._shortest_ttl:
            self._shortest_ttl = writing.shortest_ttl
            self._renew_at = min(self._renew_at, time.monotonic() + self._shortest_ttl / 3)
        if writing.touched or writing.appended or writing.ready:
            self.listener.tell(writing.touched, writing.appended, ready=writing.ready)
            self.hints.committed(writing.touched)
        if writing.appended or writing.ready:
            self.hints.appended(writing.appended, ready=writing.ready)


class Readers(_Threads):
    """Threads that read, each with a connection of its own."""

    name = "reader"

    def _run(self) -> None:
        session = _Session(self._database, reads=True)
        try:
            while (job := self._jobs.get()) is not None:
                while not job.is_finished:
                    self._settle(session, [job])
                    with self._guard:
                        if job.is_finished:
                            self._waiting += 1
                        elif not self._stopped:
                            self._jobs.put(job)
                            break
        finally:
            session.close()

    def _lets_others_begin(self) -> bool:
        return not self._stopped and not self._jobs.empty()  # so that listings fail in time behind other reads


class _Session:
    """A connection, which is made when it is needed."""

    def __init__(self, database: Database, *, reads: bool = False) -> None:
        self._database = database
        self._reads = reads
        self._connection: Connection[Any] | None = None
        self._session: Sequence[Any] | None = None

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def fail(self, job: Job, error: Exception) -> None:
        """End a job with an error, unless the same may work later. Then it is left for another attempt."""
        if is_temporary(error):
            now = time.monotonic()
            job.stuck_since = job.stuck_since or now
            if now < job.stuck_since + OUTAGE_SECONDS:
                return
        self.give_up(job, error)

    def give_up(self, job: Job, error: Exception) -> None:
        """End a job with an error."""
        if not job.is_finished:
            job.finish(None, self._database.explained(error, is_patient=job.is_patient))

    def carry_out(self, jobs: Sequence[Job], writing: Writing) -> None:
        """Carry out operations, in as few round trips as possible; some may be left for another attempt.

        Raises:
            StoreError: The tables cannot be used.
            psycopg.Error: The database cannot be reached.
        """
        if self._connection is None:
            self._connection = self._database.connect(reads=self._reads)
            if not self._reads and not self._database.is_pooled:
                self._session = self._database.succeed(self._connection, self._session)
        running = [_Operation(job, job.operation(writing)) for job in jobs]
        running = [one for one in running if self._went_on(one, one.begin)]
        while running:
            waiting: list[_Operation] = []
            together: list[_Operation] = []
            for one in running:
                if one.shares:
                    together.append(one)
                    continue
                waiting += self._answered(together)
                together = []
                waiting += self._answered([one])
            running = waiting + self._answered(together)

    def _went_on(self, one: _Operation, go_on: Any) -> bool:
        """Let an operation go on; its own errors are its outcome."""
        try:
            return go_on()
        except Exception as error:
            if is_lost(error):
                raise
            self.fail(one.job, error)
            return False

    def _answered(self, operations: list[_Operation]) -> list[_Operation]:
        """Get the answers of operations in one transaction, and return those that go on."""
        if not operations:
            return []
        try:
            self._ask(operations)
        except Exception as error:
            if is_lost(error) or isinstance(error, StoreError):
                raise
            if len(operations) > 1:
                return [waiting for one in operations for waiting in self._answered([one])]
            self.fail(operations[0].job, error)
            return []
        return [one for one in operations if self._went_on(one, one.resume)]

    def _ask(self, operations: Sequence[_Operation]) -> None:
        connection = self._connection
        assert connection is not None
        asked = [(query, place) for place, one in enumerate(operations) for query in one.queries]
        asked.sort(key=lambda pair: pair[0].key or "")  # stable: the queries of a run stay in order
        for one in operations:
            one.answers = []
        reads = isinstance(operations[0].asked, Snapshot)
        try:
            if len(asked) == 1:
                cursors = [self._execute(connection, asked[0][0])]
            else:
                with connection.pipeline():
                    # Without BEGIN, the end of the pipeline after a value that cannot be sent would commit the others.
                    connection.execute(_BEGIN_READING if reads else "BEGIN")
                    cursors = [self._execute(connection, query) for query, _ in asked]
                    connection.execute("COMMIT")
        except Exception:
            if not connection.closed:
                connection.rollback()
            raise
        answers: dict[int, list[Any]] = {}
        for (query, _), cursor in zip(asked, cursors, strict=True):
            answers[id(query)] = cursor.fetchall() if cursor.description else []
        for one in operations:
            one.answers = [answers[id(query)] for query in one.queries]

    def _execute(self, connection: "Connection[Any]", query: Query) -> Any:
        return connection.execute(self._database.sql(query.sql), query.values, binary=True)


def _nothing(_writing: Writing) -> Any:
    return None


def _ignore(_result: Any, _error: BaseException | None) -> None:
    return None
