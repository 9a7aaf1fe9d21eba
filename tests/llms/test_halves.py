"""Characters that a server has cut in two, in the pieces of an answer."""

from collections.abc import Iterable

import pytest

from batonflow.llms.blocks import ThinkingBlock
from batonflow.llms.sdk_body import SurrogateJoiner
from batonflow.llms.stream import BlockDone, Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta

HIGH, LOW, WAVE, NONE = "\ud83c", "\udf0a", "\U0001f30a", "\ufffd"


def through(*events: StreamEvent) -> Iterable[StreamEvent]:
    halves = SurrogateJoiner()
    for event in events:
        yield from halves.joined(event) if halves.affects(event) else [event]


@pytest.mark.parametrize("text", ["", "plain", f"Zw\u00f6lf {WAVE}"])
def test_whole_characters_are_no_concern(text: str) -> None:
    events: list[StreamEvent] = [
        TextDelta(text=text),
        ThinkingDelta(text=text),
        ToolCallDelta(index=0, id="c", name="add", arguments=text),
        BlockDone(block=ThinkingBlock(content=text)),
        Finish(),
    ]
    assert not any(map(SurrogateJoiner().affects, events))


def test_a_half_waits_for_the_other() -> None:
    told = through(TextDelta(text=f"a {HIGH}", raw=1), TextDelta(text=f"{LOW} b", raw=2), Finish())
    assert list(told) == [TextDelta(text="a ", raw=1), TextDelta(text=f"{WAVE} b", raw=2), Finish()]


def test_a_piece_that_is_nothing_but_a_half_is_not_told() -> None:
    assert list(through(TextDelta(text=HIGH), TextDelta(text=LOW))) == [TextDelta(text=WAVE)]


def test_a_half_that_stays_alone_is_replaced_where_it_was() -> None:
    events = TextDelta(text=HIGH), ToolCallDelta(index=0, name="add"), Finish()
    assert list(through(*events)) == [TextDelta(text=NONE), ToolCallDelta(index=0, name="add"), Finish()]
    assert list(through(TextDelta(text=HIGH), TextDelta(text="a"))) == [TextDelta(text=f"{NONE}a")]
    assert list(through(TextDelta(text=f"{LOW}a"))) == [TextDelta(text=f"{NONE}a")]


def test_texts_that_the_vendor_keeps_apart_are_not_joined() -> None:
    told = list(through(TextDelta(text=HIGH, part=0), TextDelta(text=LOW, part=1)))
    assert told == [TextDelta(text=NONE, part=0), TextDelta(text=NONE, part=1)]


def test_what_a_piece_of_a_call_says_beside_its_arguments_is_not_held_back() -> None:
    first = ToolCallDelta(index=1, id="c", name="add", arguments=HIGH)
    told = list(through(first, ToolCallDelta(index=1, arguments=f'{LOW}"}}')))
    assert told == [ToolCallDelta(index=1, id="c", name="add"), ToolCallDelta(index=1, arguments=f'{WAVE}"}}')]
    alone = list(through(first, Finish()))
    assert alone[0] == told[0]
    assert [one.arguments for one in alone if isinstance(one, ToolCallDelta)] == ["", NONE]


def test_a_thought_that_was_put_together_of_pieces_is_made_whole() -> None:
    told = list(through(BlockDone(block=ThinkingBlock(content=f"{HIGH}{LOW} {HIGH}"))))
    assert told == [BlockDone(block=ThinkingBlock(content=f"{WAVE} {NONE}"))]
