"""Tells handlers of the calls of models: that one begins, each piece of its answer, and how it ends.

Methods of a model ask one another: ``achat`` may be made of ``astream_chat``, an override of ``chat`` calls the one
that it overrides. Any of them may be what a program calls, so any of them can tell, and only the outermost does.
"""

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar, cast

from batonflow.instrumentation import active_span_id, get_dispatcher
from batonflow.instrumentation.context import undo
from batonflow.instrumentation.events.exception import ExceptionEvent
from batonflow.lazy import at_first_use
from batonflow.llms.closing import closed_after

__all__ = ["CHAT", "COMPLETION", "Call", "Kind", "dispatcher", "is_told", "silently", "told", "without_keys"]

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")

# By the name of the module in which calls are made, where handlers look for it.
dispatcher = get_dispatcher("batonflow.llms.base")

# Nobody needs the events of traces before there is somebody to tell.
_event = partial(at_first_use, "batonflow.instrumentation.events.llm")

# Options of a call that listeners are not told.
_MAY_HOLD_KEYS = ("extra_headers", "extra_query")

_END: Any = object()


class Kind(NamedTuple):
    """A kind of calls, by what is told of them.

    Args:
        given: The argument that holds what the model is asked, which is also its name in the events.
        start: The event of the beginning.
        piece: The event of each piece of a streamed answer.
        end: The event of the end.
    """

    given: str
    start: Callable[..., Any]
    piece: Callable[..., Any]
    end: Callable[..., Any]


CHAT = Kind("messages", _event("LLMChatStartEvent"), _event("LLMChatInProgressEvent"), _event("LLMChatEndEvent"))
COMPLETION = Kind(
    "prompt",
    _event("LLMCompletionStartEvent"),
    _event("LLMCompletionInProgressEvent"),
    _event("LLMCompletionEndEvent"),
)

# The calls that the running code is a part of. The models themselves are kept: the id of one that is gone may be
# another's.
_calls: ContextVar[tuple[tuple[Any, Kind], ...]] = ContextVar("batonflow_told_calls", default=())


def without_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call but for those that may hold keys."""
    return {name: value for name, value in options.items() if name not in _MAY_HOLD_KEYS}


def is_told(llm: Any, kind: Kind) -> bool:
    """Whether the running code is a part of a call of that kind to that model, which is told of already."""
    return any(one is llm and of is kind for one, of in _calls.get())


@contextmanager
def _part_of(llm: Any, kind: Kind) -> Generator[None, None, None]:
    token = _calls.set((*_calls.get(), (llm, kind)))
    try:
        yield
    finally:
        undo(token)


async def _each_part_of(llm: Any, kind: Kind, items: AsyncIterable[_T]) -> AsyncGenerator[_T, None]:
    """The items, each of which is made as a part of the call; what is done with it is none."""
    source = aiter(items)
    async with closed_after(source):
        while True:
            with _part_of(llm, kind):
                item = await anext(source, _END)
            if item is _END:
                return
            yield item


async def silently(
    llm: Any, kind: Kind, opened: Callable[[], Awaitable[AsyncIterator[_T]]]
) -> AsyncGenerator[_T, None]:
    """Open a stream of a model of which somebody else tells.

    Args:
        llm: The model.
        kind: What it is asked for.
        opened: Opens the stream.
    """
    with _part_of(llm, kind):
        items = await opened()
    return _each_part_of(llm, kind, items)


class Call:
    """A call that is told of, from its beginning.

    Args:
        kind: What the model is asked for.
        llm: The model.
        given: The messages or the prompt.
        options: The other arguments of the call.
        span_id: The span that the events belong to; the active one by default.
    """

    __slots__ = ("_about", "_kind", "_llm")

    def __init__(
        self, kind: Kind, llm: Any, given: Any, options: Mapping[str, Any], span_id: str | None = None
    ) -> None:
        self._kind = kind
        self._llm = llm
        # Of the beginning, as what comes later may be read in another span.
        self._about = {kind.given: given, "span_id": span_id or active_span_id.get()}
        shown = without_keys(options)
        dispatcher.event(kind.start(**self._about, additional_kwargs=shown, model_dict=llm.to_payload()))

    def piece(self, response: Any) -> None:
        """A piece of the answer has come."""
        if dispatcher.tells_pieces:
            dispatcher.event(self._kind.piece(**self._about, response=response))

    def end(self, response: Any) -> None:
        """The answer is whole; ``response`` is it, or the last piece of it."""
        dispatcher.event(self._kind.end(**self._about, response=response))

    def failed(self, err: BaseException) -> None:
        """There will be no answer, or no more of it."""
        dispatcher.event(ExceptionEvent(exception=err, span_id=self._about["span_id"]))

    def answered(self, function: Callable[[], Any]) -> Any:
        """What ``function`` gives, which makes the answer: whole, in pieces, or to be awaited for either."""
        with self._failures(), _part_of(self._llm, self._kind):
            result = function()
        return self._followed(result)

    def _followed(self, result: Any) -> Any:
        if inspect.isawaitable(result):
            return self._awaited(result)
        if isinstance(result, AsyncIterable):
            return self._pieces(cast("AsyncIterable[Any]", result))
        if isinstance(result, Iterator):
            return self._pieces_sync(cast("Iterator[Any]", result))
        self.end(result)
        return result

    async def _awaited(self, result: Awaitable[Any]) -> Any:
        with self._failures(), _part_of(self._llm, self._kind):
            made = await result
        return self._followed(made)

    async def _pieces(self, items: AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
        last = None
        with self._failures():
            async with aclosing(_each_part_of(self._llm, self._kind, items)) as responses:
                async for last in responses:
                    self.piece(last)
                    yield last
        self.end(last)

    def _pieces_sync(self, items: Iterator[Any]) -> Generator[Any, None, None]:
        last = None
        with self._failures():
            try:
                while True:
                    with _part_of(self._llm, self._kind):
                        item = next(items, _END)
                    if item is _END:
                        break
                    last = item
                    self.piece(last)
                    yield last
            finally:
                if isinstance(items, Generator):
                    items.close()
        self.end(last)

    @contextmanager
    def _failures(self) -> Generator[None, None, None]:
        try:
            yield
        except BaseException as err:
            self.failed(err)
            raise


def told(kind: Kind, function: _F) -> _F:
    """``function``, a method of a model, told of as a call of that kind. With nobody listening it is called as it is.

    Args:
        kind: What the method is called for.
        function: Plain or asynchronous, a generator or not.
    """
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(llm: Any, *args: Any, **kwargs: Any) -> Any:
            if not dispatcher.enabled:
                return await function(llm, *args, **kwargs)
            call = _begun(kind, llm, args, kwargs)
            made = partial(function, llm, *args, **kwargs)
            return await (made() if call is None else call.answered(made))

        return cast("_F", awaited)

    @wraps(function)
    def called(llm: Any, *args: Any, **kwargs: Any) -> Any:
        if not dispatcher.enabled:
            return function(llm, *args, **kwargs)
        call = _begun(kind, llm, args, kwargs)
        made = partial(function, llm, *args, **kwargs)
        return made() if call is None else call.answered(made)

    return cast("_F", called)


def _begun(kind: Kind, llm: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """The call that a method was called for; None for a part of one."""
    if is_told(llm, kind):
        return None
    given = args[0] if args else kwargs.get(kind.given)
    if kind is COMPLETION:
        given = str(given)
    else:
        # What is no conversation is the method's to refuse.
        given = list(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else [given]
    return Call(kind, llm, given, {name: value for name, value in kwargs.items() if name != kind.given})
