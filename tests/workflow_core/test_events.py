"""Events: their three kinds of data, how they are written and read, and the ones the engine makes itself."""

import asyncio
import gc
import pickle
import warnings
from datetime import UTC
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, Field, PrivateAttr, ValidationError

from batonflow.values.serializers import JsonSerializer
from batonflow.values.types import qualified_name
from batonflow.workflow_core import Context, Workflow, catch_error, step
from batonflow.workflow_core.context import DictState
from batonflow.workflow_core.errors import RemoteRunError, RunInUseError, ServerRefusedError, UnknownOutcomeError
from batonflow.workflow_core.events import (
    CollectionReleaseEvent,
    DictLikeModel,
    Event,
    EventType,
    HumanResponseEvent,
    IdleReleasedEvent,
    InputRequiredEvent,
    InternalDispatchEvent,
    StartEvent,
    StepFailedEvent,
    StepState,
    StepStateChanged,
    StopEvent,
    UnhandledEvent,
    UnreconstructedException,
    WorkflowCancelledEvent,
    WorkflowFailedEvent,
    WorkflowIdleEvent,
    WorkflowTimedOutEvent,
)
from tests.contract import contract
from tests.workflow_core.flows import names, streamed


class Point(BaseModel):
    x: int = 0


class Query(Event):
    text: str
    limit: int = 10
    _secret: str = PrivateAttr(default="none")


class Nested(Event):
    query: Query
    points: list[Point] = Field(default_factory=list)


class Answer(StopEvent):
    text: str = ""


class Counted(StopEvent):
    """Computes what awaiting the run gives."""

    def _get_result(self) -> Any:
        return f"<{self._result}>"


class Numbers(StartEvent):
    count: int


class Piece(Event):
    n: int


class Done(Event):
    n: int


# --- data -------------------------------------------------------------------------------------------------------------


@contract("2.0")
def test_the_name_decides_what_kind_of_data_a_value_is():
    event = Query(text="tides", _secret="hidden", source="web")
    assert (event.text, event.limit) == ("tides", 10)
    assert event._secret == "hidden"
    assert event.source == "web"
    assert event.to_dict() == {"source": "web"}


@contract("2.0")
def test_declared_fields_are_validated():
    with pytest.raises(ValidationError, match="limit"):
        Query(text="tides", limit="many")
    assert Query(text="tides", limit="3").limit == 3


@contract("2.0")
def test_a_private_attribute_keeps_its_default_when_it_is_not_given():
    assert Query(text="a")._secret == "none"


@contract("2.0")
def test_an_event_can_hold_objects_that_pydantic_does_not_know():
    class Socket:
        pass

    class Opened(Event):
        socket: Socket

    socket = Socket()
    assert Opened(socket=socket).socket is socket
    assert Event(socket=socket).socket is socket


@contract("2.1")
def test_an_unknown_attribute_names_class_and_attribute():
    with pytest.raises(AttributeError, match=r"'Query'.*'colour'"):
        _ = Query(text="a").colour
    assert not hasattr(Event(), "colour")


@contract("2.1")
def test_writing_an_unknown_attribute_makes_dynamic_data():
    event = Query(text="a")
    event.colour = "red"
    event.text = "b"
    event._secret = "s"
    assert event.colour == "red"
    assert event.to_dict() == {"colour": "red"}
    assert (event.text, event._secret) == ("b", "s")


@contract("2.2", "17.t7")
def test_mapping_access_sees_dynamic_data_only():
    event = Query(text="tides", source="web", page=3)
    assert event["source"] == "web"
    assert "page" in event
    assert "text" not in event
    assert event.get("text") is None
    assert event.get("missing", "default") == "default"
    assert list(event) == ["source", "page"]
    assert len(event) == 2
    assert list(event.keys()) == ["source", "page"]
    assert list(event.values()) == ["web", 3]
    assert list(event.items()) == [("source", "web"), ("page", 3)]
    with pytest.raises(KeyError):
        _ = event["text"]


