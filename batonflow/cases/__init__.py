"""Runs as test cases. A stored run is a file, which replays without a key or tries another model.

The names are loaded at first use, because pytest loads the plugin of this package in each of its runs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batonflow.cases.case import Case, CaseDifferenceError, CaseError, case_of_run, read_cases
    from batonflow.cases.trial import Trial, try_run

__all__ = ["Case", "CaseDifferenceError", "CaseError", "Trial", "case_of_run", "read_cases", "try_run"]


def _load(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'trial' if name in {'Trial', 'try_run'} else 'case'}"), name)


if not TYPE_CHECKING:  # checkers would take every name
    __getattr__ = _load
