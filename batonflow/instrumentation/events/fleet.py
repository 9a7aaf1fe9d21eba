"""Events of workers."""

from batonflow.instrumentation.events.base import BaseEvent

__all__ = ["QueueCountEvent"]


class QueueCountEvent(BaseEvent):
    """A worker has counted the unfinished runs of a queue, a workflow and a version.

    Args:
        queue: The queue.
        workflow: Name of the workflow.
        version: The version; empty for runs without one.
        counts: The numbers of runs by state: ``ready``, ``later``, ``running``, ``waiting`` and ``held``.
        oldest: The longest time in seconds since which a run is ready; 0 without ready runs.
    """

    queue: str
    workflow: str
    version: str
    counts: dict[str, int]
    oldest: float
