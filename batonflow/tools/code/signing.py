"""Signatures of snapshots: loading a snapshot runs its content, so only signed ones are loaded."""

import hmac
import os
import secrets
import stat
import zlib
from pathlib import Path

from batonflow.tools.code.base import SnapshotSignatureError

__all__ = ["KEY_BYTES", "KEY_VARIABLE", "check_key", "key_beside", "process_key", "sign", "verify"]

KEY_BYTES = 32
KEY_VARIABLE = "BATONFLOW_KEY"
_MAGIC = b"BATONFLOW-CODE-1\n"
_SIGNATURE_BYTES = 32
_LONGEST = 1 << 30

_process_key = secrets.token_bytes(KEY_BYTES)


def process_key() -> bytes:
    """Return the key of ``BATONFLOW_KEY``, or a random one of this process, whose snapshots no other process restores.

    The variable holds at least 32 hexadecimal digits. Machines that share their runs share its value.

    Raises:
        ValueError: The variable does not hold a key.
    """
    given = os.environ.get(KEY_VARIABLE)
    if not given:
        return _process_key
    try:
        return check_key(bytes.fromhex(given.strip()))
    except ValueError:
        raise ValueError(
            f"{KEY_VARIABLE} does not hold a key of at least 32 hexadecimal digits: make one with "
            "`python -c 'import secrets; print(secrets.token_hex(32))'`"
        ) from None


def check_key(key: bytes) -> bytes:
    """Return a valid key; raise ValueError if it is shorter than 16 bytes."""
    if len(key) < 16:
        raise ValueError(f"a key for snapshots of {len(key)} bytes: at least 16 are required; use 32 random bytes")
    return key


def key_beside(store: str | os.PathLike[str]) -> bytes:
    """Return the key in the file ``<store>.key``; create it with mode 0600 if it does not exist.

    Args:
        store: Path of the run store's database.

    Raises:
        PermissionError: Other users can read the file and could sign snapshots.
        ValueError: The file does not hold a key.

    Example:
        >>> executor = MontyExecutor(key=key_beside("runs.sqlite"))
    """
    path = Path(os.fspath(store) + ".key")
    if not path.exists():
        _make(path)
    if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise PermissionError(f"{path} can be read by other users, so that they could sign snapshots: chmod 600 {path}")
    return check_key(bytes.fromhex(path.read_text().strip()))


def _make(path: Path) -> None:
    # Written aside and linked into place: of two processes that start together one wins, and no reader sees half.
    aside = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
        try:
            path.hardlink_to(aside)
        except FileExistsError:
            return
    finally:
        aside.unlink()


def sign(key: bytes, content: bytes) -> bytes:
    """Compress ``content``, and put its signature before it."""
    body = zlib.compress(content, 1)
    return _MAGIC + hmac.digest(key, _MAGIC + body, "sha256") + body


def verify(key: bytes, data: bytes) -> bytes:
    """Return the content that :func:`sign` put in ``data``.

    Raises:
        SnapshotSignatureError: The data was not signed with this key, or was altered.
    """
    start = len(_MAGIC) + _SIGNATURE_BYTES
    if not data.startswith(_MAGIC) or len(data) <= start:
        raise SnapshotSignatureError("the data is not a complete snapshot of a code session")
    signature, body = data[len(_MAGIC) : start], data[start:]
    if not hmac.compare_digest(signature, hmac.digest(key, _MAGIC + body, "sha256")):
        raise SnapshotSignatureError(
            "the snapshot was altered, or was signed with another key; nothing of it was loaded. "
            "Give the executor the signing key: key=key_beside(<the store>)."
        )
    return zlib.decompressobj().decompress(body, _LONGEST)
