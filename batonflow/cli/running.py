"""``run`` and ``resume``: a run is driven until it is over, or until only a person can help it on."""

import asyncio
import json
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from pydantic import BaseModel

from batonflow.cli.answering import how_to_answer, question_data
from batonflow.cli.errors import DONE, FAILED, USAGE, WAITING, CommandError
from batonflow.cli.objects import workflow_at
from batonflow.cli.output import complain, jsonable, say, say_json
from batonflow.cli.questions import APPROVAL, Question
from batonflow.cli.stores import checked_run_id, store_option, the_run, with_store
from batonflow.cli.telling import Teller, envelope
from batonflow.cli.values import fields_of, json_or_text
from batonflow.values.names import qualified_name
from batonflow.workflow_core.answer_fields import answer_fields
from batonflow.workflow_core.engine.state import Waiter
from batonflow.workflow_core.errors import (
    RunInputMismatchError,
    StoreError,
    WorkflowCancelledByUser,
    WorkflowRuntimeError,
)
from batonflow.workflow_core.events import WorkflowCancelledEvent, WorkflowFailedEvent
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.inputs import InputRequest
from batonflow.workflow_core.stored_runs import StoredRuns
from batonflow.workflow_core.workflow import Workflow

__all__ = ["fork", "question_of", "resume", "run", "told_result"]

_LOOK_SECONDS = 0.05
_END = 2**62


def run(given: Namespace) -> int:
    """Run a workflow or an agent."""
    workflow = with_store(workflow_at(given.object), given)
    fields = fields_of(workflow, given)
    if given.run_id == "":
        raise CommandError("--run-id is empty: name the run, or leave it out", USAGE)
    if given.run_id is not None and workflow.__batonflow__.store is not None:
        checked_run_id(given.run_id)
    options = {} if given.run_id is None else {"run_id": given.run_id}
    return asyncio.run(_Driving(workflow, given).drive(lambda: workflow.run(**options, **fields)))


def resume(given: Namespace) -> int:
    """Go on with a run of a store."""
    workflow = with_store(workflow_at(given.object), given, needed=True)
    return asyncio.run(_resumed(workflow, given))


def fork(given: Namespace) -> int:
    """Begin a run that shares what another one did, and go on with it."""
    workflow = with_store(workflow_at(given.object), given, needed=True)
    state: dict[str, Any] = {}
    for word in given.state:
        path, sign, value = word.partition("=")
        if not path or not sign:
            raise CommandError(f"--state {word!r} is not PATH=JSON, as in --state state.topic='\"moons\"'", USAGE)
        state[path] = json_or_text(value)
    new_id = None if given.run_id is None else checked_run_id(given.run_id)
    return asyncio.run(_forked(workflow, given, state, new_id))


async def _forked(workflow: Workflow, given: Namespace, state: dict[str, Any], new_id: str | None) -> int:
    assert workflow.__batonflow__.store is not None
    await the_run(workflow.__batonflow__.store, given.run)

    handler = StoredRuns.fork(workflow, given.run, given.at, state=state, new_id=new_id)
    try:
        await handler.started()
    except (StoreError, WorkflowRuntimeError) as error:
        # The id, the commit or the state cannot be; else the store fails, or the code does not fit.
        is_misuse = type(error) in {StoreError, RunInputMismatchError, WorkflowRuntimeError} and not error.__cause__
        raise CommandError(str(error), USAGE if is_misuse else FAILED) from error
    if not given.json:
        complain(f"run {handler.run_id} branches off from {given.run} at commit {given.at}")
    return await _Driving(workflow, given).drive(lambda: handler)


async def _resumed(workflow: Workflow, given: Namespace) -> int:
    assert workflow.__batonflow__.store is not None
    await the_run(workflow.__batonflow__.store, given.run)
    return await _Driving(workflow, given).drive(lambda: StoredRuns.resume(workflow, given.run))


