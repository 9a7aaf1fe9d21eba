"""Open questions without the classes of a run: the same as with its workflow, at every moment of the run."""

from pathlib import Path
from typing import Any

from batonflow import FunctionAgent, ScriptedLLM, SQLiteStore, tool
from batonflow.cli.questions import open_questions
from batonflow.llms import tool_call
from batonflow.workflow_core import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)


class Inner(Workflow):
    @step
    async def ask(self, ev: StartEvent) -> InputRequiredEvent:
        return InputRequiredEvent(prefix="Second?")

    @step
    async def take(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=ev.get("response"))


class Twice(Workflow):
    """Asks by a wait, by a returned event inside a child, and by ``ctx.ask``."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent, inner: Inner) -> StopEvent:
        first = await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="First?"))
        second = await inner.run()
        third = await ctx.ask("Third?", int)
        return StopEvent(result=[first.get("response"), second, third])


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def payer(store: SQLiteStore) -> FunctionAgent:
    return FunctionAgent(
        llm=ScriptedLLM([[tool_call("pay", amount=1), tool_call("pay", amount=2)], "Done."]), tools=[pay], store=store
    )


async def ids(store: SQLiteStore, workflow: Any) -> tuple[list[str], list[str]]:
    """The ids of the open questions, from the records alone and with the workflow."""
    alone = sorted(one.id for one in await open_questions(store, "r"))
    return alone, sorted(one.id for one in await workflow.open_inputs("r"))


async def first_question(handler: Any) -> Any:
    async for request in handler.inputs():
        return request
    raise AssertionError("the run asks nothing")


async def test_questions_of_a_workflow_with_a_child(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")

    def flow() -> Twice:
        return Twice(timeout=None, store=store, workflows={"inner": Inner(timeout=None)})

    handler = flow().run(run_id="r")
    for answer in ("a", "b", 3):
        await first_question(handler)
        await handler.interrupt()
        alone, known = await ids(store, flow())
        assert (alone, len(alone)) == (known, 1)
        handler = flow().resume("r")
        request = await first_question(handler)
        if isinstance(answer, int):
            request.respond(answer)
        else:
            request.respond(response=answer)
    assert await handler == ["a", "b", 3]
    assert await ids(store, flow()) == ([], [])


async def test_approvals_of_an_agent(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    handler = payer(store).run("Pay both.", run_id="r")
    seen = 0
    async for _ in handler.approvals():
        seen += 1
        if seen == 2:
            break
    await handler.interrupt()
    alone, known = await ids(store, payer(store))
    assert (alone, len(alone)) == (known, 2)
    handler = payer(store).resume("r")
    async for request in handler.approvals():
        request.approve()
    assert str(await handler) == "Done."
    assert await ids(store, payer(store)) == ([], [])