@contract("2.2")
def test_setting_an_item_and_the_live_dict_are_the_same_data():
    event = Event(a=1)
    event["b"] = 2
    event.to_dict()["c"] = 3
    assert (event.a, event.b, event.c) == (1, 2, 3)


@contract("2.2")
def test_an_event_is_true_even_without_data():
    assert Event()
    assert bool(StopEvent())
    assert len(Event()) == 0


@contract("2.2")
def test_dynamic_names_may_be_those_of_dict_methods():
    class Basket(Event):
        pass

    with pytest.warns(UserWarning, match="is a method"):
        event = Basket(items=[1], get=2)
    assert event["items"] == [1]
    assert event["get"] == 2


@contract("2.3")
def test_model_dump_carries_dynamic_data_and_is_read_back():
    event = Query(text="tides", source="web")
    assert event.model_dump() == {"text": "tides", "limit": 10, "_data": {"source": "web"}}
    assert Query(text="tides").model_dump() == {"text": "tides", "limit": 10}
    again = Query.model_validate(event.model_dump())
    assert (again.text, again.source) == ("tides", "web")
    assert Event(_data={"a": 1}).a == 1


@contract("2.3")
def test_nested_events_models_and_dynamic_data_survive_json():
    event = Nested(query=Query(text="tides", source="web"), points=[Point(x=2)], note=Point(x=7), more=Query(text="in"))
    again = JsonSerializer().deserialize(JsonSerializer().serialize(event))
    assert type(again) is Nested
    assert again.query.source == "web"
    assert again.points == [Point(x=2)]
    assert again.note == Point(x=7)
    assert type(again.more) is Query
    assert again.more.text == "in"


@contract("2.12")
def test_events_and_free_state_share_a_base():
    assert issubclass(Event, DictLikeModel)
    assert issubclass(DictState, DictLikeModel)
    assert EventType == type[Event]


@contract("2.4")
async def test_two_steps_see_the_same_event_object():
    class Shared(Workflow):
        @step
        async def first(self, ev: StartEvent) -> Piece:
            return Piece(n=1)

        @step
        async def writes(self, ctx: Context, ev: Piece) -> None:
            ev.seen = True
            await ctx.store.set("id", id(ev))

        @step
        async def reads(self, ctx: Context, ev: Piece) -> StopEvent:
            await asyncio.sleep(0)
            return StopEvent(result=(ev.get("seen"), id(ev) == await ctx.store.get("id")))

    assert await Shared().run() == (True, True)


# --- StopEvent --------------------------------------------------------------------------------------------------------


@contract("2.5", "17.t7")
def test_a_stop_event_shows_its_result():
    assert StopEvent(result="r").result == "r"
    assert str(StopEvent(result={"a": 1})) == "{'a': 1}"
    assert repr(StopEvent(result="r")) == "StopEvent(result='r')"
    assert repr(StopEvent()) == "StopEvent()"
    assert repr(Answer(text="t")) == "Answer(text='t')"
    assert str(StopEvent()) == "None"


@contract("2.5")
def test_the_dump_of_a_stop_event_has_the_result_if_there_is_one():
    assert StopEvent(result="r").model_dump() == {"result": "r"}
    assert StopEvent().model_dump() == {}
    assert Answer(text="t").model_dump() == {"text": "t"}


@contract("2.5")
def test_the_result_can_be_computed_by_a_subclass():
    assert Counted(result=3).result == "<3>"


@contract("2.5")
async def test_only_an_exact_stop_event_is_unwrapped():
    class Exact(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=[1, 2])

    class Own(Workflow):
        @step
        async def go(self, ev: StartEvent) -> Answer:
            return Answer(text="forty-two", result="not this")

    assert await Exact().run() == [1, 2]
    answer = await Own().run()
    assert type(answer) is Answer
    assert answer.text == "forty-two"


