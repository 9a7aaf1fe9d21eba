"""The session of a PostgresStore that holds the locks of its owners, and receives and sends notifications.

The lock of an owner goes with its session, so other processes notice the end of this one at once. A lost session is
replaced at once. Notifications are sent here, off the path of commits, and those of some milliseconds together.
"""

import selectors
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from batonflow.durable.stores.hints import Hints
from batonflow.durable.stores.postgres_connection import Database, is_lost
from batonflow.durable.stores.threads import HeldLeases
from batonflow.instrumentation.logs import logger_named
from batonflow.workflow_core.errors import StoreError

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["Listener"]

_logger = logger_named("batonflow.store")

COALESCED_SECONDS = 0.01
LOST_HINT_SECONDS = 5.0
"""After so long waiting readers look for themselves, as a notification may have been lost."""
MOST_MESSAGES = 1000
"""Messages that wait while the database cannot be reached."""
_LOCK_SECONDS = 0.5
_LONGEST_NAMES = 3500
_SEPARATOR, _ANY, _READY = "\n", "*", "+"
_PAUSES = (0.05, 1.0)
"""Seconds between attempts to connect: the first and the longest."""

_MINE = """
WITH mine AS (
    SELECT runs.id FROM batonflow.runs
    JOIN unnest(%(ids)s::text[], %(epochs)s::bigint[]) AS known (run_id, epoch)
        ON runs.run_id = known.run_id AND runs.epoch = known.epoch
    WHERE status = 'running' AND owner = ANY (%(owners)s::text[]) FOR NO KEY UPDATE OF runs SKIP LOCKED
)
"""
# An owner that comes back renews the leases of its runs in memory at once, before others see that it may lose them.
_REGISTER = f"""
{_MINE}, renewed AS (
    UPDATE batonflow.runs SET lease_until = batonflow.steady() + lease_ttl FROM mine WHERE runs.id = mine.id
)
INSERT INTO batonflow.owners SELECT unnest(%(owners)s::text[]), pg_postmaster_start_time(), batonflow.wall()
ON CONFLICT (owner) DO UPDATE SET server = excluded.server, since = excluded.since
"""
_GIVE_BACK = f"""
{_MINE}
UPDATE batonflow.runs
SET status = 'ready', owner = NULL, lease_until = NULL, wake_no = wake_no + 1, due_at = batonflow.wall(),
    updated_at = batonflow.wall(), not_before = NULL
FROM mine WHERE runs.id = mine.id
"""
_TIDY = """
DELETE FROM batonflow.owners
WHERE server <> pg_postmaster_start_time()
    OR (since < batonflow.wall() - 86400 AND pg_try_advisory_xact_lock_shared(batonflow.lock_of(owner)))
"""


