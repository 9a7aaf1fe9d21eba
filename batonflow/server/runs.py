"""The runs of a server: where they are, how they stand, and who waits for one to come into memory."""

import asyncio
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, cast

from starlette.exceptions import HTTPException

from batonflow.durable.codec import Codec
from batonflow.durable.store_protocol import RunInfo, RunStatus, RunStore
from batonflow.durable.stores.bounds import check_run_id
from batonflow.durable.trace import run_told
from batonflow.server.envelopes import recorded_envelope
from batonflow.server.served import Served
from batonflow.server.shapes import Status
from batonflow.server.spent import SpentSoFar
from batonflow.server.stored import StoredPages
from batonflow.values.serializers import JsonSerializer, read_json
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.stored_runs import StoredRuns

__all__ = ["Place", "Runs", "status_of"]

PAGE = 200


class Place(NamedTuple):
    """Where a run is.

    Attributes:
        info: What its store says.
        store: The store.
        served: Its workflow, None when the server has none of that name.
    """

    info: RunInfo
    store: RunStore
    served: Served | None

    @property
    def is_over(self) -> bool:
        """Whether the store has its end."""
        return self.info.is_over

    @property
    def is_nobodys(self) -> bool:
        """Whether no process drives it, and this one has no code that could."""
        return self.served is None and not self.info.owner_alive

    @property
    def codec(self) -> Codec:
        """Reads its records."""
        return _WITHOUT_CODE if self.served is None else self.served.codec

    def live(self) -> WorkflowHandler | None:
        """A handler on it, when this process drives it or keeps it out of memory."""
        return None if self.served is None else StoredRuns.live_handler(self.served.workflow, self.info.run_id)

    def workflow(self) -> Served:
        """Its workflow.

        Raises:
            HTTPException: 409 when the server has none of that name.
        """
        if self.served is None:
            raise HTTPException(
                409, f"This server has no workflow {self.info.workflow}, so it can only show run {self.info.run_id}"
            )
        return self.served


_WITHOUT_CODE = Codec(JsonSerializer())


