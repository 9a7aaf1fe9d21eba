"""List the items of the contract that no test shows, and ids in tests that the contract does not have.

Run as ``python -m tests.check_contract``; exits 1 when there is something to list.
"""

import sys
from collections import defaultdict

import pytest

from tests.contract import items

_WILL_NOT_RUN = ("skip", "xfail")


class _Marks:
    """A pytest plugin that notes which test names which contract item, without running any."""

    def __init__(self) -> None:
        self.tests_of: defaultdict[str, list[str]] = defaultdict(list)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if any(item.get_closest_marker(name) for name in _WILL_NOT_RUN):
                continue
            for mark in item.iter_markers("contract"):
                for id_ in mark.args:
                    self.tests_of[id_].append(item.nodeid)


def main() -> int:
    """Collect the tests, print what is missing or unknown, and return the exit status."""
    marks = _Marks()
    status = pytest.main(
        ["--collect-only", "-qq", "--no-header", "-p", "no:randomly", "-p", "no:cacheprovider"], [marks]
    )
    if status != pytest.ExitCode.OK:
        print(f"contract: collecting the tests failed ({pytest.ExitCode(status).name})")
        return 1
    promised = items()
    missing = [id_ for id_ in promised if id_ not in marks.tests_of]
    unknown = {id_: tests for id_, tests in sorted(marks.tests_of.items()) if id_ not in promised}
    for id_ in missing:
        print(f"no test shows {id_}: {promised[id_]}")
    for id_, tests in unknown.items():
        print(f"unknown item {id_!r} in {', '.join(sorted(set(tests)))}")
    print(f"contract: {len(promised) - len(missing)} of {len(promised)} items are shown by tests")
    return 1 if missing or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
