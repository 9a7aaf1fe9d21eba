"""Which questions to people stand open in a tree of workflows: asked with a wait, streamed, or returned by a step.

A question that was only streamed is tied to the wait that it was streamed for, the step's next one as a rule; else it
is open as long as some step takes the answer. The stream is looked through when something depends on it, never when an
event is streamed.
"""

from collections import deque
from collections.abc import Container, Iterable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from batonflow.workflow_core.engine.state import Failures, Question, StepState, Waiter, WorkItem, address_of, is_address
from batonflow.workflow_core.events import Event, HumanResponseEvent, InputRequiredEvent
from batonflow.workflow_core.run import Run

__all__ = ["OpenQuestions", "QuestionFeed"]

_MISSING: Any = object()


# Whether a type asks something: cheaper to look up than to find out.
_ASKS: WeakKeyDictionary[type[Event], bool] = WeakKeyDictionary()


class QuestionFeed:
    """Questions that one reader has not looked at yet."""

    __slots__ = ("__weakref__", "coming", "run", "told")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.coming: deque[Question] = deque()
        # Questions that it knows from before the run left memory: paths with names of waits or of loose questions.
        self.told: set[tuple[str, str]] = set()

    def add(self, question: Question) -> None:
        """Tell of a question that may be open."""
        self.coming.append(question)
        self.run.stream.wake()


