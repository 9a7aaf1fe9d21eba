"""The cells of the matrix: a row, an API and a chunking each."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import httpx2

from batonflow.llms.sdk_model import SDKModel
from tests.llms.loopback import Answer, Loopback, Received, loopback
from tests.llms.matrix.apis import API, APIS, MODEL
from tests.llms.wire.chunking import CHUNKINGS, as_json, streamed
from tests.llms.wire.content import Said
from tests.llms.wire.readers import How, http_client

__all__ = ["DECLARED", "Bench", "Cell", "Row", "cells", "row"]

REQUEST_ID = "req_wire"


class Bench:
    """Where one cell is tried: a server that answers in the API's form, and adapters that ask it.

    Attributes:
        api: The API.
        chunking: How every body is cut.
        server: The server.
    """

    def __init__(self, api: API, chunking: str, server: Loopback) -> None:
        self.api = api
        self.chunking = chunking
        self.server = server
        self._open: list[SDKModel | httpx2.AsyncClient] = []

    def model(self, api: API | None = None, **options: Any) -> SDKModel:
        """An adapter of this API, or of another one, that asks the server."""
        client = http_client()
        made = (api or self.api).model(self.server.url, http_client=client, **options)
        self._open += [made, client]
        return made

    def answers(self, *said: Said) -> None:
        """Let the server say these one after the other, and the last one for ever."""
        left = list(said)

        def answer(request: Received) -> Answer:
            one = left.pop(0) if len(left) > 1 else left[0]
            if request.body.get("stream"):
                return self.streamed(self.api.stream(one))
            return as_json(self.api.body(one), self.chunking, headers=self._headers)

        self.server.answers = answer

    def answers_with(self, *answers: Answer) -> None:
        """Let the server give these answers, one to each request, their bodies cut anew."""
        self.server.answers = [self.cut(answer) for answer in answers]

    def streamed(self, stream: bytes, **more: Any) -> Answer:
        """A stream of events, cut."""
        return streamed(stream, self.chunking, headers=self._headers, **more)

    def cut(self, answer: Answer, **headers: str) -> Answer:
        """The answer with its body cut, and with more headers; underscores stand for hyphens."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        body = CHUNKINGS[self.chunking](b"".join(answer.body))
        return replace(answer, body=body, headers={**answer.headers, **more})

    @property
    def _headers(self) -> dict[str, str]:
        return {self.api.request_id_header: REQUEST_ID}

    async def raw(self, how: How = "stream") -> Said:
        """What the SDK alone reads of the server's next answer."""
        return await self.api.raw(self.server.url, how)

    @property
    def requests(self) -> list[Received]:
        """What adapters have sent so far."""
        return [one for one in self.server.received if one.body.get("model") == MODEL]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The bodies of what adapters have sent so far."""
        return [one.body for one in self.requests]

    async def close(self) -> None:
        for one in self._open:
            await one.aclose()
        # The server's side of each connection ends by itself; cut short, it would be reported as an error.
        async with asyncio.timeout(30):
            await asyncio.gather(*(one.left.wait() for one in self.server.connections))
        await asyncio.sleep(0)


Check: TypeAlias = Callable[[Bench], Awaitable[None]]


@dataclass(frozen=True, eq=False)
class Row:
    """A row of the matrix.

    Args:
        name: Its heading.
        check: What is tried, in each API and chunking.
        further: Whether it stands in the second table, of what is tried beyond the first; byte by byte is left out
            there, which takes longer than all else.
        absent: For APIs that have no such thing, by name: why not.
        notes: For APIs where it is otherwise than one would think: how.
    """

    name: str
    check: Check
    further: bool = False
    absent: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def chunkings(self) -> list[str]:
        """The chunkings in which it is tried."""
        return [name for name in CHUNKINGS if not (self.further and name == "single bytes")]


@dataclass(frozen=True, eq=False)
class Cell:
    """A row in one API and one chunking."""

    row: Row
    api: API
    chunking: str

    @property
    def name(self) -> str:
        """For reports."""
        return f"{self.row.name}-{self.api.name}-{self.chunking}"

    async def run(self) -> None:
        """Try it.

        Raises:
            Exception: It does not hold; usually an AssertionError.
        """
        async with _bench(self.api, self.chunking) as bench:
            await self.row.check(bench)


@asynccontextmanager
async def _bench(api: API, chunking: str) -> AsyncIterator[Bench]:
    async with loopback() as server:
        bench = Bench(api, chunking, server)
        try:
            yield bench
        finally:
            await bench.close()


DECLARED: list[Row] = []
"""The rows of the modules imported so far."""


def row(name: str, **more: Any) -> Callable[[Check], Check]:
    """Make the decorated function the check of a row; ``more`` goes to the `Row`."""

    def made(check: Check) -> Check:
        DECLARED.append(Row(name, check, **more))
        return check

    return made


def cells(rows: Sequence[Row]) -> list[Cell]:
    """The cells of ``rows``, without those whose API has no such thing."""
    return [
        Cell(one, api, chunking)
        for one in rows
        for api in APIS
        if api.name not in one.absent
        for chunking in one.chunkings
    ]