class Runs:
    """All the runs that a server knows.

    Args:
        store: Of the workflows that have none of their own.
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self.served: dict[str, Served] = {}
        # Runs that could not be taken up here, and why.
        self.troubles: dict[str, str] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self.pages = StoredPages()
        self._spent = SpentSoFar()

    @property
    def stores(self) -> list[RunStore]:
        """Every store that has runs."""
        return list(dict.fromkeys([self._store, *(served.store for served in self.served.values())]))

    def workflow(self, name: str) -> Served:
        """The workflow of a name.

        Raises:
            HTTPException: 404 when there is none.
        """
        served = self.served.get(name)
        if served is None:
            raise HTTPException(404, f"There is no workflow {name!r}")
        return served

    def _served_for(self, store: RunStore, name: str) -> Served | None:
        in_store = (one for one in self.served.values() if one.store is store)
        fitting = (one for one in in_store if one.workflow.__batonflow__.workflow_name == name)
        return next(fitting, None)

    async def look_for(self, run_id: str) -> Place | None:
        """Where a run is; None when no store has it."""
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
        """Where a run is.

        Raises:
            HTTPException: 404 when no store has it.
        """
        place = await self.look_for(run_id)
        if place is None and run_id.startswith("="):
            # Clients resolve a path that ends with one or two dots before they send it, so "=.." stands for "..".
            place = await self.look_for(run_id[1:])
        if place is None:
            raise HTTPException(404, "Handler not found")
        return place

    async def page(
        self, statuses: Sequence[Status], names: Sequence[str], after: str | None, limit: int, *, newest_first: bool
    ) -> tuple[list[Place], bool]:
        """Runs in the order of their creation, and whether there are more.

        Args:
            statuses: Only these, or all.
            names: Only those of these workflows, or all.
            after: Only those behind this run.
            limit: How many at most.
            newest_first: In the opposite order.

        Raises:
            HTTPException: 400 when ``after`` is not there.
        """
        wanted: list[RunStatus] | None = None
        if statuses:
            wanted = [one for status in statuses for one in _IN_STORE[status]]
        stores = self.stores if not newest_first else self.stores[::-1]
        if after is not None:
            behind = await self.look_for(after)
            if behind is None:
                raise HTTPException(400, f"after is the id of a run, and there is no run {after!r}")
            stores = stores[stores.index(behind.store) :]
        found: list[Place] = []
        for store in stores:
            last = after if store is stores[0] else None
            while len(found) <= limit:
                infos = await store.list_runs(status=wanted, after=last, limit=PAGE, newest_first=newest_first)
                found += self._of(store, infos, names)
                if len(infos) < PAGE:
                    break
                last = infos[-1].run_id
        return found[:limit], len(found) > limit

    def _of(self, store: RunStore, infos: Iterable[RunInfo], names: Sequence[str]) -> list[Place]:
        places = [Place(info, store, self._served_for(store, info.workflow)) for info in infos]
        return [place for place in places if not names or _name(place) in names or place.info.workflow in names]

    # --- coming into memory -------------------------------------------------------------------------------------------

    def arrived(self, run_id: str) -> None:
        """A run goes on in this process now."""
        self.troubles.pop(run_id, None)
        for waiting in self._waiting.get(run_id, ()):
            if not waiting.done():
                waiting.set_result(None)

    def all_left(self) -> None:
        """Nothing will go on here any more: wake all who wait."""
        for run_id in list(self._waiting):
            self.arrived(run_id)

    def forget_arrivals(self) -> None:
        """Drop what waits on a loop that is closed."""
        self._waiting.clear()
        self.pages.forget_loop()

    @contextmanager
    def arrival(self, run_id: str) -> Generator[asyncio.Future[None]]:
        """Done as soon as a run goes on in this process."""
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
        """Let a run go on in this process, unless another one drives it.

        Raises:
            StoreError: It cannot go on here.
        """
        if StoredRuns.live_handler(served.workflow, run_id) is None:
            await StoredRuns.resume(served.workflow, run_id).started()
            self.arrived(run_id)

    async def wake(self, place: Place) -> None:
        """Something has come for a run: let it go on here, if nobody drives it."""
        if place.served is None or place.live() is not None:
            return
        with suppress(StoreError):  # another process has it, or the keeper will say what is wrong
            await self.take_up(place.served, place.info.run_id)

    def place_of_end(self, place: Place) -> int | None:
        """The place in the stream of the event that ended a run; None when its result does not tell."""
        record: dict[str, Any] = {} if place.info.result is None else read_json(place.info.result)
        seq = record.get("seq")
        return None if seq is None else int(seq)

    # --- telling ------------------------------------------------------------------------------------------------------

    async def told_now(self, place: Place, *, result: bool = True) -> dict[str, Any]:
        """A run as ``HandlerData``, with what the models of one that goes on have taken so far.

        Args:
            place: The run.
            result: Whether to tell the event that ended it.
        """
        found = self.told(place)
        if not place.is_over:
            spent = await self._spent.of(place.store, place.info)
            found["tokens"] = found["tokens"] or spent.tokens or None
            found["cost"] = spent.cost if found["cost"] is None else found["cost"]
        return found if result else {**found, "result": None}

    def told(self, place: Place) -> dict[str, Any]:
        """A run as ``HandlerData``."""
        info, live, over = place.info, place.live(), place.is_over
        result, unreadable = None, False
        try:
            result = _end_of(place)
        except Exception:  # noqa: BLE001 - a run that cannot be read must not take the others away from readers
            unreadable = True
        kind: str = "" if result is None else result["type"]
        value: dict[str, Any] = {} if result is None else result["value"]
        waiting = info.status == "waiting" if live is None else live.is_waiting
        here = live is not None or info.owner == place.store.owner
        found = run_told(info, kind, value)
        if not over and live is None and not info.owner_alive:
            found["error"] = self.troubles.get(info.run_id)
        return {
            **found,
            "workflow_name": _name(place),
            "result": result,
            "result_unreadable": unreadable,
            "waiting": waiting and not over,
            "live": live is not None and not live.is_released and not over,
            "owner": None if over or info.owner is None else "this" if here else "other" if info.owner_alive else None,
        }


_IN_STORE: dict[Status, tuple[RunStatus, ...]] = {
    "running": ("ready", "running", "waiting"),
    "completed": ("completed",),
    "failed": ("failed",),
    "cancelled": ("cancelled",),
}


def status_of(info: RunInfo) -> Status:
    """Where a run stands, in the words of the wire."""
    return "running" if info.status in _IN_STORE["running"] else cast("Status", info.status)


def _name(place: Place) -> str:
    return place.info.workflow if place.served is None else place.served.name


def _end_of(place: Place) -> dict[str, Any] | None:
    """The envelope of the event that ended a run."""
    if place.info.result is None:
        return None
    record = read_json(place.info.result)
    return recorded_envelope(
        record["event"], place.codec, seq=record.get("seq"), ts=place.info.updated_at, commit=place.info.seq
    )