class OpenQuestions:
    """The questions of a tree of workflows; the state of its root keeps questions without a wait."""

    __slots__ = ("_position", "_readers", "_root", "_sent", "_takers", "asleep")

    def __init__(self, root: Run) -> None:
        self._root = root
        self._position = 0
        # Created at first use: thousands of runs may wait for a person at a time.
        self._readers: WeakSet[QuestionFeed] | None = None
        # Answers that are on their way to questions without a wait, by id of the event.
        self._sent: dict[int, tuple[Event, Question]] | None = None
        # Questions that are open while the run is out of memory, with the runs that ask.
        self.asleep: list[tuple[Run, Question]] = []
        # Runs that take answers of people, until they are back in memory.
        self._takers: tuple[Run, ...] = ()

    def falls_asleep(self) -> None:
        """Keep the open questions while the run leaves memory; readers do not get known questions again."""
        self.look()
        self.asleep = [
            (run, _without_state(run, waiter.question, waiter))
            for run, waiter in self._root.waits()
            if waiter.question is not None and not waiter.question.answered
        ]
        self.asleep += [(self._root, question) for question in self._root.state.questions]
        self._takers = tuple(run for run in self._root.inside() if run.state.table.accepts_human)
        for reader in self._readers or ():
            owed = {_name(question.run or self._root, question) for question in reader.coming}
            reader.told.clear()
            reader.coming.clear()
            self._give_asleep(reader, {name for run, one in self.asleep if (name := _name(run, one)) in owed})

    def away(self, run: Run, question: Question) -> tuple[Run, Question] | None:
        """Return a question as it was when the run left memory, with the run that asks, until that run is back."""
        name = _name(question.run or run, question)
        return next(((asks, one) for asks, one in self.asleep if _name(asks, one) == name), None)

    def _give_asleep(self, reader: QuestionFeed, wanted: Container[tuple[str, str]] | None = None) -> None:
        for run, question in self.asleep:
            name = _name(run, question)
            reader.told.add(name)
            if wanted is None or name in wanted:
                reader.coming.append(question)

    def wakes_up(self) -> None:
        """The run is in memory again, as its records say; answers that are on their way they do not know."""
        names = {question: _name(run, question) for run, question in self.asleep}
        for reader in self._readers or ():
            # Questions that the reader has not seen come again, as other objects.
            reader.told.difference_update(names[question] for question in reader.coming if question in names)
            reader.coming.clear()
        self.asleep = [(run, one) for run, one in self.asleep if _path(run, one)]
        self._takers = tuple(run for run in self._takers if run.path)
        answered = {question.number for _, question in (self._sent or {}).values()}
        self._root.state.questions = [one for one in self._root.state.questions if one.number not in answered]
        # Questions with a wait come when their steps wait again.
        self.is_back(self._root)

    def is_back(self, run: Run) -> None:
        """A run of the tree is in memory again: its questions without a wait can be answered."""
        self.asleep = [(asks, one) for asks, one in self.asleep if _path(asks, one) != run.path]
        self._takers = tuple(taker for taker in self._takers if taker.path != run.path)
        for question in self._root.state.questions:
            if question.path == run.path:
                self._tell_readers(question, _loose_name(question))

    # --- what happens -------------------------------------------------------------------------------------------------

    def opened(self, run: Run, waiter: Waiter, asked: Event | None) -> None:
        """A step waits; ``asked`` is the question with it, streamed a moment ago unless the wait was restored."""
        found = self._read_stream(besides=asked)
        if waiter.question is None:
            if isinstance(asked, InputRequiredEvent):
                waiter.question = Question(asked, run.path, waiter.item.id, waiter)
            else:
                self._tie(run, waiter)
        for question in found:  # the step's own wait comes first
            if question is not waiter.question:
                self._tell(question)
        if waiter.question is not None:
            waiter.question.run = run
            self._tell(waiter.question, (run.path, address_of(waiter)))

    def look(self) -> None:
        """Find questions among the events streamed since the last look."""
        for question in self._read_stream():
            self._tell(question)

    def _read_stream(self, besides: Event | None = None) -> list[Question]:
        """The questions streamed since the last look, all but one that is known already."""
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
                # Named by its place in the stream, as records know it too.
                state.question_seq = log.seqs[position] + 1
                question = Question(event, path, cause, number=state.question_seq)
                state.questions.append(question)
                found.append(question)
        return found

    def repeat(self, open_ones: Iterable[tuple[str, Question]]) -> None:
        """Stream open questions and their paths again, for the readers of a process that has just taken the run up."""
        self.look()
        root = self._root
        for path, question in open_ones:
            step = "" if question.waiter is None else question.waiter.item.spec.name
            root.stream.publish(question.event, root.now(), (step, path, question.cause))
        self._position = len(root.stream.events)  # they are known already

    def person_answered(self, run: Run, event: Event) -> None:
        """A step takes a person's answer that no wait wanted.

        Without a word on which question it answers, the oldest that it may belong to is closed.
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
        """Drop the questions of a failed attempt without a wait: the next attempt asks again."""
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
            # By number, as a question from before the release is another object.
            number = question.number
            self._root.state.questions = [one for one in self._root.state.questions if one.number != number]
        if answer is not None and question.waiter is None:
            if self._sent is None:
                self._sent = {}
            self._sent[id(answer)] = answer, question

    def closes_nothing(self, event: Event) -> None:
        """An event on its way answers a question that is not open any more: no other is closed by it."""
        self.close(Question(event, "", 0), event)

    def answered_by(self, event: Event) -> int | None:
        """The number of the question without a wait that an event on its way is the answer to, 0 if closed."""
        sent = None if self._sent is None else self._sent.get(id(event))
        return None if sent is None else sent[1].number

    # --- what is open -------------------------------------------------------------------------------------------------

    def reader(self, run: Run) -> QuestionFeed:
        """Begin to read, with all open questions of a run and of the runs inside it."""
        feed = QuestionFeed(run)
        self._give_asleep(feed)  # all of them, or the questions of child runs that are not back yet
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
        """Return the open questions of a run and of the runs inside it, with the runs that ask."""
        found = [(self.place(question, run), question) for question in self.reader(run).coming]
        return [(asks, question) for asks, question in found if asks is not None]

    def without_wait(self) -> list[Question]:
        """Return the questions without a wait that were asked so far and not answered."""
        self.look()
        return self._root.state.questions

    def present(self, run: Run, question: Question) -> tuple[Run, Question]:
        """Return the object that stands for a question now, with the run that asks.

        The run may have left memory and come back since the question was found.
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
            # Several steps may wait for the answer to one question, which their requirements name.
            same += [one for one in asking if one[1].is_for_the_same(waiter)]
        for on, one in same[:1]:
            assert one.question is not None
            one.question.run = on
            return on, one.question
        return run, question

    def place(self, question: Question, within: Run) -> Run | None:
        """The run that asks, if it is ``within`` or one inside it, and the question is open."""
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
        """Tell whether an answer to a wait is on its way, also after a restore."""
        answered: set[Waiter] = set()
        for on in (run,) if run is self._root else (run, self._root):
            for tick in on.undelivered():
                if on is run or not is_address(tick.target):
                    answered.update(run.state.waiters.takers(tick.event, tick.target, answered))
        return waiter in answered

    def shares_id(self, run: Run, question: Question) -> bool:
        """Tell whether another open question of a run was given the same id by the program."""
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
        """Return the run with steps that take answers to a question without a wait, and their types.

        In the run that asked, else in any other of the tree.
        """
        runs = sorted((*self._takers, *self._root.inside()), key=lambda run: run.path != question.path)
        for run in runs:
            if run.state.table.accepts_human and not run.ending.over:
                return run, run.state.table.human_events
        return None

    def taker_here(self, question: Question) -> Run | None:
        """Return the run in memory with steps that take the answer to a question without a wait."""
        taking = self.taking(question)
        return None if taking is None or taking[0].is_replaced else taking[0]

    def at_rest(self) -> list[tuple[Run, Question]]:
        """Return the open questions of a restored run that never begins, with the runs that ask."""
        for question in list(self._root.state.questions):
            self._tie_to_open_wait(question)
        found: list[tuple[Run, Question]] = []
        for run, waiter in self._root.waits():
            if waiter.question is not None and not waiter.unknown_requirements:
                waiter.question.run = run
                found.append((run, waiter.question))
        loose = [question for question in self._root.state.questions if self.taking(question) is not None]
        return found + [(self._root, question) for question in loose]

    # --- tying --------------------------------------------------------------------------------------------------------

    def _tie(self, run: Run, waiter: Waiter) -> None:
        """Find the question that was streamed for a wait."""
        loose = self._root.state.questions
        own = [question for question in loose if question.path == run.path and question.cause == waiter.item.id]
        fitting = [question for question in own if _fits(question, waiter)]
        if not fitting and issubclass(waiter.event_type, HumanResponseEvent):
            others = [question for question in loose if question not in own]
            fitting = [question for question in others if self._fits_elsewhere(question, waiter)]
        if fitting:
            question = waiter.question = fitting[0]
            question.waiter = waiter
            loose.remove(question)

    def _fits_elsewhere(self, question: Question, waiter: Waiter) -> bool:
        """Tell whether another step than the one that asked waits for the answer."""
        if not waiter.requirements:
            return self.taking(question) is None
        shared = any(_value(question, name) is not _MISSING for name in waiter.requirements)
        return shared and _fits(question, waiter)

    def _tell(self, question: Question, name: tuple[str, str] | None = None) -> None:
        """Give a question to the readers that do not know it by its name."""
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
        """A question may come after the wait of another step for its answer."""
        for run, waiter in self._root.waits():
            own = run.path == question.path and waiter.item.id == question.cause
            awaits_person = waiter.question is None and issubclass(waiter.event_type, HumanResponseEvent)
            if awaits_person and not own and self._fits_elsewhere(question, waiter):
                question.waiter, waiter.question, question.run = waiter, question, run
                self._root.state.questions.remove(question)
                return


