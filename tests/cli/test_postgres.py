"""The commands on runs in PostgreSQL: an address stands wherever a file does."""

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from batonflow.durable.stores.postgres import PostgresStore
from tests.cli.conftest import Cli
from tests.fleet.conftest import database
from tests.postgres import connected, new_schema, server_address, skip_without_driver

__all__ = ["database"]

pytestmark = pytest.mark.external("postgresql")


@pytest.fixture
def address() -> str:
    return server_address()


@pytest.fixture
def run_id(address: str) -> Iterator[str]:
    """The id of a run in tables that other tests use, too."""
    name = new_schema()
    yield name
    asyncio.run(_forget(address, name))


async def _forget(address: str, run_id: str) -> None:
    store = PostgresStore(address)
    await store.delete(run_id, force=True)
    await store.aclose()


def test_a_run_waits_is_answered_and_goes_on(here: Cli, address: str, run_id: str) -> None:
    store = ["--store", address]
    code, _, _ = here("run", "team.py:team", "Write about tides.", *store, "--run-id", run_id)
    assert code == 3
    code, out, _ = here("runs", *store)
    assert code == 0
    (line,) = [one for one in out.splitlines() if one.startswith(run_id)]
    assert "waiting (1 asked)" in line
    code, out, _ = here("show", run_id, *store)
    assert code == 0
    assert "approve" in out
    assert "postgresql://" in out
    code, _, _ = here("approve", run_id, *store)
    assert code == 0
    code, _, _ = here("resume", "team.py:team", run_id, *store)
    assert code == 0


def test_a_run_is_cancelled_and_replayed(here: Cli, address: str, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATONFLOW_STORE", address)
    assert here("run", "team.py:team", "Write about tides.", "--run-id", run_id)[0] == 3
    assert here("replay", run_id)[0] == 0
    assert here("cancel", run_id)[0] == 0
    assert here("resume", "team.py:team", run_id)[0] == 1


def test_a_database_that_cannot_be_reached_is_named_without_its_password(here: Cli) -> None:
    skip_without_driver()
    code, _, err = here("runs", "--store", "postgresql://ann:secret@127.0.0.1:1/prod")
    assert code != 0
    assert "The store postgresql://127.0.0.1:1/prod cannot be reached: Connection refused" in err
    assert "secret" not in err


def test_an_address_of_another_kind_is_refused_without_its_password(here: Cli) -> None:
    for address in ("postgresql+x://ann:secret@db/prod", "mysql://ann:secret@db/prod", "host=db password=secret"):
        for command in (("runs",), ("run", "team.py:team", "Write about tides.")):
            code, _, err = here(*command, "--store", address)
            assert code != 0
            assert "there are stores" in err or "is not the address" in err
            assert "secret" not in err


def test_a_check_creates_no_tables_and_says_that_they_are_missing(here: Cli, database: str) -> None:
    code, out, err = here("store", "check", "--store", database)
    assert (code, out, "does not have its tables: run `batonflow store init`" in err) == (1, "", True)
    with connected(database) as connection:
        assert not connection.execute("SELECT FROM pg_namespace WHERE nspname = 'batonflow'").rowcount
    assert here("store", "init", "--store", database)[0] == 0
    code, out, _ = here("store", "check", "--store", database)
    assert (code, "can be used: 0 unfinished runs, 0 workers" in out) == (0, True)


def test_a_user_without_rights_reads_the_same_from_every_command(here: Cli, database: str) -> None:
    assert here("store", "init", "--store", database)[0] == 0
    guest = new_schema()
    with connected(database) as connection:
        connection.execute(f"CREATE ROLE {guest} LOGIN PASSWORD 'secret'".encode())
        address = urlsplit(database)._replace(netloc=f"{guest}:secret@{urlsplit(database).netloc.rpartition('@')[2]}")
        said = {
            here(*words, "--store", address.geturl())[2].partition(": ")[2]
            for words in (("store", "check"), ("runs",), ("worker", "flows.py:greet"))
        }
        connection.execute(f"DROP ROLE {guest}".encode())
    assert len(said) == 1, said
    assert "make the schema batonflow and give its user all rights on it" in said.pop()
