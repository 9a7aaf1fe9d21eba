"""Runs of a server: their stores, their status, and notifications of runs that enter memory."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, cast

from starlette.exceptions import HTTPException

from batonflow.durable.codec import Codec
from batonflow.durable.search import RunQuery, cannot_search, listed_runs, update_index
from batonflow.durable.search_protocol import SearchStore
from batonflow.durable.store_protocol import RunInfo, RunStatus, RunStore
from batonflow.durable.stores.bounds import check_run_id
from batonflow.durable.trace import run_told
from batonflow.server.envelopes import recorded_envelope
from batonflow.server.served import Served
from batonflow.server.shapes import Phase, Status
from batonflow.server.spent import PAGE as PAGE_OF_SPENT
from batonflow.server.spent import SpentSoFar
from batonflow.server.stored import StoredPages
from batonflow.server.workers import Workers, with_names
from batonflow.values.serializers import JsonSerializer, read_json
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.stored_runs import StoredRuns

__all__ = ["IN_STORE", "Place", "RunPage", "Runs", "not_found", "status_of"]

PAGE = 200

SECONDS_TO_UPDATE = 2.0
"""Seconds that a search brings the index up to date before it answers."""


def not_found(run_id: str) -> HTTPException:
    """Return the error for a run that no store has; it begins like the error of LlamaIndex's server."""
    return HTTPException(
        404, f"Handler not found: this server has no run {run_id!r}; GET /handlers lists the runs that it has"
    )


class Place(NamedTuple):
    """Location of a run.

    Attributes:
        info: The record of the store.
        store: The store.
        served: Its workflow, or None if the server does not have it.
    """

    info: RunInfo
    store: RunStore
    served: Served | None

    @property
    def is_over(self) -> bool:
        """Return True if the store has the end of the run."""
        return self.info.is_over

    @property
    def is_nobodys(self) -> bool:
        """Return True if no process drives it and this process does not have its code."""
        return self.served is None and not self.info.owner_alive

    @property
    def codec(self) -> Codec:
        """Return a codec for its records."""
        return _WITHOUT_CODE if self.served is None else self.served.codec

    @property
    def phase(self) -> Phase:
        """Return the status, in which ready, waiting and held runs differ from running ones."""
        info, live = self.info, self.live()
        if self.is_over:
            return cast("Phase", info.status)
        if info.held:
            return "held"
        if live.is_waiting if live is not None else info.status == "waiting":
            return "waiting"
        return "running" if info.owner is not None and (live is not None or info.owner_alive) else "ready"

    def fits(self, names: Sequence[str], statuses: Sequence[str] = ()) -> bool:
        """Return True for a run of these workflows with these statuses or phases; empty ones mean all."""
        named = not names or _name(self) in names or self.info.workflow in names
        return named and (not statuses or status_of(self.info) in statuses or self.phase in statuses)

    def live(self) -> WorkflowHandler | None:
        """Return a handler if this process drives the run or has released it from memory."""
        return None if self.served is None else StoredRuns.live_handler(self.served.workflow, self.info.run_id)

    def workflow(self) -> Served:
        """Return its workflow.

        Raises:
            HTTPException: 409 if the server does not have it.
        """
        if self.served is None:
            raise HTTPException(
                409, f"This server has no workflow {self.info.workflow}, so it can only show run {self.info.run_id}"
            )
        return self.served


class RunPage(NamedTuple):
    """Runs of a listing.

    Attributes:
        places: The runs.
        more: Whether more follow.
        unread: The number of runs that a search could not consider yet.
    """

    places: list[Place]
    more: bool
    unread: int


_WITHOUT_CODE = Codec(JsonSerializer())


