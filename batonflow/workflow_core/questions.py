"""The open questions of a tree of workflows: asked with a wait, streamed, or returned by a step.

A streamed question belongs to the wait that it was streamed for, usually the step's next wait. Otherwise it is open
while a step accepts the answer. The stream is searched for questions only when they are needed, not when an event is
streamed.
"""

from collections import deque
from collections.abc import Container, Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from batonflow.workflow_core.engine.state import Failures, Question, StepState, Waiter, WorkItem, address_of, is_address
from batonflow.workflow_core.events import Event, HumanResponseEvent, InputRequiredEvent
from batonflow.workflow_core.run import Run

__all__ = ["OpenQuestions", "QuestionFeed"]

_MISSING: Any = object()


# Caches whether an event type is a question.
_ASKS: WeakKeyDictionary[type[Event], bool] = WeakKeyDictionary()


class QuestionFeed:
    """The questions that a reader has not read yet."""

    __slots__ = ("__weakref__", "coming", "run", "told")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.coming: deque[Question] = deque()
        # Questions that were read before the run left memory: paths with names of waits or of questions without one.
        self.told: set[tuple[str, str]] = set()

    def add(self, question: Question) -> None:
        """Add a question that may be open."""
        self.coming.append(question)
        self.run.stream.wake()


class OpenQuestions:
    """The open questions of a tree of workflows; the state of its root keeps questions without a wait."""

    __slots__ = ("_position", "_readers", "_root", "_sent", "_takers", "asleep")

    def __init__(self, root: Run) -> None:
        self._root = root
        self._position = 0
        # Created at first use, because thousands of runs may wait for people.
        self._readers: WeakSet[QuestionFeed] | None = None
        # Undelivered answers to questions without a wait, by the id of the event.
        self._sent: dict[int, tuple[Event, Question]] | None = None
        # The open questions while the run is released, with the runs that ask.
        self.asleep: Sequence[tuple[Run, Question]] = ()
        # The runs that accept answers of people, until they are back in memory.
        self._takers: tuple[Run, ...] = ()

    def falls_asleep(self) -> None:
        """Keep the open questions while the run is released; readers get each question once."""
        self.look()
        asleep = [
            (run, _without_state(run, waiter.question, waiter))
            for run, waiter in self._root.waits()
            if waiter.question is not None and not waiter.question.answered
        ]
        self.asleep = [*asleep, *((self._root, question) for question in self._root.state.questions)]
        self._takers = tuple(run for run in self._root.inside() if run.state.table.accepts_human)
        for reader in self._readers or ():
            owed = {_name(question.run or self._root, question) for question in reader.coming}
            reader.told.clear()
            reader.coming.clear()
            self._give_asleep(reader, {name for run, one in self.asleep if (name := _name(run, one)) in owed})

    def away(self, run: Run, question: Question) -> tuple[Run, Question] | None:
        """Return a question from before the release with the run that asks; None after that run is back."""
        name = _name(question.run or run, question)
        return next(((asks, one) for asks, one in self.asleep if _name(asks, one) == name), None)

    def _give_asleep(self, reader: QuestionFeed, wanted: Container[tuple[str, str]] | None = None) -> None:
        for run, question in self.asleep:
            name = _name(run, question)
            reader.told.add(name)
            if wanted is None or name in wanted:
                reader.coming.append(question)

    def wakes_up(self) -> None:
        """Note that the run is back in memory; its records do not contain undelivered answers."""
        names = {question: _name(run, question) for run, question in self.asleep}
        for reader in self._readers or ():
            # Unread questions are found again, as new objects.
            reader.told.difference_update(names[question] for question in reader.coming if question in names)
            reader.coming.clear()
        self.asleep = [(run, one) for run, one in self.asleep if _path(run, one)]
        self._takers = tuple(run for run in self._takers if run.path)
        answered = {question.number for _, question in (self._sent or {}).values()}
        self._root.state.questions = [one for one in self._root.state.questions if one.number not in answered]
        # Questions with a wait are added when their steps wait again.
        self.is_back(self._root)

    def is_back(self, run: Run) -> None:
        """Note that a run of the tree is in memory. Its questions without a wait can be answered again."""
        self.asleep = [(asks, one) for asks, one in self.asleep if _path(asks, one) != run.path]
        self._takers = tuple(taker for taker in self._takers if taker.path != run.path)
        for question in self._root.state.questions:
            if question.path == run.path:
                self._tell_readers(question, _loose_name(question))

    # --- changes ------------------------------------------------------------------------------------------------------

    def opened(self, run: Run, waiter: Waiter, asked: Event | None) -> None:
        """A step waits; ``asked`` is the question with it, streamed a moment ago unless the wait was restored."""
        found = self._read_stream(besides=asked)
        if waiter.question is None:
            if isinstance(asked, InputRequiredEvent):
                waiter.question = Question(asked, run.path, waiter.item.id, waiter)
            else:
                self._tie(run, waiter)
        for question in found:  # the step's own wait has priority
            if question is not waiter.question:
                self._tell(question)
        if waiter.question is not None:
            waiter.question.run = run
            self._tell(waiter.question, (run.path, address_of(waiter)))

    def look(self) -> None:
        """Find questions among the events streamed since the last call."""
        for question in self._read_stream():
            self._tell(question)

    def _read_stream(self, besides: Event | None = None) -> list[Question]:
        """Return the questions streamed since the last call, except a known one."""
        found: list[Question] = []
        log = self._root.stream
        start, self._position = self._position, len(log.events)
        for position in range(start, self._position):
            event = log.events[position]
            cls = type(event)
            asks = _ASKS.get(cls)
            if asks is None:
                asks = _ASKS[cls] = issubclass(cls, InputRequiredEvent)
            if asks and event is not besides:
                _, path, cause = log.origins[position]
                state = self._root.state
                # The name is the place in the stream, as in records.
                state.question_seq = log.seqs[position] + 1
                question = Question(event, path, cause, number=state.question_seq)
                state.questions = [*state.questions, question]
                found.append(question)
        return found

    def repeat(self, open_ones: Iterable[tuple[str, Question]]) -> None:
        """Stream open questions and their paths again, for readers after the process has taken the run up."""
        self.look()
        root = self._root
        for path, question in open_ones:
            step = "" if question.waiter is None else question.waiter.item.spec.name
            root.stream.publish(question.event, root.now(), (step, path, question.cause))
        self._position = len(root.stream.events)  # these are known

    def person_answered(self, run: Run, event: Event) -> None:
        """Note that a step accepted an answer that no wait accepted.

        Without the name of a question, it closes the oldest question that it fits.
        """
        self.look()
        if self._sent is not None and (sent := self._sent.pop(id(event), None)) is not None:
            answered = sent[1].number
            self._root.state.questions = [one for one in self._root.state.questions if one.number != answered]
            return
        for question in self._root.state.questions:
            taking = self.taking(question)
            if taking is not None and taking[0] is run and isinstance(event, taking[1]):
                self.close(question)
                return

    def attempt_failed(self, run: Run, item: WorkItem) -> None:
        """Drop the questions without a wait of a failed attempt; the next attempt asks again."""
        self.look()
        self._root.state.questions = [
            question
            for question in self._root.state.questions
            if question.cause != item.id or question.path != run.path
        ]

    def close(self, question: Question, answer: Event | None = None) -> None:
        """A question is answered, by an event that is on its way if there is one."""
        question.answered = True
        asks = question.run
        if question.waiter is not None and asks is not None and not (asks.is_away or self._root.is_away):
            for reader in self._readers or ():
                reader.told.discard((question.path, address_of(question.waiter)))
        if question.waiter is None:
            # Compared by number, because a question from before the release is another object.
            number = question.number
            self._root.state.questions = [one for one in self._root.state.questions if one.number != number]
        if answer is not None and question.waiter is None:
            if self._sent is None:
                self._sent = {}
            self._sent[id(answer)] = answer, question

    def closes_nothing(self, event: Event) -> None:
        """Note that an undelivered event answers a closed question, so that it does not close another one."""
        self.close(Question(event, "", 0), event)

    def answered_by(self, event: Event) -> int | None:
        """Return the number of the question without a wait that an undelivered event answers. 0 if it is closed."""
        sent = None if self._sent is None else self._sent.get(id(event))
        return None if sent is None else sent[1].number

    # --- open questions -----------------------------------------------------------------------------------------------

    def reader(self, run: Run) -> QuestionFeed:
        """Return a new reader, with the open questions of a run and of its child runs."""
        feed = QuestionFeed(run)
        self._give_asleep(feed)  # all questions, or those of child runs that are not back yet
        if not self._root.is_asleep:
            self.look()
            for inner, waiter in run.waits():
                if waiter.question is not None:
                    waiter.question.run = inner
                    feed.coming.append(waiter.question)
            away = {_name(asks, question) for asks, question in self.asleep}
            feed.coming.extend(one for one in self._root.state.questions if _loose_name(one) not in away)
        if self._readers is None:
            self._readers = WeakSet()
        self._readers.add(feed)
        return feed

    def open_within(self, run: Run) -> list[tuple[Run, Question]]:
        """Return the open questions of a run and of its child runs, with the runs that ask."""
        found = [(self.place(question, run), question) for question in self.reader(run).coming]
        return [(asks, question) for asks, question in found if asks is not None]

    def without_wait(self) -> Sequence[Question]:
        """Return the unanswered questions without a wait."""
        self.look()
        return self._root.state.questions

    def present(self, run: Run, question: Question) -> tuple[Run, Question]:
        """Return the present object of a question, with the run that asks.

        The run may have left memory and returned since the question was found.
        """
        away, waiter = self.away(run, question), question.waiter
        if away is not None:
            return away
        if self._root.is_asleep:
            question.answered = True
        elif waiter is None:
            name = _loose_name(question)
            question = next((one for one in self._root.state.questions if _loose_name(one) == name), question)
        elif waiter not in run.state.waiters:
            return self._present_wait(run, question, waiter)
        return run, question

    def _present_wait(self, run: Run, question: Question, waiter: Waiter) -> tuple[Run, Question]:
        asking = [(on, one) for on, one in self._root.waits() if on.path == run.path and one.question is not None]
        place = waiter.item.id, waiter.key
        same = [one for one in asking if (one[1].item.id, one[1].key) == place]
        if waiter.explicit_id is not None:
            # Several steps may wait for the answer to one question, with its name in their requirements.
            same += [one for one in asking if one[1].is_for_the_same(waiter)]
        for on, one in same[:1]:
            assert one.question is not None
            one.question.run = on
            return on, one.question
        return run, question

    def place(self, question: Question, within: Run) -> Run | None:
        """Return the run of an open question, if it is the run ``within`` or its child run."""
        waiter = question.waiter
        if self.away(self._root, question) is not None:
            return None if question.answered else question.run or self._root
        if self._root.is_asleep:
            return None
        if waiter is None:
            run = next((run for run in within.inside() if run.path == question.path), None)
            closed = question not in self._root.state.questions or self.taking(question) is None
        else:
            run = question.run
            if run is None or not (run.path == within.path or run.path.startswith(within.path and f"{within.path}/")):
                return None
            closed = question.answered or waiter.unknown_requirements or waiter not in run.state.waiters
            closed = closed or self._is_answered_soon(run, waiter)
        return None if closed or run is None or run.ending.over else run

    def _is_answered_soon(self, run: Run, waiter: Waiter) -> bool:
        """Tell whether there is an undelivered answer to a wait, also after a restore."""
        answered: set[Waiter] = set()
        for on in (run,) if run is self._root else (run, self._root):
            for tick in on.undelivered():
                if on is run or not is_address(tick.target):
                    answered.update(run.state.waiters.takers(tick.event, tick.target, answered))
        return waiter in answered

    def shares_id(self, run: Run, question: Question) -> bool:
        """Tell whether the program gave the same id to another open question of the run."""
        waiter = question.waiter
        if waiter is None or waiter.explicit_id is None:
            return False
        asleep = [other.waiter for asks, other in self.asleep if asks.path == run.path]
        return any(
            other is not None
            and other.explicit_id == waiter.explicit_id
            and other.item.id != waiter.item.id
            and not other.is_for_the_same(waiter)
            for other in (*run.state.waiters, *asleep)
        )

    def taking(self, question: Question) -> tuple[Run, tuple[type[Event], ...]] | None:
        """Return a run that accepts the answer to a question without a wait, and the answer's types.

        The run that asked has priority over other runs of the tree.
        """
        runs = sorted((*self._takers, *self._root.inside()), key=lambda run: run.path != question.path)
        for run in runs:
            if run.state.table.accepts_human and not run.ending.over:
                return run, run.state.table.human_events
        return None

    def taker_here(self, question: Question) -> Run | None:
        """Return a run in memory with steps that accept the answer to a question without a wait."""
        taking = self.taking(question)
        return None if taking is None or taking[0].is_replaced else taking[0]

    def at_rest(self) -> list[tuple[Run, Question]]:
        """Return the open questions of a restored run that is not started, with the runs that ask."""
        for question in list(self._root.state.questions):
            self._tie_to_open_wait(question)
        found: list[tuple[Run, Question]] = []
        for run, waiter in self._root.waits():
            if waiter.question is None or waiter.unknown_requirements or self._is_answered_soon(run, waiter):
                continue
            waiter.question.run = run
            found.append((run, waiter.question))
        loose = [question for question in self._root.state.questions if self.taking(question) is not None]
        return found + [(self._root, question) for question in loose]

    # --- questions and waits ------------------------------------------------------------------------------------------

    def _tie(self, run: Run, waiter: Waiter) -> None:
        """Return the question that was streamed for a wait."""
        loose = self._root.state.questions
        own = [question for question in loose if question.path == run.path and question.cause == waiter.item.id]
        fitting = [question for question in own if _fits(question, waiter)]
        if not fitting and issubclass(waiter.event_type, HumanResponseEvent):
            others = [question for question in loose if question not in own]
            fitting = [question for question in others if self._fits_elsewhere(question, waiter)]
        if fitting:
            question = waiter.question = fitting[0]
            question.waiter = waiter
            self._root.state.questions = [one for one in loose if one is not question]

    def _fits_elsewhere(self, question: Question, waiter: Waiter) -> bool:
        """Tell whether a step other than the one that asked waits for the answer."""
        if not waiter.requirements:
            return self.taking(question) is None
        shared = any(_value(question, name) is not _MISSING for name in waiter.requirements)
        return shared and _fits(question, waiter)

    def _tell(self, question: Question, name: tuple[str, str] | None = None) -> None:
        """Add a question to the readers that do not know its name."""
        if question.waiter is None:
            self._tie_to_open_wait(question)
        self._tell_readers(question, name)

    def _tell_readers(self, question: Question, name: tuple[str, str] | None) -> None:
        for reader in list(self._readers or ()):
            if name in reader.told:
                reader.told.discard(name)
            else:
                reader.add(question)

    def _tie_to_open_wait(self, question: Question) -> None:
        """Tie a question to an earlier wait of another step for its answer."""
        for run, waiter in self._root.waits():
            own = run.path == question.path and waiter.item.id == question.cause
            awaits_person = waiter.question is None and issubclass(waiter.event_type, HumanResponseEvent)
            if awaits_person and not own and self._fits_elsewhere(question, waiter):
                question.waiter, waiter.question, question.run = waiter, question, run
                self._root.state.questions = [one for one in self._root.state.questions if one is not question]
                return


