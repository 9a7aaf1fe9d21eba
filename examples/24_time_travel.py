"""A run that is over is looked at again, branched off with another state, and the two are compared."""

import asyncio

from batonflow import Context, Event, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core import MemoryStore


class Enquiry(Event):
    pieces: int


class Price(Event):
    euros: float


class Offer(Workflow):
    """Reads an enquiry, reckons a price by the discount in the state, and writes an offer."""

    @step
    async def read(self, ctx: Context, ev: StartEvent) -> Enquiry:
        await ctx.store.set("discount", 0.0)
        return Enquiry(pieces=int(ev.text.split()[0]))

    @step
    async def reckon(self, ctx: Context, ev: Enquiry) -> Price:
        price = Price(euros=ev.pieces * 2.5 * (1 - await ctx.store.get("discount")))
        ctx.write_event_to_stream(price)
        return price

    @step
    async def write(self, ev: Price) -> StopEvent:
        return StopEvent(result=f"{ev.euros:.2f} euros")


async def main() -> None:
    store = MemoryStore()  # SQLiteStore("runs.db") does the same
    flow = Offer(store=store)
    print("offered:", await flow.run(text="100 buoys, please", run_id="buoys"))

    # No step runs for this: everything stands in the records.
    replayed = await store.replay("buoys")
    for record in replayed.records:
        print(f"commit {record['commit']}: {record.get('step') or record['kind']}")
    print("streamed:", *(entry.event for entry in replayed.events[:-1]))
    print("state after commit 2:", replayed.state_at(2))

    # Up to commit 2 both runs are one; from there on the steps run again, with another discount.
    print("instead:", await flow.fork("buoys", at=2, state={"discount": 0.1}, new_id="cheaper"))
    difference = await store.diff("buoys", "cheaper")
    print("alike:", difference.same, "records; the first that differs:")
    first = difference.first
    assert first is not None
    assert first.right is not None
    print("   ", first.right["kind"], first.right["writes"])
    print("the first run still says:", await flow.resume("buoys"))


asyncio.run(main())
