"""Real processes that work on several runs at a time in one SQLite file, and are killed, again and again.

Each process takes up what the one before it left. What the runs do outside stands in a file, which no kill undoes: a
line each, written before any record of it can be.
"""

import asyncio
import itertools
import logging
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from batonflow.agents import AgentHandler, AgentWorkflow, FunctionAgent, ToolCallResult
from batonflow.durable import lease as driving
from batonflow.durable.replay import ReplayedRun
from batonflow.durable.store_protocol import RunStore
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.llms.stream import ChatRequest
from batonflow.tools import tool
from batonflow.workflow_core import Context, Workflow, WorkflowHandler, step
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from tests.promises.crash.matrix import Reference, plain, reference, transcript
from tests.promises.crash.outside import FileLedger, Line, Process, lines_of
from tests.promises.crash.programs import PROGRAMS, Held, Noted, Program, Retries, Tried, Try
from tests.promises.crash.stores import SECONDS_TO_NOTICE, KeptStore, damages_of, is_noticed_later, store_in
from tests.promises.crash.world import Ledger

__all__ = ["LOAD", "KillTally", "effects_in", "kill_again_and_again", "record_faults", "soak_kills"]

AT_A_TIME = 8
KILLED_AFTER = (0.005, 0.4)
"""Seconds after a process says that it is at work."""


# --- the load ---------------------------------------------------------------------------------------------------------


class ShortlyHeld(Held):
    """For as long as can be waited for; the run ends long before, also on a busy machine."""

    seconds = 1.5


class QuickRetries(Retries):
    """With pauses that can be waited for."""

    @step(retry_policy=retry_policy(wait=wait_fixed(0.04), stop=stop_after_attempt(3)))
    async def attempt(self, ctx: Context, ev: Try) -> Tried:
        return await super().attempt(ctx, ev)


def finds(request: ChatRequest) -> Any:
    """What a model says goes by the conversation alone, so that another process hears the same."""
    if request.messages[-1].role == "user":
        return tool_call("search", topic="tides")
    return tool_call("handoff", to_agent="writer", reason="the facts are there")


def writes(request: ChatRequest) -> Any:
    told = [str(message.content) for message in request.messages if message.role == "tool"]
    if not any("published" in one for one in told):
        return tool_call("publish", title="Tides")
    return "It is out."


def make_team(store: RunStore, ledger: Ledger) -> Workflow:
    @tool(idempotent=True)
    async def search(ctx: Context, topic: str) -> str:
        """Look something up."""
        ledger.note("search", ctx.run_id)
        await asyncio.sleep(0.01)
        return f"about {topic}"

    @tool(requires_approval=True)
    async def publish(ctx: Context, title: str) -> str:
        """Publish an article."""
        ledger.note("publish", ctx.run_id)
        await asyncio.sleep(0.01)
        return f"published {title}"

    researcher = FunctionAgent(
        name="researcher",
        description="Finds facts.",
        tools=[search],
        can_handoff_to=["writer"],
        llm=ScriptedLLM([finds] * 10_000),
    )
    writer = FunctionAgent(name="writer", description="Writes.", tools=[publish], llm=ScriptedLLM([writes] * 10_000))
    return AgentWorkflow(agents=[researcher, writer], root_agent="researcher", store=store, timeout=None)


async def approves(_: Workflow, handler: WorkflowHandler) -> Any:
    assert isinstance(handler, AgentHandler)
    async for request in handler.approvals():
        request.approve()
    return str(await handler)


AGENTS = Program(
    "agents", make_team, approves, {"user_msg": "Write about tides."}, "It is out.", asks_before_repeating=True
)
UNDISTURBED = {program.name: program for program in [*PROGRAMS, AGENTS]}
"""As they run in virtual time, to be compared with."""
SHORTER = {"retries": QuickRetries, "held": ShortlyHeld}
LOAD = {name: replace(program, make=SHORTER.get(name, program.make)) for name, program in UNDISTURBED.items()}


# --- a process --------------------------------------------------------------------------------------------------------


