"""Approvals: a tool that waits for a person, however and wherever the answer comes."""

import asyncio
import itertools
import json
import re
import subprocess
import sys
from contextlib import aclosing
from copy import deepcopy
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, Base64Bytes, BaseModel, Field, SecretStr, model_validator
from pydantic.dataclasses import dataclass
from typing_extensions import override

from batonflow.agents import AgentHandler, AgentOutput, AgentWorkflow, FunctionAgent, ToolCallResult
from batonflow.agents.approvals import (
    ApprovalRequired,
    ApprovalResponse,
    ApprovalUsedError,
    OpenApprovals,
    _open,  # pyright: ignore[reportPrivateUsage]
)
from batonflow.agents.arguments import digest_of
from batonflow.durable.stores.memory import MemoryStore
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.testing import run_virtual
from batonflow.tools import tool
from batonflow.workflow_core import Context, HumanResponseEvent, InputRequiredEvent

PUBLISHED: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_published() -> None:
    PUBLISHED.clear()


@tool(requires_approval=True)
def publish(title: str, times: int = 1) -> str:
    """Publish an article."""
    PUBLISHED.append(f"{title} {times}")
    return f"published {title}"


@tool(requires_approval=lambda arguments: arguments.get("times", 1) > 1)
def publish_often(title: str, times: int = 1) -> str:
    """Publish an article."""
    PUBLISHED.append(title)
    return f"published {title}"


Cents = Annotated[int, AfterValidator(lambda amount: amount * 100)]


@dataclass
class Hidden:
    to: str
    bcc: Annotated[str, Field(exclude=True)] = ""


def agent(*turns: Any, **options: Any) -> FunctionAgent:
    options.setdefault("tools", [publish, publish_often])
    return FunctionAgent(name="writer", description="Writes.", llm=ScriptedLLM([*turns, "Done."]), **options)


def start(*turns: Any, **options: Any) -> AgentHandler:
    return agent(*turns, **options).run("Publish it.")


async def outputs(handler: AgentHandler) -> list[str]:
    await handler
    return [event.tool_output.content async for event in handler.stream_events() if isinstance(event, ToolCallResult)]


