"""The plugin for pytest: ``@pytest.mark.cases("cases")`` runs a test for each case of a folder.

pytest loads this module in each of its runs, so it loads the rest of the package at the first mark.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["pytest_addoption", "pytest_configure", "pytest_generate_tests"]


def pytest_addoption(parser: "pytest.Parser") -> None:
    """Add the option ``--live``."""
    parser.getgroup("batonflow").addoption(
        "--live", action="store_true", help="replay cases with the real models instead of their recorded answers"
    )


def pytest_configure(config: "pytest.Config") -> None:
    """Add the mark ``cases``."""
    config.addinivalue_line(
        "markers",
        "cases(*folders): run the test for each case in the folders, in its argument `case`; see `batonflow case save`",
    )


def pytest_generate_tests(metafunc: "pytest.Metafunc") -> None:
    """Give each case of the marked folders to a test."""
    mark = metafunc.definition.get_closest_marker("cases")
    if mark is None:
        return
    import pytest  # noqa: PLC0415 - only tests with the mark need more than the standard library

    from batonflow.cases.case import CaseError, read_cases  # noqa: PLC0415

    if "case" not in metafunc.fixturenames:
        pytest.fail(f"{metafunc.definition.name} has the mark `cases`, so it takes an argument `case`", pytrace=False)
    if not mark.args or mark.kwargs:
        pytest.fail('the mark `cases` takes folders, as in @pytest.mark.cases("cases")', pytrace=False)
    beside, root = metafunc.definition.path.parent, metafunc.config.rootpath
    folders: list[Path] = [beside / one if (beside / one).exists() else root / one for one in mark.args]
    try:
        cases = read_cases(*folders, live=bool(metafunc.config.getoption("--live")))
    except CaseError as error:
        pytest.fail(str(error), pytrace=False)
    metafunc.parametrize("case", cases, ids=[case.name for case in cases])
