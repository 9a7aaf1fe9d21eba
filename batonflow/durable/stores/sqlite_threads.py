"""The threads of a SQLiteStore: one writer with shared transactions, and a few readers."""

import math
import queue
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from batonflow.clock import Source
from batonflow.durable.stores.hints import Hints
from batonflow.durable.stores.owners import Owners
from batonflow.durable.stores.sqlite_claims import renew_held
from batonflow.durable.stores.sqlite_commits import flush
from batonflow.durable.stores.sqlite_faults import concerns_all, explained, is_busy
from batonflow.durable.stores.sqlite_rows import DatabaseSession
from batonflow.durable.stores.sqlite_schema import DatabaseFile
from batonflow.durable.stores.threads import HeldLeases, Job, StoreThreads
from batonflow.workflow_core.errors import StoreError

__all__ = ["Readers", "Writer"]

MOST_IN_ONE_TRANSACTION = 1000
"""Jobs; the next ones wait for the next transaction, so that it stays short."""
POLL_SECONDS = (0.02, 0.1)
"""Seconds between looks for commits of other processes: after activity, and after a long silence."""


class _Threads(StoreThreads):
    """Threads with connections to one database.

    Args:
        file: The database.
        owners: The living owners; the writer announces those of this store.
        source: The clocks.
        busy_seconds: The longest wait for another process that is writing.
        most: The largest number of threads.
    """

    def __init__(self, file: DatabaseFile, owners: Owners, source: Source, busy_seconds: float, most: int) -> None:
        super().__init__(str(file.path), most)
        self._file = file
        self._owners = owners
        self._source = source
        self._busy_seconds = busy_seconds

    def _session_of(self, connection: sqlite3.Connection) -> DatabaseSession:
        return DatabaseSession(connection, self._file.path, self._owners, self._source)


