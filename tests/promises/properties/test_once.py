"""Whatever a step does inside and outside ``ctx.once``: interrupted at every pause, it leaves what it leaves otherwise.

A program is a list of acts of one step: writes, sends, stream events, collects, waits, pauses that are no waits, and
calls of ``ctx.once``, inside one another, beside one another, and failing at first.
"""

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowHandler,
    step,
)

TURNS = 120  # of the event loop, enough for a program to come to its next pause


class Shown(Event):
    label: str


class Sent(Event):
    label: str


class Ask(InputRequiredEvent):
    label: str


class Reply(HumanResponseEvent):
    label: str


class Failed(Exception):
    pass


class Player(Workflow):
    """Plays a program; ``gates`` are the pauses that are no waits, opened from outside."""

    def __init__(self, program: list[Any], gates: dict[str, asyncio.Event]) -> None:
        super().__init__(timeout=None)
        self.program = program
        self.gates = gates

    @step
    async def play(self, ctx: Context, ev: StartEvent) -> Sent | StopEvent:
        await self.acts(ctx, self.program, "top")
        return StopEvent(result="played")

    @step
    async def take(self, ctx: Context, ev: Sent) -> None:
        await _count(ctx, f"{ev.label} was sent")

    async def acts(self, ctx: Context, program: list[Any], where: str) -> str:
        for number, act in enumerate(program):
            await self.act(ctx, act, f"{where}-{number}")
        return where

    async def act(self, ctx: Context, act: Any, label: str) -> None:
        match act:
            case "write":
                await _count(ctx, f"{label} was written")
            case "edit":
                async with ctx.store.edit_state() as state:
                    state[f"{label} was edited"] = state.get(f"{label} was edited", 0) + 1
            case "send":
                ctx.send_event(Sent(label=label))
            case "show":
                ctx.write_event_to_stream(Shown(label=label))
            case "turn":
                await asyncio.sleep(0)
            case "collect":
                found = ctx.collect_events(Shown(label=label), [Shown], label)
                assert found is not None
                ctx.write_event_to_stream(Shown(label=f"{found[0].label} of {label}"))
            case "wait":
                answer = await ctx.wait_for_event(
                    Reply, waiter_event=Ask(label=label), requirements={"label": label}, timeout=None
                )
                assert answer.label == label
            case "gate":
                if label not in self.gates:
                    self.gates[label] = asyncio.Event()
                await self.gates[label].wait()
            case ("once", inner):
                assert await ctx.once(label, self.acts, ctx, inner, label) == label
            case ("beside", branches):
                keys = [f"{label}/{number}" for number in range(len(branches))]
                calls = [ctx.once(key, self.acts, ctx, inner, key) for key, inner in zip(keys, branches, strict=True)]
                assert await asyncio.gather(*calls) == keys
            case ("shaky", inner):
                try:
                    await ctx.once(label, self.fail, ctx, inner, f"{label}/first")
                except Failed:
                    await ctx.once(label, self.acts, ctx, inner, f"{label}/second")

    async def fail(self, ctx: Context, program: list[Any], where: str) -> None:
        await self.acts(ctx, program, where)
        raise Failed


async def _count(ctx: Context, key: str) -> None:
    await ctx.store.set(key, await ctx.store.get(key, 0) + 1)


class Session:
    """One way through a program: it is answered whenever it pauses, and with ``interrupted`` restored before that."""

    def __init__(self, program: list[Any], choices: list[int], *, interrupted: bool, at_once: bool) -> None:
        self.gates: dict[str, asyncio.Event] = {}
        self.flow = Player(program, self.gates)
        self.choices = choices
        self.interrupted = interrupted
        self.at_once = at_once
        self.stream: list[str] = []
        self.replied: set[str] = set()

    async def play(self) -> tuple[dict[str, Any], list[str]]:
        handler = self.flow.run()
        for number in range(1000):
            await self._settle(handler)
            if handler.is_done():
                break
            if self.interrupted:
                handler = await self._restored(handler)
            if not self.at_once:
                await self._settle(handler)
            self._answer(handler, self.choices[number % len(self.choices)])
        assert await handler == "played"
        self._read(handler)
        return (await handler.ctx.store.get_state()).to_dict(), self.stream

    async def _settle(self, handler: WorkflowHandler) -> None:
        for _ in range(TURNS):
            if handler.is_done():
                return
            await asyncio.sleep(0)

    def _read(self, handler: WorkflowHandler) -> None:
        reader = handler.subscribe()
        while (entry := reader.take()) is not None:
            if isinstance(entry[5], Shown | Ask):
                self.stream.append(f"{type(entry[5]).__name__} {entry[5].label}")

    async def _restored(self, handler: WorkflowHandler) -> WorkflowHandler:
        snapshot = json.loads(json.dumps(handler.ctx.to_dict()))
        await handler.cancel_run()
        self._read(handler)
        self.asked = {text.partition(" ")[2] for text in self.stream if text.startswith("Ask ")}
        return self.flow.run(ctx=Context.from_dict(self.flow, snapshot))

    def _answer(self, handler: WorkflowHandler, choice: int) -> None:
        if self.interrupted:
            asked = set(self.asked)
        else:
            self.stream.clear()
            self._read(handler)
            asked = {text.partition(" ")[2] for text in self.stream if text.startswith("Ask ")}
            self.stream.clear()
        open_gates = {label for label, gate in self.gates.items() if not gate.is_set()}
        pending = sorted((asked - self.replied) | open_gates)
        assert pending, "nothing to answer, and the run is not over"
        label = pending[choice % len(pending)]
        if label in self.gates:
            self.gates[label].set()
        else:
            self.replied.add(label)
            handler.ctx.send_event(Reply(label=label))


plain = st.sampled_from(["write", "edit", "send", "show", "turn", "collect", "wait", "wait", "gate"])


def acts(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    body = st.lists(inner, max_size=4)
    return st.one_of(
        st.tuples(st.just("once"), body),
        st.tuples(st.just("beside"), st.lists(body, min_size=2, max_size=3)),
        st.tuples(st.just("shaky"), st.lists(inner, max_size=3)),
        plain,
    )


programs = st.lists(st.recursive(plain, acts, max_leaves=12), min_size=1, max_size=6)


def played(program: list[Any], choices: list[int], **how: bool) -> tuple[dict[str, Any], list[str]]:
    return asyncio.run(Session(program, choices, **how).play())


@given(program=programs, choices=st.lists(st.integers(0, 5), min_size=1, max_size=4), at_once=st.booleans())
def test_a_run_restored_at_every_pause_leaves_what_an_uninterrupted_one_leaves(program, choices, at_once):
    state, stream = played(program, choices, interrupted=False, at_once=False)
    again, streamed_again = played(program, choices, interrupted=True, at_once=at_once)
    assert again == state
    assert set(state.values()) <= {1}
    # Answered before its step has come back to the wait, what runs beside one another may take turns differently.
    assert streamed_again == stream or (at_once and sorted(streamed_again) == sorted(stream))
