"""Routes of runs: status, records, stream, questions, messages, forks and cancellation."""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from batonflow.clock import current_source
from batonflow.durable.cancels import cancel_run, cancel_without_code
from batonflow.durable.trace import trace_of
from batonflow.server.bodies import body_of, choice, flag, number, run_id_of, seconds, words
from batonflow.server.inbox import Inbox
from batonflow.server.pending import UnfitAnswerError, answer, open_requests, put, request_as_json
from batonflow.server.queries import run_query
from batonflow.server.responses import JSON, refusal
from batonflow.server.routes_workflows import ID_LENGTH
from batonflow.server.runs import Place, Runs, not_found, status_of
from batonflow.server.shapes import AnswerBody, ForkBody, SendBody
from batonflow.server.sse import EventStream
from batonflow.server.states import states_in
from batonflow.server.streaming import Following
from batonflow.workflow_core.errors import ReplayIncompatible, StoreError, WorkflowRuntimeError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.stored_runs import StoredRuns

__all__ = ["RunRoutes"]

MOST_RUNS = 1000
LARGEST_PART = 4096
SECONDS_TO_CANCEL = 5.0


class RunRoutes:
    """Handler of requests about runs.

    Args:
        runs: The runs of the server.
        compat_status_codes: Answer with the status codes of LlamaIndex's server.
        heartbeat_interval: Seconds between heartbeats on a stream without events.
        is_closing: Returns True while the server stops.
    """

    def __init__(
        self, runs: Runs, *, compat_status_codes: bool, heartbeat_interval: float, is_closing: Callable[[], bool]
    ) -> None:
        self._runs = runs
        self._compat_status_codes = compat_status_codes
        self._heartbeat_interval = heartbeat_interval
        self._is_closing = is_closing
        self._inbox = Inbox(runs)

    def routes(self) -> list[Route]:
        """Return the routes; a run id may contain slashes, so longer paths come first."""
        run = "/handlers/{run_id:path}"
        return [
            Route("/handlers", self.runs, methods=["GET"]),
            Route("/pending", self.inbox, methods=["GET"]),
            Route("/fleet", self.fleet, methods=["GET"]),
            Route(f"{run}/trace", self.trace, methods=["GET"]),
            Route(f"{run}/state", self.state, methods=["GET"]),
            Route(f"{run}/pending", self.pending, methods=["GET"]),
            Route(f"{run}/pending/{{request_id:path}}", self.answer, methods=["POST"]),
            Route(f"{run}/fork", self.fork, methods=["POST"]),
            Route(f"{run}/cancel", self.cancel, methods=["POST"]),
            Route(f"{run}/release", self.release, methods=["POST"]),
            Route(run, self.run, methods=["GET"]),
            Route("/results/{run_id:path}", self.result, methods=["GET"]),
            Route("/events/{run_id:path}", self.events, methods=["GET"]),
            Route("/events/{run_id:path}", self.send, methods=["POST"]),
        ]

    async def _place(self, request: Request) -> Place:
        return await self._runs.find(request.path_params["run_id"])

    # --- how runs stand -----------------------------------------------------------------------------------------------

    async def runs(self, request: Request) -> Response:
        """Return all runs, or a selection."""
        after = request.query_params.get("after") or None
        limit = number(request, "limit", MOST_RUNS, least=1, most=MOST_RUNS)
        newest_first = choice(request, "order", ("asc", "desc")) == "desc"
        query, names, statuses = run_query(request), words(request, "workflow_name"), words(request, "status")
        page = await self._runs.page(
            query, lambda place: place.fits(names, statuses), after, limit, newest_first=newest_first
        )
        result = flag(request, "include_results", default=False)
        return JSON(
            {
                "handlers": [await self._runs.told_now(place, result=result) for place in page.places],
                "next": page.places[-1].info.run_id if page.more else None,
                "unread": page.unread,
            }
        )

    async def run(self, request: Request) -> Response:
        """Return one run."""
        found = await self._runs.told_now(await self._place(request))
        return JSON(found, self._status_for(found))

    async def result(self, request: Request) -> Response:
        """Return one run, its result without an envelope; an older form of ``run``."""
        found = self._runs.run_as_json(await self._place(request))
        result: Any = found["result"]
        if result is not None:
            value = result["value"]
            found["result"] = value.get("result", value) if result["type"] == "StopEvent" else value
        return JSON(found, self._status_for(found))

    def _status_for(self, found: dict[str, Any]) -> int:
        if not self._compat_status_codes:
            return 200
        return {"completed": 200, "running": 202}.get(found["status"], 500)

    # --- records ------------------------------------------------------------------------------------------------------

    async def trace(self, request: Request) -> Response:
        """Return the records of a run."""
        place = await self._place(request)
        after, limit = number(request, "after", 0), number(request, "limit", 500, least=1, most=5000)
        commits = await place.store.read(place.info.run_id, after, limit)
        largest = None if flag(request, "full", default=False) else LARGEST_PART
        parts: list[Any] | None = [] if flag(request, "parts", default=False) else None
        entries = trace_of(commits, largest=largest, parts=parts)
        last = commits[-1].seq if commits else after
        # Include commits since the lookup: a reader that follows needs all of them.
        info = await place.store.info(place.info.run_id) or place.info
        answer = {"entries": entries, "next": last, "more": last < info.seq, "status": status_of(info)}
        return JSON(answer if parts is None else {**answer, "parts": parts})

    async def state(self, request: Request) -> Response:
        """Return the key-value state of a run."""
        place = await self._place(request)
        wanted = None if "commit" not in request.query_params else number(request, "commit", 0, least=1)
        if wanted is not None and wanted > place.info.seq:
            raise HTTPException(404, f"The run has no commit {wanted}; the last one is {place.info.seq}")
        try:
            loaded = await place.store.load(place.info.run_id, wanted)
        except StoreError:
            if wanted is None:
                raise
            raise HTTPException(404, f"Commit {wanted} is not kept any more") from None
        if loaded is None:
            raise not_found(place.info.run_id)
        states = states_in(loaded)
        own = states.pop("", {})
        return JSON({"commit": wanted or loaded.info.seq, "state": own, "children": states})

    async def pending(self, request: Request) -> Response:
        """Return the open questions of a run."""
        place = await self._place(request)
        return JSON({"pending": [request_as_json(one) for one in await self._open(place)]})

    async def inbox(self, request: Request) -> Response:
        """Return the open questions of all runs."""
        return JSON(await self._inbox.read(words(request, "workflow_name")))

    async def fleet(self, _: Request) -> Response:
        """Return the workers and the queues."""
        return JSON(await self._runs.workers.told())

    async def _open(self, place: Place) -> list[Any]:
        try:
            return await open_requests(place)
        except ReplayIncompatible as error:
            raise HTTPException(409, str(error)) from None

    # --- events -------------------------------------------------------------------------------------------------------

    async def events(self, request: Request) -> Response:
        """Return the stream of a run."""
        place = await self._place(request)
        internal = flag(request, "include_internal", default=False)
        sse = flag(request, "sse", default=True)
        names = flag(request, "include_qualified_name", default=True)
        deltas, pieces = flag(request, "deltas", default=False), seconds(request, "pieces")
        if pieces and not deltas:
            raise HTTPException(400, "pieces puts the pieces of answers together, and needs deltas=1")
        run_id = place.info.run_id
        following = Following(
            self._runs,
            place,
            _start_position(request),
            internal=internal,
            pause=self._heartbeat_interval,
            is_closing=self._is_closing,
        )
        if place.is_over and place.live() is None and not await following.has_more():
            return Response(status_code=204)
        return EventStream(
            following.batches(),
            sse=sse,
            names=names,
            deltas=deltas,
            pieces=pieces,
            idles=lambda: self._runs.troubles.get(run_id, ""),
        )

    async def send(self, request: Request) -> Response:
        """Send an event to a run."""
        place = await self._place(request)
        body = await body_of(request, SendBody)
        if place.is_over:
            raise HTTPException(409, f"Run {place.info.run_id} is over ({place.info.status}) and takes no more events")
        served = place.workflow()
        event = served.event(body.event, await _awaited_classes(place))
        try:
            await put(place, event, step=body.step)
        except WorkflowRuntimeError as error:
            raise HTTPException(400, str(error)) from None
        await self._runs.wake(place)
        return JSON({"status": "sent"})

    async def answer(self, request: Request) -> Response:
        """Answer a question of a run."""
        place = await self._place(request)
        body = await body_of(request, AnswerBody)
        try:
            await answer(self._runs, place, request.path_params["request_id"], body.response)
        except UnfitAnswerError as error:
            return refusal(422, error.problems)
        except ReplayIncompatible as error:
            raise HTTPException(409, str(error)) from None
        return JSON({"status": "sent"})

    # --- commands -----------------------------------------------------------------------------------------------------

    async def fork(self, request: Request) -> Response:
        """Fork a run."""
        place = await self._place(request)
        body = await body_of(request, ForkBody)
        served = place.workflow()
        new_id = run_id_of(body.new_id or current_source().token(ID_LENGTH), "new_id")
        at, state = body.at or 0, body.state
        if body.call is not None:
            from batonflow.server.changed_calls import before_call  # noqa: PLC0415 - agents are loaded for their calls

            at, changes = await before_call(place, body.call)
            state = {**(state or {}), **changes}
        elif any(path.partition(".")[0] == "request_changes" for path in state or ()):
            raise HTTPException(400, "state cannot hold request_changes: give the changes as call")
        last = place.info.seq - 1 if place.is_over else place.info.seq
        if at > last:
            raise HTTPException(400, f"at must be the number of a commit before the end of the run, from 1 to {last}")
        if await self._runs.look_for(new_id) is not None:
            raise HTTPException(409, f"The store already has a run {new_id}: choose another new_id")
        event = None if body.event is None else served.event(body.event, await _awaited_classes(place, at))
        handler = StoredRuns.fork(served.workflow, place.info.run_id, at, state=state, event=event, new_id=new_id)
        try:
            await handler.started()
        except StoreError as error:
            raise HTTPException(409, str(error)) from None
        except WorkflowRuntimeError as error:
            raise HTTPException(400, str(error)) from None
        self._runs.arrived(new_id)
        return JSON(self._runs.run_as_json(await self._runs.find(new_id)))

    async def release(self, request: Request) -> Response:
        """Let a held run be taken up again."""
        place = await self._place(request)
        if not await place.store.release_held(place.info.run_id):
            raise HTTPException(409, f"Run {place.info.run_id} is not held")
        return JSON(await self._runs.told_now(await self._place(request)))

    async def cancel(self, request: Request) -> Response:
        """Cancel a run; with ``purge`` delete it too."""
        place = await self._place(request)
        purge = flag(request, "purge", default=False)
        if place.is_over and not purge:
            if self._compat_status_codes:
                raise not_found(place.info.run_id)
            raise HTTPException(409, f"Run {place.info.run_id} is over ({place.info.status}): purge=true deletes it")
        # A run without a driver and without code on this server is deleted as it is.
        if not place.is_over and not (purge and place.is_nobodys):
            await self._cancel(place)
        if not purge:
            return await self._cancel_response(place)
        try:
            await place.store.delete(place.info.run_id)
        except StoreError:
            raise HTTPException(409, f"Run {place.info.run_id} is still running in another process") from None
        return JSON({"status": "deleted"})

    async def _cancel(self, place: Place) -> None:
        run_id = place.info.run_id
        live = place.live()
        try:
            if live is not None:
                await live.cancel_run()
            elif place.is_nobodys or place.info.held:
                await cancel_without_code(place.store, run_id)
            else:
                await cancel_run(place.store, run_id, "")
                await self._runs.wake(place)
        except StoreError:
            if (now := await self._runs.look_for(run_id)) is not None and not now.is_over:
                raise
        # Another process may drive the run.
        try:
            async with asyncio.timeout(SECONDS_TO_CANCEL):
                async for _ in place.store.subscribe(run_id, place.info.seq):
                    pass
        except TimeoutError:
            return

    async def _cancel_response(self, place: Place) -> Response:
        now = (await self._runs.find(place.info.run_id)).info.status
        if now == "cancelled":
            return JSON({"status": "cancelled"})
        if now in ("completed", "failed"):
            raise HTTPException(409, f"Run {place.info.run_id} is over ({now}): it ended before it was cancelled")
        return JSON({"status": "cancelling"}, 202)


async def _awaited_classes(place: Place, at: int | None = None) -> set[type[Event]]:
    try:
        return await StoredRuns.awaited_events(place.workflow().workflow, place.info.run_id, at)
    except ReplayIncompatible as error:
        raise HTTPException(409, str(error)) from None


def _start_position(request: Request) -> int | None:
    given = request.headers.get("last-event-id") or request.query_params.get("after_sequence", "-1")
    if given == "now":
        return None
    if not given.isascii() or not given.removeprefix("-").isdigit() or len(given) > 17:
        raise HTTPException(400, 'after_sequence and Last-Event-ID must be a whole number or "now"')
    return max(-1, int(given))
