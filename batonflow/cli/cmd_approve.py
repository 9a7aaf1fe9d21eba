"""``approve``: put the answer to a question into a run's inbox."""

import asyncio
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from batonflow.cli.errors import DONE, FAILED, USAGE, CommandError
from batonflow.cli.inbox import say_how_it_goes_on, unfinished_run
from batonflow.cli.output import say, say_json
from batonflow.cli.questions import Question, open_questions
from batonflow.cli.stores import opened
from batonflow.cli.values import json_object, json_or_text
from batonflow.durable.cancels import check_appended
from batonflow.values.answer_fields import unfit
from batonflow.values.answers import AnswerType, given_answer, type_of_schema
from batonflow.values.problems import in_words

__all__ = ["approve"]


def approve(given: Namespace) -> int:
    """Answer a question of a run."""
    return asyncio.run(_approve(given))


async def _approve(given: Namespace) -> int:
    async with opened(given, writes=True) as store:
        info = await unfinished_run(store, given.run)
        question = _chosen(await open_questions(store, given.run), given)
        cls, fields = _answer(question, given)
        loaded = await store.load(given.run)
        sent = [] if loaded is None else [from_json(item.payload) for item in loaded.inbox if item.kind == "event"]
        if any(_is_answered_by(one, cls, question) for one in sent):
            raise CommandError(_answered_before(question), FAILED)
        if not check_appended(given.run, await store.append(given.run, question.answer_key, to_json([cls, fields, 1]))):
            raise CommandError(_answered_before(question), FAILED)
        said = "denied" if given.deny is not None else "approved" if question.is_approval else "answered"
        if given.json:
            say_json({"run_id": given.run, "request": question.id, "answer": said, "driven": info.is_driven})
        else:
            say(f"{said}: {question.in_words}")
            if given.arguments is not None:
                say("the tool checks the other arguments when the run continues")
            await say_how_it_goes_on(info, store)
    return DONE


# --- the question -----------------------------------------------------------------------------------------------------


def _chosen(questions: Sequence[Question], given: Namespace) -> Question:
    if not questions:
        raise CommandError(f"run {given.run} has no open question", FAILED)
    if given.request is None:
        if len(questions) == 1:
            return questions[0]
        listed = "; ".join(f"{one.name} ({one.in_words})" for one in questions)
        raise CommandError(f"run {given.run} has several open questions, name one: {listed}", USAGE)
    for one in questions:
        if given.request in {one.id, one.name}:
            return one
    names = ", ".join(one.name for one in questions)
    raise CommandError(f"run {given.run} has no open request {given.request!r}; open is {names}", USAGE)


def _answered_before(question: Question) -> str:
    return f"{question.name} was answered before; the run receives the answer when it continues"


def _is_answered_by(data: Any, cls: str, question: Question) -> bool:
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
    """Return the class and the fields of the answer.

    Raises:
        CommandError: The options do not fit the question.
    """
    if not question.writable or question.requirements is None:
        raise CommandError(
            f"{question.name} cannot be answered from here, because the records do not state its requirements as "
            "plain data: answer in the program, with handler.inputs()"
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
    # Once the answer is in the inbox, only the run can reject it and ask again.
    if given.type in {None, question.awaits} and (problems := unfit(question.fields, answer)):
        raise CommandError(
            f"the answer does not fit {question.awaits.rpartition('.')[2]}: {'; '.join(problems)}. It {question.needs}",
            USAGE,
        )
    if question.answer_schema is not None:
        _check_typed(question.answer_schema, fields)
    return given.type or question.awaits, answer


def _check_typed(schema: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Refuse an answer to ``ctx.ask`` that does not fit its type."""
    try:
        AnswerType(type_of_schema(schema)).value(given_answer(schema, fields))
    except ValidationError as error:
        raise CommandError(f"the answer does not fit: {in_words(error, 'the answer')}", USAGE) from None
