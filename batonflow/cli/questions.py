"""The open questions of a run, read from its records. The classes of the run need not be importable."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pydantic_core import from_json

from batonflow.agents.approvals import ApprovalResponse
from batonflow.cli.output import jsonable
from batonflow.cli.stream_lines import approval_text
from batonflow.cli.text import one_line, summary
from batonflow.durable.parts.references import whole_commits
from batonflow.durable.replay import records_of
from batonflow.durable.store_protocol import RunStore
from batonflow.durable.trace import plain_event, plain_value
from batonflow.values.answer_fields import AnswerFields, answer_fields, needed
from batonflow.values.answers import fields_of_schema
from batonflow.values.names import qualified_name
from batonflow.workflow_core.events import HumanResponseEvent
from batonflow.workflow_core.inputs import InputRequest, answer_key

__all__ = ["APPROVAL", "Question", "how_to_answer", "open_questions", "question_data", "question_of"]

APPROVAL = qualified_name(ApprovalResponse)
ANY_ANSWER = qualified_name(HumanResponseEvent)


@dataclass(frozen=True)
class Question:
    """An open question of a run.

    Attributes:
        id: Unique within the run; the same id as in handlers and servers.
        name: The id, or a shorter form of it.
        record: Number of the record that asks; 0 if only a snapshot has it.
        asked: Class and fields of the question, None when a step only waits.
        awaits: Qualified name of the answer's class.
        requirements: Fields that the answer must have with these values; None if the records do not state them.
        due: Wall-clock seconds of the deadline.
        writable: True if an answer can be written without the serializer of the workflow.
        fields: The fields of the answer's class, as far as the records state them.
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
        """Return True if the question is the approval of a tool call."""
        return self.awaits == APPROVAL

    @property
    def answer_schema(self) -> Mapping[str, Any] | None:
        """Return the JSON schema of the answer to a question of ``ctx.ask``; None for other questions."""
        return None if self.asked is None else self.asked[1].get("answer_schema")

    @property
    def needs(self) -> str:
        """Describe the fields that an answer needs and may have."""
        return "" if self.is_approval else needed(self.fields, self.requirements or {})

    @property
    def in_words(self) -> str:
        """Return the question in one line."""
        if self.is_approval and self.asked is not None:
            return approval_text(self.asked[1])
        if self.asked is not None and self.answer_schema is not None:
            return _asked_in_words(self.asked[1])
        answer = summary(self.awaits.rpartition(".")[2], self.requirements)
        return f"waits for {answer}" if self.asked is None else f"{summary(*self.asked)}, answered by {answer}"


def _asked_in_words(fields: Mapping[str, Any]) -> str:
    """Return a question of ``ctx.ask`` in one line."""
    details, choices = fields.get("details"), fields.get("choices")
    text = one_line(f"{fields.get('prefix', '')}{f' {details}' if details else ''}")
    return f"{text} ({', '.join(map(str, choices))})" if choices else text


@dataclass
class _Open:
    """Waits and questions without an answer, collected from records."""

    # Path and delivery -> key of the wait -> record, earlier attempts, the wait as data.
    waits: dict[tuple[str, int], dict[str, tuple[int, int, Any]]] = field(
        default_factory=dict[tuple[str, int], dict[str, tuple[int, int, Any]]]
    )
    # Questions that steps returned without waiting: record, number of the question, path, delivery, event as data.
    loose: list[tuple[int, int, str, int, Any]] = field(default_factory=list[tuple[int, int, str, int, Any]])
    # Numbers of questions whose answer stands before the record that asks them.
    answered: set[int] = field(default_factory=set[int])
    # Child runs that a step called: path -> the calling delivery.
    calls: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])

    def drop_waits(self, path: str) -> None:
        """Drop the waits of a workflow that has ended, and of its child runs."""
        self.waits = {place: waits for place, waits in self.waits.items() if not _is_within(place[0], path)}

    def close_answered(self, answers: int | None) -> None:
        """Drop the question that an event from outside answers, or the oldest one."""
        if answers is None:
            del self.loose[:1]
            return
        kept = [one for one in self.loose if one[1] != answers]
        if len(kept) == len(self.loose):
            self.answered.add(answers)
        self.loose = kept

    def add_returned(self, record: Mapping[str, Any], events: Sequence[Any]) -> None:
        """Add events that a step returned; they are questions if all of them were streamed."""
        places = [seq for seq, _ in record.get("published", ())]
        if len(places) == len(events):
            asked = [(seq + 1, event) for seq, event in zip(places, events, strict=True)]
            self.loose += [
                (record["id"], number, record["path"], record.get("item", 0), event)
                for number, event in asked
                if number not in self.answered
            ]

    def end_attempt(self, path: str, item: int) -> None:
        """Drop the waits and the child runs of an attempt that has ended."""
        self.waits.pop((path, item), None)
        for inner, caller in list(self.calls.items()):
            if caller == (path, item):
                del self.calls[inner]
                self.drop_waits(inner)


async def open_questions(store: RunStore, run_id: str) -> list[Question]:
    """Return the open questions of a run, in the order in which they were asked."""
    loaded = await store.load(run_id)
    if loaded is None:
        return []
    left = _Open()
    if loaded.snapshot is not None:
        _add_snapshot(left, from_json(loaded.snapshot[1]), "")
    for record in records_of(whole_commits(loaded)):
        _add_record(left, record)
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


def _add_snapshot(left: _Open, payload: Mapping[str, Any], path: str) -> None:
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
        _add_snapshot(left, child["payload"], child["path"])


def _is_within(path: str, around: str) -> bool:
    return not around or path == around or path.startswith(f"{around}/")


