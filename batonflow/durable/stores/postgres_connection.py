"""Connections to the database of a PostgresStore, and its errors in words that name the remedy."""

import logging
import re
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs

from batonflow.durable.store_protocol import PartsGoneError
from batonflow.durable.stores.postgres_schema import in_schema, migrate
from batonflow.instrumentation.logs import logger_named
from batonflow.workflow_core.errors import StoreCorruptedError, StoreError

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = [
    "OUTAGE_SECONDS", "Database", "address_of", "check_plain_schema_name", "check_schema_name", "is_lost",
    "is_temporary", "one_connection",
]  # fmt: skip

_logger = logger_named("batonflow.store")

OUTAGE_SECONDS = 30.0
"""Seconds in which operations are tried again while the database cannot be reached."""

READ_SECONDS = 5.0
"""The same for listings and other reads that no driven run waits for."""

_HOST = r"(?:[^:/?@\[\],\s]*|\[[0-9A-Fa-f:.]+\])(?::\d*)?"
# Anything else, such as a / in a password that is not escaped, would turn up in messages as the name of a host or file.
_ADDRESS = re.compile(
    rf"postgres(?:ql)?://(?:(?P<user>[^/?@:\0]*)(?::[^/?@\0]*)?@)?(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<name>/[^/?@\s]*)?(?:\?(?P<options>[^@\0]*))?"
).fullmatch
_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})|%00").search
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,52}").fullmatch
_DEFAULTS = {
    "application_name": "batonflow",
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
}
_DEFAULTS_TO_READ = {**_DEFAULTS, "connect_timeout": "3"}
_SETTINGS = {
    "client_encoding": "UTF8",
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "5s",
    "lock_timeout": "2s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
# Classes of errors: the connection failed, the server is going down or starting, it has too many connections.
_LOST = ("08", "57P", "53300")
# A deadlock, a failed serialization, a lock that another session holds for long.
_TEMPORARY = ("40001", "40P01", "55P03")
_LOCKED = "55P03"
_SESSION = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_END = "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE pid = %s AND backend_start = %s"
_GONE = "BF001"


def address_of(dsn: Any, *, with_user: bool = False) -> str:
    """Return the address of a database without password, and without user unless ``with_user`` is set.

    Raises:
        StoreError: The value is not the address of a PostgreSQL database.
    """
    parts = _ADDRESS(dsn) if isinstance(dsn, str) and not _BAD_ESCAPE(dsn) else None
    if parts is None:  # it is not shown, as it may hold a password
        raise StoreError(
            "This is not the address of a database: give one such as postgresql://user@host/database, with %2F for / "
            "and %40 for @ in the password"
        )
    folder = parse_qs(parts["options"] or "").get("host", [""])[0]
    user = f"{parts['user']}@" if with_user and parts["user"] else ""
    return f"postgresql://{user}{parts['hosts']}{parts['name'] or ''}" + (f"?host={folder}" if folder else "")


def check_schema_name(schema: str) -> str:
    """Return the name of a schema.

    Raises:
        StoreError: PostgreSQL keeps the name for itself.
    """
    if schema.lower().startswith("pg_") or schema.lower() == "information_schema":
        raise StoreError(
            f"schema={schema!r}: PostgreSQL keeps information_schema and names with pg_ for itself, so give another"
        )
    return schema


def check_plain_schema_name(schema: str) -> str:
    """Return the name of a schema that stands in statements without quotes.

    Raises:
        StoreError: The name has other characters, or PostgreSQL keeps it for itself.
    """
    if not isinstance(schema, str) or not _SCHEMA(schema):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StoreError(f"schema={schema!r}: give a name of lower-case letters, digits and _")
    return check_schema_name(schema)


def _code(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""


def is_lost(error: BaseException) -> bool:
    """Tell whether the connection has failed, so that the same may work with another one."""
    if isinstance(error, StoreError):
        return False
    driver = _driver()
    if not isinstance(error, driver.OperationalError | driver.InterfaceError):
        return False
    return not _code(error) or _code(error).startswith(_LOST)


def is_temporary(error: BaseException) -> bool:
    """Tell whether the same may work at once."""
    return _code(error) in _TEMPORARY


class Database:
    """A schema of a database.

    Args:
        dsn: The address, perhaps of a pooler.
        schema: The schema.
        durability: See ``PostgresStore``.
        listen_dsn: The address for locks and notifications; None for the same.
    """

    def __init__(
        self, dsn: str, schema: str, durability: Literal["process", "power"], listen_dsn: str | None = None
    ) -> None:
        self.address = address_of(dsn)
        self.schema = check_plain_schema_name(schema)
        self.durability = durability
        self.is_pooled = listen_dsn is not None and address_of(listen_dsn) != self.address
        """True if a session serves others, too."""
        self.was_reached = False
        """True once a connection was made."""
        self.lost_at: float | None = None
        """The time of the loss of the database; None while it is reached."""
        self._dsn = dsn
        self._listen_dsn = listen_dsn
        self._statements: dict[str, bytes] = {}
        self._migrating = threading.Lock()
        self._is_migrated = False

    def sql(self, statement: str) -> bytes:
        """Return a statement with the name of the schema."""
        found = self._statements.get(statement)
        if found is None:
            found = self._statements[statement] = in_schema(statement, self.schema).encode()
        return found

    def connect(self, *, reads: bool = False) -> "Connection[Any]":
        """Return a connection for operations; create or change the tables first, if needed.

        Args:
            reads: True for listings, whose best plan depends on their values.

        Raises:
            StoreError: This version cannot use the tables.
            psycopg.Error: The database cannot be reached or used.
        """
        connection = self._connect(self._dsn, _DEFAULTS_TO_READ if reads else _DEFAULTS, is_pooled=self.is_pooled)
        try:
            self._migrate(connection)
            if not self.is_pooled:  # a write that waits for a lock keeps others waiting, so it is tried again later
                connection.execute("SET plan_cache_mode = auto" if reads else "SET lock_timeout = '200ms'")
        except BaseException:
            connection.close()
            raise
        self.was_reached = True
        return connection

    def _migrate(self, connection: "Connection[Any]") -> None:
        with self._migrating:
            if not self._is_migrated:
                migrate(connection, self.schema, self.address)
                self._is_migrated = True

    def succeed(self, connection: "Connection[Any]", lost: Sequence[Any] | None) -> Sequence[Any] | None:
        """End a lost session, which otherwise keeps its locks until the server notices the loss.

        After that its last operation was either done or not, so it can be looked for.

        Args:
            connection: The connection in its place.
            lost: The value that this method returned for the lost one.

        Returns:
            A value for the new session.
        """
        if lost is not None:
            connection.execute(_END, lost)
        return connection.execute(_SESSION).fetchone()

    def connect_to_listen(self) -> "Connection[Any]":
        """Return a connection that keeps its session, for locks and notifications.

        Raises:
            StoreError: The connection goes through a pooler that does not keep sessions, or this version cannot use the
                tables.
            psycopg.Error: The database cannot be reached.
        """
        dsn = self._listen_dsn or self._dsn
        connection = self._connect(dsn)
        try:
            connection.execute("SET synchronous_commit = off")  # a notification would wait for the disk
            (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
            if pid != connection.info.backend_pid and self._shares_sessions(connection, dsn):
                raise StoreError(
                    f"The connection to {self.address} goes through a pooler in transaction mode, where LISTEN and the "
                    "locks of owners do not work. Give the store listen_dsn= with a direct address"
                )
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def connect_once(self) -> "Connection[Any]":
        """Return a connection for one transaction, which does not need the tables of runs.

        Raises:
            psycopg.Error: The database cannot be reached.
        """
        connection = self._connect(self._dsn)
        connection.autocommit = False
        connection.prepare_threshold = None
        return connection

    def _shares_sessions(self, connection: "Connection[Any]", dsn: str) -> bool:
        """Tell whether a second client gets the session of the first, which is idle."""
        connection.execute("SELECT set_config('batonflow.session', 'kept', false)")
        with self._connect(dsn) as other:
            (found,) = other.execute("SELECT current_setting('batonflow.session', true)").fetchone() or (None,)
        connection.execute("SELECT set_config('batonflow.session', '', false)")
        return found == "kept"

    def _connect(
        self, dsn: str, defaults: Mapping[str, str] = _DEFAULTS, *, is_pooled: bool = False
    ) -> "Connection[Any]":
        driver = _driver()
        given = driver.conninfo.conninfo_to_dict(dsn)
        # A pooler gives another session to each transaction, which does not know prepared statements.
        connection = driver.Connection.connect(
            dsn,
            autocommit=True,
            prepare_threshold=None if is_pooled else 0,
            **{name: value for name, value in defaults.items() if name not in given},
        )
        connection.prepared_max = 500
        # All numbers have one type, so that a statement is prepared once.
        for dumper in (driver.types.numeric.Int8Dumper, driver.types.numeric.Int8BinaryDumper):
            connection.adapters.register_dumper(int, dumper)
        if is_pooled:
            return connection
        settings = dict(_SETTINGS)
        if self.durability == "process":
            settings["synchronous_commit"] = "off"
        names = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
        connection.execute(f"SELECT {names}", prepare=False)
        return connection

    def note_loss(self, error: Exception, *, is_patient: bool) -> float:
        """Note that the database cannot be reached, and return the time at which operations fail.

        All operations of an outage share that time, so that a process which stops does not wait for each of them.
        """
        if self.lost_at is None:
            self.lost_at = time.monotonic()
            _logger.warning("%s", self._outage(error))
        return self.lost_at + (OUTAGE_SECONDS if is_patient else READ_SECONDS)

    def note_return(self) -> None:
        """Note that an operation has reached the database."""
        if self.lost_at is not None:
            self.lost_at = None
            _logger.warning("The store %s can be reached again", self.address)

    def _loss(self, error: Exception) -> str:
        reason = str(error).strip().partition("\n")[0].rpartition("failed: ")[2] or type(error).__name__
        return f"The store {self.address} cannot be reached: {reason}"

    def _outage(self, error: Exception) -> str:
        return f"{self._loss(error)}. Runs in memory go on for {OUTAGE_SECONDS:g} s and are written when it is back"

    def explained(self, error: Exception, *, is_patient: bool = True) -> Exception:
        """Return the error for the caller: a StoreError for faults of the database, otherwise the raised error."""
        if isinstance(error, StoreError) or not isinstance(error, _driver().Error):
            return error
        instead = self._store_error(error, is_patient)
        instead.__cause__ = error
        return instead

    def _store_error(self, error: Exception, is_patient: bool) -> StoreError:
        code, place = _code(error), f"The store {self.address}"
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if code == _GONE:
            return PartsGoneError(f"{said}, because no run needed them any more")
        if is_lost(error):
            if self.was_reached and is_patient:
                return StoreError(f"{self._outage(error)}; this has lasted longer")
            return StoreError(f"{self._loss(error)}. Check the address and the server")
        if code == "42501":
            return StoreError(
                f"{place} refuses its user: {said}. Let an administrator run GRANT CREATE ON DATABASE, or make the "
                f"schema {self.schema} and give its user all rights on it"
            )
        if code == "25006":
            return StoreError(f"{place} can only be read, perhaps a standby: give the address of the primary server")
        if code == _LOCKED:
            return StoreError(f"{place}: another session has locked what it needs: end that session, see pg_locks")
        if code == "53100":
            return StoreError(f"There is no space left for {self.address}: free some on the server's disk; then go on")
        if code.startswith(("22", "23", "XX")):
            return StoreCorruptedError(f"{place} refuses or holds what it should not: {said}")
        return StoreError(f"{place} cannot be used: {said}")


@contextmanager
def one_connection(dsn: str, schema: str = "public") -> "Generator[Connection[Any]]":
    """Make a connection for one transaction; errors name the schema.

    Raises:
        StoreError: The database cannot be reached or used.
    """
    database = Database(dsn, schema, "power")
    try:
        with database.connect_once() as connection:
            yield connection
    except Exception as error:
        instead = database.explained(error)
        if instead is error:
            raise
        raise instead from error


def _driver() -> Any:
    """Return psycopg, which is imported at first use."""
    try:
        import psycopg  # noqa: PLC0415 - an extra, which only this store needs
    except ImportError as error:
        raise StoreError(
            "A store in PostgreSQL needs psycopg, which is not installed: pip install 'batonflow[postgres]'"
        ) from error
    logging.getLogger("psycopg").addFilter(_is_news)
    return psycopg


def _is_news(record: logging.LogRecord) -> bool:
    """Leave out the ends of this store's pipelines after a loss, which ``note_loss`` reports."""
    is_own = (record.threadName or "").startswith("batonflow-store-")
    return not (is_own and str(record.msg).startswith("error ignored"))
