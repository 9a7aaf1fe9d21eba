"""Fixtures of the tests of programs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.programs.running import Forking, forking


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forking]:
    """Run programs in processes that have imported the package already."""
    with forking(tmp_path_factory.mktemp("forking") / "socket") as found:
        yield found


@pytest.fixture
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the output of a program, beside the folder in which it runs."""
    return tmp_path_factory.mktemp("beside")
