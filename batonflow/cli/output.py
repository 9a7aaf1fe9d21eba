"""Output to a terminal or a pipe, and as JSON."""

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from pydantic_core import PydanticSerializationError, from_json, to_jsonable_python

from batonflow.cli.errors import USAGE, CommandError
from batonflow.cli.text import one_line, plain
from batonflow.values.serializers import as_json

__all__ = ["check_folder", "complain", "jsonable", "say", "say_json", "table"]

_COLOURS = {
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "waiting": "magenta",
    "interrupted": "yellow",
    "running": "cyan",
    "ready": "blue",
}


def check_folder(file: str, name: str = "") -> None:
    """Refuse a file in a folder that does not exist.

    Args:
        file: The path of the file, as on the command line.
        name: The name of the file in the message; the path by default.

    Raises:
        CommandError: There is no such folder.
    """
    folder = Path(file).parent
    if not folder.is_dir():
        raise CommandError(f"there is no folder {folder} for {name or file}: make it first, or name another", USAGE)


def say(text: str = "", *, end: str = "\n", file: TextIO | None = None) -> None:
    """Print text, made safe for a terminal; on stdout unless a file is given."""
    out = sys.stdout if file is None else file
    out.write(plain(text) + end)
    out.flush()


def complain(text: str) -> None:
    """Print a line on stderr."""
    print(one_line(text), file=sys.stderr, flush=True)


def say_json(value: Any, *, indent: int | None = None) -> None:
    """Print a JSON document, on one line unless it is indented."""
    # Infinity and NaN become null, as over HTTP.
    text = as_json(jsonable(value), inf_nan_mode="null")
    sys.stdout.write(json.dumps(from_json(text), indent=indent) + "\n")
    sys.stdout.flush()


def jsonable(value: Any) -> Any:
    """Convert a value to JSON data; a value without a JSON form becomes its repr."""
    try:
        return to_jsonable_python(value, fallback=repr, inf_nan_mode="strings")
    except (PydanticSerializationError, ValueError):
        return repr(value)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, in colours if stdout is a terminal and rich is installed."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    rich = _rich_modules()
    if rich is not None:
        grid = rich["table"].Table(box=None, pad_edge=False)
        for name in head:
            grid.add_column(name, no_wrap=True)
        for row in cells:
            # Text objects, because rich would read markup in plain strings.
            grid.add_row(*(rich["text"].Text(cell, style=_COLOURS.get(cell.partition(" ")[0], "")) for cell in row))
        rich["console"].Console().print(grid)
        return
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    for row in (head, *cells):
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _rich_modules() -> dict[str, Any] | None:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty():
        return None
    if importlib.util.find_spec("rich") is None:
        return None
    return {name: import_module(f"rich.{name}") for name in ("console", "table", "text")}
