"""Count the bytes of a streamed answer on the wire: whole events, deltas, and deltas that are put together.

    python benchmarks/wire.py --write docs/evidence/performance.md

The server is a process of its own, and the answer has 12,000 characters in 2,000 pieces. All readers read one run.
"""

import argparse
import asyncio
import sys

import httpx2
from reporting import Table, report
from server import served

MARKS = ("<!-- wire begin -->", "<!-- wire end -->")
CHARACTERS = 12_000
WAYS = {"whole events": {}, "`deltas=1`": {"deltas": "1"}, "`deltas=1&pieces=50ms`": {"deltas": "1", "pieces": "50ms"}}


async def sizes(url: str) -> list[tuple[int, int]]:
    """The bytes and the events that each reader of one run got."""
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        body = {"start_event": {"user_msg": "Tell me of tides."}}
        run = (await client.post("/workflows/talker/run-nowait", json=body)).json()["handler_id"]
        answers = await asyncio.gather(*(client.get(f"/events/{run}", params=query) for query in WAYS.values()))
    return [(len(answer.content), answer.text.count("\ndata: ")) for answer in answers]


def tables(_: argparse.Namespace) -> list[Table]:
    """The table of the figures."""
    with served("batonflow", sys.executable) as server:
        found = asyncio.run(sizes(server.url))
    rows = [
        f"| {way} | {events:,} | {size / 1000:,.0f} | {size / CHARACTERS:,.1f} |"
        for way, (size, events) in zip(WAYS, found, strict=True)
    ]
    return [
        [
            "| an answer of 12 kB in 2,000 pieces, as server-sent events | events | kB | of the text |",
            "|---|---:|---:|---:|",
            *rows,
        ]
    ]


if __name__ == "__main__":
    sys.exit(report(__doc__, MARKS, tables))
