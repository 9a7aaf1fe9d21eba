"""Live owners. Each holds a lock on a file of its name, which the system releases at the end of its process."""

import os
import sys
import threading
import time
import zlib
from contextlib import suppress
from pathlib import Path

from batonflow.workflow_core.errors import StoreError

__all__ = ["Owners", "boot_number"]

_SUFFIX = ".lock"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LOCK_SECONDS = 0.5

if sys.platform == "win32":

    def _lock(descriptor: int, *, shared: bool) -> bool:  # noqa: ARG001 - as below
        return False

    LOCKS = False
else:
    import fcntl

    def _lock(descriptor: int, *, shared: bool) -> bool:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    LOCKS = True


def boot_number() -> int:
    """Return a number for the present start of the machine, with which the monotonic clock restarts.

    It is 0 where the system does not provide it; leases from before the start then look too long and end, too.
    """
    try:
        return zlib.crc32(_BOOT_ID.read_bytes())
    except OSError:
        return 0


class Owners:
    """The owners of this process, and the state of other owners.

    Two objects of this class act like two processes. On systems without ``flock`` all owners count as alive, and only
    leases decide.

    Args:
        folder: The folder of the lock files; it is created when needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._guard = threading.Lock()
        self._held: dict[str, int] = {}

    def vouch(self, owner: str) -> None:
        """Take the lock of ``owner``.

        Raises:
            StoreError: Another process holds the lock.
            OSError: The file cannot be created.
        """
        if owner in self._held or not LOCKS:
            return
        with self._guard:
            if owner not in self._held:
                self._held[owner] = self._hold(owner)

    def alive(self, owner: str) -> bool:
        """Tell whether the process of ``owner`` lives; remove the lock file of a dead owner."""
        if owner in self._held or not LOCKS:
            return True
        return not _remove_if_free(self._folder / (owner + _SUFFIX))

    def tidy(self) -> None:
        """Remove the lock files of dead owners."""
        if not LOCKS:
            return
        with suppress(FileNotFoundError):
            for path in self._folder.glob("*" + _SUFFIX):
                if path.stem not in self._held:
                    _remove_if_free(path)

    def give_up(self) -> None:
        """Release all owners of this process."""
        with self._guard:
            for owner, descriptor in self._held.items():
                with suppress(OSError):
                    (self._folder / (owner + _SUFFIX)).unlink(missing_ok=True)
                os.close(descriptor)
            self._held.clear()
        with suppress(OSError):  # other owners have their locks in the folder
            self._folder.rmdir()

    def forget(self) -> None:
        """Close the files without a release of the locks, which belong to the parent of a forked process."""
        self._guard = threading.Lock()
        for descriptor in self._held.values():
            with suppress(OSError):
                os.close(descriptor)
        self._held.clear()

    def _hold(self, owner: str) -> int:
        path = self._folder / (owner + _SUFFIX)
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            with suppress(FileExistsError):
                self._folder.mkdir(mode=0o700)
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError:  # the last owner has removed the folder
                if time.monotonic() > deadline:
                    raise
                continue
            # Another process that checks the owner may briefly hold the lock, and remove the file.
            if _lock(descriptor, shared=False) and _is_at(descriptor, path):
                return descriptor
            os.close(descriptor)
            if time.monotonic() > deadline:
                raise StoreError(
                    f"Owner {owner!r} is in use by another process or store, which holds {path}: use store.owner as "
                    "the name"
                )
            time.sleep(0.005)


def _remove_if_free(path: Path) -> bool:
    """Return True if the file is missing or its lock is free; remove the file then."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    except OSError:  # the file belongs to another user; the lease decides
        return False
    try:
        if not _lock(descriptor, shared=True):
            return False
        if _is_at(descriptor, path):
            with suppress(OSError):
                path.unlink()
        return True
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