class Runs:
    """All runs that a server knows.

    Args:
        store: The store of workflows without their own.
        drives: Whether this process may drive runs. Otherwise it stores them for workers.
    """

    def __init__(self, store: RunStore, *, drives: bool = True) -> None:
        self._store = store
        self.drives = drives
        self.served: dict[str, Served] = {}
        # Runs that could not be resumed here, with the reasons.
        self.troubles: dict[str, str] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self.pages = StoredPages()
        self.workers = Workers(lambda: self.stores)
        self._spent = SpentSoFar()

    @property
    def stores(self) -> list[RunStore]:
        """Return all stores with runs."""
        return list(dict.fromkeys([self._store, *(served.store for served in self.served.values())]))

    def workflow(self, name: str) -> Served:
        """Return the workflow of a name.

        Raises:
            HTTPException: 404 for an unknown name.
        """
        served = self.served.get(name)
        if served is None:
            raise HTTPException(404, f"The server has no workflow {name!r}")
        return served

    def _served_for(self, store: RunStore, name: str) -> Served | None:
        in_store = (one for one in self.served.values() if one.store is store)
        fitting = (one for one in in_store if one.workflow.__batonflow__.workflow_name == name)
        return next(fitting, None)

    async def look_for(self, run_id: str) -> Place | None:
        """Return the location of a run, or None if no store has it."""
        try:
            check_run_id(run_id)
        except StoreError:
            return None
        for store in self.stores:
            info = await store.info(run_id)
            if info is not None:
                return Place(info, store, self._served_for(store, info.workflow))
        return None

    async def find(self, run_id: str) -> Place:
        """Return the location of a run.

        Raises:
            HTTPException: 404 if no store has it.
        """
        place = await self.look_for(run_id)
        if place is None and run_id.startswith("="):
            # Clients resolve a path that ends with one or two dots before they send it, so "=.." stands for "..".
            place = await self.look_for(run_id[1:])
        if place is None:
            raise not_found(run_id)
        return place

    async def page(
        self, query: RunQuery, fits: Callable[[Place], bool], after: str | None, limit: int, *, newest_first: bool
    ) -> RunPage:
        """Return runs in the order of their creation.

        Args:
            query: Only runs for which it holds.
            fits: Only runs for which it returns True.
            after: Only runs after this one.
            limit: Largest number of runs.
            newest_first: Reverse the order.

        Raises:
            HTTPException: 400 if ``after`` does not exist.
        """
        stores = self.stores if not newest_first else self.stores[::-1]
        if after is not None:
            behind = await self.look_for(after)
            if behind is None:
                raise HTTPException(400, f"after must be the id of a run; unknown run {after!r}")
            stores = stores[stores.index(behind.store) :]
        found: list[Place] = []
        unread = 0
        for store in stores:
            last = after if store is stores[0] else None
            if query.needs_index:
                unread += await _updated(store)
            while len(found) <= limit:
                infos = await listed_runs(store, query, after=last, limit=PAGE, newest_first=newest_first)
                places = [Place(info, store, self._served_for(store, info.workflow)) for info in infos]
                found += [place for place in places if fits(place)]
                if len(infos) < PAGE:
                    break
                last = infos[-1].run_id
        return RunPage(found[:limit], len(found) > limit, unread)

    # --- coming into memory -------------------------------------------------------------------------------------------

    def arrived(self, run_id: str) -> None:
        """Note that a run continues in this process."""
        self.troubles.pop(run_id, None)
        for waiting in self._waiting.get(run_id, ()):
            if not waiting.done():
                waiting.set_result(None)

    def all_left(self) -> None:
        """Wake all waiting tasks, because no run will continue here."""
        for run_id in list(self._waiting):
            self.arrived(run_id)

    def forget_arrivals(self) -> None:
        """Drop waiting tasks of a closed loop."""
        self._waiting.clear()
        self.pages.forget_loop()

    @contextmanager
    def arrival(self, run_id: str) -> Generator[asyncio.Future[None]]:
        """Return a future that is done when the run continues in this process."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, set()).add(waiting)
        try:
            yield waiting
        finally:
            others = self._waiting[run_id]
            others.discard(waiting)
            if not others:
                del self._waiting[run_id]

    async def take_up(self, served: Served, run_id: str) -> None:
        """Resume a run in this process, unless another one drives it.

        Raises:
            StoreError: The run cannot continue here.
        """
        if StoredRuns.live_handler(served.workflow, run_id) is None:
            await StoredRuns.resume(served.workflow, run_id).started()
            self.arrived(run_id)

    async def wake(self, place: Place) -> None:
        """Resume a run that has a new message, unless another process drives it."""
        if not self.drives or place.served is None or place.live() is not None:
            return
        with suppress(StoreError):  # another process has it, or the keeper will report the problem
            await self.take_up(place.served, place.info.run_id)

    def place_of_end(self, place: Place) -> int | None:
        """Return the stream position of the event that ended a run, or None if it is unknown."""
        record: dict[str, Any] = {} if place.info.result is None else read_json(place.info.result)
        seq = record.get("seq")
        return None if seq is None else int(seq)

    # --- runs as JSON -------------------------------------------------------------------------------------------------

    async def told_now(self, place: Place, *, result: bool = True) -> dict[str, Any]:
        """Return a run as ``HandlerData``, with its tokens and costs so far.

        A finished run with a long history has those of its result only, because its records are not read.

        Args:
            place: The run.
            result: Include the event that ended it.
        """
        found = self.run_as_json(place)
        if place.info.owner is not None or place.info.held:
            names = await self.workers.names(place.store)
            found["worker"] = names.get(place.info.owner or "")
            found["held"] = with_names(place.info.held, names) or None
        if not place.is_over or (found["tokens"] is None and place.info.seq <= PAGE_OF_SPENT):
            spent = await self._spent.of(place.store, place.info)
            if found["tokens"] is None and spent.calls:
                found["tokens"] = {"input": spent.input_tokens, "output": spent.output_tokens}
            found["cost"] = spent.cost if found["cost"] is None else found["cost"]
        return found if result else {**found, "result": None}

    def run_as_json(self, place: Place) -> dict[str, Any]:
        """Return a run as ``HandlerData``."""
        info, live, over = place.info, place.live(), place.is_over
        result, unreadable = None, False
        try:
            result = _end_envelope(place)
        except Exception:  # noqa: BLE001 - one unreadable run must not hide the others
            unreadable = True
        kind: str = "" if result is None else result["type"]
        value: dict[str, Any] = {} if result is None else result["value"]
        here = live is not None or info.owner == place.store.owner
        found = run_told(info, kind, value)
        if not over and live is None and not info.owner_alive:
            found["error"] = self.troubles.get(info.run_id)
        return {
            **found,
            "workflow_name": _name(place),
            "result": result,
            "result_unreadable": unreadable,
            "session": info.session or None,
            "metadata": dict(info.metadata),
            "phase": place.phase,
            "waiting": place.phase == "waiting",
            "live": live is not None and not live.is_released and not over,
            "worker": None,
            "held": info.held or None,
            "owner": None if over or info.owner is None else "this" if here else "other" if info.owner_alive else None,
        }


IN_STORE: dict[str, tuple[RunStatus, ...]] = {
    "running": ("ready", "running", "waiting"),
    "ready": ("ready", "running"),
    "waiting": ("ready", "running", "waiting"),
    "held": ("ready",),
    "completed": ("completed",),
    "failed": ("failed",),
    "cancelled": ("cancelled",),
}
"""The statuses in the store of runs with a status or a phase."""


async def _updated(store: RunStore) -> int:
    """Bring the index of a store up to date, and return the number of runs that are left."""
    if not isinstance(store, SearchStore):
        raise HTTPException(400, str(cannot_search(store)))
    return await update_index(store, seconds=SECONDS_TO_UPDATE)


def status_of(info: RunInfo) -> Status:
    """Return the status of a run in the words of the protocol."""
    return cast("Status", info.status) if info.is_over else "running"


def _name(place: Place) -> str:
    return place.info.workflow if place.served is None else place.served.name


def _end_envelope(place: Place) -> dict[str, Any] | None:
    if place.info.result is None:
        return None
    record = read_json(place.info.result)
    return recorded_envelope(
        record["event"], place.codec, seq=record.get("seq"), ts=place.info.updated_at, commit=place.info.seq
    )
