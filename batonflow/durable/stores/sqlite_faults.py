"""Errors of SQLite and the operating system, in words that name the remedy."""

import errno
import os
import sqlite3
from pathlib import Path

from batonflow.durable.stores.sqlite_schema import DatabaseFile
from batonflow.workflow_core.errors import StoreCorruptedError, StoreError

__all__ = ["concerns_all", "explained", "is_busy"]

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def _code(error: BaseException) -> int:
    """Return SQLite's primary result code; 0 for other errors."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_busy(error: BaseException) -> bool:
    """Tell whether another connection locks the database temporarily."""
    return isinstance(error, sqlite3.Error) and _code(error) in _BUSY


def concerns_all(error: BaseException) -> bool:
    """Tell whether the connection itself has failed, so that other operations would fail, too."""
    if isinstance(error, sqlite3.Error):
        return _code(error) not in {
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_CORRUPT,
            sqlite3.SQLITE_TOOBIG,
            sqlite3.SQLITE_CONSTRAINT,
        }
    return isinstance(error, OSError)


def explained(file: DatabaseFile, error: Exception, waited: float) -> Exception:
    """Return the error for the caller: a StoreError for faults of the database, otherwise the raised error.

    Args:
        file: The database.
        error: The raised error.
        waited: The seconds of retries, if the database was locked.
    """
    if not isinstance(error, sqlite3.Error | OSError):
        return error
    instead = _store_error(file, error, waited)
    instead.__cause__ = error
    return instead


def _store_error(file: DatabaseFile, error: sqlite3.Error | OSError, waited: float) -> StoreError:
    path, code = file.path, _code(error)
    if code in _BUSY:
        return StoreError(
            f"Another program holds the database {path}: it was locked for {waited:g} s. End its transaction (a shell "
            "or a backup that is left open, a stopped process), or give the store more busy_seconds"
        )
    if code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) in _NO_SPACE:
        bound = f", or raise max_bytes, now {file.max_bytes:,}" if file.max_bytes is not None else ""
        return StoreError(f"There is no space left for the database {path}: free some on its disk{bound}; then go on")
    if code in _CORRUPT:
        return StoreCorruptedError(
            f"{path} is damaged, or is not a SQLite database ({error}): restore a backup, or choose another path"
        )
    if code == sqlite3.SQLITE_CONSTRAINT:
        return StoreCorruptedError(f"{path} holds what it should not ({error}): restore it from a backup")
    refused = code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
    if getattr(error, "errno", None) == errno.EROFS or (refused and _is_on_read_only_system(path)):
        return StoreError(
            f"The database {path} lies on a file system that is mounted read-only: choose a path on a writable one, "
            "copy the file there, or mount the file system for writing"
        )
    if path.exists() and not os.access(path, os.R_OK):
        return StoreError(
            f"The database {path} cannot be read ({error}): this process needs the right to read and write the file "
            f"and to make files in {path.parent}"
        )
    if refused or isinstance(error, PermissionError):
        return StoreError(
            f"The database {path} cannot be written ({error}): this process needs the right to write the file and to "
            f"make files in {path.parent}"
        )
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(
            f"Reading or writing {path} failed ({error}): look at its disk, and at limits on the size of files"
        )
    return StoreError(f"The database {path} cannot be used: {error}")


def _is_on_read_only_system(path: Path) -> bool:
    statvfs = getattr(os, "statvfs", None)  # missing on Windows
    if statvfs is None:
        return False
    try:
        return bool(statvfs(path.parent).f_flag & os.ST_RDONLY)
    except OSError:
        return False
