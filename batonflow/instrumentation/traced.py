"""The wrapper that ``@dispatcher.span`` puts around a function, and the arguments of spans."""

import asyncio
import functools
import inspect
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextvars import Token
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from batonflow.instrumentation.context import active_span_id, undo

__all__ = ["DISPATCHER_SPAN_DECORATED_ATTR", "NO_ARGUMENTS", "bound", "named", "signature_of", "trace"]

_F = TypeVar("_F", bound=Callable[..., Any])

DISPATCHER_SPAN_DECORATED_ATTR = "__dispatcher_span_decorated__"

NO_ARGUMENTS = inspect.signature(lambda: None).bind()
"""The arguments of a span that is not a call."""


class SpanOpener(Protocol):
    """The methods of a Dispatcher that this module uses."""

    @property
    def enabled(self) -> bool: ...

    def open_span(
        self, name: str, *, instance: Any = None, bound_args: inspect.BoundArguments | None = None
    ) -> str: ...

    def close_span(
        self, span_id: str, result: Any = None, instance: Any = None, bound_args: inspect.BoundArguments | None = None
    ) -> None: ...

    def fail_span(
        self, span_id: str, err: BaseException, instance: Any = None, bound_args: inspect.BoundArguments | None = None
    ) -> None: ...


class _Plan:
    """The facts about a function at decoration: name, signature and owner."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func
        self.owner: Any = getattr(func, "__self__", None)
        self.signature = inspect.signature(func)
        parameters = list(self.signature.parameters.values())
        # A function in a class body does not know its class yet, but the name of its first parameter shows a method.
        self.is_method = self.owner is None and bool(parameters) and parameters[0].name in {"self", "cls"}
        if self.is_method:
            self.signature = self.signature.replace(parameters=parameters[1:])

    def describe(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, Any, inspect.BoundArguments]:
        """Return the span name, the instance and the bound arguments of a call."""
        instance = self.owner
        if self.is_method and args:
            instance, args = args[0], args[1:]
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError:
            # The arguments are wrong. The call itself raises the better message, and the span records it.
            bound = NO_ARGUMENTS
        if instance is None:
            return self.func.__qualname__, None, bound
        of_class: type = instance if isinstance(instance, type) else type(instance)
        return f"{of_class.__name__}.{self.func.__name__}", instance, bound


class _OpenSpan:
    """The span of one call."""

    __slots__ = ("bound_args", "dispatcher", "id", "instance")

    def __init__(self, dispatcher: SpanOpener, plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name, self.instance, self.bound_args = plan.describe(args, kwargs)
        self.dispatcher = dispatcher
        self.id = dispatcher.open_span(name, instance=self.instance, bound_args=self.bound_args)

    def activate(self) -> Token[str | None]:
        """Make the span the active one, until ``undo`` receives the token."""
        return active_span_id.set(self.id)

    def close(self, result: Any = None) -> None:
        self.dispatcher.close_span(self.id, result, self.instance, self.bound_args)

    def fail(self, err: BaseException) -> None:
        self.dispatcher.fail_span(self.id, err, self.instance, self.bound_args)

    def settle(self, future: "asyncio.Future[Any]") -> None:
        """Close or drop the span when the returned future is done."""
        err = asyncio.CancelledError() if future.cancelled() else future.exception()
        if err is None:
            self.close(future.result())
        else:
            self.fail(err)


def trace(dispatcher: SpanOpener, func: _F) -> _F:
    """Return ``func`` with a span of ``dispatcher`` around every call; ``func`` itself if it is traced already."""
    if hasattr(func, DISPATCHER_SPAN_DECORATED_ATTR):
        return func
    plan = _Plan(func)
    if inspect.iscoroutinefunction(func):
        wrapper: Callable[..., Any] = _around_coroutine(dispatcher, plan)
    elif inspect.isasyncgenfunction(func):
        wrapper = _around_async_generator(dispatcher, plan)
    elif inspect.isgeneratorfunction(func):
        wrapper = _around_generator(dispatcher, plan)
    else:
        wrapper = _around_function(dispatcher, plan)
    wrapper = functools.wraps(func)(wrapper)
    setattr(wrapper, DISPATCHER_SPAN_DECORATED_ATTR, True)
    return cast("_F", wrapper)


def _around_function(dispatcher: SpanOpener, plan: _Plan) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if not dispatcher.enabled:
            return plan.func(*args, **kwargs)
        span = _OpenSpan(dispatcher, plan, args, kwargs)
        token = span.activate()
        try:
            result = plan.func(*args, **kwargs)
        except BaseException as err:
            span.fail(err)
            raise
        finally:
            undo(token)
        if isinstance(result, asyncio.Future):
            cast("asyncio.Future[Any]", result).add_done_callback(span.settle)
        else:
            span.close(result)
        return cast("Any", result)

    return call


def _around_coroutine(dispatcher: SpanOpener, plan: _Plan) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        if not dispatcher.enabled:
            return await plan.func(*args, **kwargs)
        span = _OpenSpan(dispatcher, plan, args, kwargs)
        token = span.activate()
        try:
            result = await plan.func(*args, **kwargs)
        except BaseException as err:
            span.fail(err)
            raise
        finally:
            undo(token)
        span.close(result)
        return result

    return call


def _around_generator(dispatcher: SpanOpener, plan: _Plan) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (_drive if dispatcher.enabled else plan.func)(*args, **kwargs)

    def _drive(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        span = _OpenSpan(dispatcher, plan, args, kwargs)
        given: Any = None
        try:
            generator: Generator[Any, Any, Any] = plan.func(*args, **kwargs)
            resume: Callable[[Any], Any] = generator.send
            try:
                while True:
                    # Active only while the generator's own code runs: spans of its consumer are not its children.
                    token = span.activate()
                    try:
                        item = resume(given)
                    finally:
                        undo(token)
                    try:
                        given, resume = (yield item), generator.send
                    except GeneratorExit:
                        raise
                    except BaseException as thrown:  # noqa: BLE001 - handed on to the generator
                        given, resume = thrown, generator.throw
            finally:
                generator.close()
        except StopIteration as stop:
            span.close(stop.value)
            return stop.value
        except GeneratorExit:
            span.close()
            raise
        except BaseException as err:
            span.fail(err)
            raise

    return call


def _around_async_generator(dispatcher: SpanOpener, plan: _Plan) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        return (_drive if dispatcher.enabled else plan.func)(*args, **kwargs)

    async def _drive(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        span = _OpenSpan(dispatcher, plan, args, kwargs)
        given: Any = None
        try:
            generator: AsyncGenerator[Any, Any] = plan.func(*args, **kwargs)
            resume: Callable[[Any], Any] = generator.asend
            try:
                while True:
                    token = span.activate()
                    try:
                        item = await resume(given)
                    finally:
                        undo(token)
                    try:
                        given, resume = (yield item), generator.asend
                    except GeneratorExit:
                        raise
                    except BaseException as thrown:  # noqa: BLE001 - handed on to the generator
                        given, resume = thrown, generator.athrow
            finally:
                await generator.aclose()
        except StopAsyncIteration:
            span.close()
        except GeneratorExit:
            span.close()
            raise
        except BaseException as err:
            span.fail(err)
            raise

    return call


# Reading a signature takes longer than the rest of a span. The key is the function, as bound methods are temporary.
_signatures: WeakKeyDictionary[Callable[..., Any], inspect.Signature] = WeakKeyDictionary()


def signature_of(method: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of ``method`` as its callers see it; it is cached.

    Args:
        method: A function, or a bound method, then without ``self``.

    Raises:
        TypeError: It is not callable.
        ValueError: It has no signature, as some functions written in C.

    Example:
        >>> signature_of(tool.acall)
        <Signature (*args: Any, **kwargs: Any) -> ToolOutput>
    """
    function = getattr(method, "__func__", method)
    try:
        found = _signatures.get(function)
    except TypeError:  # the function is not hashable
        return inspect.signature(method)
    if found is None:
        found = _signatures[function] = inspect.signature(method)
    return found


def bound(method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> inspect.BoundArguments:
    """Return the arguments of a call by the names of the parameters; empty when they do not fit.

    Args:
        method: The function, or a bound method, then without ``self``.
        *args: The positional arguments.
        **kwargs: The keyword arguments.

    Example:
        >>> bound(tool.acall, place="Brest").arguments
        {'kwargs': {'place': 'Brest'}}
    """
    try:
        return signature_of(method).bind(*args, **kwargs)
    except (TypeError, ValueError):
        # The call itself raises the better message.
        return NO_ARGUMENTS


def named(method: Callable[..., Any], arguments: Mapping[str, Any]) -> inspect.BoundArguments:
    """Return arguments of ``method`` that are given by name, including positional-only ones.

    Args:
        method: The function, or a bound method, then without ``self``.
        arguments: The arguments by name; names without a parameter are ignored.

    Example:
        >>> named(flow.go, {"ev": StartEvent()}).arguments
        {'ev': StartEvent()}
    """
    try:
        signature = signature_of(method)
    except (TypeError, ValueError):
        return NO_ARGUMENTS
    found = inspect.BoundArguments(signature, OrderedDict())
    found.arguments.update({name: arguments[name] for name in signature.parameters if name in arguments})
    return found
