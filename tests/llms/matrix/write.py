"""Run every cell of the matrix and write docs/evidence/models-matrix.md.

PYTHONPATH=. python tests/llms/matrix/write.py
"""

import asyncio
import sys
import traceback

from tests.llms.matrix.cells import Cell
from tests.llms.matrix.page import CELLS, PAGE, page


async def _holds(cell: Cell) -> bool:
    try:
        await cell.run()
    except Exception:  # noqa: BLE001 - whatever it is, the cell does not hold
        print(f"\n{cell.name} fails:\n{traceback.format_exc()}", file=sys.stderr)
        return False
    return True


async def _run() -> dict[Cell, bool]:
    return {cell: await _holds(cell) for cell in CELLS}


def main() -> int:
    """Write the page; the exit code is 1 when a cell fails."""
    passed = asyncio.run(_run())
    PAGE.write_text(page(passed), encoding="utf-8")
    failed = len(passed) - sum(passed.values())
    print(f"{PAGE.name}: {len(passed)} cells, {failed} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
