"""Forms of ``Context`` and of the handler that earlier versions documented, kept so that their programs still run."""

from typing import Any

from batonflow.user_warnings import warn_user
from batonflow.workflow_core.errors import WorkflowCancelledByUser, WorkflowRuntimeError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.run import Run

__all__ = ["EarlierContext", "EarlierHandler", "warn_earlier"]


_MISSING: Any = object()


_warned: set[str] = set()


def warn_earlier(text: str) -> None:
    """Say once per process that a form is deprecated."""
    if text not in _warned:
        _warned.add(text)
        warn_user(text, DeprecationWarning)


class EarlierContext:
    """``ctx.get``/``ctx.set`` and the deprecated members of the handler's face."""

    store: Any

    async def get(self, key: str, default: Any = _MISSING) -> Any:
        """Short for ``ctx.store.get``."""
        return await (self.store.get(key) if default is _MISSING else self.store.get(key, default=default))

    async def set(self, key: str, value: Any) -> None:
        """Short for ``ctx.store.set``."""
        await self.store.set(key, value)

    def get_result(self) -> Any:
        """The result of the finished run; await the handler instead."""
        warn_earlier("Context.get_result() is deprecated, await the handler instead")
        run = self._from_handler("get_result")
        return None if run.ending.event is None else run.ending.event.result

    @property
    def streaming_queue(self) -> Any:
        """The stream of the run; use ``handler.stream_events()`` instead."""
        warn_earlier("Context.streaming_queue is deprecated, use handler.stream_events()")
        return self._from_handler("streaming_queue").reader()

    def _from_handler(self, name: str) -> Any:
        raise AttributeError(name)


class EarlierHandler:
    """``done``, ``cancel``, ``exception``, ``cancelled``, ``result`` and ``run_step``."""

    __slots__ = ()

    _run: Run
    _was_cancelled: bool

    def done(self) -> bool:
        """Tell whether the run is over; use ``is_done()``."""
        warn_earlier("WorkflowHandler.done() is deprecated, use is_done()")
        return self._run.ending.resolved

    def cancel(self) -> None:
        """Cancel the run without waiting, after which awaiting this handler raises ``asyncio.CancelledError``.

        Use ``await cancel_run()``.
        """
        warn_earlier("WorkflowHandler.cancel() is deprecated, use await cancel_run()")
        self._was_cancelled = True
        self._run.on_loop(self._run.ending.cancel)

    def cancelled(self) -> bool:
        """Tell whether the run was cancelled; await the handler instead."""
        warn_earlier("WorkflowHandler.cancelled() is deprecated, use await and catch WorkflowCancelledByUser")
        return isinstance(self._run.ending.error, WorkflowCancelledByUser)

    def exception(self) -> BaseException | None:
        """The error that ended the run; await the handler instead."""
        warn_earlier("WorkflowHandler.exception() is deprecated, use await and catch")
        return self._run.ending.error

    async def run_step(self) -> list[Event] | None:
        """With ``run(stepwise=True)``: run the next step and return the events it produced, None at the end.

        The caller sends the events on with ``handler.ctx.send_event``.
        """
        take_step: Any = getattr(self._run, "take_step", None)
        if take_step is None:
            raise WorkflowRuntimeError("run_step() needs a run started with run(stepwise=True)")
        return await take_step()