class TestTheAnswer:
    async def test_an_approved_tool_runs(self) -> None:
        handler = start(tool_call("publish", title="Tides"))
        async for request in handler.approvals():
            assert (request.tool_name, request.arguments, request.agent) == ("publish", {"title": "Tides"}, "writer")
            assert PUBLISHED == []
            request.approve()
        assert str(await handler) == "Done."
        assert PUBLISHED == ["Tides 1"]

    async def test_a_denied_tool_does_not_and_the_model_reads_why(self) -> None:
        handler = start(tool_call("publish", title="Tides"))
        async for request in handler.approvals():
            request.deny("too early")
        (told,) = await outputs(handler)
        assert "denied it: too early" in told
        assert PUBLISHED == []

    async def test_an_answer_of_the_wrong_kind_leaves_the_request_open(self) -> None:
        handler = start(tool_call("publish", title="Tides"))
        wrong: Any = [1]
        async for request in handler.approvals():
            with pytest.raises(TypeError, match="arguments is a dict"):
                request.approve(arguments=wrong)
            with pytest.raises(TypeError, match="reason is a text"):
                request.deny(wrong)
            nothing: Any = None
            request.deny(nothing)
        (told,) = await outputs(handler)
        assert "a person denied it." in told

    async def test_other_arguments_than_those_that_were_shown(self) -> None:
        handler = start(tool_call("publish", title="Tides"))
        async for request in handler.approvals():
            request.approve(arguments={"title": "Ebb", "times": "2"})
        output = await handler
        assert PUBLISHED == ["Ebb 2"]
        [call] = output.tool_calls
        assert call.tool_kwargs == {"title": "Ebb", "times": 2}, "as it was called, not as the model asked for it"

    async def test_if_they_do_not_fit_the_person_is_asked_again(self) -> None:
        handler = start(tool_call("publish", title="Tides"))
        problems: list[str | None] = []
        async for request in handler.approvals():
            problems.append(request.problem)
            request.approve(arguments={"title": "Ebb", "times": "often"} if len(problems) == 1 else None)
        await handler
        assert problems[0] is None
        assert "times" in (problems[1] or "")
        assert PUBLISHED == ["Tides 1"]

    async def test_arguments_that_are_changed_where_they_are_shown(self) -> None:
        handler = start(tool_call("publish", title="Tides"))
        async for request in handler.approvals():
            request.arguments["title"] = "Ebb"
            request.approve(arguments=request.arguments)
        await handler
        assert PUBLISHED == ["Ebb 1"]

    @pytest.mark.parametrize("is_kept", [False, True])
    async def test_what_a_person_leaves_as_it_was_shown_stays_what_it_was(self, is_kept: bool) -> None:
        paid: list[tuple[int, str, bytes, str]] = []

        @tool(requires_approval=True)
        def pay(amount: Cents, pin: SecretStr, file: Base64Bytes, note: str) -> str:
            """Pay."""
            paid.append((amount, pin.get_secret_value(), file, note))
            return "paid"

        call = tool_call("pay", amount=5, pin="1234", file="/////w==", note="a")
        kept = {"store": MemoryStore()} if is_kept else {}
        handler = start(call, tools=[pay], **kept)
        async for request in handler.approvals():
            request.approve(arguments={**request.arguments, "note": "b"})
        output = await handler
        assert paid == [(500, "1234", b"\xff\xff\xff\xff", "b")]
        [told] = output.tool_calls
        assert told.tool_kwargs == {"amount": 500, "pin": "**********", "file": r"b'\xff\xff\xff\xff'", "note": "b"}

    async def test_what_a_person_leaves_out_is_told_as_what_stood_for_it(self) -> None:
        paid: list[tuple[str, int]] = []

        class Payment(BaseModel):
            to: str
            amount: int = 0

            @model_validator(mode="before")
            @classmethod
            def _usual(cls, data: dict[str, Any]) -> dict[str, Any]:
                return {"amount": 10, **data}

        def pay(to: str, amount: int) -> str:
            """Pay."""
            paid.append((to, amount))
            return "paid"

        made = tool(fn_schema=Payment, requires_approval=True)(pay)
        handler = start(tool_call("pay", to="a", amount=500), tools=[made])
        async for request in handler.approvals():
            request.approve(arguments={"to": "b"})
        output = await handler
        assert paid == [("b", 10)]
        assert output.tool_calls[0].tool_kwargs == {"to": "b", "amount": 10}

    async def test_what_is_shown_for_a_secret_never_becomes_one(self) -> None:
        used: list[str] = []

        class Login(BaseModel):
            host: str
            pin: SecretStr

        @tool(requires_approval=True)
        def login(to: Login) -> str:
            """Log in."""
            used.append(f"{to.host} {to.pin.get_secret_value()}")
            return "in"

        handler = start(tool_call("login", to={"host": "a", "pin": "1234"}), tools=[login])
        problems: list[str | None] = []
        async for request in handler.approvals():
            problems.append(request.problem)
            pin = "5678" if request.problem else request.arguments["to"]["pin"]
            request.approve(arguments={"to": {"host": "b", "pin": pin}})
        await handler
        assert "to: what is shown in the place of a secret" in (problems[1] or "")
        assert used == ["b 5678"]

    @pytest.mark.parametrize("given", [date(2026, 1, 2), Decimal("1.10"), b"ab"], ids=lambda one: type(one).__name__)
    async def test_objects_that_a_store_keeps_reach_the_tool_as_they_are(self, given: Any) -> None:
        await self.reaches(given, "memory:")

    @pytest.mark.parametrize(
        "given",
        [date(2026, 1, 2), Decimal("1.10"), b"ab", Hidden("ann", bcc="boss")],
        ids=lambda one: type(one).__name__,
    )
    async def test_objects_reach_the_tool_as_they_are_where_no_store_keeps_them(self, given: Any) -> None:
        await self.reaches(given, None)

    async def reaches(self, given: Any, store: str | None) -> None:
        got: list[Any] = []

        @tool(requires_approval=True)
        def take(what: date | Decimal | bytes | Hidden | str) -> str:
            """Take it."""
            got.append(what)
            return "taken"

        handler = start(tool_call("take", what="x"), tools=[take], store=store)
        async for request in handler.approvals():
            request.approve(arguments={"what": given})
        await handler
        assert got == [given]
        assert type(got[0]) is type(given)

    @pytest.mark.parametrize(
        "given", [SecretStr("1234"), Hidden("ann", bcc="boss")], ids=lambda one: type(one).__name__
    )
    async def test_a_store_refuses_objects_of_which_data_would_say_less(self, given: Any) -> None:
        handler = start(tool_call("publish", title="Tides"), store=MemoryStore())
        async for request in handler.approvals():
            with pytest.raises(TypeError, match="'title' is not"):
                request.approve(arguments={"title": given})
            request.deny()
        await handler

    @pytest.mark.parametrize("value", ["seven", 2000])
    async def test_what_a_guard_changes_in_it_afterwards_is_checked(self, value: Any) -> None:
        paid: list[int] = []

        @tool(requires_approval=True)
        def pay(amount: Annotated[int, Field(le=1000)], to: list[str]) -> str:
            """Pay."""
            paid.append(amount)
            return "paid"

        class Guarded(FunctionAgent):
            @override
            async def _call_tool(self, ctx: Context[Any], tool: Any, tool_input: dict[str, Any]) -> Any:
                tool_input["amount"] = value
                return await super()._call_tool(ctx, tool, tool_input)

        handler = Guarded(tools=[pay], llm=ScriptedLLM([tool_call("pay", amount=5, to=["a"]), "Done."])).run("Pay.")
        async for request in handler.approvals():
            request.approve()
        (told,) = await outputs(handler)
        assert "Invalid arguments for tool 'pay': amount" in told
        assert paid == []

    async def test_a_guard_may_pass_on_a_copy(self) -> None:
        paid: list[int] = []

        @tool(requires_approval=True)
        def pay(amount: Cents, on: list[date]) -> str:
            """Pay."""
            paid.append(amount)
            return "paid"

        class Guarded(FunctionAgent):
            @override
            async def _call_tool(self, ctx: Context[Any], tool: Any, tool_input: dict[str, Any]) -> Any:
                return await super()._call_tool(ctx, tool, deepcopy(tool_input))

        call = tool_call("pay", amount=5, on=["2026-01-02"])
        handler = Guarded(tools=[pay], llm=ScriptedLLM([call, "Done."])).run("Pay.")
        async for request in handler.approvals():
            request.approve()
        await handler
        assert paid == [500]

    async def test_by_its_id_from_elsewhere(self) -> None:
        handler = start(tool_call("publish", title="Tides"))
        event = await anext(e async for e in handler.stream_events() if isinstance(e, ApprovalRequired))
        handler.approve(event.id)
        await handler
        assert PUBLISHED == ["Tides 1"]

    async def test_by_the_events_themselves(self) -> None:
        handler = start(tool_call("publish", title="Tides"))
        async for event in handler.stream_events():
            if isinstance(event, ApprovalRequired):
                assert isinstance(event, InputRequiredEvent)
                assert event.digest == digest_of("publish", {"title": "Tides"})
                answer = ApprovalResponse(id=event.id, digest=event.digest, approved=True)
                assert isinstance(answer, HumanResponseEvent)
                handler.ctx.send_event(answer)
        assert PUBLISHED == ["Tides 1"]

    def test_arguments_with_half_a_character_can_be_bound_too(self) -> None:
        assert digest_of("publish", {"title": "\ud83c"}) != digest_of("publish", {"title": "\ufffd"})

    async def test_an_answer_to_other_arguments_is_none(self) -> None:
        handler = start(tool_call("publish", title="Tides"))
        async for request in handler.approvals():
            other = digest_of("publish", {"title": "Ebb"})
            handler.ctx.send_event(ApprovalResponse(id=request.id, digest=other, approved=True))
            await asyncio.sleep(0.01)
            assert PUBLISHED == []
            request.deny()
        await handler
        assert PUBLISHED == []


