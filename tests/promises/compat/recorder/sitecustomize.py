"""Writes down the types of the public stream of every run of a program, without a change to the program.

Python imports this module at its start when its folder is on PYTHONPATH. It wraps two members of WorkflowHandler. What
a program streams is noted as it passes. A run that the program only awaits is streamed here once it has ended, which
the contract allows at any time; should the program ask for the stream afterwards, it gets what was read.
Each process appends one line per run to the file named by COMPAT_RECORD, in the order in which the runs were started.
"""

import atexit
import functools
import importlib
import os
from pathlib import Path

_runs = {}


class _Run:
    """The types streamed by one run; holds the handler, so that its id stays its own."""

    def __init__(self, handler):
        self.handler = handler
        self.types = []
        self.buffered = None
        self.read = False


def _install(handler_class):
    original_init = handler_class.__init__
    original_stream = handler_class.stream_events
    original_await = handler_class.__await__

    @functools.wraps(original_init)
    def init(self, *args, **kwargs):
        original_init(self, *args, **kwargs)
        _runs[id(self)] = _Run(self)

    async def stream_events(self, expose_internal=False):
        run = _runs[id(self)]
        run.read = True
        if run.buffered is not None:
            buffered, run.buffered = run.buffered, None
            for event in buffered:
                yield event
            return
        async for event in original_stream(self, expose_internal=expose_internal):
            if not _is_internal(event):
                run.types.append(type(event).__name__)
            yield event

    async def result(self):
        try:
            return await _Awaitable(original_await(self))
        finally:
            run = _runs[id(self)]
            if not run.read and self.is_done():
                run.read = True
                run.buffered = [event async for event in original_stream(self)]
                run.types.extend(type(event).__name__ for event in run.buffered)

    handler_class.__init__ = init
    handler_class.stream_events = stream_events
    handler_class.__await__ = lambda self: result(self).__await__()


class _Awaitable:
    def __init__(self, iterator):
        self.iterator = iterator

    def __await__(self):
        return self.iterator


def _is_internal(event):
    return any(base.__name__ == "InternalDispatchEvent" for base in type(event).__mro__)


def _write(path):
    with Path(path).open("a", encoding="utf-8") as file:
        file.writelines(" ".join(run.types) + "\n" for run in _runs.values())


if os.environ.get("COMPAT_RECORD"):
    _install(importlib.import_module(os.environ["COMPAT_HANDLER"]).WorkflowHandler)
    atexit.register(_write, os.environ["COMPAT_RECORD"])
