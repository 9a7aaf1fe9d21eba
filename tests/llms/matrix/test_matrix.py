"""Cells of the matrix as tests.

Each row is tried in each API, in one of the chunkings, which take turns along rows and APIs. Byte by byte takes longer
than all else: each row that has it is tried so in one of the first three APIs, as the compatible servers share the
reader of chat completions. All other cells are tried by ``make soak`` and ``make matrix``.
"""

import pytest

from tests.llms.matrix.apis import APIS
from tests.llms.matrix.cells import Cell
from tests.llms.matrix.page import CELLS, ROWS
from tests.llms.wire.chunking import CHUNKINGS

IN_TURN = [name for name in CHUNKINGS if name != "single bytes"]
WHOLE = APIS[:3]


def has_its_turn(cell: Cell) -> bool:
    having = [api for api in APIS if api.name not in cell.row.absent]
    place = ROWS.index(cell.row) + having.index(cell.api)
    if cell.chunking == "single bytes":
        return cell.api in WHOLE and place % len(WHOLE) == 0
    return cell.chunking == IN_TURN[place % len(IN_TURN)]


def in_soak_unless(chosen: bool) -> tuple[pytest.MarkDecorator, ...]:
    return () if chosen else (pytest.mark.soak(only=True),)


@pytest.mark.parametrize(
    "cell", [pytest.param(cell, id=cell.name, marks=in_soak_unless(has_its_turn(cell))) for cell in CELLS]
)
async def test_cell(cell: Cell) -> None:
    await cell.run()


def test_each_row_meets_each_api_and_each_chunking() -> None:
    tried = [cell for cell in CELLS if has_its_turn(cell)]
    assert {(cell.row, cell.api) for cell in tried} == {(cell.row, cell.api) for cell in CELLS}
    assert {(cell.api, cell.chunking) for cell in tried if cell.chunking in IN_TURN} == {
        (cell.api, cell.chunking) for cell in CELLS if cell.chunking in IN_TURN
    }
    for row in ROWS:
        cells = [cell for cell in CELLS if cell.row is row]
        chunkings = {cell.chunking for cell in tried if cell.row is row}
        assert chunkings == {cell.chunking for cell in cells} or len({cell.api for cell in cells}) < len(IN_TURN)