class Writer(_Threads):
    """The only writer, which runs all queued operations in one transaction."""

    name = "writer"

    def __init__(self, file: DatabaseFile, owners: Owners, source: Source, busy_seconds: float) -> None:
        super().__init__(file, owners, source, busy_seconds, most=1)
        self.was_opened = False
        """Tell whether the file is there, and one of ours."""
        self.hints = Hints(self.nudge)
        """The readers that wait for commits, of this and of other processes."""
        self._session: DatabaseSession | None = None
        self._held = HeldLeases()
        self._shortest_ttl = math.inf
        self._renew_at = math.inf
        self._poll_at = 0.0
        self._active_at = 0.0
        self._last_version = -1
        self._last_appends = -1

    def nudge(self) -> None:
        """Let the thread check for polls and renewals."""
        with suppress(StoreError):  # closed
            self.submit(Job(_nothing, _ignore))

    def hold(self, run_id: str, epoch: int, lost: Callable[[], None] | None) -> None:
        """Renew the lease of a run from now on."""
        self._held.hold(run_id, epoch, lost)
        self.nudge()

    def let_go(self, run_id: str) -> None:
        """Stop the automatic renewal of a run's lease."""
        self._held.let_go(run_id)

    def _run(self) -> None:
        try:
            while (first := self._next()) is not None:
                self._settle(self._all_queued(first))
        finally:
            self._close()
            self._owners.give_up()

    def _next(self) -> Job | None:
        while True:
            try:
                job = self._jobs.get(timeout=self._patience())
            except queue.Empty:
                job = Job(_nothing, _ignore)
            self._look_around()
            if job is None or job.operation is not _nothing:
                return job

    def _patience(self) -> float | None:
        """Return the seconds until the next poll or renewal."""
        due: list[float] = []
        if self._held:
            due.append(self._renew_at)
        if self.hints.wanted:
            due.append(self._poll_at)
        # At most an hour, because waits for a lock have a maximum.
        return min(max(0.0, min(due) - time.monotonic()), 3600.0) if due else None

    def _all_queued(self, first: Job) -> list[Job]:
        jobs = [first]
        while len(jobs) < MOST_IN_ONE_TRANSACTION and not self._jobs.empty():
            job = self._jobs.get()
            if job is None:  # the end, after these jobs
                self._jobs.put(None)
                break
            if job.operation is not _nothing:
                jobs.append(job)
        return jobs

    def _look_around(self) -> None:
        now = time.monotonic()
        if self._held and now >= self._renew_at:
            self._renew_at = now + self._shortest_ttl / 3
            held = self._held.epochs()
            self._settle([Job(lambda session: renew_held(session, held), self._held.tell_lost)])
        if self.hints.wanted and now >= self._poll_at:
            self._poll()
            idle = now - self._active_at
            self._poll_at = now + min(max(idle / 50, POLL_SECONDS[0]), POLL_SECONDS[1])

    def _poll(self) -> None:
        """Wake readers for commits of other processes."""
        try:
            session = self._opened()
            (version,) = session.connection.execute("PRAGMA data_version").fetchone()
            if version == self._last_version:
                return
            (appends,) = session.connection.execute("SELECT appends FROM facts").fetchone()
        except (sqlite3.Error, OSError, StoreError):
            return  # the next operation reports the error
        self._last_version = version
        self._active_at = time.monotonic()
        self.hints.anything()
        if appends != self._last_appends:
            self._last_appends = appends
            self.hints.appended()

    def _settle(self, jobs: list[Job]) -> None:
        """Run jobs in one transaction; if one fails, run each by itself."""
        try:
            results = self._attempt(jobs)
        except Exception as error:  # noqa: BLE001 - the callers wait for the error
            if len(jobs) == 1 or concerns_all(error):
                for job in jobs:
                    job.finish(None, explained(self._file, error, self._busy_seconds))
            else:
                for job in jobs:
                    self._settle([job])
            return
        for job, result in zip(jobs, results, strict=True):
            job.finish(result, None)

    def _attempt(self, jobs: list[Job]) -> list[Any]:
        """Run a transaction; retry while another process holds the lock."""
        began = time.monotonic()
        pause = 0.001
        while True:
            try:
                return self._transaction(jobs)
            except sqlite3.Error as error:
                self._undo(error)
                if not is_busy(error) or time.monotonic() - began > self._busy_seconds:
                    raise
            except BaseException as error:
                self._undo(error)
                raise
            time.sleep(pause)
            pause = min(pause * 2, 0.05)

    def _transaction(self, jobs: list[Job]) -> list[Any]:
        session = self._opened()
        self._file.check()
        session.connection.execute("BEGIN IMMEDIATE")
        results = [job.operation(session) for job in jobs]
        flush(session)
        session.connection.execute("COMMIT")
        if session.shortest_ttl < self._shortest_ttl:
            self._shortest_ttl = session.shortest_ttl
            self._renew_at = min(self._renew_at, time.monotonic() + self._shortest_ttl / 3)
        if session.touched:
            self.hints.committed(session.touched)
            session.touched.clear()
        if session.signals:
            if self._last_appends >= 0:
                self._last_appends += session.signals
            self.hints.appended(session.appended, ready=session.ready)
            _forget_signals(session)
        self._active_at = time.monotonic()
        return results

    def _undo(self, error: BaseException) -> None:
        session = self._session
        if session is None:
            return
        session.known.clear()
        session.rows.clear()
        session.touched.clear()
        _forget_signals(session)
        try:
            if session.connection.in_transaction:
                session.connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._close()
        if concerns_all(error) and not is_busy(error):
            self._close()

    def _opened(self) -> DatabaseSession:
        if self._session is None:
            self._session = self._session_of(self._file.open_writer())
            self._last_version = self._last_appends = -1
            self._owners.tidy()
            self.was_opened = True
        return self._session

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.connection.close()


class Readers(_Threads):
    """Threads that read a database which a writer has opened before, each with a connection of its own."""

    name = "reader"

    def __init__(self, file: DatabaseFile, owners: Owners, source: Source, busy_seconds: float) -> None:
        super().__init__(file, owners, source, busy_seconds, most=4)

    def _run(self) -> None:
        session: DatabaseSession | None = None
        try:
            while (job := self._jobs.get()) is not None:
                try:
                    if session is None:
                        session = self._session_of(self._file.open_reader())
                    job.finish(self._read(session, job), None)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is for the one who asked, who waits
                    job.finish(None, explained(self._file, error, self._busy_seconds))
                    if session is not None and concerns_all(error):
                        session.connection.close()
                        session = None
                with self._guard:
                    self._waiting += 1
        finally:
            if session is not None:
                session.connection.close()

    def _read(self, session: DatabaseSession, job: Job) -> Any:
        self._file.check()
        session.connection.execute("BEGIN")
        try:
            return job.operation(session)
        finally:
            if session.connection.in_transaction:
                session.connection.execute("ROLLBACK")


def _nothing(_session: DatabaseSession) -> None:
    return None


def _ignore(_result: Any, _error: BaseException | None) -> None:
    return None


def _forget_signals(session: DatabaseSession) -> None:
    session.appended.clear()
    session.signals, session.ready = 0, False
