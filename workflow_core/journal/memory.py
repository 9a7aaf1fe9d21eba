"""A store that keeps the records of runs in this process, as bytes; ``store="memory:"``."""

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_json

from batonflow.workflow_core.errors import RunInputMismatchError, StoreError
from batonflow.workflow_core.events import Event, StopEvent
from batonflow.workflow_core.journal.base import Record
from batonflow.workflow_core.journal.recorder import Recorder
from batonflow.workflow_core.types import dump_exception

if TYPE_CHECKING:
    from batonflow.workflow_core.engine.runner import Run

__all__ = ["MemoryStore", "open_store"]


class MemoryStore:
    """Keeps each run's records, encoded when they are committed, so that later changes of a value do not reach them.

    Example:
        >>> flow = Hello(store="memory:")
        >>> flow.run_sync(run_id="a", name="Ann")
        >>> [record["kind"] for record in flow.run_store.history("a")]
        ['started', 'segment', 'ended']
    """

    def __init__(self) -> None:
        self._transactions: list[bytes] = []
        self._inputs: dict[str, bytes] = {}
        self._runs: dict[str, Run] = {}

    def commit(self, records: Sequence[Record]) -> None:
        """Keep records that belong together."""
        try:
            written = to_json([_plain(record) for record in records], fallback=_encode, inf_nan_mode="constants")
        except PydanticSerializationError as error:
            raise _unwritable(records, error) from error
        for record in records:
            if record.kind == "started" and not record.path and record.consumed is not None:
                self._inputs[record.run_id] = _input(record.consumed)
        self._transactions.append(written)

    def history(self, run_id: str) -> list[dict[str, Any]]:
        """The records of a run in the order of their commits; each says with ``transaction`` which belong together."""
        return [
            {**record, "transaction": number}
            for number, transaction in enumerate(self._transactions)
            for record in from_json(transaction)
            if record["run_id"] == run_id
        ]

    def opened(self, run: "Run") -> Recorder:
        """A run of this process writes here, through the recorder that this returns."""
        self._runs[run.state.run_id] = run
        return Recorder(self, run.state.run_id, run.path)

    def known_run(self, run_id: str, event: Event) -> "Run | None":
        """The live or finished run of this id.

        Raises:
            RunInputMismatchError: It was started with other input.
        """
        run = self._runs.get(run_id)
        known = self._inputs.get(run_id)
        if run is None or (known is None and run.ending.done):
            return None  # never begun, as its start could not be recorded
        if known is not None and known != _input(event):
            raise RunInputMismatchError(
                f"Run {run_id!r} was started with other input: {known.decode()[:200]}. Use the same input, or another "
                "run_id"
            )
        return run


def _input(event: Event) -> bytes:
    return to_json(event, fallback=_encode)


def _plain(record: Record) -> dict[str, Any]:
    """A record as data; of events the class name and the values, without a detour through their dump."""
    return {
        "kind": record.kind,
        "run_id": record.run_id,
        "path": record.path,
        "step": record.step,
        "item": record.item,
        "attempt": record.attempt,
        "consumed": _value(record.consumed),
        "writes": record.writes and [(number, path, _value(value)) for number, path, value in record.writes],
        "sends": record.sends and [(number, _value(event), target) for number, event, target in record.sends],
        "streamed": record.streamed and [(number, _value(event)) for number, event in record.streamed],
        "outcome": (record.outcome[0], _value(record.outcome[1])),
    }


def _value(value: Any) -> Any:
    if isinstance(value, Event):
        extra = value.__pydantic_extra__
        values = {**value.__dict__, **extra} if extra else value.__dict__
        if isinstance(value, StopEvent):
            values = {**values, "result": value.result}
        cls = type(value)
        return {"type": f"{cls.__module__}.{cls.__qualname__}", "values": values}
    if isinstance(value, BaseException):
        return dump_exception(value)
    if isinstance(value, list | tuple):
        return [_value(inner) for inner in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _encode(value: Any) -> Any:
    """What pydantic's encoder does not know: exceptions by type and text; anything else is refused by name."""
    if isinstance(value, BaseException):
        return dump_exception(value)
    if isinstance(value, BaseModel):
        return value.__dict__
    raise StoreError(
        f"A {type(value).__module__}.{type(value).__qualname__} cannot be recorded: keep it out of events and state, "
        "or make it "
        "a pydantic model, a dataclass or plain data"
    )


def _unwritable(records: Sequence[Record], error: PydanticSerializationError) -> StoreError:
    """What to say of records that cannot be encoded: the first state key, event or result at fault."""
    for record in records:
        named = [(f"State key {path!r}", value) for _, path, value in record.writes]
        named += [(f"Sent event {type(event).__name__}", event) for _, event, _ in record.sends]
        named += [(f"Streamed event {type(event).__name__}", event) for _, event in record.streamed]
        named += [("The start event", record.consumed), ("The result", record.outcome[1])]
        for name, value in named:
            try:
                to_json(_value(value), fallback=_encode)
            except PydanticSerializationError as inner:
                where = f" of step {record.step}" if record.step else ""
                return StoreError(f"{name}{where}: {str(inner).partition('StoreError: ')[2] or inner}")
    return StoreError(str(error))


def open_store(store: "str | PathLike[str] | MemoryStore | None") -> MemoryStore | None:
    """The store that ``Workflow(store=...)`` names.

    Raises:
        StoreError: The value names a kind of store that this version does not have.
    """
    if store is None or isinstance(store, MemoryStore):
        return store
    if store == "memory:":
        return MemoryStore()
    raise StoreError(
        f'store={str(store)!r}: this version keeps records in memory only, store="memory:"; files and databases come '
        "with a later version"
    )
