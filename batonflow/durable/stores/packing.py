"""Compression of large records, because many records of a run contain the same conversation.

A record that starts like the output of zlib is always compressed, so that the first byte identifies the form.
"""

import zlib

__all__ = ["packed", "unpacked"]

PACKED_FROM = 4096
"""Bytes of a record from which on compressing it is worth the time."""

_MARK = zlib.compress(b"")[:1]


def packed(data: bytes) -> bytes:
    """Return the stored form of ``data``."""
    ambiguous = data[:1] == _MARK
    if len(data) < PACKED_FROM and not ambiguous:
        return data
    small = zlib.compress(data, 1)
    return small if ambiguous or len(small) < len(data) else data


def unpacked(stored: bytes) -> bytes:
    """Return the data for the stored form."""
    return zlib.decompress(stored) if stored[:1] == _MARK else stored
