"""Worker processes of pydantic-monty, shared by all sessions of this process."""

import atexit
import os
import threading
import time
from typing import Any

from batonflow.lazy import how_to_install
from batonflow.tools.code.base import SandboxUnavailableError

__all__ = ["MAX_WORKERS", "monty_pool"]

# A session occupies a worker while its code runs and while short calls are answered; an idle worker costs 1 MB.
MAX_WORKERS = 256


class _Pool:
    """The pool of this process; it belongs to no event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: Any = None
        self._forked = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        # In a forked child neither inherited nor new workers ever answer.
        self._forked = self._pool is not None

    def get(self, module: Any) -> Any:
        if self._forked:
            raise SandboxUnavailableError(
                "Monty does not work in a process forked from one that has used it: start processes with "
                "multiprocessing.set_start_method('spawn') or 'forkserver'"
            )
        with self._lock:
            if self._pool is None:
                # The native threads of the pool must end before the interpreter shuts down.
                atexit.register(time.sleep, 0.02)
                self._pool = module.AsyncMonty(min_processes=0, max_processes=MAX_WORKERS)
            return self._pool


_pool = _Pool()


async def monty_pool(module: Any) -> Any:
    """Return the pool of this process, started at first use.

    Args:
        module: ``pydantic_monty``.

    Raises:
        SandboxUnavailableError: The process was forked from a process that had used the pool, or the worker program
            does not start.
    """
    pool = _pool.get(module)
    try:
        # Entering it again is harmless.
        return await pool.__aenter__()
    except (RuntimeError, FileNotFoundError) as err:
        raise SandboxUnavailableError(f"Monty does not start: {err}; {how_to_install('code')}") from err
