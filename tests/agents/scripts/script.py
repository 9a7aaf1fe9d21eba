"""What models say and people decide in a few runs of an agent, drawn from a seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = ["SPARED", "Act", "ActKind", "Agent", "AgentKind", "Feature", "RunPlan", "Script", "Turn", "draw"]

AgentKind: TypeAlias = Literal["function", "react", "codeact"]
ActKind: TypeAlias = Literal[
    "good async", "good sync", "unknown tool", "bad arguments", "no json", "raises", "times out",
    "denied", "approved", "edited", "edited badly", "expires", "bad arguments to approve",
    "direct", "direct fails", "handoff",
]  # fmt: skip
"""What a call comes to."""

Feature: TypeAlias = Literal[
    "few steps", "ids again", "near ids", "stray calls in code", "handoffs in text", "code in a small memory",
]  # fmt: skip
SPARED: frozenset[Feature] = frozenset()
"""What the scripts do without, as it breaks a rule. ``test_scripts.py`` has a script for each feature."""

_KINDS: dict[ActKind, int] = {
    "good async": 6, "good sync": 2, "unknown tool": 2, "bad arguments": 2, "no json": 2, "raises": 2, "times out": 2,
    "denied": 2, "approved": 2, "edited": 1, "edited badly": 1, "expires": 1, "bad arguments to approve": 1,
    "direct": 1, "direct fails": 1, "handoff": 2,
}  # fmt: skip
_IDS = ("fresh", "fresh", "fresh", "same", "none", "again", "near")
NAMES = ("ann", "ben", "cai")


@dataclass(frozen=True)
class Act:
    """A call, or an action in text.

    Args:
        label: Its own, which the tool gets and gives back.
        kind: What it comes to.
        id: What the vendor calls it; None where it has no names for calls.
        pause: Seconds that the tool, or the person who is asked, takes.
        to: For a handoff: to whom.
    """

    label: str
    kind: ActKind
    id: str | None = None
    pause: float = 0.0
    to: str = ""


@dataclass(frozen=True)
class Turn:
    """An answer of a model, whatever kind of agent asks; without acts it is the last one.

    Args:
        label: Its own.
        text: What it says beside the calls.
        acts: What it calls.
        fails: Whether the vendor fails instead.
        snippet_fails: Whether code that is written here raises.
        stray: For an agent that writes code: whether it calls other tools natively, though it has been given none.
    """

    label: str
    text: str = ""
    acts: tuple[Act, ...] = ()
    fails: bool = False
    snippet_fails: bool = False
    stray: bool = False


@dataclass(frozen=True)
class RunPlan:
    """A run.

    Args:
        turns: The answers, in order; whoever asks once more gets a last answer.
        cancel: After how many events of the stream, and then after how many turns of the event loop, it is cancelled.
        max_iterations: How many answers there may be.
        early_stopping: What happens then.
        reload: Whether the context before it went through JSON.
    """

    turns: tuple[Turn, ...]
    cancel: tuple[int, int] | None = None
    max_iterations: int = 20
    early_stopping: Literal["force", "generate"] = "force"
    reload: bool = False


@dataclass(frozen=True)
class Agent:
    """An agent.

    Args:
        name: Its own.
        kind: Of which class.
        can_handoff_to: As in the class.
        streaming: As in the class.
    """

    name: str
    kind: AgentKind
    can_handoff_to: tuple[str, ...] | None = None
    streaming: bool = True


@dataclass(frozen=True)
class Script:
    """Everything that a seed decides.

    Args:
        seed: Gives the same script again.
        agents: One, or a team.
        runs: One after the other, on the same context.
        token_limit: Of the memory; None for the default.
        system_prompt: Of all agents.
    """

    seed: int
    agents: tuple[Agent, ...]
    runs: tuple[RunPlan, ...]
    token_limit: int | None = None
    system_prompt: str | None = None
    decisions: dict[str, Act] = field(default_factory=dict)


class _Draw:
    """What is drawn of a script; the dice fall alike whatever is spared."""

    def __init__(self, seed: int, spared: frozenset[Feature]) -> None:
        self.dice = random.Random(seed)
        self.spared = spared
        self.serial = 0

    def chance(self, part: float) -> bool:
        return self.dice.random() < part

    def label(self) -> str:
        self.serial += 1
        return f"tag{self.serial:03}"

    def agents(self) -> tuple[Agent, ...]:
        kinds: list[AgentKind] = ["function", "function", "react", "codeact"]
        if self.chance(0.45):
            return (Agent("ann", self.dice.choice(kinds), streaming=self.chance(0.8)),)
        names = NAMES[: self.dice.randint(2, 3)]
        found: list[Agent] = []
        for name in names:
            others = [one for one in names if one != name]
            allowed = None if self.chance(0.6) else tuple(self.dice.sample(others, self.dice.randint(0, len(others))))
            kind = self.dice.choice(kinds)
            if kind == "react" and "handoffs in text" in self.spared:
                allowed = ()
            found.append(Agent(name, kind, allowed, self.chance(0.8)))
        return tuple(found)

    def acts(self, names: Sequence[str], answer: str) -> tuple[Act, ...]:
        count = self.dice.choice((1, 1, 1, 2, 2, 3, 4))
        ids = self.dice.choice(_IDS)
        kinds = self.dice.choices(list(_KINDS), list(_KINDS.values()), k=count)
        if len(names) > 1 and self.chance(0.45):
            for place in self.dice.sample(range(count), min(count, self.dice.choice((1, 1, 2, 3)))):
                kinds[place] = "handoff"
        found: list[Act] = []
        for number, kind in enumerate(kinds):
            label = self.label()
            near = self.dice.choice(("call", "call_1", "call_2", "call:1", "call/1"))
            named = {"fresh": f"call_{label}", "same": "call_same", "again": f"call_{number}", "none": None}
            call_id = named.get(ids, near)
            if ids == "near" and "near ids" in self.spared:
                call_id = "call_same"
            if call_id is not None and "ids again" in self.spared:
                call_id = f"{answer}_{call_id}"
            pause = self.dice.choice((0.0, 0.0, 0.001, 0.002, 0.003))
            found.append(Act(label, kind, call_id, pause, self.dice.choice((*names, *names, *NAMES, "nobody"))))
        return tuple(found)

    def turns(self, names: Sequence[str]) -> tuple[Turn, ...]:
        found: list[Turn] = []
        for _ in range(self.dice.choice((0, 1, 1, 2, 2, 3, 4))):
            text = self.dice.choice(("", "", "One moment.", "Let me see."))
            stray = self.chance(0.06) and "stray calls in code" not in self.spared
            label = self.label()
            found.append(Turn(label, text, self.acts(names, label), snippet_fails=self.chance(0.2), stray=stray))
        if found and self.chance(0.05):
            found[-1] = Turn(self.label(), fails=True)
        elif self.chance(0.1):
            found.append(Turn(self.label()))
        found.append(Turn(label := self.label(), f"The answer is {label}."))
        return tuple(found)

    def run(self, names: Sequence[str], cancel: bool, goes_on: bool = False) -> RunPlan:
        turns = self.turns(names)
        limit = self.dice.randint(1, len(turns)) if self.chance(0.2) and not cancel else 20
        if goes_on or "few steps" in self.spared:
            # A run that goes on where another was cancelled has the limit of that.
            limit = 20
        return RunPlan(
            turns,
            cancel=(self.dice.randint(1, 30), self.dice.choice((0, 0, 1, 2, 3, 5, 8, 13))) if cancel else None,
            max_iterations=limit,
            early_stopping=self.dice.choice(("force", "generate")),
            reload=self.chance(0.2),
        )


def draw(seed: int, spared: frozenset[Feature] = SPARED) -> Script:
    """The script of a seed, without what is spared."""
    given = _Draw(seed, spared)
    agents = given.agents()
    names = [agent.name for agent in agents]
    cancelled = [given.run(names, cancel=True)] if given.chance(0.35) else []
    goes_on = given.run(names, cancel=False, goes_on=bool(cancelled))
    runs = (*cancelled, goes_on, given.run(names, cancel=False))
    limit = given.dice.choice((60, 150, 400)) if given.chance(0.15) else None
    if "code in a small memory" in spared and any(agent.kind == "codeact" for agent in agents):
        limit = None
    return Script(
        seed,
        agents,
        runs,
        token_limit=limit,
        system_prompt="Be brief." if given.chance(0.4) else None,
        decisions={act.label: act for run in runs for turn in run.turns for act in turn.acts},
    )
