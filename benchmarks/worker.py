"""Measures one program on one engine in a process of its own; prints JSON.

worker.py ENGINE HOME PROGRAM UNITS SAMPLES
"""

import asyncio
import importlib
import json
import logging
import os
import sys
import warnings

FLOORS = {"programs": "floor", "agents": "agents_floor"}


def main() -> None:
    """Print the best of the samples."""
    engine, home, name, units, samples = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if engine == "llama-index":
        os.environ["BENCHMARK_LIBRARY"] = "workflows"
    module, table = (FLOORS[home], "FLOOR") if engine == "floor" else (home, "PROGRAMS")  # no more than is measured
    measured = getattr(importlib.import_module(module), table)[name]
    found = [asyncio.run(measured(units)) for _ in range(samples)]
    best = min(found, key=lambda sample: sample["seconds"])
    if "kib" in best:
        # Later samples reuse the memory of earlier ones; only the first tells what a run weighs.
        best["kib"] = found[0]["kib"]
    print(json.dumps(best))


main()
