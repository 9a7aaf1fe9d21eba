"""Drive a run at the terminal until it is over, or until it waits for a person."""

import asyncio
import json
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pydantic import BaseModel

from batonflow.cli.errors import DONE, WAITING, CommandError
from batonflow.cli.output import complain, jsonable, say, say_json
from batonflow.cli.questions import how_to_answer, question_data, question_of
from batonflow.cli.stores import store_option
from batonflow.cli.stream_lines import StreamPrinter, envelope
from batonflow.workflow_core.engine.state import Waiter
from batonflow.workflow_core.errors import StoreError, WorkflowCancelledByUser
from batonflow.workflow_core.events import WorkflowCancelledEvent, WorkflowFailedEvent
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.workflow import Workflow

__all__ = ["RunSession", "result_text"]

_LOOK_SECONDS = 0.05
_END = 2**62


class RunSession:
    """One run, from its start to the exit code of the program.

    Args:
        workflow: The workflow to run.
        given: The command line.
    """

    def __init__(self, workflow: Workflow, given: Namespace) -> None:
        self._workflow = workflow
        self._given = given
        self._store = store_option(workflow.__batonflow__.store)
        self._printer = StreamPrinter()

    async def drive(self, begin: Callable[[], WorkflowHandler]) -> int:
        """Begin the run, follow it, and return the exit code."""
        handler = begin()
        ended = asyncio.create_task(_result_or_error(handler))
        waits = asyncio.create_task(_waits(handler))
        reads = asyncio.create_task(self._read(handler))
        tasks: set[asyncio.Task[Any]] = {ended, waits, reads}
        try:
            # The reader ends last, unless the output is a closed pipe.
            await asyncio.wait({ended, waits}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                await reads
                return self._finish(handler, ended.result())
            if reads.done():
                reads.result()
            return await self._leave_waiting(handler)
        except BaseException as error:
            if not handler.is_done():
                await handler.interrupt()
                if isinstance(error, asyncio.CancelledError):
                    self._report_interrupt(handler)
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, handler: WorkflowHandler) -> None:
        """Print the streamed events; without --stream only the end of the stream is awaited."""
        async for item in handler.subscribe(after=-1 if self._given.stream else _END):
            if self._given.json:
                say_json(envelope(item))
            else:
                self._printer.event(item.event)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _finish(self, handler: WorkflowHandler, outcome: tuple[Any, BaseException | None]) -> int:
        result, error = outcome
        event = handler.get_stop_event()
        self._printer.finish()
        step = event.step_name if isinstance(event, WorkflowFailedEvent) else ""
        if isinstance(error, StoreError) and not step:
            raise error  # the run could not begin, or another process drives it
        status = "completed" if error is None else "failed"
        if isinstance(event, WorkflowCancelledEvent) or isinstance(error, WorkflowCancelledByUser):
            status = "cancelled"
        if self._given.json:
            error_data = None if error is None else {"type": type(error).__name__, "message": str(error)}
            self._document(handler, status, result=jsonable(result), text=result_text(result), error=error_data)
        if error is not None:
            where = f" in step {step}" if step else ""
            ending = "was cancelled" if status == "cancelled" else f"failed{where}: {type(error).__name__}: {error}"
            raise CommandError(f"run {handler.run_id} {ending}") from error
        if not self._given.json:
            text = result_text(result)
            if text and text.strip() != self._printer.last_speech.strip():
                say(text)
        return DONE

    async def _leave_waiting(self, handler: WorkflowHandler) -> int:
        """Leave a run that waits for a person to its store, and print how to answer."""
        questions = [question_of(request) for request in handler.open_inputs()]
        awaited = sorted({waiter.event_type.__name__ for waiter in _waiters(handler)}) or ["HumanResponseEvent"]
        self._printer.finish()
        await handler.interrupt()
        if self._given.json:
            waiting = [question_data(question) for question in questions]
            self._document(handler, "waiting", waiting=waiting, awaits=awaited)
            return WAITING
        run_id = handler.run_id
        say(f"{run_id} waits for {'a person' if questions else ' or '.join(awaited)}")
        for question in questions:
            say(f"  {question.name}: {question.in_words}")
        if not self._store:
            say("The run has no store and is lost now: give it one with --store FILE, or use `batonflow chat`.")
            return WAITING
        if questions:
            for line in how_to_answer(run_id, questions, self._store):
                say(f"  {line}")
        say(f"and then\n  batonflow resume {self._given.object} {run_id} {self._store}")
        return WAITING

    def _report_interrupt(self, handler: WorkflowHandler) -> None:
        self._printer.finish()
        if self._store:
            line = f"batonflow resume {self._given.object} {handler.run_id} {self._store}"
            complain(f"interrupted; continue the run with: {line}")
        else:
            complain("interrupted")

    def _document(self, handler: WorkflowHandler, status: str, **more: Any) -> None:
        head = {"run_id": handler.run_id, "workflow": self._workflow.__batonflow__.workflow_name, "status": status}
        say_json({**head, **more})


async def _result_or_error(handler: WorkflowHandler) -> tuple[Any, BaseException | None]:
    try:
        return await handler, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - any exception of a step ends the run
        return None, error


async def _waits(handler: WorkflowHandler) -> None:
    seen = 0
    with suppress(StoreError):
        await handler.started()
        while seen < 2:  # twice, because an answer may be arriving from the store
            await asyncio.sleep(_LOOK_SECONDS)
            seen = seen + 1 if handler.is_waiting and _needs_event(handler) else 0
        return
    await asyncio.Future()  # the run cannot begin; its handler raises the error


def _needs_event(handler: WorkflowHandler) -> bool:
    waiters = _waiters(handler)
    return bool(handler.open_inputs()) or not waiters or any(waiter.due is None for waiter in waiters)


def _waiters(handler: WorkflowHandler) -> list[Waiter]:
    run = handler.ctx.run
    return [] if run is None else [waiter for inner in run.inside() for waiter in inner.state.waiters]


def result_text(result: Any) -> str:
    """Return the result of a run as text for people."""
    if result is None:
        return ""
    if isinstance(result, dict | list | tuple) or (
        isinstance(result, BaseModel) and type(result).__str__ is BaseModel.__str__
    ):
        return json.dumps(jsonable(result), indent=2, ensure_ascii=False)
    return str(result)
