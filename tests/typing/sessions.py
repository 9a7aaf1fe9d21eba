"""Sessions of agents, as type checkers see them."""

import asyncio
from dataclasses import dataclass
from typing import Any, assert_type

from pydantic import BaseModel

from batonflow import AgentResult, AgentWorkflow, ChatMessage, FunctionAgent, ScriptedLLM, Session, SessionInfo
from batonflow.agents import AgentHandler, Turn
from batonflow.llms import Usage, tool_call


@dataclass
class Deps:
    user: str


class Answer(BaseModel):
    days: int


class Case(BaseModel):
    open: int = 0


async def main() -> None:
    llm = ScriptedLLM([tool_call("final_answer", days=3)] * 8)
    agent = FunctionAgent(llm=llm, deps_type=Deps, output_type=Answer)
    chat = agent.session("ann")
    assert_type(chat, Session[Deps, Answer])
    assert isinstance(chat, Session)
    handler = chat.run("How long?", deps=Deps("ann"), request_id="m1", if_busy="wait", metadata={"user": "ann"})
    assert_type(handler, AgentHandler[Answer])
    assert isinstance(handler, AgentHandler)
    assert_type((await handler).output, Answer)
    assert isinstance((await handler).output, Answer)

    messages = await chat.messages(last=2)
    assert_type(messages, list[ChatMessage])
    assert isinstance(messages, list)
    async for turn in chat.turns():
        assert_type(turn, Turn[Answer])
        assert isinstance(turn, Turn)
        assert_type(turn.output, Answer | None)
        assert isinstance(turn.output, Answer | None)
    assert_type(await chat.state(), dict[str, Any])
    assert isinstance(await chat.state(), dict)
    assert_type(await chat.state(Case), Case)
    assert isinstance(await chat.state(Case), Case)
    assert_type(await chat.usage(), Usage)
    assert isinstance(await chat.usage(), Usage)
    branch = await chat.fork("ann-2", at_turn=1)
    assert_type(branch, Session[Deps, Answer])
    assert isinstance(branch, Session)
    resumed = await chat.resume(deps=Deps("ann"))
    assert_type(resumed, AgentHandler[Answer] | None)
    assert isinstance(resumed, AgentHandler | None)
    sessions = await agent.sessions(prefix="a")
    assert_type(sessions, list[SessionInfo])
    assert isinstance(sessions, list)


async def team_of_agents() -> None:
    team = AgentWorkflow([FunctionAgent(llm=ScriptedLLM(["hi"] * 3))])
    chat = team.session("ann")
    assert_type(chat, Session[object, str])
    assert isinstance(chat, Session)


def refused() -> None:
    agent = FunctionAgent(llm=ScriptedLLM(), deps_type=Deps, output_type=Answer)
    agent.session("ann").run("How long?")  # E
    agent.run("How long?", session="ann")  # E
    agent.run("How long?", deps=Deps("ann"), session="ann", if_busy="later")  # E
    agent.run("How long?", deps=Deps("ann"), session=7)  # E
    agent.run("How long?", deps=Deps("ann"), metadata={"user": 7})  # E


def synchronous() -> None:
    agent = FunctionAgent(llm=ScriptedLLM(["hi"] * 3), deps_type=type(None))
    output = agent.session("ann").run_sync("Hello.")
    assert_type(output, AgentResult[str])
    assert isinstance(output, AgentResult)


if __name__ == "__main__":
    asyncio.run(main())
