"""Large records are stored compressed, and every record comes back as it was."""

import hashlib
import zlib

from hypothesis import given
from hypothesis import strategies as st

from batonflow.agents import FunctionAgent
from batonflow.durable.stores.packing import PACKED_FROM, packed, unpacked
from batonflow.durable.stores.record_words import RECORD_WORDS
from batonflow.llms import ScriptedLLM
from batonflow.values.serializers import as_json

_PIECES = st.sampled_from([b"x", b"x\x01", b"\x01", b"{", b'{"a": 1}', b"", bytes(range(256))])


@given(st.binary(max_size=100) | st.builds(lambda piece, times: piece * times, _PIECES, st.integers(0, 9000)))
def test_what_is_packed_comes_back(data: bytes) -> None:
    stored = packed(data)
    assert unpacked(stored) == data
    assert len(stored) <= max(len(data), 20) + 20


def test_only_what_is_large_is_compressed() -> None:
    small, large = b"{" + b" " * (PACKED_FROM - 2), b"{" + b" " * PACKED_FROM
    assert packed(small) == small
    assert len(packed(large)) < len(large) / 10


def test_records_of_earlier_versions_are_read() -> None:
    assert unpacked(zlib.compress(b"earlier", 1)) == b"earlier"


def test_known_words_do_not_change_because_stored_records_need_them() -> None:
    digests = {number: hashlib.sha256(words).hexdigest()[:16] for number, words in RECORD_WORDS.items()}
    assert digests == {1: "6044c633c5beaa35"}


async def test_records_of_an_agent_take_a_third_of_their_size() -> None:
    agent = FunctionAgent(name="Agent", llm=ScriptedLLM(["It is high at noon."]), store="memory:")
    await agent.run("When is high tide?", run_id="r")
    bodies = [as_json(record) for record in await agent.run_store.history("r")]
    large = [body for body in bodies if len(body) >= PACKED_FROM]
    assert sum(map(len, map(packed, large))) < sum(map(len, large)) / 3