class TestOnce:
    async def test_a_request_is_used_once(self) -> None:
        handler = start(tool_call("publish", title="Tides"))
        async for request in handler.approvals():
            request.approve()
            with pytest.raises(ApprovalUsedError, match="not open"):
                request.approve()
            with pytest.raises(ApprovalUsedError):
                request.deny()
            with pytest.raises(ApprovalUsedError):
                handler.approve(request.id)
        with pytest.raises(ApprovalUsedError, match="'nonsense'"):
            handler.deny("nonsense")

    @pytest.mark.parametrize("is_delivered", [False, True])
    async def test_what_was_answered_as_an_input_of_the_run_is_used(self, is_delivered: bool) -> None:
        handler = start([tool_call("publish", title="a"), tool_call("publish", title="b")])
        requests = handler.approvals()
        first, second = await anext(requests), await anext(requests)
        inputs = {one.event.id: one for one in handler.open_inputs()}
        inputs[first.id].respond(approved=False)
        if is_delivered:
            await asyncio.sleep(0.01)
        with pytest.raises(ApprovalUsedError, match=re.escape(repr(first.id))):
            handler.approve(first.id)
        second.approve()
        await requests.aclose()
        await handler
        assert PUBLISHED == ["b 1"]

    async def test_each_of_several_readers_sees_it_and_one_of_them_answers(self) -> None:
        handler = start(tool_call("publish", title="Tides"))

        async def reader() -> int:
            answered = 0
            async for request in handler.approvals():
                await asyncio.sleep(0)
                try:
                    request.approve()
                except ApprovalUsedError:
                    continue
                answered += 1
            return answered

        assert sum(await asyncio.gather(reader(), reader(), reader())) == 1
        assert PUBLISHED == ["Tides 1"]

    async def test_a_reader_sees_a_later_request_under_an_id_that_was_used_before(self) -> None:
        async def over() -> None:
            await asyncio.Event().wait()

        first, second = (
            ApprovalRequired(id="1", tool_name="publish", arguments={}, agent="writer", digest="") for _ in "ab"
        )
        waiting = OpenApprovals()
        waiting.add(first)
        reading = waiting.read(over())
        async with asyncio.timeout(10), aclosing(reading):
            assert await anext(reading) is first
            waiting.take("1")
            waiting.add(second)
            assert await anext(reading) is second

    async def test_who_comes_late_sees_what_is_open(self) -> None:
        handler = start([tool_call("publish", title="a"), tool_call("publish", title="b")])
        first = handler.approvals()
        (await anext(first)).approve()
        await asyncio.sleep(0.01)
        async for request in handler.approvals():
            assert request.arguments == {"title": "b"}
            request.approve()
        await first.aclose()
        assert sorted(PUBLISHED) == ["a 1", "b 1"]


