"""Builds the page: modules and style are put into one file, always in the same way.

    python -m batonflow.server.page.build [--check]

Every module becomes a function of its own that is called once, after those it imports from; so names of one never meet
those of another, and no bundler is needed. Comments and indentation are left out.
"""

import argparse
import re
import sys
from pathlib import Path

from batonflow.server.page.policy import policy_of

__all__ = ["built", "main"]

FOLDER = Path(__file__).parent
SOURCES = FOLDER / "src"
PAGE = FOLDER / "page.html"

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)


def built(sources: Path = SOURCES) -> str:
    """The text of the page, made from a folder of sources.

    Raises:
        ValueError: Modules import each other in a circle, or one has an import of another form than
            ``import { a, b } from "./other.js";``.
    """
    script = f"\n{_script(sources)}"
    style = _style((sources / "style.css").read_text(encoding="utf-8"))
    page = (sources / "index.html").read_text(encoding="utf-8")
    for name, text in (("policy", policy_of([script], [style])), ("style", style), ("script", script)):
        page = page.replace("{{" + name + "}}", text)
    return page


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or with ``--check`` say whether the written one fits its sources."""
    parser = argparse.ArgumentParser(description="Build the page from its modules.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the file does not fit")
    page = built()
    if not parser.parse_args(arguments).check:
        PAGE.write_text(page, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
        sys.stderr.write(f"{PAGE} does not fit its sources: run python -m batonflow.server.page.build and commit it\n")
        return 1
    return 0


def _script(sources: Path) -> str:
    modules = {path.stem: path.read_text(encoding="utf-8") for path in sorted(sources.glob("*.js"))}
    order: list[str] = []
    _visit("main", modules, order, [])
    return "".join(f"{_wrapped(name, modules[name])}\n" for name in order)


def _visit(name: str, modules: dict[str, str], order: list[str], above: list[str]) -> None:
    """Append a module to the order, behind those it needs."""
    if name in above:
        raise ValueError(f"modules import each other: {' -> '.join([*above, name])}")
    if name in order:
        return
    for needed in _IMPORT.finditer(modules[name]):
        _visit(needed[2], modules, order, [*above, name])
    order.append(name)


def _wrapped(name: str, text: str) -> str:
    imports = "".join(
        f"const {{{found[1].replace(' as ', ': ')}}} = m_{found[2]};\n" for found in _IMPORT.finditer(text)
    )
    exports = _EXPORT.findall(text)
    body = re.sub(r"^export ", "", _IMPORT.sub("", text), flags=re.MULTILINE)
    if re.search(r"^import ", body, re.MULTILINE):
        raise ValueError(f'{name}.js imports in a form that is not understood: write import {{ a }} from "./b.js";')
    if re.search(r"</?script|<!--", body):
        raise ValueError(f"{name}.js holds text that would end the script element")
    return f"const m_{name} = (() => {{\n{imports}{_short(body)}return {{{', '.join(exports)}}};\n}})();"


def _short(text: str) -> str:
    """A module without whole-line comments, indentation and empty lines."""
    text = re.sub(r"^[ \t]*/\*\*.*?\*/[ \t]*(?=\S|\n)", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = (line.strip() for line in text.split("\n"))
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


def _style(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", text).strip()


if __name__ == "__main__":
    sys.exit(main())
