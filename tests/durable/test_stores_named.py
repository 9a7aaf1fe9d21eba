"""Which store ``Workflow(store=...)`` means."""

import sys
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable.stores.memory import MemoryStore
from batonflow.durable.stores.opening import open_store
from batonflow.durable.stores.postgres import PostgresStore
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.errors import StoreError
from tests.postgres import server_address


class Hello(Workflow):
    @step
    async def greet(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=f"hello {ev.name}")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_memory_is_a_new_store_each_time():
    first, second = open_store("memory:"), open_store("memory:")
    assert isinstance(first, MemoryStore)
    assert isinstance(second, MemoryStore)
    assert first is not second


def test_a_store_is_itself():
    store = MemoryStore()
    assert open_store(store) is store
    assert Hello(store=store).run_store is store


@pytest.mark.parametrize("name", ["runs.db", Path("runs.db"), "sqlite:///runs.db"])
async def test_a_path_is_a_sqlite_file_below_the_working_directory(name: Any, tmp_path: Path):
    store = open_store(name)
    assert isinstance(store, SQLiteStore)
    assert await Hello(store=store).run(run_id="a", name="Ann") == "hello Ann"
    await store.aclose()
    assert (tmp_path / "runs.db").is_file()


async def test_four_slashes_are_a_path_from_the_root(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    store = open_store(f"sqlite:///{tmp_path / 'elsewhere' / 'runs.db'}")
    assert await Hello(store=store).run(name="Ann") == "hello Ann"
    await store.aclose()
    assert (tmp_path / "elsewhere" / "runs.db").is_file()


async def test_what_one_object_wrote_another_on_the_same_file_reads():
    first = open_store("runs.db")
    await Hello(store=first).run(run_id="a", name="Ann")
    await first.aclose()
    second = open_store("sqlite:///runs.db")
    info = await second.info("a")
    await second.aclose()
    assert info is not None
    assert info.status == "completed"


@pytest.mark.parametrize("name", ["mysql://x", "redis://localhost/0", "sqlite://runs.db", "http://host/runs.db"])
def test_a_kind_of_store_that_there_is_not_is_refused_by_name(name: str, tmp_path: Path):
    with pytest.raises(StoreError, match=rf'store={name!r}: .*"memory:".*"sqlite:///runs\.db".*RunStore'):
        Hello(store=name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a\0b.db", "sqlite:///a\0b.db", Path("a\0b.db")])
def test_a_path_with_a_nul_character_is_refused(name: Any):
    with pytest.raises(StoreError, match="is not the path of a file: take the NUL character out"):
        Hello(store=name)


@pytest.mark.parametrize("wrong", [5, b"runs.db", SQLiteStore, MemoryStore])
def test_what_is_no_store_is_refused(wrong: Any):
    with pytest.raises(StoreError, match=r'store=.*: give the path of a SQLite file, "memory:", or an object'):
        Hello(store=wrong)


@pytest.mark.parametrize("wrong", ["x", None, 0, -1, True])
def test_a_store_in_memory_checks_its_lease(wrong: Any):
    with pytest.raises(StoreError, match=f"lease_seconds={wrong!r}: give a number of seconds above 0"):
        MemoryStore(lease_seconds=wrong)


def test_naming_a_file_does_not_make_it(tmp_path: Path):
    Hello(store="runs.db")
    assert list(tmp_path.iterdir()) == []


def test_workflows_that_name_one_file_share_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = open_store("runs.db")
    assert open_store("./runs.db") is first
    assert open_store(f"sqlite:///{tmp_path / 'runs.db'}") is first
    assert open_store("others.db") is not first


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_an_address_is_a_database_which_all_workflows_share(scheme: str):
    store = open_store(f"{scheme}://ann:secret@db:5433/prod")
    assert isinstance(store, PostgresStore)
    assert store.address == "postgresql://db:5433/prod"
    assert "secret" not in repr(store)
    assert open_store(f"{scheme}://ann:secret@db:5433/prod") is store
    assert open_store(f"{scheme}://ann:secret@db:5433/other") is not store


@pytest.mark.parametrize("wrong", ["runs.db", "mysql://ann:secret@db/x", 5])
def test_a_database_needs_an_address(wrong: Any):
    with pytest.raises(StoreError, match="give one such as postgresql://user@host/database") as raised:
        PostgresStore(wrong)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"schema": "a.b"}, "schema='a.b'"), ({"schema": "x; DROP"}, "schema="), ({"pool": 1}, "pool=1"),
        ({"durability": "disk"}, "durability='disk'"), ({"lease_seconds": 0}, "lease_seconds=0"),
    ],
)  # fmt: skip
def test_a_wrong_option_of_a_database_is_refused(option: dict[str, Any], said: str):
    with pytest.raises(StoreError, match=said):
        PostgresStore("postgresql://db/prod", **option)


async def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    store = PostgresStore("postgresql://db/prod")
    with pytest.raises(StoreError, match=r"pip install 'batonflow\[postgres\]'"):
        await store.info("a")
    await store.aclose()


async def test_a_workflow_with_an_address_keeps_its_runs_there():
    address = server_address()
    store = open_store(address)
    try:
        assert await Hello(store=address).run(run_id="named", name="Ann") == "hello Ann"
        info = await store.info("named")
        assert info is not None
        assert info.status == "completed"
        await store.delete("named")
    finally:
        await store.aclose()


async def test_a_store_that_was_closed_is_opened_anew(tmp_path: Path) -> None:
    first = open_store(tmp_path / "runs.db")
    await first.aclose()
    assert open_store(tmp_path / "runs.db") is not first
