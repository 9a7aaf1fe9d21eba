"""What has to hold of a script that was played, whatever was in it."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from batonflow.agents import AgentOutput, ToolCallResult
from batonflow.agents.prompts import CALL_CUT_OFF, NO_STEPS_LEFT
from batonflow.llms import LLMError, ToolSelection
from batonflow.workflow_core import WorkflowRuntimeError
from tests.agents.scripts.answers import Answer
from tests.agents.scripts.script import Act
from tests.agents.scripts.stage import Asked, Played, Stage
from tests.agents.scripts.transcript import Entry

__all__ = ["judge"]

_FAIL = {
    "unknown tool", "bad arguments", "no json", "raises", "times out", "denied", "edited badly", "expires",
    "bad arguments to approve", "direct fails",
}  # fmt: skip
_RUN = {"good async", "good sync", "raises", "times out", "approved", "direct", "direct fails"}


class _Answered:
    """An answer with the calls that the agent read in it, and their results.

    Nothing is done any more of what the ``last`` allowed answer asks for.
    """

    def __init__(self, asked: Asked, output: AgentOutput, last: bool) -> None:
        self.asked = asked
        self.last = last
        self.answer: Answer = asked.answer
        self.calls = [call for call in output.tool_calls if isinstance(call, ToolSelection)]
        self.results: dict[str, ToolCallResult] = {}
        self.inside: dict[str, ToolCallResult] = {}

    def add(self, result: ToolCallResult) -> None:
        """Keep a result of a call, or of a call in code; the first one counts."""
        own = result.tool_id in [call.tool_id for call in self.calls]
        (self.results if own else self.inside).setdefault(result.tool_id, result)

    @property
    def whole(self) -> bool:
        """Whether each call has a result."""
        return len(self.results) == len(self.calls) == len(self.answer.acts)

    def pairs_inside(self) -> Iterator[tuple[Act, ToolCallResult]]:
        """Each act in code that has a result, with it."""
        acts = {act.label: act for act in self.answer.inside}
        for result in self.inside.values():
            yield acts[_label(result)], result

    def pairs(self) -> Iterator[tuple[Act | None, ToolCallResult]]:
        """Each act that has a result, with it; None for code."""
        for act, call in zip(self.answer.acts, self.calls, strict=False):
            if call.tool_id in self.results:
                yield act, self.results[call.tool_id]


def _label(result: ToolCallResult) -> str:
    """Of which act a result is, also when a person has changed the arguments."""
    return str(result.tool_kwargs.get("label")).removesuffix(" edited")


def judge(stage: Stage) -> Iterator[str]:
    """What must not be and was."""
    interrupted = 0
    before: _Answered | None = None
    answered: list[_Answered] = []
    for number, run in enumerate(stage.runs, 1):
        place = f"run {number}"
        found = _answered(run, resumed=interrupted > 0)
        answered += found
        yield from (f"{place}: {one}" for one in _events(run, found, resumed=interrupted > 0))
        yield from (f"{place}: {one}" for one in _handoffs(stage, run, found))
        yield from (f"{place}: {one}" for one in _error(run, stage.runs[number - 2] if interrupted else None))
        if run.output is not None and not interrupted:
            yield from (f"{place}: {one}" for one in _final(run, found))
        yield from (f"{place}: {one}" for one in _shown_next(run, found, before))
        # A memory may leave out what another question was about; after an interruption nobody says what is shown.
        ended_well = run.output is not None and stage.script.token_limit is None and not interrupted
        before = next((one for one in reversed(found) if one.calls), None) if ended_well else None
        interrupted += run.cancelled
    yield from _texts(stage, answered)
    yield from _bodies(stage, answered, interrupted)


def _answered(run: Played, resumed: bool) -> list[_Answered]:
    """The answers of a run that are on its stream, with what came of their calls."""
    found = _paired(run, 0)
    if resumed and any(len(one.calls) != len(one.answer.acts) for one in found):
        # The step that asked began anew, and what it streams at the end was already streamed before the interruption.
        return _paired(run, 1)
    return found


def _paired(run: Played, first: int) -> list[_Answered]:
    """The answers on the stream, if the first one there is that to request ``first``."""
    found: list[_Answered] = []
    for event in run.events:
        if isinstance(event, AgentOutput):
            if first + len(found) == len(run.asked):
                break
            last = first + len(found) + 1 >= run.plan.max_iterations
            found.append(_Answered(run.asked[first + len(found)], event, last))
        elif isinstance(event, ToolCallResult) and found:
            found[-1].add(event)
    return found


def _events(run: Played, found: Sequence[_Answered], resumed: bool) -> Iterator[str]:
    """Each call of an answer has one result on the stream."""
    seen: list[str] = []
    calls: list[str] | None = None
    inside = {act.label for asked in run.asked for act in asked.answer.inside}
    for event in run.events:
        if isinstance(event, AgentOutput):
            calls = [call.tool_id for call in event.tool_calls if isinstance(call, ToolSelection)]
            seen = []
        elif isinstance(event, ToolCallResult):
            if event.tool_id in seen:
                yield f"the call {event.tool_id!r} has two results on the stream"
            if calls is None and not resumed:
                yield f"the result {event.tool_id!r} comes before any answer"
            if calls is not None and event.tool_id not in calls and _label(event) not in inside:
                yield f"the result {event.tool_id!r} is on the stream, and the answer before called {calls}"
            seen.append(event.tool_id)
    for number, one in enumerate(found, 1):
        wanted = [None if act is None else act.kind for act in one.answer.acts]
        if len(one.calls) != len(wanted):
            yield f"answer {number} has the calls {wanted}, and the agent read {one.calls}"
        ids = [call.tool_id for call in one.calls]
        if len(set(ids)) < len(ids):
            yield f"the calls of answer {number} have the ids {ids}"
        # An answer that breaks the run may ask for what is not done any more.
        if not one.whole and not (number == len(found) and run.error is not None):
            yield f"of the calls {ids} of answer {number} those with a result are {sorted(one.results)}"
        for act, result in (*one.pairs(), *one.pairs_inside()):
            yield from _result(one, act, result)
        if run.error is None and not one.last and len(one.inside) < len(one.answer.inside):
            yield f"answer {number} makes {len(one.answer.inside)} calls in code, and {len(one.inside)} have a result"


def _result(one: _Answered, act: Act | None, result: ToolCallResult) -> Iterator[str]:
    said, failed = result.tool_output.content, result.tool_output.is_error
    if one.last:
        if said != NO_STEPS_LEFT or not failed:
            yield f"the last allowed answer asks for {result.tool_name}, and what comes of it is {said!r}"
    elif act is None:
        if failed is not one.answer.turn.snippet_fails or one.answer.turn.label not in said:
            yield f"the code of {one.answer.turn.label} gave {said!r}"
    elif act.kind != "handoff":
        if failed is not (act.kind in _FAIL):
            yield f"{act.label} is to be {act.kind!r} and gave {said!r}, {'an' if failed else 'no'} error"
        if act.kind == "edited" and not failed and "edited" not in result.tool_kwargs["label"]:
            yield f"{act.label} says that it ran with {result.tool_kwargs}"
        if not failed and act.label not in said:
            yield f"{act.label} got the result of another call: {said!r}"


def _handoffs(stage: Stage, run: Played, found: Sequence[_Answered]) -> Iterator[str]:
    """Of the handoffs in an answer the first permitted one is made, and who was meant goes on."""
    names = [agent.name for agent in stage.script.agents]
    next_asked = {id(asked): following.agent.name for asked, following in pairwise(run.asked)}
    for number, one in enumerate(found, 1):
        agent, to = one.asked.agent, None
        allowed = set(names if agent.can_handoff_to is None else agent.can_handoff_to) & set(names) - {agent.name}
        for act, result in one.pairs():
            if act is None or act.kind != "handoff":
                continue
            made = to is None and act.to in allowed and not one.last
            to = act.to if made else to
            if result.tool_output.is_error is made:
                yield f"the handoff {act.label} of answer {number} is {'not ' if made else ''}made"
        goes_on = next_asked.get(id(one.asked))
        if goes_on is not None and one.whole and goes_on != (to or agent.name):
            yield f"after answer {number} {goes_on} goes on, not {to or agent.name}"


def _error(run: Played, interrupted: Played | None) -> Iterator[str]:
    """Nothing but what the script says ends a run; one that goes on may end at the last answer of the one before."""
    asked = run.asked or (interrupted.asked if interrupted is not None else [])
    error, last = run.error, asked[-1] if asked else None
    if error is None or run.cancelled:
        return
    expected = False
    if last is not None:
        turn, kind = last.answer.turn, last.agent.kind
        limit = isinstance(error, WorkflowRuntimeError) and "Max iterations" in str(error)
        expected = (
            (turn.fails and isinstance(error, LLMError))
            or (limit and run.plan.early_stopping == "force" and len(run.asked) >= run.plan.max_iterations)
            or (kind == "codeact" and turn.stray and isinstance(error, ValueError))
            or (kind == "react" and not last.answer.readable and isinstance(error, WorkflowRuntimeError))
        )
    if not expected:
        yield f"it ended in {type(error).__name__}: {error}"


def _final(run: Played, found: Sequence[_Answered]) -> Iterator[str]:
    """The output has all calls with a result, in the order of the calls."""
    assert run.output is not None
    wanted = [call.tool_id for one in found if one.results for call in one.calls]
    got = [call.tool_id for call in run.output.tool_calls]
    if got != wanted:
        yield f"the output lists the calls {got}; they were {wanted}"


def _shown_next(run: Played, found: Sequence[_Answered], before: _Answered | None) -> Iterator[str]:
    """The next request shows each call of an answer with its result, in order."""
    answered = {id(one.asked): one for one in found}
    for number, asked in enumerate(run.asked):
        one = answered.get(id(run.asked[number - 1])) if number else before
        if one is None or not one.answer.calls or not one.whole:
            continue
        native = len(one.answer.calls)
        results = [one.results[call.tool_id].tool_output.content for call in one.calls][-native:]
        position = next((p for p in range(len(asked.shown) - 1, -1, -1) if asked.shown[p].calls), None)
        if position is None:
            yield f"request {number + 1} does not show the calls of the answer before, with the results {results}"
            continue
        # Under names of the request's own: a vendor may want others than those of the answer.
        wanted = list(zip(asked.shown[position].calls, results, strict=False))
        got = [(entry.id, entry.text) for entry in asked.shown[position + 1 : position + 1 + native]]
        if got != wanted:
            yield f"request {number + 1} shows the results {got} of the answer before; they were {wanted}"


def _texts(stage: Stage, answered: Sequence[_Answered]) -> Iterator[str]:
    """Each action and each snippet that a request shows is followed by its observation, and only by that."""
    results: dict[str, str] = {}
    for one in answered:
        for act, result in one.pairs():
            results[one.answer.turn.label if act is None else act.label] = result.tool_output.content
    for number, run in enumerate(stage.runs, 1):
        for place, asked in enumerate(run.asked, 1):
            here = f"run {number}, request {place}"
            last = run.asked[place - 2] if place > 1 else None
            yield from (f"{here}: {problem}" for problem in _observations(stage, asked.shown, results, last))


def _observations(stage: Stage, shown: Sequence[Entry], results: dict[str, str], last: Asked | None) -> Iterator[str]:
    lines = [line for entry in shown for line in entry.text.splitlines()]
    for run in stage.runs:
        for asked in run.asked:
            if not asked.answer.acts:
                continue
            if asked.agent.kind == "react":
                act = asked.answer.acts[0]
                assert act is not None
                yield from _observed(lines, act.label, results.get(act.label), must=asked is last)
            elif asked.agent.kind == "codeact" and asked.answer.acts[0] is None:
                label = asked.answer.turn.label
                yield from _snippet_observed(shown, label, results.get(label), must=asked is last)


def _observed(lines: Sequence[str], label: str, result: str | None, must: bool) -> Iterator[str]:
    places = [place for place, line in enumerate(lines) if line == f"Thought: I try {label}."]
    if len(places) > 1 or (must and not places):
        yield f"the action {label} is shown {len(places)} times"
    for place in places:
        behind = lines[place + 3 :]
        if not behind or not behind[0].startswith("Observation: "):
            yield f"behind the action {label} there is no observation but {behind[:1]}"
            continue
        # What came of one that an earlier run was at when it was cancelled may not be known.
        if result is None or (not must and behind[0] == f"Observation: {CALL_CUT_OFF}"):
            continue
        said = f"Observation: {result}".splitlines()
        if behind[: len(said)] != said:
            yield f"the action {label} gave {result!r}, and what is shown behind it is {behind[: len(said)]}"
        elif behind[len(said) : len(said) + 1] and behind[len(said)].startswith("Observation:"):
            yield f"behind the action {label} there are two observations"


def _snippet_observed(shown: Sequence[Entry], label: str, result: str | None, must: bool) -> Iterator[str]:
    places = [
        place
        for place, entry in enumerate(shown)
        if entry.role == "assistant" and "<execute>" in entry.text and f"'{label}'" in entry.text
    ]
    if len(places) > 1 or (must and not places):
        yield f"the snippet {label} is shown {len(places)} times"
    for place in places:
        # Results of native calls in the same answer come first; Responses has those calls as items of their own.
        behind = [entry for entry in shown[place + 1 :] if entry.role != "result" and not entry.calls]
        # What came of one that an earlier run was at when it was cancelled may not be known.
        said = (result or label,) if must else (result or label, CALL_CUT_OFF)
        if not behind or behind[0].role != "user" or not any(one in behind[0].text for one in said):
            yield f"behind the snippet {label} there is no observation but {behind[:1]}"
    told = [entry for entry in shown if entry.role == "user" and result is not None and result in entry.text]
    if len(told) > len(places) and result != NO_STEPS_LEFT:
        yield f"the snippet {label} is shown {len(places)} times, with {len(told)} observations"


def _bodies(stage: Stage, answered: Sequence[_Answered], interrupted: int) -> Iterator[str]:
    """What was refused never ran; everything else ran once."""
    with_result = {
        one.answer.turn.label if act is None else act.label: act
        for one in answered
        for act, _ in (*one.pairs(), *one.pairs_inside())
        if not one.last
    }
    undone = {act.label for one in answered if one.last for act in one.answer.turn.acts}
    for label, act in stage.script.decisions.items():
        ran, edited = stage.bodies.ran[label], stage.bodies.ran[f"{label} edited"]
        most = (1 if act.kind in _RUN and label not in undone else 0) * (1 + interrupted)
        least = 1 if act.kind in _RUN and label in with_result and with_result[label] is not None else 0
        if not least <= ran <= most:
            yield f"the tool of {label}, which is to be {act.kind!r}, ran {ran} times"
        if edited > (act.kind == "edited") * (1 + interrupted):
            yield f"the tool of {label} ran {edited} times with other arguments"
        if act.kind == "edited" and label in with_result and not edited:
            yield f"the tool of {label} was approved with other arguments, and did not run"
