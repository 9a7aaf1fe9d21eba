"""Large records are stored compressed, and every record comes back as it was."""

from hypothesis import given
from hypothesis import strategies as st

from batonflow.durable.stores.packing import PACKED_FROM, packed, unpacked

_PIECES = st.sampled_from([b"x", b"x\x01", b"{", b'{"a": 1}', b"", bytes(range(256))])


@given(st.binary(max_size=100) | st.builds(lambda piece, times: piece * times, _PIECES, st.integers(0, 9000)))
def test_what_is_packed_comes_back(data: bytes) -> None:
    stored = packed(data)
    assert unpacked(stored) == data
    assert len(stored) <= max(len(data), 20) + 20


def test_only_what_is_large_is_compressed() -> None:
    small, large = b"{" + b" " * (PACKED_FROM - 2), b"{" + b" " * PACKED_FROM
    assert packed(small) == small
    assert len(packed(large)) < len(large) / 10
