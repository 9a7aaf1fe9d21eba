"""Playing a script in a virtual time, in which it takes the same course every time."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

from batonflow.llms import LLM
from batonflow.testing import run_seeded
from tests.agents.scripts.judging import judge
from tests.agents.scripts.script import Agent, Script
from tests.agents.scripts.stage import CLASSES, Classes, ScriptModel, Stage

__all__ = ["Broken", "play"]

_WATCHDOG = 600.0


class Broken(AssertionError):
    """A script that was played and came out wrong; the text says what, and how to play it alone."""

    def __init__(self, script: Script, problems: Sequence[str], how: str = "") -> None:
        more = f"\n(and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(
            f"seed {script.seed}: {problems[0]}{more}\n"
            f"This seed alone, with its script: python -m tests.agents.scripts.one {script.seed}{how}"
        )
        self.problems = list(problems)


def play(
    script: Script, classes: Classes = CLASSES, model: Callable[[Stage], Callable[[Agent], LLM]] = ScriptModel.on
) -> Stage:
    """Play a script in virtual time; the same script takes the same course every time.

    Args:
        script: What to play.
        classes: The classes of the agents, by kind.
        model: Makes, for a stage, what makes the models of its agents.

    Raises:
        Broken: Something came out wrong.
    """
    stage = Stage(script, classes)

    async def played() -> None:
        async with asyncio.timeout(_WATCHDOG):
            await stage.play(model(stage))

    def begin(_: Random) -> Coroutine[Any, Any, None]:
        return played()

    try:
        found = run_seeded(begin, script.seed)
    except TimeoutError:
        stage.problem(f"run {len(stage.runs)} hangs")
    except Exception as error:
        error.add_note(f"in the script of seed {script.seed}")
        raise
    else:
        if found.tasks_left:
            stage.problem(f"tasks are left: {found.tasks_left}")
    problems = [*stage.problems, *judge(stage)]
    if problems:
        raise Broken(script, problems)
    return stage
