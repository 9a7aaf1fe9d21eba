"""The workflows that `fleet.py` gives to workers: one that waits, and one of many steps."""

import asyncio

from batonflow import Event, StartEvent, StopEvent, Workflow, step

SECONDS_IN_BODY = 0.1
SECONDS_IN_STEP = 0.1


class Waits(Workflow):
    @step
    async def wait(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(SECONDS_IN_BODY)
        return StopEvent()


class Next(Event):
    left: int


class Long(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Next:
        return Next(left=ev.steps)

    @step
    async def go_on(self, ev: Next) -> Next | StopEvent:
        await asyncio.sleep(SECONDS_IN_STEP)
        return Next(left=ev.left - 1) if ev.left else StopEvent()


waits = Waits(timeout=None)
long = Long(timeout=None)
