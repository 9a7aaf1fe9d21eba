"""What the commands that measure have in common: their arguments, and tables that go onto a page."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from run import git, heading, write

__all__ = ["Table", "report"]

Table = list[str]
"""Lines of Markdown."""


def report(
    description: str | None,
    marks: tuple[str, str],
    measure: Callable[[argparse.Namespace], Sequence[Table]],
    *,
    peers: Sequence[str] = (),
    seconds: float | None = None,
    add_options: Callable[[argparse.ArgumentParser], object] = lambda _: None,
) -> int:
    """Measure, print the tables, and put them between two marks of a page when asked to.

    Args:
        description: For --help.
        marks: Around the place of the tables.
        measure: Makes them of the arguments.
        peers: Distributions that an interpreter given as --peer-python has.
        seconds: What --seconds is by default; None for a command without.
        add_options: Adds further options.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if peers:
        parser.add_argument("--peer-python", help="an interpreter that has the peers")
    if seconds is not None:
        parser.add_argument("--seconds", type=float, default=seconds, help="how long the thousand readers read")
    add_options(parser)
    parser.add_argument("--write", type=Path, help="put the figures into this page")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    dirty = bool(git("status", "--porcelain"))
    if dirty and not options.allow_dirty:
        print("The tree has uncommitted changes: commit them first, or pass --allow-dirty.", file=sys.stderr)
        return 2
    peer = options.peer_python if peers else None
    title = heading(peer, dirty, list(peers) if peer else [])
    text = "\n\n".join("\n".join(part) for part in [[title], *measure(options)])
    print(f"\n{text}\n")
    if options.write:
        write(options.write, text, marks)
    return 0