def _add_record(left: _Open, record: Mapping[str, Any]) -> None:
    kind, path, item = record["kind"], record["path"], record.get("item", 0)
    if kind == "restored":
        _add_snapshot(left, record["snapshot"], path)
    elif kind == "started":
        child = record.get("child")
        if child is not None and child.get("call") is not None:
            left.calls[path] = (path.rpartition("/")[0], child["call"][0])
    elif kind == "input":
        left.close_answered(record.get("answers"))
    elif kind == "answered":
        left.waits.get((path, item), {}).pop(record["key"], None)
    elif kind == "ended":
        left.drop_waits(path)
        if not path:
            left.loose.clear()
    elif kind == "segment":
        waits = left.waits.setdefault((path, item), {})
        for key in record.get("gave_up", ()):
            waits.pop(key, None)
        outcome, *details = record["outcome"]
        if outcome == "waiting":
            # A resumed run waits again for the answer to the same question.
            first = waits.get(details[0]["key"], (record["id"],))[0]
            waits[details[0]["key"]] = first, record.get("attempt", 0), details[0]
        elif outcome in {"returned", "failed"}:
            left.end_attempt(path, item)
        if outcome == "returned" and details:
            left.add_returned(record, details[0])


def _of_wait(path: str, item: int, record: int, attempt: int, waiter: Mapping[str, Any]) -> Question:
    key, asked = str(waiter["key"]), waiter.get("question")
    number, _, cls = key.partition(":")
    waiter_id = waiter.get("waiter_id") or f"waiter_{cls}_{item}_{number}"
    whole = f"{path}:{waiter_id}" if path else waiter_id
    question = None if asked is None else _class_and_fields(asked)
    schema = None if question is None else question[1].get("answer_schema")
    known, requirements = _values(waiter["requirements"])
    fields = cast("Mapping[str, Any]", requirements) if isinstance(requirements, Mapping) else dict[str, Any]()
    return Question(
        id=whole,
        name=str(fields.get("id", whole)) if waiter["waiting_for_event"] == APPROVAL else whole,
        record=record,
        asked=question,
        awaits=str(waiter["waiting_for_event"]),
        requirements=fields if known else None,
        due=waiter.get("due"),
        writable=_is_plain(asked),
        fields={name: (kind, is_needed) for name, (kind, is_needed) in waiter.get("fields", {}).items()}
        if schema is None
        else fields_of_schema(schema),
        answer_key=answer_key(path, item, wait=key, attempt=attempt),
    )


def _loose(record: int, number: int, path: str, item: int, event: Any) -> Question:
    name = f"{path}:question_{number}" if path else f"question_{number}"
    key = answer_key(path, item, question=number)
    return Question(
        name, name, record, _class_and_fields(event), ANY_ANSWER, {}, writable=_is_plain(event), answer_key=key
    )


def _is_plain(data: Any) -> bool:
    """Return True if an event is plain data, so that an answer can be written the same way."""
    if not isinstance(data, str):
        return True
    try:
        return isinstance(from_json(data), dict)
    except ValueError:
        return False


def _class_and_fields(data: Any) -> tuple[str, Mapping[str, Any]]:
    name, value = plain_event(data)
    # Events from a custom serializer cannot be read here.
    return (name.rpartition(".")[2], _fields(value)) if name else ("question", {})


def _fields(value: Any) -> Mapping[str, Any]:
    """Return the fields of an event, with the undeclared ones on the same level."""
    fields = dict(cast("Mapping[str, Any]", value))
    others = cast("Mapping[str, Any]", fields.pop("_data", {}))
    return {**fields, **others}


def _values(data: Any) -> tuple[bool, Any]:
    if data is None:
        return True, {}
    if isinstance(data, str):
        value = plain_value(data)
        return isinstance(value, dict), value
    return True, data[-1]


# --- questions as output ----------------------------------------------------------------------------------------------


def how_to_answer(run_id: str, questions: Sequence[Question], store: str) -> list[str]:
    """Return the command lines that answer open questions."""
    lines: list[str] = []
    for question in questions:
        name = f" {shlex.quote(question.name)}" if len(questions) > 1 else ""
        begin = f"batonflow approve {run_id}{name}"
        if question.is_approval:
            lines += [f"{begin} {store}", f"{begin} --deny REASON {store}"]
        else:
            lines.append(f"{begin} --answer JSON {store}")
            if question.needs:
                lines.append(f"  the JSON {question.needs}")
    return [line.rstrip() for line in lines]


def question_data(question: Question) -> dict[str, Any]:
    """Return a question as data for ``--json``."""
    return {
        "id": question.id,
        "kind": "approval" if question.is_approval else "input",
        "question": None if question.asked is None else {"type": question.asked[0], "value": question.asked[1]},
        "answer_type": question.awaits,
        "requirements": question.requirements,
        "fields": {name: {"type": kind or None, "required": must} for name, (kind, must) in question.fields.items()},
        "due": question.due,
    }


def question_of(request: InputRequest) -> Question:
    """Convert an open request of a run in this process."""
    filled = cast("dict[str, Any]", jsonable(request.filled))
    awaits, schema = qualified_name(request.response_type), getattr(request.event, "answer_schema", None)
    return Question(
        id=request.id,
        name=str(filled.get("id", request.id)) if awaits == APPROVAL else request.id,
        record=0,
        asked=(type(request.event).__name__, cast("dict[str, Any]", jsonable(request.event))),
        awaits=awaits,
        requirements=filled,
        fields=answer_fields(request.response_type) if schema is None else fields_of_schema(schema),
    )
