"""Members of ``Context`` and of the handler from earlier versions, for programs that use them."""

from typing import Any

from batonflow.user_warnings import warn_user
from batonflow.workflow_core.errors import WorkflowCancelledByUser, WorkflowRuntimeError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.run import Run

__all__ = ["EarlierContext", "EarlierHandler", "warn_earlier"]

_MISSING: Any = object()
_warned: set[str] = set()


def warn_earlier(text: str) -> None:
    """Warn once per process of a deprecated member."""
    if text not in _warned:
        _warned.add(text)
        warn_user(text, DeprecationWarning)


class EarlierContext:
    """``ctx.get``, ``ctx.set`` and the deprecated members of a handler's context."""

    store: Any

    async def get(self, key: str, default: Any = _MISSING) -> Any:
        """Return ``ctx.store.get(...)``."""
        return await (self.store.get(key) if default is _MISSING else self.store.get(key, default=default))

    async def set(self, key: str, value: Any) -> None:
        """Call ``ctx.store.set(...)``."""
        await self.store.set(key, value)

    def get_result(self) -> Any:
        """Return the result of the finished run. Deprecated: await the handler."""
        warn_earlier("Context.get_result() is deprecated, await the handler instead")
        run = self._from_handler("get_result")
        return None if run.ending.event is None else run.ending.event.result

    @property
    def streaming_queue(self) -> Any:
        """Return the stream of the run. Deprecated: use ``handler.stream_events()``."""
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
        """Tell whether the run is over. Deprecated: use ``is_done()``."""
        warn_earlier("WorkflowHandler.done() is deprecated, use is_done()")
        return self._run.ending.resolved

    def cancel(self) -> None:
        """Cancel the run without waiting. Awaiting this handler then raises ``asyncio.CancelledError``.

        Deprecated: use ``await cancel_run()``.
        """
        warn_earlier("WorkflowHandler.cancel() is deprecated, use await cancel_run()")
        self._was_cancelled = True
        self._run.on_loop(self._run.ending.cancel)

    def cancelled(self) -> bool:
        """Tell whether the run was cancelled. Deprecated: await the handler."""
        warn_earlier("WorkflowHandler.cancelled() is deprecated, use await and catch WorkflowCancelledByUser")
        return isinstance(self._run.ending.error, WorkflowCancelledByUser)

    def exception(self) -> BaseException | None:
        """Return the error that ended the run. Deprecated: await the handler."""
        warn_earlier("WorkflowHandler.exception() is deprecated, use await and catch")
        return self._run.ending.error

    async def run_step(self) -> list[Event] | None:
        """Run the next step of ``run(stepwise=True)`` and return the events it produced; None at the end.

        The caller sends the events on with ``handler.ctx.send_event``.
        """
        take_step: Any = getattr(self._run, "take_step", None)
        if take_step is None:
            raise WorkflowRuntimeError("run_step() needs a run started with run(stepwise=True)")
        return await take_step()
