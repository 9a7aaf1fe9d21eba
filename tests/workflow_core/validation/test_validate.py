"""The checks before a run: each finds its mistake and says class, step, event and remedy."""

from typing import Annotated, Any

import pytest

from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    Resource,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Workflow,
    WorkflowConfigurationError,
    WorkflowValidationError,
    catch_error,
    step,
)
from tests.contract import contract


class Ping(Event):
    pass


class LoudPing(Ping):
    pass


class Pong(Event):
    pass


class Extra(Event):
    pass


class Done(StopEvent):
    pass


class Ask(InputRequiredEvent):
    pass


class Answer(HumanResponseEvent):
    pass


class Sound(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="done")


def refusal(workflow: Workflow) -> str:
    with pytest.raises(WorkflowValidationError) as caught:
        workflow.validate()
    return str(caught.value)


# --- names of checks --------------------------------------------------------------------------------------------------


@contract("1.3")
@pytest.mark.parametrize("names", [{"reachability", "no_such"}, "no_such"])
def test_an_unknown_check_name_is_refused_when_the_workflow_is_built(names: Any) -> None:
    with pytest.raises(WorkflowValidationError, match=r"Unknown graph check names.*'no_such'.*dead_end, reachab"):
        Sound(skip_graph_checks=names)


@pytest.mark.parametrize("names", [5, [["reachability"]]])
def test_what_is_no_check_name_is_refused_when_the_workflow_is_built(names: Any) -> None:
    with pytest.raises(WorkflowValidationError, match=r"Unknown graph check names in skip_graph_checks: .*; there are"):
        Sound(skip_graph_checks=names)


@contract("1.3")
def test_the_three_check_names_are_known() -> None:
    workflow = Sound(skip_graph_checks={"reachability", "terminal_event", "dead_end"})
    assert workflow.skipped_graph_checks == {"reachability", "terminal_event", "dead_end"}


# --- steps and their types --------------------------------------------------------------------------------------------


@contract("10.1")
def test_a_workflow_without_steps_is_refused() -> None:
    class Empty(Workflow):
        pass

    with pytest.raises(WorkflowConfigurationError, match="Empty"):
        Empty().validate()


