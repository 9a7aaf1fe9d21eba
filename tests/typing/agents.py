"""Outputs of agents, as type checkers see them."""

import asyncio
from dataclasses import dataclass
from typing import assert_type

from pydantic import BaseModel

from batonflow import AgentOutput, AgentResult, BaseWorkflowAgent, CodeActAgent, FunctionAgent, ReActAgent, ScriptedLLM
from batonflow.agents import AgentHandler
from batonflow.llms import tool_call


class Answer(BaseModel):
    number: int


@dataclass
class Seat:
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


def book(seat: int) -> Seat:
    """Book a seat."""
    return Seat(seat)


async def book_later(seat: int) -> Seat:
    """Book a seat."""
    return Seat(seat)


async def with_output_type() -> None:
    llm = ScriptedLLM([tool_call("final_answer", number=42)] * 4)
    structured = FunctionAgent(llm=llm, output_type=Answer, output_retries=2)
    assert_type(structured, FunctionAgent[object, Answer])
    assert isinstance(structured, FunctionAgent)
    output = await structured.run("2 + 40?")
    assert_type(output, AgentResult[Answer])
    assert isinstance(output, AgentResult)
    assert_type(output.output, Answer)
    assert isinstance(output.output, Answer)
    assert_type(output.blocked, str | None)
    assert isinstance(output.blocked, str | None)

    union = await FunctionAgent(llm=llm, output_type=Answer | str).run("2 + 40?")
    assert_type(union.output, Answer | str)
    assert isinstance(union.output, Answer | str)
    maybe = await FunctionAgent(
        llm=ScriptedLLM([tool_call("final_answer", response=None)]), output_type=int | None
    ).run("?")
    assert_type(maybe.output, int | None)
    assert isinstance(maybe.output, int | None)
    listed = await FunctionAgent(llm=ScriptedLLM(["[1, 2]"]), output_type=list[int]).run("?")
    assert_type(listed.output, list[int])
    assert isinstance(listed.output, list)


async def with_functions() -> None:
    llm = ScriptedLLM([tool_call("book", seat=1), tool_call("book_later", seat=2)])
    booked = await FunctionAgent(llm=llm, output_type=book).run("Book.")
    assert_type(booked.output, Seat)
    assert isinstance(booked.output, Seat)
    later = await FunctionAgent(llm=llm, output_type=book_later).run("Book.")
    assert_type(later.output, Seat)
    assert isinstance(later.output, Seat)


async def of_other_kinds() -> None:
    reasoning = ReActAgent(llm=ScriptedLLM(["Thought: easy.\nAnswer: 42"]), output_type=int)
    number = (await reasoning.run("2 + 40?")).output
    assert_type(number, int)
    assert isinstance(number, int)
    acting = CodeActAgent(llm=ScriptedLLM(["42"]), output_type=int)
    number = (await acting.run("2 + 40?")).output
    assert_type(number, int)
    assert isinstance(number, int)
    declared = Mine(llm=ScriptedLLM(["42"]), output_type=int)
    number = (await declared.run("2 + 40?")).output
    assert_type(number, int)
    assert isinstance(number, int)


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
    FunctionAgent(output_type=Answer, output_cls=Answer)  # E
    lines: list[str] = (await FunctionAgent(output_type=list[int]).run("?")).output  # E
    print(lines)
    Extended(extra="no")  # E
    ReActAgent(allow_parallel_tool_calls=False)  # E


if __name__ == "__main__":
    asyncio.run(main())
    asyncio.run(stored())
    at_once()
