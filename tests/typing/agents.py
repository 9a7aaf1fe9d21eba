"""Outputs of agents, as type checkers see them."""

import asyncio
from typing import assert_type

from batonflow import AgentOutput, AgentResult, BaseWorkflowAgent, FunctionAgent, ScriptedLLM
from batonflow.agents import AgentHandler


class Mine(FunctionAgent[object, int]):
    """An agent of the user with a declared output."""


async def main() -> None:
    agent = FunctionAgent(llm=ScriptedLLM(["hi"]))
    handler = agent.run("Hello.")
    assert_type(handler, AgentHandler[str])
    assert isinstance(handler, AgentHandler)
    output = await handler
    assert_type(output, AgentResult[str])
    assert isinstance(output, AgentResult)
    assert_type(output.output, str)
    assert isinstance(output.output, str)
    numbers = AgentOutput(response=output.response, structured_response={"response": [1]}, current_agent_name="a")
    assert_type(numbers.output_as(list[int]), list[int])
    assert isinstance(numbers.output_as(list[int]), list)
    assert_type(numbers.output_as(int | None | list[int]), int | list[int] | None)
    assert isinstance(numbers.output_as(int | None | list[int]), list)

    async for event in agent.run("Hello.").stream_events():
        if isinstance(event, AgentOutput):
            assert_type(event, AgentOutput)
            assert isinstance(event, AgentOutput)
            assert_type(str(event.response.content), str)
            assert isinstance(event.response.content, str)


async def stored() -> None:
    agent = FunctionAgent(llm=ScriptedLLM(["hi"])).with_store("memory:")
    await agent.run("Hello.", run_id="one")
    again = agent.resume("one")
    assert_type(again, AgentHandler[str])
    assert isinstance(again, AgentHandler)
    assert_type((await again).output, str)
    assert isinstance((await again).output, str)
    handlers = await agent.recover()
    assert_type(handlers, list[AgentHandler[str]])
    assert isinstance(handlers, list)


def at_once() -> None:
    output = FunctionAgent(llm=ScriptedLLM(["hi"])).run_sync("Hello.")
    assert_type(output, AgentResult[str])
    assert isinstance(output, AgentResult)


def number_of(agent: BaseWorkflowAgent[object, int]) -> AgentHandler[int]:
    return agent.run("How many?")


async def refused(text: FunctionAgent[object, str], number: Mine) -> None:
    number_of(number)
    number_of(text)  # E
    wrong: int = (await text.run("Hello.")).output  # E
    print(wrong)


if __name__ == "__main__":
    asyncio.run(main())
    asyncio.run(stored())
    at_once()