@contract("10.2")
def test_start_and_stop_class_are_looked_for_again_when_steps_were_added_later() -> None:
    class Growing(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

    workflow = Growing()

    @step(workflow=Growing)
    def late(ev: Ping) -> Done:
        return Done()

    with pytest.raises(
        WorkflowConfigurationError, match=r"Only one type of StopEvent.*found 2: Done, StopEvent.*Growing"
    ):
        workflow.validate()


@contract("10.3", "3.1.3")
def test_a_list_join_without_a_list_producer_is_refused() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> Ping:
            return Ping()

        @step
        async def gather(self, pings: list[Ping]) -> StopEvent:
            return StopEvent()

    text = refusal(Flow())
    assert "Step 'gather' of Flow" in text
    assert "'pings'" in text
    assert "list[Ping]" in text
    assert "returned-list producer" in text
    assert "ctx.collect_events" in text


@contract("10.3")
def test_a_list_join_may_take_what_follows_from_the_members_of_a_list() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> list[Ping]:
            return []

        @step
        async def work(self, ev: Ping) -> Pong:
            return Pong()

        @step
        async def gather(self, pongs: list[Pong]) -> StopEvent:
            return StopEvent()

    assert Flow().validate() is False


@contract("10.3")
def test_a_start_event_that_a_step_returns_again_still_starts_everything() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> list[Ping]:
            return []

        @step
        async def again(self, ev: Ping) -> StartEvent | None:
            return StartEvent()

        @step
        async def gather(self, pings: list[Ping]) -> StopEvent:
            return StopEvent()

    assert Flow().validate() is False


@contract("10.3")
def test_an_event_returned_beside_a_list_is_not_in_the_list() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> list[Ping] | Pong:
            return []

        @step
        async def work(self, ev: Ping) -> None: ...

        @step
        async def gather(self, pongs: list[Pong]) -> StopEvent:
            return StopEvent()

    assert "list[Pong], but Pong has no returned-list producer" in refusal(Flow())


@contract("10.4", "3.1.2")
def test_the_slots_of_a_join_must_meet_on_one_level() -> None:
    class Flow(Workflow):
        @step
        async def split(self, ev: StartEvent) -> list[Ping]:
            return []

        @step
        async def single(self, ev: StartEvent) -> Pong:
            return Pong()

        @step
        async def join(self, ping: Ping, pong: Pong) -> StopEvent:
            return StopEvent()

    text = refusal(Flow())
    assert "Step 'join' of Flow" in text
    assert "common stream level" in text
    assert "'ping' (Ping) comes in the list of 'split'; 'pong' (Pong) comes outside any list" in text


@contract("10.4")
def test_both_sides_of_a_join_may_lie_inside_one_list_and_after_a_nested_one() -> None:
    class Flow(Workflow):
        @step
        async def split(self, ev: StartEvent) -> list[Ping]:
            return []

        @step
        async def direct(self, ev: Ping) -> Pong:
            return Pong()

        @step
        async def split_again(self, ev: Ping) -> list[LoudPing]:
            return []

        @step
        async def gather_inner(self, pings: list[LoudPing]) -> Extra:
            return Extra()

        @step
        async def join(self, pong: Pong, extra: Extra) -> Ask:
            return Ask()

        @step
        async def gather(self, pongs: list[Pong]) -> StopEvent:
            return StopEvent()

    assert Flow().validate() is True


def test_lists_that_feed_each_other_do_not_make_the_checks_run_for_ever() -> None:
    class Flow(Workflow):
        @step
        async def split(self, ev: StartEvent | Ping | Pong | Extra) -> list[Ping | Pong | Extra]:
            return []

        @step
        async def other(self, ev: Ping | Pong | Extra) -> list[Ping | Pong | Extra]:
            return []

        @step
        async def third(self, ev: Ping | Pong | Extra) -> list[Ping | Pong | Extra] | StopEvent:
            return []

        @step
        async def gather(self, ev: list[Ping]) -> Pong:
            return Pong()

    assert Flow().validate() is False


@contract("10.5")
def test_no_step_may_accept_a_stop_event() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> Done:
            return Done()

        @step
        async def after(self, ev: Done) -> None: ...

        @step
        async def later(self, ev: Done) -> None: ...

    assert "Step 'after' and 'later' of Flow cannot accept StopEvent (Done)" in refusal(Flow())


@contract("10.5")
def test_a_step_that_takes_every_event_does_not_count_as_accepting_the_stop_event() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

        @step(accept_event_subclasses=True)
        async def log(self, ev: Event) -> None: ...

    assert Flow().validate() is False


def test_a_step_that_replaces_nothing_is_refused() -> None:
    class Flow(Sound):
        @step(replaces="beginn")
        async def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

    assert "Step 'start' of Flow replaces 'beginn', but there is no such step; the steps are 'begin'" in refusal(Flow())


# --- events -----------------------------------------------------------------------------------------------------------


@contract("10.6", "10.11")
def test_an_event_that_nobody_returns_is_missing_also_when_a_step_sends_it() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.send_event(Ping())
            return StopEvent()

        @step
        async def pinged(self, ev: Ping | Extra) -> None: ...

    text = refusal(Flow())
    assert "consumed but never produced: Extra, Ping" in text
    assert "Ping is accepted by step 'pinged' of Flow" in text
    assert "return annotation" in text


@contract("10.11")
def test_an_event_that_is_only_sent_counts_when_it_is_declared() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent | Ping:
            ctx.send_event(Ping())
            return StopEvent()

        @step
        async def pinged(self, ev: Ping) -> None: ...

    assert Flow().validate() is False


@contract("10.6")
def test_what_comes_from_outside_needs_no_producer() -> None:
    class Flow(Sound):
        @step
        async def asked(self, ev: Ask) -> None: ...

        @step
        async def answered(self, ev: Answer) -> None: ...

        @catch_error
        async def rescue(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

    assert Flow(skip_graph_checks={"reachability"}).validate() is True


@contract("10.6", "3.8")
def test_a_returned_subclass_is_not_what_the_step_accepts_and_the_message_says_what_to_do() -> None:
    class Exact(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> LoudPing:
            return LoudPing()

        @step
        async def pinged(self, ev: Ping) -> StopEvent:
            return StopEvent()

    text = refusal(Exact())
    assert "consumed but never produced: Ping" in text
    assert "step 'begin' of Exact returns LoudPing, a subclass" in text
    assert "@step(accept_event_subclasses=True) on 'pinged'" in text

    class Wide(Exact):
        @step(accept_event_subclasses=True)
        async def pinged(self, ev: Ping) -> StopEvent:
            return StopEvent()

    assert Wide().validate() is False


@contract("10.6")
def test_two_classes_of_one_name_are_told_apart_in_the_message() -> None:
    other = type("Ping", (Event,), {"__module__": "elsewhere"})

    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> other:
            return other()

        @step
        async def pinged(self, ev: Ping) -> StopEvent:
            return StopEvent()

    text = refusal(Flow())
    assert "another class of that name (elsewhere.Ping, not " in text
    assert "Import the same one" in text


@contract("10.7")
def test_an_event_that_nobody_takes_is_refused() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> StopEvent | Pong:
            return StopEvent()

    text = refusal(Flow())
    assert "produced but never consumed: Pong" in text
    assert "Pong is returned by step 'begin' of Flow" in text
    assert "Write a step that takes Pong" in text


@contract("10.7")
def test_an_event_that_misses_a_step_by_being_a_subclass_is_explained() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> LoudPing | Ping:
            return Ping()

        @step
        async def pinged(self, ev: Ping) -> StopEvent:
            return StopEvent()

    assert "step 'pinged' takes exactly Ping, not its subclasses" in refusal(Flow())


@contract("10.7", "2.8")
def test_questions_answers_and_stop_events_need_no_consumer() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> StopEvent | Ask | Answer:
            return StopEvent()

    assert Flow(skip_graph_checks={"terminal_event"}).validate() is True


@contract("10.7")
def test_a_handler_takes_no_failure_event_that_a_step_makes_itself() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> StopEvent | StepFailedEvent:
            return StopEvent()

        @catch_error
        async def rescue(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

    assert "produced but never consumed: StepFailedEvent" in refusal(Flow())


# --- handlers ---------------------------------------------------------------------------------------------------------


class Rescued(Sound):
    @step
    async def other(self, ev: StartEvent) -> None: ...

    @catch_error(for_steps=["begin"])
    async def rescue(self, ev: StepFailedEvent) -> StopEvent:
        return StopEvent()


@contract("7.6", "10.8")
def test_a_sound_set_of_handlers_is_accepted() -> None:
    class Flow(Rescued):
        @catch_error
        async def rest(self, ev: StepFailedEvent) -> Ping | None: ...

        @step
        async def pinged(self, ev: Ping) -> StopEvent:
            return StopEvent()

    assert Flow().validate() is False


@contract("7.6", "10.8")
def test_only_one_handler_may_cover_all_steps() -> None:
    class Flow(Sound):
        @catch_error
        async def second(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

        @catch_error()
        async def first(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

    text = refusal(Flow())
    assert "The @catch_error handlers of Flow" in text
    assert "only one wildcard @catch_error handler, found 2: 'first', 'second'" in text
    assert "for_steps=[...]" in text


@contract("7.6", "10.8")
def test_every_mistake_in_the_handlers_is_listed_at_once() -> None:
    class Flow(Rescued):
        @catch_error(for_steps=["begin", "begn", "rescue", "wrong"])
        async def wrong(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

    text = refusal(Flow())
    assert "Step 'begin' is claimed by two @catch_error handlers, 'rescue' and 'wrong'" in text
    assert "'wrong' lists unknown step 'begn'; the steps are 'begin', 'other'" in text
    assert "'wrong' cannot cover another handler step, 'rescue'" in text
    assert "'wrong' cannot cover another handler step, 'wrong'" in text


@contract("7.6", "10.8")
@pytest.mark.parametrize("bound", [0, -1, True, "2"])
def test_max_recoveries_must_be_a_positive_int(bound: Any) -> None:
    def declare() -> Workflow:
        class Flow(Sound):
            @catch_error(max_recoveries=bound)
            async def rescue(self, ev: StepFailedEvent) -> StopEvent:
                return StopEvent()

        return Flow()

    with pytest.raises(WorkflowValidationError, match="max_recoveries"):
        declare().validate()


# --- the order of the checks ------------------------------------------------------------------------------------------


def test_of_several_mistakes_the_one_that_comes_first_in_the_order_of_the_checks_is_told() -> None:
    class Fine(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

    class WithIsland(Fine):
        @step
        async def island(self, ev: Extra) -> Extra:
            return Extra()

    class WithHandlers(WithIsland):
        @catch_error(for_steps=["gone"])
        async def rescue(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

    class WithLostEvent(WithHandlers):
        @step
        async def lost(self, ev: StartEvent) -> LoudPing | None: ...

    class WithMissingEvent(WithLostEvent):
        @step
        async def missing(self, ev: Pong) -> None: ...

    class WithStop(WithMissingEvent):
        @step
        async def after(self, ev: Done) -> None: ...

    class WithJoin(WithStop):
        @step
        async def split(self, ev: StartEvent) -> list[Ping]:
            return []

        @step
        async def join(self, ping: Ping, extra: Extra) -> None: ...

    class WithListJoin(WithJoin):
        @step
        async def gather(self, pongs: list[Pong]) -> None: ...

    told = [
        (WithListJoin, "returned-list producer"),
        (WithJoin, "common stream level"),
        (WithStop, "cannot accept StopEvent"),
        (WithMissingEvent, "consumed but never produced: Pong"),
        (WithLostEvent, "produced but never consumed: LoudPing"),
        (WithHandlers, "unknown step 'gone'"),
        (WithIsland, "Graph validation failed"),
    ]
    for workflow_class, words in told:
        assert words in refusal(workflow_class())
    assert Fine().validate() is False


# --- following the arrows ---------------------------------------------------------------------------------------------


class Islands(Workflow):
    """One step that runs, and a circle of two that nothing leads to or away from."""

    @step
    async def begin(self, ev: StartEvent) -> StopEvent | Answer:
        return StopEvent()

    @step
    async def ping(self, ev: Pong) -> Ping:
        return Ping()

    @step
    async def pong(self, ev: Ping) -> Pong:
        return Pong()


@contract("10.9")
def test_unreachable_steps_lost_events_and_dead_ends_come_in_one_message() -> None:
    text = refusal(Islands())
    assert text.startswith("Graph validation failed:\n")
    assert "[reachability] Unreachable steps: ping, pong (workflow Islands)" in text
    assert "[terminal_event] Events produced but never consumed: Answer (workflow Islands)" in text
    assert "[dead_end] Dead-end steps: ping, pong (workflow Islands)" in text
    assert '@step(skip_graph_checks=["reachability"])' in text
    assert "let one of the steps behind return a StopEvent" in text


@contract("10.9")
@pytest.mark.parametrize("left_out", ["reachability", "terminal_event", "dead_end"])
def test_a_workflow_can_leave_out_each_check(left_out: Any) -> None:
    text = refusal(Islands(skip_graph_checks={left_out}))
    for name in ("reachability", "terminal_event", "dead_end"):
        assert (f"[{name}]" in text) is (name != left_out)


@contract("10.10")
def test_a_step_can_leave_out_checks_for_itself_alone() -> None:
    class Flow(Islands):
        @step(skip_graph_checks=["reachability"])
        async def ping(self, ev: Pong) -> Ping:
            return Ping()

        @step(skip_graph_checks=["dead_end"])
        async def pong(self, ev: Ping) -> Pong:
            return Pong()

    text = refusal(Flow())
    assert "Unreachable steps: pong " in text
    assert "Dead-end steps: ping " in text


@contract("10.9")
def test_steps_behind_an_answer_or_a_handler_can_be_reached() -> None:
    class Flow(Sound):
        @step
        async def answered(self, ev: Answer) -> Ask:
            return Ask()

        @catch_error
        async def rescue(self, ev: StepFailedEvent) -> Ping:
            return Ping()

        @step
        async def pinged(self, ev: Ping) -> None: ...

    text = refusal(Flow())
    assert "[dead_end] Dead-end steps: rescue" in text
    assert "reachability" not in text


@contract("10.9")
def test_no_step_is_reached_through_a_stop_event_however_wide_it_accepts() -> None:
    class Base(Event):
        pass

    class End(StopEvent, Base):
        pass

    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> End:
            return End()

        @step(accept_event_subclasses=True)
        async def after(self, ev: Base) -> None: ...

    assert "[reachability] Unreachable steps: after" in refusal(Flow())


@contract("10.9")
def test_a_step_that_returns_nothing_is_no_dead_end() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> Ping | StopEvent:
            return StopEvent()

        @step
        async def pinged(self, ev: Ping) -> None: ...

    assert Flow().validate() is False


# --- when the checks run ----------------------------------------------------------------------------------------------


class Wrong(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> StopEvent | Pong:
        return StopEvent(result="ran")


def test_run_checks_before_it_asks_for_an_event_loop() -> None:
    with pytest.raises(WorkflowValidationError, match="never consumed: Pong"):
        Wrong().run()


async def test_the_checks_can_be_switched_off() -> None:
    assert await Wrong(disable_validation=True).run() == "ran"


@contract("1.10")
async def test_run_checks_once_and_validate_every_time(tmp_path: Any) -> None:
    made: list[str] = []

    def make() -> str:
        made.append("made")
        raise OSError("no network")

    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

        @step
        async def never(self, ev: Answer, client: Annotated[str, Resource(make)]) -> None: ...

    workflow = Flow()
    assert workflow.validate() is True
    assert made == []
    with pytest.raises(RuntimeError, match="cannot be used inside a running one"):
        workflow.validate(validate_resources=True)
    await workflow.run()
    assert made == []


@contract("1.10")
def test_validate_can_make_every_resource_and_names_those_that_fail() -> None:
    made: list[str] = []

    def fine() -> str:
        made.append("fine")
        return "fine"

    async def broken() -> str:
        raise OSError("no network")

    class Flow(Workflow):
        @step
        async def begin(
            self, ev: StartEvent, a: Annotated[str, Resource(fine)], b: Annotated[str, Resource(broken)]
        ) -> StopEvent:
            return StopEvent()

    with pytest.raises(WorkflowValidationError) as caught:
        Flow().validate(validate_resources=True)
    assert str(caught.value) == ("Resource validation failed:\n  - In step 'begin', parameter 'b': OSError: no network")
    assert made == ["fine"]


@contract("9.3", "1.10")
def test_validate_finds_a_circle_of_resources() -> None:
    def first(other: Any) -> str: ...
    def second(other: Annotated[str, Resource(first)]) -> str: ...

    first.__annotations__["other"] = Annotated[str, Resource(second)]

    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent, a: Annotated[str, Resource(first)]) -> StopEvent:
            return StopEvent()

    with pytest.raises(WorkflowValidationError, match="Circular resource dependency detected"):
        Flow().validate(validate_resources=True)
