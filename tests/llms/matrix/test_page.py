"""docs/evidence/models-matrix.md is what the cells say."""

from tests.llms.matrix.apis import APIS
from tests.llms.matrix.page import CELLS, PAGE, ROWS, page

ASKED_FOR = [
    "text",
    "text, streamed",
    "one tool",
    "parallel tools",
    "streamed tools",
    "thinking + tools, three turns",
    "structured output",
    "images",
    "cached prompt",
    "400",
    "401",
    "404",
    "429 then success",
    "500",
    "cut connection",
    "clean truncation",
    "non-JSON 200",
]


def test_the_page_names_the_cells_that_are_tests() -> None:
    expected = page(dict.fromkeys(CELLS, True))
    assert PAGE.read_text(encoding="utf-8") == expected, "run: PYTHONPATH=. python tests/llms/matrix/write.py"


def test_the_first_table_holds_every_case_in_every_api_and_chunking() -> None:
    first = [row for row in ROWS if not row.further]
    assert [row.name for row in first] == ASKED_FOR
    assert sum(not cell.row.further for cell in CELLS) == len(ASKED_FOR) * len(APIS) * 4


def test_a_cell_that_fails_shows() -> None:
    passed = dict.fromkeys(CELLS, True)
    passed[CELLS[0]] = False
    assert "| text | ✗ 3/4 | ✓ 4/4 |" in page(passed)


def test_every_note_is_about_an_api_that_there_is() -> None:
    known = {api.name for api in APIS}
    assert all({*row.notes, *row.absent} <= known for row in ROWS)
