"""Dispatchers: a tree of named reporters, like the loggers of ``logging``."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence
from types import EllipsisType, TracebackType
from typing import Any, SupportsIndex, TypeVar, cast, overload
from weakref import WeakValueDictionary

from batonflow.clock import current_source
from batonflow.instrumentation.context import active_instrument_tags, active_span_id, instrument_tags
from batonflow.instrumentation.events.base import BaseEvent, SpanDropEvent
from batonflow.instrumentation.handlers import BaseEventHandler, BaseSpanHandler, NullEventHandler, NullSpanHandler
from batonflow.instrumentation.logs import logger_named
from batonflow.instrumentation.traced import DISPATCHER_SPAN_DECORATED_ATTR, NO_ARGUMENTS, trace
from batonflow.user_warnings import warn_user

__all__ = [
    "Dispatcher",
    "DispatcherSpanMixin",
    "Manager",
    "active_instrument_tags",
    "get_dispatcher",
    "instrument_tags",
]

_logger = logger_named("batonflow.workflow")


_F = TypeVar("_F", bound=Callable[..., Any])
_H = TypeVar("_H")

_TAGS_KEY = "instrument_tags"
_SPAN_KEY = "active_span_id"

# Handlers with a logged failure. The references are weak, so that a removed handler can be collected.
_reported: WeakValueDictionary[int, Any] = WeakValueDictionary()


class _Boundary:
    """Stop an exception of a handler, so that a broken handler does not break the run.

    Only the first failure of a handler is logged.
    """

    __slots__ = ("_handler", "_method")

    def __init__(self, handler: Any, method: str) -> None:
        self._handler = handler
        self._method = method

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, where: TracebackType | None
    ) -> bool:
        if not isinstance(err, Exception):
            return False
        handler = self._handler
        if _reported.get(id(handler)) is not handler:
            _reported[id(handler)] = handler
            _logger.error(
                "%s failed in %s; its further failures are not logged",
                type(handler).__name__,
                self._method,
                exc_info=err,
            )
        return True


class _Handlers(MutableSequence[_H]):
    """A list that notifies its dispatcher of changes, so that a call does not look for handlers."""

    def __init__(self, handlers: Iterable[_H], changed: Callable[[], None]) -> None:
        self._handlers = list(handlers)
        self._changed = changed

    def __len__(self) -> int:
        return len(self._handlers)

    @overload
    def __getitem__(self, index: SupportsIndex) -> _H: ...
    @overload
    def __getitem__(self, index: slice) -> list[_H]: ...
    def __getitem__(self, index: Any) -> Any:
        return cast("Any", self._handlers[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._handlers[index] = value
        self._changed()

    def __delitem__(self, index: Any) -> None:
        del self._handlers[index]
        self._changed()

    def insert(self, index: int, value: _H) -> None:
        self._handlers.insert(index, value)
        self._changed()

    def __eq__(self, other: object) -> bool:
        return list(self) == list(cast("Iterable[_H]", other)) if isinstance(other, MutableSequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._handlers)


class Dispatcher:
    """Report events and spans to its own handlers, then to the handlers of its parents.

    Get one with :func:`get_dispatcher`. Safe to use from any task and thread.

    Args:
        name: Dotted name; its place in the tree.
        event_handlers: The first event handlers.
        span_handlers: The first span handlers.
        manager: The tree it belongs to, None for a dispatcher without a tree.
        propagate: Whether to report to the handlers of the parents too.

    Attributes:
        enabled: Whether there is any handler, here or above. It is updated when handlers change, so that reading it
            costs one attribute access.
        tells_pieces: Whether an event handler receives the chunks of streamed responses.
        tells_arguments: Whether a span handler receives the arguments of spans.
    """

    def __init__(
        self,
        name: str = "",
        event_handlers: Iterable[BaseEventHandler] = (),
        span_handlers: Iterable[BaseSpanHandler[Any]] = (),
        manager: "Manager | None" = None,
        propagate: bool = True,
    ) -> None:
        self.name = name
        self.manager = manager
        self.enabled = False
        self.tells_pieces = False
        self.tells_arguments = False
        self._propagate = propagate
        self._event_chain: tuple[BaseEventHandler, ...] = ()
        self._span_chain: tuple[BaseSpanHandler[Any], ...] = ()
        self._event_handlers = _Handlers(event_handlers, self._changed)
        self._span_handlers = _Handlers(span_handlers, self._changed)
        self.refresh()

    def __repr__(self) -> str:
        return f"<Dispatcher {self.name!r}{'' if self.enabled else ', no handlers'}>"

    @property
    def event_handlers(self) -> MutableSequence[BaseEventHandler]:
        """The event handlers added here, as a list that can be changed in place."""
        return self._event_handlers

    @event_handlers.setter
    def event_handlers(self, handlers: Iterable[BaseEventHandler]) -> None:
        self._event_handlers = _Handlers(list(handlers), self._changed)
        self._changed()

    @property
    def span_handlers(self) -> MutableSequence[BaseSpanHandler[Any]]:
        """The span handlers added here, as a list that can be changed in place."""
        return self._span_handlers

    @span_handlers.setter
    def span_handlers(self, handlers: Iterable[BaseSpanHandler[Any]]) -> None:
        self._span_handlers = _Handlers(list(handlers), self._changed)
        self._changed()

    @property
    def propagate(self) -> bool:
        """Return whether events and spans are also reported to the handlers of the parents."""
        return self._propagate

    @propagate.setter
    def propagate(self, value: bool) -> None:
        self._propagate = value
        self._changed()

    @property
    def parent(self) -> "Dispatcher | None":
        """The nearest dispatcher above by dotted name, then the root; None for the root itself."""
        return None if self.manager is None else self.manager.parent_of(self)

    @property
    def parent_name(self) -> str:
        """The name of :attr:`parent`, empty for the root."""
        parent = self.parent
        return "" if parent is None else parent.name

    @property
    def root(self) -> "Dispatcher":
        """The root of the tree."""
        return self if self.manager is None else self.manager.root

    @property
    def root_name(self) -> str:
        """The name of :attr:`root`."""
        return self.root.name

    @property
    def log_name(self) -> str:
        """The name for log lines: the parent's name, then its own."""
        parent = self.parent
        return self.name if parent is None else f"{parent.name}.{self.name}"

    def add_event_handler(self, handler: BaseEventHandler) -> None:
        """Report the events of this dispatcher and of its children to ``handler``."""
        self._event_handlers.append(handler)

    def add_span_handler(self, handler: BaseSpanHandler[Any]) -> None:
        """Report the spans of this dispatcher and of its children to ``handler``."""
        self._span_handlers.append(handler)

    def _changed(self) -> None:
        if self.manager is None:
            self.refresh()
        else:
            self.manager.refresh()

    def _with_ancestors(self) -> "Iterator[Dispatcher]":
        here: Dispatcher | None = self
        while here is not None:
            yield here
            here = here.parent if here.propagate else None

    def refresh(self) -> None:
        """Collect the handlers again, after a change of handlers, ``propagate`` or the tree."""
        heard_by = list(self._with_ancestors())
        # The tuples are replaced, never edited: a thread that is reporting keeps the tuple it started with.
        self._event_chain = tuple(
            handler for one in heard_by for handler in one.event_handlers if type(handler) is not NullEventHandler
        )
        self._span_chain = tuple(
            handler for one in heard_by for handler in one.span_handlers if type(handler) is not NullSpanHandler
        )
        self.enabled = bool(self._event_chain or self._span_chain)
        self.tells_pieces = any(getattr(handler, "hears_pieces", True) for handler in self._event_chain)
        self.tells_arguments = any(getattr(handler, "hears_arguments", True) for handler in self._span_chain)

    def event(self, event: BaseEvent, **kwargs: Any) -> None:
        """Report ``event``; ``kwargs`` are passed to the handlers.

        Example:
            >>> get_dispatcher(__name__).event(MyEvent(what="it"))
        """
        if not self._event_chain:
            return
        event.tags.update(active_instrument_tags.get())
        for handler in self._event_chain:
            with _Boundary(handler, "handle"):
                handler.handle(event, **kwargs)

    def get_dispatch_event(self) -> Callable[..., None]:
        """Return :meth:`event`. Deprecated: call :meth:`event` instead."""
        text = "Dispatcher.get_dispatch_event() is deprecated, use event()"
        warn_user(text, DeprecationWarning)
        return self.event

    async def aevent(self, event: BaseEvent, **kwargs: Any) -> None:
        """Report ``event`` to ``ahandle`` of all handlers concurrently, and wait for them."""
        if not self._event_chain:
            return
        event.tags.update(active_instrument_tags.get())

        async def report(handler: BaseEventHandler) -> None:
            with _Boundary(handler, "ahandle"):
                await handler.ahandle(event, **kwargs)

        await asyncio.gather(*(report(handler) for handler in self._event_chain))

    def span_enter(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        parent_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Report the start of span ``id_`` to the span handlers; see :meth:`open_span` for the short form."""
        for handler in self._span_chain:
            with _Boundary(handler, "span_enter"):
                handler.span_enter(
                    id_=id_, bound_args=bound_args, instance=instance, parent_id=parent_id, tags=tags, **kwargs
                )

    def span_exit(
        self, id_: str, bound_args: inspect.BoundArguments, instance: Any = None, result: Any = None, **kwargs: Any
    ) -> None:
        """Report the end of span ``id_`` with ``result`` to the span handlers."""
        for handler in self._span_chain:
            with _Boundary(handler, "span_exit"):
                handler.span_exit(id_=id_, bound_args=bound_args, instance=instance, result=result, **kwargs)

    def span_drop(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        """Report the failure of span ``id_`` with ``err`` to the span handlers."""
        for handler in self._span_chain:
            with _Boundary(handler, "span_drop"):
                handler.span_drop(id_=id_, bound_args=bound_args, instance=instance, err=err, **kwargs)

    def open_span(
        self,
        name: str,
        *,
        instance: Any = None,
        bound_args: inspect.BoundArguments | None = None,
        tags: dict[str, Any] | None = None,
        parent_id: str | EllipsisType | None = ...,
    ) -> str:
        """Open a span. It becomes the parent of other spans only if the caller sets ``active_span_id``.

        Args:
                name: The name of the work; the id is ``"<name>-<token>"``.
                instance: The object that does the work.
                bound_args: The arguments of the work.
                tags: Tags of this span, added to the active tags.
                parent_id: The enclosing span. The default is the active span; None makes a root.

        Returns:
            The id, for :meth:`close_span` or :meth:`fail_span`.

        Example:
            >>> span_id = dispatcher.open_span("Index.load", instance=index)
            >>> dispatcher.close_span(span_id, result=None)
        """
        span_id = f"{name}-{current_source().token()}"
        parent = active_span_id.get() if isinstance(parent_id, EllipsisType) else parent_id
        in_force = active_instrument_tags.get()
        if tags:
            in_force.update(tags)
        self.span_enter(
            id_=span_id, bound_args=bound_args or NO_ARGUMENTS, instance=instance, parent_id=parent, tags=in_force
        )
        return span_id

    def tag_span(self, span_id: str, tags: Mapping[str, Any]) -> None:
        """Add tags to an open span."""
        for handler in self._span_chain:
            span = handler.open_spans.get(span_id)
            if span is not None:
                span.tags.update(tags)

    def close_span(
        self, span_id: str, result: Any = None, instance: Any = None, bound_args: inspect.BoundArguments | None = None
    ) -> None:
        """Close a span that :meth:`open_span` opened."""
        self.span_exit(id_=span_id, bound_args=bound_args or NO_ARGUMENTS, instance=instance, result=result)

    def fail_span(
        self, span_id: str, err: BaseException, instance: Any = None, bound_args: inspect.BoundArguments | None = None
    ) -> None:
        """Close a span with an error: report a SpanDropEvent, then drop the span."""
        if self._event_chain:
            self.event(SpanDropEvent(span_id=span_id, err_str=str(err)))
        self.span_drop(id_=span_id, bound_args=bound_args or NO_ARGUMENTS, instance=instance, err=err)

    def span(self, func: _F) -> _F:
        """Decorate ``func`` so that every call is a span: functions and generators, both sync and async.

        The span of a generator lasts from its first item to its end, and contains the code of the generator only, not
        the code of its consumer. A function that returns an ``asyncio.Future`` ends with the future. Decorating twice
        has no effect. Without handlers a call costs one truth test.

        Example:
            >>> @get_dispatcher(__name__).span
            ... async def fetch(url: str) -> bytes: ...
        """
        return trace(self, func)

    def carrier(self) -> dict[str, Any]:
        """Return the data of the handlers with which another process links its trace to this one."""
        captured: dict[str, Any] = {}
        for handler in self._span_chain:
            with _Boundary(handler, "capture_propagation_context"):
                captured.update(handler.capture_propagation_context())
        return captured

    def capture_propagation_context(self) -> dict[str, Any]:
        """Return the data with which another process continues this trace."""
        captured = self.carrier()
        span_id = active_span_id.get()
        if span_id is not None:
            captured[_SPAN_KEY] = span_id
        tags = active_instrument_tags.get()
        if tags:
            captured[_TAGS_KEY] = tags
        return captured

    def restore_propagation_context(self, context: dict[str, Any]) -> None:
        """Continue the trace of :meth:`capture_propagation_context` in the running context."""
        for handler in self._span_chain:
            with _Boundary(handler, "restore_propagation_context"):
                handler.restore_propagation_context(context)
        if context.get(_SPAN_KEY) is not None:
            active_span_id.set(str(context[_SPAN_KEY]))
        if context.get(_TAGS_KEY):
            active_instrument_tags.set(dict(context[_TAGS_KEY]))

    def shutdown(self) -> None:
        """Drop every open span of the handlers, and close the handlers."""
        err = RuntimeError("dispatcher shutdown")
        for handler in self._span_chain:
            with _Boundary(handler, "shutdown"):
                for span_id in list(handler.open_spans):
                    handler.span_drop(id_=span_id, bound_args=NO_ARGUMENTS, instance=None, err=err)
                handler.close()


class Manager:
    """The tree of dispatchers by name.

    Args:
        root: The dispatcher above all others.
    """

    def __init__(self, root: Dispatcher) -> None:
        self.root = root
        self.dispatchers: dict[str, Dispatcher] = {root.name: root}
        self._lock = threading.RLock()
        root.manager = self

    def parent_of(self, dispatcher: Dispatcher) -> Dispatcher | None:
        """Return the nearest existing dispatcher above ``dispatcher``."""
        if dispatcher is self.root:
            return None
        name = dispatcher.name
        while "." in name:
            name = name.rpartition(".")[0]
            if name in self.dispatchers:
                return self.dispatchers[name]
        return self.root

    def add_dispatcher(self, dispatcher: Dispatcher) -> None:
        """Add ``dispatcher`` to the tree, unless its name is taken."""
        with self._lock:
            if dispatcher.name in self.dispatchers:
                return
            dispatcher.manager = self
            self.dispatchers[dispatcher.name] = dispatcher
            dispatcher.refresh()
            # A dispatcher may be created after its children, which now have a nearer parent.
            for name, other in self.dispatchers.items():
                if name.startswith(f"{dispatcher.name}."):
                    other.refresh()

    def get(self, name: str) -> Dispatcher:
        """Return the dispatcher with the name ``name``; create it if needed."""
        found = self.dispatchers.get(name)
        if found is None:
            with self._lock:
                self.add_dispatcher(Dispatcher(name=name, manager=self))
                found = self.dispatchers[name]
        return found

    def refresh(self) -> None:
        """Collect the handlers of all dispatchers again."""
        with self._lock:
            for dispatcher in self.dispatchers.values():
                dispatcher.refresh()


root_dispatcher = Dispatcher(
    name="root", event_handlers=[NullEventHandler()], span_handlers=[NullSpanHandler()], propagate=False
)
root_manager = Manager(root_dispatcher)


def get_dispatcher(name: str = "root") -> Dispatcher:
    """Return the dispatcher with the name ``name``: the same object for the same name.

    Args:
        name: Dotted, usually ``__name__``. The default is the root dispatcher.

    Example:
        >>> dispatcher = get_dispatcher(__name__)
        >>> dispatcher.event(MyEvent())
    """
    return root_manager.get(name)


class DispatcherSpanMixin:
    """Trace the methods of subclasses that override an abstract or a traced method."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        inherited: set[str] = set()
        for base in cls.__mro__[1:]:
            for name, member in vars(base).items():
                if getattr(member, "__isabstractmethod__", False) or hasattr(member, DISPATCHER_SPAN_DECORATED_ATTR):
                    inherited.add(name)
        dispatcher = get_dispatcher(cls.__module__)
        for name, member in list(vars(cls).items()):
            if name in inherited and inspect.isfunction(member) and not getattr(member, "__isabstractmethod__", False):
                setattr(cls, name, dispatcher.span(member))
