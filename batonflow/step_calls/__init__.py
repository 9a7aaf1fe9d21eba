"""Calls of steps: a function over many items, and questions to people."""

from batonflow.step_calls.asking import ask
from batonflow.step_calls.mapping import progress_of, run_map

__all__ = ["ask", "progress_of", "run_map"]
