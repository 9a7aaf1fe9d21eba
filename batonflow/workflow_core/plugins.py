"""The runtime of runs: the one that ships with batonflow keeps them in this process, on asyncio."""

from typing import Any

__all__ = ["BasicRuntime", "basic_runtime", "get_current_runtime"]


class BasicRuntime:
    """Runs in memory, on the event loop that starts them. Knows every unfinished run by its id."""

    is_launched = True

    def __init__(self) -> None:
        self._runs: dict[str, Any] = {}

    def register(self, workflow: Any) -> None:
        """Nothing to prepare; workflows are read when they are built."""

    def find(self, run_id: str) -> Any:
        """Return the live run of this id, None for an unknown id."""
        return self._runs.get(run_id)

    def add(self, run: Any) -> None:
        """Keep a run alive, also without a handler.

        Raises:
            RuntimeError: A run of this id is not over yet.
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
        """A run is over."""
        if self._runs.get(run.state.run_id) is run:
            del self._runs[run.state.run_id]

    def _drop_closed_loops(self) -> None:
        # A run that waited when its loop was closed can never end; it must not block its id.
        for run_id in [run_id for run_id, run in self._runs.items() if run.loop.is_closed()]:
            del self._runs[run_id]

    async def launch(self) -> None:
        """Always launched."""

    async def destroy(self) -> None:
        """Nothing to take down."""


basic_runtime = BasicRuntime()
"""The runtime of this process."""


def get_current_runtime() -> BasicRuntime:
    """The runtime that new workflows are bound to."""
    return basic_runtime
