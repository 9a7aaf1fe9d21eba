"""Events as envelopes, from runs in memory and from records."""

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from pydantic_core import to_jsonable_python

from batonflow.durable.codec import Codec
from batonflow.durable.streamed import after_pieces
from batonflow.durable.trace import plain_event
from batonflow.values.names import qualified_name
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.events import Event, InputRequiredEvent

__all__ = ["END", "Streamed", "chain", "envelope", "known_as", "recorded_envelope", "recorded_event", "streamed_in"]


def chain(cls: type[Event]) -> list[str] | None:
    """Return the names of the event classes above one, without ``Event``, or None."""
    names: list[str] = []
    for base in cls.__mro__[1:]:
        if base is Event:
            break
        if issubclass(base, Event):
            names.append(base.__name__)
    return names or None


# The paths under which existing clients import built-in events.
_CORE = (
    "CollectionReleaseEvent Event HumanResponseEvent IdleReleasedEvent InputRequiredEvent InternalDispatchEvent "
    "StartEvent StepFailedEvent StepStateChanged StopEvent UnhandledEvent WorkflowCancelledEvent WorkflowFailedEvent "
    "WorkflowIdleEvent WorkflowTimedOutEvent"
)
_OF_AGENTS = (
    "AgentInput AgentOutput AgentSetup AgentStream AgentStreamStructuredOutput AgentWorkflowStartEvent ToolCall "
    "ToolCallResult"
)
_KNOWN_AS = {
    **{f"batonflow.workflow_core.events.{name}": f"workflows.events.{name}" for name in _CORE.split()},
    **{
        f"batonflow.agents.events.{name}": f"llama_index.core.agent.workflow.workflow_events.{name}"
        for name in _OF_AGENTS.split()
    },
}


def known_as(name: str) -> str:
    """Return module and name of a class; for a built-in event LlamaIndex's path."""
    return _KNOWN_AS.get(name, name)


def envelope(event: Event, **place: Any) -> dict[str, Any]:
    """Return an event in the form for readers.

    Args:
        event: The event.
        place: Further fields: ``seq``, ``ts``, ``step``, ``path``, ``cause``, ``commit``.
    """
    cls = type(event)
    return {
        "value": _fields(event),
        "qualified_name": known_as(qualified_name(cls)),
        "type": cls.__name__,
        "types": chain(cls),
        **_PLACE,
        **place,
    }


_PLACE: dict[str, Any] = {"seq": None, "ts": None, "step": "", "path": "", "cause": None, "commit": None}


def _fields(event: Event) -> dict[str, Any]:
    for dumped in (lambda: event, event.model_dump):  # the class may have its own JSON serializer
        try:
            value = to_jsonable_python(dumped(), inf_nan_mode="null", serialize_unknown=True, bytes_mode="base64")
            return cast("dict[str, Any]", value)
        except Exception:  # noqa: BLE001, S112 - serializers of user classes may raise anything
            continue
    # The reader still learns of the event.
    return {"$unreadable": repr(type(event))}


def recorded_event(data: Any, codec: Codec) -> Event | None:
    """Return an event of a record, or None if its class is not loaded or has changed."""
    try:
        event = codec.read(data)
    except StoreError:
        return None
    return event if isinstance(event, Event) else None


def recorded_envelope(data: Any, codec: Codec, **place: Any) -> dict[str, Any]:
    """Return an event of a record in the form for readers; without its class only its bare fields.

    Args:
        data: The event in the record.
        codec: The codec of the workflow.
        place: As for ``envelope``.
    """
    event = recorded_event(data, codec)
    if event is not None:
        return envelope(event, **place)
    name, value = plain_event(data)
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {"value": value}
    told = {"value": fields, "qualified_name": known_as(name), "type": name.rpartition(".")[2], "types": None}
    return {**told, **_PLACE, **place}


class Streamed(NamedTuple):
    """A streamed event in a record, with its place.

    Attributes:
        seq: Place of the event; for a merged event the place of its last piece.
        ts: Wall-clock seconds of its creation.
        step: The step that wrote it.
        path: The workflow in the tree.
        cause: The delivery that wrote it.
        commit: Number of its commit.
        data: The event.
        ends: True for the end of the run.
        first: Place of its first piece.
        sizes: Length of each piece.
    """

    seq: int
    ts: float
    step: str
    path: str
    cause: int
    commit: int
    data: Any
    ends: bool = False
    first: int = -1
    sizes: list[int] | None = None

    def event(self, codec: Codec, after: int) -> Event | None:
        """Return the event without the pieces up to a place, or None if its class is not loaded."""
        return after_pieces(recorded_event(self.data, codec), self.sizes, after - self.first)


def streamed_in(record: dict[str, Any], codec: Codec) -> Iterator[Streamed]:
    """Yield the streamed events of a record; the end of the run itself is the last one.

    Args:
        record: A record of ``replay.records_of``.
        codec: The codec of the workflow.
    """
    step, path, cause, commit = record.get("step", ""), record["path"], record.get("item") or 0, record["commit"]
    for _, data, first, ts, *more in record.get("streamed", ()):
        if data is not None:  # else the workflow does not store its stream
            last, sizes = more[0] if more else first, more[1] if len(more) > 1 else None
            yield Streamed(last, ts, step, path, cause, commit, data, first=first, sizes=sizes)
    if "published" in record:
        returned, places = record["outcome"][1], record["published"]
        asked = returned if len(returned) == len(places) else [data for data in returned if _asks(data, codec)]
        for (seq, ts), data in zip(places, asked, strict=False):
            yield Streamed(seq, ts, step, path, cause, commit, data)
    if record["kind"] == "ended" and not path:
        yield Streamed(record.get("seq", END), record["at"], "", "", 0, commit, record["event"], ends=True)


END = 2**53 - 1
"""Place of a run's end if its record does not contain it."""


def _asks(data: Any, codec: Codec) -> bool:
    return isinstance(recorded_event(data, codec), InputRequiredEvent)
