"""The ledger of a budget and the cost in ``output.usage`` agree at every end."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from pydantic import BaseModel

from batonflow.agents import AgentWorkflow, Budget, BudgetExceededError, FunctionAgent
from batonflow.llms import FallbackLLM, Price, ScriptedLLM, Usage, tool_call
from batonflow.llms.errors import RateLimitError
from batonflow.llms.stream import ChatRequest, Finish
from batonflow.workflow_core import Context


class Tide(BaseModel):
    """A tide."""

    metres: float


class Counting(ScriptedLLM):
    """A model with random usage, some of it from a cache, and now and then without a report."""

    seed: int = 0

    def _finish(self, request: ChatRequest, events: Any) -> Finish:
        dice = Random(f"{self.seed}:{len(self.requests)}")
        read, cached = dice.randrange(1, 3000), dice.random()
        usage = Usage(
            input_tokens=read,
            cached_tokens=int(read * cached / 2),
            cache_write_tokens=int(read * cached / 3),
            output_tokens=dice.randrange(1, 900),
        )
        finish = super()._finish(request, events)
        return replace(finish, usage=None if dice.random() < 0.1 else usage)


def search(topic: str) -> str:
    """Look something up."""
    return f"All about {topic}."


def price(dice: Random) -> Any:
    one = Price(
        dice.random() * 5, dice.random() * 20, cached=dice.choice([None, 0.1]), cache_write=dice.choice([None, 7])
    )
    return dice.choice([one, lambda usage: usage.total_tokens * 3e-6])


def model(dice: Random, turns: list[Any]) -> Any:
    """Return a model for ``turns``; some stand behind a model that fails at random requests."""
    answering = Counting(turns, seed=dice.randrange(10**6), price=price(dice))
    if dice.random() < 0.5:
        return answering
    failing = [RateLimitError("slow down", vendor="x", model="x")] * 30
    return FallbackLLM([Counting(failing, price=price(dice)), answering])


def team(dice: Random) -> AgentWorkflow:
    """Return a team whose members search, call a helper, hand over and answer."""
    members = list[FunctionAgent]()
    names = ["a", "b", "c"][: dice.randrange(1, 4)]
    for number, name in enumerate(names):
        turns: list[Any] = [[tool_call("search", topic=str(turn))] for turn in range(dice.randrange(4))]
        tools: list[Any] = [search]
        if dice.random() < 0.4:
            helper = FunctionAgent(name=f"helper_{name}", llm=model(dice, ["Helped."] * 4), description="Helps.")
            tools.append(helper.as_tool())
            turns.append([tool_call(f"helper_{name}", request="Help."), tool_call("search", topic="more")])
        if number + 1 < len(names):
            turns.append([tool_call("handoff", to_agent=names[number + 1], reason="Go on.")])
        turns += ["Done.", *[tool_call("Tide", metres=4.8)] * 2]
        options: dict[str, Any] = {"output_cls": Tide} if dice.random() < 0.3 else {}
        members.append(FunctionAgent(name=name, description=name, llm=model(dice, turns), tools=tools, **options))
    return AgentWorkflow(agents=members, root_agent="a")


@pytest.mark.filterwarnings("ignore:.*structured:UserWarning", "ignore:.*budget:UserWarning")
@pytest.mark.soak
async def test_ledger_and_usage_agree_in_random_runs(soaks: bool) -> None:
    ends: dict[str, int] = {}
    for seed in range(2000 if soaks else 40):
        dice = Random(seed)
        made = team(dice)
        exceeded: Any = dice.choice(["answer", "raise"])
        budget = Budget(max_cost=dice.choice([0.02, 0.1, 5]), on_exceeded=exceeded)
        ctx: Context[Any] = Context(made)
        try:
            output = await made.run("Go.", ctx=ctx, budget=budget)
            usage, end = output.usage, "answered"
        except BudgetExceededError:
            usage, end = sum((await ctx.store.get("usage", default={})).values(), Usage()), "used up"
        spent = (await ctx.store.get("ledger"))["spent"].get("", [0, 0.0, 0])
        cost = 0.0 if usage is None or not usage.total_tokens else usage.cost
        assert cost == pytest.approx(spent[1], abs=1e-9), (seed, end)
        ends[end] = ends.get(end, 0) + 1
    assert ends.keys() == {"answered", "used up"}


async def test_a_fallback_reserves_by_its_dearest_member_and_settles_by_the_one_that_answered() -> None:
    dear = Counting([RateLimitError("slow down", vendor="x", model="x")], price=Price(0, 1000))
    cheap = Counting(["Done."], seed=3, price=Price(1, 1))
    llm = FallbackLLM([dear, cheap])
    assert llm.cost_of(Usage(output_tokens=1000)) == 1
    agent = FunctionAgent(llm=llm)
    output = await agent.run("Go.", budget=Budget(max_cost=2))
    assert output.usage is not None
    assert output.usage.cost == pytest.approx(output.usage.total_tokens / 1e6)
    again = FallbackLLM([dear, Counting(["Never said."], price=Price(1, 1))])
    with pytest.raises(BudgetExceededError):
        await FunctionAgent(llm=again).run("Go.", budget=Budget(max_cost=0.5))


def test_a_fallback_with_a_member_of_unknown_price_has_no_price() -> None:
    assert FallbackLLM([ScriptedLLM(price=Price(1, 1)), ScriptedLLM()]).cost_of(Usage(input_tokens=1)) is None
