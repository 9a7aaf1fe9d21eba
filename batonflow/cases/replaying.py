"""Runs of a case: recorded answers of models, outcomes of tools and effects, and answers of people."""

import asyncio
import json
import re
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from pydantic_core import from_json

from batonflow.agents import ApprovalRequired
from batonflow.agents.running import AgentRuns, AgentTool, known_tools
from batonflow.durable.codec import Codec
from batonflow.durable.comparison import result_difference, result_of
from batonflow.durable.store_protocol import RunStore
from batonflow.durable.trace import plain_event
from batonflow.instrumentation.context import replace_call
from batonflow.instrumentation.redaction import redacted
from batonflow.llms import ChatMessage, ChatResponse, ReplayMissError, Usage
from batonflow.llms.base import events_of
from batonflow.llms.differences import TextDifference, comparable, message_as_text, request_difference
from batonflow.llms.replay import error_from
from batonflow.llms.stream import AnswerSource, ChatRequest, ModelCall, StreamEvent, answers_from, request_as_call
from batonflow.workflow_core.context.context import Context
from batonflow.workflow_core.engine.state import WorkItem
from batonflow.workflow_core.errors import BatonflowError, InputResponseError, StoreError, WorkflowRuntimeError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.inputs import InputRequest
from batonflow.workflow_core.options import is_workflow
from batonflow.workflow_core.run import Run
from batonflow.workflow_core.workflow import Workflow

__all__ = ["CaseData", "CaseDifferenceError", "Done", "Rules", "run_case"]

CaseData = dict[str, Any]

_LOOK_SECONDS = 0.005


class CaseDifferenceError(BatonflowError, AssertionError):
    """The error for a run that differs from its case; the text shows the first difference."""


@dataclass(frozen=True)
class Rules:
    """The parts of a run that are real.

    Attributes:
        run_tools: The names of tools that run instead of their recorded results; True for all without an approval.
        effects: Whether functions of ``ctx.effect`` run that the case does not hold.
        ignore: Regular expressions for texts that may differ.
        strict: Whether the run must do the same as the case, without a model.
    """

    run_tools: bool | Collection[str] = False
    effects: bool = False
    ignore: Sequence[str] = ()
    strict: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.run_tools, str):
            raise TypeError(f"run_tools is True, False, or a list of names: write [{self.run_tools!r}]")
        if isinstance(self.ignore, str):
            raise TypeError(f"ignore is a list of regular expressions: write [{self.ignore!r}]")
        for pattern in self.ignore:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"ignore has {pattern!r}, which is not a regular expression: {error}") from None

    def runs_tool(self, name: str, *, approved: bool) -> bool:
        """Return whether a tool runs for a call with a recorded result.

        Args:
            name: The tool.
            approved: Whether a person had to approve the call.
        """
        return not approved if self.run_tools is True else self.run_tools is not False and name in self.run_tools


