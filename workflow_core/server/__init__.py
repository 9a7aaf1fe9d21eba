"""Serves workflows over HTTP: ``WorkflowServer``. Needs ``pip install 'batonflow[server]'``."""

from importlib.util import find_spec

for _package in ("starlette", "uvicorn"):
    if find_spec(_package) is None:
        raise ImportError(f"Serving workflows needs the package {_package}: pip install 'batonflow[server]'")

from batonflow.workflow_core.server.app import WorkflowServer  # noqa: E402 - the message comes first

__all__ = ["WorkflowServer"]
