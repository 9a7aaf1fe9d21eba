"""The recording of the demo in the README shows what the demo prints today."""

from pathlib import Path
from xml.etree.ElementTree import fromstring

from tests.promises.programs.record_demo import COLUMN, MARGIN, PICTURE, ROW, drawn, texts
from tests.promises.programs.test_examples import settled

SVG = "{http://www.w3.org/2000/svg}"
EXPECTED = Path(__file__).with_name("expected") / "demo.txt"
QUESTION = {"There is no terminal to ask at: approved.": "Approve, deny or edit? [y/n/e] y"}


def lines_of(picture: str) -> list[str]:
    """The lines of a picture that are not empty."""
    rows: dict[int, str] = {}
    for element in fromstring(picture).iter(f"{SVG}text"):
        row = int((float(element.attrib["y"]) - MARGIN) / ROW)
        column = round((float(element.attrib["x"]) - MARGIN) / COLUMN)
        rows[row] = rows.get(row, "").ljust(column) + (element.text or "")
    return [rows[row] for row in sorted(rows)]


def test_the_picture_in_the_readme_is_of_the_present_demo() -> None:
    expected = [QUESTION.get(line, line) for line in EXPECTED.read_text().splitlines() if line.strip()]
    assert settled("\n".join(lines_of(PICTURE.read_text()))).splitlines() == expected


def test_pieces_keep_their_place_colour_and_time() -> None:
    output = [(0.0, "\033[96ma: \033[0mone"), (0.5, " two\n\n"), (1.25, "  <three>\n")]
    picture = drawn(list(texts(output)))
    assert lines_of(picture) == ["a: one two", "  <three>"]
    first, *_, last = fromstring(picture).iter(f"{SVG}text")
    assert first.attrib["style"] == "fill: #79c0ff"
    hidden = last.find(f"{SVG}set")
    assert hidden is not None
    assert hidden.attrib["dur"] == "1.25s"
