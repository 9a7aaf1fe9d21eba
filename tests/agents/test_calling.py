"""Tool calls of agents: limits on how often a tool runs, keys that name a call, and what a call reports."""

import asyncio
import json
from collections.abc import AsyncGenerator, Generator
from datetime import date
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import AfterValidator, BaseModel, SecretStr

from batonflow import retry_policy
from batonflow.agents import (
    AgentOutput,
    AgentWorkflow,
    Budget,
    CodeActAgent,
    FunctionAgent,
    ReActAgent,
    Replace,
    ToolCall,
    ToolCallResult,
    ToolProgress,
)
from batonflow.agents.memory import ChatMemoryBuffer
from batonflow.llms import ChatMessage, ImageBlock, ScriptedLLM, TextBlock, ToolCallBlock, tool_call
from batonflow.llms.tool_protocol import wire_name
from batonflow.tools import FunctionTool, tool
from batonflow.workflow_core import Context, Event
from batonflow.workflow_core.errors import WorkflowCancelledByUser
from batonflow.workflow_core.retry_policy import stop_after_attempt, wait_none

RAN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@tool(max_calls=2)
async def look_up(topic: str) -> str:
    """Look something up."""
    RAN.append(topic)
    return f"all about {topic}"


@tool(max_calls=1, requires_approval=True)
def publish(title: str) -> str:
    """Publish."""
    RAN.append(title)
    return f"published {title}"


def agent(*turns: Any, **options: Any) -> FunctionAgent:
    options.setdefault("tools", [look_up, publish])
    options.setdefault("name", "writer")
    return FunctionAgent(description="Writes.", llm=ScriptedLLM(turns), **options)


def find(*topics: str) -> list[Any]:
    return [tool_call("look_up", topic=topic) for topic in topics]


def contents(output: Any) -> list[str]:
    return [call.tool_output.content for call in output.tool_calls if isinstance(call, ToolCallResult)]


USED_UP = "Tool look_up was not run: it may run 2 times for this task, and did."


