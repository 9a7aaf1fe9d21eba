"""How a program is measured: CPU time of the process, and its resident memory."""

import gc
import resource
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

__all__ = ["Program", "Watch", "per_unit", "resident_kib"]

Program = Callable[..., Awaitable[dict[str, float]]]
"""Runs so many units and returns seconds, and perhaps KiB, of one of them."""


class Watch:
    """CPU seconds of this process inside a with block."""

    def __enter__(self) -> Self:
        gc.collect()
        self.started = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu = time.process_time() - self.started


def per_unit(watch: Watch, units: int, **extra: float) -> dict[str, float]:
    return {"seconds": watch.cpu / units, **extra}


def resident_kib() -> float:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1024
    except FileNotFoundError:
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
