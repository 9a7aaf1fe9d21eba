"""What the work that a span stands for was given, for span handlers: made only where one wants it."""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from batonflow.instrumentation.traced import NO_ARGUMENTS

__all__ = ["bound", "named", "signature_of"]

# Reading a signature takes longer than all else that a span takes; by function, as a bound method is new each time.
_signatures: WeakKeyDictionary[Callable[..., Any], inspect.Signature] = WeakKeyDictionary()


def signature_of(method: Callable[..., Any]) -> inspect.Signature:
    """The signature of ``method`` as its callers see it, read once.

    Args:
        method: A function, or a method of an object: then without ``self``.

    Raises:
        TypeError: It cannot be called.
        ValueError: It does not say what it takes, as some that are written in C.

    Example:
        >>> signature_of(tool.acall)
        <Signature (*args: Any, **kwargs: Any) -> ToolOutput>
    """
    function = getattr(method, "__func__", method)
    try:
        found = _signatures.get(function)
    except TypeError:  # nothing can be kept by it
        return inspect.signature(method)
    if found is None:
        found = _signatures[function] = inspect.signature(method)
    return found


def bound(method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> inspect.BoundArguments:
    """The arguments of a call of ``method``, by the names of its parameters; none at all where they do not fit.

    Args:
        method: What is called; a method of an object leaves ``self`` out.
        *args: The arguments by position.
        **kwargs: Those by name.

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
    """Some of the arguments that ``method`` is given, by the names of its parameters.

    Args:
        method: What is called; a method of an object leaves ``self`` out.
        arguments: By name, those too that may be passed by position only; what has no parameter is left out.

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
