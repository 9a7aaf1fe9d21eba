"""Compression of records, whose words are mostly known before.

The first byte of a stored record identifies its form. A record that starts like another form is always compressed.
"""

import zlib

from batonflow.durable.stores.record_words import RECORD_WORDS

__all__ = ["PACKED_FROM", "PACKED_TEXT_FROM", "packed", "unpacked"]

PACKED_FROM = 256
"""Bytes of a record from which on compressing it is worth the time."""

PACKED_TEXT_FROM = 4096
"""The same for texts of people and models, whose words are not known before."""

_LARGE = 8192
_NEWEST = max(RECORD_WORDS)
# Records of earlier versions are compressed without known words.
_EARLIER = zlib.compress(b"")[:1]
_FORMS = {_EARLIER, *(bytes([number]) for number in RECORD_WORDS)}


def packed(data: bytes, least: int = PACKED_FROM) -> bytes:
    """Return the stored form of ``data``, which is compressed from ``least`` bytes on."""
    ambiguous = data[:1] in _FORMS
    if len(data) < least and not ambiguous:
        return data
    # A small window is made in a fifth of the time.
    window = -13 if len(data) < _LARGE else -15
    compressor = zlib.compressobj(1, zlib.DEFLATED, window, zdict=RECORD_WORDS[_NEWEST])
    small = bytes([_NEWEST]) + compressor.compress(data) + compressor.flush()
    return small if ambiguous or len(small) < len(data) else data


def unpacked(stored: bytes) -> bytes:
    """Return the data for the stored form."""
    form = stored[:1]
    if form not in _FORMS:
        return stored
    if form == _EARLIER:
        return zlib.decompress(stored)
    return zlib.decompressobj(-15, zdict=RECORD_WORDS[stored[0]]).decompress(stored[1:])