@dataclass(frozen=True)
class Done:
    """The end of a run of a case.

    Attributes:
        run_id: The id of the run.
        result: The result; None after an error.
        error: The error of the run, or None.
    """

    run_id: str
    result: Any = None
    error: BaseException | None = None

    def value(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


class _First:
    """The first difference of a run, which ends the run."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self.error: CaseDifferenceError | None = None
        self.found = asyncio.Event()

    def note(self, words: str, difference: TextDifference | None = None) -> CaseDifferenceError:
        """Keep a difference if it is the first one; from any thread.

        Args:
            words: The difference in words.
            difference: The texts that differ.
        """
        lines = [] if difference is None else difference.lines("case", "run")
        error = CaseDifferenceError("\n".join([f"case {self._name}: {words}", *lines]))
        if self.error is None:
            self.error = error
        with suppress(RuntimeError):  # the loop is closed, so nothing waits for the difference
            self._loop.call_soon_threadsafe(self.found.set)
        return error


# --- models -----------------------------------------------------------------------------------------------------------


@dataclass
class _RecordedCall:
    number: int
    data: CaseData
    messages: Sequence[ChatMessage]
    request: CaseData
    used: bool = False

    @property
    def caller(self) -> tuple[str, str]:
        return self.data.get("agent", ""), self.data.get("purpose", "")

    def words(self, total: int) -> str:
        return f"call {self.number} of {total}{_by(*self.caller)}"

    def events(self) -> list[StreamEvent]:
        """Return the events of the recorded answer; without an end if the call failed."""
        data = self.data
        usage = data.get("usage")
        numbers: Sequence[int] = data.get("answer", ())
        answer = [self.messages[number] for number in numbers]
        response = ChatResponse(
            message=answer[0].model_copy(deep=True) if answer else ChatMessage(role="assistant"),
            stop_reason=data.get("finish"),
            usage=None if usage is None else Usage(**usage),
            model=data.get("model"),
            vendor=data.get("vendor"),
            request_id=data.get("request_id"),
        )
        return [event for event in events_of(response) if event.kind != "finish" or "error" not in data]


def _by(agent: str, purpose: str) -> str:
    words = [f"agent {agent}"] if agent else []
    words += [purpose] if purpose not in {"", "turn"} else []
    return f" ({', '.join(words)})" if words else ""


class _RecordedAnswers:
    """Answers the requests of a run from the calls of its case."""

    needs_keys = False

    def __init__(self, data: CaseData, ignore: Sequence[str], first: _First) -> None:
        messages = [ChatMessage.model_validate(one) for one in data["messages"]]
        plain: list[CaseData] = [_message_data(one) for one in messages]
        tools: list[CaseData] = data["tools"]
        self._ignore, self._first, self._lock = ignore, first, threading.Lock()
        self._calls: list[_RecordedCall] = []
        for number, call in enumerate(data["calls"], start=1):
            request: CaseData = {
                "messages": [plain[one] for one in call.get("messages", ())],
                "tool_specs": [tools[one] for one in call.get("tool_specs", ())],
                "options": call.get("options", {}),
            }
            self._calls.append(_RecordedCall(number, call, messages, comparable(request, ignore)))

    def __call__(
        self,
        llm: Any,
        request: ChatRequest,
        events: AsyncGenerator[StreamEvent, None],  # noqa: ARG002 - the model is not asked
    ) -> tuple[Any, ChatRequest, AsyncGenerator[StreamEvent, None]]:
        """Answer a request without the model."""
        return llm, request, self._answer(request_as_call(llm, request))

    async def _answer(self, asked: ModelCall) -> AsyncGenerator[StreamEvent, None]:
        with self._lock:
            call = self._take(asked)
        for event in call.events():
            yield event
        if "error" in call.data:
            raise error_from(call.data["error"])

    def _take(self, asked: ModelCall) -> _RecordedCall:
        """Return the recorded call of a request, which no other request has got.

        Raises:
            ReplayMissError: The case does not hold the request.
        """
        request = comparable(
            redacted(
                {
                    "messages": [_message_data(one) for one in asked.messages],
                    "tool_specs": [tool.model_dump(mode="json") for tool in asked.tool_specs],
                    "options": dict(asked.options),
                }
            ),
            self._ignore,
        )
        left = [call for call in self._calls if not call.used]
        # The calls of one agent come in their order; agents that work at the same time come in any order.
        left.sort(key=lambda call: call.caller != (asked.agent, asked.purpose))
        for call in left:
            if request_difference(call.request, request) is None:
                call.used = True
                return call
        total = len(self._calls)
        if not left:
            said = message_as_text(request["messages"][-1]) if request["messages"] else ""
            words = f"the run asks a model once more{_by(asked.agent, asked.purpose)}; the case holds {total} calls"
            raise _miss(self._first.note(words, TextDifference("last message", "", said)))
        found = request_difference(left[0].request, request)
        assert found is not None
        raise _miss(self._first.note(f"{left[0].words(total)} differs in {found.where}", found))

    def leave_out(self, numbers: Sequence[int]) -> None:
        """Note that the calls inside a recorded outcome are not made."""
        for number in numbers:
            self._calls[number].used = True

    def check_all_made(self) -> None:
        """Note the first call that the run did not make."""
        for call in self._calls:
            if not call.used:
                self._first.note(f"the run did not make {call.words(len(self._calls))} to {call.data['model']}")
                return


def _message_data(message: ChatMessage) -> CaseData:
    return message.model_dump(mode="json", exclude_none=True)


def _miss(difference: CaseDifferenceError) -> ReplayMissError:
    return ReplayMissError(str(difference), vendor="replay")


# --- tools and effects ------------------------------------------------------------------------------------------------


class _RecordedOutcomes:
    """Gives the recorded results of tools, ``ctx.effect`` and ``ctx.once`` in place of their functions."""

    def __init__(
        self, data: CaseData, codec: Codec, rules: Rules, first: _First, answers: _RecordedAnswers | None
    ) -> None:
        self._left: list[CaseData] = list(data["outcomes"])
        self._codec, self._rules, self._first, self._answers = codec, rules, first, answers

    def __call__(
        self, run: Run, item: WorkItem, key: str, intent: dict[str, Any] | None, fn: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return the function to call."""
        if intent is None and isinstance(run.workflow, AgentRuns):
            return fn  # an agent's own notes, which change its state
        about = None if intent is None else redacted(intent.get("about"))
        found = self._take(run.path, item, key, about, is_effect=intent is not None)
        tool = _tool_of(key, about)
        if found is None:
            if intent is not None and tool is None and not self._rules.effects:
                return partial(self._refuse, item.spec.name, key)
            return fn
        if tool is not None:
            # An agent behind a tool is replayed itself, with its own calls and tools.
            runs = _is_agent(run.workflow, tool) or self._rules.runs_tool(tool, approved=found["approved"])
        else:
            runs = intent is None and bool(found["calls"])
        return fn if runs else partial(self._recorded, item, found)

    def _take(self, path: str, item: WorkItem, key: str, about: Any, *, is_effect: bool) -> CaseData | None:
        """Return the outcome of a call, which no other call has got."""
        tool = _tool_of(key, about)
        if tool is not None:
            # Other turns may call a tool in the same way, so its place is only preferred. A replayed call with secrets
            # in its arguments has other arguments, and the same place.
            fits = [
                one
                for one in self._left
                if one["path"] == path
                and _tool_of(one["key"], one["about"]) == tool
                and (one["about"] == about or (self._rules.strict and one["key"] == key))
            ]
            fits.sort(key=lambda one: (one["about"] != about, one["key"] != key))
        else:
            place = path, item.spec.name, redacted(key), is_effect
            fits = [one for one in self._left if (one["path"], one["step"], one["key"], one["is_effect"]) == place]
            if len(fits) > 1:
                event = redacted(self._codec.event(item.event))
                fits.sort(key=lambda one: one["event"] != event)
        if fits:
            self._left.remove(fits[0])
        return fits[0] if fits else None

    def check_all_made(self) -> None:
        """Note the first effect that the run did not make; those inside of recorded calls are not made."""
        for one in self._left:
            if one["is_effect"] and not one["inside"] and _tool_of(one["key"], one["about"]) is None:
                self._first.note(f"the run did not make the effect {one['key']!r} of step {one['step']}")
                return

    async def _recorded(self, item: WorkItem, found: CaseData, *_: Any) -> Any:
        if self._answers is not None:
            self._answers.leave_out(found["calls"])
        for path, value in found["writes"]:
            await item.context.store.set(path, self._codec.read(value))
        return self._codec.read(found["value"])

    def _refuse(self, step: str, key: str, *_: Any) -> Any:
        words = f"step {step} wants the effect {key!r}, which the case does not hold; effects=True lets it run"
        raise WorkflowRuntimeError(str(self._first.note(words)))


def _is_agent(workflow: Any, tool: str) -> bool:
    tools = known_tools(workflow.__batonflow_team__.all_tools()) if isinstance(workflow, AgentRuns) else ()
    return any(isinstance(one, AgentTool) and one.metadata.get_name() == tool for one in tools)


def _tool_of(key: str, about: Any) -> str | None:
    """Return the name of the tool, for a call of a tool."""
    named = key.startswith("tool ") and isinstance(about, Mapping)
    return cast("Mapping[str, Any]", about).get("tool") if named else None


# --- people -----------------------------------------------------------------------------------------------------------


class _RecordedPeople:
    """Answers the questions of a run with the recorded answers."""

    def __init__(self, data: CaseData, codec: Codec, rules: Rules, first: _First) -> None:
        self._left: list[CaseData] = list(data["answers"])
        self._codec, self._rules, self._first = codec, rules, first

    async def answer_all(self, handler: WorkflowHandler[Any]) -> None:
        """Answer until the run is over or asks something that the case does not hold."""
        waits = 0
        while not handler.is_done():
            await asyncio.sleep(_LOOK_SECONDS)
            waits = waits + 1 if handler.is_waiting else 0
            if waits < 2:  # an answer may be on its way
                continue
            waits = 0
            try:
                answered = self._answer(handler)
            except (InputResponseError, StoreError) as error:
                self._first.note(f"a recorded answer does not fit its question: {error}")
                return
            if not answered:
                asked = ", ".join(_asked(one.event) for one in handler.open_inputs()) or "an event from outside"
                self._first.note(f"the run waits for {asked}, which the case does not hold")
                return

    def _answer(self, handler: WorkflowHandler[Any]) -> bool:
        """Send one answer, if there is one."""
        for request in handler.open_inputs():
            found = next((one for one in self._left if _is_answer(one, request)), None)
            if found is not None:
                self._left.remove(found)
                asked = redacted(self._codec.event(request.event))
                texts = [_comparable_question(one, self._rules.ignore) for one in (found["question"], asked)]
                if self._rules.strict and not isinstance(request.event, ApprovalRequired) and texts[0] != texts[1]:
                    name = type(request.event).__name__
                    self._first.note(f"the question {name} differs", TextDifference(name, *texts))
                self._send(handler, self._codec.read(found["event"]), request)
                return True
            if isinstance(request.event, ApprovalRequired) and not self._rules.strict:
                request.respond(approved=False, reason="this is a trial, in which nobody can approve new calls")
                return True
        loose = next((one for one in self._left if one["question"] is None), None)
        if loose is None:
            return False
        self._left.remove(loose)
        self._send(handler, self._codec.read(loose["event"]), None)
        return True

    def check_all_made(self) -> None:
        """Note the first question that the run did not ask."""
        for one in self._left:
            if one["question"] is not None:
                name, asked = plain_event(one["question"])
                tool = f" of {asked['tool_name']}" if "tool_name" in asked else ""
                self._first.note(f"the run did not ask {name.rpartition('.')[2]}{tool}, which the case answers")
                return

    def _send(self, handler: WorkflowHandler[Any], event: Event, request: InputRequest | None) -> None:
        if request is None or request.response_type is not type(event):
            handler.ctx.send_event(event)
            return
        fields = {name: event[name] for name in event}
        fields |= {name: getattr(event, name) for name in type(event).model_fields}
        request.respond(**{name: value for name, value in fields.items() if name not in request.filled})


def _asked(event: Event) -> str:
    if isinstance(event, ApprovalRequired):
        return f"the approval of {event.tool_name}({json.dumps(redacted(event.arguments), default=repr)})"
    return f"an answer to {type(event).__name__}"


def _comparable_question(data: Any, ignore: Sequence[str]) -> str:
    text = json.dumps(plain_event(data)[1], indent=2, sort_keys=True, ensure_ascii=False)
    for pattern in ignore:
        text = re.sub(pattern, "...", text)
    return text


def _is_answer(answer: CaseData, request: InputRequest) -> bool:
    """Return whether a recorded answer fits a question."""
    if answer["question"] is None or answer["path"] != request.path:
        return False
    name, asked = plain_event(answer["question"])
    event = request.event
    if name.rpartition(".")[2] != type(event).__name__:
        return False
    if not isinstance(event, ApprovalRequired):
        return True
    return (asked["tool_name"], asked["arguments"]) == (event.tool_name, redacted(event.arguments))


# --- the run ----------------------------------------------------------------------------------------------------------


async def run_case(
    name: str,
    data: CaseData,
    workflow: Workflow[Any] | Callable[[], Workflow[Any]],
    rules: Rules,
    store: RunStore,
    run_id: str | None,
    options: Mapping[str, Any],
    source: AnswerSource | None = None,
) -> Done:
    """Run a workflow from the input of a case.

    Args:
        name: The name of the case.
        data: The case.
        workflow: The workflow, or a function that makes it.
        rules: The parts of the run that are real.
        store: The store of the run.
        run_id: The id of the run; None for a new one.
        options: Further options of ``run``.
        source: Answers instead of the models in a run that is not strict.

    Raises:
        CaseDifferenceError: A strict run differs from the case.
        TypeError: ``workflow`` is not a workflow.
    """
    first = _First(name)
    answers = _RecordedAnswers(data, rules.ignore, first) if rules.strict else None
    instead = answers or source
    with nullcontext() if instead is None else answers_from(instead):
        made = workflow if is_workflow(workflow) or not callable(workflow) else workflow()
        if not is_workflow(made):
            raise TypeError(f"replay() takes a workflow, an agent, or a function that makes one, got {made!r}")
        options_of = cast("Any", made).__batonflow__
        begin: Event = Codec.of(options_of).read(data["start"])
        if not options_of.steps.table.route(type(begin)).accepted:
            raise TypeError(
                f"case {name} is of a run of {data['workflow']}, which begins with {type(begin).__name__}; "
                f"{options_of.workflow_name} has no step that accepts it: give the workflow of the case"
            )
        kept = Workflow.with_store(cast("Workflow[Any]", made), store)
        codec = Codec.of(kept.__batonflow__)
        ctx: Context[Any] = Context(kept)
        for path, value in data["state"]:
            await ctx.store.set(path, codec.read(value))
        given: dict[str, Any] = {**options, "start_event": codec.read(data["start"])} | (
            {} if run_id is None else {"run_id": run_id}
        )
        outcomes = _RecordedOutcomes(data, codec, rules, first, answers)
        token = replace_call.set(outcomes)  # the run has a copy
        try:
            handler = kept.run(ctx=ctx, **given)
        finally:
            replace_call.reset(token)
        people = _RecordedPeople(data, codec, rules, first)
        done = await _finish(handler, people, first)
    if not rules.strict:
        return done if first.error is None or done.error is None else Done(done.run_id, error=first.error)
    if first.error is None and answers is not None:
        await _compare(done, data, rules, store, first, [answers, outcomes, people])
    if first.error is not None:
        raise first.error from done.error if not isinstance(done.error, ReplayMissError) else None
    return done


async def _finish(handler: WorkflowHandler[Any], people: _RecordedPeople, first: _First) -> Done:
    """Follow a run to its end, or to its first difference."""
    ended = asyncio.ensure_future(_outcome(handler))
    parts: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(people.answer_all(handler)),
        asyncio.ensure_future(first.found.wait()),
    ]
    try:
        await asyncio.wait([ended, parts[1]], return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            await handler.cancel_run()
        return await ended
    except asyncio.CancelledError:
        await handler.cancel_run()
        raise
    finally:
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)


async def _outcome(handler: WorkflowHandler[Any]) -> Done:
    try:
        return Done(handler.run_id, result=await handler)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - any error of a step is the end of the run
        return Done(handler.run_id, error=error)


async def _compare(
    done: Done,
    data: CaseData,
    rules: Rules,
    store: RunStore,
    first: _First,
    recorded: Sequence[_RecordedAnswers | _RecordedOutcomes | _RecordedPeople],
) -> None:
    """Note the first difference at the end of a run."""
    if done.error is not None:
        first.note(f"the run failed with {type(done.error).__name__}: {redacted(str(done.error))}")
        return
    for part in recorded:
        part.check_all_made()
    info = await store.info(done.run_id)
    if first.error is None and info is not None and info.result is not None:
        results = [data["result"], from_json(info.result).get("event")]
        results = [comparable({"answer": result_of(one)}, rules.ignore)["answer"] for one in results]
        if (difference := result_difference(*results)) is not None:
            first.note("the result differs", difference)
