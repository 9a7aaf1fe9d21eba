"""``approve`` and ``cancel``: what is put into a run's inbox, whichever process drives it, or none."""

import asyncio
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, cast

from pydantic_core import from_json, to_json

from batonflow.cli.errors import DONE, FAILED, USAGE, CommandError
from batonflow.cli.output import say, say_json
from batonflow.cli.questions import Question, open_questions
from batonflow.cli.stores import opened, store_option, the_run
from batonflow.cli.values import json_object, json_or_text
from batonflow.clock import current_source
from batonflow.durable.store_protocol import Appended, Ended, RunInfo
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.workflow_core.answer_fields import unfit

__all__ = ["approve", "cancel", "how_to_answer", "question_data"]


def approve(given: Namespace) -> int:
    """Answer a question of a run."""
    return asyncio.run(_approve(given))


def cancel(given: Namespace) -> int:
    """Cancel a run."""
    return asyncio.run(_cancel(given))


async def _approve(given: Namespace) -> int:
    async with opened(given, writes=True) as store:
        info = await _not_over(store, given.run)
        question = _chosen(await open_questions(store, given.run), given)
        cls, fields = _answer(question, given)
        loaded = await store.load(given.run)
        sent = [] if loaded is None else [from_json(item.payload) for item in loaded.inbox if item.kind == "event"]
        if any(_fits(one, cls, question) for one in sent):
            raise CommandError(_answered_before(question), FAILED)
        outcome = await store.append(given.run, question.answer_key, to_json([cls, fields, 1]))
        _check(outcome, given.run)
        if isinstance(outcome, Appended) and not outcome.new:
            raise CommandError(_answered_before(question), FAILED)
        said = "denied" if given.deny is not None else "approved" if question.is_approval else "answered"
        if given.json:
            say_json({"run_id": given.run, "request": question.id, "answer": said, "driven": _is_driven(info)})
        else:
            say(f"{said}: {question.in_words}")
            _tell_what_follows(info, store)
    return DONE


async def _cancel(given: Namespace) -> int:
    async with opened(given, writes=True) as store:
        info = await _not_over(store, given.run)
        key = f"cancel {current_source().token(20)}"
        _check(await store.append(given.run, key, given.reason.encode(), "cancel"), given.run)
        if given.json:
            say_json({"run_id": given.run, "status": "sent", "driven": _is_driven(info)})
        else:
            say(f"{given.run} is told to end")
            _tell_what_follows(info, store)
    return DONE


async def _not_over(store: SQLiteStore, run_id: str) -> RunInfo:
    info = await the_run(store, run_id)
    if info.status in {"completed", "failed", "cancelled"}:
        raise CommandError(f"run {run_id} is over ({info.status}): it takes nothing more", FAILED)
    return info


def _check(outcome: object, run_id: str) -> None:
    if outcome is None or isinstance(outcome, Ended):
        raise CommandError(f"run {run_id} has ended meanwhile", FAILED)


def _is_driven(info: RunInfo) -> bool:
    return info.owner is not None and info.owner_alive


def _tell_what_follows(info: RunInfo, store: SQLiteStore) -> None:
    if not _is_driven(info):
        say(f"no process drives it: batonflow resume OBJ {info.run_id} {store_option(store)}")


# --- which question ---------------------------------------------------------------------------------------------------


def _chosen(questions: Sequence[Question], given: Namespace) -> Question:
    if not questions:
        raise CommandError(f"run {given.run} asks nothing now", FAILED)
    if given.request is None:
        if len(questions) == 1:
            return questions[0]
        listed = "; ".join(f"{one.name} ({one.in_words})" for one in questions)
        raise CommandError(f"run {given.run} asks several things, name one: {listed}", USAGE)
    for one in questions:
        if given.request in {one.id, one.name}:
            return one
    names = ", ".join(one.name for one in questions)
    raise CommandError(f"run {given.run} has no open request {given.request!r}; open is {names}", USAGE)


def _answered_before(question: Question) -> str:
    return f"{question.name} was answered before; the run takes the answer when it goes on"


def _fits(data: Any, cls: str, question: Question) -> bool:
    """Whether an event in the inbox answers the question already."""
    if not isinstance(data, list) or len(cast("list[Any]", data)) < 2:
        return False
    name, values = cast("list[Any]", data)[:2]
    required = question.requirements or {}
    if name != cls or not required or not isinstance(values, dict):
        return False
    fields = cast("dict[str, Any]", values)
    return all(fields.get(key) == value for key, value in required.items())


# --- the answer -------------------------------------------------------------------------------------------------------


def _answer(question: Question, given: Namespace) -> tuple[str, dict[str, Any]]:
    """Class and fields of the answer.

    Raises:
        CommandError: The options do not fit the question.
    """
    if not question.writable or question.requirements is None:
        raise CommandError(
            f"{question.name} cannot be answered from here, as the records do not say what it requires in plain words: "
            "answer in the program, with handler.inputs()"
        )
    required = dict(question.requirements)
    if question.is_approval:
        if given.answer is not None:
            raise CommandError(f"{question.name} is an approval: --deny REASON, --arguments JSON, or neither", USAGE)
        arguments = None if given.arguments is None else json_object(given.arguments, "--arguments")
        said = {"approved": given.deny is None, "arguments": arguments, "reason": given.deny or ""}
        return question.awaits, {**required, **said}
    if given.answer is None:
        option = "--deny" if given.deny is not None else "--arguments" if given.arguments is not None else ""
        wrong = f"{option} is for approvals; " if option else ""
        says = f"; it {question.needs}" if question.needs else ""
        raise CommandError(f"{wrong}{question.name} is a question: answer it with --answer JSON{says}", USAGE)
    value = json_or_text(given.answer)
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {"response": value}
    for name in required.keys() & fields.keys():
        if fields[name] != required[name]:
            raise CommandError(f"{name} must be {required[name]!r}, as the waiting step requires; leave it out", USAGE)
    answer = {**required, **fields}
    # Once written, the run alone can drop an answer that does not fit, and ask again.
    if given.type in {None, question.awaits} and (problems := unfit(question.fields, answer)):
        raise CommandError(
            f"the answer does not fit {question.awaits.rpartition('.')[2]}: {'; '.join(problems)}. It {question.needs}",
            USAGE,
        )
    return given.type or question.awaits, answer


def how_to_answer(run_id: str, questions: Sequence[Question], store: str) -> list[str]:
    """The command lines that answer what stands open."""
    lines: list[str] = []
    for question in questions:
        name = f" {_quoted(question.name)}" if len(questions) > 1 else ""
        begin = f"batonflow approve {run_id}{name}"
        if question.is_approval:
            lines += [f"{begin} {store}", f"{begin} --deny REASON {store}"]
        else:
            lines.append(f"{begin} --answer JSON {store}")
            if question.needs:
                lines.append(f"  the JSON {question.needs}")
    return [line.rstrip() for line in lines]


def _quoted(text: str) -> str:
    return f"'{text}'" if " " in text or "<" in text else text


def question_data(question: Question) -> dict[str, Any]:
    """A question for programs."""
    return {
        "id": question.id,
        "kind": "approval" if question.is_approval else "input",
        "question": None if question.asked is None else {"type": question.asked[0], "value": question.asked[1]},
        "answer_type": question.awaits,
        "requirements": question.requirements,
        "fields": {name: {"type": kind or None, "required": must} for name, (kind, must) in question.fields.items()},
        "due": question.due,
    }
