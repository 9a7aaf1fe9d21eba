"""Steps that branch by the event they return, and a loop that ends by itself: a kiln is fired until it is hot."""

import asyncio
from typing import Any

from batonflow import Event, StartEvent, StopEvent, Workflow, step


class Measure(Event):
    degrees: int


class TooCold(Event):
    degrees: int


class TooHot(Event):
    degrees: int


class Kiln(Workflow):
    def __init__(self, target: int, **options: Any) -> None:
        super().__init__(**options)
        self.target = target

    @step
    async def light(self, ev: StartEvent) -> Measure:
        return Measure(degrees=ev.degrees)

    @step
    async def measure(self, ev: Measure) -> TooCold | TooHot | StopEvent:
        print(f"{ev.degrees} degrees")
        if abs(ev.degrees - self.target) <= 10:
            return StopEvent(result=f"ready at {ev.degrees} degrees")
        return TooCold(degrees=ev.degrees) if ev.degrees < self.target else TooHot(degrees=ev.degrees)

    @step
    async def fire(self, ev: TooCold) -> Measure:
        print("  more wood")
        return Measure(degrees=ev.degrees + 180)

    @step
    async def vent(self, ev: TooHot) -> Measure:
        print("  open the flap")
        return Measure(degrees=ev.degrees - 75)


async def main() -> None:
    print(await Kiln(target=1000, timeout=10).run(degrees=550))


asyncio.run(main())
