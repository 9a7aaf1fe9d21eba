"""Measure the search in a file of nodes: by words, by vectors, and with a filter, for files of several sizes.

    python benchmarks/retrieval.py --peer-python PYTHON --write docs/evidence/performance.md

A passage has 100 words, drawn with the frequencies of Zipf, and a vector of 384 numbers. Each size is a process of its
own. With a Python that has llama-index-core, langchain-core and bm25s their searches are measured, too.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from reporting import Table, report
from retrieval_data import DIMENSIONS, QUERIES, TOP_K, memory, passages, timed
from run import HERE, ROOT

from batonflow.llms import ScriptedLLM
from batonflow.nodes import QueryBundle, TextNode
from batonflow.retrieval import MetadataFilters, NodeStore, VectorStoreIndex

MARKS = ("<!-- retrieval begin -->", "<!-- retrieval end -->")
SIZES = (1_000, 20_000, 200_000)
PEERS = {
    "simple_vector_store": "LlamaIndex's SimpleVectorStore",
    "in_memory_vector_store": "LangChain's InMemoryVectorStore",
    "bm25s": "bm25s",
}
BATCH = 2048


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


def measured(python: str, script: str, *arguments: object) -> dict[str, float]:
    """Figures that a process of its own prints last."""
    command = [python, "-B", str(HERE / script), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT) if python == sys.executable else ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{script}: {done.stderr.strip().splitlines()[-1]}")
    print(f"measured {script} {' '.join(map(str, arguments))}", flush=True)
    return json.loads(done.stdout.splitlines()[-1])


def tables(options: argparse.Namespace) -> list[Table]:
    """The figures of all sizes, and those of other libraries."""
    ours: list[dict[str, float]] = []
    peers: dict[str, list[dict[str, float]]] = {name: [] for name in PEERS if options.peer_python}
    for count in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "nodes.db")
            built = measured(sys.executable, "retrieval.py", "--step", "build", path, count)
            ours.append({**built, **measured(sys.executable, "retrieval.py", "--step", "search", path, count)})
        for name, found in peers.items():
            found.append(measured(options.peer_python, "retrieval_peers.py", name, count))
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
    lines = [_line(name, ours, key) for name, key in rows.items()]
    for name, found in peers.items():
        key = "words" if name == "bm25s" else "near"
        kind = "words" if name == "bm25s" else "vectors"
        lines.append(_line(f"{PEERS[name]}: {kind}, median, ms", found, key))
        lines.append(_line(f"{PEERS[name]}: memory, MiB", found, "MiB"))
    return [[*head, *lines], query_table()]


def _line(name: str, found: list[dict[str, float]], key: str) -> str:
    return f"| {name} | {' | '.join(f'{one[key]:.3g}' for one in found)} |"


def query_table() -> Table:
    """The CPU time of a query as a workflow, and of the same calls without one; the least of some rounds."""
    texts, _, _ = passages(50)
    index = VectorStoreIndex([TextNode(text=text) for text in texts])
    engine = index.as_query_engine(llm=ScriptedLLM(["An answer."] * 10_000), similarity_top_k=2)

    async def plain() -> object:
        query = QueryBundle(texts[0])
        return await engine.asynthesize(query, await engine.aretrieve(query))

    async def workflow() -> object:
        return await engine.run(texts[0])

    async def rounds() -> list[float]:
        least = [float("inf")] * 2
        for _ in range(7):
            for place, ask in enumerate((plain, workflow)):
                began = time.process_time()
                for _ in range(100):
                    await ask()
                least[place] = min(least[place], (time.process_time() - began) * 10)
        return least

    alone, as_workflow = asyncio.run(rounds())
    return [
        "| a query | CPU, ms |",
        "|---|---:|",
        f"| retrieve and synthesize, called | {alone:.2f} |",
        f"| as a workflow | {as_workflow:.2f} |",
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        print(json.dumps(STEPS[sys.argv[2]](sys.argv[3], int(sys.argv[4]))))
    else:
        sys.exit(report(__doc__, MARKS, tables, peers=("llama-index-core", "langchain-core", "bm25s")))