class TestSeveral:
    @pytest.mark.parametrize("order", list(itertools.permutations("abc")), ids="".join)
    async def test_in_any_order_with_one_result_each_in_the_order_of_the_calls(self, order: tuple[str, ...]) -> None:
        llm = ScriptedLLM([[tool_call("publish", title=title) for title in "abc"], "Done."])
        handler = FunctionAgent(llm=llm, tools=[publish]).run("Publish.")
        open_ones: dict[str, Any] = {}
        async for request in handler.approvals():
            open_ones[request.arguments["title"]] = request
            if len(open_ones) == 3:
                for title in order:
                    open_ones[title].deny("no") if title == "b" else open_ones[title].approve()
        await handler
        told = [message.content for message in llm.requests[1].messages if message.role == "tool"]
        assert [told[0], told[2]] == ["published a", "published c"]
        assert "denied" in (told[1] or "")
        assert sorted(PUBLISHED) == ["a 1", "c 1"]


class TestWhoIsAsked:
    async def test_a_function_of_the_arguments_decides(self) -> None:
        handler = start([tool_call("publish_often", title="a"), tool_call("publish_often", title="b", times=2)])
        asked: list[Any] = []
        async for request in handler.approvals():
            asked.append(request.arguments)
            request.approve()
        assert asked == [{"title": "b", "times": 2}]
        assert sorted(PUBLISHED) == ["a", "b"]

    async def test_nobody_when_the_arguments_do_not_fit(self) -> None:
        handler = start(tool_call("publish", times=1))
        assert [request async for request in handler.approvals()] == []
        (told,) = await outputs(handler)
        assert "title: missing" in told

    async def test_the_agent_that_asks_in_a_team(self) -> None:
        handoff = tool_call("handoff", to_agent="writer", reason="it writes")
        boss = FunctionAgent(name="boss", description="Decides.", llm=ScriptedLLM([handoff]), can_handoff_to=["writer"])
        team = AgentWorkflow(agents=[boss, agent(tool_call("publish", title="Tides"))], root_agent="boss")
        handler = team.run("Publish it.")
        async for request in handler.approvals():
            assert request.agent == "writer"
            request.approve()
        assert str(await handler) == "Done."


