"""WorkflowServer: workflows over HTTP. Needs the extra ``server``; files of single runs do not."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from batonflow.lazy import how_to_install

if TYPE_CHECKING:
    from batonflow.server.app import WorkflowServer as WorkflowServer

__all__ = ["WorkflowServer"]


def _load(name: str) -> Any:
    if name != "WorkflowServer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            raise ImportError(f"A server needs {package}, which is not installed: {how_to_install('server')}")
    return import_module("batonflow.server.app").WorkflowServer


if not TYPE_CHECKING:  # checkers would take every name
    __getattr__ = _load
