"""docs/explanation/architecture.md: the map is that of today, and the paths in the text lead somewhere."""

import re

import pytest

from tests.architecture_map import PAGE, ROOT, page_with_map

TEXT = PAGE.read_text()


def test_the_map_is_written_from_the_docstrings_of_today() -> None:
    assert page_with_map(TEXT) == TEXT, "run `make map`"


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:\w+/)+\w+\.py)`", TEXT))))
def test_a_path_in_the_text_leads_somewhere(path: str) -> None:
    assert (ROOT / path).exists() or (ROOT / "batonflow" / path).exists()
