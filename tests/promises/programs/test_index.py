"""The index of the examples names each program and each application."""

import re

from tests.promises.programs.running import ROOT

EXAMPLES = ROOT / "examples"
SHARED = {"demo_team.py", "demo_terminal.py", "inventory.py", "models.py", "tides.py"}
"""Modules of other programs."""


def test_every_example_is_in_the_index() -> None:
    named = set(re.findall(r"\]\(([^)]+)\)", (EXAMPLES / "README.md").read_text()))
    programs = {path.name for path in EXAMPLES.glob("*.py")} - SHARED
    assert named == programs | {f"apps/{path.parent.name}/README.md" for path in EXAMPLES.glob("apps/*/README.md")}
