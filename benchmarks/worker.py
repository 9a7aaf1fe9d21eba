"""Measures one program on one engine in a process of its own: `worker.py ENGINE PROGRAM UNITS SAMPLES`; prints JSON."""

import asyncio
import importlib
import json
import logging
import os
import sys
import warnings

HOMES = {"floor": ("floor", "FLOOR"), "batonflow": ("programs", "PROGRAMS"), "llama-index": ("programs", "PROGRAMS")}


def main() -> None:
    """Print the best of the samples."""
    engine, name, units, samples = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if engine == "llama-index":
        os.environ["BENCHMARK_LIBRARY"] = "workflows"
    module, table = HOMES[engine]  # only what is measured is loaded
    measured = getattr(importlib.import_module(module), table)[name]
    found = [asyncio.run(measured(units)) for _ in range(samples)]
    best = min(found, key=lambda sample: sample["seconds"])
    if "kib" in best:
        # Later samples reuse the memory of earlier ones; only the first tells what a run weighs.
        best["kib"] = found[0]["kib"]
    print(json.dumps(best))


main()
