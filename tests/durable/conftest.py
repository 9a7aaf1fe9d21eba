"""Stores to test, each kind with the same tests, and a clock that can be put forward."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from batonflow.clock import Source
from batonflow.durable.store_protocol import RunStore
from batonflow.durable.stores.memory import MemoryStore
from batonflow.durable.stores.sqlite import SQLiteStore


class Clock:
    """The two clocks of a machine; ``wall`` and ``monotonic`` are seconds by which they are put forward."""

    def __init__(self) -> None:
        self.wall = 0.0
        self.monotonic = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(Source, "now", staticmethod(lambda: time.time() + clock.wall))
    monkeypatch.setattr(Source, "monotonic", lambda _self: time.monotonic() + clock.monotonic)
    return clock


class Stores:
    """Opens stores that share their runs, as each process does for itself."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.path = folder / "runs.db"
        self.opened: list[RunStore] = []

    def open(self) -> RunStore:
        if self.kind == "sqlite":
            store: RunStore = SQLiteStore(self.path)
        else:
            assert self.kind == "memory", f"Stores.open() does not know the kind {self.kind!r}"
            first = self.opened[0] if self.opened else None
            assert first is None or isinstance(first, MemoryStore)
            store = MemoryStore(beside=first)
        self.opened.append(store)
        return store


KINDS = ("memory", "sqlite")


@pytest.fixture(params=KINDS)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    stores = Stores(request.param, tmp_path)
    yield stores
    for store in stores.opened:
        await store.aclose()


@pytest.fixture
def store(stores: Stores) -> RunStore:
    return stores.open()


@pytest.fixture
def other(stores: Stores, store: RunStore) -> RunStore:
    """A second process on the same runs."""
    return stores.open()
