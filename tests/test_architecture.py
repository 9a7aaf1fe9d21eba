"""docs/architecture.md: the map names every module, in its room, and none that is not there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROOMS = dict(re.findall(r"^### `([\w/]+)/`\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL))
FOLDERS = sorted(
    {
        str(module.parent.relative_to(ROOT))
        for package in ("agents", "batonflow/cli", "llms", "tools", "workflow_core")
        for module in (ROOT / package).rglob("*.py")
        if module.name != "__init__.py"
    }
)


def test_every_folder_with_modules_is_a_room() -> None:
    assert sorted(ROOMS) == FOLDERS


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_room_names_its_modules_once_each(folder: str) -> None:
    named = re.findall(r"`(\w+\.py)`", "\n".join(re.findall(r"^\| (`[^|]*) \|", ROOMS[folder], re.MULTILINE)))
    there = [module.name for module in (ROOT / folder).glob("*.py") if module.name != "__init__.py"]
    assert sorted(named) == sorted(there)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE))))
def test_a_path_in_the_text_leads_somewhere(path: str) -> None:
    assert (ROOT / path).exists() or (ROOT / "workflow_core" / path).exists()