def _without_state(run: Run, question: Question, waiter: Waiter) -> Question:
    """Copy a question with the data that an answer needs, so that the state of the run can leave memory."""
    item = waiter.item
    light = WorkItem(item.id, StepState(item.spec), item.event, None, None)
    light.failures = item.failures and Failures(item.failures.count, item.failures.first_attempt_at)
    asks = Waiter(waiter.explicit_id, waiter.key, waiter.event_type, waiter.requirements, light, waiter.due)
    light_question = Question(question.event, question.path, question.cause, asks)
    light_question.run = run
    return light_question


def _name(run: Run, question: Question) -> tuple[str, str]:
    """Names a question, also over a restore; a wait for the answer by the run that waits."""
    return _loose_name(question) if question.waiter is None else (run.path, address_of(question.waiter))


def _path(run: Run, question: Question) -> str:
    """Which workflow of the tree has to be back for an answer."""
    return question.path if question.waiter is None else run.path


def _loose_name(question: Question) -> tuple[str, str]:
    """Names a question without a wait, also over a restore."""
    return question.path, f"question_{question.number}"


def _value(question: Question, name: str) -> Any:
    return getattr(question.event, name, _MISSING)


def _fits(question: Question, waiter: Waiter) -> bool:
    """Tell whether nothing that the wait requires is otherwise in the question."""
    return all(_value(question, name) in (_MISSING, value) for name, value in waiter.requirements.items())
