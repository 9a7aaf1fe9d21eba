"""Dispatcher: an engine for jobs that tells workers of ready runs."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol

from batonflow.instrumentation.logs import logger_named

__all__ = ["Dispatcher", "bell_may_be_lost"]

logger = logger_named("batonflow.dispatcher")


class Dispatcher(Protocol):
    """A bell between the processes that store runs and the workers.

    The bell only says that a run may be ready. The store decides which worker drives it, and when. A bell that is lost,
    late, doubled, or for an unknown run changes nothing, because workers also look for runs themselves.
    """

    async def ring(self, run_id: str, not_before: datetime | None = None, priority: int = 0) -> None:
        """Tell a worker that a run is ready. A failure is logged, and not raised.

        Args:
            run_id: The id of the run.
            not_before: The time of the bell; None for now. Without a time zone it is local.
            priority: Bells with a larger number come first; from -1000 to 1000.
        """
        ...

    async def serve(self, on_ring: Callable[[str], None]) -> None:
        """Call a function on this event loop with the run id of each bell, until a cancellation.

        Args:
            on_ring: The function.

        Raises:
            Exception: The engine fails.
        """
        ...

    async def forget(self, run_id: str) -> None:
        """Remove the bells of a run that have not rung.

        Args:
            run_id: The id of the run.

        Raises:
            Exception: The engine fails.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


@contextmanager
def bell_may_be_lost(run_id: str) -> Generator[None]:
    """Log an error inside the block as a lost bell."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the run is stored, and workers find it
        logger.warning("the bell of run %s was not rung, so a worker has to find the run: %s", run_id, error)
