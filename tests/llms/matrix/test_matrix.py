"""Every cell of the matrix is a test."""

import pytest

from tests.llms.matrix.cells import Cell
from tests.llms.matrix.page import CELLS


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
async def test_cell(cell: Cell) -> None:
    await cell.run()
