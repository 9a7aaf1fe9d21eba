"""Forms of ``Context`` that earlier versions documented, kept so that their programs still run."""

from typing import Any, ClassVar

from batonflow.user_warnings import warn_user

__all__ = ["EarlierContext"]


_MISSING: Any = object()


class EarlierContext:
    """``ctx.get``/``ctx.set`` and the deprecated members of the handler's face."""

    store: Any
    _warned: ClassVar[set[str]] = set()

    async def get(self, key: str, default: Any = _MISSING) -> Any:
        """Short for ``ctx.store.get``."""
        return await (self.store.get(key) if default is _MISSING else self.store.get(key, default=default))

    async def set(self, key: str, value: Any) -> None:
        """Short for ``ctx.store.set``."""
        await self.store.set(key, value)

    def warn_earlier(self, text: str) -> None:
        """Say once per process that a form is deprecated."""
        if text not in self._warned:
            self._warned.add(text)
            warn_user(text, DeprecationWarning)

    def get_result(self) -> Any:
        """The result of the finished run; await the handler instead."""
        self.warn_earlier("Context.get_result() is deprecated, await the handler instead")
        run = self._from_handler("get_result")
        return None if run.ending.event is None else run.ending.event.result

    @property
    def streaming_queue(self) -> Any:
        """The stream of the run; use ``handler.stream_events()`` instead."""
        self.warn_earlier("Context.streaming_queue is deprecated, use handler.stream_events()")
        return self._from_handler("streaming_queue").reader()

    def _from_handler(self, name: str) -> Any:
        raise AttributeError(name)
