"""Budgets: what a run may spend, who is charged for it, and what happens when it is used up."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from batonflow.agents import AgentWorkflow, Budget, BudgetExceededError, FunctionAgent
from batonflow.durable.stores.memory import MemoryStore
from batonflow.llms import ChatMessage, MockFunctionCallingLLM, Price, ScriptedLLM, Usage, tool_call
from batonflow.llms.errors import LLMConfigurationError, RateLimitError
from batonflow.llms.stream import ChatRequest, Finish
from batonflow.testing import run_virtual
from batonflow.tools import tool
from batonflow.workflow_core import Context

RAN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


def search(topic: str) -> str:
    """Look something up."""
    RAN.append(topic)
    return f"All about {topic}."


@tool(requires_approval=True)
def publish(title: str) -> str:
    """Publish."""
    RAN.append(title)
    return f"published {title}"


def agent(*turns: Any, name: str = "writer", **options: Any) -> FunctionAgent:
    options.setdefault("tools", [search, publish])
    options.setdefault("llm", ScriptedLLM(turns))
    return FunctionAgent(name=name, description=f"The {name}.", **options)


def find(*topics: str) -> list[Any]:
    return [tool_call("search", topic=topic) for topic in topics]


def llm_of(member: FunctionAgent) -> ScriptedLLM:
    assert isinstance(member.llm, ScriptedLLM)
    return member.llm


async def settled() -> None:
    """Let everything go on that can."""
    for _ in range(300):
        await asyncio.sleep(0)


async def told(handler: Any) -> list[str]:
    return [call.tool_output.content for call in (await handler).tool_calls if hasattr(call, "tool_output")]


class TestCallsOfTools:
    async def test_as_many_as_allowed_are_made(self) -> None:
        made = agent(find("a"), find("b"), "Done.", budget=Budget(max_tool_calls=2))
        assert str(await made.run("Go.")) == "Done."
        assert RAN == ["a", "b"]

    async def test_one_more_is_an_error_that_says_what_is_used_up(self) -> None:
        made = agent(find("a"), find("b"), budget=Budget(max_tool_calls=1))
        with pytest.raises(BudgetExceededError, match="budget of agent writer is used up: max_tool_calls=1") as caught:
            await made.run("Go.")
        assert (caught.value.limit, caught.value.agent, caught.value.spent, caught.value.needed) == (
            "max_tool_calls", "writer", 1, 1,
        )  # fmt: skip
        assert RAN == ["a"]

    async def test_of_parallel_calls_at_the_last_allowed_one_the_first_is_made(self) -> None:
        made = agent(
            find("a"), find("b", "c", "d"), "As far as I got.", budget=Budget(max_tool_calls=2, on_exceeded="answer")
        )
        handler = made.run("Go.")
        results = await told(handler)
        assert RAN == ["a", "b"]
        assert [text.startswith("Tool search was not run: what may be spent") for text in results] == [
            False,
            False,
            True,
            True,
        ]
        assert str(await handler) == "As far as I got."

    async def test_calls_that_are_not_made_do_not_count(self) -> None:
        calls = [tool_call("search"), tool_call("nothing"), tool_call("publish", title="x"), *find("a")]
        made = agent(calls, "Done.", budget=Budget(max_tool_calls=1))
        handler = made.run("Go.")
        async for request in handler.approvals():
            request.deny()
        await handler
        assert RAN == ["a"]

    async def test_handoffs_share_the_budget_of_the_run(self) -> None:
        handoff = tool_call("handoff", to_agent="second", reason="it knows")
        team = AgentWorkflow(
            agents=[agent(find("a"), handoff, name="first"), agent(find("b"), "Done.", name="second")],
            root_agent="first",
        )
        with pytest.raises(BudgetExceededError, match="budget of the run is used up: max_tool_calls=2"):
            await team.run("Go.", budget=Budget(max_tool_calls=2))
        assert RAN == ["a"]


class TestTokens:
    async def test_are_set_aside_before_a_model_is_asked(self) -> None:
        made = agent("Never said.", budget=Budget(max_tokens=1000))
        with pytest.raises(BudgetExceededError, match=r"max_tokens=1000, 0 spent, and about 1.* more would be needed"):
            await made.run("Go.")
        assert llm_of(made).requests == []

    async def test_and_charged_as_the_vendor_counts_them(self) -> None:
        made = agent(find("a"), "Done.", budget=Budget(max_tokens=1_400))
        output = await made.run("Go.")
        assert output.usage is not None
        assert output.usage.total_tokens < 100

    async def test_a_budget_smaller_by_what_is_spent_is_used_up(self) -> None:
        class Wasteful(ScriptedLLM):
            def _finish(self, request: ChatRequest, events: Any) -> Finish:
                return Finish(reason="stop", usage=Usage(input_tokens=900, output_tokens=200), model="x", vendor="x")

        made = agent(llm=Wasteful([find("a"), find("b"), "Done."]), budget=Budget(max_tokens=2_200))
        with pytest.raises(BudgetExceededError) as caught:
            await made.run("Go.")
        assert caught.value.spent == 1_100
        assert RAN == ["a"]

    async def test_what_a_model_may_write_is_what_it_is_limited_to(self) -> None:
        class Brief(ScriptedLLM):
            max_tokens: int | None = 10

        assert str(await agent(llm=Brief(["Done."]), tools=[], budget=Budget(max_tokens=100)).run("Go.")) == "Done."

    async def test_a_request_that_fails_gives_back_what_was_set_aside(self) -> None:
        made = agent(RateLimitError("slow down", vendor="x", model="x"), budget=Budget(max_tokens=1_500))
        ctx: Context[Any] = Context(made)
        with pytest.raises(RateLimitError):
            await made.run("Go.", ctx=ctx)
        assert (await ctx.store.get("ledger"))["spent"][""][0] < 300

    async def test_an_answer_from_what_was_gathered_is_asked_for_outside_of_the_budget(self) -> None:
        class Wasteful(ScriptedLLM):
            def _finish(self, request: ChatRequest, events: Any) -> Finish:
                return Finish(reason="stop", usage=Usage(input_tokens=5_000), model="x", vendor="x")

        llm = Wasteful([find("tides"), "All about tides, in short."])
        output = await agent(llm=llm, budget=Budget(max_tokens=2_000, on_exceeded="answer")).run("Go.")
        assert str(output) == "All about tides, in short."
        shown = [message.content or "" for message in llm.requests[-1].messages]
        assert "All about tides." in shown
        assert "used up" in shown[-1]
        assert output.usage is not None
        assert output.usage.input_tokens == 10_000

    async def test_where_several_hold_the_stricter_wins(self) -> None:
        generous, strict = Budget(max_tokens=90_000, max_tool_calls=9), Budget(max_tool_calls=1)
        team = AgentWorkflow(agents=[agent(find("a", "b"), budget=generous)], budget=generous)
        with pytest.raises(BudgetExceededError, match=r"of the run .*max_tool_calls=1"):
            await team.run("Go.", budget=strict)
        assert RAN in (["a"], [])  # the run may end before the thread of the first call begins

    async def test_every_run_begins_anew(self) -> None:
        made = agent(find("a"), "One.", find("b"), "Two.", budget=Budget(max_tool_calls=1))
        ctx: Context[Any] = Context(made)
        for answer in ("One.", "Two."):
            assert str(await made.run("Go.", ctx=ctx, budget=Budget(max_tool_calls=1))) == answer
        assert RAN == ["a", "b"]

    async def test_and_sees_a_conversation_that_vendors_take(self) -> None:
        made = agent(find("a"), find("b", "c"), "Done.", budget=Budget(max_tool_calls=2))
        ctx: Context[Any] = Context(made)
        with pytest.raises(BudgetExceededError):
            await made.run("One?", ctx=ctx)
        ctx = Context.from_dict(made, json.loads(json.dumps(ctx.to_dict())))
        assert str(await made.run("Two?", ctx=ctx)) == "Done."
        shown = [(message.role.value, message.content) for message in llm_of(made).requests[-1].messages]
        assert shown[:3] == [("user", "One?"), ("assistant", None), ("tool", "All about a.")]
        assert [role for role, _ in shown[3:]] == ["assistant", "tool", "tool", "user"]
        assert "Whether it took effect is not known" in (shown[4][1] or "")
        assert (shown[5][1] or "").startswith("Tool search was not run: what may be spent on this task is used up")

    async def test_also_one_of_the_same_name_whose_error_somebody_keeps(self) -> None:
        made = agent(find("a"), find("b"), find("c"), "Done.", budget=Budget(max_tool_calls=1))
        with pytest.raises(BudgetExceededError) as kept:
            await made.run("Go.", run_id="one")
        assert str(await made.run("Go.", run_id="one")) == "Done."
        assert kept.value.spent == 1

    @pytest.mark.parametrize("field", ["max_tokens", "max_cost", "max_tool_calls", "seconds"])
    def test_a_limit_is_above_zero(self, field: str) -> None:
        with pytest.raises(ValueError, match="greater than 0"):
            Budget(**{field: 0})  # type: ignore[arg-type]


class Tide(BaseModel):
    """A tide."""

    metres: float


class TestStructure:
    async def test_that_the_budget_does_not_allow_is_left_out_with_a_warning(self) -> None:
        class Wasteful(ScriptedLLM):
            def _finish(self, request: ChatRequest, events: Any) -> Finish:
                return Finish(reason="stop", usage=Usage(input_tokens=5_000), model="x", vendor="x")

        made = agent(llm=Wasteful(["4.8 metres."]), output_cls=Tide, budget=Budget(max_tokens=2_000))
        with pytest.warns(UserWarning, match="budget of agent writer is used up"):
            output = await made.run("How high?")
        assert (str(output), output.structured_response) == ("4.8 metres.", None)


class TestModelsOfOtherMake:
    """Models that are not written with ``_stream`` are charged by estimate, afterwards."""

    async def test_are_charged_by_estimate(self) -> None:
        llm = MockFunctionCallingLLM(response_generator=lambda messages: ChatMessage("word " * 400, role="assistant"))
        made = agent(llm=llm, tools=[], budget=Budget(max_tokens=300))
        ctx: Context[Any] = Context(made)
        await made.run("Go.", ctx=ctx)
        assert (await ctx.store.get("ledger"))["spent"][""][0] > 300

    async def test_and_not_asked_again_when_it_is_used_up(self) -> None:
        asked: list[int] = []

        def answer(messages: Any) -> ChatMessage:
            asked.append(len(messages))
            calls = [call.model_copy(update={"tool_call_id": "1"}) for call in find("x" * 2_000)]
            return ChatMessage(blocks=calls, role="assistant")

        made = agent(llm=MockFunctionCallingLLM(response_generator=answer), budget=Budget(max_tokens=500))
        with pytest.raises(BudgetExceededError, match="max_tokens=500"):
            await made.run("Go.")
        assert len(asked) == 1

    async def test_that_report_no_usage_are_charged_by_estimate_too(self) -> None:
        class Silent(ScriptedLLM):
            def _finish(self, request: ChatRequest, events: Any) -> Finish:
                return Finish(reason="stop", usage=None, model="x", vendor="x")

        made = agent(llm=Silent(["word " * 400]), tools=[], budget=Budget(max_tokens=5_000))
        ctx: Context[Any] = Context(made)
        output = await made.run("Go.", ctx=ctx)
        assert output.usage is not None
        assert output.usage.output_tokens > 400
        assert 400 < (await ctx.store.get("ledger"))["spent"][""][0] < 700


class Priced(ScriptedLLM):
    """Answers of 10,000 tokens in and 1,000 out."""

    price: Any = Price(2, 20)

    def _finish(self, request: ChatRequest, events: Any) -> Finish:
        used = Usage(input_tokens=10_000, output_tokens=1_000)
        return Finish(reason="stop", usage=used, model=self.model, vendor="x")


class TestDollars:
    async def test_are_counted_by_the_price_of_the_model(self) -> None:
        llm = Priced([find("a"), find("b"), find("c"), "Done."])
        with pytest.raises(BudgetExceededError) as caught:
            await agent(llm=llm, budget=Budget(max_cost=0.0835)).run("Go.")
        assert (caught.value.limit, caught.value.spent) == ("max_cost", pytest.approx(0.08))
        assert RAN == ["a", "b"]

    async def test_a_free_model_costs_nothing(self) -> None:
        llm = Priced([find("a"), "Done."], price=Price(0, 0))
        output = await agent(llm=llm, budget=Budget(max_cost=0.01)).run("Go.")
        assert output.usage is not None
        assert output.usage.cost == 0

    async def test_a_model_whose_price_nobody_knows_is_not_asked(self) -> None:
        made = agent("Never said.", budget=Budget(max_cost=1))
        with pytest.raises(LLMConfigurationError, match=r"price of the model scripted is unknown; .*price=Price\("):
            await made.run("Go.")
        assert llm_of(made).requests == []

    async def test_nor_any_without_the_price_list(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("batonflow.agents.budget.prices_available", lambda: False)
        with pytest.raises(LLMConfigurationError, match=r"install batonflow\[prices\]"):
            await agent(llm=ScriptedLLM(["No."], model="gpt-4o"), budget=Budget(max_cost=1)).run("Go.")

    async def test_nor_is_a_model_of_other_make(self) -> None:
        asked: list[Any] = []
        llm = MockFunctionCallingLLM(response_generator=asked.append)
        with pytest.raises(LLMConfigurationError, match=r"price of the model .* is unknown"):
            await agent(llm=llm, tools=[], budget=Budget(max_cost=1)).run("Go.")
        assert asked == []


async def pause(seconds: float) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return f"{seconds:g} seconds later"


class TestSeconds:
    def test_a_tool_that_takes_longer_is_stopped(self) -> None:
        async def main() -> None:
            made = agent(tool_call("pause", seconds=100), tools=[pause], budget=Budget(seconds=60))
            with pytest.raises(BudgetExceededError, match="seconds=60, 60 spent"):
                await made.run("Wait.")

        run_virtual(main())

    def test_or_told_to_have_been_where_an_answer_is_due(self) -> None:
        async def main() -> None:
            calls = [tool_call("pause", seconds=100), tool_call("pause", seconds=20)]
            made = agent(calls, "Not yet.", tools=[pause], budget=Budget(seconds=60, on_exceeded="answer"))
            handler = made.run("Wait.")
            results = await told(handler)
            assert "used up (seconds=60)" in results[0]
            assert results[1] == "20 seconds later"
            assert str(await handler) == "Not yet."

        run_virtual(main())

    def test_a_model_that_takes_longer_is_stopped_too(self) -> None:
        async def slow(_: Any) -> str:
            await asyncio.sleep(100)
            return "Too late."

        async def main() -> None:
            with pytest.raises(BudgetExceededError, match="of the run is used up: seconds=60"):
                await agent(slow).run("Wait.", budget=Budget(seconds=60))

        run_virtual(main())

    def test_a_person_may_take_an_hour(self) -> None:
        async def main() -> None:
            calls = [tool_call("publish", title="a"), tool_call("pause", seconds=40)]
            made = agent(calls, tool_call("pause", seconds=40), "Done.", tools=[publish, pause])
            handler = made.run("Go.", budget=Budget(seconds=60))
            async for request in handler.approvals():
                await asyncio.sleep(3600)
                request.approve()
            assert str(await handler) == "Done."
            assert RAN == ["a"]

        run_virtual(main())

    def test_after_that_the_time_goes_on(self) -> None:
        async def main() -> None:
            made = agent(tool_call("publish", title="a"), tool_call("pause", seconds=100), tools=[publish, pause])
            handler = made.run("Go.", budget=Budget(seconds=60))
            async for request in handler.approvals():
                await asyncio.sleep(3600)
                request.approve()
            with pytest.raises(BudgetExceededError, match="seconds=60, 60 spent"):
                await handler

        run_virtual(main())

    def test_a_person_asked_by_an_agent_behind_a_tool_may_take_an_hour_too(self) -> None:
        async def main() -> None:
            press = agent(tool_call("publish", title="a"), "Out.", name="press")
            made = agent(
                tool_call("press", input="Publish."), "Done.", tools=[press.as_tool()], budget=Budget(seconds=60)
            )
            handler = made.run("Go.", budget=Budget(seconds=90))
            async for request in handler.approvals():
                await asyncio.sleep(3600)
                request.approve()
            assert str(await handler) == "Done."
            assert RAN == ["a"]

        run_virtual(main())

    def test_time_between_two_processes_does_not_count(self) -> None:
        async def main() -> None:
            llm = ScriptedLLM([tool_call("pause", seconds=40), tool_call("publish", title="a"), "Done."])
            made = agent(llm=llm, tools=[publish, pause], budget=Budget(seconds=60))
            handler = made.run("Go.")
            await anext(handler.approvals())
            saved = json.loads(json.dumps(handler.ctx.to_dict()))
            await handler.cancel_run()
            await asyncio.sleep(86_400)
            handler = made.run(ctx=Context.from_dict(made, saved))
            async for request in handler.approvals():
                await asyncio.sleep(3600)
                request.approve()
            assert str(await handler) == "Done."
            ledger = await handler.ctx.store.get("ledger")
            assert 40 <= ledger["seconds"] < 60

        run_virtual(main())


async def waiting_at(made: Any, **options: Any) -> dict[str, Any]:
    """What is left of a run that is interrupted where a person is asked first."""
    handler = made.run("Go.", **options)
    requests = handler.approvals()
    await anext(requests)
    saved = json.loads(json.dumps(handler.ctx.to_dict()))
    await requests.aclose()
    await handler.cancel_run()
    return saved


async def resumed(made: Any, saved: dict[str, Any]) -> Any:
    handler = made.run(ctx=Context.from_dict(made, saved))
    async for request in handler.approvals():
        request.approve()
    return handler


class TestOverAnInterruption:
    async def test_a_run_that_failed_on_its_budget_fails_with_the_same_error_again(self) -> None:
        store = MemoryStore()
        errors: list[BudgetExceededError] = []
        for _ in range(2):
            made = agent(find("a"), find("b"), "Done.", store=store)
            with pytest.raises(BudgetExceededError, match="max_tool_calls=1, 1 spent") as caught:
                await made.run("Go.", run_id="r", budget=Budget(max_tool_calls=1))
            errors.append(caught.value)
        assert RAN == ["a"]
        first, again = errors
        assert (again.limit, again.budget, again.agent, again.begun) == ("max_tool_calls", first.budget, None, False)
        assert (again.spent, again.needed) == (first.spent, first.needed) == (1, 1)

    async def test_what_was_spent_stays_spent(self) -> None:
        made = agent(find("a"), tool_call("publish", title="x"), find("b"), "Done.")
        saved = await waiting_at(made, budget=Budget(max_tool_calls=2))
        handler = await resumed(made, saved)
        with pytest.raises(BudgetExceededError, match="of the run is used up: max_tool_calls=2, 2 spent"):
            await handler
        assert RAN == ["a", "x"]

    async def test_a_call_that_was_cut_off_is_charged_once(self) -> None:
        started, go_on = asyncio.Event(), asyncio.Event()

        async def slow() -> str:
            """Take long."""
            started.set()
            await go_on.wait()
            RAN.append("slow")
            return "slow"

        async def look_up(topic: str) -> str:
            """Look something up; not in a thread, of which turns of the loop tell nothing."""
            RAN.append(topic)
            return f"All about {topic}."

        calls = [tool_call("slow"), tool_call("look_up", topic="a")]
        made = agent(calls, "Done.", tools=[slow, look_up], budget=Budget(max_tool_calls=2))
        handler = made.run("Go.")
        await started.wait()
        await settled()
        assert RAN == ["a"]
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        await handler.cancel_run()
        go_on.set()
        assert str(await made.run(ctx=Context.from_dict(made, saved))) == "Done."
        assert RAN == ["a", "slow"]


class TestAgentsBehindTools:
    async def test_spend_from_the_callers_budget(self) -> None:
        helper = agent(find("a"), find("b"), name="helper")
        made = agent(tool_call("helper", input="Help."), tools=[helper.as_tool()], budget=Budget(max_tool_calls=2))
        with pytest.raises(BudgetExceededError, match="budget of agent writer is used up: max_tool_calls=2"):
            await made.run("Go.")
        assert RAN == ["a"]

    async def test_and_where_an_answer_is_due_it_is_the_caller_who_answers(self) -> None:
        helper = agent(find("a"), find("b"), name="helper")
        budget = Budget(max_tool_calls=2, on_exceeded="answer")
        made = agent(tool_call("helper", input="Help."), "Only so far.", tools=[helper.as_tool()], budget=budget)
        handler = made.run("Go.")
        assert "used up" in (await told(handler))[0]
        assert str(await handler) == "Only so far."

    @pytest.mark.parametrize("on_exceeded", ["answer", "raise"])
    async def test_that_a_helper_had_begun_is_never_told_as_not_run(self, on_exceeded: Any) -> None:
        helper = agent(find("a"), find("b"), name="helper")
        made = agent(tool_call("helper", input="Help."), "So far.", tools=[helper.as_tool()])
        ctx = Context[Any](made)
        running = made.run("Go.", ctx=ctx, budget=Budget(max_tool_calls=2, on_exceeded=on_exceeded))
        if on_exceeded == "raise":
            with pytest.raises(BudgetExceededError):
                await running
            await made.run("And?", ctx=ctx)
        else:
            await running
        assert RAN == ["a"]
        [result] = [one.content for one in llm_of(made).requests[-1].messages if one.role.value == "tool"]
        assert "is not known" in (result or "")

    async def test_a_team_among_members_that_uses_up_the_budget_leaves_an_answer(self) -> None:
        inner = AgentWorkflow(agents=[agent(*map(find, "abc"), "Only this.")], name="inner", description="Looks.")
        chief = agent(tool_call("handoff", to_agent="inner", reason="r"), name="chief")
        team = AgentWorkflow(agents=[chief, inner], root_agent="chief")
        output = await team.run("Go.", budget=Budget(max_tool_calls=3, on_exceeded="answer"))
        assert str(output) == "Only this."

    async def test_one_agents_budget_is_no_affair_of_the_one_it_hands_over_to(self) -> None:
        handoff = tool_call("handoff", to_agent="second", reason="r")
        own = Budget(max_tool_calls=2, on_exceeded="answer")
        first = agent([*find("a"), handoff, *find("b")], name="first", budget=own)
        second = agent(find("c"), "Done.", name="second", budget=Budget(max_tool_calls=5))
        output = await AgentWorkflow(agents=[first, second], root_agent="first").run("Go.")
        assert (str(output), RAN) == ("Done.", ["a", "c"])

    async def test_one_budget_given_to_agent_and_team_is_everybodys(self) -> None:
        shared = Budget(max_tool_calls=2, on_exceeded="answer")
        handoff = tool_call("handoff", to_agent="second", reason="r")
        first = agent([*find("a"), handoff, *find("b")], name="first", budget=shared)
        second = agent("So far.", name="second", budget=Budget(max_tool_calls=5))
        await AgentWorkflow(agents=[first, second], root_agent="first", budget=shared).run("Go.")
        assert not llm_of(second).requests[0].tools

    async def test_a_budget_of_their_own_is_their_own_affair(self) -> None:
        helper = agent(find("a"), find("b"), name="helper", budget=Budget(max_tool_calls=1))
        made = agent(
            tool_call("helper", input="Help."),
            "Then without.",
            tools=[helper.as_tool()],
            budget=Budget(max_tool_calls=9),
        )
        handler = made.run("Go.")
        assert "budget of agent helper is used up" in (await told(handler))[0]
        assert str(await handler) == "Then without."

    async def test_their_closing_answer_is_outside_of_their_budget_only(self) -> None:
        class Wasteful(ScriptedLLM):
            def _finish(self, request: ChatRequest, events: Any) -> Finish:
                return Finish(reason="stop", usage=Usage(input_tokens=3_000), model="x", vendor="x")

        own = Budget(max_tokens=2_000, on_exceeded="answer")
        helper = agent(llm=Wasteful([find("a"), "Never said."]), name="helper", budget=own)
        made = agent(tool_call("helper", input="Help."), tools=[helper.as_tool()], budget=Budget(max_tokens=4_000))
        with pytest.raises(BudgetExceededError, match="of agent writer"):
            await made.run("Go.")

    async def test_two_at_once_set_aside_from_one_budget(self) -> None:
        free = asyncio.Event()

        async def slow(_: Any) -> str:
            await free.wait()
            return "I helped."

        def refuse(_: Any) -> str:
            free.set()
            return "Only one of us could be asked."

        helpers = [agent(slow, name=name, tools=[]) for name in ("left", "right")]
        calls = [tool_call(one.name, input="Help.") for one in helpers]
        made = agent(calls, refuse, tools=[one.as_tool() for one in helpers])
        handler = made.run("Go.", budget=Budget(max_tokens=2_000))

        async def watch() -> None:
            await settled()  # the request of the second would have begun
            free.set()

        watching = asyncio.create_task(watch())
        with pytest.raises(BudgetExceededError, match="max_tokens=2000"):
            await handler
        await watching
        assert sum(len(llm_of(one).requests) for one in helpers) == 1

    async def test_one_after_the_other_there_is_enough_for_both(self) -> None:
        helpers = [agent("I helped.", name=name, tools=[]) for name in ("left", "right")]
        turns = [tool_call(one.name, input="Help.") for one in helpers]
        made = agent(*turns, "Done.", tools=[one.as_tool() for one in helpers])
        assert str(await made.run("Go.", budget=Budget(max_tokens=2_000))) == "Done."

    async def test_a_team_inside_a_team_spends_from_the_outer_one(self) -> None:
        inner = AgentWorkflow(agents=[agent(find("a"), find("b"), name="in")], name="inner", description="Helps.")
        outer = AgentWorkflow(agents=[inner], budget=Budget(max_tool_calls=1))
        with pytest.raises(BudgetExceededError, match="max_tool_calls=1"):
            await outer.run("Go.")
        assert RAN == ["a"]


async def slowly(_: Any) -> str:
    await asyncio.sleep(100)
    return "Too late."


class TestSecondsOfAllThatTheRunDoes:
    def test_a_structured_answer_that_takes_longer_is_left_out_with_a_warning(self) -> None:
        class Tide(BaseModel):
            hours: int

        async def main() -> None:
            made = agent("Six hours.", slowly, tools=[], output_cls=Tide, budget=Budget(seconds=60))
            with pytest.warns(UserWarning, match="seconds=60"):
                output = await made.run("Go.")
            assert (str(output), output.structured_response) == ("Six hours.", None)

        run_virtual(main())

    @pytest.mark.parametrize("on_exceeded", ["raise", "answer"])
    def test_the_answer_of_an_early_stop(self, on_exceeded: Any) -> None:
        async def main() -> None:
            turns = [find("a"), slowly, "What I have."]
            made = agent(*turns, budget=Budget(seconds=60, on_exceeded=on_exceeded))
            running = made.run("Go.", max_iterations=1, early_stopping_method="generate")
            if on_exceeded == "answer":
                assert str(await running) == "What I have."
            else:
                with pytest.raises(BudgetExceededError, match="seconds=60"):
                    await running

        run_virtual(main())

    def test_the_summary_of_a_handoff(self) -> None:
        async def main() -> None:
            first = agent(tool_call("handoff", to_agent="second", reason="it knows"), slowly, name="first")
            team = AgentWorkflow(
                agents=[first, agent("Done.", name="second")], root_agent="first", handoff_carries="summary"
            )
            with pytest.raises(BudgetExceededError, match="seconds=60"):
                await team.run("Go.", budget=Budget(seconds=60))

        run_virtual(main())

    def test_guards_of_what_comes_in(self) -> None:
        async def guard(ctx: Context[Any], message: ChatMessage) -> None:
            await asyncio.sleep(100)

        async def main() -> None:
            with pytest.raises(BudgetExceededError, match="seconds=60, 100 spent"):
                await agent("Done.", input_guards=[guard]).run("Go.", budget=Budget(seconds=60))

        run_virtual(main())


async def test_the_answer_of_an_early_stop_is_within_the_budget() -> None:
    made = agent(find("a"), "What I have.", budget=Budget(max_tokens=1100))
    with pytest.raises(BudgetExceededError, match="max_tokens=1100"):
        await made.run("Go. " * 300, max_iterations=1, early_stopping_method="generate")


def test_a_limit_that_there_is_not_is_told_with_those_that_there_are() -> None:
    told = "Budget has no max_tokns; it has max_tokens, max_cost, max_tool_calls, seconds, on_exceeded"
    with pytest.raises(ValidationError, match=told):
        Budget(max_tokns=5)  # type: ignore[call-arg]


def test_limits_are_given_by_name() -> None:
    with pytest.raises(TypeError, match=r"Budget takes its limits by name, for example Budget\(max_tokens=1\)"):
        Budget(1)  # type: ignore[call-arg]
