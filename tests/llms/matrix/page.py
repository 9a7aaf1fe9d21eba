"""The page that says which cells there are."""

from types import ModuleType

from tests.llms.matrix import content
from tests.llms.matrix.cells import ROWS, cells

__all__ = ["CELLS", "TOPICS"]

TOPICS: tuple[ModuleType, ...] = (content,)
CELLS = cells(ROWS)
