"""Questions of a run to people, as requests with the type of the answer."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from batonflow import values
from batonflow.instrumentation.logs import logger_named
from batonflow.values.problems import in_words
from batonflow.workflow_core.engine.state import TO_STEPS, Question, Waiter, WorkItem, address_of
from batonflow.workflow_core.errors import InputClosedError, InputResponseError
from batonflow.workflow_core.events import Event, HumanResponseEvent, check_public
from batonflow.workflow_core.questions import OpenQuestions, QuestionFeed
from batonflow.workflow_core.run import Run

__all__ = [
    "InputReader",
    "InputRequest",
    "answer_key",
    "close_answered",
    "expect_answer",
    "open_requests",
    "requests_from_any_thread",
    "say_when_asked",
]

logger = logger_named("batonflow.workflow")

SECONDS_TO_ANSWER = 1.0
"""After so long a question is said to wait for a person."""

_ANSWER_TO = "answer to "


def answer_key(path: str, delivery: int, *, wait: str = "", attempt: int = 0, question: int = 0) -> str:
    """Return the key for answers to a question in the inbox of a run. The first answer with the key counts.

    Args:
        path: The place in the tree of the workflow that asks; empty for the run itself.
        delivery: The number of the delivery that asks.
        wait: The key of the wait; empty for a question without a wait.
        attempt: The number of earlier failures of the delivery, for a question with a wait.
        question: The number of a question without a wait.

    Example:
        >>> await flow.send_to_run("tides-1", event, key=answer_key("", 3, wait="approval"))
    """
    named = f"{path}:{delivery} {f'{attempt} {wait}' if wait else question}"
    # Users choose the names of waits, which may be longer than keys.
    return f"{_ANSWER_TO}{hashlib.sha256(named.encode(errors='surrogatepass')).hexdigest()[:32]}"


_EXPECTED: WeakKeyDictionary[Run, dict[tuple[int, str], Any]] = WeakKeyDictionary()
"""The types of the answers that ``ctx.ask`` waits for, by delivery and wait."""


class InputRequest:
    """An open question of a run, which accepts one answer.

    Attributes:
        event: The question.

    Example:
        >>> async for request in handler.inputs():
        ...     request.respond(input(request.event.prefix))
    """

    __slots__ = ("_question", "_run", "event")

    def __init__(self, run: Run, question: Question) -> None:
        self.event = question.event
        self._question = question
        self._run = run

    def __repr__(self) -> str:
        return f"InputRequest({self.event!r}, id={self.id!r})"

    @property
    def id(self) -> str:
        """The id of the request within its run; it stays the same after a restore.

        If the program gave the same id to several open waits, the number of the delivery is appended.
        """
        return self._id(with_delivery=self._run.root.questions.shares_id(self._run, self._question))

    @property
    def long_id(self) -> str:
        """The id with the number of the delivery, unique among the open requests of the run."""
        return self._id(with_delivery=True)

    def _id(self, *, with_delivery: bool) -> str:
        waiter = self._question.waiter
        own = waiter.id if waiter is not None else f"question_{self._question.number}"
        if waiter is not None and with_delivery:
            own = f"{own}#{waiter.item.id}"
        return f"{self.path}:{own}" if self.path else own

    def _look_again(self) -> None:
        """Look up the wait again: after a release from memory it is another object."""
        if not self._question.answered:
            self._run, self._question = self._run.root.questions.present(self._run, self._question)

    @property
    def path(self) -> str:
        """The place in the tree of the workflow that asks; empty for the run itself."""
        return self._question.path if self._question.waiter is None else self._run.path

    @property
    def response_type(self) -> type[Event]:
        """The class of the answer."""
        return self._awaited()[1] or HumanResponseEvent

    @property
    def filled(self) -> dict[str, Any]:
        """The fields of the answer that are already set."""
        return dict(self._awaited()[2])

    @property
    def is_open(self) -> bool:
        """Tell whether an answer is still awaited."""
        self._look_again()
        return self._run.root.questions.place(self._question, self._run) is not None

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the answer, without the fields that are already set."""
        asked = self._asked_schema
        return (
            values.request_schema(asked)
            if asked is not None
            else values.schema_without(self.response_type, self.filled)
        )

    @property
    def _asked_schema(self) -> dict[str, Any] | None:
        """The JSON schema of the answer to a question of ``ctx.ask``."""
        return None if self._question.waiter is None else getattr(self.event, "answer_schema", None)

    @property
    def answer_key(self) -> str:
        """The key of the answer in the inbox of the run."""
        waiter = self._question.waiter
        return _key_without_wait(self._question) if waiter is None else _key_of(waiter, self._run.path)

    def respond(self, /, response: Any = None, **fields: Any) -> None:
        """Answer the question; the requirements of the waiting step are set automatically.

        Args:
            response: The field ``response`` of the answer.
            fields: Its other fields.

        Raises:
            InputClosedError: The question was answered before, or its answer is no longer awaited.
            InputResponseError: The fields do not fit the awaited event.
        """
        given = fields if response is None else {**fields, "response": response}
        self._run.on_loop(lambda: self._respond(given))

    def answer(self, /, **fields: Any) -> Event:
        """Return the answer as an event, to send it in another way, for example with ``workflow.send_to_run``.

        Args:
            fields: The fields that are not already set.

        Raises:
            InputResponseError: The fields do not fit the awaited event.
        """
        run, cls, filled = self._awaited()
        if cls is None:
            names = ", ".join(sorted(cls.__name__ for cls in run.state.table.human_events))
            raise InputResponseError(
                f"This {type(self.event).__name__} may be answered by any of {names}: send the one you mean with "
                "handler.ctx.send_event(...)"
            )
        event = _built(cls, filled, self._checked(fields))
        waiter = self._question.waiter
        if waiter is not None and not waiter.wants(event):
            raise InputResponseError(
                f"The {cls.__name__} does not meet the requirements of step {waiter.item.spec.name}: {filled}"
            )
        return event

    def _checked(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of an answer; the answer to ``ctx.ask`` as its type has it."""
        schema, waiter = self._asked_schema, self._question.waiter
        if schema is None or waiter is None:
            return fields
        given = values.given_answer(schema, fields)
        expected = _EXPECTED.get(self._run, {}).get((waiter.item.id, waiter.key))
        try:
            if expected is not None:
                return {"response": expected.as_data(given)}
            # The step is not at its question yet; it checks the answer again.
            values.AnswerType(values.type_of_schema(schema)).value(given)
        except ValidationError as error:
            text = f"The answer to this {type(self.event).__name__} does not fit: {in_words(error, 'the answer')}"
            raise InputResponseError(text) from error
        return {"response": given}

    def _respond(self, given: dict[str, Any]) -> None:
        name = type(self.event).__name__
        if self._question.answered:
            raise InputClosedError(f"This {name} ({self.id}) was answered before; an answer is used once")
        if not self.is_open:
            raise InputClosedError(
                f"This {name} ({self.id}) is not open any more: it was answered otherwise, its time was up, or its "
                "step or run is over"
            )
        run, event = self._awaited()[0], self.answer(**given)
        run.root.questions.close(self._question, event)
        waiter = self._question.waiter
        run.answer(event, TO_STEPS if waiter is None else address_of(waiter))

    def _awaited(self) -> tuple[Run, type[Event] | None, dict[str, Any]]:
        """Return the accepting run, the class of the answer (None if several fit), and the set fields."""
        waiter = self._question.waiter
        if waiter is not None:
            return self._run, waiter.event_type, waiter.requirements
        taking = self._run.root.questions.taking(self._question)
        if taking is None:
            return self._run, HumanResponseEvent, {}
        run, classes = taking
        own = [cls for cls in classes if cls is not HumanResponseEvent]
        if len(own) == 1:
            return run, own[0], {}
        return run, HumanResponseEvent if HumanResponseEvent in classes else None, {}


@contextmanager
def expect_answer(run: Run, item: WorkItem, key: str, expected: Any) -> Generator[None]:
    """Check the answers to a question of ``ctx.ask`` by their type, as long as the step waits."""
    types = _EXPECTED.setdefault(run, {})
    types[item.id, key] = expected
    try:
        yield
    finally:
        types.pop((item.id, key), None)


class InputReader(AsyncIterator[InputRequest]):
    """An iterator over the questions of a run. It gives the open ones, then new ones until the end, each once."""

    __slots__ = ("_feed", "_run", "_seen")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._seen: set[Question] = set()
        self._feed: QuestionFeed | None = None

    def __aiter__(self) -> "InputReader":
        return self

    async def __anext__(self) -> InputRequest:
        questions: OpenQuestions = self._run.root.questions
        if self._feed is None:
            self._feed = questions.reader(self._run)
        while True:
            questions.look()
            while self._feed.coming:
                question = self._feed.coming.popleft()
                run = None if question in self._seen else questions.place(question, self._run)
                if run is not None:
                    self._seen.add(question)
                    return InputRequest(run, question)
            if self._run.stream.ended:
                raise StopAsyncIteration
            await self._run.stream.more()


async def say_when_asked(handler: Any) -> None:
    """Log a warning if a question stays open in a run whose handler cannot answer it."""
    async for request in handler.inputs():
        await asyncio.sleep(SECONDS_TO_ANSWER)
        if request.is_open:
            logger.warning(
                "Run %s waits for a person to answer its %s, and run_sync() returns no handler for that: use run() "
                "and inputs() of its handler or, for agents, approvals(); or answer from another place",
                handler.run_id,
                type(request.event).__name__,
            )
            return


def open_requests(run: Run) -> list[InputRequest]:
    """Return the open questions of a run and of its child runs."""
    return [InputRequest(asks, question) for asks, question in run.root.questions.open_within(run)]


def requests_from_any_thread(run: Run) -> list[InputRequest]:
    """Return the open questions of a run, asked on the loop of the run."""
    return run.on_loop(lambda: open_requests(run))


def is_answer(key: str) -> bool:
    """Tell whether the key of an event in the inbox is that of an answer."""
    return key.startswith(_ANSWER_TO)


def asker_of(run: Run, key: str) -> "tuple[Run, str] | None":
    """Return the run that takes the answer with this key, and the address there.

    Returns:
        The run and the address; None if the run is not in memory or the question is closed.
    """
    if not is_answer(key):
        return None
    for question in run.questions.without_wait():
        if key == _key_without_wait(question):
            taker = run.questions.taker_here(question)
            return None if taker is None else (taker, TO_STEPS)
    asking = ((inner, address_of(waiter)) for inner, waiter in run.waits() if key == _key_of(waiter, inner.path))
    return next(asking, None)


def close_answered(run: Run, key: str, event: Event) -> None:
    """Close the question without a wait that an event of the inbox answers.

    A late answer does not close a question, because it must not count for another question.
    """
    if not is_answer(key):
        return
    for question in run.questions.without_wait():
        if key == _key_without_wait(question):
            run.questions.close(question, event)
            return
    if not any(key == _key_of(waiter, inner.path) for inner, waiter in run.waits()):
        run.questions.closes_nothing(event)


def _key_without_wait(question: Question) -> str:
    return answer_key(question.path, question.cause, question=question.number)


def _key_of(waiter: Waiter, path: str) -> str:
    item = waiter.item
    attempt = item.failures.count if item.failures is not None else 0
    return answer_key(path, item.id, wait=waiter.key, attempt=attempt)


def _built(cls: type[Event], filled: dict[str, Any], given: dict[str, Any]) -> Event:
    for name in filled.keys() & given.keys():
        if given[name] != filled[name]:
            raise InputResponseError(
                f"{cls.__name__}: {name} must be {filled[name]!r}, as the waiting step requires; leave it out"
            )
    try:
        check_public(cls, given)
        return cls(**{**filled, **given})
    except ValidationError as error:
        problems = in_words(error, "the answer")
        raise InputResponseError(f"{cls.__name__} cannot be made of this answer: {problems}") from error
