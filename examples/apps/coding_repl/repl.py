"""Talk with an agent about the files of a folder: it reads them, and asks before it writes one."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from batonflow import LLM, Budget, FunctionAgent, Price, ScriptedLLM, llm_from
from batonflow.agents import AgentHandler, AgentStream, ApprovalRequired
from batonflow.agents.memory import ChatMemoryBuffer
from batonflow.llms import tool_call, track_usage
from batonflow.llms.scripted import Answer
from batonflow.llms.stream import ChatRequest
from batonflow.tools.mcp import MCPTools
from batonflow.workflow_core import BatonflowError

SERVER = Path(__file__).with_name("file_server.py")


class Repl:
    """A conversation with one memory and one sum of dollars for all questions."""

    def __init__(self, agent: FunctionAgent[object, str], dollars: float) -> None:
        self.agent = agent
        self.left = dollars
        self.memory = ChatMemoryBuffer.from_defaults()

    def talk(self, runner: asyncio.Runner) -> None:
        """Take questions until Ctrl-C or Ctrl-D at the prompt. Ctrl-C in an answer stops the answer."""
        while (question := ask("> ")) is not None:
            if not question:
                continue
            try:
                runner.run(self.turn(question))
            except KeyboardInterrupt:
                print("\nstopped")
            print(f"({max(self.left, 0):.4f} dollars left)")

    async def turn(self, question: str) -> None:
        if self.left <= 0:
            print("The budget is used up.")
            return
        with track_usage() as spent:
            try:
                # Leaving the block early, as Ctrl-C does, cancels the run.
                budget = Budget(max_cost=self.left)
                async with self.agent.run(question, memory=self.memory, budget=budget) as handler:
                    await show(handler)
            except BatonflowError as error:
                print(f"\n{type(error).__name__}: {error}")
            finally:
                self.left -= spent.usage.cost or 0


async def show(handler: AgentHandler[str]) -> None:
    """Print the answer as it comes, and ask for approvals."""
    async for event in handler.stream_events():
        if isinstance(event, AgentStream):
            print(event.delta, end="", flush=True)
        elif isinstance(event, ApprovalRequired):
            print(f"\n--- {event.arguments['name']}\n{event.arguments['text']}\n---")
            if ask("write it? [y/n] ") == "y":
                handler.approve(event.id)
            else:
                handler.deny(event.id, "the user does not want this change")
    await handler
    print()


def ask(prompt: str) -> str | None:
    """Read a line; None at the end of the input or after Ctrl-C."""
    # The handler of asyncio would hold a Ctrl-C back until the line is complete.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input(prompt).strip()
    except (EOFError, KeyboardInterrupt):
        print()
        return None
    finally:
        signal.signal(signal.SIGINT, before)


def agent_for(llm: LLM, folder: Path) -> FunctionAgent[object, str]:
    files = MCPTools([sys.executable, str(SERVER), str(folder)], namespace="files", requires_approval=["write_file"])
    return FunctionAgent(
        name="coder",
        system_prompt="You help with the program in this folder. Read files before you speak of them.",
        llm=llm,
        tools=[files],
    )


def script(request: ChatRequest) -> Answer:
    """Follow simple orders, for a try without a real model: ``list``, ``read NAME``, ``write NAME TEXT``."""
    last = request.messages[-1]
    if last.role == "tool":
        return f"I see: {last.content}"
    questions = [str(message.content) for message in request.messages if message.role == "user"]
    match questions[-1].split(maxsplit=2):
        case ["list"]:
            return tool_call("files__list_files")
        case ["read", name]:
            return tool_call("files__read_file", name=name)
        case ["write", name, text]:
            return tool_call("files__write_file", name=name, text=text)
        case _:
            return f"You have said {len(questions)} things: {', '.join(questions)}."


def main(folder: Path, llm: LLM, dollars: float) -> None:
    agent = agent_for(llm, folder)
    with asyncio.Runner() as runner:
        try:
            Repl(agent, dollars).talk(runner)
        except KeyboardInterrupt:  # between an answer and the next prompt
            print()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C does not leave the file server behind
            runner.run(agent.aclose())  # ends the file server
    print("Bye.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path())
    parser.add_argument("--model", help="openai:gpt-5.6, for example; by default a script answers")
    parser.add_argument("--dollars", type=float, default=1.0, help="for the whole conversation")
    parser.add_argument("--delay", type=float, default=0.02, help="seconds between the words of the script")
    given = parser.parse_args()
    scripted = ScriptedLLM([script] * 1000, delay=given.delay, price=Price(input=2, output=8))
    main(given.folder, llm_from(given.model) if given.model else scripted, given.dollars)
