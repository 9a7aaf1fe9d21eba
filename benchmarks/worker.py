"""Measures one program on one engine in a process of its own: `worker.py ENGINE PROGRAM UNITS SAMPLES`; prints JSON."""

import asyncio
import json
import logging
import sys
import warnings

import programs

ENGINES = {"batonflow": "batonflow.workflow_core", "llama-index": "workflows"}


def main() -> None:
    """Print the best of the samples."""
    engine, name, units, samples = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if engine == "floor":
        from floor import FLOOR  # noqa: PLC0415 - the floor is measured without the engines loaded

        measured = FLOOR[name]
    else:
        programs.load(ENGINES[engine])
        measured = programs.PROGRAMS[name]
    found = [asyncio.run(measured(units)) for _ in range(samples)]
    best = min(found, key=lambda sample: sample["seconds"])
    if "kib" in best:
        # Later samples reuse the memory of earlier ones; only the first tells what a run weighs.
        best["kib"] = found[0]["kib"]
    print(json.dumps(best))


main()
