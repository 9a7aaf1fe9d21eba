"""Loggers whose records show neither secrets nor control characters."""

import logging
import re

from typing_extensions import override

from batonflow.instrumentation.redaction import redacted

__all__ = ["clean", "fit_to_show", "logger_named", "plain"]

# Control characters but tab and newline; those that turn the direction of writing; and separators of lines that no
# terminal shows.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def plain(text: str) -> str:
    r"""``text`` with control characters shown by their codes; lines and tabs stay.

    Example:
        >>> print(plain("\x1b[31mred"))
        \x1b[31mred
    """
    return _CONTROL.sub(lambda found: repr(found.group())[1:-1], text)


def fit_to_show(text: str) -> str:
    """``plain`` text without what ``redacted`` takes for a secret."""
    return plain(redacted(text))


def logger_named(name: str) -> logging.Logger:
    """The logger of a name, whose records are fit to show.

    Args:
        name: As for ``logging.getLogger``.
    """
    logger = logging.getLogger(name)
    clean(logger)
    return logger


def clean(logger: logging.Logger) -> None:
    """Make the records of a logger fit to show."""
    if not any(isinstance(one, _FitToShow) for one in logger.filters):
        logger.addFilter(_FitToShow())


class _FitToShow(logging.Filter):
    """Changes records before any handler has them; those that are fit to show stay as they are."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if (shown := fit_to_show(text)) != text:
            record.msg, record.args = shown, None
        if record.exc_info and record.exc_info[0] is not None:
            text = _formatter.formatException(record.exc_info)
            if (shown := fit_to_show(text)) != text:
                # The exception itself would show again what is left out here.
                record.exc_info, record.exc_text = None, shown
        return True


_formatter = logging.Formatter()
