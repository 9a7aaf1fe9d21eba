"""Record the demo at a terminal as an animated picture (`make recording`).

The picture is an SVG file: a text element for each piece of output, shown at its time. The recording starts again at
its end. Viewers without animation show all of it.
"""

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tests.promises.programs.running import ROOT
from tests.promises.programs.terminal import DEMO, demo

PICTURE = ROOT / "docs" / "images" / "demo.svg"
COLUMN, ROW, MARGIN = 7.25, 17, 16
READING = 1.2
"""Seconds before the question is answered, and the longest pause of the recording."""
PAUSE = 5.0
"""Seconds that the end of the recording stands."""
COLOURS = {"91": "#ff7b72", "92": "#7ee787", "93": "#e3b341", "96": "#79c0ff"}
PART = re.compile(r"\033\[(\d+)m|(\n)|([^\033\n]+)")


@dataclass
class Text:
    """A piece of output: seconds since the start, its place in rows and columns, and its colour."""

    at: float
    row: int
    column: int
    text: str
    colour: str | None


def texts(output: Iterable[tuple[float, str]]) -> Iterator[Text]:
    """Lay out what a terminal received, in pieces with their times."""
    row = column = 0
    colour = None
    for at, piece in output:
        for code, newline, text in PART.findall(piece):
            if code:
                colour = COLOURS.get(code)
            elif newline:
                row, column = row + 1, 0
            else:
                if text.strip():
                    yield Text(at, row, column + len(text) - len(text.lstrip()), text.strip(), colour)
                column += len(text)


def drawn(pieces: list[Text]) -> str:
    """Draw pieces of output as an animated picture."""
    seconds = max(piece.at for piece in pieces) + PAUSE
    width = max(piece.column + len(piece.text) for piece in pieces) * COLUMN + 2 * MARGIN
    height = (max(piece.row for piece in pieces) + 1) * ROW + 2 * MARGIN
    font = "12px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}">',
        "<title>A team is killed at work and carries on in another process</title>",
        f"<style>text {{ font: {font}; fill: #e6edf3; white-space: pre }}",
        "@media (prefers-reduced-motion) { text { visibility: visible !important } }</style>",
        '<rect width="100%" height="100%" rx="8" fill="#0d1117">',
        f'<animate id="loop" attributeName="x" from="0" to="0" dur="{seconds:.2f}s" begin="0s;loop.end"/></rect>',
    ]
    for piece in pieces:
        x, y = MARGIN + piece.column * COLUMN, MARGIN + (piece.row + 0.75) * ROW
        fill = f' style="fill: {piece.colour}"' if piece.colour else ""
        lines.append(
            f'<text x="{x:g}" y="{y:g}" textLength="{len(piece.text) * COLUMN:g}"{fill}>{escape(piece.text)}'
            f'<set attributeName="visibility" to="hidden" begin="loop.begin" dur="{max(piece.at, 0.01):.2f}s"/></text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


def recorded() -> Iterator[tuple[float, str]]:
    """Run the demo at a terminal, agree to its question, and yield its output with the times."""
    with demo(ROOT, str(DEMO), NO_COLOR="") as terminal:
        time.sleep(READING)
        terminal.types("y\n")
        terminal.end()
    at, before = 0.0, terminal.pieces[0][0]
    for moment, piece in terminal.pieces:
        at, before = at + min(moment - before, READING), moment  # processes start at once in the recording
        yield at, piece


if __name__ == "__main__":
    PICTURE.write_text(drawn(list(texts(recorded()))))
    print(f"written: {PICTURE.relative_to(ROOT)}")
