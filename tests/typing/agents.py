"""Outputs of agents, as type checkers see them."""

import asyncio
from typing import assert_type

from pydantic import BaseModel

from batonflow import AgentOutput, AgentResult, BaseWorkflowAgent, CodeActAgent, FunctionAgent, ReActAgent, ScriptedLLM
from batonflow.agents import AgentHandler


class Answer(BaseModel):
    number: int


class Mine(FunctionAgent[object, int]):
    """An agent of the user with a declared output."""


async def main() -> None:
    agent = FunctionAgent(llm=ScriptedLLM(["hi"] * 3))
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
    agent = FunctionAgent(llm=ScriptedLLM(["hi"] * 3), store="memory:", timeout=5, verbose=False)
    await agent.run("Hello.", run_id="one")
    again = agent.resume("one")
    assert_type(again, AgentHandler[str])
    assert isinstance(again, AgentHandler)
    assert_type((await again).output, str)
    assert isinstance((await again).output, str)
    handlers = await agent.recover()
    assert_type(handlers, list[AgentHandler[str]])
    assert isinstance(handlers, list)


async def with_output_cls() -> None:
    data = ScriptedLLM(['{"number": 42}'] * 3)
    agent = FunctionAgent(llm=data, output_cls=Answer)
    assert_type(agent, FunctionAgent[object, Answer])
    assert isinstance(agent, FunctionAgent)
    output = await agent.run("2 + 40?")
    assert_type(output.output, Answer)
    assert isinstance(output.output, Answer)
    acting = CodeActAgent(None, llm=data, output_cls=Answer, code_act_system_prompt=None)
    assert_type((await acting.run("2 + 40?")).output, Answer)
    assert isinstance((await acting.run("2 + 40?")).output, Answer)
    reasoning = ReActAgent(llm=ScriptedLLM(["Thought: easy.\nAnswer: 42"] * 2), timeout=3)
    assert_type((await reasoning.run("2 + 40?")).output, str)
    assert isinstance((await reasoning.run("2 + 40?")).output, str)


class Extended(FunctionAgent):
    """An agent of the user with an option more."""

    extra: int = 0


async def extended() -> None:
    agent = Extended(llm=ScriptedLLM(["hi"] * 3), extra=1, timeout=3, store=None)
    output = await agent.run("Hello.")
    assert_type(output.output, str)
    assert isinstance(output.output, str)


def at_once() -> None:
    output = FunctionAgent(llm=ScriptedLLM(["hi"] * 3)).run_sync("Hello.")
    assert_type(output, AgentResult[str])
    assert isinstance(output, AgentResult)


def number_of(agent: BaseWorkflowAgent[object, int]) -> AgentHandler[int]:
    return agent.run("How many?")


async def refused(text: FunctionAgent[object, str], number: Mine) -> None:
    number_of(number)
    number_of(text)  # E
    wrong: int = (await text.run("Hello.")).output  # E
    print(wrong)
    FunctionAgent(lm=None)  # E
    FunctionAgent(llm=3)  # E
    FunctionAgent(timeout="soon")  # E
    FunctionAgent(output_cls=int)  # E
    Extended(extra="no")  # E
    ReActAgent(allow_parallel_tool_calls=False)  # E


if __name__ == "__main__":
    asyncio.run(main())
    asyncio.run(stored())
    at_once()
