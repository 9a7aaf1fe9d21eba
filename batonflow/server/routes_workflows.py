"""Routes of workflows: descriptions, and the start of runs."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from batonflow.clock import current_source
from batonflow.draw import workflow_svg
from batonflow.draw.representation.build import get_workflow_representation
from batonflow.server.bodies import body_of, flag, moment, run_id_of
from batonflow.server.responses import JSON
from batonflow.server.runs import Place, Runs
from batonflow.server.served import Served, schema_of
from batonflow.server.shapes import EnqueueBody, RunBody
from batonflow.values.problems import misspelt
from batonflow.workflow_core.context.context import Context
from batonflow.workflow_core.errors import (
    BatonflowError,
    ContextSerdeError,
    RunInputMismatchError,
    RunInterruptedError,
    RunInUseError,
    RunLostError,
    StoreError,
    WorkflowRuntimeError,
)
from batonflow.workflow_core.events import StartEvent
from batonflow.workflow_core.handler import WorkflowHandler

__all__ = ["WorkflowRoutes"]

ID_LENGTH = 24


class WorkflowRoutes:
    """Handler of requests about workflows.

    Args:
        runs: The runs of the server.
        compat_status_codes: Answer with the status codes of LlamaIndex's server.
        accept_context_api: Accept snapshots as ``context`` at the start of a run.
        accept_sessions: Accept the options of sessions and metadata at the start of a run.
        is_closing: Returns True while the server stops.
    """

    def __init__(
        self,
        runs: Runs,
        *,
        compat_status_codes: bool,
        accept_context_api: bool,
        accept_sessions: bool,
        is_closing: Callable[[], bool],
    ) -> None:
        self._runs = runs
        self._compat_status_codes = compat_status_codes
        self._accept_context_api = accept_context_api
        self._accept_sessions = accept_sessions
        self._is_closing = is_closing

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/workflows", self.names, methods=["GET"]),
            Route("/workflows/{name}/schema", self.schema, methods=["GET"]),
            Route("/workflows/{name}/events", self.events, methods=["GET"]),
            Route("/workflows/{name}/representation", self.representation, methods=["GET"]),
            Route("/workflows/{name}/run", self.run, methods=["POST"]),
            Route("/workflows/{name}/run-nowait", self.run_nowait, methods=["POST"]),
            Route("/handlers", self.enqueue, methods=["POST"]),
        ]

    def _served(self, request: Request) -> Served:
        return self._runs.workflow(request.path_params["name"])

    # --- descriptions -------------------------------------------------------------------------------------------------

    async def names(self, _: Request) -> Response:
        """Return the names of the workflows."""
        return JSON({"workflows": list(self._runs.served)})

    async def schema(self, request: Request) -> Response:
        """Return the schemas of a workflow's start and stop events."""
        workflow = self._served(request).workflow
        steps = workflow.__batonflow__.steps
        return JSON({"start": schema_of(steps.start_event_class), "stop": schema_of(steps.stop_event_class)})

    async def events(self, request: Request) -> Response:
        """Return the events of a workflow."""
        return JSON({"events": self._served(request).schemas()})

    async def representation(self, request: Request) -> Response:
        """Return the event graph of a workflow."""
        workflow = self._served(request).workflow
        graph = get_workflow_representation(workflow)
        return JSON({"graph": graph.model_dump(mode="json"), "svg": workflow_svg(workflow)})

    # --- runs ---------------------------------------------------------------------------------------------------------

    async def run(self, request: Request) -> Response:
        """Start a run, or join a run with the same id and input, and wait for its end."""
        run_id, handler = await self._started(request)
        if handler is None:
            await self._over_elsewhere(run_id)
        else:
            await _over(handler)
        data = self._runs.run_as_json(await self._runs.find(run_id))
        failed = data["status"] != "completed"
        return JSON(data, 500 if failed and self._compat_status_codes else 200)

    async def run_nowait(self, request: Request) -> Response:
        """Start a run, or join a run with the same id and input."""
        run_id, _ = await self._started(request)
        return JSON(self._runs.run_as_json(await self._runs.find(run_id)))

    async def enqueue(self, request: Request) -> Response:
        """Store a run for whichever process takes it up."""
        if not flag(request, "enqueue", default=False):
            raise HTTPException(
                400,
                "POST /handlers stores a run for whichever process takes it up: add enqueue=1, or start a run with "
                "POST /workflows/{name}/run-nowait",
            )
        body = await body_of(request, EnqueueBody)
        served = self._runs.workflow(body.workflow)
        event = served.start_event(body.start_event, None)
        run_id = await self._id_for(body.handler_id, served, event)
        later = None if body.not_before is None else datetime.fromtimestamp(moment(body.not_before, "not_before"), UTC)
        try:
            await served.workflow.enqueue(
                start_event=event, run_id=run_id, queue=body.queue, priority=body.priority, not_before=later
            )
        except RunInputMismatchError:
            raise _started_otherwise(run_id) from None
        except StoreError as error:
            raise HTTPException(400, str(error)) from None
        return JSON(self._runs.run_as_json(await self._runs.find(run_id)), 202)

    async def _started(self, request: Request) -> tuple[str, WorkflowHandler | None]:
        """Return the id of a run and its handler; None if another process drives it."""
        served = self._served(request)
        body = await body_of(request, RunBody)
        _refuse_stray_fields(body)
        asked = self._asked(served, body)
        context = self._context(served, body)
        resumes = context is not None and context.is_resumable
        event = None if resumes else served.start_event(body.start_event, body.kwargs)
        if not self._runs.drives:
            return await self._stored(served, body, event, asked), None
        named_later = "session" in asked or "request_id" in asked
        run_id = "" if named_later and not body.handler_id else await self._id_for(body.handler_id, served, event)
        try:
            handler = served.workflow.run(ctx=context, start_event=event, run_id=run_id or None, **asked)
            await handler.started()
        except RunInputMismatchError as error:
            raise HTTPException(409, str(error)) if named_later else _started_otherwise(run_id) from None
        except RunInUseError:
            return run_id, None
        except WorkflowRuntimeError as error:
            raise HTTPException(409 if named_later else 400, str(error)) from None
        except (BatonflowError, ValueError) as error:
            if not asked:
                raise
            raise HTTPException(400 if isinstance(error, ValueError) else 409, str(error)) from None
        run_id = handler.run_id
        self._runs.arrived(run_id)
        return run_id, handler

    async def _stored(self, served: Served, body: RunBody, event: StartEvent | None, asked: Mapping[str, Any]) -> str:
        """Store a run for workers, and return its id.

        Raises:
            HTTPException: 409 for a run that only this process could start.
        """
        if event is None or asked:
            raise HTTPException(
                409, "This server does not drive runs: leave out context, session, request_id, if_busy and metadata"
            )
        run_id = await self._id_for(body.handler_id, served, event)
        try:
            return await served.workflow.enqueue(start_event=event, run_id=run_id)
        except RunInputMismatchError:
            raise _started_otherwise(run_id) from None
        except StoreError as error:
            raise HTTPException(400, str(error)) from None

    async def _id_for(self, given: str | None, served: Served, event: StartEvent | None) -> str:
        """Return the id for a new, an unfinished, or a finished run.

        Raises:
            HTTPException: 409 if the run of this id has other input, or if a snapshot should continue under it.
        """
        if not given:
            return current_source().token(ID_LENGTH)
        run_id_of(given, "handler_id")
        known = await self._runs.look_for(given)
        if known is not None and not known.is_over:
            if event is None:
                raise HTTPException(409, f"Run {given} is already running: use another handler_id for the context")
            if known.served is not served or known.info.digest != served.digest(event):
                raise _started_otherwise(given)
        return given

    async def _over_elsewhere(self, run_id: str) -> None:
        """Wait for the end of a run that another process drives, also if it moves into this process."""
        while not (place := await self._runs.find(run_id)).is_over:
            with self._runs.arrival(run_id) as arrived:
                ending = asyncio.create_task(_followed(place))
                try:
                    await asyncio.wait({ending, arrived}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not ending.done():
                        ending.cancel()
                        await asyncio.wait({ending})
            if self._is_closing():
                raise _stopped(run_id)
            if not ending.cancelled():
                ending.result()
            if (live := place.live()) is not None:
                await _over(live)

    def _asked(self, served: Served, body: RunBody) -> dict[str, Any]:
        """Return the options of a session and the metadata of a request.

        Raises:
            HTTPException: 400 if the server does not accept them, or the workflow is not an agent.
        """
        asked = {name: getattr(body, name) for name in ("session", "request_id", "if_busy", "metadata")}
        given = [name for name in asked if name in body.model_fields_set and asked[name] is not None]
        if not given:
            return {}
        if not self._accept_sessions:
            raise HTTPException(
                400, f"This server does not accept {given[0]}: create it with WorkflowServer(accept_sessions=True)"
            )
        if not served.is_agent:
            raise HTTPException(400, f"Workflow {served.name} is not an agent: leave out {given[0]}")
        return {name: asked[name] for name in given}

    def _context(self, served: Served, body: RunBody) -> Context[Any] | None:
        if not body.context:
            return None
        if not self._accept_context_api:
            raise HTTPException(
                400, "This server does not accept a context: create it with WorkflowServer(accept_context_api=True)"
            )
        try:
            return Context.from_dict(served.workflow, body.context)
        except (ContextSerdeError, ValueError, KeyError, TypeError) as error:
            raise HTTPException(400, f"The context cannot be read: {type(error).__name__}") from None


async def _followed(place: Place) -> None:
    async for _ in place.store.subscribe(place.info.run_id, place.info.seq):
        pass


async def _over(handler: WorkflowHandler) -> None:
    """Wait for the end of a run.

    Raises:
        HTTPException: 503 if it stops in this process before its end.
    """
    try:
        await handler.stop_event_result()
    except (RunInterruptedError, RunLostError):
        raise _stopped(handler.run_id) from None
    except asyncio.CancelledError:
        if not handler.is_done():  # the request was cancelled, not the run
            raise
    except Exception:  # noqa: BLE001, S110 - the run's own error, which its record contains
        pass


def _stopped(run_id: str) -> HTTPException:
    return HTTPException(503, f"Run {run_id} stopped here before its end; it continues when it is resumed")


def _started_otherwise(run_id: str) -> HTTPException:
    return HTTPException(
        409, f"Run {run_id} was started with other input or by another workflow: use another handler_id"
    )


def _refuse_stray_fields(body: RunBody) -> None:
    """Refuse a body with fields of the start event in the wrong place, because they would be ignored.

    Raises:
        HTTPException: 400 for such a body.
    """
    if body.model_extra and body.start_event is None and body.kwargs is None and not body.context:
        *others, last = (name for name in RunBody.model_fields if name != "start_event")
        raise HTTPException(
            400,
            f"The body of the request has no start_event, and {', '.join(body.model_extra)} in its place: put the "
            f"fields of the start event into start_event; the other fields are {', '.join(others)} and {last}",
        )
    for name, meant in misspelt(body.model_extra or (), list(RunBody.model_fields)).items():
        raise HTTPException(400, f"The body of the request has no field {name!r}. Did you mean {meant!r}?")
