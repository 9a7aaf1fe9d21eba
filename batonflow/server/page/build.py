"""Build the page from its modules and its style, as one file.

setup.py builds the page into the wheel. A checkout builds it at first use.

Each module becomes a function that is called once, after the modules that it imports. The names of modules are thus
separate, and no bundler is needed. Comments and indentation are left out.
"""

import re
from functools import cache
from pathlib import Path

from batonflow.server.page.policy import policy_of

__all__ = ["built", "page_html"]

FOLDER = Path(__file__).parent
SOURCES = FOLDER / "src"
PAGE = FOLDER / "page.html"

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)


def built(sources: Path = SOURCES) -> str:
    """Return the text of the page, built from a folder of sources.

    Raises:
        ValueError: Modules import each other in a circle, or an import does not have the form
            ``import { a, b } from "./other.js";``.
    """
    script = f"\n{_script(sources)}"
    style = _style((sources / "style.css").read_text(encoding="utf-8"))
    page = (sources / "index.html").read_text(encoding="utf-8")
    for name, text in (("policy", policy_of([script], [style])), ("style", style), ("script", script)):
        page = page.replace("{{" + name + "}}", text)
    return page


@cache
def page_html() -> str:
    """Return the page as the server delivers it: it requests all data from its origin."""
    return built() if SOURCES.is_dir() else PAGE.read_text(encoding="utf-8")


def _script(sources: Path) -> str:
    modules = {path.stem: path.read_text(encoding="utf-8") for path in sorted(sources.glob("*.js"))}
    order: list[str] = []
    _visit("main", modules, order, [])
    return "".join(f"{_wrapped(name, modules[name])}\n" for name in order)


def _visit(name: str, modules: dict[str, str], order: list[str], above: list[str]) -> None:
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
        raise ValueError(f'{name}.js has an import in an unknown form: write import {{ a }} from "./b.js";')
    if re.search(r"</?script|<!--", body):
        raise ValueError(f"{name}.js contains text that would end the script element")
    return f"const m_{name} = (() => {{\n{imports}{_minified(body)}return {{{', '.join(exports)}}};\n}})();"


def _minified(text: str) -> str:
    text = re.sub(r"^[ \t]*/\*\*.*?\*/[ \t]*(?=\S|\n)", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = (line.strip() for line in text.split("\n"))
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


def _style(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", text).strip()
