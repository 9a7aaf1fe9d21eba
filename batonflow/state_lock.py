"""The lock for editing a state, for tasks of any event loop and for threads."""

import asyncio
import threading
from collections import deque
from concurrent.futures import Future

__all__ = ["StateLock", "current_editor"]


def current_editor() -> object:
    """Return the identity of the caller as an editor: its task, or its thread outside of event loops."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return task or threading.get_ident()


class StateLock:
    """A lock for tasks and threads, granted in the order of the calls.

    Attributes:
        editor: The identity of the block that edits the state, see ``current_editor``.
    """

    __slots__ = ("_guard", "_waiting", "editor", "locked")

    def __init__(self) -> None:
        self._guard = threading.Lock()
        # Waiting tasks with their event loops, which may end at any time.
        self._waiting: deque[tuple[Future[None], asyncio.AbstractEventLoop | None]] = deque()
        self.locked = False
        self.editor: object = None

    def edits_here(self) -> bool:
        """Tell whether the caller is inside its own editing block."""
        if self.editor is None:
            return False
        # A block in a synchronous function belongs to its thread, even if a loop is started inside.
        return self.editor == current_editor() or self.editor == threading.get_ident()

    def _enter(self, loop: asyncio.AbstractEventLoop | None) -> "Future[None] | None":
        with self._guard:
            if not self.locked:
                self.locked = True
                return None
            turn: Future[None] = Future()
            self._waiting.append((turn, loop))
            return turn

    async def acquire(self) -> None:
        """Take the lock, without blocking the event loop."""
        turn = self._enter(asyncio.get_running_loop())
        if turn is None:
            return
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            if not turn.cancel():  # the lock was handed over in the meantime
                self.release()
            raise

    def acquire_sync(self) -> None:
        """Take the lock; block the thread until then."""
        turn = self._enter(None)
        if turn is not None:
            turn.result()

    def hold(self) -> None:
        """Note the caller as the editor, after the lock was taken."""
        self.editor = current_editor()

    def release(self) -> None:
        """Hand the lock over to the next waiter, or free it."""
        self.editor = None
        with self._guard:
            while self._waiting:
                turn, loop = self._waiting.popleft()
                if (loop is None or not loop.is_closed()) and turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self.locked = False
