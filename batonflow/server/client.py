"""Clients of a WorkflowServer, asynchronous and synchronous, from one source.

Needs ``pip install 'batonflow[client]'``.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, cast
from urllib.parse import quote

from batonflow.bridge import run_on_background_loop
from batonflow.lazy import how_to_install
from batonflow.server.deltas import Rebuilding
from batonflow.workflow_core.errors import RemoteRunError, ServerRefusedError, WorkflowCancelledByUser
from batonflow.workflow_core.events import Event, StartEvent

try:
    import httpx2
except ModuleNotFoundError as missing:
    raise ImportError(
        f"The client of a WorkflowServer needs the package httpx2: {how_to_install('client')}"
    ) from missing

__all__ = ["PendingRequest", "RemoteEvent", "RemoteRun", "SyncWorkflowClient", "WorkflowClient"]

P = ParamSpec("P")
T = TypeVar("T")

Status = Literal["running", "completed", "failed", "cancelled"]

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
"""Seconds between attempts to continue a stream; they double each time."""

SETTLED = 0.3
"""Seconds until a connection counts as a working one."""

_AWAY = frozenset({502, 503, 504})
"""Statuses of a stopping server, or of a proxy in front of a missing one."""


@dataclass(frozen=True)
class RemoteRun:
    """A run as the server reports it.

    Attributes:
        run_id: The run.
        workflow: Name of the workflow.
        status: The status of the run.
        waiting: True if it waits for a person or another event from outside.
        result: The fields of the event that ended it, or the value of ``result`` if that is its only field.
        error: The text of its error.
        error_type: Class of that error.
        data: The complete answer of the server.
    """

    run_id: str
    workflow: str
    status: Status
    waiting: bool
    result: Any
    error: str | None
    error_type: str | None
    data: dict[str, Any] = field(repr=False)

    @property
    def is_over(self) -> bool:
        """Return True if the run has ended."""
        return self.status != "running"


@dataclass(frozen=True)
class RemoteEvent:
    """An event of a run's stream.

    Attributes:
        seq: Its position in the stream; grows, with gaps.
        type: Name of its class.
        types: Names of the classes above it.
        value: Its fields.
        ts: Wall-clock seconds of its creation.
        step: The step that wrote it, empty for the engine.
        path: The workflow in the tree, empty for the run itself.
        data: The whole envelope.
    """

    seq: int
    type: str
    types: tuple[str, ...]
    value: dict[str, Any]
    ts: float | None
    step: str
    path: str
    data: dict[str, Any] = field(repr=False)

    @property
    def is_last(self) -> bool:
        """Return True if the run ended with this event."""
        return self.path == "" and "StopEvent" in (self.type, *self.types)


@dataclass(frozen=True)
class PendingRequest:
    """A question to a person, or a tool call that waits for approval.

    Attributes:
        id: Unique within its run.
        kind: ``"input"`` or ``"approval"``.
        event: Name of the class of the question.
        value: Its fields.
        schema: JSON Schema of the answer.
        data: The complete answer of the server.
        run_id: The run that asks.
    """

    id: str
    kind: Literal["input", "approval"]
    event: str
    value: dict[str, Any]
    schema: dict[str, Any]
    data: dict[str, Any] = field(repr=False)
    run_id: str = ""


class WorkflowClient:
    """Client that starts, follows, answers, cancels and forks runs on a WorkflowServer.

    Args:
        base_url: The address of the server.
        token: The token of the server, if it has one.
        timeout: Seconds for a request that does not wait for a run.
        patience: Seconds of further attempts of ``stream`` and ``result`` if the server cannot be reached.
        http_client: An ``httpx2.AsyncClient`` to use instead of a new one; it is not closed.

    Raises:
        ServerRefusedError: By every method, if the server answers with an error; it has the status and the text.
        httpx2.TransportError: By every method, if the server cannot be reached.

    Example:
        >>> async with WorkflowClient("http://127.0.0.1:8080") as client:
        ...     print(await client.run("greeting", {"name": "Ann"}))
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8080",
        *,
        token: str | None = None,
        timeout: float = 30.0,
        patience: float = 60.0,
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        self._own = http_client is None
        self._http = http_client or httpx2.AsyncClient(timeout=timeout)
        self._base = base_url.rstrip("/")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._patience = patience

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        if self._own:
            await self._http.aclose()

    # --- runs ---------------------------------------------------------------------------------------------------------

    async def run(
        self,
        workflow: str,
        start_event: Mapping[str, Any] | StartEvent | None = None,
        *,
        run_id: str | None = None,
        **request: Any,
    ) -> Any:
        """Start a run, wait for its end and return its result.

        Args:
            workflow: Its name on the server.
            start_event: Fields of the start event.
            run_id: The id of the run. A finished run with the same input gives its result again.
            **request: ``session``, ``request_id``, ``if_busy`` and ``metadata`` of a run of an agent.

        Raises:
            RemoteRunError: The run failed.
            WorkflowCancelledByUser: It was cancelled.
        """
        started = await self.start(workflow, start_event, run_id=run_id, **request)
        return await self.result(started.run_id)

    async def start(
        self,
        workflow: str,
        start_event: Mapping[str, Any] | StartEvent | None = None,
        *,
        run_id: str | None = None,
        **request: Any,
    ) -> RemoteRun:
        """Start a run and return at once; the arguments are the same as for ``run``."""
        body: dict[str, Any] = {"start_event": _fields(start_event), **request}
        if run_id is not None:
            body["handler_id"] = run_id
        return _run(await self._json("POST", f"/workflows/{_name(workflow)}/run-nowait", json=body))

    async def result(self, run_id: str) -> Any:
        """Wait for the end of a run and return its result.

        Raises:
            RemoteRunError: The run failed.
            WorkflowCancelledByUser: It was cancelled.
        """
        run = await self.get(run_id)
        while not run.is_over:
            async for _ in self.stream(run_id, after="now"):
                pass
            run = await self.get(run_id)
        if run.status == "failed":
            raise RemoteRunError(run_id, run.error_type or "", run.error or "")
        if run.status == "cancelled":
            raise WorkflowCancelledByUser(f"Run {run_id!r} was cancelled")
        return run.result

    async def stream(
        self, run_id: str, *, after: int | Literal["now"] = -1, internal: bool = False, pieces: float = 0.05
    ) -> AsyncIterator[RemoteEvent]:
        """Yield the events of a run, from the first to the last; continue after a lost connection.

        Args:
            run_id: The run.
            after: Begin after this position; ``"now"`` for new events only.
            internal: Include the engine's internal events.
            pieces: Seconds for which the server puts pieces of an answer together, up to 9.999; 0 for each piece by
                itself. Only new text is sent; ``value["response"]`` is the text so far.

        Raises:
            httpx2.TransportError: The server could not be reached for longer than the client's patience.
            ServerRefusedError: The run does not exist, or a proxy reported for this time that the server is away.
        """
        query = {"sse": "true", "include_internal": "true" if internal else "false", "deltas": "true"}
        if pieces:
            query["pieces"] = f"{round(1000 * pieces)}ms"
        pause, alive = FIRST_PAUSE, time.monotonic()
        while True:
            cut: Exception | None = None
            opened: float | None = None
            try:
                async with self._events(run_id, {**query, "after_sequence": str(after)}) as source:
                    if source is None:
                        return
                    opened = time.monotonic()
                    answers = Rebuilding()
                    async for sent in source:
                        event = _event(answers.whole(cast("dict[str, Any]", sent.json())), sent.id)
                        yield event
                        if event.is_last:
                            return
                        after, pause, alive = event.seq, FIRST_PAUSE, time.monotonic()
            except httpx2.TransportError as error:
                cut = error
            except ServerRefusedError as error:
                if error.status_code not in _AWAY:
                    raise
                cut = error
            now = time.monotonic()
            if opened is not None and now - opened > SETTLED:  # the server answered, with or without events
                pause, alive = FIRST_PAUSE, now
            if now - alive > self._patience:
                raise cut or httpx2.RemoteProtocolError(f"The server keeps ending the stream of run {run_id!r}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def get(self, run_id: str) -> RemoteRun:
        """Return the state of a run."""
        return _run(await self._json("GET", f"/handlers/{_name(run_id)}", allowed=(500,)))

    async def runs(
        self,
        *,
        status: Status | Literal["ready", "waiting", "held"] | None = None,
        workflow: str | None = None,
        limit: int = 100,
        after: str | None = None,
        metadata: Mapping[str, str] | None = None,
        text: str = "",
        model: str = "",
        error: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        min_cost: float | None = None,
        max_cost: float | None = None,
    ) -> list[RemoteRun]:
        """Return runs of the server, newest first, without their results; ``get`` returns a run with its result.

        Args:
            status: Only runs with this status; ``"running"`` includes ready, waiting and held runs.
            workflow: Only runs of this workflow.
            limit: Largest number of runs.
            after: Only runs after this one.
            metadata: Only runs with these metadata.
            text: Only runs with these words, or words that begin so, in their contents.
            model: Only runs for which a model with this in its name has answered.
            error: Only runs with an error that has this in its text.
            since: Only runs that were created at or after this time.
            until: Only runs that were created before this time.
            min_cost: Only runs that cost so many US dollars or more.
            max_cost: Only runs that cost so many US dollars or less.
        """
        query: dict[str, Any] = {
            "status": status,
            "workflow_name": workflow,
            "limit": str(limit),
            "after": after,
            "order": "desc",
            "text": text,
            "model": model,
            "error": error,
            "since": _iso("since", since),
            "until": _iso("until", until),
            "min_cost": min_cost,
            "max_cost": max_cost,
        }
        given = {name: value for name, value in query.items() if value not in (None, "")}
        if metadata:
            given["metadata"] = [f"{name}={value}" for name, value in metadata.items()]
        found = await self._json("GET", "/handlers", params=given)
        return [_run(one) for one in found["handlers"]]

    async def cancel(self, run_id: str) -> None:
        """Cancel a run."""
        await self._json("POST", f"/handlers/{_name(run_id)}/cancel")

    async def release(self, run_id: str) -> None:
        """Let a held run be taken up again."""
        await self._json("POST", f"/handlers/{_name(run_id)}/release")

    async def fork(
        self,
        run_id: str,
        at: int | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        event: Event | None = None,
        new_id: str | None = None,
        call: Mapping[str, Any] | None = None,
    ) -> RemoteRun:
        """Start a run that shares another run's commits up to one; see ``Workflow.fork`` for the arguments.

        Args:
            run_id: The run.
            at: The number of the last shared commit.
            state: Values for the state.
            event: Sent to the new run.
            new_id: The id of the new run.
            call: Instead of ``at``, a call of a model to make again: ``record`` and ``index`` as in ``trace``, with
                ``messages`` (texts by place), ``llm``, ``options`` and ``ask_before_tools``.
        """
        body: dict[str, Any] = {"state": dict(state or {})}
        if at is not None:
            body["at"] = at
        if call is not None:
            body["call"] = dict(call)
        if event is not None:
            body["event"] = _envelope(event)
        if new_id is not None:
            body["new_id"] = new_id
        return _run(await self._json("POST", f"/handlers/{_name(run_id)}/fork", json=body))

    async def trace(self, run_id: str, *, whole: bool = False) -> list[dict[str, Any]]:
        """Return the records of a run; see ``batonflow.durable.trace``.

        Args:
            run_id: The run.
            whole: Include large values completely, instead of their beginning.
        """
        entries: list[dict[str, Any]] = []
        after, more = 0, True
        while more:
            query = {"after": str(after), "full": "true" if whole else "false"}
            page = await self._json("GET", f"/handlers/{_name(run_id)}/trace", params=query)
            entries += page["entries"]
            after, more = page["next"], page["more"]
        return entries

    async def state(self, run_id: str, *, commit: int | None = None) -> dict[str, Any]:
        """Return the key-value state of a run, now or after a commit."""
        query = {} if commit is None else {"commit": str(commit)}
        told = await self._json("GET", f"/handlers/{_name(run_id)}/state", params=query)
        return cast("dict[str, Any]", told["state"])

    # --- people -------------------------------------------------------------------------------------------------------

    async def send(self, run_id: str, event: Event | Mapping[str, Any], *, step: str | None = None) -> None:
        """Send an event into a run.

        Args:
            run_id: The run.
            event: An event, or ``{"type": class name, "value": fields}``.
            step: The only step that receives it.
        """
        body: dict[str, Any] = {"event": _envelope(event) if isinstance(event, Event) else dict(event)}
        if step is not None:
            body["step"] = step
        await self._json("POST", f"/events/{_name(run_id)}", json=body)

    async def pending(self, run_id: str) -> list[PendingRequest]:
        """Return the open questions of a run."""
        told = await self._json("GET", f"/handlers/{_name(run_id)}/pending")
        return [_pending(one, run_id) for one in told["pending"]]

    async def inbox(self, *, workflow: str | None = None) -> list[PendingRequest]:
        """Return the open questions of all runs, newest run first.

        Args:
            workflow: Only questions of runs of this workflow.
        """
        query = {} if workflow is None else {"workflow_name": workflow}
        told = await self._json("GET", "/pending", params=query)
        return [_pending(one, one["handler_id"]) for one in told["pending"]]

    async def answer(self, run_id: str, request_id: str, /, **fields: Any) -> None:
        """Answer a question; ``fields`` are the fields of the awaited event that are not filled in already."""
        path = f"/handlers/{_name(run_id)}/pending/{quote(request_id, safe='')}"
        await self._json("POST", path, json={"response": fields})

    async def approve(self, run_id: str, request_id: str, *, arguments: Mapping[str, Any] | None = None) -> None:
        """Approve a tool call, optionally with other arguments."""
        changed = {} if arguments is None else {"arguments": dict(arguments)}
        await self.answer(run_id, request_id, approved=True, **changed)

    async def deny(self, run_id: str, request_id: str, *, reason: str = "") -> None:
        """Deny a tool call; the model reads the reason."""
        await self.answer(run_id, request_id, approved=False, reason=reason)

    # --- the server ---------------------------------------------------------------------------------------------------

    async def workflows(self) -> list[str]:
        """Return the names of the server's workflows."""
        return cast("list[str]", (await self._json("GET", "/workflows"))["workflows"])

    async def is_healthy(self) -> bool:
        """Return True if the server is reachable and started."""
        try:
            await self._json("GET", "/health")
        except (ServerRefusedError, httpx2.TransportError):
            return False
        return True

    async def ready(self, timeout: float = 30.0) -> None:
        """Wait until the server is reachable and started.

        Args:
            timeout: Seconds to wait.

        Raises:
            TimeoutError: The server did not start in time.
        """
        until = time.monotonic() + timeout
        while not await self.is_healthy():
            if time.monotonic() > until:
                raise TimeoutError(f"no WorkflowServer was ready at {self._base} within {timeout} seconds")
            await asyncio.sleep(FIRST_PAUSE / 2)

    async def _json(self, method: str, path: str, *, allowed: tuple[int, ...] = (), **request: Any) -> dict[str, Any]:
        response = await self._http.request(method, self._base + path, headers=self._headers, **request)
        if not response.is_success and response.status_code not in allowed:
            raise _refusal(response)
        try:
            body: Any = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise ServerRefusedError(
                response.status_code, f"no WorkflowServer answers at {self._base}: {response.text[:200]}", path
            )
        if response.status_code in allowed and "status" not in body:
            raise _refusal(response)
        return cast("dict[str, Any]", body)

    @contextlib.asynccontextmanager
    async def _events(self, run_id: str, query: dict[str, str]) -> AsyncGenerator[httpx2.EventSource | None]:
        url = f"{self._base}/events/{_name(run_id)}"
        # While a run waits, only the server's heartbeats arrive.
        timeout = httpx2.Timeout(30.0, read=120.0)
        async with self._http.stream("GET", url, params=query, headers=self._headers, timeout=timeout) as response:
            if response.status_code == 204:
                yield None
                return
            if not response.is_success:
                await response.aread()
                raise _refusal(response)
            yield httpx2.EventSource(response, max_event_size=None)


# --- sync -------------------------------------------------------------------------------------------------------------


def _waited(
    method: Callable[Concatenate[WorkflowClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SyncWorkflowClient", P], T]:

    @wraps(method)
    def call(self: "SyncWorkflowClient", *args: P.args, **kwargs: P.kwargs) -> T:
        return cast("T", run_on_background_loop(lambda: method(self.client, *args, **kwargs)))

    return call


def _iterated(
    method: Callable[Concatenate[WorkflowClient, P], AsyncIterator[T]],
) -> Callable[Concatenate["SyncWorkflowClient", P], Iterator[T]]:

    @wraps(method)
    def iterate(self: "SyncWorkflowClient", *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        events: Any = method(self.client, *args, **kwargs)
        try:
            while (found := run_on_background_loop(lambda: anext(events, _END))) is not _END:
                yield found
        finally:
            run_on_background_loop(events.aclose)

    return iterate


_END: Any = object()


class SyncWorkflowClient:
    """WorkflowClient for synchronous code: the same methods, blocking.

    Also usable in notebooks and below a running event loop.

    Args:
        base_url: The address of the server.
        token: The token of the server, if it has one.
        timeout: Seconds for a request that does not wait for a run.
        patience: Seconds of further attempts of ``stream`` and ``result`` if the server cannot be reached.

    Example:
        >>> with SyncWorkflowClient("http://127.0.0.1:8080") as client:
        ...     print(client.run("greeting", {"name": "Ann"}))
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8080",
        *,
        token: str | None = None,
        timeout: float = 30.0,
        patience: float = 60.0,
    ) -> None:
        self.client = WorkflowClient(base_url, token=token, timeout=timeout, patience=patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    run = _waited(WorkflowClient.run)
    start = _waited(WorkflowClient.start)
    result = _waited(WorkflowClient.result)
    stream = _iterated(WorkflowClient.stream)
    get = _waited(WorkflowClient.get)
    runs = _waited(WorkflowClient.runs)
    cancel = _waited(WorkflowClient.cancel)
    release = _waited(WorkflowClient.release)
    fork = _waited(WorkflowClient.fork)
    trace = _waited(WorkflowClient.trace)
    state = _waited(WorkflowClient.state)
    send = _waited(WorkflowClient.send)
    pending = _waited(WorkflowClient.pending)
    inbox = _waited(WorkflowClient.inbox)
    answer = _waited(WorkflowClient.answer)
    approve = _waited(WorkflowClient.approve)
    deny = _waited(WorkflowClient.deny)
    workflows = _waited(WorkflowClient.workflows)
    is_healthy = _waited(WorkflowClient.is_healthy)
    ready = _waited(WorkflowClient.ready)
    close = _waited(WorkflowClient.aclose)


# --- shapes -----------------------------------------------------------------------------------------------------------


def _name(text: str) -> str:
    # A path of one or two dots would be resolved before it is sent; the server decodes this form.
    return f"={text}" if text in {".", ".."} else quote(text, safe="")


def _fields(start_event: Mapping[str, Any] | StartEvent | None) -> dict[str, Any]:
    if start_event is None:
        return {}
    return _envelope(start_event) if isinstance(start_event, StartEvent) else dict(start_event)


def _envelope(event: Event) -> dict[str, Any]:
    return {"type": type(event).__name__, "value": event.model_dump(mode="json")}


def _run(data: dict[str, Any]) -> RemoteRun:
    result = data.get("result")
    if result is not None:
        result = result.get("value", result)
        if isinstance(result, dict) and set(cast("dict[str, Any]", result)) == {"result"}:
            result = cast("dict[str, Any]", result)["result"]
    return RemoteRun(
        run_id=data["handler_id"],
        workflow=data["workflow_name"],
        status=data["status"],
        waiting=data.get("waiting", False),
        result=result,
        error=data.get("error"),
        error_type=data.get("error_type"),
        data=data,
    )


def _pending(data: dict[str, Any], run_id: str) -> PendingRequest:
    return PendingRequest(
        id=data["id"],
        kind=data["kind"],
        event=data["event"]["type"],
        value=_fields_of(data["event"]),
        schema=data["schema"],
        data=data,
        run_id=run_id,
    )


def _fields_of(envelope: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an event, with the undeclared ones on the same level."""
    declared: dict[str, Any] = dict(envelope["value"])
    others = declared.pop("_data", {})
    return {**declared, **others}


def _event(envelope: dict[str, Any], position: str) -> RemoteEvent:
    return RemoteEvent(
        seq=int(position),
        type=envelope["type"],
        types=tuple(envelope.get("types") or ()),
        value=_fields_of(envelope),
        ts=envelope.get("ts"),
        step=envelope.get("step") or "",
        path=envelope.get("path") or "",
        data=envelope,
    )


def _refusal(response: httpx2.Response) -> ServerRefusedError:
    try:
        body: Any = response.json()
        detail: Any = cast("dict[str, Any]", body)["detail"] if isinstance(body, dict) else body
    except (ValueError, KeyError):
        detail = response.text[:500]
    return ServerRefusedError(response.status_code, detail, response.request.url.path)


def _iso(name: str, time: datetime | None) -> str | None:
    """Return a time in ISO 8601; one without a time zone is local.

    Raises:
        TypeError: The value is not a datetime.
    """
    if time is None:
        return None
    given: Any = time
    if not isinstance(given, datetime):
        raise TypeError(f"{name} is a datetime, such as datetime(2026, 5, 1), not {given!r}")
    return time.astimezone(UTC).isoformat()