# --- events the engine makes ------------------------------------------------------------------------------------------


@contract("2.6")
async def test_a_run_that_takes_too_long_ends_with_its_own_event():
    class Slow(Workflow):
        @step
        async def sleeps(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(60)
            return StopEvent()

    handler = Slow(timeout=0.02).run()
    [last] = await streamed(handler)
    assert isinstance(last, WorkflowTimedOutEvent)
    assert isinstance(last, StopEvent)
    assert (last.timeout, last.active_steps) == (0.02, ["sleeps"])
    with pytest.raises(Exception, match="timed out"):
        await handler


@contract("2.6")
async def test_cancelling_and_failing_end_with_events_of_their_own():
    class Fails(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            raise ValueError("no disk")

    handler = Fails().run()
    [last] = await streamed(handler)
    assert isinstance(last, WorkflowFailedEvent)
    assert (last.step_name, last.attempts) == ("go", 1)
    assert str(last.exception) == "no disk"
    assert last.elapsed_seconds is not None
    assert last.elapsed_seconds >= 0
    with pytest.raises(ValueError, match="no disk"):
        await handler
    assert WorkflowCancelledEvent().model_dump() == {}
    assert issubclass(IdleReleasedEvent, StopEvent)


@contract("2.7")
async def test_a_failed_step_is_described_to_its_handler():
    seen: list[StepFailedEvent] = []

    class Careful(Workflow):
        @step
        async def go(self, ev: Numbers) -> StopEvent:
            raise ValueError("no disk")

        @catch_error
        async def note(self, ev: StepFailedEvent) -> StopEvent:
            seen.append(ev)
            return StopEvent(result="noted")

    assert await Careful().run(count=3) == "noted"
    [failed] = seen
    assert failed.step_name == "go"
    assert failed.input_event == Numbers(count=3)
    assert isinstance(failed.exception, ValueError)
    assert failed.attempts == 1
    assert failed.elapsed_seconds >= 0
    assert failed.failed_at.tzinfo is UTC


@contract("2.8")
async def test_a_returned_request_for_input_is_streamed_and_needs_no_consumer():
    class Asks(Workflow):
        @step
        async def ask(self, ev: StartEvent) -> InputRequiredEvent:
            return InputRequiredEvent(prefix="sure?")

        @step
        async def answer(self, ev: HumanResponseEvent) -> StopEvent:
            return StopEvent(result=ev.response)

    handler = Asks().run()
    asked: list[Event] = []
    async for event in handler.stream_events():
        asked.append(event)
        if isinstance(event, InputRequiredEvent):
            assert event.prefix == "sure?"
            await handler.send_event(HumanResponseEvent(response="yes"))
    assert names(asked) == ["InputRequiredEvent", "StopEvent"]
    assert await handler == "yes"


@contract("2.8")
async def test_a_request_for_input_that_is_sent_is_not_streamed():
    class Sends(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> InputRequiredEvent | None:
            ctx.send_event(InputRequiredEvent(prefix="sure?"))

        @step
        async def answer(self, ev: HumanResponseEvent) -> StopEvent:
            return StopEvent(result=ev.response)

    handler = Sends().run()
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    assert names(await streamed(handler)) == ["StopEvent"]


class Chain(Workflow):
    @step
    async def first(self, ctx: Context, ev: StartEvent) -> Piece:
        ctx.write_event_to_stream(Event(note="from first"))
        return Piece(n=1)

    @step(num_workers=1)
    async def second(self, ev: Piece) -> StopEvent | None:
        return StopEvent(result=ev.n) if ev.n else None


@contract("2.9")
async def test_internal_events_are_hidden_unless_asked_for():
    hidden = await streamed(Chain().run())
    assert names(hidden) == ["Event", "StopEvent"]
    shown = await streamed(Chain().run(), internal=True)
    assert {type(event) for event in shown if isinstance(event, InternalDispatchEvent)} == {StepStateChanged}
    assert names([event for event in shown if not isinstance(event, InternalDispatchEvent)]) == ["Event", "StopEvent"]


@contract("2.9")
async def test_an_execution_is_announced_in_order_with_its_spelling_of_names():
    shown = await streamed(Chain().run(), internal=True)
    told = [
        (event.name, event.step_state, event.worker_id, event.input_event_name, event.output_event_name)
        if isinstance(event, StepStateChanged)
        else type(event).__name__
        for event in shown
    ]
    assert told == [
        ("first", StepState.RUNNING, "0", "StartEvent", None),
        "Event",
        ("first", StepState.NOT_RUNNING, "0", str(StartEvent), str(Piece)),
        ("second", StepState.RUNNING, "0", "Piece", None),
        ("second", StepState.NOT_RUNNING, "0", str(Piece), str(StopEvent)),
        "StopEvent",
    ]


@contract("2.9")
async def test_work_that_waits_for_a_worker_is_announced_as_preparing():
    class Queues(Workflow):
        @step
        async def fan(self, ctx: Context, ev: StartEvent) -> Piece | None:
            for n in range(2):
                ctx.send_event(Piece(n=n))

        @step(num_workers=1)
        async def work(self, ctx: Context, ev: Piece) -> Done | None:
            await asyncio.sleep(0)
            return Done(n=ev.n)

        @step
        async def end(self, ctx: Context, ev: Done) -> StopEvent | None:
            return StopEvent() if ev.n == 1 else None

    shown = await streamed(Queues().run(), internal=True)
    states = [(e.step_state, e.worker_id) for e in shown if isinstance(e, StepStateChanged) and e.name == "work"]
    assert (StepState.PREPARING, "<enqueued>") in states
    assert [value.value for value in StepState] == ["preparing", "running", "not_running"]
    nothing = [e for e in shown if isinstance(e, StepStateChanged) and e.name == "fan"][-1]
    assert nothing.output_event_name == str(type(None))


@contract("2.9", "4.5", "4.6")
async def test_idle_and_unhandled_are_internal_events_too():
    class Lonely(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> None:
            ctx.send_event(Done(n=1))

        @step
        async def end(self, ev: HumanResponseEvent) -> StopEvent:
            return StopEvent()

    handler = Lonely(disable_validation=True).run()
    shown: list[Event] = []
    async for event in handler.stream_events(expose_internal=True):
        shown.append(event)
        if isinstance(event, WorkflowIdleEvent):
            handler.ctx.send_event(HumanResponseEvent())
    [unhandled] = [event for event in shown if isinstance(event, UnhandledEvent)]
    assert unhandled.event_type == "Done"
    assert unhandled.qualified_name.endswith("test_events.Done")
    assert unhandled.step_name is None
    assert sum(isinstance(event, WorkflowIdleEvent) for event in shown) == 1


@contract("2.10")
async def test_the_input_of_a_list_join_is_a_collection_release():
    seen: list[Any] = []

    class Joins(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[Piece]:
            return [Piece(n=1), Piece(n=2)]

        @step
        async def join(self, pieces: list[Piece]) -> StopEvent:
            raise ValueError("too many")

        @catch_error
        async def note(self, ev: StepFailedEvent) -> StopEvent:
            seen.append(ev.input_event)
            return StopEvent()

    await Joins().run()
    [released] = seen
    assert isinstance(released, CollectionReleaseEvent)
    assert [piece.n for piece in released.events] == [1, 2]
    assert released.stream_id
    assert released.binding_id


# --- exceptions in events ---------------------------------------------------------------------------------------------


class Exploded(Exception):
    """Takes two arguments, so it cannot be rebuilt from its text."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} in {where}")


def failure(error: Exception) -> WorkflowFailedEvent:
    return WorkflowFailedEvent(step_name="s", exception=error)


def through_json(event: WorkflowFailedEvent) -> Exception:
    return WorkflowFailedEvent.model_validate_json(event.model_dump_json()).exception


@contract("2.11")
def test_an_exception_is_written_as_type_and_message():
    assert failure(ValueError("boom")).model_dump(mode="json")["exception"] == {
        "exception_type": "builtins.ValueError",
        "exception_message": "boom",
    }
    again = through_json(failure(ValueError("boom")))
    assert type(again) is ValueError
    assert str(again) == "boom"


@contract("2.11")
def test_an_exception_that_cannot_be_rebuilt_keeps_text_and_type():
    again = through_json(failure(Exploded("pipe", "cellar")))
    assert isinstance(again, UnreconstructedException)
    assert str(again) == "pipe in cellar"
    assert again.original_type.endswith("test_events.Exploded")
    # ... also through a second writing
    assert through_json(failure(again)).original_type == again.original_type


class ApiError(Exception):
    """Takes a response, of which it makes its text."""

    def __init__(self, response: Any) -> None:
        super().__init__(f"status {response.status_code}")


class LateError(Exception):
    """Makes its text when that is asked for."""

    def __init__(self, response: Any) -> None:
        self.response = response

    def __str__(self) -> str:
        return f"status {self.response.status_code}"


@pytest.mark.parametrize("cls", [ApiError, LateError])
def test_an_exception_that_makes_nothing_of_its_text_keeps_text_and_type(cls: type[Exception]):
    again = through_json(failure(cls(SimpleNamespace(status_code=503))))
    assert isinstance(again, UnreconstructedException)
    assert (str(again), again.original_type) == ("status 503", f"{__name__}.{cls.__name__}")


OWN = [
    RunInUseError("r", "owner 7", 1_700_000_000.0),
    RemoteRunError("r", "ValueError", "no"),
    ServerRefusedError(409, {"why": ["over"]}, "/handlers/r"),
    UnknownOutcomeError("nobody knows", times=3),
]


@pytest.mark.parametrize("error", OWN, ids=lambda error: type(error).__name__)
def test_batonflows_own_errors_come_back_with_what_they_carry(error: Exception):
    again = through_json(failure(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again).items() >= vars(error).items()


@pytest.mark.parametrize("values", [{}, {"owner": "o", "since": "yesterday"}, 7, None])
def test_one_of_which_something_is_missing_keeps_text_and_type(values: Any):
    told = {"exception_type": qualified_name(RunInUseError), "exception_message": "in use", "exception_values": values}
    again = WorkflowFailedEvent.model_validate({"step_name": "s", "exception": told}).exception
    assert isinstance(again, UnreconstructedException)
    assert (str(again), again.original_type) == ("in use", qualified_name(RunInUseError))


def test_what_earlier_versions_wrote_of_an_error_is_read():
    told = {"exception_type": qualified_name(UnknownOutcomeError), "exception_message": "nobody knows"}
    again = WorkflowFailedEvent.model_validate({"step_name": "s", "exception": told}).exception
    assert type(again) is UnknownOutcomeError
    assert (str(again), again.times) == ("nobody knows", 1)


class Refused(ServerRefusedError):
    """A program's own."""


def test_of_errors_derived_from_batonflows_nothing_but_the_text_is_written():
    payload = failure(Refused(500, "no", "/x")).model_dump(mode="json")["exception"]
    assert payload == {
        "exception_type": qualified_name(Refused),
        "exception_message": "The server answered 500 to /x: no",
    }


@contract("2.11")
@pytest.mark.parametrize(
    "name", ["builtins.eval", "builtins.object", "os.system", "no_such_module.Thing", "", "builtins.SystemExit"]
)
def test_a_payload_cannot_call_anything_that_is_no_exception(name: str):
    payload = {"step_name": "s", "exception": {"exception_type": name, "exception_message": "print('called')"}}
    again = WorkflowFailedEvent.model_validate(payload).exception
    assert isinstance(again, UnreconstructedException)
    assert again.original_type == name
    assert str(again) == "print('called')"


def test_events_are_freed_with_their_last_user():
    class Heavy:
        alive = 0

        def __init__(self) -> None:
            Heavy.alive += 1

        def __del__(self) -> None:
            Heavy.alive -= 1

    event = Event(load=Heavy())
    assert Heavy.alive == 1
    del event
    gc.collect()
    assert Heavy.alive == 0


def test_dynamic_data_that_is_no_dict_is_refused_as_other_wrong_values_are():
    with pytest.raises(ValidationError, match="_data is a dict of dynamic data, not int"):
        Event(_data=1)


def test_a_result_may_come_with_dynamic_data_of_any_name():
    event = StopEvent(result=1, self=2)
    assert (event.result, event["self"]) == (1, 2)


class Measured(Event):
    depth: int
    unit: str = "m"


def test_an_event_that_is_made_is_as_one_that_is_built():
    made, built = Measured.made(depth=3, unit="m"), Measured(depth=3, unit="m")
    assert made == built
    assert made.model_dump() == built.model_dump()
    assert made.model_fields_set == built.model_fields_set
    for event in (made, built):
        event.depth = 4
        event.where = "harbour"
    assert made == built
    assert made.model_dump(exclude_unset=True) == built.model_dump(exclude_unset=True)
    assert made.model_fields_set == built.model_fields_set == {"depth", "unit", "where"}


def test_what_is_added_to_an_event_is_not_said_to_be_given_to_others():
    one, other = Measured.made(depth=3, unit="m"), Measured.made(depth=5, unit="m")
    copied = one.model_copy()
    one.where = "harbour"
    assert other.model_fields_set == copied.model_fields_set == {"depth", "unit"}
    assert Measured.made(depth=1, unit="m").model_fields_set == {"depth", "unit"}
    del one.where
    assert "where" not in one


def test_names_of_what_was_given_belong_to_an_event_wherever_they_are_looked_at():
    one, other = pickle.loads(pickle.dumps([Measured.made(depth=1, unit="m"), Measured.made(depth=2, unit="m")]))
    one.where = "harbour"
    assert other.model_fields_set == {"depth", "unit"}
    Measured.made(depth=1, unit="m").model_fields_set.discard("unit")
    assert Measured.made(depth=1, unit="m").model_fields_set == {"depth", "unit"}


def test_an_event_may_set_what_it_likes_before_it_is_built():
    class Scaled(Event):
        depth: int

        def __init__(self, **data: Any) -> None:
            self.scale = 2
            super().__init__(**data)

        @property
        def scale(self) -> int:
            return 2

        @scale.setter
        def scale(self, scale: int) -> None:
            assert scale == 2

    assert Scaled(depth=1).depth == Scaled.made(depth=1).depth == 1
    assert Scaled(depth=3).depth == 3


class TestMisspeltFieldsOfTheStopEvent:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"reslt": 5}, "StopEvent has no field 'reslt', and keeps it as data. Did you mean 'result'?"),
            ({"resutl": 5, "port": 1}, "StopEvent has no field 'resutl', and keeps it as data. Did you mean 'result'?"),
        ],
    )
    def test_are_told_once(self, given: dict[str, Any], said: str) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [StopEvent(**given).to_dict() for _ in range(2)] == [given, given]
        assert [(str(one.message), one.filename) for one in caught] == [(said, __file__)]

    def test_are_those_of_a_subclass_too(self) -> None:
        class Done(StopEvent):
            tide: str = ""

        with pytest.warns(UserWarning, match="Done has no field 'tid', and keeps it as data. Did you mean 'tide'"):
            Done(tid="high")

    def test_are_not_names_of_the_program_s_own(self) -> None:
        class Done(StopEvent):
            tide: str = ""

        assert StopEvent(results=[1], port=1, result_text="x").port == 1
        assert Done(tide="high", tides=1).tides == 1
        assert StopEvent(5, reslt=1).reslt == 1
