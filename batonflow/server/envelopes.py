"""Events on their way out: as envelopes, from runs in memory and from records."""

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from pydantic_core import to_jsonable_python

from batonflow.durable.codec import Codec
from batonflow.durable.streamed import said_up_to
from batonflow.durable.trace import plain_event
from batonflow.values.names import qualified_name
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.events import Event, InputRequiredEvent

__all__ = ["END", "Streamed", "chain", "envelope", "known_as", "recorded_envelope", "recorded_event", "streamed_in"]


def chain(cls: type[Event]) -> list[str] | None:
    """The names of the event classes above one, without ``Event``; None when there are none."""
    names: list[str] = []
    for base in cls.__mro__[1:]:
        if base is Event:
            break
        if issubclass(base, Event):
            names.append(base.__name__)
    return names or None


# Where the clients that people have import built-in events from.
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
    """Module and name of a class, for a built-in event where clients of LlamaIndex find theirs."""
    return _KNOWN_AS.get(name, name)


def envelope(event: Event, **place: Any) -> dict[str, Any]:
    """An event as readers get it.

    Args:
        event: The event.
        place: What else is known: ``seq``, ``ts``, ``step``, ``path``, ``cause``, ``commit``.
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
    for dumped in (lambda: event, event.model_dump):  # the class may have its own way of writing JSON
        try:
            value = to_jsonable_python(dumped(), inf_nan_mode="null", serialize_unknown=True, bytes_mode="base64")
            return cast("dict[str, Any]", value)
        except Exception:  # noqa: BLE001, S112 - serializers of the program's own classes may raise anything
            continue
    # The reader still learns that there was an event.
    return {"$unreadable": repr(type(event))}


def recorded_event(data: Any, codec: Codec) -> Event | None:
    """An event of a record; None when its class is not loaded, or has changed."""
    try:
        event = codec.read(data)
    except StoreError:
        return None
    return event if isinstance(event, Event) else None


def recorded_envelope(data: Any, codec: Codec, **place: Any) -> dict[str, Any]:
    """An event of a record as readers get it; its bare fields when its class is not loaded.

    Args:
        data: The event in the record.
        codec: Of the workflow.
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
    """An event of a run's stream in a record, with its place.

    Attributes:
        seq: Place of the event, of one that was put together the last one.
        ts: When it was written.
        step: Who wrote it.
        path: Where.
        cause: On which delivery.
        commit: In which commit it is.
        data: The event.
        ends: Whether it is the end of the run.
        first: Place of its first piece.
        sizes: How much each of its pieces said.
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
        """The event, without the pieces up to a place; None when its class is not loaded."""
        event: Any = recorded_event(self.data, codec)
        if event is None or self.sizes is None or not self.first <= after < self.seq or not hasattr(event, "without"):
            return event
        return event.without(*said_up_to(self.sizes, after - self.first, len(event.sizes())))


def streamed_in(record: dict[str, Any], codec: Codec) -> Iterator[Streamed]:
    """What a record says that was streamed; the end of the run itself is streamed last.

    Args:
        record: As ``replay.records_of`` gives it.
        codec: Of the workflow.
    """
    step, path, cause, commit = record.get("step", ""), record["path"], record.get("item") or 0, record["commit"]
    for _, data, first, ts, *more in record.get("streamed", ()):
        if data is not None:  # else the workflow does not keep what it streams
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
"""Place of the end of a run whose record does not tell it."""


def _asks(data: Any, codec: Codec) -> bool:
    return isinstance(recorded_event(data, codec), InputRequiredEvent)