class TestTime:
    def test_what_nobody_answers_in_time_counts_as_denied(self) -> None:
        @tool(requires_approval=True, approval_timeout=60)
        def wait_for_it() -> str:
            """Wait."""
            raise AssertionError("nobody approved it")

        async def main() -> None:
            handler = start(tool_call("wait_for_it"), tools=[wait_for_it])
            async for request in handler.approvals():
                assert request.expires_at is not None
            (told,) = await outputs(handler)
            assert "approval expired" in told

        run_virtual(main())

    def test_until_when_stays_the_same_over_an_interruption(self) -> None:
        ran: list[str] = []

        @tool(requires_approval=True, approval_timeout=60)
        def wait_for_it() -> str:
            """Wait."""
            ran.append("ran")
            return "ran"

        async def main() -> None:
            made = agent(tool_call("wait_for_it"), tools=[wait_for_it])
            handler = made.run("Publish it.")
            asking = handler.approvals()
            first = await anext(asking)
            await asyncio.sleep(40)
            saved = json.loads(json.dumps(handler.ctx.to_dict()))
            await asking.aclose()
            await handler.cancel_run()
            handler = made.run(ctx=Context.from_dict(made, saved))
            async for request in handler.approvals():
                assert request.expires_at == first.expires_at
                await asyncio.sleep(30)
            (told,) = [call.tool_output.content for call in (await handler).tool_calls]
            assert "approval expired" in told
            assert ran == []

        run_virtual(main())

    async def test_a_cancelled_run_leaves_nothing_open(self) -> None:
        handler = start(tool_call("publish", title="Tides"))
        requests = handler.approvals()
        request = await anext(requests)
        await handler.cancel_run()
        assert [one async for one in requests] == []
        with pytest.raises(ApprovalUsedError):
            request.approve()


PROGRAM = """
import asyncio, json, sys
from batonflow.agents import FunctionAgent
from batonflow.agents.arguments import digest_of
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.tools import tool
from batonflow.workflow_core import Context

@tool(requires_approval=True)
async def publish(title: str) -> str:
    "Publish."
    print("published", title)
    return f"published {title}"

def agent(*turns):
    return FunctionAgent(name="writer", llm=ScriptedLLM(turns), tools=[publish])

async def main():
    order = sys.argv[2]
    calls = [tool_call("publish", title="a"), tool_call("publish", title="b")]
    if sys.argv[1] == "-":
        handler = agent(calls).run("Publish both.")
        requests = handler.approvals()
        for _ in calls:
            await anext(requests)
        print(json.dumps(handler.ctx.to_dict()))
        await requests.aclose()
        await handler.cancel_run()
        return
    writer = agent("Both are out.")
    handler = writer.run(ctx=Context.from_dict(writer, json.load(open(sys.argv[1]))))
    requests = {}
    async for request in handler.approvals():
        requests[request.arguments["title"]] = request
        if len(requests) == 2:
            for title in order:
                requests[title].approve()
    print(await handler)

asyncio.run(main())
"""


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_the_answers_come_in_another_process(tmp_path: Path, order: str) -> None:
    program, snapshot = tmp_path / "program.py", tmp_path / "run.json"
    program.write_text(PROGRAM)

    def run(*arguments: str) -> str:
        command = [sys.executable, str(program), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path.cwd()).stdout

    written = run("-", order)
    assert "published" not in written.split("{", 1)[0]
    snapshot.write_text(json.dumps(json.loads(written)))
    lines = run(str(snapshot), order).splitlines()
    assert sorted(lines[:2]) == ["published a", "published b"]
    assert lines[2:] == ["Both are out."]


async def test_nothing_is_kept_of_a_run_that_is_over() -> None:
    handler = start(tool_call("publish", title="Tides"))
    async for request in handler.approvals():
        request.approve()
    assert isinstance(await handler, AgentOutput)
    assert handler.run_id not in _open


async def test_a_second_run_asks_again() -> None:
    made = agent(tool_call("publish", title="a"), "One.", tool_call("publish", title="a"))
    ctx: Context[Any] = Context(made)
    for _ in range(2):
        handler = made.run("Publish it.", ctx=ctx)
        async for request in handler.approvals():
            request.approve()
        await handler
    assert PUBLISHED == ["a 1", "a 1"]
