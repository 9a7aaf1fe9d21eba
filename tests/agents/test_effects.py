"""Tool calls of agents whose runs a store keeps: written down before and after, and never silently repeated."""

import asyncio
import json
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import AfterValidator, Base64Bytes

from batonflow.agents import AgentWorkflow, FunctionAgent
from batonflow.agents.approvals import ApprovalRequest, ApprovalRequired, ApprovalResponse
from batonflow.agents.events import ToolCallResult
from batonflow.durable.stores.memory import MemoryStore
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.llms.stream import ChatRequest
from batonflow.tools import FunctionTool, tool
from batonflow.workflow_core import Context
from tests.workflow_core.flows import until


def answers(request: ChatRequest) -> Any:
    """Calls the tool once, then says what it gave."""
    last = request.messages[-1]
    return f"It gave: {last.content}" if last.role == "tool" else tool_call("pay", amount=12)


class World:
    """Where money is spent; the first payment hangs."""

    def __init__(self, **policy: Any) -> None:
        self.paid: list[tuple[int, str]] = []
        self.store = MemoryStore()

        @tool(**policy)
        async def pay(amount: int, idempotency_key: str) -> str:
            """Pay an amount."""
            self.paid.append((amount, idempotency_key))
            if len(self.paid) == 1:
                await asyncio.Event().wait()
            return f"receipt {len(self.paid)}"

        self.tool = pay

    def agent(self, store: MemoryStore) -> FunctionAgent:
        return FunctionAgent(tools=[self.tool], llm=ScriptedLLM([answers] * 5), store=store)

    async def interrupted(self) -> None:
        """A process pays, and ends before it knows what came of it."""
        handler = self.agent(MemoryStore(beside=self.store)).run("Pay!", run_id="r")
        await until(lambda: self.paid)
        await handler.interrupt()

    async def asked(self, decide: Any) -> tuple[str, list[ApprovalRequest]]:
        """The next process, with somebody who answers what it asks."""
        handler = self.agent(self.store).run("Pay!", run_id="r")
        requests: list[ApprovalRequest] = []
        async for request in handler.approvals():
            requests.append(request)
            decide(request)
        return str(await handler), requests


async def test_a_person_is_asked_and_says_that_it_happened() -> None:
    world = World()
    await world.interrupted()
    said, [request] = await world.asked(lambda request: request.deny("the bank says it is paid"))
    assert (request.reason, request.tool_name, request.arguments) == ("unknown_outcome", "pay", {"amount": 12})
    assert "the bank says it is paid" in said
    assert "decided not to run it again" in said
    assert len(world.paid) == 1


async def test_a_person_is_asked_and_lets_it_run_again_under_the_same_key() -> None:
    world = World()
    await world.interrupted()
    said, requests = await world.asked(lambda request: request.approve())
    assert (said, len(requests)) == ("It gave: receipt 2", 1)
    assert len({key for _, key in world.paid}) == 1


async def test_it_runs_again_as_it_was_or_not_at_all() -> None:
    world = World()
    await world.interrupted()

    def decide(request: ApprovalRequest) -> None:
        request.approve(arguments=None if request.problem else {"amount": 99})

    said, [first, second] = await world.asked(decide)
    assert first.problem is None
    assert "with the same arguments" in (second.problem or "")
    assert said == "It gave: receipt 2"
    assert [amount for amount, _ in world.paid] == [12, 12]


@pytest.mark.parametrize("policy", [{"idempotent": True}, {"on_unknown": "retry"}], ids=str)
async def test_a_tool_that_may_run_again_does_so_under_the_same_key(policy: dict[str, Any]) -> None:
    world = World(**policy)
    await world.interrupted()
    said, requests = await world.asked(lambda request: request.deny())
    assert (said, requests) == ("It gave: receipt 2", [])
    assert [amount for amount, _ in world.paid] == [12, 12]
    assert len({key for _, key in world.paid}) == 1


async def test_a_tool_that_fails_then_tells_the_model_so() -> None:
    world = World(on_unknown="fail")
    await world.interrupted()
    said, requests = await world.asked(lambda request: request.approve())
    assert "nobody knows whether it did its work" in said
    assert (requests, len(world.paid)) == ([], 1)


async def test_a_call_whose_result_is_written_is_not_made_again() -> None:
    calls: list[int] = []

    @tool(idempotent=True)
    async def add(a: int) -> int:
        """Add one."""
        calls.append(a)
        return a + 1

    def model(request: ChatRequest) -> Any:
        return tool_call("add", a=len(request.messages)) if len(request.messages) < 6 else "Done."

    store = MemoryStore()
    asked: list[ChatRequest] = []

    def noted(request: ChatRequest) -> Any:
        asked.append(request)
        return model(request)

    first = FunctionAgent(tools=[add], llm=ScriptedLLM([noted] * 9), store=MemoryStore(beside=store))
    handler = first.run("Count.", run_id="r")
    async for event in handler.stream_events():
        if isinstance(event, ToolCallResult):
            break
    await handler.interrupt()
    again = FunctionAgent(tools=[add], llm=ScriptedLLM([noted] * 9), store=store)
    assert str(await again.run("Count.", run_id="r")) == "Done."
    assert calls.count(calls[0]) == 1
    assert len(asked) <= len(set(calls)) + 2, "an answer that is written is not asked for again"


