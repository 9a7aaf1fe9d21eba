"""handler.inputs(): what a run asks people, and how they answer."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Literal

import pytest

from batonflow.agents import FunctionAgent
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.tools import tool
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputClosedError,
    InputRequest,
    InputRequiredEvent,
    InputResponseError,
    MemoryStore,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowHandler,
    bridge,
    inputs,
    step,
)
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.workflow_core.flows import names, resume, saved, streamed, until


class Question(InputRequiredEvent):
    text: str
    user: str = "ann"


class Verdict(HumanResponseEvent):
    id: str
    approved: bool
    reason: str = ""


class Choice(HumanResponseEvent):
    colour: Literal["red", "blue"]


class Refund(InputRequiredEvent):
    id: str
    amount: int


class Asking(Workflow):
    """Asks with a wait, and gives back the answer."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(
            HumanResponseEvent, waiter_event=Question(text="go on?"), requirements={"user": "ann"}
        )
        return StopEvent(result=(answer.response, answer.user))


class Refunding(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        verdict = await ctx.wait_for_event(Verdict, waiter_event=Refund(id="r1", amount=5), requirements={"id": "r1"})
        return StopEvent(result=verdict.approved)


class Streaming(Workflow):
    """Streams its question first, and then waits."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Question(text="go on?", user="bob"))
        answer = await ctx.wait_for_event(HumanResponseEvent, requirements={"user": "bob"})
        return StopEvent(result=(answer.response, answer.user))


class Returning(Workflow):
    """Returns its question; another step takes the answer."""

    @step
    async def ask(self, ev: StartEvent) -> Question:
        return Question(text="which?")

    @step
    async def take(self, ev: Choice) -> StopEvent:
        return StopEvent(result=ev.colour)


class Several(Workflow):
    """Asks everybody who is named."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        asked = [
            ctx.wait_for_event(
                HumanResponseEvent, waiter_event=Question(text=user, user=user), requirements={"user": user}
            )
            for user in ev.users
        ]
        return StopEvent(result=[answer.response for answer in await asyncio.gather(*asked)])


async def first(handler: WorkflowHandler) -> InputRequest:
    """The first request of a run."""
    async for request in handler.inputs():
        return request
    raise AssertionError("the run asked nothing")


async def restored(flow: Workflow, handler: WorkflowHandler, change: Callable[[Any], None] | None = None) -> Any:
    payload = saved(handler)
    await handler.cancel_run()
    if change is not None:
        change(payload)
    return resume(flow, payload)


# --- the answer -------------------------------------------------------------------------------------------------------


async def test_the_answer_has_what_the_wait_requires_filled_in():
    handler = Asking().run()
    request = await first(handler)
    assert (request.event.text, request.is_open) == ("go on?", True)
    request.respond("yes")
    assert await handler == ("yes", "ann")
    assert not request.is_open


async def test_the_answer_is_of_the_class_that_is_awaited():
    handler = Refunding().run()
    (await first(handler)).respond(approved=True)
    assert await handler is True


async def test_the_schema_tells_what_is_left_to_say():
    request = await first(handler := Refunding().run())
    assert request.schema["title"] == "Verdict"
    assert request.schema["properties"].keys() == {"approved", "reason"}
    assert request.schema["required"] == ["approved"]
    assert json.loads(json.dumps(request.schema)) == request.schema
    await handler.cancel_run()


async def test_the_schema_of_an_answer_without_fields_is_a_text():
    request = await first(handler := Asking().run())
    assert request.schema["properties"] == {"response": {"type": "string"}}
    assert request.schema["required"] == ["response"]
    await handler.cancel_run()


async def test_a_field_that_json_schema_does_not_know_is_named_at_least():
    class Called(HumanResponseEvent):
        back: Callable[[], None]

    class Flow(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Called, waiter_event=Question(text="?"))
            return StopEvent()

    request = await first(handler := Flow().run())
    assert request.schema["properties"] == {"back": {}}
    request.respond(back=print)
    await handler


async def test_a_question_streamed_before_the_wait_belongs_to_it():
    handler = Streaming().run()
    request = await first(handler)
    assert request.event.text == "go on?"
    request.respond("yes")
    assert await handler == ("yes", "bob")