class Listener:
    """A thread with the session; it starts when it is needed.

    Args:
        database: The database.
        hints: The readers that wait in this process.
        leases: The runs in the memory of this process.
    """

    def __init__(self, database: Database, hints: Hints, leases: HeldLeases) -> None:
        self._database = database
        self._hints = hints
        self._leases = leases
        self._channel = f"batonflow_{database.schema}"
        self._live_channel = f"batonlive_{database.schema}"
        self._hears_live = False
        # Messages for one of the channels, which are sent as they are.
        self._messages: list[tuple[str, str]] = []
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._held: dict[str, None] = {}
        self._asked: list[tuple[str, Future[None]]] = []
        self._touched: dict[str, None] = {}
        self._appended: dict[str, None] = {}
        self._ready = False
        self._sent_at = 0.0
        self._bell: tuple[socket.socket, socket.socket] | None = None
        self._connection: Connection[Any] | None = None
        self._session: Sequence[Any] | None = None

    def vouch(self, owner: str) -> None:
        """Take the lock of ``owner``.

        Raises:
            StoreError: Another process holds the lock.
            psycopg.Error: The database cannot be reached.
        """
        if owner in self._held:
            return
        asked: Future[None] = Future()
        with self._guard:
            self._asked.append((owner, asked))
        self.start()
        asked.result()

    def tell(self, touched: Iterable[str], appended: Iterable[str], *, ready: bool) -> None:
        """Notify other processes.

        Args:
            touched: The runs that have new commits, are over, or are deleted.
            appended: The runs with new items in their inboxes.
            ready: Whether a run became ready.
        """
        with self._guard:
            self._touched.update(dict.fromkeys(touched))
            self._appended.update(dict.fromkeys(appended))
            self._ready |= ready
        self.start()

    def ask_live(self, run_id: str, after: int, commit: int) -> None:
        """See ``LiveStore.ask_live``."""
        self._say(self._channel, f"? {run_id} {after} {commit}")

    def tell_live(self, run_id: str, message: str) -> None:
        """See ``LiveStore.tell_live``."""
        self._say(self._live_channel, f"{run_id} {message}")

    def _say(self, channel: str, message: str) -> None:
        with self._guard:
            if len(self._messages) < MOST_MESSAGES:  # they come with the commit
                self._messages.append((channel, message))
        self.start()

    def start(self) -> None:
        """Let the thread look for something to do."""
        with self._guard:
            if self._thread is None and not self._stopped:
                self._bell = socket.socketpair()
                for end in self._bell:
                    end.setblocking(False)
                self._thread = threading.Thread(target=self._run, name="batonflow-store-listener", daemon=True)
                self._thread.start()
        self._ring()

    def stop(self) -> None:
        """Send the remaining notifications, release the locks, and end the thread."""
        with self._guard:
            self._stopped = True
        self._ring()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end of the thread."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _ring(self) -> None:
        with self._guard, suppress(OSError):  # it rings already
            if self._bell is not None:
                self._bell[1].send(b"x")

    def _run(self) -> None:
        pause = _PAUSES[0]
        while not self._stopped or self._has_news():
            try:
                self._work()
                pause = _PAUSES[0]
            except Exception as error:  # noqa: BLE001 - the thread goes on, and those that wait get it
                self._close()
                self._refuse(error)
                if self._stopped:
                    break
                if pause == _PAUSES[0] and not is_lost(error):
                    _logger.warning("The session of a store's owners failed: %s", self._database.explained(error))
                if self._held or self._hints.wanted or self._has_news():
                    self._wait(pause)
                    pause = min(2 * pause, _PAUSES[1])
                else:
                    self._wait(None)
        with suppress(Exception):
            if self._connection is not None:  # the server notices the end of a session a little later
                self._connection.execute("SELECT pg_advisory_unlock_all()")
        self._close()
        self._refuse(StoreError(f"The store at {self._database.address} is closed: open another one"))
        with self._guard:
            bell, self._bell = self._bell, None
        for end in bell or ():
            end.close()

    def _work(self) -> None:
        """Serve one wait for the bell or the connection."""
        connection = self._opened()
        while self._asked:
            owner, asked = self._asked[0]
            try:
                self._lock(connection, owner)
            except StoreError as error:
                asked.set_exception(error)
            else:
                self._held[owner] = None
                asked.set_result(None)
            with self._guard:
                self._asked.pop(0)
        if dropped := dict(self._leases.dropped):
            given = connection.execute(self._database.sql(_GIVE_BACK), _known(dropped, self._held))
            self.tell((), (), ready=given.rowcount > 0)
            for run_id in dropped:
                self._leases.dropped.pop(run_id)
        if self._hints.wants_live != self._hears_live:
            self._hears_live = not self._hears_live
            connection.execute(f"{'LISTEN' if self._hears_live else 'UNLISTEN'} {self._live_channel}".encode())
        if self._has_news() and (self._stopped or time.monotonic() >= self._sent_at + COALESCED_SECONDS):
            self._send(connection)
        if self._stopped:
            return
        self._wait(self._patience(), connection)

    def _patience(self) -> float | None:
        if self._asked:
            return 0.0
        if self._has_news():
            return max(0.0, self._sent_at + COALESCED_SECONDS - time.monotonic())
        return LOST_HINT_SECONDS if self._hints.wanted else None

    def _wait(self, seconds: float | None, connection: "Connection[Any] | None" = None) -> None:
        assert self._bell is not None
        bell = self._bell[0]
        with selectors.DefaultSelector() as selector:
            selector.register(bell, selectors.EVENT_READ)
            if connection is not None:
                selector.register(connection.fileno(), selectors.EVENT_READ)
            readable = [key.fileobj for key, _ in selector.select(seconds)]
        if bell in readable:
            with suppress(BlockingIOError):
                while bell.recv(4096):
                    pass
        if connection is not None and connection.fileno() in readable:
            connection.pgconn.consume_input()
            while (note := connection.pgconn.notifies()) is not None:
                self._heard(note.extra.decode(), note.be_pid, note.relname.decode())
        if not readable and seconds == LOST_HINT_SECONDS:
            self._hints.anything()
            self._hints.appended()

    def _heard(self, message: str, pid: int, channel: str) -> None:
        if self._connection is None or pid == self._connection.info.backend_pid:
            return
        if channel == self._live_channel:
            run_id, _, told = message.partition(" ")
            self._hints.told_live(run_id, told)
            return
        kind, _, names = message.partition(" ")
        if kind == "?":
            run_id, after, commit = names.split(" ")
            self._hints.asked_live(run_id, int(after), int(commit))
            return
        touched, _, appended = names.partition(_SEPARATOR)
        if touched == _ANY:
            self._hints.anything()
        else:
            self._hints.committed(touched.split())
        if appended or kind == _READY:
            self._hints.appended(None if appended == _ANY else appended.split(), ready=kind == _READY)

    def _has_news(self) -> bool:
        return self._ready or bool(self._touched or self._appended or self._messages)

    def _send(self, connection: "Connection[Any]") -> None:
        with self._guard:
            touched, appended, ready = self._touched, self._appended, self._ready
            self._touched, self._appended, self._ready = {}, {}, False
            messages, self._messages = self._messages, []
        message = f"{_READY if ready else '-'} {_names(touched)}{_SEPARATOR}{_names(appended)}"
        self._sent_at = time.monotonic()
        if touched or appended or ready:
            messages.insert(0, (self._channel, message))
        channels, texts = [channel for channel, _ in messages], [text for _, text in messages]
        try:
            statement = "SELECT pg_notify(channel, text) FROM unnest(%s::text[], %s::text[]) AS m (channel, text)"
            connection.execute(statement, (channels, texts))
        except Exception:
            with self._guard:
                self._touched.update(touched)
                self._appended.update(appended)
                self._ready |= ready
            raise

    def _opened(self) -> "Connection[Any]":
        if self._connection is not None:
            return self._connection
        connection = self._database.connect_to_listen()
        try:
            connection.add_notify_handler(lambda note: self._heard(note.payload, note.pid, note.channel))
            self._connection = connection
            self._session = self._database.succeed(connection, self._session)
            for owner in self._held:
                self._lock(connection, owner)
            connection.execute(f"LISTEN {self._channel}".encode())
            self._hears_live = False
            connection.execute(self._database.sql(_TIDY))
        except BaseException:
            self._close()
            raise
        # Notifications may have been missed.
        self._hints.anything()
        self._hints.appended()
        return connection

    def _lock(self, connection: "Connection[Any]", owner: str) -> None:
        deadline = time.monotonic() + _LOCK_SECONDS
        take = self._database.sql("SELECT pg_try_advisory_lock(batonflow.lock_of(%s))")
        # Another process that checks the owner may briefly hold the lock.
        while not (connection.execute(take, (owner,)).fetchone() or (False,))[0]:
            if time.monotonic() > deadline:
                raise StoreError(f"Owner {owner!r} is in use by another process or store: use store.owner as the name")
            time.sleep(0.005)
        connection.execute(self._database.sql(_REGISTER), _known(self._leases.epochs(), [owner]))

    def _refuse(self, error: Exception) -> None:
        with self._guard:
            asked, self._asked = self._asked, []
        for _, one in asked:
            one.set_exception(error)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


def _known(epochs: Mapping[str, int], owners: Iterable[str]) -> dict[str, list[Any]]:
    """Return the values of ``_MINE``."""
    return {"ids": list(epochs), "epochs": list(epochs.values()), "owners": list(owners)}


def _names(run_ids: Iterable[str]) -> str:
    """Return run ids for a message."""
    names = " ".join(run_ids)
    return names if len(names) <= _LONGEST_NAMES else _ANY
