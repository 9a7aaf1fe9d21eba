"""Runs a program under a seed and checks what has to hold in every order; some seeds break it off and restore it."""

import asyncio
import json
import random
from collections import Counter
from contextlib import suppress

from batonflow.testing import SeededRun, run_seeded
from batonflow.workflow_core import Context, Event, WorkflowCancelledByUser, WorkflowHandler
from tests.promises.interleavings.workflows import Answer, Approval, Approved, Explored, Program, Question, Seen

__all__ = ["explore", "interrupts"]


def interrupts(seed: int) -> int:
    """How often the run of a seed is saved, broken off and restored: most are not, some once, a few twice."""
    return (0, 0, 1, 0, 2)[seed % 5]


def explore(program: Program, seed: int) -> SeededRun:
    """Run a program once; AssertionError if an invariant does not hold.

    ``result`` of the returned run is the number of restores that took place.
    """
    try:
        found = run_seeded(lambda dice: _Exploration(program, dice, interrupts(seed)).run(), seed)
        assert found.tasks_left == []
    except BaseException as error:
        error.add_note(f"{program.make.__name__} under seed {seed}")
        raise
    return found


class _Exploration:
    """One run of a program, over its restores.

    Args:
        program: What to run.
        dice: Where the delays come from.
        interrupts: How often to break it off.
    """

    def __init__(self, program: Program, dice: random.Random, interrupts: int) -> None:
        self.program = program
        self.dice = dice
        self.interrupts = interrupts
        self.restores = 0
        self.streamed: list[Event] = []
        self.answered: set[str] = set()

    async def run(self) -> int:
        workflow = self.program.make(self.dice)
        handler = workflow.run()
        for _ in range(self.interrupts):
            payload = await self._break_off(handler)
            if payload is None:
                break
            self._check_workers(workflow)
            workflow = self.program.make(self.dice)
            handler = workflow.run(ctx=Context.from_dict(workflow, payload))
            self.restores += 1
        await self._until_its_end(handler)
        self._check_workers(workflow)
        return self.restores

    async def _break_off(self, handler: WorkflowHandler) -> dict[str, object] | None:
        """Save the run at a moment that the dice choose and cancel it; None when it was over before."""
        caller = asyncio.create_task(self._answer(handler))
        if self.dice.random() < 0.6:
            await asyncio.sleep(self.dice.random() * self.program.seconds)
        for _ in range(self.dice.randrange(40)):
            await asyncio.sleep(0)
        # From here to cancel_run nothing else runs: the caller can no longer answer what the snapshot does not know.
        caller.cancel()
        if handler.get_stop_event() is not None:
            await asyncio.wait([caller])
            return None
        payload = json.loads(json.dumps(handler.ctx.to_dict()))
        await handler.cancel_run()
        await asyncio.wait([caller])
        with suppress(WorkflowCancelledByUser):
            await handler
        self.streamed += [item.event async for item in handler.subscribe()][:-1]
        return payload

    async def _until_its_end(self, handler: WorkflowHandler) -> None:
        caller = asyncio.create_task(self._answer(handler))
        result = await handler
        await caller
        self.streamed += [item.event async for item in handler.subscribe()]
        program = self.program
        assert result == program.result
        assert await handler.ctx.store.get("handled") == dict.fromkeys(program.handled, 1)
        seen = Counter(event.key for event in self.streamed if isinstance(event, Seen))
        assert seen == Counter(program.seen)
        assert self.streamed[-1] is handler.get_stop_event()
        self._check_nothing_is_left(handler)

    def _check_workers(self, workflow: Explored) -> None:
        for name, limit in self.program.limits.items():
            assert workflow.most_working[name] <= limit, f"{name} had {workflow.most_working[name]} workers"

    def _check_nothing_is_left(self, handler: WorkflowHandler) -> None:
        payload = handler.ctx.to_dict()
        assert payload["is_running"] is False
        assert payload["streams"] == {}
        assert payload["deliveries"] == []
        for name, worker in payload["workers"].items():
            assert not any(worker.values()), f"step {name} still holds {worker}"

    async def _answer(self, handler: WorkflowHandler) -> None:
        """Answer the questions, also those asked before a restore, in an order of the dice; send misfits too."""
        open_questions = [event for event in self.streamed if isinstance(event, Question | Approval)]
        async with asyncio.TaskGroup() as group:
            for event in open_questions:
                group.create_task(self._answer_one(handler, event))
            async for item in handler.subscribe():
                if isinstance(item.event, Question | Approval):
                    group.create_task(self._answer_one(handler, item.event))

    async def _answer_one(self, handler: WorkflowHandler, event: Question | Approval) -> None:
        key = f"{event.who}/{event.turn}" if isinstance(event, Question) else "approval"
        if key in self.answered:
            return
        await asyncio.sleep(self.dice.choice((0, 0, 1, 2, 3, 5)))
        if handler.get_stop_event() is not None:
            return  # broken off meanwhile; the restored run is told
        if isinstance(event, Question):
            handler.ctx.send_event(Answer(who=event.who, turn=7, text="to nobody"))
            handler.ctx.send_event(Answer(who=event.who, turn=event.turn, text=key))
        else:
            handler.ctx.send_event(Approved())
        self.answered.add(key)
