"""Loggers with records that say where they come from, without secrets and control characters."""

import logging
import re
import sys
from collections.abc import Callable, Mapping
from contextvars import Context, ContextVar
from typing import Any

from typing_extensions import override

from batonflow.instrumentation.redaction import redacted

__all__ = [
    "FIELDS",
    "clean",
    "debugging",
    "describe_with",
    "fit_to_show",
    "here",
    "in_words",
    "is_debugging",
    "is_told",
    "logger_named",
    "plain",
    "session_here",
    "set_debugging",
    "take_debug",
]

FIELDS = ("run_id", "workflow", "step", "agent", "tool", "attempt", "session")
"""The attributes of each record; an empty text where they do not apply."""

debugging: ContextVar[bool] = ContextVar("batonflow_debug", default=False)
"""The debugging of the run around this code."""

session_here: ContextVar[str] = ContextVar("batonflow_session", default="")
"""The session of the run around this code; an empty text outside of sessions."""

_describers: list[Callable[[], Mapping[str, Any]]] = []

# Control characters except tab and newline, characters that change the writing direction, and invisible line
# separators.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def describe_with(describer: Callable[[], Mapping[str, Any]]) -> Callable[[], Mapping[str, Any]]:
    """Add a function that returns some of the ``FIELDS`` for the code that runs here, and return it."""
    _describers.append(describer)
    return describer


def here() -> dict[str, Any]:
    """Return the ``FIELDS`` for the code that runs here."""
    found: dict[str, Any] = {**dict.fromkeys(FIELDS, ""), "session": session_here.get()}
    for describer in _describers:
        found.update(describer())
    return found


def in_words(subject: str) -> str:
    """Return a subject with its agent and run, for the beginning of a record."""
    at = here()
    agent = f" of agent {at['agent']}" if at["agent"] and not subject.startswith("agent ") else ""
    return f"{subject}{agent}{', run ' + at['run_id'] if at['run_id'] else ''}"


def set_debugging(variables: Context, *asked: bool | None) -> None:
    """Set whether a run is debugged, by the first value other than None. The runs inside it are debugged too.

    Args:
        variables: The context variables of the run.
        asked: The settings, the most specific one first.
    """
    given = next((one for one in asked if one is not None), None)
    if given is not None:
        variables.run(debugging.set, given)


def take_debug(event_class: Any, given: dict[str, Any]) -> bool | None:
    """Take ``debug=`` out of the arguments of a run, unless it is a field of the start event."""
    if not isinstance(given.get("debug"), bool) or "debug" in event_class.model_fields:
        return None
    return given.pop("debug")


def is_debugging() -> bool:
    """Return whether the run around this code is debugged."""
    return debugging.get()


def is_told(logger: logging.Logger, variables: Context) -> bool:
    """Return whether a logger shows what happens in a run.

    Args:
        logger: The logger.
        variables: The context variables of the run.
    """
    return variables.get(debugging, False) or logging.Logger.isEnabledFor(logger, logging.INFO)


def plain(text: str) -> str:
    r"""Return ``text`` with control characters as escapes; newlines and tabs stay.

    Example:
        >>> print(plain("\x1b[31mred"))
        \x1b[31mred
    """
    return _CONTROL.sub(lambda found: repr(found.group())[1:-1], text)


def fit_to_show(text: str) -> str:
    """Return ``text`` without secrets and control characters."""
    return plain(redacted(text))


def logger_named(name: str) -> logging.Logger:
    """Return the logger with the name ``name``, with redacted records that have the ``FIELDS``.

    Args:
        name: As for ``logging.getLogger``.
    """
    logger = logging.getLogger(name)
    clean(logger)
    if type(logger) is logging.Logger:  # otherwise the program has a class of its own for loggers
        logger.__class__ = _TreeLogger
    return logger


def clean(logger: logging.Logger) -> None:
    """Add the redacting filter to a logger, once."""
    if not any(isinstance(one, _FitToShow) for one in logger.filters):
        logger.addFilter(_FitToShow())


class _FitToShow(logging.Filter):
    """Redact a record, and add the ``FIELDS``, before any handler receives it."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        record.__dict__.update({name: value for name, value in here().items() if name not in record.__dict__})
        text = record.getMessage()
        if (safe_text := fit_to_show(text)) != text:
            record.msg, record.args = safe_text, None
        if record.exc_info and record.exc_info[0] is not None:
            text = _formatter.formatException(record.exc_info)
            if (safe_text := fit_to_show(text)) != text:
                # The exception itself would show the secrets again.
                record.exc_info, record.exc_text = None, safe_text
        return True


_formatter = logging.Formatter()


class _TreeLogger(logging.Logger):
    """A logger that shows all records of debugged runs on stderr, whatever its level is."""

    @override
    def isEnabledFor(self, level: int) -> bool:
        return super().isEnabledFor(level) or debugging.get()

    @override
    def callHandlers(self, record: logging.LogRecord) -> None:
        if super().isEnabledFor(record.levelno):
            super().callHandlers(record)
        else:
            _DebugHandler().handle(record)


class _DebugHandler(logging.Handler):
    @override
    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.levelname} {record.name}: {self.format(record)}", file=sys.stderr, flush=True)