async def work(folder: Path, life: int, *, last: bool) -> None:
    """Take up what is unfinished, and begin more and more runs; the last process only finishes what there is."""
    driving.HELD_SECONDS = ShortlyHeld.seconds / 20
    lines = lines_of(folder / "ledger")
    ledger = FileLedger(folder / "ledger", life)
    ended = {line.run_id for line in lines if line.kind == "ended"}
    unfinished = [line.run_id for line in lines if line.kind == "started" and line.run_id not in ended]
    store = store_in(folder)
    for run_id in unfinished:
        ledger.write("recorded", run_id, await recorded_effects(store, run_id))
    began = time.monotonic()
    workflows = {name: program.make(store, ledger) for name, program in LOAD.items()}
    taken: list[asyncio.Task[None]] = []
    for workflow in workflows.values():
        for handler in await workflow.recover():
            ledger.write("claimed", handler.run_id, None)
            taken.append(asyncio.create_task(note_first_sign(handler, ledger, began)))

    async def bring_to_its_end(run_id: str) -> Any:
        name = run_id.partition("-")[0]
        workflow, program = workflows[name], LOAD[name]
        return await program.drive(workflow, workflow.run(run_id=run_id, **program.start))

    async def work_on(run_ids: Iterator[str]) -> None:
        for run_id in run_ids:
            if run_id not in unfinished:
                ledger.write("started", run_id, None)
            try:
                ledger.write("ended", run_id, plain(await bring_to_its_end(run_id)))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told of this run
                ledger.write("failed", run_id, repr(error))

    new = (f"{name}-{life}-{number}" for number, name in enumerate(itertools.cycle(LOAD)))
    to_do = itertools.chain(unfinished, () if last else new)
    await asyncio.gather(*(work_on(to_do) for _ in range(AT_A_TIME)))
    for run_id in sorted(ended):  # these only give what is recorded
        ledger.write("again", run_id, plain(await bring_to_its_end(run_id)))
    await asyncio.gather(*taken)
    await store.aclose()


async def recorded_effects(store: KeptStore, run_id: str) -> list[str]:
    """What the records say was done outside."""
    return [] if await store.info(run_id) is None else effects_in(await store.replay(run_id))


def effects_in(run: ReplayedRun) -> list[str]:
    """What the records of a run say was done outside."""
    effects = [entry.event.effect for entry in run.events if isinstance(entry.event, Noted)]
    results = [entry.event for entry in run.events if isinstance(entry.event, ToolCallResult)]
    return effects + [result.tool_name for result in results if result.tool_name in ("search", "publish")]


async def note_first_sign(handler: WorkflowHandler, ledger: FileLedger, began: float) -> None:
    """When a run that was taken up is at work again, it streams something."""
    async for _ in handler.subscribe():
        ledger.write("taken", handler.run_id, time.monotonic() - began)
        break


# --- kills ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class KillTally:
    """What a number of kills gave.

    Attributes:
        kills: Processes that were killed at work.
        runs: Runs that came to their end.
        taken: How long each run that was taken up was waited for, in seconds.
        effects: Things done outside.
        repeated: Things that were in flight at a kill and done again.
        failures: What went wrong.
    """

    kills: int = 0
    runs: int = 0
    taken: list[float] = field(default_factory=list[float])
    effects: int = 0
    repeated: int = 0
    failures: list[str] = field(default_factory=list[str])

    def add(self, other: "KillTally") -> None:
        """Count another part of the same."""
        self.kills += other.kills
        self.runs += other.runs
        self.taken += other.taken
        self.effects += other.effects
        self.repeated += other.repeated
        self.failures += other.failures


def kill_again_and_again(folder: Path, kills: int, seed: int) -> KillTally:
    """Kill so many processes in a row, let the next one finish everything, and judge the runs.

    Args:
        folder: An empty one.
        kills: How many.
        seed: Of the moments.
    """
    dice, tally = random.Random(seed), KillTally()
    with ExitStack() as processes:

        def start(life: int) -> Process:
            return processes.enter_context(Process(__name__, folder, life, int(life == kills)))

        process = start(0)
        for life in range(kills):
            process.begin()
            standby = start(life + 1)
            if life == 0:
                _wait_until_at_work(folder / "ledger")
            time.sleep(dice.uniform(*KILLED_AFTER))
            if process.is_over:
                tally.failures.append(f"seed {seed}: process {life} ended by itself")
            process.kill()
            if is_noticed_later(folder):
                time.sleep(SECONDS_TO_NOTICE)
            process = standby
            tally.kills += 1
        process.begin()
        status = process.ended_by_itself()
    if status != 0:
        tally.failures.append(f"seed {seed}: the last process {'hung' if status is None else f'gave {status}'}")
    if said := (folder / "errors").read_text():
        tally.failures.append(f"seed {seed}: {said[-2000:]}")
    asyncio.run(_judge_all(folder, tally))
    return tally