async def test_a_value_that_no_store_can_keep_becomes_its_text() -> None:
    @tool
    async def find() -> object:
        """Find something."""
        return object()

    agent = FunctionAgent(tools=[find], llm=ScriptedLLM([tool_call("find"), "Found."]), store="memory:")
    output = await agent.run("Find it.")
    assert str(output) == "Found."
    assert output.tool_calls[0].tool_output.raw_output.startswith("<object object")


@pytest.mark.parametrize("returned", [object(), b"\xff", {"ok": True}])
@pytest.mark.parametrize("inside", [False, True])
async def test_a_snapshot_can_be_taken_whatever_a_tool_was_given_and_returned(returned: Any, inside: bool) -> None:
    @tool
    async def upload(data: Base64Bytes) -> object:
        """Upload."""
        return returned

    @tool(requires_approval=True)
    async def publish() -> str:
        """Publish."""
        return "published"

    def made(name: str, tools: list[Any], *calls: Any) -> FunctionAgent:
        def says(request: ChatRequest) -> Any:
            return "Done." if request.messages[-1].role == "tool" else list(calls)

        return FunctionAgent(name=name, description="It works.", tools=tools, llm=ScriptedLLM([says] * 2))

    def whole() -> FunctionAgent:
        one = made("one", [upload, publish], tool_call("upload", data="/////w=="), tool_call("publish"))
        return made("two", [one.as_tool()], tool_call("one", input="Go on.")) if inside else one

    handler = whole().run("Upload it, then publish.")
    async for _ in handler.approvals():
        break
    payload = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.cancel_run()
    agent = whole()
    again = agent.run(ctx=Context.from_dict(agent, payload))
    async for request in again.approvals():
        request.approve()
    output = await again
    assert str(output) == "Done."
    if not inside:
        first, second = [call.tool_output for call in output.tool_calls]
        assert (first.raw_input, second.raw_output) == ({"args": (), "kwargs": {"data": b"\xff" * 4}}, "published")
        assert first.raw_output == (returned if isinstance(returned, dict | bytes) else repr(returned))


async def test_without_a_store_nothing_is_written_or_asked() -> None:
    world = World()
    world.paid.append((0, ""))
    agent = FunctionAgent(tools=[world.tool], llm=ScriptedLLM([answers] * 5))
    assert str(await agent.run("Pay!")) == "It gave: receipt 2"


async def test_a_branch_asks_another_model() -> None:
    def says(text: str) -> ScriptedLLM:
        return ScriptedLLM([text] * 5)

    store = MemoryStore()
    agent = FunctionAgent(name="one", description="Speaks.", llm=says("first"), store=store)
    assert str(await agent.run("Speak.", run_id="r")) == "first"
    [asked] = [one["commit"] for one in await store.history("r") if one.get("step") == "setup_agent"]
    assert str(await agent.fork("r", asked, llm=says("second"))) == "second"
    team = AgentWorkflow(agents=[FunctionAgent(name="one", description="Speaks.", llm=says("first"))], store=store)
    assert str(await team.run("Speak.", run_id="t")) == "first"
    assert str(await team.fork("t", asked, llm=says("second"))) == "second"
    assert str(await team.run("Speak again.")) == "first", "only the branch asks another"


async def test_an_approval_is_used_once_whoever_gives_it() -> None:
    published: list[str] = []

    @tool(requires_approval=True)
    async def publish(title: str) -> str:
        """Publish an article."""
        published.append(title)
        return "out"

    def agent(store: MemoryStore) -> FunctionAgent:
        return FunctionAgent(
            tools=[publish], llm=ScriptedLLM([tool_call("publish", title="Tides"), "Done."]), store=store
        )

    store = MemoryStore()
    handler = agent(store).run("Publish.", run_id="r")
    await until(lambda: handler.open_inputs())
    asked = handler.open_inputs()[0].event
    assert isinstance(asked, ApprovalRequired)
    answer = ApprovalResponse(id=asked.id, digest=asked.digest, approved=True)
    forged = ApprovalResponse(id=asked.id, digest="of other arguments", approved=True)
    for elsewhere, event in ((1, forged), (2, answer), (3, answer)):
        await agent(MemoryStore(beside=store)).send_to_run("r", event, key=f"from {elsewhere}")
    assert str(await handler) == "Done."
    assert published == ["Tides"]
    used = [one for one in await store.history("r") if one["kind"] == "answered"]
    assert [one["event"][1]["digest"] for one in used] == [asked.digest]


