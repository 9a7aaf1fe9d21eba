"""What runs write down, as data: read back from a store, or as it was handed over."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

from batonflow.durable.connection import SECONDS_TO_GATHER
from batonflow.durable.store_protocol import CommitDone, Created, Existing, NewRun, RunCommit, RunStore
from batonflow.durable.stores.memory import MemoryStore

__all__ = ["Listener", "Record", "found_in", "history", "numbered", "shown", "written"]

Record = dict[str, Any]


def _records(body: bytes) -> list[Record]:
    return from_json(body)["r"]


class Listener(MemoryStore):
    """Keeps the records that it is given, in the groups that belong together."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[list[Record]] = []

    async def create(self, run: NewRun, owner: str, ttl: float) -> Created | Existing:
        created = await super().create(run, owner, ttl)
        if isinstance(created, Created):
            assert run.first is not None
            self.groups.append(_records(run.first))
        return created

    def commit_soon(self, batch: Sequence[RunCommit], done: CommitDone) -> None:
        self.groups += [_records(body) for commit in batch for body in commit.commits]
        super().commit_soon(batch, done)

    def records(self, step: str | None = None) -> list[Record]:
        """All records in their order, or the segments of a step."""
        found = [record for group in self.groups for record in group]
        return [one for one in found if step is None or (one["kind"] == "segment" and one["step"] == step)]

    def segments(self) -> list[list[tuple[str, int, str]]]:
        """Step, attempt and kind of outcome of the segments, group by group."""
        found = [
            [
                (record["step"], record.get("attempt", 0), record["outcome"][0])
                for record in group
                if record["kind"] == "segment"
            ]
            for group in self.groups
        ]
        return [group for group in found if group]

    def steps(self) -> list[list[str]]:
        """The steps of the segments, group by group."""
        return [[step for step, _, _ in group] for group in self.segments()]


async def written() -> None:
    """Wait until what has been committed so far is written."""
    await asyncio.sleep(2 * SECONDS_TO_GATHER)


async def history(store: RunStore | None, run_id: str) -> list[Record]:
    """The records of a run, each with the number of its commit."""
    assert store is not None
    return [{**record, "commit": commit.seq} for commit in await store.read(run_id) for record in _records(commit.body)]


def shown(data: Any) -> tuple[str, Any]:
    """Class and values of an event in a record; the class without module and surroundings."""
    name, values, *_ = data
    return name.rpartition(".")[2], values


def found_in(data: list[Any]) -> Any:
    """A value in a record that is written without its class."""
    [value] = data
    return value


def numbered(changes: Sequence[Any]) -> list[tuple[Any, str, Any]]:
    """Number, path and value of each change of the state in a record."""
    return [(number, path, None if value is None else found_in(value)) for number, path, value in changes]