def _wait_until_at_work(ledger: Path) -> None:
    """Wait until runs have begun and one of them has done something, for the next processes to take up."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        kinds = Counter(line.kind for line in lines_of(ledger))
        if kinds["started"] >= AT_A_TIME and kinds["effect"]:
            return
        time.sleep(0.005)


async def _judge_all(folder: Path, tally: KillTally) -> None:
    by_run: defaultdict[str, list[Line]] = defaultdict(list)
    for line in lines_of(folder / "ledger"):
        by_run[line.run_id].append(line)
        if line.kind == "taken":
            tally.taken.append(line.value)
    found = {name: await asyncio.to_thread(reference, program, 0) for name, program in UNDISTURBED.items()}
    store = store_in(folder)
    for run_id, lines in by_run.items():
        name = run_id.partition("-")[0]
        info = await store.info(run_id)
        if info is None or info.status != "completed":
            tally.failures.append(f"{run_id}: {'is not there' if info is None else f'is {info.status}'}")
            continue
        tally.runs += 1
        done = Counter(line.value for line in lines if line.kind == "effect")
        tally.effects += done.total()
        tally.repeated += (done - found[name].effects).total()
        faults = [*_faults(LOAD[name], found[name], lines), *record_faults(found[name], await store.replay(run_id))]
        asked = await _asked(store, run_id)
        if LOAD[name].asks_before_repeating and done["publish"] - 1 > asked:
            faults.append(f"published {done['publish']} times, and asked about {asked}")
        tally.failures += [f"{run_id}: {fault}" for fault in faults]
    await store.aclose()
    tally.failures += damages_of(folder)


def _faults(program: Program, found: Reference, lines: list[Line]) -> Iterator[str]:
    """What processes saw of a run."""
    results = [line.value for line in lines if line.kind in ("ended", "again")]
    if wrong := [result for result in results if result != plain(program.expected)]:
        yield f"gave {wrong[0]} instead of {program.expected}"
    yield from (f"failed with {line.value}" for line in lines if line.kind == "failed")
    done = Counter((line.life, line.value) for line in lines if line.kind == "effect")
    if missing := set(found.effects) - {effect for _, effect in done}:
        yield f"lost: {sorted(missing)}"
    if often := [one for one, times in done.items() if times > found.effects[one[1]]]:
        yield f"done more than once by one process: {often}"
    recorded: set[str] = set()
    for line in lines:
        if line.kind == "recorded":
            recorded.update(line.value)
        elif line.kind == "effect" and line.value in recorded:
            yield f"process {line.life} repeated {line.value!r}, which was recorded"


def record_faults(found: Reference, run: ReplayedRun) -> Iterator[str]:
    """What the records of a run say."""
    streamed = transcript(run)
    if streamed != found.transcript:
        twice, lost = streamed - found.transcript, found.transcript - streamed
        yield f"recorded otherwise: {dict(twice)} too many, {dict(lost)} missing"
    answers = [(one["path"], one["item"], one["key"]) for one in run.records if one["kind"] == "answered"]
    if len(answers) != len(set(answers)):
        yield "an answer was used twice"


async def _asked(store: KeptStore, run_id: str) -> int:
    run = await store.replay(run_id)
    return sum(getattr(entry.event, "reason", "") == "unknown_outcome" for entry in run.events)


def soak_kills(_: str, seeds: Sequence[int]) -> KillTally:
    """Kill one process for each seed, in a row; part of `make soak`."""
    logging.getLogger("batonflow").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        return kill_again_and_again(Path(folder), len(seeds), seeds[0])


def main(folder: str, life: str, last: str) -> None:
    """A process: begins when it is told to."""
    logging.getLogger("batonflow").setLevel(logging.CRITICAL)  # of effects that are held up
    sys.stdin.readline()
    print("at work", flush=True)
    asyncio.run(work(Path(folder), int(life), last=last == "1"))
