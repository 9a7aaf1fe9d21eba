"""``ctx.ask``: a question to a person, with the type of the answer."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_jsonable_python

from batonflow.values.answers import AnswerType, given_answer
from batonflow.values.problems import in_words
from batonflow.workflow_core.context.collecting import wait_for
from batonflow.workflow_core.context.once import name_of_call
from batonflow.workflow_core.engine.state import WorkItem
from batonflow.workflow_core.events import HumanResponseEvent, InputRequiredEvent
from batonflow.workflow_core.inputs import expect_answer
from batonflow.workflow_core.run import Run

__all__ = ["QuestionEvent", "ask"]


class QuestionEvent(InputRequiredEvent):
    """A question of ``ctx.ask`` to a person.

    Attributes:
        prefix: The text of the question.
        details: The data of a question that is a model.
        choices: The answers to choose from; empty if any answer fits the type.
        problem: The reason why an earlier answer did not fit.
        answer_schema: The JSON schema of the answer.
    """

    prefix: str = ""
    details: dict[str, Any] | None = None
    choices: list[str] = Field(default_factory=list[str])
    problem: str = ""
    answer_schema: dict[str, Any] = Field(default_factory=dict[str, Any])


async def ask(
    run: Run, item: WorkItem, question: Any, answer: Any, choices: Sequence[str], timeout: float | None, key: str
) -> Any:
    """Ask a person; see ``Context.ask``."""
    expected = AnswerType(answer, choices)
    asked = _event(question, expected, list(choices))
    key = name_of_call(item, "ask", key)
    number = 0
    while True:
        number += 1
        name = key if number == 1 else f"{key} ({number})"
        with expect_answer(run, item, name, expected):
            response = await wait_for(run, item, HumanResponseEvent, asked, name, None, timeout)
        fields = {name: response[name] for name in response}
        if set(fields) == {"response"}:
            with suppress(ValidationError):  # request.respond() sends the whole answer in this field
                return expected.value(fields["response"])
        try:
            return expected.value(given_answer(expected.schema, fields))
        except ValidationError as error:  # it was not given to request.respond(), which checks it
            problem = in_words(error, "the answer")
            asked = asked.model_copy(update={"problem": problem})
            run.ending.warn(f"the answer to {item.spec.name} does not fit, and the step asks again: {problem}")


def _event(question: Any, expected: AnswerType, choices: list[str]) -> InputRequiredEvent:
    if isinstance(question, str):
        return QuestionEvent(prefix=question, choices=choices, answer_schema=expected.schema)
    if isinstance(question, InputRequiredEvent):
        return question.model_copy(update={"choices": choices, "answer_schema": expected.schema})
    if isinstance(question, BaseModel):
        details = to_jsonable_python(question.model_dump(mode="json"))
        return QuestionEvent(
            prefix=type(question).__name__, details=details, choices=choices, answer_schema=expected.schema
        )
    raise TypeError(f"ask(): the question is a text or a pydantic model, got {question!r}")