class TestLimitedTools:
    async def test_run_so_often_and_then_the_model_is_told(self) -> None:
        output = await agent(find("a"), find("b"), find("c"), "Done.").run("Go.")
        assert RAN == ["a", "b"]
        assert contents(output)[2].startswith(USED_UP)

    async def test_also_when_called_at_the_same_time(self) -> None:
        output = await agent(find("a", "b", "c", "d"), "Done.").run("Go.")
        assert RAN == ["a", "b"]
        assert [text.startswith(USED_UP) for text in contents(output)] == [False, False, True, True]

    async def test_while_another_tool_edits_the_state(self) -> None:
        editing = asyncio.Event()

        async def edit(ctx: Context) -> str:
            """Edit."""
            async with ctx.store.edit_state():
                editing.set()
                await asyncio.sleep(0.01)
            return "edited"

        calls = [tool_call("edit"), *find("a", "b", "c", "d")]
        output = await agent(calls, "Done.", tools=[edit, look_up]).run("Go.")
        assert editing.is_set()
        assert len(RAN) == 2
        assert sum(text.startswith(USED_UP) for text in contents(output)) == 2

    async def test_calls_whose_arguments_do_not_fit_do_not_count(self) -> None:
        wrong = [tool_call("look_up"), tool_call("look_up", topic=["a"])]
        await agent([*wrong, *find("a")], find("b"), "Done.").run("Go.")
        assert RAN == ["a", "b"]

    async def test_nor_those_that_a_person_denies(self) -> None:
        handler = agent(tool_call("publish", title="a"), tool_call("publish", title="b"), "Done.").run("Go.")
        async for request in handler.approvals():
            request.approve() if request.arguments["title"] == "b" else request.deny()
        await handler
        assert RAN == ["b"]

    async def test_a_person_is_not_asked_in_vain(self) -> None:
        handler = agent(tool_call("publish", title="a"), tool_call("publish", title="b"), "Done.").run("Go.")
        asked: list[str] = []
        async for request in handler.approvals():
            asked.append(request.arguments["title"])
            request.approve()
        output = await handler
        assert (asked, RAN) == (["a"], ["a"])
        assert contents(output)[1].startswith("Tool publish was not run: it may run 1 times")

    async def test_retries_of_one_call_count_once(self) -> None:
        @tool(max_calls=1, retry=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
        def flaky() -> str:
            """Fail at first."""
            RAN.append("try")
            if len(RAN) < 3:
                raise OSError("not yet")
            return "there"

        output = await agent(tool_call("flaky"), "Done.", tools=[flaky]).run("Go.")
        assert contents(output) == ["there"]

    async def test_one_that_fails_has_run(self) -> None:
        @tool(max_calls=1)
        def broken() -> str:
            """Fail."""
            RAN.append("try")
            raise OSError("no")

        await agent(tool_call("broken"), tool_call("broken"), "Done.", tools=[broken]).run("Go.")
        assert RAN == ["try"]

    async def test_the_agents_of_a_team_share_the_limit(self) -> None:
        handoff = tool_call("handoff", to_agent="second", reason="it knows")
        first, second = agent(find("a", "b"), handoff, name="first"), agent(find("c"), "Done.", name="second")
        await AgentWorkflow(agents=[first, second], root_agent="first").run("Go.")
        assert RAN == ["a", "b"]

    async def test_every_run_begins_anew(self) -> None:
        made = agent(find("a", "b"), "One.", find("c", "d"), "Two.")
        ctx: Context[Any] = Context(made)
        for _ in range(2):
            await made.run("Go.", ctx=ctx)
        assert RAN == ["a", "b", "c", "d"]

    async def test_what_has_run_before_an_interruption_has_run(self) -> None:
        made = agent(find("a", "b"), tool_call("publish", title="x"), find("c"), "Done.")
        handler = made.run("Go.")
        requests = handler.approvals()
        await anext(requests)
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        await requests.aclose()
        await handler.cancel_run()
        handler = made.run(ctx=Context.from_dict(made, saved))
        async for request in handler.approvals():
            request.approve()
        await handler
        assert RAN == ["a", "b", "x"]

    async def test_calls_in_code_count(self) -> None:
        code = "<execute>\nfor topic in ['a', 'b', 'c']:\n    print(await look_up(topic=topic))\n</execute>"
        output = await CodeActAgent(llm=ScriptedLLM([code, "Done."]), tools=[look_up]).run("Go.")
        assert RAN == ["a", "b"]
        assert USED_UP in contents(output)[0]


class TestCancelled:
    @pytest.mark.parametrize("seconds", [None, 60.0])
    async def test_a_tool_that_waited_for_what_was_cancelled_has_failed(self, seconds: float | None) -> None:
        async def wait() -> str:
            """Wait for something that is cancelled."""
            work = asyncio.create_task(asyncio.sleep(60))
            work.cancel()
            await work
            return "done"

        options = {} if seconds is None else {"budget": Budget(seconds=seconds)}
        output = await agent(tool_call("wait"), "Then not.", tools=[wait], **options).run("Go.")
        (call,) = output.tool_calls
        assert str(output) == "Then not."
        assert call.tool_output.is_error
        assert call.tool_output.content == "Tool 'wait' gave no result: a call that it awaited was cancelled"

    async def test_code_can_catch_that_and_the_call_has_a_result(self) -> None:
        async def wait() -> str:
            """Wait for something that is cancelled."""
            raise asyncio.CancelledError

        text = "try:\n    await wait()\nexcept RuntimeError as err:\n    print('caught', err)"
        made = CodeActAgent(llm=ScriptedLLM([f"<execute>\n{text}\n</execute>", "Done."]), tools=[wait])
        handler = made.run("Go.")
        events = [event async for event in handler.stream_events()]
        await handler
        results = {event.tool_name: event.tool_output.content for event in events if isinstance(event, ToolCallResult)}
        assert results["execute"].startswith("caught")
        assert "a call that it awaited was cancelled" in results["wait"]

    async def test_a_run_that_is_cancelled_ends(self) -> None:
        begun = asyncio.Event()

        async def wait() -> str:
            """Wait."""
            begun.set()
            await asyncio.Event().wait()
            return "done"

        handler = agent(tool_call("wait"), "Done.", tools=[wait]).run("Go.")
        await begun.wait()
        await handler.cancel_run()
        with pytest.raises(WorkflowCancelledByUser):
            await handler


class TestKeys:
    async def test_a_call_is_named_by_run_turn_and_place(self) -> None:
        keys: list[str] = []

        def order(item: str, idempotency_key: str) -> str:
            """Order."""
            keys.append(idempotency_key)
            return item

        two = [tool_call("order", item="rope"), tool_call("order", item="rope")]
        made = agent(two, tool_call("order", item="rope"), "Done.", tools=[order])
        await made.run("Go.", run_id="voyage")
        assert sorted(keys) == ["voyage/1/0", "voyage/1/1", "voyage/2/0"]

    async def test_it_is_no_argument_for_models(self) -> None:
        def order(item: str, idempotency_key: str) -> str:
            """Order."""
            RAN.append(idempotency_key)
            return item

        made = agent(tool_call("order", item="rope", idempotency_key="mine"), "Done.", tools=[order])
        await made.run("Go.", run_id="voyage")
        assert "idempotency_key" not in made.the_llm().requests[0].tools[0].parameters["properties"]  # type: ignore[attr-defined]
        assert "mine" not in RAN

    async def test_two_agents_behind_one_tool_have_different_ones(self) -> None:
        def order(item: str, idempotency_key: str) -> str:
            """Order."""
            RAN.append(idempotency_key)
            return item

        helper = agent(*[tool_call("order", item="rope")] * 2, "One.", "Two.", tools=[order], name="helper")
        calls = [tool_call("helper", input="a"), tool_call("helper", input="b")]
        await agent(calls, "Done.", tools=[helper.as_tool()]).run("Go.", run_id="voyage")
        assert sorted(RAN) == ["voyage/helper#2/1/0", "voyage/helper/1/0"]

    async def test_the_key_of_a_call_that_waits_for_a_person_survives_an_interruption(self) -> None:
        @tool(requires_approval=True)
        def order(item: str, idempotency_key: str) -> str:
            """Order."""
            RAN.append(idempotency_key)
            return item

        made = agent(tool_call("order", item="rope"), "Done.", tools=[order])
        handler = made.run("Go.", run_id="voyage")
        requests = handler.approvals()
        await anext(requests)
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        await requests.aclose()
        await handler.cancel_run()
        handler = made.run(ctx=Context.from_dict(made, saved))
        async for request in handler.approvals():
            request.approve()
        await handler
        assert RAN == ["voyage/1/0"]


class Page(Event):
    """A page was read."""

    number: int


class TestProgress:
    async def test_what_a_generator_yields_is_shown_at_once(self) -> None:
        seen: list[Any] = []

        async def read() -> AsyncGenerator[Any, None]:
            """Read."""
            yield "opened"
            yield Page(number=1)
            seen.append("end")
            yield 0.5

        def count() -> Generator[int, None, str]:
            """Count."""
            yield from range(2)
            return "two"

        handler = agent([tool_call("read"), tool_call("count")], "Done.", tools=[read, count]).run("Go.")
        shown = [event async for event in handler.stream_events() if isinstance(event, ToolProgress | Page)]
        reports = [(one.tool_name, one.value) for one in shown if isinstance(one, ToolProgress)]
        assert [one for one in reports if one[0] == "read"] == [("read", "opened"), ("read", 0.5)]
        assert [one for one in reports if one[0] == "count"] == [("count", 0), ("count", 1)]
        assert [one.number for one in shown if isinstance(one, Page)] == [1]
        ids = {one.tool_name: one.tool_id for one in shown if isinstance(one, ToolProgress)}
        calls = {call.tool_name: call.tool_id for call in (await handler).tool_calls}
        assert ids == calls


class Letter(BaseModel):
    to: str


class TestWhatIsToldOfACall:
    """What the model has sent stays what it has sent: in records, in snapshots and in the conversation."""

    @staticmethod
    def booking(booked: list[Any]) -> Any:
        class Place(BaseModel):  # of the function: no snapshot could find it again
            name: str

        @tool(requires_approval=True)
        def book(day: date, price: Decimal, place: Place) -> str:
            """Book."""
            booked.append((day, price, place.name))
            return f"booked {place.name}"

        return book

    SENT: ClassVar[dict[str, Any]] = {"day": "2026-01-02", "price": "1.50", "place": {"name": "Ulm"}}

    @pytest.mark.parametrize("store", [None, "memory:"])
    async def test_of_an_approved_one_it_is_what_the_model_sent(self, store: str | None) -> None:
        booked: list[Any] = []
        options = {} if store is None else {"store": store}
        turns = [tool_call("book", **self.SENT), tool_call("book", **self.SENT), "Booked."]
        handler = agent(*turns, tools=[self.booking(booked)], **options).run("Go.")
        async for request in handler.approvals():
            json.dumps(handler.ctx.to_dict())  # the second time with what came of the first
            request.approve()
        output = await handler
        assert booked == [(date(2026, 1, 2), Decimal("1.50"), "Ulm")] * 2
        assert [call.tool_kwargs for call in output.tool_calls] == [self.SENT, self.SENT]

    async def test_of_an_edited_one_it_is_what_the_person_said_as_data(self) -> None:
        booked: list[Any] = []
        handler = agent(tool_call("book", **self.SENT), "Booked.", tools=[self.booking(booked)], store="memory:").run(
            "Go."
        )
        async for request in handler.approvals():
            request.approve(arguments={**self.SENT, "day": date(2026, 1, 3), "price": Decimal("2.5")})
        output = await handler
        assert booked == [(date(2026, 1, 3), Decimal("2.5"), "Ulm")]
        assert output.tool_calls[0].tool_kwargs == {**self.SENT, "day": "2026-01-03", "price": "2.5"}

    async def test_of_one_that_a_hook_replaces_it_is_what_the_hook_said_as_data(self) -> None:
        seen: list[Any] = []

        def take(price: Decimal, raw: bytes = b"") -> str:
            """Take."""
            seen.append((price, raw))
            return "taken"

        def hook(ctx: Context[Any], call: ToolCall) -> Replace:
            return Replace({"price": Decimal("2.5"), "raw": b"\xff"})

        output = await agent(
            tool_call("take", price="1"), "Done.", tools=[take], before_tool=[hook], store="memory:"
        ).run("Go.")
        assert seen == [(Decimal("2.5"), b"\xff")]
        assert output.tool_calls[0].tool_kwargs == {"price": "2.5", "raw": "b'\\xff'"}

    @pytest.mark.parametrize("by", ["tool", "hook"])
    async def test_changes_in_place_do_not_change_what_the_model_has_asked_for(self, by: str) -> None:
        seen: list[Any] = []

        def take(items, more: dict[str, Any]) -> str:  # type: ignore[no-untyped-def]
            """Take."""
            if by == "tool":
                items.pop(0)
                more["deep"].append(3)
            seen.append((items, more))
            return "taken"

        def hook(ctx: Context[Any], call: ToolCall) -> None:
            call.tool_kwargs["items"].append("c")

        sent = {"items": ["a", "b"], "more": {"deep": [1]}}
        made = agent(tool_call("take", **sent), "Done.", tools=[take], before_tool=[hook] if by == "hook" else [])
        handler = made.run("Go.")
        asked = [event.tool_kwargs async for event in handler.stream_events() if type(event) is ToolCall]
        await handler
        assert seen == [(["b"], {"deep": [1, 3]}) if by == "tool" else (["a", "b", "c"], {"deep": [1]})]
        assert asked == [sent]
        assert isinstance(made.llm, ScriptedLLM)
        (block,) = (one for one in made.llm.requests[1].messages[1].blocks if isinstance(one, ToolCallBlock))
        assert block.tool_kwargs == sent

    @pytest.mark.parametrize("edited", [False, True])
    async def test_what_a_person_approved_is_what_runs(self, edited: bool) -> None:
        ran: list[int] = []

        @tool(requires_approval=True)
        def pay(cents: Annotated[int, AfterValidator(lambda euros: euros * 100)]) -> str:
            """Pay."""
            ran.append(cents)
            return "paid"

        handler = agent(tool_call("pay", cents=5), "Done.", tools=[pay]).run("Go.")
        async for request in handler.approvals():
            assert request.arguments == {"cents": 500}
            request.approve(arguments={"cents": 7} if edited else None)
        output = await handler
        assert ran == [700 if edited else 500]
        assert output.tool_calls[0].tool_kwargs == {"cents": 700 if edited else 5}

    async def test_arguments_that_are_approved_as_they_were_shown_are_not_read_again(self) -> None:
        ran: list[Any] = []

        @tool(requires_approval=True)
        def sign(key: bytes, more: Any) -> str:
            """Sign."""
            ran.append((key, more))
            return "signed"

        def hook(ctx: Context[Any], call: ToolCall) -> Replace:
            return Replace({"key": b"\xff", "more": {4: date(2026, 1, 2)}})

        handler = agent(tool_call("sign", key="a", more=1), "Done.", tools=[sign], before_tool=[hook]).run("Go.")
        async for request in handler.approvals():
            request.approve(arguments=request.arguments)
        await handler
        assert ran == [(b"\xff", {4: date(2026, 1, 2)})]

    async def test_an_edit_that_only_seems_to_be_the_same_is_one(self) -> None:
        ran: list[Any] = []

        @tool(requires_approval=True)
        def switch(it: Any) -> str:
            """Switch."""
            ran.append(it)
            return "on"

        handler = agent(tool_call("switch", it=1), "Done.", tools=[switch]).run("Go.")
        async for request in handler.approvals():
            request.approve(arguments={"it": True})
        await handler
        assert [type(one) for one in ran] == [bool]

    @pytest.mark.parametrize("given", [500, 500.0, None])
    async def test_a_number_is_the_same_however_it_is_written(self, given: float | None) -> None:
        ran: list[float] = []

        @tool(requires_approval=True)
        def pay(cents: Annotated[float, AfterValidator(lambda euros: euros * 100)]) -> str:
            """Pay."""
            ran.append(cents)
            return "paid"

        handler = agent(tool_call("pay", cents=5), "Done.", tools=[pay]).run("Go.")
        async for request in handler.approvals():
            request.approve(arguments=None if given is None else {"cents": given})
        await handler
        assert ran == [500.0]

    async def test_an_edit_may_hide_what_it_is(self) -> None:
        ran: list[str] = []

        @tool(requires_approval=True)
        def log_in(pin: SecretStr, day: date) -> str:
            """Log in."""
            ran.append(f"{pin.get_secret_value()} {day}")
            return "in"

        handler = agent(tool_call("log_in", pin="1111", day="2026-01-02"), "Done.", tools=[log_in]).run("Go.")
        async for request in handler.approvals():
            request.approve(arguments={"pin": SecretStr("2222"), "day": date(2026, 1, 3)})
        await handler
        assert ran == ["2222 2026-01-03"]

    async def test_a_guard_may_copy_what_was_approved(self) -> None:
        ran: list[int] = []

        @tool(requires_approval=True)
        def pay(cents: Annotated[int, AfterValidator(lambda euros: euros * 100)]) -> str:
            """Pay."""
            ran.append(cents)
            return "paid"

        class Guarded(FunctionAgent):
            async def _call_tool(self, ctx: Context[Any], tool: Any, tool_input: dict[str, Any]) -> Any:
                return await super()._call_tool(ctx, tool, dict(tool_input))

        handler = Guarded(llm=ScriptedLLM([tool_call("pay", cents=5), "Done."]), tools=[pay]).run("Go.")
        async for request in handler.approvals():
            request.approve()
        await handler
        assert ran == [500]

    async def test_an_answer_with_objects_can_be_in_a_snapshot(self) -> None:
        begun, saved = asyncio.Event(), asyncio.Event()

        @tool(requires_approval=True)
        async def book(day: date) -> str:
            """Book."""
            begun.set()
            await saved.wait()
            return f"booked {day}"

        made = agent(tool_call("book", day="2026-01-02"), "Done.", tools=[book])
        handler = made.run("Go.")
        async for request in handler.approvals():
            request.approve(arguments={"day": date(2026, 1, 3)})
            await begun.wait()
            snapshot = json.dumps(handler.ctx.to_dict())
            saved.set()
        assert (await handler).tool_calls[0].tool_output.content == "booked 2026-01-03"
        again = agent("Done.", tools=[book])
        output = await again.run(ctx=Context.from_dict(again, json.loads(snapshot)))
        assert output.tool_calls[0].tool_output.content == "booked 2026-01-03"

    async def test_what_a_person_gives_reaches_the_tool_as_it_is(self) -> None:
        ran: list[Any] = []

        @tool(requires_approval=True)
        def sign(key: bytes, more: Any) -> str:
            """Sign."""
            ran.append((key, more))
            return "signed"

        handler = agent(tool_call("sign", key="a", more=1), "Done.", tools=[sign]).run("Go.")
        async for request in handler.approvals():
            request.approve(arguments={"key": b"\xff", "more": Letter(to="Ann")})
        output = await handler
        assert ran == [(b"\xff", Letter(to="Ann"))]
        assert output.tool_calls[0].tool_kwargs == {"key": "b'\\xff'", "more": {"to": "Ann"}}

    @pytest.mark.parametrize("value", [object(), SecretStr("a"), "circular"])
    async def test_what_a_store_could_not_keep_of_an_answer_is_refused_and_the_request_stays_open(
        self, value: Any
    ) -> None:
        if value == "circular":
            value = []
            value.append(value)
        handler = agent(tool_call("publish", title="a"), "Done.", store="memory:").run("Go.")
        async for request in handler.approvals():
            with pytest.raises(TypeError, match="arguments are data of JSON, as the run's store keeps them"):
                request.approve(arguments={"title": value})
            request.approve(arguments={"title": "b"})
        assert str(await handler) == "Done."
        assert RAN == ["b"]

    @pytest.mark.parametrize("kind", ["circular", "speechless"])
    async def test_a_hook_may_give_what_cannot_be_told(self, kind: str) -> None:
        class Speechless:
            def __repr__(self) -> str:
                raise KeyError("no words")

        circular: dict[str, Any] = {}
        circular["it"] = circular
        value: Any = circular if kind == "circular" else Speechless()
        ran: list[Any] = []

        def take(it) -> str:  # type: ignore[no-untyped-def]
            """Take."""
            ran.append(it)
            return "taken"

        def hook(ctx: Context[Any], call: ToolCall) -> Replace:
            return Replace({"it": value})

        made = agent(tool_call("take", it=1), "Done.", tools=[take], before_tool=[hook])
        output = await made.run("Go.")
        assert str(output) == "Done."
        assert len(ran) == (kind == "speechless"), "what holds itself is no argument"
        assert output.tool_calls[0].tool_kwargs == {"it": "{'it': {...}}" if kind == "circular" else "<Speechless>"}

    async def test_a_hook_that_looks_at_a_result_does_not_change_what_was_asked_for(self) -> None:
        def hide(ctx: Context[Any], result: ToolCallResult) -> None:
            result.tool_kwargs["who"]["password"] = "***"

        def log_in(who: dict[str, str]) -> str:
            """Log in."""
            return "in"

        made = agent(tool_call("log_in", who={"password": "a"}), "Done.", tools=[log_in], after_tool=[hide])
        await made.run("Go.")
        assert isinstance(made.llm, ScriptedLLM)
        (block,) = (one for one in made.llm.requests[1].messages[1].blocks if isinstance(one, ToolCallBlock))
        assert block.tool_kwargs == {"who": {"password": "a"}}

    async def test_progress_that_no_store_can_write_is_reported_as_data(self) -> None:
        def count() -> Generator[Any, None, str]:
            """Count."""
            yield {"day": date(2026, 1, 2)}
            yield [IPv4Address("10.0.0.1")]
            yield "counted"

        handler = agent(tool_call("count"), "Done.", tools=[count], store="memory:").run("Go.")
        told = [event.value async for event in handler.stream_events() if isinstance(event, ToolProgress)]
        assert str(await handler) == "Done."
        assert told[:2] == [{"day": date(2026, 1, 2)}, ["10.0.0.1"]]


async def test_the_answer_of_a_direct_tool_is_whole() -> None:
    @tool(return_direct=True)
    def report() -> str:
        """Report."""
        return "r" * 5000

    for kind in (FunctionAgent, ReActAgent):
        said = tool_call("report") if kind is FunctionAgent else "Thought: go\nAction: report\nAction Input: {}"
        made = kind(llm=ScriptedLLM([said]), tools=[report], max_result_chars=100)
        memory = ChatMemoryBuffer.from_defaults(llm=made.llm)
        output = await made.run("Go.", memory=memory)
        assert str(output) == "r" * 5000
        known = [message.content or "" for message in memory.get_all()]
        assert known[0] == "Go."
        assert all(len(text) < 1000 for text in known), "the conversation has the beginning only"


async def test_a_long_result_that_is_no_answer_is_read_on_by_its_handle_alone() -> None:
    def report() -> str:
        """Report."""
        return "r" * 5000

    output = await agent(tool_call("report"), "Done.", tools=[report], max_result_chars=100).run("Go.")
    assert "handle" not in output.tool_calls[0]


async def test_a_structured_form_is_made_of_the_whole_answer() -> None:
    @tool(return_direct=True)
    def report() -> str:
        """Report."""
        return "r" * 5000 + "TOTAL=42"

    def form(messages: list[Any]) -> dict[str, Any]:
        return {"total": int(messages[-1].content.partition("TOTAL=")[2] or -1)}

    made = agent(tool_call("report"), tools=[report], max_result_chars=100, structured_output_fn=form)
    assert (await made.run("Go.")).structured_response == {"total": 42}


class Ending(ReActAgent):
    """Puts its answer in other words."""

    async def finalize(self, ctx: Any, output: AgentOutput, memory: Any) -> AgentOutput:
        output = await super().finalize(ctx, output, memory)
        output.response = ChatMessage("The final: 1!", role="assistant")
        return output


async def test_a_structured_form_is_made_of_what_was_said_in_the_words_in_which_it_was() -> None:
    @tool(return_direct=True)
    def one() -> str:
        """One."""
        return "1"

    seen: list[str] = []

    def form(messages: list[ChatMessage]) -> dict[str, Any]:
        seen.append(messages[-1].content or "")
        return {"n": 1}

    said = "Thought: step 1 of 1\nAction: one\nAction Input: {}"
    output = await Ending(llm=ScriptedLLM([said]), tools=[one], structured_output_fn=form).run("Give 1.")
    assert (str(output), output.structured_response) == ("The final: 1!", {"n": 1})
    assert seen[0].startswith("Thought: step 1 of 1\nAction: one\n")
    assert "final" not in seen[0]


async def test_a_long_answer_stands_once_in_what_a_structured_form_is_made_of() -> None:
    @tool(return_direct=True)
    def report() -> str:
        """Report."""
        return "r" * 5000 + "TOTAL=42"

    seen: list[str] = []

    def form(messages: list[ChatMessage]) -> dict[str, Any]:
        seen.append(messages[-1].content or "")
        return {"n": 1}

    said = "Thought: go\nAction: report\nAction Input: {}"
    made = ReActAgent(llm=ScriptedLLM([said]), tools=[report], max_result_chars=100, structured_output_fn=form)
    await made.run("Go.")
    assert seen[0].count("TOTAL=42") == 1
    assert seen[0].endswith("Answer: " + "r" * 5000 + "TOTAL=42")


async def test_a_direct_answer_is_whole_where_nobody_reads_on() -> None:
    class Deaf(FunctionAgent):
        @property
        def reads_on(self) -> bool:
            return False

    @tool(return_direct=True)
    def report() -> str:
        """Report."""
        return "r" * 5000

    made = Deaf(llm=ScriptedLLM([tool_call("report")]), tools=[report], max_result_chars=100)
    assert str(await made.run("Go.")) == "r" * 5000


async def test_a_handoff_is_told_whole() -> None:
    first = agent(
        tool_call("handoff", to_agent="second", reason="because " * 30), name="first", tools=[], max_result_chars=50
    )
    second = agent("Done.", name="second", tools=[])
    await AgentWorkflow(agents=[first, second], root_agent="first").run("Go.")
    assert isinstance(second.llm, ScriptedLLM)
    (request,) = second.llm.requests
    assert ("because " * 30).strip() in (request.messages[-1].content or "")
    assert request.tools == [] or all(one.name != "read_result" for one in request.tools)


async def test_calls_are_counted_by_the_tool_whatever_name_the_model_calls_it_by() -> None:
    @tool(max_calls=1)
    def look_up_everything_there_is_to_know_about_the_tides_and_the_moon_and_the_sea() -> str:
        """Look up."""
        return "all"

    made = look_up_everything_there_is_to_know_about_the_tides_and_the_moon_and_the_sea
    name = made.metadata.get_name()
    output = await agent(tool_call(name), tool_call(wire_name(name)), "Done.", tools=[made]).run("Go.")
    assert len(wire_name(name)) == 64
    assert contents(output)[0] == "all"
    assert "it may run 1 times" in contents(output)[1]


async def test_the_answer_of_a_direct_tool_has_its_pictures() -> None:
    def chart() -> list[Any]:
        """Draw."""
        return [TextBlock(text="See:"), ImageBlock(url="http://pictures/tide.png")]

    tools = [FunctionTool.from_defaults(chart, return_direct=True)]
    reacting = ReActAgent(llm=ScriptedLLM(["Thought: go\nAction: chart\nAction Input: {}"]), tools=tools)
    for made in (agent(tool_call("chart"), tools=tools), reacting):
        output = await made.run("Go.")
        assert output.response.content == "See:"
        assert [type(block) for block in output.response.blocks] == [TextBlock, ImageBlock]


async def test_what_is_cancelled_inside_a_hook_is_the_hooks_failure() -> None:
    async def hook(ctx: Context[Any], call: ToolCall) -> None:
        raise asyncio.CancelledError

    output = await agent(find("a"), "Done.", before_tool=[hook]).run("Go.")
    assert RAN == []
    assert "a call that it awaited was cancelled" in contents(output)[0]
