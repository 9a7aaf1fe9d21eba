import asyncio
from workflows import Workflow, step
from workflows.errors import WorkflowConfigurationError, WorkflowRuntimeError, WorkflowValidationError
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
from show import errors, fails, title


class A(Event):
    n: int = 0
class B(Event):
    n: int = 0
class C(Event):
    n: int = 0
class OtherStart(StartEvent):
    ...
class OtherStop(StopEvent):
    ...

async def run(workflow, **kwargs):
    return await workflow.run(**kwargs)

def check(make, *words):
    errors(lambda: make().validate(), *words)

title("while building")
class Empty(Workflow):
    pass
class NoStart(Workflow):
    @step
    async def a(self, ev: A) -> StopEvent: ...
class NoStop(Workflow):
    @step
    async def a(self, ev: StartEvent) -> A: ...
class Neither(Workflow):
    @step
    async def a(self, ev: A) -> B: ...
class TwoStarts(Workflow):
    @step
    async def a(self, ev: StartEvent) -> StopEvent: ...
    @step
    async def b(self, ev: OtherStart) -> StopEvent: ...
class TwoStops(Workflow):
    @step
    async def a(self, ev: StartEvent) -> StopEvent | OtherStop: ...
for make, words in (
    (NoStart, ["At least one Event of type StartEvent must be received by any step.", "NoStart"]),
    (NoStop, ["At least one Event of type StopEvent must be returned by any step.", "NoStop"]),
    (Neither, ["At least one Event of type StartEvent must be received by any step."]),
    (TwoStarts, ["Only one type of StartEvent is allowed per workflow, found 2"]),
    (TwoStops, ["Only one type of StopEvent is allowed per workflow, found 2"]),
):
    error = errors(make, *words)
    print(isinstance(error, WorkflowConfigurationError))
errors(lambda: NoStart(disable_validation=True), "StartEvent")

title("options")
class Fine(Workflow):
    @step
    async def start(self, ev: OtherStart) -> OtherStop:
        return OtherStop(value=ev.get("value"))
for number in (0, -1, True, 1.5, "two"):
    errors(lambda: Fine(num_concurrent_runs=number), "num_concurrent_runs must be an integer greater than 0")
errors(lambda: Fine(skip_graph_checks={"nonsense"}), "Unknown graph check names", "nonsense")
workflow = Fine(num_concurrent_runs=2, skip_graph_checks={"reachability", "terminal_event", "dead_end"}, workflow_name="named")
print(workflow.start_event_class.__name__, workflow.stop_event_class.__name__, sorted(e.__name__ for e in workflow.events))
print(workflow.workflow_name, Fine().workflow_name, workflow.validate())

title("events that go nowhere or come from nowhere")
class Unproduced(Workflow):
    @step
    async def a(self, ev: StartEvent) -> StopEvent: ...
    @step
    async def b(self, ev: A) -> StopEvent: ...
class Unconsumed(Workflow):
    @step
    async def a(self, ev: StartEvent) -> A | StopEvent: ...
class TakesStop(Workflow):
    @step
    async def a(self, ev: StartEvent) -> StopEvent: ...
    @step
    async def b(self, ev: StopEvent) -> None: ...
class Unreachable(Workflow):
    @step
    async def a(self, ev: StartEvent) -> StopEvent: ...
    @step
    async def lonely(self, ev: A) -> B: ...
    @step
    async def island(self, ev: B) -> A | StopEvent: ...
class DeadEnd(Workflow):
    @step
    async def a(self, ev: StartEvent) -> A | StopEvent: ...
    @step
    async def circle(self, ev: A | B) -> B: ...
    @step
    async def nothing(self, ev: A) -> None: ...
class Person(Workflow):
    @step
    async def ask(self, ev: StartEvent) -> InputRequiredEvent: ...
    @step
    async def answer(self, ev: HumanResponseEvent) -> StopEvent: ...
check(Unproduced, "consumed but never produced: A")
check(Unconsumed, "produced but never consumed: A")
check(TakesStop, "cannot accept StopEvent")
check(Unreachable, "Graph validation failed:", "[reachability] Unreachable steps:", "lonely", "island")
check(DeadEnd, "Graph validation failed:", "[dead_end] Dead-end steps:", "circle")
check(Person)
check(lambda: DeadEnd(skip_graph_checks={"dead_end"}))
check(lambda: Unreachable(skip_graph_checks={"reachability"}))
class SkipsOne(Workflow):
    @step
    async def a(self, ev: StartEvent) -> A | StopEvent: ...
    @step(skip_graph_checks=["dead_end"])
    async def circle(self, ev: A | B) -> B: ...
class SkipsReach(Workflow):
    @step
    async def a(self, ev: StartEvent) -> StopEvent: ...
    @step(skip_graph_checks=["reachability"])
    async def lonely(self, ev: A) -> B: ...
    @step(skip_graph_checks=["reachability"])
    async def island(self, ev: B) -> A | StopEvent: ...
check(SkipsOne)
check(SkipsReach)

title("at run, once, unless switched off")
class Unvalidated(Workflow):
    @step
    async def a(self, ev: StartEvent) -> A | StopEvent:
        return StopEvent(result="ran")
async def at_run():
    await fails(run(Unvalidated()), "produced but never consumed: A")
    await fails(run(Unvalidated(disable_validation=True)))
    workflow = Fine()
    await fails(run(workflow, value=1))
    await fails(run(Empty2()), "StartEvent")
class Empty2(Workflow):
    pass
errors(Empty, "StartEvent")
async def started():
    class Needs(StartEvent):
        topic: str
        count: int = 1
    class Flow(Workflow):
        @step
        async def a(self, ev: Needs) -> StopEvent:
            return StopEvent(result=(ev.topic, ev.count, ev.get("other")))
    await fails(run(Flow(), topic="t", count="3", other=4))
    await fails(run(Flow(), count=1), "Failed creating a start event of type", "Needs")
    await fails(run(Flow(), topic="t", count="x"), "Failed creating a start event of type")
    await fails(run(Flow(), start_event=Needs(topic="given")))
    await fails(run(Flow(), start_event=A()), "must be an instance of 'StartEvent'")
    await fails(run(Flow(), start_event="text"), "must be an instance of 'StartEvent'")
try:
    asyncio.run(at_run())
except WorkflowConfigurationError as error:
    print("refused while building", "StartEvent" in str(error))
asyncio.run(started())
print(issubclass(WorkflowValidationError, Exception), issubclass(WorkflowRuntimeError, Exception))
