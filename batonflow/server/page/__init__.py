"""The page that shows runs. It is served over HTTP, written to a file, or shown in a notebook."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batonflow.server.page.build import page_html
    from batonflow.server.page.export import RunView, export_run, run_page, view_run

__all__ = ["RunView", "export_run", "page_html", "run_page", "view_run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "build" if name == "page_html" else "export"
    return getattr(import_module(f"{__name__}.{home}"), name)
