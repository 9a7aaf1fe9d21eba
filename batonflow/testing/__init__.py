"""Helpers for testing workflows: a runner that collects events, a virtual clock, and seeded interleavings."""

from batonflow.testing.interleaving import SeededRun, run_seeded
from batonflow.testing.runner import WorkflowTestResult, WorkflowTestRunner
from batonflow.testing.virtual_time import VirtualClockLoop, VirtualSource, run_virtual

__all__ = [
    "SeededRun",
    "VirtualClockLoop",
    "VirtualSource",
    "WorkflowTestResult",
    "WorkflowTestRunner",
    "run_seeded",
    "run_virtual",
]
