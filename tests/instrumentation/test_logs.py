"""What stands in the log: neither secrets nor characters that move the cursor of a terminal."""

import asyncio
import io
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batonflow.instrumentation.logs import logger_named
from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step

SECRET = "sk-proj-0123456789abcdefghij"
RAW = f"no way with {SECRET}\x1b[31m\x07\u202e"
ROOT = Path(__file__).parents[2]


class Fails(Workflow):
    @step
    async def fail(self, ev: StartEvent) -> StopEvent:
        raise ValueError(RAW)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """All that a program sees that has set logging up in the usual way."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


def fit(text: str) -> bool:
    return SECRET not in text and re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text) is None


async def test_a_failed_run_that_nobody_awaits_is_logged_without_what_is_secret(log: io.StringIO) -> None:
    handler = Fails().run()
    while not handler.is_done():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)
    del handler
    await asyncio.sleep(0)
    assert "no way with [redacted]\\x1b[31m\\x07\\u202e" in log.getvalue()
    assert "in fail\n" in log.getvalue()
    assert fit(log.getvalue())


def test_messages_are_fit_to_show_with_and_without_arguments(log: io.StringIO) -> None:
    logger = logger_named("batonflow.tests.logs")
    logger.warning(f"{RAW}%")  # noqa: G004 - as somebody may write it
    logger.warning("%s and %d", RAW, 3)
    logger.warning("plain")
    assert log.getvalue().splitlines() == [
        "WARNING no way with [redacted]\\x1b[31m\\x07\\u202e%",
        "WARNING no way with [redacted]\\x1b[31m\\x07\\u202e and 3",
        "WARNING plain",
    ]


def test_an_exception_that_is_fit_to_show_stays_with_its_record(caplog: pytest.LogCaptureFixture) -> None:
    logger = logger_named("batonflow.tests.logs")
    for text in ("harmless", RAW):
        try:
            raise ValueError(text)
        except ValueError:
            logger.exception("it failed")
    plain, shown = caplog.records
    assert plain.exc_info is not None
    assert plain.exc_info[0] is ValueError
    assert shown.exc_info is None
    assert shown.exc_text is not None
    assert fit(shown.exc_text)


async def test_verbose_lines_are_fit_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no way"):
        await Fails(verbose=True).run()
    printed = capsys.readouterr().out
    assert "[redacted]" in printed
    assert fit(printed)


@pytest.mark.parametrize("options", [[], ["--debug"]])
def test_the_command_line_tells_errors_that_are_fit_to_show(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "flow.py").write_text("from tests.instrumentation.test_logs import Fails\nflow = Fails()\n")
    command = [sys.executable, "-m", "batonflow", "run", "flow.py:flow", *options]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "no way with [redacted]" in done.stderr
    assert fit(done.stderr)


def test_every_logger_of_the_packages_is_made_fit_to_show() -> None:
    """A logger from ``logging.getLogger`` would print what this one leaves out."""
    found = [
        str(file.relative_to(ROOT))
        for folder in ("workflow_core", "agents", "tools", "llms", "batonflow/cli")
        for file in (ROOT / folder).rglob("*.py")
        if re.search(r"= logging\.getLogger\(", file.read_text()) and file.name != "logs.py"
    ]
    assert found == []
