"""ctx.ask: a question to a person, with the type of the answer."""

from datetime import date
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from batonflow.workflow_core import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    InputResponseError,
    MemoryStore,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from tests.workflow_core.flows import resume, saved, until


class Address(BaseModel):
    street: str
    number: int = 1


class Asks(Workflow):
    """Asks one question, and returns the answer."""

    def __init__(self, *question: Any, **options: Any) -> None:
        super().__init__()
        self._question, self._options = question, options

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.ask(*self._question, **self._options))


async def answered(flow: Workflow, *given: Any, **fields: Any) -> Any:
    handler = flow.run()
    async for request in handler.inputs():
        request.respond(*given, **fields)
    return await handler


async def test_the_answer_is_a_text_by_default() -> None:
    assert await answered(Asks("Which topic?"), "tides") == "tides"


@pytest.mark.parametrize(
    ("answer", "given", "value"),
    [
        (bool, "yes", True),
        (int, "3", 3),
        (date, "2026-02-03", date(2026, 2, 3)),
        (int | None, None, None),
        (Literal["a", "b"], "b", "b"),
        (list[int], [1, "2"], [1, 2]),
        (Address, {"street": "Quay", "number": "7"}, Address(street="Quay", number=7)),
        (Address, Address(street="Quay"), Address(street="Quay")),
    ],
)
async def test_an_answer_is_validated_by_its_type(answer: Any, given: Any, value: Any) -> None:
    assert await answered(Asks("?", answer), given) == value


async def test_the_fields_of_a_model_may_be_given_by_name() -> None:
    assert await answered(Asks("Where?", Address), street="Quay", number=2) == Address(street="Quay", number=2)


async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open() -> None:
    handler = Asks("Publish?", bool).run()
    async for request in handler.inputs():
        with pytest.raises(InputResponseError, match="valid boolean"):
            request.respond("perhaps")
        assert request.is_open
        assert [one.id for one in handler.open_inputs()] == [request.id]
        request.respond("no")
    assert await handler is False


async def test_choices_are_the_only_answers() -> None:
    handler = Asks("Which way?", choices=["left", "right"]).run()
    async for request in handler.inputs():
        assert request.event.choices == ["left", "right"]
        assert request.schema["properties"]["response"]["enum"] == ["left", "right"]
        with pytest.raises(InputResponseError, match="'left' or 'right'"):
            request.respond("up")
        request.respond("left")
    assert await handler == "left"


async def test_the_schema_of_a_request_is_that_of_the_answer() -> None:
    handler = Asks("Where?", Address).run()
    await until(handler.open_inputs)
    (request,) = handler.open_inputs()
    assert request.event.prefix == "Where?"
    assert set(request.schema["properties"]) == {"street", "number"}
    assert request.schema["required"] == ["street"]
    request.respond(street="Quay")
    await handler


async def test_a_model_may_be_the_question() -> None:
    handler = Asks(Address(street="Quay"), bool).run()
    await until(handler.open_inputs)
    (request,) = handler.open_inputs()
    assert (request.event.prefix, request.event.details) == ("Address", {"street": "Quay", "number": 1})
    request.respond(True)
    assert await handler is True


async def test_an_event_of_the_program_may_be_the_question() -> None:
    class Confirm(InputRequiredEvent):
        amount: int

    handler = Asks(Confirm(amount=3), bool).run()
    await until(handler.open_inputs)
    (request,) = handler.open_inputs()
    assert isinstance(request.event, Confirm)
    request.respond("true")
    assert await handler is True


async def test_an_event_that_is_sent_answers_too_and_the_step_asks_again_if_it_does_not_fit() -> None:
    handler = Asks("Publish?", bool).run()
    seen: list[str] = []
    async for request in handler.inputs():
        seen.append(request.event.problem)
        answer = "perhaps" if len(seen) == 1 else "yes"
        await handler.send_event(HumanResponseEvent(response=answer))
    assert await handler is True
    assert seen[0] == ""
    assert "boolean" in seen[1]


async def test_several_questions_have_names_of_their_own() -> None:
    class Flow(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            found = await ctx.map(lambda name: ctx.ask(f"Age of {name}?", int), ["Ann", "Bo"])
            return StopEvent(result=[*found, await ctx.ask("Sure?", bool, key="sure")])

    handler = Flow().run()
    ids: list[str] = []
    async for request in handler.inputs():
        ids.append(request.id)
        request.respond({"Age of Ann?": 30, "Age of Bo?": "40", "Sure?": True}[request.event.prefix])
    assert await handler == [30, 40, True]
    assert sorted(ids) == ["map 1[0]/ask 1", "map 1[1]/ask 1", "sure"]


async def test_a_question_times_out() -> None:
    with pytest.raises(TimeoutError, match="longer than its timeout"):
        await Asks("Still there?", timeout=0.01).run()


async def test_a_question_survives_a_snapshot() -> None:
    handler = Asks("Publish?", bool).run()
    await until(handler.open_inputs)
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(Asks("Publish?", bool), payload)
    async for request in again.inputs():
        with pytest.raises(InputResponseError):
            request.respond("perhaps")
        request.respond("yes")
    assert await again is True


async def test_a_stored_question_is_answered_while_no_process_drives_the_run() -> None:
    flow = Asks("Publish?", bool).with_store(MemoryStore())
    first = flow.run(run_id="a")
    await until(first.open_inputs)
    await first.interrupt()
    (request,) = await flow.open_inputs("a")
    assert request.schema["properties"] == {"response": {"type": "boolean"}}
    with pytest.raises(InputResponseError, match="valid boolean"):
        request.answer(response="perhaps")
    await flow.send_to_run("a", request.answer(response="yes"), key=request.answer_key)
    assert await flow.resume("a") is True


@pytest.mark.parametrize(
    ("question", "options", "text"),
    [
        ((3,), {}, "a text or a pydantic model"),
        (("?", object()), {}, "a type that pydantic can validate"),
        (("?", int), {"choices": ["1"]}, "use a Literal or an Enum"),
        (("?",), {"choices": "ab"}, "a list of texts"),
        (("?",), {"timeout": "1"}, "timeout= takes seconds"),
    ],
)
async def test_wrong_arguments_are_refused(question: tuple[Any, ...], options: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        await Asks(*question, **options).run()
