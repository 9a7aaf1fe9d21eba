"""Which questions of a run stand open, told from its records alone: none of its classes need be there."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pydantic_core import from_json

from batonflow.agents.approvals import ApprovalResponse
from batonflow.cli.telling import wanted
from batonflow.cli.text import summary
from batonflow.durable.replay import records_of
from batonflow.durable.store_protocol import RunStore
from batonflow.durable.trace import plain_event, plain_value
from batonflow.values.names import qualified_name
from batonflow.workflow_core.answer_fields import AnswerFields, needed
from batonflow.workflow_core.events import HumanResponseEvent
from batonflow.workflow_core.inputs import answer_key

__all__ = ["APPROVAL", "Question", "open_questions"]

APPROVAL = qualified_name(ApprovalResponse)
ANY_ANSWER = qualified_name(HumanResponseEvent)


@dataclass(frozen=True)
class Question:
    """An open question of a run.

    Attributes:
        id: Names it within the run, as handlers and servers do.
        name: The same, shorter where there is a shorter one.
        record: Number of the record that asks, 0 when only a snapshot is left of it.
        asked: Class and fields of the question, None when a step only waits.
        awaits: Qualified name of the answer's class.
        requirements: What the answer has to have; None when the records do not say.
        due: When it is too late, in wall-clock seconds.
        writable: Whether an answer can be written without the workflow's own serializer.
        fields: Those of the answer's class, as far as the records say.
        answer_key: Key of its answer in the inbox of the run; empty for questions that are answered in this process.
    """

    id: str
    name: str
    record: int
    asked: tuple[str, Mapping[str, Any]] | None
    awaits: str
    requirements: Mapping[str, Any] | None
    due: float | None = None
    writable: bool = True
    fields: AnswerFields = field(default_factory=dict[str, tuple[str, bool]])
    answer_key: str = ""

    @property
    def is_approval(self) -> bool:
        """Whether a tool call waits for it."""
        return self.awaits == APPROVAL

    @property
    def needs(self) -> str:
        """Tell which fields an answer needs and may have."""
        return "" if self.is_approval else needed(self.fields, self.requirements or {})

    @property
    def in_words(self) -> str:
        """What is asked, in a line."""
        if self.is_approval and self.asked is not None:
            return wanted(self.asked[1])
        answer = summary(self.awaits.rpartition(".")[2], self.requirements)
        return f"waits for {answer}" if self.asked is None else f"{summary(*self.asked)}, answered by {answer}"


@dataclass
class _Open:
    """What the records leave open."""

    # Path and delivery -> key of the wait -> record, earlier attempts, the wait as data.
    waits: dict[tuple[str, int], dict[str, tuple[int, int, Any]]] = field(
        default_factory=dict[tuple[str, int], dict[str, tuple[int, int, Any]]]
    )
    # Questions that steps returned and that no wait belongs to: record, number of the question, path, delivery, event
    # as data.
    loose: list[tuple[int, int, str, int, Any]] = field(default_factory=list[tuple[int, int, str, int, Any]])
    # Numbers of such questions that were answered before the record that asks them.
    answered: set[int] = field(default_factory=set[int])
    # Runs inside this one that a step called: path -> the delivery that did.
    calls: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])

    def forget(self, path: str) -> None:
        """A workflow of the tree is over, and those inside it."""
        self.waits = {place: waits for place, waits in self.waits.items() if not _is_within(place[0], path)}

    def came_in(self, answers: int | None) -> None:
        """An event came from outside; it may say which question it answers."""
        if answers is None:
            del self.loose[:1]
            return
        kept = [one for one in self.loose if one[1] != answers]
        if len(kept) == len(self.loose):
            self.answered.add(answers)
        self.loose = kept

    def asked(self, record: Mapping[str, Any], events: Sequence[Any]) -> None:
        """A step returned events; they are questions if all of them were streamed."""
        places = [seq for seq, _ in record.get("published", ())]
        if len(places) == len(events):
            asked = [(seq + 1, event) for seq, event in zip(places, events, strict=True)]
            self.loose += [
                (record["id"], number, record["path"], record.get("item", 0), event)
                for number, event in asked
                if number not in self.answered
            ]

    def attempt_over(self, path: str, item: int) -> None:
        """An attempt is over, with what it waited for and called."""
        self.waits.pop((path, item), None)
        for inner, caller in list(self.calls.items()):
            if caller == (path, item):
                del self.calls[inner]
                self.forget(inner)


async def open_questions(store: RunStore, run_id: str) -> list[Question]:
    """The questions that the records of a run leave open, in the order in which they were asked."""
    loaded = await store.load(run_id)
    if loaded is None:
        return []
    left = _Open()
    if loaded.snapshot is not None:
        _take_up(left, from_json(loaded.snapshot[1]), "")
    for record in records_of(loaded.commits):
        _add(left, record)
    found = [
        _of_wait(path, item, number, attempt, waiter)
        for (path, item), waits in left.waits.items()
        for number, attempt, waiter in waits.values()
    ]
    # The program may give several waits one id; the number of the delivery tells them apart, as in the server.
    ids = Counter(question.id for question in found)
    places = [place for place, waits in left.waits.items() for _ in waits]
    found = [
        replace(one, id=f"{one.id}#{item}", name=f"{one.name}#{item}") if ids[one.id] > 1 else one
        for one, (_, item) in zip(found, places, strict=True)
    ]
    found += [_loose(*one) for one in left.loose]
    return sorted(found, key=lambda question: question.record)


def _take_up(left: _Open, payload: Mapping[str, Any], path: str) -> None:
    """What a snapshot leaves open."""
    for worker in payload.get("workers", {}).values():
        attempts = {one.get("work_item_id"): one.get("attempts", 0) for one in worker.get("in_progress", ())}
        for waiter in worker.get("collected_waiters", ()):
            name = waiter["work_item_id"]
            item = int(str(name).rpartition("_")[2])
            left.waits.setdefault((path, item), {})[waiter["key"]] = 0, attempts.get(name, 0), waiter
    for question in payload.get("questions", ()):
        if not any(place == (question["path"], question["cause"]) for place in left.waits):
            left.loose.append((0, question["number"], question["path"], question["cause"], question["event"]))
    for child in payload.get("children", {}).get("runs", ()):
        if child.get("call") is not None:
            left.calls[child["path"]] = path, child["call"][0]
        _take_up(left, child["payload"], child["path"])


def _is_within(path: str, around: str) -> bool:
    return not around or path == around or path.startswith(f"{around}/")


def _add(left: _Open, record: Mapping[str, Any]) -> None:
    kind, path, item = record["kind"], record["path"], record.get("item", 0)
    if kind == "restored":
        _take_up(left, record["snapshot"], path)
    elif kind == "started":
        child = record.get("child")
        if child is not None and child.get("call") is not None:
            left.calls[path] = (path.rpartition("/")[0], child["call"][0])
    elif kind == "input":
        left.came_in(record.get("answers"))
    elif kind == "answered":
        left.waits.get((path, item), {}).pop(record["key"], None)
    elif kind == "ended":
        left.forget(path)
        if not path:
            left.loose.clear()
    elif kind == "segment":
        waits = left.waits.setdefault((path, item), {})
        for key in record.get("gave_up", ()):
            waits.pop(key, None)
        outcome, *details = record["outcome"]
        if outcome == "waiting":
            # A run that is taken up waits again; the question is the same one.
            first = waits.get(details[0]["key"], (record["id"],))[0]
            waits[details[0]["key"]] = first, record.get("attempt", 0), details[0]
        elif outcome in {"returned", "failed"}:
            left.attempt_over(path, item)
        if outcome == "returned" and details:
            left.asked(record, details[0])


def _of_wait(path: str, item: int, record: int, attempt: int, waiter: Mapping[str, Any]) -> Question:
    key, asked = str(waiter["key"]), waiter.get("question")
    number, _, cls = key.partition(":")
    own = waiter.get("waiter_id") or f"waiter_{cls}_{item}_{number}"
    whole = f"{path}:{own}" if path else own
    known, requirements = _values(waiter["requirements"])
    fields = cast("Mapping[str, Any]", requirements) if isinstance(requirements, Mapping) else dict[str, Any]()
    return Question(
        id=whole,
        name=str(fields.get("id", whole)) if waiter["waiting_for_event"] == APPROVAL else whole,
        record=record,
        asked=None if asked is None else _event(asked),
        awaits=str(waiter["waiting_for_event"]),
        requirements=fields if known else None,
        due=waiter.get("due"),
        writable=_is_plain(asked),
        fields={name: (kind, is_needed) for name, (kind, is_needed) in waiter.get("fields", {}).items()},
        answer_key=answer_key(path, item, wait=key, attempt=attempt),
    )


def _loose(record: int, number: int, path: str, item: int, event: Any) -> Question:
    own = f"question_{number}"
    name = f"{path}:{own}" if path else own
    key = answer_key(path, item, question=number)
    return Question(name, name, record, _event(event), ANY_ANSWER, {}, writable=_is_plain(event), answer_key=key)


def _is_plain(data: Any) -> bool:
    """Whether an event is written in words that an answer may have too."""
    if not isinstance(data, str):
        return True
    try:
        return isinstance(from_json(data), dict)
    except ValueError:
        return False


def _event(data: Any) -> tuple[str, Mapping[str, Any]]:
    """Class name and fields of an event in a record."""
    name, value = plain_event(data)
    # A serializer of the workflow's own may have written it, or a snapshot have nothing that can be read.
    return (name.rpartition(".")[2], _fields(value)) if name else ("question", {})


def _fields(value: Any) -> Mapping[str, Any]:
    """The fields of an event, those that its class does not declare among the others."""
    fields = dict(cast("Mapping[str, Any]", value))
    others = cast("Mapping[str, Any]", fields.pop("_data", {}))
    return {**fields, **others}


def _values(data: Any) -> tuple[bool, Any]:
    """Whether requirements are known, and what they are."""
    if data is None:  # there are none
        return True, {}
    if isinstance(data, str):
        value = plain_value(data)
        return isinstance(value, dict), value
    return True, data[-1]
