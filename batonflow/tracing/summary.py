"""Summaries of events in one line, for tags and output."""

from typing import Any, cast

from pydantic import BaseModel

from batonflow.workflow_core.events import StopEvent

__all__ = ["summarize"]

_LONGEST_TEXT = 50
_MOST_ITEMS = 3


def _shorten(value: Any) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + "...")
    if isinstance(value, list | dict):
        size = len(cast("list[Any] | dict[Any, Any]", value))
        if size > _MOST_ITEMS:
            return f"[{size} items]" if isinstance(value, list) else f"{{{size} keys}}"
    return repr(cast("Any", value))


def summarize(value: object, limit: int = 200) -> str:
    """Return at most ``limit`` characters: class and fields of a model, or the repr of another object.

    Long texts and collections inside are shortened first, to leave room for every field. It never raises: a value with
    a failing repr is shown by its class.
    """
    try:
        if isinstance(value, BaseModel):
            shown = (
                [f"result={_shorten(value.result)}"]
                if isinstance(value, StopEvent) and value.result is not None
                else []
            )
            shown += [f"{name}={_shorten(getattr(value, name, None))}" for name in type(value).model_fields]
            shown += [f"{name}={_shorten(extra)}" for name, extra in (value.model_extra or {}).items()]
            text = f"{type(value).__name__}({', '.join(shown)})"
        else:
            text = _shorten(value)
    except Exception:  # noqa: BLE001 - a user's repr may raise anything, and a summary is not worth a run
        text = type(value).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."
