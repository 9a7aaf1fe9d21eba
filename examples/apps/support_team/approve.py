"""Show or answer an open approval from any process on this machine: ``python approve.py RUN [--deny REASON]``."""

import argparse
import asyncio
from pathlib import Path

from desk import Shop, build

from batonflow import SQLiteStore


async def show(folder: Path, run_id: str) -> str:
    team = build(Shop(folder / "shop.db"), SQLiteStore(folder / "runs.db"))
    return "\n".join(repr(request.event) for request in await team.open_inputs(run_id))


async def answer(folder: Path, run_id: str, denied: str | None) -> str:
    team = build(Shop(folder / "shop.db"), SQLiteStore(folder / "runs.db"))
    requests = await team.open_inputs(run_id)
    if not requests:
        return f"run {run_id} asks nothing"
    for request in requests:
        said = request.answer(approved=denied is None, reason=denied or "")
        await team.send_to_run(run_id, said, key=request.answer_key)  # a second answer has the same key: it is ignored
    return f"{'approved' if denied is None else 'denied'} {len(requests)}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_id")
    parser.add_argument("--deny", metavar="REASON")
    parser.add_argument("--show", action="store_true", help="print the open questions, and answer nothing")
    parser.add_argument("--folder", type=Path, default=Path())
    given = parser.parse_args()
    if given.show:
        print(asyncio.run(show(given.folder, given.run_id)))
    else:
        print(asyncio.run(answer(given.folder, given.run_id, given.deny)))