def _without_state(run: Run, question: Question, waiter: Waiter) -> Question:
    """Copy a question with the data for its answer. The state of the run can then leave memory."""
    item = waiter.item
    light = WorkItem(item.id, StepState(item.spec), item.event, None, None)
    light.failures = item.failures and Failures(item.failures.count, item.failures.first_attempt_at)
    asks = Waiter(waiter.explicit_id, waiter.key, waiter.event_type, waiter.requirements, light, waiter.due)
    light_question = Question(question.event, question.path, question.cause, asks)
    light_question.run = run
    return light_question


def _name(run: Run, question: Question) -> tuple[str, str]:
    """Return the name of a question, which stays the same after a restore."""
    return _loose_name(question) if question.waiter is None else (run.path, address_of(question.waiter))


def _path(run: Run, question: Question) -> str:
    """Return the path of the workflow that must be back in memory for an answer."""
    return question.path if question.waiter is None else run.path


def _loose_name(question: Question) -> tuple[str, str]:
    """Return the name of a question without a wait, which stays the same after a restore."""
    return question.path, f"question_{question.number}"


def _value(question: Question, name: str) -> Any:
    return getattr(question.event, name, _MISSING)


def _fits(question: Question, waiter: Waiter) -> bool:
    """Tell whether the question has no value that contradicts the requirements of a wait."""
    return all(_value(question, name) in (_MISSING, value) for name, value in waiter.requirements.items())
