"""Measure the search in a file of nodes: by words, by vectors, and with a filter, for files of several sizes.

    python benchmarks/retrieval.py --write docs/evidence/performance.md

A passage has 100 words, drawn with the frequencies of Zipf, and a vector of 384 numbers. Each size is a process of its
own.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from reporting import Table, report
from run import HERE, ROOT

from batonflow.nodes import TextNode
from batonflow.retrieval import MetadataFilters, NodeStore

MARKS = ("<!-- retrieval begin -->", "<!-- retrieval end -->")
SIZES = (1_000, 20_000, 200_000)
WORDS, PASSAGE, DIMENSIONS, TOP_K, BATCH = 20_000, 100, 384, 10, 2048
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


def build(path: str, count: int) -> dict[str, float]:
    """Store passages with vectors."""
    texts, _, vectors = passages(count)
    began, store = time.perf_counter(), NodeStore(path)
    for begin in range(0, count, BATCH):
        end = min(begin + BATCH, count)
        given = vectors[begin:end].tolist()
        nodes = [
            TextNode(text=texts[at], id_=str(at), metadata={"part": at % 7}, embedding=given[at - begin])
            for at in range(begin, end)
        ]
        store.add_nodes(nodes, model="m")
    store.close()
    return {"build": time.perf_counter() - began, "file": Path(path).stat().st_size / 2**20}


def search(path: str, count: int) -> dict[str, float]:
    """Search a file that another process has written."""
    _, questions, _ = passages(min(count, 10))
    vectors = np.random.default_rng(1).standard_normal((QUERIES, DIMENSIONS)).tolist()
    kept = MetadataFilters.from_dict({"part": 3})
    before, store = memory(), NodeStore(path)
    cold, words = timed(lambda query: store.by_words(query, TOP_K), questions)
    first, near = timed(lambda vector: store.by_vector("m", vector, TOP_K), vectors)
    _, filtered = timed(lambda vector: store.by_vector("m", vector, TOP_K, store.mask(filters=kept)), vectors)
    return {
        "cold": cold, "words": words, "first": first, "near": near, "filtered": filtered, "MiB": memory() - before,
    }  # fmt: skip


STEPS: dict[str, Callable[[str, int], dict[str, float]]] = {"build": build, "search": search}


def measured(step: str, path: str, count: int) -> dict[str, float]:
    """One step in a process of its own."""
    command = [sys.executable, "-B", str(HERE / "retrieval.py"), "--step", step, path, str(count)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{step}: {done.stderr.strip().splitlines()[-1]}")
    print(f"measured {step} of {count:,}", flush=True)
    return json.loads(done.stdout.splitlines()[-1])


def tables(_options: argparse.Namespace) -> list[Table]:
    """The figures of all sizes."""
    found: list[dict[str, float]] = []
    for count in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "nodes.db")
            found.append({**measured("build", path, count), **measured("search", path, count)})
    rows = {
        "build with given vectors, committed, s": "build",
        "words, the first search of a process, ms": "cold",
        "words, median, ms": "words",
        "vectors, the first search of a process, ms": "first",
        "vectors, median, ms": "near",
        "vectors with a filter that leaves 1 in 7, median, ms": "filtered",
        "memory above the start, MiB": "MiB",
        "file, MiB": "file",
    }
    head = ["| passages | " + " | ".join(f"{count:,}" for count in SIZES) + " |", "|---|" + "---:|" * len(SIZES)]
    return [[*head, *(f"| {name} | {' | '.join(f'{one[key]:.3g}' for one in found)} |" for name, key in rows.items())]]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        print(json.dumps(STEPS[sys.argv[2]](sys.argv[3], int(sys.argv[4]))))
    else:
        sys.exit(report(__doc__, MARKS, tables))
