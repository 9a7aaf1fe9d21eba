"""``serve``: a workflow, an agent or a server over HTTP, until Ctrl-C."""

import asyncio
from argparse import Namespace
from typing import Any

from batonflow.cli.errors import DONE, FAILED, USAGE, CommandError
from batonflow.cli.objects import found
from batonflow.cli.output import say
from batonflow.cli.stores import default_store
from batonflow.workflow_core.workflow import Workflow

try:
    from batonflow.workflow_core.server import WorkflowServer
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in {"starlette", "uvicorn"}:
        raise
    raise CommandError("serving needs starlette and uvicorn: pip install 'batonflow[server]'", FAILED) from error

__all__ = ["serve"]


def serve(given: Namespace) -> int:
    """Serve an object until Ctrl-C."""
    value = found(given.object)
    server: Any
    if isinstance(value, Workflow):
        server = WorkflowServer(store=given.store or default_store(), token=given.token)
        server.add_workflow(_name(given.object, value), value)
    else:
        if given.store is not None or given.token is not None:
            raise CommandError(
                f"{given.object} is a server, which has its own store and token: leave the options out", USAGE
            )
        server = value
    return asyncio.run(_serve(server, given))


def _name(spec: str, workflow: Workflow) -> str:
    """What the workflow is called in addresses."""
    return spec.partition(":")[2].rpartition(".")[2] or str(getattr(workflow, "name", "") or type(workflow).__name__)


async def _serve(server: Any, given: Namespace) -> int:
    host = f"[{given.host}]" if ":" in given.host else given.host
    say(f"http://{host}:{given.port}/")
    await server.serve(given.host, given.port)
    return DONE
