"""A plain function as a step of a workflow that is defined elsewhere; sync steps run in a thread."""

import asyncio

from batonflow import StartEvent, StopEvent, Workflow, step


class Reverse(Workflow): ...


@step(workflow=Reverse)
def reverse(ev: StartEvent) -> StopEvent:
    return StopEvent(result=ev.text[::-1])


async def main() -> None:
    print(await Reverse(timeout=5).run(text="tides"))


asyncio.run(main())
