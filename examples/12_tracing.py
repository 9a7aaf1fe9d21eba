"""Hear what runs do: a handler for events and one for spans on the root dispatcher."""

import asyncio
from inspect import BoundArguments
from typing import Any

from batonflow import Event, StartEvent, StopEvent, Workflow, step
from batonflow.instrumentation import BaseEvent, BaseEventHandler, BaseSpan, BaseSpanHandler, get_dispatcher
from batonflow.instrumentation.events.run import StepEndEvent


class Measured(Event):
    metres: float


class Gauge(Workflow):
    @step
    async def measure(self, ev: StartEvent) -> Measured:
        return Measured(metres=ev.metres)

    @step
    async def judge(self, ev: Measured) -> StopEvent:
        return StopEvent(result="high" if ev.metres > 4 else "low")


class Steps(BaseEventHandler):
    @classmethod
    def class_name(cls) -> str:
        return "Steps"

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        if isinstance(event, StepEndEvent):
            print(f"step {event.step} gave {event.output}")


class Spans(BaseSpanHandler[BaseSpan]):
    def new_span(
        self,
        id_: str,
        bound_args: BoundArguments,
        instance: Any = None,
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> BaseSpan:
        inside = f" inside {parent_span_id.partition('-')[0]}" if parent_span_id else ""
        print(f"open  {id_.partition('-')[0]}{inside}")
        return BaseSpan(id_=id_, parent_id=parent_span_id)

    def prepare_to_exit_span(
        self, id_: str, bound_args: BoundArguments, instance: Any = None, result: Any = None, **kwargs: Any
    ) -> BaseSpan | None:
        print(f"close {id_.partition('-')[0]}")
        return self.open_spans.get(id_)

    def prepare_to_drop_span(
        self,
        id_: str,
        bound_args: BoundArguments,
        instance: Any = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> BaseSpan | None:
        return self.open_spans.get(id_)


async def main() -> None:
    root = get_dispatcher()
    root.add_event_handler(Steps())
    root.add_span_handler(Spans())
    print(await Gauge(timeout=10).run(metres=5.4))


asyncio.run(main())
