"""Fixtures and options of the whole test suite."""

import gc
import inspect
import os
import shutil
import signal
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings

from tests.leftovers import no_task_left

# How fast examples are made says more about the load of the machine than about the test.
settings.register_profile(
    "batonflow", max_examples=25, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", settings.get_profile("batonflow"), max_examples=200)
# For runs that only ask whether a test fails, and not with which smallest example (`make mutants`).
settings.register_profile(
    "without-shrinking",
    settings.get_profile("batonflow"),
    max_examples=100,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
settings.load_profile("batonflow")

# A shell starts programs in the background with Ctrl-C ignored, and a terminal that is gone ignores more. What a test
# starts would inherit that, so the tests set the dispositions that a program has in the foreground.
for _name, _disposition in (
    ("SIGINT", signal.default_int_handler),
    ("SIGTERM", signal.SIG_DFL),
    ("SIGHUP", signal.SIG_DFL),
    ("SIGQUIT", signal.SIG_DFL),
):
    _number = getattr(signal, _name, None)  # Windows has fewer
    if _number is not None and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _disposition)

# Clients of HTTP read the certificates of all authorities when they are made, which takes longer than most tests. The
# tests speak to servers of their own, and these processes and their children trust this authority alone.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("authority.pem"))

_LEFT_OUT = pytest.StashKey[int]()
# Marks name what is installed; where its program is called otherwise, that stands here.
_PROGRAMS = {"bubblewrap": "bwrap"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-external",
        action="store_true",
        help="run the tests marked external(tool), and fail them when the tool is missing",
    )

    parser.addoption(
        "--soak", action="store_true", help="let the tests marked soak try all of their cases, as `make soak` does"
    )

    parser.addoption(
        "--read-back",
        action="store_true",
        help="read every record and snapshot that a test writes, and fail the test where something else comes back",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Take more workers than there are cores, as many tests wait, and no more than fit into the memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = cores + 2
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        # A worker and the processes that its tests start take up to a GiB.
        workers = min(workers, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**30)
    return max(workers, 2)


def pytest_configure(config: pytest.Config) -> None:
    # The modules of the tests are loaded later, and take the profile that they find.
    if config.getoption("--soak") and config.getoption("--hypothesis-profile") is None:
        settings.load_profile("soak")


@pytest.hookimpl(tryfirst=True)  # before -m selects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        # With --soak these try more examples.
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("soak")
        if config.getoption("--soak") and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))
    if not config.getoption("--soak"):
        only = [item for item in items if any(mark.kwargs.get("only") for mark in item.iter_markers("soak"))]
        if only:
            left = set(only)
            items[:] = [item for item in items if item not in left]
            config.hook.pytest_deselected(items=only)
    if config.getoption("--require-external"):
        return
    external = [item for item in items if item.get_closest_marker("external")]
    if external:
        items[:] = [item for item in items if not item.get_closest_marker("external")]
        config.hook.pytest_deselected(items=external)
    config.stash[_LEFT_OUT] = len(external)
    worker_output = getattr(config, "workeroutput", None)
    if worker_output is not None:
        # Under xdist only the workers collect; this carries the number to the process that prints the summary.
        worker_output["external_left_out"] = len(external)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    # Imported modules and thousands of tests stay to the end. A collector that looked at them again and again would
    # take a third of the time of the imports, a minute of the tests, and a second of each test that asks for it.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
        gc.callbacks.append(_note_full_collection)


_collected_fully = False


def _note_full_collection(phase: str, info: dict[str, int]) -> None:
    global _collected_fully
    if phase == "stop" and info["generation"] == 2:
        _collected_fully = True


def pytest_runtest_logfinish() -> None:
    # What survived a full collection stays to the end too: reports, and modules that a test loaded first.
    global _collected_fully
    if _collected_fully:
        gc.collect(1)
        gc.freeze()
        _collected_fully = False


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    left_out = getattr(node, "workeroutput", {}).get("external_left_out", 0)
    node.config.stash[_LEFT_OUT] = left_out


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash.get(_LEFT_OUT, 0)
    if left_out:
        terminalreporter.write_line(
            f"{left_out} tests need a program outside Python and were left out (--require-external runs them)"
        )


def pytest_runtest_setup(item: pytest.Item) -> None:
    mark = item.get_closest_marker("external")
    if mark is None or mark.args[0] == "postgresql":  # tests/postgres.py finds or starts a server
        return
    program = _PROGRAMS.get(mark.args[0], mark.args[0])
    if shutil.which(program) is None:
        pytest.fail(f"{program} is not on PATH and --require-external was given", pytrace=False)


@pytest.fixture(scope="session")
def soaks(pytestconfig: pytest.Config) -> bool:
    """Tell a test marked soak to try all of its cases."""
    return bool(pytestconfig.getoption("--soak"))


@pytest.fixture
async def _no_task_left() -> AsyncIterator[None]:
    """Fail the test when a task of its loop is still alive shortly after its end."""
    async with no_task_left():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    # The tests of the option itself write what does not come back.
    if not item.config.getoption("--read-back") or item.path.name == "test_reading_back.py":
        return (yield)
    # Loaded here, as other runs do without it.
    from tests.reading_back import reading_back

    with reading_back() as problems:
        result = yield
    if problems:
        pytest.fail("\n".join(problems[:5]), pytrace=False)
    return result


@pytest.fixture(autouse=True)
def _clean_loop(request: pytest.FixtureRequest) -> None:
    """Watch over the tasks of every asynchronous test."""
    if inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        request.getfixturevalue("_no_task_left")
