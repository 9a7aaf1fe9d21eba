"""A team that is interrupted while people are asked comes to the same end, and every tool runs once.

What the processes do is told in :mod:`tests.agents.interrupting`.
"""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.agents.interrupting import DECISIONS, EXITS, Story, some_stories, stories
from tests.promises.programs.running import ROOT

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="each leg of a story is a forked process"),
    pytest.mark.soak,
    pytest.mark.timeout(180),
]

Played = Mapping[Story, tuple[dict[str, Any], list[str]]]

DONE = {
    ("publish", "approve"): "published Tides",
    ("publish", "edit"): "published Tides, edited",
    ("mail", "approve"): "mailed Ann: It is out.",
    ("mail", "edit"): "mailed Bob: Read it.",
}


FIRST = ("publish", "mail")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, soaks: bool) -> Played:
    """What came of each story: the outcome, and the lines of the ledger."""
    folder = tmp_path_factory.mktemp("stories")
    command = [sys.executable, "-W", "error", "-m", "tests.agents.interrupting", str(folder)]
    if soaks:
        command.append("all")
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    found: dict[Story, tuple[dict[str, Any], list[str]]] = {}
    for story in stories() if soaks else some_stories():
        assert json.loads((folder / story.name / "exits").read_text()) == list(story.exits)
        outcome = json.loads((folder / story.name / "outcome.json").read_text())
        found[story] = outcome, (folder / story.name / "ledger").read_text().splitlines()
    return found


def test_there_are_stories_of_every_order_decision_and_exit(played: Played) -> None:
    orders = {(story.first, story.publish, story.mail) for story in played if not story.exits}
    assert orders == set(itertools.product(FIRST, DECISIONS, DECISIONS))
    assert {(story.exits, story.publish) for story in played} == set(itertools.product(EXITS, DECISIONS))
    assert {(story.exits, story.mail) for story in played} == set(itertools.product(EXITS, DECISIONS))
    assert {(story.exits, story.first) for story in played} == set(itertools.product(EXITS, FIRST))
    assert all("failed" not in outcome for outcome, _ in played.values())


@pytest.mark.parametrize("publish", DECISIONS)
@pytest.mark.parametrize("mail", DECISIONS)
class TestEveryStory:
    def test_ends_like_the_one_without_interruptions(self, played: Played, publish: str, mail: str) -> None:
        expected, _ = played[Story("publish", publish, mail)]
        assert [message["role"] for message in expected["memory"]].count("tool") == 5
        for story, (outcome, _) in played.items():
            if (story.publish, story.mail) == (publish, mail):
                assert outcome == expected, story

    def test_runs_each_tool_once_and_only_if_a_person_agreed(self, played: Played, publish: str, mail: str) -> None:
        said = {"publish": publish, "mail": mail}
        for story, (_, ledger) in played.items():
            if (story.publish, story.mail) == (publish, mail):
                done = [DONE[name, said[name]] for name in story.order if said[name] != "deny"]
                assert ledger == ["searched tides", *done], story
