"""Write the map of modules in the architecture page from the first lines of their docstrings: ``make map``."""

import ast
from pathlib import Path

__all__ = ["PAGE", "module_map", "page_with_map"]

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
MARKS = ("<!-- map begins -->", "<!-- map ends -->")


def module_map() -> str:
    """Return a table for each package: its modules, each with the first line of its docstring."""
    package = ROOT / "batonflow"
    folders = sorted({path.parent for path in package.rglob("*.py")})
    return "\n\n".join(_table(folder) for folder in folders)


def _table(folder: Path) -> str:
    name = folder.relative_to(ROOT)
    modules = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    rows = [f"| `{path.name}` | {_first_line(path)} |" for path in modules]
    about = _first_line(folder / "__init__.py")
    return "\n".join([f"### `{name}/`", "", about, *(["", "| | |", "|---|---|", *rows] if rows else [])])


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("``", "`").replace("|", "\\|")


def page_with_map(text: str) -> str:
    """Return the text of the page with the map of today."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n\n{module_map()}\n\n{MARKS[1]}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_map(PAGE.read_text()))
