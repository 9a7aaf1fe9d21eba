"""Cells of the matrix as tests.

Byte by byte takes longer than all else, and the compatible servers share the reader of chat completions: in these
cells they are tried by ``make matrix`` alone.
"""

import pytest

from tests.llms.matrix.apis import APIS
from tests.llms.matrix.cells import Cell
from tests.llms.matrix.page import CELLS

TRIED = [cell for cell in CELLS if cell.chunking != "single bytes" or cell.api in APIS[:3]]


@pytest.mark.parametrize("cell", TRIED, ids=lambda cell: cell.name)
async def test_cell(cell: Cell) -> None:
    await cell.run()
