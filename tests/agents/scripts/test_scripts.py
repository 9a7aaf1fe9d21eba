"""Whatever happens, each next request shows one result for each call, in order, right behind the message that called.

A seed draws agents, several runs on one context, what the models say in them, what tools do and people decide.
``make soak`` plays many times as many.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.agents.scripts.playing import Broken, play
from tests.agents.scripts.script import SPARED, Act, ActKind, Agent, Feature, RunPlan, Script, Turn, draw
from tests.agents.scripts.sockets import play_over_sockets

SEEDS = range(160)
SEEDS_OVER_SOCKETS = range(160, 200)
BATCH = 20


def batches(seeds: range, tried: int) -> Callable[[Any], Any]:
    """Try a test with that many batches of the seeds, and in ``make soak`` with all of them."""
    some = [seeds[start : start + BATCH] for start in range(0, len(seeds), BATCH)]
    soak = pytest.mark.soak(only=True)
    return pytest.mark.parametrize(
        "seeds",
        [
            pytest.param(one, id=f"{one[0]}-{one[-1]}", marks=() if number < tried else soak)
            for number, one in enumerate(some)
        ],
    )


def each(play_one: Callable[[Script], Any], seeds: Iterable[int]) -> None:
    broken: list[str] = []
    for seed in seeds:
        try:
            play_one(draw(seed))
        except Broken as error:
            broken.append(str(error))
    assert not broken, "\n\n".join(broken)


@batches(SEEDS, tried=4)
def test_as_the_adapters_make_the_requests(seeds: range) -> None:
    each(play, seeds)


@batches(SEEDS_OVER_SOCKETS, tried=1)
def test_as_the_requests_arrive_over_sockets(seeds: range) -> None:
    each(play_over_sockets, seeds)


class TestTheScripts:
    def test_a_seed_gives_the_same_script_and_the_same_course(self) -> None:
        for seed in (0, 7, 23):
            assert draw(seed) == draw(seed)
            first, second = play(draw(seed)), play(draw(seed))
            assert [run.asked for run in first.runs] == [run.asked for run in second.runs]

    def test_they_have_everything_in_them(self) -> None:
        scripts = [draw(seed) for seed in SEEDS]
        kinds = Counter(act.kind for script in scripts for act in script.decisions.values())
        assert set(kinds) == set(ActKind.__args__)
        assert {len(script.agents) for script in scripts} == {1, 2, 3}
        assert {agent.kind for script in scripts for agent in script.agents} == {"function", "react", "codeact"}
        assert any(agent.can_handoff_to == () for script in scripts for agent in script.agents)
        turns = [turn for script in scripts for run in script.runs for turn in run.turns]
        assert {len(turn.acts) for turn in turns} == {0, 1, 2, 3, 4}
        assert any(not turn.text and not turn.acts for turn in turns)
        assert any(turn.fails for turn in turns)
        assert any(len({act.id for act in turn.acts}) < len(turn.acts) for turn in turns)
        assert any(turn.stray for turn in turns)
        assert any(run.max_iterations < 20 for script in scripts for run in script.runs)

    def test_they_take_many_courses(self) -> None:
        stages = [play(draw(seed)) for seed in range(40)]
        runs = [run for stage in stages for run in stage.runs]
        assert sum(run.cancelled for run in runs) >= 5
        assert sum(run.error is not None and not run.cancelled for run in runs) >= 1
        assert sum(len({asked.agent.name for asked in run.asked}) > 1 for run in runs) >= 10
        assert sum(len(run.asked) for run in runs) >= 200

    def test_what_is_spared_makes_no_other_difference(self) -> None:
        spared, all_of_it = draw(3, frozenset(Feature.__args__)), draw(3, frozenset())
        assert spared != all_of_it
        assert [agent.kind for agent in spared.agents] == [agent.kind for agent in all_of_it.agents]
        assert list(spared.decisions) == list(all_of_it.decisions)

    def test_who_breaks_a_rule_reads_how_to_play_the_seed_alone(self) -> None:
        script = script_of(ONE, RunPlan((Turn("a", acts=(look("b"),)), Turn("c", "Done."))))
        wrong = dataclasses.replace(script, seed=17, decisions={"b": Act("b", "denied")})
        with pytest.raises(Broken, match=r"(?s)^seed 17: .*python -m tests.agents.scripts.one 17$"):
            play(wrong)


def script_of(agents: Iterable[Agent], *runs: RunPlan) -> Script:
    acts = {act.label: act for run in runs for turn in run.turns for act in turn.acts}
    return Script(0, tuple(agents), runs, decisions=acts)


def look(label: str, call_id: str | None = None) -> Act:
    return Act(label, "good async", call_id or f"call_{label}")


ONE = [Agent("ann", "function")]
TEAM = [Agent("ann", "react"), Agent("ben", "function")]
LAST = RunPlan((Turn("last", "Done."),))

# The shortest script with each feature. Those of features that are SPARED break a rule today.
SHORTEST: dict[str, Script] = {
    "few steps, then another run": script_of(ONE, RunPlan((Turn("a", acts=(look("b"),)),), max_iterations=1), LAST),
    "few steps, then an answer": script_of(
        ONE, RunPlan((Turn("a", acts=(look("b"),)),), max_iterations=1, early_stopping="generate")
    ),
    "few steps of reasoning, then an answer": script_of(
        TEAM[:1], RunPlan((Turn("a", acts=(look("b"),)),), max_iterations=1, early_stopping="generate")
    ),
    "ids again": script_of(
        ONE, RunPlan((Turn("a", acts=(look("b", "x"),)), Turn("c", acts=(look("d", "x"),)), Turn("e", "Done.")))
    ),
    "near ids": script_of(
        ONE, RunPlan((Turn("a", acts=(look("b", "x"), look("c", "x_2"), look("d", "x"))), Turn("e", "Done.")))
    ),
    "stray calls in code": script_of(
        [Agent("ann", "codeact")], RunPlan((Turn("a", acts=(look("b"),), stray=True),)), LAST
    ),
    "handoffs in text": script_of(
        TEAM, RunPlan((Turn("a", acts=(Act("b", "handoff", to="ben"),)), Turn("c", "Done.")))
    ),
    "code in a small memory": dataclasses.replace(
        script_of(
            [Agent("ann", "codeact"), Agent("ben", "function")],
            RunPlan((Turn("a", acts=(look("b"), Act("c", "handoff", "call_c", to="ben"))), Turn("d", "Done."))),
        ),
        token_limit=30,
    ),
}


def feature_of(name: str) -> Feature:
    return next(one for one in Feature.__args__ if name.startswith(one))


def each_feature(*more: Any) -> list[Any]:
    spared = pytest.mark.xfail(raises=Broken, reason="SPARED in the scripts until it holds")
    return [
        pytest.param(*more, script, id=name, marks=[spared] if feature_of(name) in SPARED else [])
        for name, script in SHORTEST.items()
    ]


class TestEachFeature:
    @pytest.mark.parametrize("script", each_feature())
    def test_as_the_adapters_make_the_requests(self, script: Script) -> None:
        play(script)

    @pytest.mark.parametrize("script", each_feature())
    def test_as_the_requests_arrive_over_sockets(self, script: Script) -> None:
        # With each vendor in each place.
        for seed in range(6):
            play_over_sockets(dataclasses.replace(script, seed=seed))

    def test_each_has_its_script(self) -> None:
        assert {feature_of(name) for name in SHORTEST} == set(Feature.__args__)
