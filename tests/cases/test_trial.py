"""Trials: a run again with another model, and the two runs side by side."""

from typing import Any

import pytest

from batonflow import Context, ScriptedLLM, StartEvent, StopEvent, Workflow, step
from batonflow.cases import CaseError, try_run
from batonflow.durable.comparison import compare_runs
from batonflow.llms import LLMConfigurationError, Price, tool_call
from batonflow.workflow_core import MemoryStore, StoreError
from tests.cases.runs import agent_of, done


async def first_run(*turns: Any, **options: Any) -> Any:
    """An agent with a stored run of the id "first"."""
    agent = agent_of(*turns, store=MemoryStore(), **options)
    handler = agent.run("How deep?", run_id="first")
    async for request in handler.approvals():
        request.approve()
    await handler
    done.clear()
    return agent


async def test_another_model_answers_and_pays_its_own_price() -> None:
    agent = await first_run()
    store = agent.__batonflow__.store
    other = ScriptedLLM([tool_call("depth", harbour="Emden"), "8 m."], price=Price(1.0, 1000.0))
    trial = await try_run(store, "first", agent, llm=other, new_id="second")
    comparison = trial.comparison
    assert (trial.run_id, trial.error, done) == ("second", None, [])
    assert comparison.first is not None
    assert (comparison.first.where, comparison.first.left, comparison.first.right) == (
        "call 2 (Agent), answer", "Eight metres.", "8 m.",
    )  # fmt: skip
    assert [pair.same for pair in comparison.pairs] == [True, True, False]
    assert (comparison.left.cost, comparison.right.cost) == (None, pytest.approx(0.005, abs=0.001))
    assert comparison.result is not None
    assert comparison.result.lines("a", "b")[-2:] == ["-Eight metres.", "+8 m."]
    assert [call.answer.content for call in (await store.replay("second")).model_calls][-1] == "8 m."


async def test_system_text_and_temperature_reach_every_request() -> None:
    agent = await first_run()
    agent.llm = ScriptedLLM([tool_call("depth", harbour="Emden"), "Eight metres."])
    trial = await try_run(agent.__batonflow__.store, "first", agent, system="Be brief.", temperature=0.3)
    assert [request.messages[0].content for request in agent.llm.requests] == ["Be brief."] * 2
    assert [request.options["temperature"] for request in agent.llm.requests] == [0.3] * 2
    first = trial.comparison.first
    assert first is not None
    assert first.lines("a", "b")[-2:] == ["-You know harbours.", "+Be brief."]
    assert [len(request.messages) for request in agent.llm.requests] == [2, 4]


async def test_calls_with_other_arguments_run_and_new_approvals_are_denied() -> None:
    agent = await first_run(tool_call("pay", amount=3), "Paid.")
    store = agent.__batonflow__.store
    turns = [tool_call("depth", harbour="Husum"), tool_call("pay", amount=3), tool_call("pay", amount=4)]
    other = ScriptedLLM([*turns, lambda request: request.messages[-1].content])
    trial = await try_run(store, "first", agent, llm=other)
    assert done == ["measured Husum"]
    results = [pair.right.text for pair in trial.comparison.pairs if pair.right and pair.right.kind == "tool"]
    assert results[:2] == ["eight metres", "paid 3"]
    assert "nobody can approve new calls" in results[2]


async def test_a_workflow_without_agents_gets_the_model_too() -> None:
    class Asks(Workflow):
        llm = ScriptedLLM(["noon", "noon"])

        @step
        async def ask(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=str(await self.llm.acomplete("When?")))

    store = MemoryStore()
    flow = Asks(store=store)
    await flow.run(run_id="first")
    same = await try_run(store, "first", flow)
    assert same.comparison.same
    trial = await try_run(store, "first", flow, llm=ScriptedLLM(["midnight"]))
    assert trial.comparison.right.models == ["scripted"]
    assert (await store.replay(trial.run_id)).result == "midnight"


async def test_a_trial_that_fails_is_compared() -> None:
    agent = await first_run()
    trial = await try_run(agent.__batonflow__.store, "first", agent, llm=ScriptedLLM([]))
    assert "script" in str(trial.error)
    assert (trial.comparison.right.status, trial.comparison.same) == ("failed", False)


async def test_mistakes_are_told() -> None:
    agent = await first_run()
    store = agent.__batonflow__.store
    with pytest.raises(StoreError, match="no run 'absent'"):
        await try_run(store, "absent", agent)
    with pytest.raises(CaseError, match="has a run 'first' already"):
        await try_run(store, "first", agent, new_id="first")
    with pytest.raises(LLMConfigurationError, match="names no model"):
        await try_run(store, "first", agent, llm="nonsense")
    with pytest.raises(StoreError, match="no run 'absent'"):
        await compare_runs(store, "first", "absent")


async def test_states_are_compared_at_their_end() -> None:
    class Writes(Workflow):
        @step
        async def note(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("place.name", "draft")
            await ctx.store.set("place", {"name": ev.name, "deep": True})
            await ctx.store.set("same", 1)
            return StopEvent(result="noted")

    store = MemoryStore()
    for name in ("Emden", "Husum"):
        await Writes(store=store).run(name=name, run_id=name)
    comparison = await compare_runs(store, "Emden", "Husum")
    assert comparison.state == {"place": ({"name": "Emden", "deep": True}, {"name": "Husum", "deep": True})}
    assert (comparison.result, comparison.first, comparison.same) == (None, None, False)
    assert comparison.as_data()["state"]["place"]["left"]["name"] == "Emden"
