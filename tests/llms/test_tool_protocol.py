"""What models and tools say to one another, in the words of vendors."""

import pytest

from batonflow.llms.tool_protocol import wire_name

LONG = "library__" + "find_everything_about_" * 4


@pytest.mark.parametrize(
    ("name", "sent"),
    [("add", "add"), ("to-do", "to-do"), ("a b.c", "a_b_c"), ("höhe", "h_he"), ("", "_"), ("1a", "1a")],
)
def test_a_tools_name_has_letters_and_digits_only(name: str, sent: str) -> None:
    assert wire_name(name) == sent


def test_a_long_one_is_cut_and_stays_apart_from_others_that_begin_alike() -> None:
    one, other = wire_name(LONG + "a"), wire_name(LONG + "b")
    assert one != other
    assert {len(one), len(other)} == {64}
    assert LONG.startswith(one[:50])
    assert wire_name(one) == one
