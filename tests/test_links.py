"""The README and the guides: every link inside the project leads to a file, and to a heading where it names one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "batonflow"
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    PACKAGE / "AGENTS.md",
    PACKAGE / "llms.txt",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("examples/**/README.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def links() -> list[object]:
    return [
        pytest.param(page, target, id=f"{page.stem}-{target}")
        for page in PAGES
        for target in sorted(set(LINK.findall(BLOCK.sub("", page.read_text()))))
        if not re.match(r"https?:", target)
    ]


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in addresses."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(("page", "target"), links())
def test_a_link_leads_somewhere(page: Path, target: str) -> None:
    path, _, heading = target.partition("#")
    there = page.parent / path if path else page
    assert there.exists()
    assert not heading or heading in anchors(there)
