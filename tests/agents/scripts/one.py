"""Plays the script of one seed and shows both: ``python -m tests.agents.scripts.one 17 [--sockets] [--everything]``."""

import argparse
import sys
from collections.abc import Sequence

from tests.agents.scripts.playing import Broken, play
from tests.agents.scripts.script import SPARED, Script, draw
from tests.agents.scripts.sockets import play_over_sockets

__all__ = ["main"]


def _show(script: Script) -> None:
    for agent in script.agents:
        print(agent)
    print(f"token_limit={script.token_limit}, system_prompt={script.system_prompt!r}")
    for number, run in enumerate(script.runs, 1):
        print(
            f"run {number}: cancel={run.cancel}, max_iterations={run.max_iterations}, "
            f"early_stopping={run.early_stopping}, reload={run.reload}"
        )
        for turn in run.turns:
            marks = [name for name in ("fails", "snippet_fails", "stray") if getattr(turn, name)]
            print(f"  {turn.label} {turn.text!r} {' '.join(marks)}")
            for act in turn.acts:
                to = f" to {act.to}" if act.kind == "handoff" else ""
                print(f"    {act.label}: {act.kind}{to}, id={act.id!r}, pause={act.pause}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Play a seed; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--sockets", action="store_true", help="with the vendors' SDKs, over sockets")
    parser.add_argument("--everything", action="store_true", help="also with what the tests spare")
    options = parser.parse_args(arguments)
    script = draw(options.seed, frozenset() if options.everything else SPARED)
    _show(script)
    try:
        play_over_sockets(script) if options.sockets else play(script)
    except Broken as error:
        print(error, *error.problems[1:], sep="\n* ")
        return 1
    print("nothing wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
