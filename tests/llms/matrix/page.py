"""The page about the cells, as Markdown."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from tests.llms.matrix import content, conversations, failures, requests
from tests.llms.matrix.apis import API, APIS
from tests.llms.matrix.cells import DECLARED, Cell, Row, cells

__all__ = ["CELLS", "PAGE", "ROWS", "page"]

PAGE = Path(__file__).parents[3] / "docs" / "evidence" / "models-matrix.md"

# In the order of the page.
_TOPICS: tuple[ModuleType, ...] = (content, conversations, requests, failures)
ROWS = [row for topic in _TOPICS for row in DECLARED if row.check.__module__ == topic.__name__]
CELLS = cells(ROWS)

_INTRODUCTION = """\
# The matrix of models

Written by `make matrix`, which runs every cell; a test fails when this page and the cells differ.

Every cell drives one of the adapters, through the vendor's SDK and a real socket. The server on this machine speaks
the vendor's format byte for byte (`tests/llms/wire/`), and the SDKs' own types check its events. Requests are compared
as a whole, body by body. Answers are compared, block for block, with the answer that the vendor's SDK alone reads from
the same bytes. Texts, thoughts with their seals, calls, tokens, the reason for the end and the model must be equal.

The numbers count chunkings. The server sends its answer in one piece, byte by byte, cut inside every character of
several bytes, and with `\\r\\n` cut between the two. In the second table byte by byte is left out.
"""


def page(passed: Mapping[Cell, bool]) -> str:
    """The page.

    Args:
        passed: For every cell whether it held.
    """
    notes: list[str] = []
    columns = [f"- **{api.name}**: {api.about}" for api in APIS]
    first = _table([row for row in ROWS if not row.further], passed, notes)
    second = _table([row for row in ROWS if row.further], passed, notes)
    footnotes = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    parts = [
        _INTRODUCTION,
        "\n".join(columns),
        "",
        "## What every API must do",
        "",
        first,
        "",
        "## What is tried beyond that",
        "",
        second,
        "",
        "A dash: the API has no such thing. The small numbers:",
        "",
        "\n".join(footnotes),
        "",
        f"{len(passed)} cells.",
        "",
    ]
    return "\n".join(parts)


def _table(rows: Sequence[Row], passed: Mapping[Cell, bool], notes: list[str]) -> str:
    heading = ["", *(api.name for api in APIS)]
    lines = [heading, ["---"] * len(heading)]
    lines += [[row.name, *(_entry(row, api, passed, notes) for api in APIS)] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def _entry(row: Row, api: API, passed: Mapping[Cell, bool], notes: list[str]) -> str:
    """What a row has in an API's column, with the number of its note."""
    results = [held for cell, held in passed.items() if (cell.row, cell.api) == (row, api)]
    note = row.absent.get(api.name) or row.notes.get(api.name)
    entry = f"{'✓' if all(results) else '✗'} {sum(results)}/{len(results)}" if results else "—"
    if note is None:
        return entry
    if note not in notes:
        notes.append(note)
    return f"{entry} <sup>{notes.index(note) + 1}</sup>"
