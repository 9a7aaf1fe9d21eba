"""Crashes a program at chosen moments, lets it go on, and judges what came of it."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from batonflow.agents.events import AgentStream
from batonflow.durable.replay import ReplayedRun
from batonflow.durable.stores.memory import MemoryStore
from batonflow.workflow_core import Workflow, WorkflowHandler
from batonflow.workflow_core.events import StreamResetEvent
from tests.promises.crash.programs import Noted, Program
from tests.promises.crash.world import Ledger, Life, Moment, MortalStore, WholeStore, live, run_now

__all__ = [
    "Outcome", "Reference", "crashed", "forked", "histories", "moments", "pairs", "plain", "reference", "transcript",
]  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """What a run gives that nothing disturbs.

    Attributes:
        turns: Turns of its loop.
        groups: Groups of its commits.
        effects: What it does outside, each once.
        transcript: What it streams, without order and numbers.
    """

    turns: int
    groups: int
    effects: Counter[str]
    transcript: Counter[str]


@dataclass
class Outcome:
    """What came of a run that was crashed.

    Attributes:
        faults: What is wrong with it; none when all is well.
        kills: How many processes ended before the run.
    """

    faults: list[str] = field(default_factory=list[str])
    kills: int = 0


def reference(program: Program, seed: int) -> Reference:
    """Run a program without a crash."""
    ledger, store = Ledger(), MortalStore(Moment())
    life = _live(program, ledger, store, seed)
    assert not life.ended
    assert plain(life.result) == plain(program.expected), f"{program.name} gives {life.result} without any crash"
    return Reference(life.turns, life.groups, Counter(ledger.effects), transcript(_replay(store)))


def moments(found: Reference) -> Iterator[Moment]:
    """Every turn of the loop, and every group of commits, before and after it is written."""
    for turn in range(1, found.turns + 1):
        yield Moment(turn=turn)
    for group in range(1, found.groups + 1):
        yield Moment(group=group)
        yield Moment(group=group, written=True)


def pairs(found: Reference, seed: int, count: int) -> Iterator[list[Moment]]:
    """Two moments each, the second in the process that takes the run up again."""
    dice = random.Random(seed)
    every = list(moments(found))
    for _ in range(count):
        yield [dice.choice(every), dice.choice(every)]


def crashed(
    program: Program, found: Reference, at: list[Moment], seed: int, kinds: Sequence[type[MortalStore]] = (MortalStore,)
) -> Outcome:
    """Crash a program at one moment of each process, and judge the run that comes to its end.

    Args:
        program: The program.
        found: What it gives without a crash.
        at: A moment for each process but the last.
        seed: The seed of the first process.
        kinds: The stores of the processes, by turns.
    """
    outcome, ledger = Outcome(), Ledger()
    store: MortalStore | None = None
    for number, moment in enumerate([*at, Moment()]):
        store = kinds[number % len(kinds)](moment, store)
        before = _committed_effects(store)
        done = len(ledger.effects)
        life = _live(program, ledger, store, seed + number)
        repeated = before & set(ledger.effects[done:])
        if repeated:
            outcome.faults.append(f"repeated although it was recorded: {sorted(repeated)}")
        if not life.ended:
            break
        outcome.kills += 1
    assert store is not None
    _judge(program, found, store, ledger, life, outcome)
    return outcome


def histories(program: Program, moment: Moment, seed: int) -> list[list[dict[str, Any]]]:
    """Return the records of a run that crashes once, written with parts and whole.

    Only records with parts have the messages, the answers and the tools of calls of models.
    """
    found: list[list[dict[str, Any]]] = []
    for kind in (MortalStore, WholeStore):
        ledger, first = Ledger(), kind(moment)
        _live(program, ledger, first, seed)
        store = kind(Moment(), first)
        _live(program, ledger, store, seed + 1)
        records = run_now(store.history("r"))
        for call in [call for record in records for call in record.get("calls", ())]:
            for name in ("messages", "answer", "tool_specs"):
                call.pop(name, None)
        found.append(records)
    return found


def forked(program: Program, seed: int) -> Iterator[tuple[int, str]]:
    """Let a run branch off after every commit of one that is over; gives the commits at which that goes wrong."""
    store = MortalStore(Moment())
    _live(program, Ledger(), store, seed)
    info = run_now(store.info("r"))
    for at in range(1, info.seq):
        branch = MortalStore(Moment(), store)
        life = _live(program, Ledger(), branch, seed, lambda workflow: workflow.fork("r", at, new_id=f"r{at}"))  # noqa: B023
        if life.ended or plain(life.result) != plain(program.expected):
            yield at, f"gave {life.result} instead of {program.expected}"


def _judge(
    program: Program, found: Reference, store: MemoryStore, ledger: Ledger, life: Life, outcome: Outcome
) -> None:
    if life.ended:
        outcome.faults.append("it never came to its end")
        return
    if plain(life.result) != plain(program.expected):
        outcome.faults.append(f"gave {life.result} instead of {program.expected}")
    done = Counter(ledger.effects)
    if missing := set(found.effects) - set(done):
        outcome.faults.append(f"lost: {sorted(missing)}")
    if often := [effect for effect, times in done.items() if times > found.effects[effect] + outcome.kills]:
        outcome.faults.append(f"done more often than there were crashes: {often}")
    run = _replay(store)
    if run.status != "completed" or plain(run.result) != plain(life.result):
        outcome.faults.append(f"the store says {run.status}, and the run gave {life.result}")
    answers = [(one["path"], one["item"], one["key"]) for one in run.records if one["kind"] == "answered"]
    if len(answers) != len(set(answers)):
        outcome.faults.append("an answer was used twice")
    asked = sum(getattr(entry.event, "reason", "") == "unknown_outcome" for entry in run.events)
    again = sum(done.values()) - sum(found.effects.values())
    if program.asks_before_repeating and again > asked:
        outcome.faults.append(f"did {again} things again, and asked about {asked}")
    streamed = transcript(run)
    if streamed != found.transcript:
        twice, lost = streamed - found.transcript, found.transcript - streamed
        outcome.faults.append(f"recorded otherwise: {dict(twice)} too many, {dict(lost)} missing")


def _live(
    program: Program,
    ledger: Ledger,
    store: MortalStore,
    seed: int,
    begin: Callable[[Workflow], WorkflowHandler] | None = None,
) -> Life:
    return live(
        program.make,
        program.drive,
        ledger,
        store,
        seed=seed,
        begin=begin or (lambda workflow: workflow.run(run_id="r", **program.start)),
        real_time=program.real_time,
    )


def _replay(store: MemoryStore) -> ReplayedRun:
    return run_now(store.replay("r"))


def transcript(run: ReplayedRun) -> Counter[str]:
    """What was streamed. Pieces of answers may be cut elsewhere, and calls in code are named by chance."""
    kept = [entry for entry in run.events if not isinstance(entry.event, AgentStream | StreamResetEvent)]
    # What a crash alone makes necessary to ask.
    kept = [entry for entry in kept if getattr(entry.event, "reason", "") != "unknown_outcome"]
    return Counter(f"{entry.path} {entry.step} {type(entry.event).__name__} {_text(entry.event)}" for entry in kept)


def _text(event: Any) -> str:
    return event.model_dump_json() if event.__class__.__module__.startswith("tests.promises.crash") else ""


def _committed_effects(store: MemoryStore) -> set[str]:
    """What the records say was done outside."""
    if run_now(store.info("r")) is None:
        return set()
    return {entry.event.effect for entry in _replay(store).events if isinstance(entry.event, Noted)}


def plain(value: Any) -> Any:
    """A result as it looks when it was written and read."""
    return json.loads(json.dumps(value, default=str))
