"""One task after the other, in the order in which they came."""

import asyncio
import threading
from typing import Any

__all__ = ["TurnTaking"]


class TurnTaking:
    """A lock for the tasks of each event loop.

    A memory is used from several loops where synchronous calls are made beside asynchronous ones, and a lock of asyncio
    belongs to one.

    Example:
        >>> async with turns.here():
        ...     await change()
    """

    def __init__(self) -> None:
        self._locks: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._guard = threading.Lock()

    def here(self) -> asyncio.Lock:
        """Return the lock of the running loop; it wakes waiting tasks in the order of their arrival."""
        loop = asyncio.get_running_loop()
        with self._guard:
            lock = self._locks.get(loop)
            if lock is None:
                open_ones = {one: held for one, held in self._locks.items() if not one.is_closed()}
                lock = asyncio.Lock()
                self._locks = {**open_ones, loop: lock}
            return lock

    # Locks are not part of an object's data: copies have their own, and == leaves them out.

    def __deepcopy__(self, memo: dict[int, Any]) -> "TurnTaking":
        return TurnTaking()

    def __reduce__(self) -> tuple[type["TurnTaking"], tuple[()]]:
        return TurnTaking, ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TurnTaking)

    __hash__ = None  # type: ignore[assignment] - equal to all others
