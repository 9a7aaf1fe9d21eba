"""Large records are kept compressed: a conversation is in many of them, again and again.

A record that begins like the output of zlib is always compressed, so that what is stored tells by its first byte.
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
    """The data that ``packed`` was given."""
    return zlib.decompress(stored) if stored[:1] == _MARK else stored
