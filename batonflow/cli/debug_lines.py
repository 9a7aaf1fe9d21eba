"""A debugged run as lines on stderr, as ``batonflow chat`` prints it."""

import asyncio
import io
import sys
from typing import cast

from typing_extensions import override

from batonflow.cli.stream_lines import StreamPrinter
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.stream import StreamReader

__all__ = ["tell_run"]

_tasks: set["asyncio.Task[None]"] = set()


def tell_run(handler: WorkflowHandler) -> None:
    """Print the stream of a run on stderr until the run ends.

    Args:
        handler: The handler of the run.
    """
    task = asyncio.get_running_loop().create_task(_tell(handler), name="batonflow-debug")
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


class _WholeLines(io.StringIO):
    """Text for stderr, written line by line, so that records of logs stand between the lines."""

    @override
    def write(self, text: str, /) -> int:
        self.seek(0, io.SEEK_END)
        super().write(text)
        lines, newline, rest = self.getvalue().rpartition("\n")
        if newline:
            sys.stderr.write(lines + newline)
            sys.stderr.flush()
            self.truncate(0)
            self.seek(0)
            super().write(rest)
        return len(text)


async def _tell(handler: WorkflowHandler) -> None:
    printer, reader = StreamPrinter(_WholeLines()), cast("StreamReader", handler.subscribe())
    reader.follows = False
    try:
        async for item in reader:
            printer.event(item.event)
    except asyncio.CancelledError:
        if handler.is_done():  # the program has ended first; the rest of the stream is there already
            async for item in reader:
                printer.event(item.event)
        raise
    finally:
        printer.finish()
