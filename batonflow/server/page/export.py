"""A run as a single file: the page with the run's data, without any connections."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, cast

from pydantic_core import to_json

from batonflow.draw.representation.build import get_workflow_representation
from batonflow.draw.scene import scene_of
from batonflow.draw.svg import escape, svg
from batonflow.durable.history import commits_of
from batonflow.durable.store_protocol import RunInfo, RunStore
from batonflow.durable.trace import run_told, trace_of
from batonflow.server.page.build import page_html
from batonflow.server.page.derived import graph_of
from batonflow.threads import in_thread
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.workflow import Workflow

__all__ = ["RunView", "export_run", "run_page", "view_run"]

LARGEST = 64 * 1024
"""Bytes of a value that a file contains; longer values are cut."""

_PLACE = '<script type="application/json" id="run"></script>'
_POLICY = '<meta name="policy"'


def run_page(data: Mapping[str, Any]) -> str:
    """Return the page with the data of a run: a self-contained file without connections.

    Args:
        data: ``handler`` (a run as server data), ``representation`` (``graph`` and ``svg``, or None),
            ``entries`` (of ``trace_of``) and their ``parts``, if they refer to any.

    Example:
        >>> Path("run.html").write_text(run_page({"handler": ..., "representation": ..., "entries": ...}))
    """
    # Without "<" the data cannot end its element.
    text = to_json(data, inf_nan_mode="null").decode().replace("<", "\\u003c")
    before, place, after = page_html().partition(_PLACE)
    filled = place.replace("></", f">{text}</")
    return before.replace(_POLICY, '<meta http-equiv="Content-Security-Policy"') + filled + after


async def export_run(
    store: RunStore, run_id: str, *, workflow: Workflow | None = None, path: str | PathLike[str] | None = None
) -> str:
    """Return the page with a stored run, in any state.

    Args:
        store: The store of the run.
        run_id: The run.
        workflow: Its code, for the graph of all possible flows; without it the graph shows the actual flow.
        path: A file to write the page to as well.

    Raises:
        StoreError: The run does not exist or cannot be read.
        OSError: The file cannot be written.

    Example:
        >>> await export_run(store, "tides-1", path="tides.html")
    """
    info = await store.info(run_id)
    if info is None:
        raise StoreError(f"The store has no run {run_id}")
    parts: list[Any] = []
    entries = trace_of([one async for one in commits_of(store, run_id)], largest=LARGEST, parts=parts)
    graph = graph_of(info.workflow, entries) if workflow is None else get_workflow_representation(workflow)
    representation = {"graph": graph.model_dump(mode="json"), "svg": svg(scene_of(graph))}
    handler = _handler_data(info, entries)
    page = run_page({"handler": handler, "representation": representation, "entries": entries, "parts": parts})
    if path is not None:
        await in_thread(Path(path).write_text, page, encoding="utf-8")
    return page


async def view_run(store: RunStore, run_id: str, *, workflow: Workflow | None = None, height: int = 640) -> "RunView":
    """Show a stored run in a notebook.

    Args:
        store: The store of the run.
        run_id: The run.
        workflow: As for ``export_run``.
        height: Height of the frame, in pixels.

    Raises:
        StoreError: The run does not exist or cannot be read.

    Example:
        >>> await view_run(store, "tides-1")
    """
    return RunView(await export_run(store, run_id, workflow=workflow), height=height)


class RunView:
    """The page of one run in a notebook's frame, isolated from the notebook.

    Args:
        page: The text of ``export_run`` or ``run_page``.
        height: Height of the frame, in pixels.
    """

    def __init__(self, page: str, *, height: int = 640) -> None:
        self.page = page
        self.height = height

    def _repr_html_(self) -> str:
        return (
            f'<iframe sandbox="allow-scripts" title="A run" width="100%" height="{int(self.height)}" '
            f'style="border:1px solid #8884;border-radius:8px" srcdoc="{escape(self.page)}"></iframe>'
        )


def _handler_data(info: RunInfo, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    last = next((entry for entry in reversed(entries) if entry["kind"] == "ended" and not entry["path"]), None)
    event: Mapping[str, Any] = last["events"][0] if last is not None and last.get("events") else {}
    value: Any = event.get("value")
    told = run_told(info, event.get("type", ""), cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {})
    return {**told, "waiting": not info.is_over and (info.status == "waiting" or _has_waiting_step(entries))}


def _has_waiting_step(entries: Sequence[Mapping[str, Any]]) -> bool:
    open_waits: dict[tuple[Any, ...], bool] = {}
    for entry in entries:
        if "step" in entry:
            delivery = (entry["path"], entry["step"], entry.get("item"))
            open_waits[delivery] = entry.get("outcome", {}).get("kind") == "waiting"
    return any(open_waits.values())
