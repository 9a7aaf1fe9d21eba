"""Stores to test, each kind with the same tests, and a clock that can be put forward."""

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from batonflow.clock import Source
from batonflow.durable.store_protocol import RunStore
from batonflow.durable.stores.memory import MemoryStore
from batonflow.durable.stores.postgres import PostgresStore
from batonflow.durable.stores.sqlite import SQLiteStore
from tests.postgres import DatabaseClock, drop_schema, new_schema, server_address


class Clock:
    """The two clocks of a machine; ``wall`` and ``monotonic`` are seconds by which they are put forward."""

    def __init__(self) -> None:
        self._wall = self._monotonic = 0.0
        self.moved: Callable[[], None] = lambda: None
        """Called after a change."""

    @property
    def wall(self) -> float:
        return self._wall

    @wall.setter
    def wall(self, seconds: float) -> None:
        self._wall = seconds
        self.moved()

    @property
    def monotonic(self) -> float:
        return self._monotonic

    @monotonic.setter
    def monotonic(self, seconds: float) -> None:
        self._monotonic = seconds
        self.moved()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(Source, "now", staticmethod(lambda: time.time() + clock.wall))
    monkeypatch.setattr(Source, "monotonic", lambda _self: time.monotonic() + clock.monotonic)
    return clock


class Stores:
    """Opens stores that share their runs, as each process does for itself.

    A store in PostgreSQL follows the clock of the database; ``follow`` sets it.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.path = folder / "runs.db"
        self.opened: list[RunStore] = []
        if kind == "postgres":
            self.address, self.schema = server_address(), new_schema()
        self.clock: DatabaseClock | None = None

    def open(self) -> RunStore:
        if self.kind == "sqlite":
            store: RunStore = SQLiteStore(self.path)
        elif self.kind == "postgres":
            store = PostgresStore(self.address, self.schema)
        else:
            assert self.kind == "memory", f"Stores.open() does not know the kind {self.kind!r}"
            first = self.opened[0] if self.opened else None
            assert first is None or isinstance(first, MemoryStore)
            store = MemoryStore(beside=first)
        self.opened.append(store)
        return store

    def put_clock(self, *, wall: float = 0.0, steady: float = 0.0, at: float | None = None) -> None:
        """Set the clock of a database, where the stores follow one."""
        if self.kind == "postgres":
            self.clock = self.clock or DatabaseClock(self.address, self.schema)
            self.clock.put(wall=wall, steady=steady, at=at)

    async def aclose(self) -> None:
        for store in self.opened:
            await store.aclose()
        if self.clock is not None:
            self.clock.close()
        if self.kind == "postgres":
            drop_schema(self.address, self.schema)


KINDS = ("memory", "sqlite", pytest.param("postgres", marks=pytest.mark.external("postgresql")))


@pytest.fixture(params=KINDS)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    stores = Stores(request.param, tmp_path)
    if "clock" in request.fixturenames:
        clock: Clock = request.getfixturevalue("clock")
        clock.moved = lambda: stores.put_clock(wall=clock.wall, steady=clock.monotonic)
    yield stores
    await stores.aclose()


@pytest.fixture
def store(stores: Stores) -> RunStore:
    return stores.open()


@pytest.fixture
def other(stores: Stores, store: RunStore) -> RunStore:
    """A second process on the same runs."""
    return stores.open()
