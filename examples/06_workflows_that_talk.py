"""Two workflows that know only each other's events: what no step of the one takes goes to the other, and back."""

import asyncio

from batonflow import Context, Event, StartEvent, StopEvent, Workflow, step


class Order(Event):
    dish: str


class Ready(Event):
    dish: str


class Kitchen(Workflow, entry=[Order]):
    """Has no step for a start event: an order starts it."""

    @step
    async def cook(self, ctx: Context, ev: Order) -> StopEvent | Ready:
        await asyncio.sleep(0.05 * len(ev.dish))
        ctx.send_event(Ready(dish=ev.dish))
        return StopEvent()


class Waiter(Workflow):
    @step
    async def take_orders(self, ctx: Context, ev: StartEvent) -> Order | None:
        for dish in ev.dishes:
            ctx.send_event(Order(dish=dish))
        await ctx.store.set("open", len(ev.dishes))
        return None

    @step(num_workers=1)
    async def serve(self, ctx: Context, ev: Ready) -> StopEvent | None:
        print(f"{ev.dish} is served")
        still_open = await ctx.store.get("open") - 1
        await ctx.store.set("open", still_open)
        return None if still_open else StopEvent(result="everybody has eaten")


async def main() -> None:
    waiter = Waiter(timeout=10)
    waiter.add_workflows(kitchen=Kitchen(timeout=10))
    print(await waiter.run(dishes=["stew", "pie", "bouillabaisse"]))


asyncio.run(main())
