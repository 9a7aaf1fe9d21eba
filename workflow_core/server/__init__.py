"""Serves workflows over HTTP: ``WorkflowServer``. Needs ``pip install 'batonflow[server]'``."""

try:
    import starlette  # noqa: F401 - only looked for
    import uvicorn  # noqa: F401 - only looked for
except ModuleNotFoundError as missing:
    raise ImportError(
        f"Serving workflows needs the package {missing.name}: pip install 'batonflow[server]'"
    ) from missing

from batonflow.workflow_core.server.app import WorkflowServer

__all__ = ["WorkflowServer"]