class _Driving:
    """One run, from its start to what the program ends with.

    Args:
        workflow: What runs.
        given: The command line.
    """

    def __init__(self, workflow: Workflow, given: Namespace) -> None:
        self._workflow = workflow
        self._given = given
        self._store = store_option(workflow.__batonflow__.store)
        self._teller = Teller()

    async def drive(self, begin: Callable[[], WorkflowHandler]) -> int:
        """Begin, and see it through; returns the exit code."""
        handler = begin()
        ended = asyncio.create_task(_ended(handler))
        waits = asyncio.create_task(_waits(handler))
        reads = asyncio.create_task(self._read(handler))
        tasks: set[asyncio.Task[Any]] = {ended, waits, reads}
        try:
            # The reader ends last, unless whoever reads the output has gone.
            await asyncio.wait({ended, waits}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                await reads
                return self._over(handler, ended.result())
            if reads.done():
                reads.result()
            return await self._stand_still(handler)
        except BaseException as error:
            if not handler.is_done():
                await handler.interrupt()
                if isinstance(error, asyncio.CancelledError):
                    self._tell_interrupted(handler)
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, handler: WorkflowHandler) -> None:
        """Print what is streamed, if that is asked for."""
        async for item in handler.subscribe(after=-1 if self._given.stream else _END):
            if self._given.json:
                say_json(envelope(item))
            else:
                self._teller.event(item.event)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _over(self, handler: WorkflowHandler, outcome: tuple[Any, BaseException | None]) -> int:
        result, error = outcome
        event = handler.get_stop_event()
        self._teller.finish()
        step = event.step_name if isinstance(event, WorkflowFailedEvent) else ""
        if isinstance(error, StoreError) and not step:
            raise error  # it did not fail: it could not begin, or another process has it
        status = "completed" if error is None else "failed"
        if isinstance(event, WorkflowCancelledEvent) or isinstance(error, WorkflowCancelledByUser):
            status = "cancelled"
        if self._given.json:
            told = None if error is None else {"type": type(error).__name__, "message": str(error)}
            self._document(handler, status, result=jsonable(result), text=told_result(result), error=told)
        if error is not None:
            where = f" in step {step}" if step else ""
            what = "was cancelled" if status == "cancelled" else f"failed{where}: {type(error).__name__}: {error}"
            raise CommandError(f"run {handler.run_id} {what}") from error
        if not self._given.json:
            text = told_result(result)
            if text and text.strip() != self._teller.last_speech.strip():
                say(text)
        return DONE

    async def _stand_still(self, handler: WorkflowHandler) -> int:
        """Only a person can help the run on: say how, and leave it to its store."""
        questions = [question_of(request) for request in handler.open_inputs()]
        awaited = sorted({waiter.event_type.__name__ for waiter in _waiters(handler)}) or ["HumanResponseEvent"]
        self._teller.finish()
        await handler.interrupt()
        if self._given.json:
            told = [question_data(question) for question in questions]
            self._document(handler, "waiting", waiting=told, awaits=awaited)
            return WAITING
        run_id = handler.run_id
        say(f"{run_id} waits for {'a person' if questions else ' or '.join(awaited)}")
        for question in questions:
            say(f"  {question.name}: {question.in_words}")
        if not self._store:
            say("Without a store its end here is its end: give it one with --store FILE, or use `batonflow chat`.")
            return WAITING
        if questions:
            for line in how_to_answer(run_id, questions, self._store):
                say(f"  {line}")
        say(f"and then\n  batonflow resume {self._given.object} {run_id} {self._store}")
        return WAITING

    def _tell_interrupted(self, handler: WorkflowHandler) -> None:
        self._teller.finish()
        if self._store:
            line = f"batonflow resume {self._given.object} {handler.run_id} {self._store}"
            complain(f"interrupted; the run goes on with: {line}")
        else:
            complain("interrupted")

    def _document(self, handler: WorkflowHandler, status: str, **more: Any) -> None:
        head = {"run_id": handler.run_id, "workflow": self._workflow.__batonflow__.workflow_name, "status": status}
        say_json({**head, **more})


async def _ended(handler: WorkflowHandler) -> tuple[Any, BaseException | None]:
    """The result of a run, or what it failed with."""
    try:
        return await handler, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - a step may have raised anything, and all of it ends a run
        return None, error


async def _waits(handler: WorkflowHandler) -> None:
    """Return when only somebody outside can help the run on."""
    seen = 0
    with suppress(StoreError):
        await handler.started()
        while seen < 2:  # once more, as an answer may be on its way from the store
            await asyncio.sleep(_LOOK_SECONDS)
            seen = seen + 1 if handler.is_waiting and _nothing_else(handler) else 0
        return
    await asyncio.Future()  # it cannot begin, which its handler tells


def _nothing_else(handler: WorkflowHandler) -> bool:
    """Whether it is not just a timer that the run waits for."""
    waiters = _waiters(handler)
    return bool(handler.open_inputs()) or not waiters or any(waiter.due is None for waiter in waiters)


def _waiters(handler: WorkflowHandler) -> list[Waiter]:
    """What the steps of a run, and of those inside it, wait for."""
    run = handler.ctx.run
    return [] if run is None else [waiter for inner in run.inside() for waiter in inner.state.waiters]


def question_of(request: InputRequest) -> Question:
    """An open request of a run in this process, as those of records are told."""
    filled = cast("dict[str, Any]", jsonable(request.filled))
    awaits = qualified_name(request.response_type)
    return Question(
        id=request.id,
        name=str(filled.get("id", request.id)) if awaits == APPROVAL else request.id,
        record=0,
        asked=(type(request.event).__name__, cast("dict[str, Any]", jsonable(request.event))),
        awaits=awaits,
        requirements=filled,
        fields=answer_fields(request.response_type),
    )


def told_result(result: Any) -> str:
    """The result of a run for people."""
    if result is None:
        return ""
    if isinstance(result, dict | list | tuple) or (
        isinstance(result, BaseModel) and type(result).__str__ is BaseModel.__str__
    ):
        return json.dumps(jsonable(result), indent=2, ensure_ascii=False)
    return str(result)
