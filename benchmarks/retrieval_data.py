"""Passages, questions and measures of the benchmarks of retrieval."""

import random
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

WORDS, PASSAGE, DIMENSIONS, TOP_K = 20_000, 100, 384, 10
QUERIES = 50


def passages(count: int) -> tuple[list[str], list[str], Any]:
    """Texts, questions and vectors."""
    letters, dice = "abcdefghijklmnopqrstuvwxyz", random.Random(0)
    vocabulary = np.array(["".join(dice.choices(letters, k=dice.randint(3, 9))) for _ in range(WORDS)])
    often = 1 / np.arange(1, WORDS + 1)
    numbers = np.random.default_rng(0)
    drawn = numbers.choice(WORDS, size=(count, PASSAGE), p=often / often.sum())
    asked = numbers.choice(WORDS, size=(QUERIES, 6), p=often / often.sum())
    vectors = numbers.standard_normal((count, DIMENSIONS), dtype=np.float32)
    return [" ".join(row) for row in vocabulary[drawn]], [" ".join(row) for row in vocabulary[asked]], vectors


def timed(search: Callable[[Any], object], queries: Sequence[Any]) -> tuple[float, float]:
    """The milliseconds of the first search, and the median of the others."""
    times: list[float] = []
    for query in queries:
        began = time.perf_counter()
        search(query)
        times.append((time.perf_counter() - began) * 1e3)
    return times[0], median(times[1:])


def memory() -> float:
    """The MiB of this process."""
    status = Path("/proc/self/status").read_text() if Path("/proc/self/status").exists() else ""
    found = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(found[0].split()[1]) / 1024 if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
