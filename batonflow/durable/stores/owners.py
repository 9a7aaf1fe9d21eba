"""Living owners: each owner holds a lock on a file of its name, which the system frees when its process ends."""

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
    """Differs between two starts of the machine where the system tells; the monotonic clock begins anew with each.

    Elsewhere it is always 0: a lease from before the start then looks too long to be true, which ends it as well.
    """
    try:
        return zlib.crc32(_BOOT_ID.read_bytes())
    except OSError:
        return 0


class Owners:
    """The owners of this process, and the known state of other owners.

    Another object of this class is another process to this one, in the same process too. Where the system has no
    ``flock``, every owner counts as alive, and only leases tell.

    Args:
        folder: Where the lock files are; made when needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._guard = threading.Lock()
        self._held: dict[str, int] = {}

    def vouch(self, owner: str) -> None:
        """Hold the lock of ``owner`` from now on.

        Raises:
            StoreError: Somebody else holds it.
            OSError: The file cannot be made.
        """
        if owner in self._held or not LOCKS:
            return
        with self._guard:
            if owner not in self._held:
                self._held[owner] = self._hold(owner)

    def alive(self, owner: str) -> bool:
        """Tell whether the process that vouched for ``owner`` still lives. The lock file of a dead one is removed."""
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
        with suppress(OSError):  # others still have their locks there
            self._folder.rmdir()

    def forget(self) -> None:
        """Close the files without freeing the locks: in a forked child they are the parent's."""
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
            except FileNotFoundError:  # the last owner that left removed the folder
                if time.monotonic() > deadline:
                    raise
                continue
            # Another process that checks the owner may hold the lock for a moment, and remove the file.
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
    """Tell whether the lock of this file is free or the file is missing; remove a free file."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    except OSError:  # belongs to another user: the lease decides
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
