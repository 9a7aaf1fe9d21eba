"""The runtime of runs; the runtime of batonflow keeps them in this process, on asyncio."""

from typing import Any

__all__ = ["BasicRuntime", "basic_runtime", "get_current_runtime"]


class BasicRuntime:
    """The runtime for runs in memory, on the event loops that start them. It finds unfinished runs by id."""

    is_launched = True

    def __init__(self) -> None:
        self._runs: dict[str, Any] = {}

    def register(self, workflow: Any) -> None:
        """Do nothing; workflows need no preparation."""

    def find(self, run_id: str) -> Any:
        """Return the live run with an id; None for an unknown id."""
        return self._runs.get(run_id)

    def add(self, run: Any) -> None:
        """Keep a run alive, even without a handler.

        Raises:
            RuntimeError: A run with this id is not finished.
        """
        run_id = run.state.run_id
        known = self._runs.get(run_id)
        if known is not None:
            if not known.loop.is_closed():
                raise RuntimeError(
                    f"A run with id {run_id!r} already exists; wait for its end or choose another run_id"
                )
            self._drop_closed_loops()
        self._runs[run_id] = run

    def discard(self, run: Any) -> None:
        """Forget a finished run."""
        if self._runs.get(run.state.run_id) is run:
            del self._runs[run.state.run_id]

    def _drop_closed_loops(self) -> None:
        # A run whose loop is closed can never end, and must not block its id.
        for run_id in [run_id for run_id, run in self._runs.items() if run.loop.is_closed()]:
            del self._runs[run_id]

    async def launch(self) -> None:
        """Do nothing; the runtime is always ready."""

    async def destroy(self) -> None:
        """Do nothing; the runtime holds no resources."""


basic_runtime = BasicRuntime()
"""The runtime of this process."""


def get_current_runtime() -> BasicRuntime:
    """Return the runtime for new workflows."""
    return basic_runtime
