"""Stored runs become the questions of an evaluation, which compares two models with pydantic-evals."""

import asyncio
from dataclasses import dataclass
from typing import Any

from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import Evaluator, EvaluatorContext

from batonflow import AgentOutput, FunctionAgent, ScriptedLLM
from batonflow.cases import case_of_run
from batonflow.llms import LLM, tool_call
from batonflow.llms.stream import ChatRequest
from batonflow.workflow_core import MemoryStore

DEPTHS = {"Emden": 8, "Husum": 3, "Norddeich": 2}


def depth(harbour: str) -> str:
    """Depth of a harbour at low tide."""
    return f"{DEPTHS[harbour]} metres"


def careful(request: ChatRequest) -> Any:
    """Answer as a model that measures first."""
    last = request.messages[-1]
    if last.role.value == "tool":
        return f"It has {last.content}."
    return tool_call("depth", harbour=str(last.content).split()[-1].rstrip("?"))


def hasty(request: ChatRequest) -> Any:
    """Answer as a model that measures only in places it does not know."""
    return "It has 8 metres." if "Emden" in str(request.messages) else careful(request)


def agent_with(llm: LLM, **options: Any) -> FunctionAgent:
    return FunctionAgent(llm=llm, tools=[depth], system_prompt="Measure before you answer.", **options)


@dataclass
class SaysTheDepth(Evaluator[str, AgentOutput]):
    """The depth of the stored run is in the answer."""

    def evaluate(self, ctx: EvaluatorContext[str, AgentOutput]) -> bool:
        return str(ctx.metadata) in str(ctx.output)


@dataclass
class Measures(Evaluator[str, AgentOutput]):
    """The agent calls the tool."""

    def evaluate(self, ctx: EvaluatorContext[str, AgentOutput]) -> bool:
        return any(call.tool_name == "depth" for call in ctx.output.tool_calls)


async def questions() -> Dataset[str, AgentOutput]:
    """Return the inputs of stored runs with the results of their tools."""
    store = MemoryStore()  # a program has SQLiteStore("runs.db"), with runs of its users
    agent = agent_with(ScriptedLLM([careful] * 6), store=store)
    for harbour in DEPTHS:
        await agent.run(f"How deep is {harbour}?", run_id=harbour)
    cases = [await case_of_run(store, harbour) for harbour in DEPTHS]
    return Dataset(
        name="depths",
        cases=[
            Case(name=case.name, inputs=case.input["user_msg"], metadata=case.calls[-1].messages[-1].content)
            for case in cases
        ],
        evaluators=[SaysTheDepth(), Measures()],
    )


async def main() -> None:
    dataset = await questions()
    for name, model in (("careful", careful), ("hasty", hasty)):
        agent = agent_with(ScriptedLLM([model] * 6))

        async def answer(question: str, agent: FunctionAgent = agent) -> AgentOutput:
            return await agent.run(question)

        report = await dataset.evaluate(answer, progress=False)
        checks = [check.value for case in report.cases for check in case.assertions.values()]
        print(f"{name}: {sum(checks)} of {len(checks)} checks hold")
        for case in report.cases:
            failed = "".join(f" (not {check.name})" for check in case.assertions.values() if not check.value)
            print(f"  {case.name}: {case.output}{failed}")


asyncio.run(main())
