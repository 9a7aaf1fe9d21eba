"""Teams, as type checkers see them."""

import asyncio
from typing import assert_type

from pydantic import BaseModel

from batonflow import AgentWorkflow, FunctionAgent, ReActAgent, ScriptedLLM
from batonflow.agents import AgentHandler


class Answer(BaseModel):
    number: int


def member(name: str) -> FunctionAgent:
    return FunctionAgent(name=name, description=f"It is {name}.", llm=ScriptedLLM(['{"number": 42}'] * 3))


async def main() -> None:
    team = AgentWorkflow(agents=[member("adder"), member("writer")], root_agent="adder", timeout=5)
    assert_type(team, AgentWorkflow[object, str])
    assert isinstance(team, AgentWorkflow)
    output = await team.run("2 + 40?")
    assert_type(output.output, str)
    assert isinstance(output.output, str)


async def with_output_cls() -> None:
    reasoning = ReActAgent(name="other", description="Another.", llm=ScriptedLLM(["hi"]), output_cls=Answer)
    team = AgentWorkflow([member("adder"), reasoning], root_agent="adder", output_cls=Answer, name="team")
    handler = team.run("2 + 40?")
    assert_type(handler, AgentHandler[Answer])
    assert isinstance(handler, AgentHandler)
    output = await handler
    assert_type(output.output, Answer)
    assert isinstance(output.output, Answer)
    outer = AgentWorkflow([team])
    assert_type((await outer.run("2 + 40?")).output, str)
    assert isinstance((await outer.run("2 + 40?")).output, str)


async def with_output_type() -> None:
    team = AgentWorkflow([member("adder")], output_type=Answer | None)
    output = await team.run("2 + 40?")
    assert_type(output.output, Answer | None)
    assert isinstance(output.output, Answer | None)


async def of_tools() -> None:
    team = AgentWorkflow.from_tools_or_functions([], llm=ScriptedLLM(['{"number": 42}']), output_cls=Answer)
    output = await team.run("2 + 40?")
    assert_type(output.output, Answer)
    assert isinstance(output.output, Answer)


async def refused() -> None:
    AgentWorkflow(agents=[3])  # E
    AgentWorkflow([member("adder")], roots="adder")  # E
    AgentWorkflow([member("adder")], output_cls=int)  # E
    output = await AgentWorkflow([member("adder")]).run("2 + 40?")
    number: int = output.output  # E
    print(number)


if __name__ == "__main__":
    asyncio.run(main())
    asyncio.run(with_output_cls())
    asyncio.run(with_output_type())
    asyncio.run(of_tools())