async def test_a_question_may_be_answered_to_another_step():
    class Flow(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> Question | Choice:
            ctx.send_event(Choice(colour="red"))
            return Question(text="who?", user="eve")

        @step
        async def wait(self, ctx: Context, ev: Choice) -> StopEvent:
            answer = await ctx.wait_for_event(HumanResponseEvent, requirements={"user": "eve"})
            return StopEvent(result=(answer.response, answer.user))

    handler = Flow().run()
    (await first(handler)).respond("me")
    assert await handler == ("me", "eve")


async def test_a_returned_question_is_answered_to_the_step_that_takes_the_answer():
    handler = Returning().run()
    request = await first(handler)
    assert request.schema["properties"]["colour"]["enum"] == ["red", "blue"]
    request.respond(colour="blue")
    assert await handler == "blue"


async def test_where_several_answers_may_be_meant_the_caller_has_to_say_which():
    class Flow(Returning):
        @step
        async def judge(self, ev: Verdict) -> StopEvent:
            return StopEvent(result=ev.approved)

    handler = Flow().run()
    request = await first(handler)
    with pytest.raises(InputResponseError, match=r"any of Choice, Verdict: send .* with handler.ctx.send_event"):
        request.respond(approved=True)
    handler.ctx.send_event(Verdict(id="", approved=True))
    assert await handler is True


async def test_a_question_of_a_workflow_inside_is_answered_through_the_parent():
    class Outer(Workflow):
        @step
        async def go(self, inner: Asking, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await inner.run())

    flow = Outer(workflows={"inner": Asking()})
    handler = flow.run()
    await first(handler)
    again = await restored(flow, handler)
    (await first(again)).respond("yes")
    assert await again == ("yes", "ann")


async def test_an_agents_approval_is_answered_like_any_other_question():
    published: list[str] = []

    @tool(requires_approval=True)
    def publish(title: str) -> str:
        """Publish an article."""
        published.append(title)
        return "published"

    agent = FunctionAgent(tools=[publish], llm=ScriptedLLM([[tool_call("publish", title="news")], "Done."]))
    handler = agent.run("go")
    await first(handler)
    handler = await restored(agent, handler)
    request = await first(handler)
    assert request.schema["properties"].keys() == {"approved", "arguments", "reason"}
    request.respond(approved=True)
    assert str(await handler) == "Done."
    assert published == ["news"]


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_open_questions_come_first_then_those_to_come_until_the_run_ends():
    class Flow(Several):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            both = await super().ask(ctx, ev)
            last = await ctx.wait_for_event(HumanResponseEvent, waiter_event=Question(text="last"))
            return StopEvent(result=[*both.result, last.response])

    handler = Flow().run(users=["ann", "bob"])
    await until(lambda: len(handler.open_inputs()) == 2)
    asked = []
    async for request in handler.inputs():
        asked.append(request.event.text)
        request.respond(request.event.text.upper())
    assert asked == ["ann", "bob", "last"]
    assert await handler == ["ANN", "BOB", "LAST"]


async def test_each_reader_gets_every_question_once():
    async def read() -> list[str]:
        return [request.event.text async for request in handler.inputs()]

    handler = Several().run(users=["ann", "bob"])
    readers = [asyncio.create_task(read()) for _ in range(2)]
    async for request in handler.inputs():
        await asyncio.sleep(0)
        request.respond("ok")
    assert await asyncio.gather(*readers) == [["ann", "bob"]] * 2


async def test_a_question_that_was_answered_is_not_given_any_more():
    handler = Several().run(users=["ann", "bob"])
    await until(lambda: len(handler.open_inputs()) == 2)
    handler.ctx.send_event(HumanResponseEvent(response="first", user="ann"))
    await until(lambda: len(handler.open_inputs()) == 1)
    request = await first(handler)
    assert request.event.user == "bob"
    request.respond("second")
    assert await handler == ["first", "second"]


async def test_a_returned_question_is_closed_by_whoever_answers_it():
    class Flow(Returning):
        @step
        async def take(self, ctx: Context, ev: Choice) -> Question | StopEvent:
            taken = [*await ctx.store.get("taken", []), ev.colour]
            await ctx.store.set("taken", taken)
            return StopEvent(result=taken) if len(taken) == 3 else Question(text="another?")

    handler = Flow().run()
    request = await first(handler)
    handler.ctx.send_event(Choice(colour="red"))
    await until(lambda: not request.is_open)
    [another] = handler.open_inputs()
    another.respond(colour="blue")
    await until(lambda: handler.open_inputs())
    [third] = handler.open_inputs()
    assert third.event is not another.event
    third.respond(colour="red")
    assert await handler == ["red", "blue", "red"]


async def test_an_answer_closes_its_own_question_and_no_other():
    class Flow(Returning):
        @step
        async def also(self, ev: StartEvent) -> Question:
            return Question(text="and which?")

        @step
        async def take(self, ctx: Context, ev: Choice) -> StopEvent | None:
            taken = [*await ctx.store.get("taken", []), ev.colour]
            await ctx.store.set("taken", taken)
            return StopEvent(result=taken) if len(taken) == 2 else None

    handler = Flow().run()
    await until(lambda: len(handler.open_inputs()) == 2)
    one, other = handler.open_inputs()
    other.respond(colour="red")
    await until(lambda: saved(handler)["state"]["state_data"].get("_data"))
    assert (one.is_open, other.is_open) == (True, False)
    one.respond(colour="blue")
    assert await handler == ["red", "blue"]


async def test_reading_questions_leaves_the_stream_alone():
    handler = Asking().run()
    async for request in handler.inputs():
        request.respond("yes")
    assert names(await streamed(handler)) == ["Question", "StopEvent"]


async def test_a_run_that_asks_nothing_gives_nothing():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(InputRequiredEvent(prefix="nobody listens"))
            await ctx.wait_for_event(HumanResponseEvent, waiter_event=Event(), timeout=0.001)
            return StopEvent()

    handler = Flow().run()
    with pytest.raises(TimeoutError):
        await handler
    assert [request async for request in handler.inputs()] == []


async def test_reading_ends_when_the_run_is_cancelled():
    handler = Asking().run()
    await first(handler)

    async def read() -> int:
        return len([request async for request in handler.inputs()])

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    await handler.cancel_run()
    assert await reader == 1
    assert handler.open_inputs() == []


async def test_a_question_of_a_failed_attempt_is_not_asked_for_the_next_one():
    class Flow(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            attempt = ctx.retry_info().retry_number
            ctx.write_event_to_stream(Question(text=f"attempt {attempt}"))
            if attempt == 0:
                raise ConnectionError
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent()

    handler = Flow().run()
    request = await first(handler)
    assert request.event.text == "attempt 1"
    request.respond()
    await handler


async def test_a_question_is_tied_to_the_wait_of_its_own_step_first():
    class Flow(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> Choice | Verdict | None:
            ctx.send_event(Choice(colour="red"))
            ctx.send_event(Verdict(id="", approved=True))

        @step
        async def listen(self, ctx: Context, ev: Choice) -> None:
            await ctx.wait_for_event(HumanResponseEvent, timeout=None)

        @step
        async def ask(self, ctx: Context, ev: Verdict) -> StopEvent:
            ctx.write_event_to_stream(Question(text="which?"))
            return StopEvent(result=(await ctx.wait_for_event(Choice)).colour)

    handler = Flow().run()
    await until(lambda: sum(len(w["collected_waiters"]) for w in saved(handler)["workers"].values()) == 2)
    (await first(handler)).respond(colour="blue")
    assert await handler == "blue"


async def test_open_questions_can_be_listed_and_named():
    handler = Several().run(users=["ann", "bob"])
    assert handler.open_inputs() == []
    await until(lambda: len(handler.open_inputs()) == 2)
    by_id = {request.id: request for request in handler.open_inputs()}
    assert len(by_id) == 2
    for request in by_id.values():
        request.respond(request.event.user)
    assert handler.open_inputs() == []
    assert await handler == ["ann", "bob"]


# --- after a restore --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flow", [Asking(), Streaming()])
async def test_an_open_question_is_given_again_but_not_streamed_again(flow: Workflow):
    handler = flow.run()
    request = await first(handler)
    again = await restored(flow, handler)
    [same] = again.open_inputs()
    assert (same.id, same.event) == (request.id, request.event)
    (await first(again)).respond("yes")
    assert (await again)[0] == "yes"
    assert names(await streamed(again)) == ["StopEvent"]


async def test_a_reader_gets_a_question_once_although_its_step_asks_again():
    flow = Asking()
    handler = flow.run()
    await first(handler)
    again = await restored(flow, handler)
    given: list[InputRequest] = []
    async with asyncio.timeout(30):
        async for request in again.inputs():
            given.append(request)
            await asyncio.sleep(0.001)
            if len(given) == 1:
                asyncio.get_running_loop().call_later(0.01, request.respond, "yes")
    assert len(given) == 1
    assert await again == ("yes", "ann")


@pytest.mark.parametrize("flow", [Asking(), Streaming()])
async def test_a_question_whose_answer_is_on_its_way_is_not_given_again(flow: Workflow):
    handler = flow.run()
    (await first(handler)).respond("yes")
    again = await restored(flow, handler)
    assert again.open_inputs() == []
    assert (await again)[0] == "yes"


async def test_a_returned_question_is_given_again():
    flow = Returning()
    handler = flow.run()
    request = await first(handler)
    again = await restored(flow, handler)
    [same] = again.open_inputs()
    assert (same.id, same.event) == (request.id, request.event)
    third = await restored(flow, again)
    (await first(third)).respond(colour="red")
    assert await third == "red"


async def test_a_question_streamed_before_the_snapshot_is_tied_to_the_wait_behind_it():
    gate = asyncio.Event()

    class Flow(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(Question(text="go on?"))
            await gate.wait()
            return StopEvent(result=(await ctx.wait_for_event(Choice)).colour)

    flow = Flow()
    handler = flow.run()
    await asyncio.sleep(0.001)
    again = await restored(flow, handler)
    assert again.open_inputs() == []
    gate.set()
    (await first(again)).respond(colour="red")
    assert await again == "red"


async def test_a_snapshot_without_questions_gives_them_when_its_step_asks_again():
    def forget(payload: dict[str, Any]) -> None:
        for worker in payload["workers"].values():
            for waiter in worker["collected_waiters"]:
                del waiter["question"]

    flow = Asking()
    handler = flow.run()
    await first(handler)
    again = await restored(flow, handler, forget)
    (await first(again)).respond("yes")
    assert await again == ("yes", "ann")
    assert names(await streamed(again)) == ["StopEvent"]


async def test_a_question_that_cannot_be_written_or_read_does_not_spoil_the_snapshot():
    class Odd(InputRequiredEvent):
        what: Any

    class Flow(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Verdict, waiter_event=Odd(what=print), requirements={"id": "r1"})
            return StopEvent()

    flow = Flow()
    handler = flow.run()
    await first(handler)
    again = await restored(flow, handler)
    (await first(again)).respond(approved=True)
    await again


# --- what is wrong ----------------------------------------------------------------------------------------------------


async def test_a_request_is_answered_once():
    handler = Asking().run()
    request = await first(handler)
    [other] = handler.open_inputs()
    request.respond("yes")
    for late in (request, other):
        with pytest.raises(InputClosedError, match="answered before"):
            late.respond("no")
    assert await handler == ("yes", "ann")


async def test_nobody_waits_for_an_answer_after_the_time_is_up():
    class Flow(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            with pytest.raises(TimeoutError):
                await ctx.wait_for_event(Choice, waiter_event=Question(text="quick!"), timeout=0.001)
            return StopEvent(result=(await ctx.wait_for_event(Choice)).colour)

    handler = Flow().run()
    request = await first(handler)
    await until(lambda: not request.is_open)
    with pytest.raises(InputClosedError, match="not open any more"):
        request.respond(colour="red")
    handler.ctx.send_event(Choice(colour="blue"))
    assert await handler == "blue"


async def test_an_answer_that_does_not_validate_says_what_is_wrong_and_leaves_the_question_open():
    handler = Refunding().run()
    request = await first(handler)
    with pytest.raises(InputResponseError, match=r"Verdict cannot be made of this answer: approved: Field required"):
        request.respond("yes")
    with pytest.raises(InputResponseError, match=r"approved: Input should be a valid boolean"):
        request.respond(approved="perhaps")
    with pytest.raises(InputResponseError, match=r"id must be 'r1'.* leave it out"):
        request.respond(approved=True, id="r2")
    request.respond(approved=False)
    assert await handler is False


async def test_no_answer_is_taken_after_the_end():
    handler = Returning().run()
    request = await first(handler)
    await handler.cancel_run()
    with pytest.raises(InputClosedError, match="its step or run is over"):
        request.respond(colour="red")


async def test_an_answer_may_come_from_another_thread():
    handler = Asking().run()
    request = await first(handler)
    await asyncio.to_thread(request.respond, "yes")
    assert await handler == ("yes", "ann")


async def test_who_begins_to_read_while_the_run_is_out_of_memory_gets_the_question_too():
    flow = Asking(store=MemoryStore(), timeout=None, idle_release=0)
    handler = flow.run()
    known = handler.inputs()
    earlier = await anext(known)
    await until(lambda: not handler.ctx.run.state.waiters)  # it left memory
    request = await first(handler)
    assert request.event == earlier.event
    request.respond("yes")
    assert await handler == ("yes", "ann")
    assert [again async for again in known] == []  # this reader knows it already


class TestNobodyToAsk:
    """run_sync: whoever called it has no handler."""

    class Ask(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            question = Question(text="go on?")
            try:
                answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=question, timeout=ev.wait)
            except TimeoutError:
                return StopEvent(result="nobody")
            return StopEvent(result=answer.response)

        @step
        async def reply(self, ctx: Context, ev: StartEvent) -> None:
            if ev.get("replies"):
                ctx.send_event(HumanResponseEvent(response="yes"))

    def test_a_question_that_stays_open_is_said(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bridge, "SECONDS_ALONE", 0)
        monkeypatch.setattr(inputs, "SECONDS_TO_ANSWER", 0)
        assert self.Ask().run_sync(wait=0.3) == "nobody"
        [said] = [record.message for record in caplog.records]
        assert "waits for a person to answer its Question" in said
        assert "use run() and inputs() of its handler or, for agents, approvals()" in said

    def test_one_that_is_answered_is_not(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bridge, "SECONDS_ALONE", 0)
        monkeypatch.setattr(inputs, "SECONDS_TO_ANSWER", 0.1)
        assert self.Ask().run_sync(wait=5, replies=True) == "yes"
        assert not caplog.records
