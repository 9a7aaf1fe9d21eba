"""Work of a run that waits. Calls of ``ctx.map`` go on while other calls of the map wait for people."""

import asyncio
import re
from typing import Any

__all__ = ["maps_at_work"]

_ITEM_OF_MAP = re.compile(r"\[\d+\]$")


def maps_at_work(run: Any) -> bool:
    """Return whether a call of ``ctx.map`` is at work, in a run or in its child runs.

    A step counts as waiting when one of its calls waits. It has calls at work if more of them are open than waits.
    """
    if any(_has_calls_at_work(item) for item in run.state.items.values()):
        return True
    children = () if run.family is None else run.family.children
    return any(maps_at_work(child.run) for child in children)


def _has_calls_at_work(item: Any) -> bool:
    records: dict[str, Any] = (item.progress and item.progress.once) or {}
    calls = [key for key, value in records.items() if isinstance(value, asyncio.Future) and _ITEM_OF_MAP.search(key)]
    innermost = [key for key in calls if not any(other.startswith(f"{key}/") for other in calls)]
    return len(innermost) > item.open_waits
