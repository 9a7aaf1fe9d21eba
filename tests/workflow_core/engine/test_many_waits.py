"""What an event costs where many waits stand open, counted in waits that it is compared with."""

import pytest

from batonflow.workflow_core import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.engine.state import Waiter
from tests.workflow_core.flows import saved, until


class Ticket(Event):
    number: int


class Closed(Event):
    number: int


class Reply(HumanResponseEvent):
    number: int


class Note(HumanResponseEvent):
    number: int


class LateNote(Note):
    pass


class Office(Workflow):
    """Opens many tickets, each of which waits for a reply; the last waits for a note, and takes late ones too."""

    def __init__(self, tickets: int) -> None:
        super().__init__(timeout=None)
        self.tickets = tickets

    @step
    async def open(self, ev: StartEvent) -> list[Ticket]:
        return [Ticket(number=number) for number in range(self.tickets)]

    @step(accept_event_subclasses=True)
    async def work(self, ctx: Context, ev: Ticket) -> Closed:
        awaited = Note if ev.number == self.tickets - 1 else Reply
        await ctx.wait_for_event(awaited, requirements={"number": ev.number}, timeout=None)
        return Closed(number=ev.number)

    @step
    async def close(self, closed: list[Closed]) -> StopEvent:
        return StopEvent(result=[ev.number for ev in closed])


@pytest.mark.parametrize("tickets", [20, 200])
@pytest.mark.parametrize(("event", "compared"), [(Note, 1), (LateNote, 1), (Event, 0)])
async def test_an_event_is_compared_only_with_the_waits_for_its_type(
    tickets: int, event: type, compared: int, monkeypatch: pytest.MonkeyPatch
):
    asked: list[Event] = []
    wants = Waiter.wants
    monkeypatch.setattr(Waiter, "wants", lambda waiter, event: asked.append(event) or wants(waiter, event))
    handler = Office(tickets).run()
    await until(lambda: len(saved(handler)["workers"]["work"]["collected_waiters"]) == tickets)
    handler.ctx.send_event(event(number=tickets - 1))
    handler.ctx.send_event(Event())
    await until(lambda: len(saved(handler)["workers"]["work"]["collected_waiters"]) == tickets - compared)
    assert len(asked) == compared
    await handler.cancel_run()


async def test_waits_for_a_type_and_for_its_bases_are_answered_in_the_order_of_their_opening():
    class Flow(Workflow):
        @step
        async def start(self, ev: StartEvent) -> list[Ticket]:
            return [Ticket(number=number) for number in range(4)]

        @step(accept_event_subclasses=True)
        async def work(self, ctx: Context, ev: Ticket) -> Closed:
            await ctx.wait_for_event([Note, LateNote, HumanResponseEvent, LateNote][ev.number])
            return Closed(number=ev.number)

        @step
        async def close(self, closed: list[Closed]) -> StopEvent:
            return StopEvent(result=[ev.number for ev in closed])

    handler = Flow().run()
    await until(lambda: len(saved(handler)["workers"]["work"]["collected_waiters"]) == 4)
    for _ in range(4):  # each answers one wait
        handler.ctx.send_event(LateNote(number=0))
    assert await handler == [0, 1, 2, 3]
