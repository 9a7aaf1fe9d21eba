"""The routes about workflows: what there is, and starting runs."""

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from batonflow.workflow_core.clock import current_source
from batonflow.workflow_core.context.context import Context
from batonflow.workflow_core.draw import workflow_svg
from batonflow.workflow_core.errors import (
    ContextSerdeError,
    RunInputMismatchError,
    RunInterruptedError,
    RunInUseError,
    RunLostError,
    WorkflowRuntimeError,
)
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.representation.build import get_workflow_representation
from batonflow.workflow_core.server.bodies import body_of, run_id_of
from batonflow.workflow_core.server.responses import JSON
from batonflow.workflow_core.server.runs import Runs
from batonflow.workflow_core.server.served import Served, schema_of
from batonflow.workflow_core.server.shapes import RunBody

if TYPE_CHECKING:
    from batonflow.workflow_core.server.app import WorkflowServer

__all__ = ["WorkflowRoutes"]

ID_LENGTH = 24


class WorkflowRoutes:
    """Answers requests about workflows.

    Args:
        server: The server.
    """

    def __init__(self, server: "WorkflowServer") -> None:
        self._server = server
        self._runs: Runs = server.runs

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/workflows", self.names, methods=["GET"]),
            Route("/workflows/{name}/schema", self.schema, methods=["GET"]),
            Route("/workflows/{name}/events", self.events, methods=["GET"]),
            Route("/workflows/{name}/representation", self.representation, methods=["GET"]),
            Route("/workflows/{name}/run", self.run, methods=["POST"]),
            Route("/workflows/{name}/run-nowait", self.run_nowait, methods=["POST"]),
        ]

    def _served(self, request: Request) -> Served:
        return self._runs.workflow(request.path_params["name"])

    # --- what there is ------------------------------------------------------------------------------------------------

    async def names(self, _: Request) -> Response:
        """The names of the workflows."""
        return JSON({"workflows": list(self._runs.served)})

    async def schema(self, request: Request) -> Response:
        """What a workflow starts and ends with."""
        workflow = self._served(request).workflow
        steps = workflow.__batonflow__.steps
        return JSON({"start": schema_of(steps.start_event_class), "stop": schema_of(steps.stop_event_class)})

    async def events(self, request: Request) -> Response:
        """The events of a workflow."""
        return JSON({"events": self._served(request).schemas()})

    async def representation(self, request: Request) -> Response:
        """The event graph of a workflow."""
        workflow = self._served(request).workflow
        graph = get_workflow_representation(workflow)
        return JSON({"graph": graph.model_dump(mode="json"), "svg": workflow_svg(workflow)})

    # --- runs ---------------------------------------------------------------------------------------------------------

    async def run(self, request: Request) -> Response:
        """Start a run and wait for its end."""
        handler = await self._started(request)
        result: Any = None
        try:
            await handler.stop_event_result()
        except (RunInterruptedError, RunLostError):
            raise HTTPException(
                503, f"Run {handler.run_id} stopped here before its end; it goes on when it is taken up again"
            ) from None
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the run's own; its record tells it
            result = error
        if isinstance(result, asyncio.CancelledError) and not handler.is_done():
            raise result
        told = self._runs.told(await self._runs.find(handler.run_id))
        failed = told["status"] != "completed"
        return JSON(told, 500 if failed and self._server.compat_status_codes else 200)

    async def run_nowait(self, request: Request) -> Response:
        """Start a run."""
        handler = await self._started(request)
        return JSON(self._runs.told(await self._runs.find(handler.run_id)))

    async def _started(self, request: Request) -> WorkflowHandler:
        served = self._served(request)
        body = await body_of(request, RunBody)
        _refuse_stray_fields(body)
        run_id = await self._id_for(body.handler_id)
        context = self._context(served, body)
        resumes = context is not None and context.is_resumable
        event = None if resumes else served.start_event(body.start_event, body.kwargs)
        try:
            handler = served.workflow.run(ctx=context, start_event=event, run_id=run_id)
            await handler.started()
        except RunInputMismatchError:
            raise HTTPException(
                409, f"Run {run_id} was started with other input or by another workflow: use another handler_id"
            ) from None
        except RunInUseError:
            raise HTTPException(409, f"Run {run_id} goes on already") from None
        except WorkflowRuntimeError as error:
            raise HTTPException(400, str(error)) from None
        self._runs.arrived(run_id)
        return handler

    async def _id_for(self, given: str | None) -> str:
        """The id of a new run, or of one that is over and whose result is asked for again."""
        if not given:
            return current_source().token(ID_LENGTH)
        run_id_of(given, "handler_id")
        known = await self._runs.look_for(given)
        if known is not None and not known.is_over:
            raise HTTPException(409, f"Run {given} goes on already: use another handler_id, or none")
        return given

    def _context(self, served: Served, body: RunBody) -> Context[Any] | None:
        if not body.context:
            return None
        if not self._server.accept_context_api:
            raise HTTPException(
                400, "This server takes no context: it is made with WorkflowServer(accept_context_api=True)"
            )
        try:
            return Context.from_dict(served.workflow, body.context)
        except (ContextSerdeError, ValueError, KeyError, TypeError) as error:
            raise HTTPException(400, f"The context cannot be read: {type(error).__name__}") from None


def _refuse_stray_fields(body: RunBody) -> None:
    """Refuse a body that gives the fields of the start event, and not where they belong: they would be left out.

    Raises:
        HTTPException: 400 when it does so.
    """
    if body.model_extra and body.start_event is None and body.kwargs is None and not body.context:
        *others, last = (name for name in RunBody.model_fields if name != "start_event")
        raise HTTPException(
            400,
            f"The body of the request has no start_event, and {', '.join(body.model_extra)} where nobody looks: the "
            f"fields of the start event stand in start_event; beside it {', '.join(others)} and {last} are known",
        )
