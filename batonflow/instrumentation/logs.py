"""Loggers that redact secrets and control characters in their records."""

import logging
import re

from typing_extensions import override

from batonflow.instrumentation.redaction import redacted

__all__ = ["clean", "fit_to_show", "logger_named", "plain"]

# Control characters except tab and newline, characters that change the writing direction, and invisible line
# separators.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


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
    """Return the logger with the name ``name``, with redacted records.

    Args:
        name: As for ``logging.getLogger``.
    """
    logger = logging.getLogger(name)
    clean(logger)
    return logger


def clean(logger: logging.Logger) -> None:
    """Add the redacting filter to a logger, once."""
    if not any(isinstance(one, _FitToShow) for one in logger.filters):
        logger.addFilter(_FitToShow())


class _FitToShow(logging.Filter):
    """Redact a record before any handler receives it."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
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
