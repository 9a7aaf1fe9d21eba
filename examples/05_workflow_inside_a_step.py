"""A workflow attached to another: a step asks for it by class and runs it; its events join the parent's stream."""

import asyncio

from inventory import Decision, InventoryMonitor, Warehouse

from batonflow import Context, Event, StartEvent, StopEvent, Workflow, step


class Stamped(Event):
    text: str


class OrderStation(Workflow):
    @step
    async def trade(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Stamped(text=f"order station: {ev.opinion} news of the {ev.sku}"))
        return StopEvent(result=await Warehouse().handle(ev.sku, ev.opinion))


class MonitorWithStation(InventoryMonitor):
    @step(replaces="act")
    async def act_at_the_station(self, ev: Decision, station: OrderStation) -> StopEvent:
        return StopEvent(result=await station.run(sku=ev.sku, opinion=ev.opinion))


async def main() -> None:
    monitor = MonitorWithStation(timeout=20)
    monitor.add_workflows(station=OrderStation(timeout=10))
    handler = monitor.run(sku="umbrella")
    async for item in handler.subscribe():
        if isinstance(item.event, Stamped):
            print(f"[{item.path}] {item.event.text}")
    print(await handler)


asyncio.run(main())
