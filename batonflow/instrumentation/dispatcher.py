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
    "PROPAGATION_KEYS",
    "Dispatcher",
    "DispatcherSpanMixin",
    "Manager",
    "active_instrument_tags",
    "get_dispatcher",
    "instrument_tags",
]

_logger = logger_named(__name__)


_F = TypeVar("_F", bound=Callable[..., Any])
_H = TypeVar("_H")

_TAGS_KEY = "instrument_tags"
_SPAN_KEY = "active_span_id"

PROPAGATION_KEYS = frozenset({_TAGS_KEY, _SPAN_KEY})
"""What a dispatcher itself captures; everything else is its handlers'."""

# Handlers whose failure has been logged; weak, so that a handler that is taken away can go.
_reported: WeakValueDictionary[int, Any] = WeakValueDictionary()


class _Boundary:
    """Runs one call of a handler: what it raises stops here, and is logged the first time only.

    A broken handler must neither break the run nor fill its log.
    """

    __slots__ = ("_handler", "_what")

    def __init__(self, handler: Any, what: str) -> None:
        self._handler = handler
        self._what = what

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
                "%s failed in %s; its further failures are not logged", type(handler).__name__, self._what, exc_info=err
            )
        return True


class _Handlers(MutableSequence[_H]):
    """A list that tells its dispatcher when it changes, so that "is anybody listening?" is never computed on a call."""

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
    """Tells handlers about events and spans: its own, then those of its parents as far as ``propagate`` reaches.

    Get one with :func:`get_dispatcher`. Safe to use from any task and thread.

    Args:
        name: Dotted name; its place in the tree.
        event_handlers: The first event handlers.
        span_handlers: The first span handlers.
        manager: The tree it belongs to, None for one that stands alone.
        propagate: Whether the parents' handlers hear too.

    Attributes:
        enabled: Whether any handler, here or above, listens at all. Kept up to date when handlers change, so reading it
            costs one attribute access; the engine tests it on every hop.
        tells_pieces: Whether an event handler wants to hear of each piece of an answer.
        tells_arguments: Whether a span handler wants to hear what the work of a span was given.
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
        return f"<Dispatcher {self.name!r}{'' if self.enabled else ', nobody listens'}>"

    @property
    def event_handlers(self) -> MutableSequence[BaseEventHandler]:
        """The event handlers added here; may be changed in place."""
        return self._event_handlers

    @event_handlers.setter
    def event_handlers(self, handlers: Iterable[BaseEventHandler]) -> None:
        self._event_handlers = _Handlers(list(handlers), self._changed)
        self._changed()

    @property
    def span_handlers(self) -> MutableSequence[BaseSpanHandler[Any]]:
        """The span handlers added here; may be changed in place."""
        return self._span_handlers

    @span_handlers.setter
    def span_handlers(self, handlers: Iterable[BaseSpanHandler[Any]]) -> None:
        self._span_handlers = _Handlers(list(handlers), self._changed)
        self._changed()

    @property
    def propagate(self) -> bool:
        """Whether the parents' handlers hear what is reported here."""
        return self._propagate

    @propagate.setter
    def propagate(self, value: bool) -> None:
        self._propagate = value
        self._changed()

    @property
    def parent(self) -> "Dispatcher | None":
        """The nearest existing dispatcher above by dotted name, at last the root; None for the root itself."""
        return None if self.manager is None else self.manager.parent_of(self)

    @property
    def parent_name(self) -> str:
        """Name of :attr:`parent`, empty for the root."""
        parent = self.parent
        return "" if parent is None else parent.name

    @property
    def root(self) -> "Dispatcher":
        """The top of the tree."""
        return self if self.manager is None else self.manager.root

    @property
    def root_name(self) -> str:
        """Name of :attr:`root`."""
        return self.root.name

    @property
    def log_name(self) -> str:
        """Name for log lines: the parent's and its own."""
        parent = self.parent
        return self.name if parent is None else f"{parent.name}.{self.name}"

    def add_event_handler(self, handler: BaseEventHandler) -> None:
        """Let ``handler`` hear the events reported here and below."""
        self._event_handlers.append(handler)

    def add_span_handler(self, handler: BaseSpanHandler[Any]) -> None:
        """Let ``handler`` hear of the spans opened here and below."""
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
        """Recompute who listens; called whenever handlers, ``propagate`` or the tree change."""
        heard_by = list(self._with_ancestors())
        # The chains are replaced whole, never edited: a thread that is reporting keeps the one it started with.
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
        """Report ``event``; ``kwargs`` are handed to the handlers.

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
        """:meth:`event` itself. Deprecated, as it does nothing else: call :meth:`event`."""
        text = "Dispatcher.get_dispatch_event() is deprecated, use event()"
        warn_user(text, DeprecationWarning)
        return self.event

    async def aevent(self, event: BaseEvent, **kwargs: Any) -> None:
        """Report ``event`` to the handlers' ``ahandle``, all at once, and wait for them."""
        if not self._event_chain:
            return
        event.tags.update(active_instrument_tags.get())

        async def tell(handler: BaseEventHandler) -> None:
            with _Boundary(handler, "ahandle"):
                await handler.ahandle(event, **kwargs)

        await asyncio.gather(*(tell(handler) for handler in self._event_chain))

    def span_enter(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        parent_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Tell the span handlers that span ``id_`` has begun; see :meth:`open_span` for the short form."""
        for handler in self._span_chain:
            with _Boundary(handler, "span_enter"):
                handler.span_enter(
                    id_=id_, bound_args=bound_args, instance=instance, parent_id=parent_id, tags=tags, **kwargs
                )

    def span_exit(
        self, id_: str, bound_args: inspect.BoundArguments, instance: Any = None, result: Any = None, **kwargs: Any
    ) -> None:
        """Tell the span handlers that span ``id_`` has ended with ``result``."""
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
        """Tell the span handlers that span ``id_`` has failed with ``err``."""
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
        """Begin a span without a function around it. The caller makes it the active one, if it is to have children.

        Args:
            name: What is being done; the id is ``"<name>-<token>"``.
            instance: The object that does it.
            bound_args: What it was called with.
            tags: Tags of this span, beside those in force.
            parent_id: The enclosing span; the active one when left out, none for None.

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
        """Add tags to a span that is open: what is known only when the work is done."""
        for handler in self._span_chain:
            span = handler.open_spans.get(span_id)
            if span is not None:
                span.tags.update(tags)

    def close_span(
        self, span_id: str, result: Any = None, instance: Any = None, bound_args: inspect.BoundArguments | None = None
    ) -> None:
        """End the span that :meth:`open_span` began."""
        self.span_exit(id_=span_id, bound_args=bound_args or NO_ARGUMENTS, instance=instance, result=result)

    def fail_span(
        self,
        span_id: str,
        err: BaseException,
        instance: Any = None,
        bound_args: inspect.BoundArguments | None = None,
    ) -> None:
        """End the span that :meth:`open_span` began with an error: a SpanDropEvent, then the drop."""
        if self._event_chain:
            self.event(SpanDropEvent(span_id=span_id, err_str=str(err)))
        self.span_drop(id_=span_id, bound_args=bound_args or NO_ARGUMENTS, instance=instance, err=err)

    def span(self, func: _F) -> _F:
        """Decorator: every call of ``func`` is a span. For sync and async functions, generators and async generators.

        The span of a generator lasts from its first item to its end, and encloses the generator's code only, not its
        consumer's. A function that returns an ``asyncio.Future`` is over when the future is done. Applying it twice
        changes nothing. With nobody listening a call costs one truth test more.

        Example:
            >>> @get_dispatcher(__name__).span
            ... async def fetch(url: str) -> bytes: ...
        """
        return trace(self, func)

    def capture_propagation_context(self) -> dict[str, Any]:
        """What another process needs to go on with this trace: the handlers' own data, the active span, the tags."""
        captured: dict[str, Any] = {}
        for handler in self._span_chain:
            with _Boundary(handler, "capture_propagation_context"):
                captured.update(handler.capture_propagation_context())
        span_id = active_span_id.get()
        if span_id is not None:
            captured[_SPAN_KEY] = span_id
        tags = active_instrument_tags.get()
        if tags:
            captured[_TAGS_KEY] = tags
        return captured

    def restore_propagation_context(self, context: dict[str, Any]) -> None:
        """Take up, in the running context, what :meth:`capture_propagation_context` gave."""
        for handler in self._span_chain:
            with _Boundary(handler, "restore_propagation_context"):
                handler.restore_propagation_context(context)
        if context.get(_SPAN_KEY) is not None:
            active_span_id.set(str(context[_SPAN_KEY]))
        if context.get(_TAGS_KEY):
            active_instrument_tags.set(dict(context[_TAGS_KEY]))

    def shutdown(self) -> None:
        """Drop every span still open in the handlers that are heard from here, and close those handlers."""
        err = RuntimeError("dispatcher shutdown")
        for handler in self._span_chain:
            with _Boundary(handler, "shutdown"):
                for span_id in list(handler.open_spans):
                    handler.span_drop(id_=span_id, bound_args=NO_ARGUMENTS, instance=None, err=err)
                handler.close()


class Manager:
    """The tree of dispatchers by name.

    Args:
        root: Stands above all others.
    """

    def __init__(self, root: Dispatcher) -> None:
        self.root = root
        self.dispatchers: dict[str, Dispatcher] = {root.name: root}
        self._lock = threading.RLock()
        root.manager = self

    def parent_of(self, dispatcher: Dispatcher) -> Dispatcher | None:
        """The nearest existing dispatcher above ``dispatcher``."""
        if dispatcher is self.root:
            return None
        name = dispatcher.name
        while "." in name:
            name = name.rpartition(".")[0]
            if name in self.dispatchers:
                return self.dispatchers[name]
        return self.root

    def add_dispatcher(self, dispatcher: Dispatcher) -> None:
        """Put ``dispatcher`` into the tree, unless its name is taken."""
        with self._lock:
            if dispatcher.name in self.dispatchers:
                return
            dispatcher.manager = self
            self.dispatchers[dispatcher.name] = dispatcher
            dispatcher.refresh()
            # A dispatcher may come later than those below it; they now have a nearer parent.
            for name, other in self.dispatchers.items():
                if name.startswith(f"{dispatcher.name}."):
                    other.refresh()

    def get(self, name: str) -> Dispatcher:
        """The dispatcher called ``name``, made if need be."""
        found = self.dispatchers.get(name)
        if found is None:
            with self._lock:
                self.add_dispatcher(Dispatcher(name=name, manager=self))
                found = self.dispatchers[name]
        return found

    def refresh(self) -> None:
        """Recompute who listens everywhere."""
        with self._lock:
            for dispatcher in self.dispatchers.values():
                dispatcher.refresh()


root_dispatcher = Dispatcher(
    name="root", event_handlers=[NullEventHandler()], span_handlers=[NullSpanHandler()], propagate=False
)
root_manager = Manager(root_dispatcher)


def get_dispatcher(name: str = "root") -> Dispatcher:
    """The dispatcher called ``name``, always the same one; without a name the root, which hears all.

    Args:
        name: Dotted, usually ``__name__``.

    Example:
        >>> dispatcher = get_dispatcher(__name__)
        >>> dispatcher.event(MyEvent())
    """
    return root_manager.get(name)


class DispatcherSpanMixin:
    """Subclasses' versions of abstract and of already traced methods are traced too, without being decorated."""

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