class Size(Enum):
    SMALL = "small"


@dataclass
class Box:
    width: int


@pytest.mark.parametrize(
    ("annotation", "sent"),
    [
        (date, "2027-01-02"),
        (timedelta, "PT5M"),
        (UUID, "12345678-1234-5678-1234-567812345678"),
        (Path, "notes/tides.md"),
        (Decimal, "1.5"),
        (set[int], [1, 2]),
        (bytes, "tides"),
        (Size, "small"),
        (list[Size], ["small"]),
        (Box, {"width": 3}),
        (dict[str, Box], {"a": {"width": 3}}),
    ],
    ids=str,
)
async def test_arguments_that_json_does_not_know_are_kept_as_data(annotation: Any, sent: Any) -> None:
    given: list[Any] = []

    async def take(thing: Any) -> str:
        """Take it."""
        given.append(thing)
        return "taken"

    take.__annotations__["thing"] = annotation
    store = MemoryStore()
    agent = FunctionAgent(tools=[take], llm=ScriptedLLM([tool_call("take", thing=sent), "Done."]), store=store)
    handler = agent.run("Take it.", run_id="r")
    events = [event async for event in handler.stream_events()]
    assert str(await handler) == "Done."
    assert given[0] != sent or annotation is Path
    [result] = [event for event in events if isinstance(event, ToolCallResult)]
    assert result.tool_kwargs == {"thing": sent}
    assert str(await agent.run("Take it.", run_id="r")) == "Done."
    assert len(given) == 1
    await store.replay("r")


async def test_what_is_filled_in_need_not_be_json_either() -> None:
    async def take(day: date) -> str:
        """Take it."""
        return f"taken on {day}"

    made = FunctionTool.from_defaults(take, partial_params={"day": date(2027, 1, 2)})
    agent = FunctionAgent(tools=[made], llm=ScriptedLLM([tool_call("take"), "Done."]), store=MemoryStore())
    assert str(await agent.run("Take it.")) == "Done."


@pytest.mark.parametrize("policy", [{}, {"idempotent": True}, {"on_unknown": "retry"}], ids=str)
async def test_what_was_approved_is_not_made_again_as_something_else_without_a_word(policy: dict[str, Any]) -> None:
    rate, paid = [1.0], list[float]()

    @tool(requires_approval=True, **policy)
    async def pay(amount: Annotated[float, AfterValidator(lambda amount: amount * rate[0])]) -> str:
        """Pay an amount at the rate of the day."""
        paid.append(amount)
        if len(paid) == 1:
            await asyncio.Event().wait()
        return "receipt"

    store = MemoryStore()
    agent = FunctionAgent(tools=[pay], llm=ScriptedLLM([answers] * 5), store=MemoryStore(beside=store))
    handler = agent.run("Pay!", run_id="r")
    async for request in handler.approvals():
        request.approve()
        break
    await until(lambda: paid)
    await handler.interrupt()
    rate[0] = 100.0
    handler = FunctionAgent(tools=[pay], llm=ScriptedLLM([answers] * 5), store=store).run("Pay!", run_id="r")
    asked: list[ApprovalRequest] = []
    async for request in handler.approvals():
        asked.append(request)
        request.deny("not at that rate")
    await handler
    [request] = asked
    assert (request.reason, request.arguments) == ("unknown_outcome", {"amount": 1200.0})
    assert "other arguments" in (request.problem or "")
    assert paid == [12.0]


async def test_an_approval_holds_for_what_was_shown_only() -> None:
    rate, paid = [1.0], list[float]()

    @tool(requires_approval=True)
    def pay(amount: Annotated[float, AfterValidator(lambda amount: amount * rate[0])]) -> str:
        """Pay an amount at the rate of the day."""
        paid.append(amount)
        return "receipt"

    def twice(request: ChatRequest) -> Any:
        return "Done." if request.messages[-1].role == "tool" else tool_call("pay", amount=12)

    store = MemoryStore()
    agent = FunctionAgent(tools=[pay], llm=ScriptedLLM([twice] * 5), store=MemoryStore(beside=store))
    handler = agent.run("Pay!", run_id="r")
    request = await anext(handler.approvals())
    known = ApprovalResponse(id=request.id, digest=request.digest, approved=True)
    await handler.interrupt()
    rate[0] = 100.0
    again = FunctionAgent(tools=[pay], llm=ScriptedLLM([twice] * 5), store=store)
    await again.send_to_run("r", known)
    handler = again.run("Pay!", run_id="r")
    shown = [(request.arguments, request.approve()) async for request in handler.approvals()]
    await handler
    assert shown == [({"amount": 1200.0}, None)]
    assert paid == [1200.0]
