"""Snippets of a session and the answers they got: enough to run them again."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from batonflow.tools.code.worker import jsonable

__all__ = ["LONGEST", "Outcome", "Ran", "Snippet", "as_json", "error_outcome"]

# A longer history, in characters of code, arguments and answers, is not saved in snapshots.
LONGEST = 16 * 1024 * 1024
_LONGEST_MESSAGE = 2000
# An exception of one of these types inside a coroutine would end more than the call.
_NOT_TO_RAISE = {"StopIteration", "StopAsyncIteration", "KeyboardInterrupt", "SystemExit", "GeneratorExit"}

Outcome = dict[str, Any]
"""Outcome of a call: ``{"value": ...}`` or ``{"error": [builtin type, message]}``."""


def error_outcome(error: BaseException) -> Outcome:
    """Return an exception in the form for the code: the nearest builtin type, and its text."""
    message = str(error) or type(error).__name__
    if isinstance(error, KeyError) and len(error.args) == 1:
        message = str(error.args[0])
    message = jsonable(message)  # names of files can contain unpaired surrogates
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}..."
    name = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins" and _takes_a_text(kind))
    if name == "Exception" or name in _NOT_TO_RAISE or not isinstance(error, Exception):
        if type(error).__name__ not in {"Exception", "RuntimeError"}:
            message = f"{type(error).__name__}: {message}"
        name = "RuntimeError"
    return {"error": [name, message]}


def _takes_a_text(kind: type[Any]) -> bool:
    """Return True if an error of that type can be created from its text alone, unlike an ExceptionGroup."""
    try:
        kind("")
    except TypeError:
        return False
    return True


@dataclass
class Ran:
    """A call of the code.

    Args:
        number: Its number in the snippet, from 1.
        ref: Its identifier in the interpreter.
        function: The name of the function in the code.
        arguments: The arguments by name.
    """

    number: int
    ref: int
    function: str
    arguments: dict[str, Any]


@dataclass
class Snippet:
    """A snippet of a session with all its inputs.

    Args:
        code: Its text.
        calls: The calls it made, by number.
        answers: The batches of answers, each call number with its outcome, in order.
        clock: The times it read, in seconds since 1970, in order.
    """

    code: str
    calls: list[Ran] = field(default_factory=list[Ran])
    answers: list[list[tuple[int, Outcome]]] = field(default_factory=list[list[tuple[int, Outcome]]])
    clock: list[float] = field(default_factory=list[float])
    _json: str | None = field(default=None, init=False, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON data."""
        calls = [vars(one) for one in self.calls]
        return {"code": self.code, "calls": calls, "answers": self.answers, "clock": self.clock}

    def as_json(self, *, final: bool) -> str:
        """Return the record as JSON text.

        Args:
            final: The record is complete, so its text is cached for later snapshots.
        """
        if self._json is not None:
            return self._json
        text = json.dumps(self.to_dict())
        if final:
            self._json = text
        return text

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Snippet":
        """Create the record from the data of :meth:`to_dict`."""
        return cls(
            code=data["code"],
            calls=[Ran(**one) for one in data["calls"]],
            answers=[[(number, outcome) for number, outcome in batch] for batch in data["answers"]],
            clock=data["clock"],
        )


def as_json(snippets: Sequence[Snippet], *, running: Snippet) -> str:
    """Return a history as JSON text; only the record ``running`` can still grow."""
    return f"[{','.join(one.as_json(final=one is not running) for one in snippets)}]"
