"""A folder with a project in it, and the command line run on it: in a process of its own, or in this one."""

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["FLOWS", "TEAM", "cli", "environment", "start"]

ROOT = Path(__file__).resolve().parents[2]
_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "DEEPSEEK_API_KEY", "BATONFLOW_STORE", "NO_COLOR")

TEAM = '''
"""A team: one agent looks something up, the other publishes when a person agrees."""

from batonflow import AgentWorkflow, FunctionAgent, ScriptedLLM, tool
from batonflow.llms import tool_call


def search(topic: str) -> str:
    """Look something up."""
    return f"High water comes twice a day ({topic})."


@tool(requires_approval=True)
def publish(title: str) -> str:
    """Publish an article."""
    return f"published {title}"


def research(request):
    if "twice a day" not in str(request.messages[-1].content):
        return tool_call("search", topic="tides")
    return tool_call("handoff", to_agent="writer", reason="the facts are there")


def write(request):
    last = request.messages[-1]
    if last.role.value == "tool" and "handed over" not in str(last.content):
        return f"That is what came of it: {last.content}"
    return ["I will publish this.", tool_call("publish", title="Tides")]


researcher = FunctionAgent(
    name="researcher", description="Finds facts.", tools=[search], can_handoff_to=["writer"],
    llm=ScriptedLLM([research] * 20),
)
writer = FunctionAgent(name="writer", description="Publishes.", tools=[publish], llm=ScriptedLLM([write] * 20))
team = AgentWorkflow(agents=[researcher, writer], root_agent="researcher")
'''

FLOWS = """
import asyncio
from pathlib import Path

from batonflow import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step


class Named(StartEvent):
    name: str = "nobody"
    times: int = 1
    loud: bool = False


class Halfway(Event):
    text: str


class Greet(Workflow):
    @step
    async def greet(self, ctx: Context, ev: Named) -> Halfway:
        text = " ".join(["hello", ev.name] * ev.times)
        ctx.write_event_to_stream(Halfway(text=text))
        return Halfway(text=text.upper() if ev.loud else text)

    @step
    async def end(self, ev: Halfway) -> StopEvent:
        return StopEvent(result=ev.text)


class Fail(Workflow):
    @step
    async def fail(self, ev: StartEvent) -> StopEvent:
        raise ValueError("no such harbour: \\x1b[31mEmden")


class Question(InputRequiredEvent):
    text: str


class Answer(HumanResponseEvent):
    who: str
    yes: bool


class Ask(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(Answer, waiter_event=Question(text="Sail?"), requirements={"who": "ann"})
        return StopEvent(result=f"{answer.who} said {'yes' if answer.yes else 'no'}")


class AskAround(Workflow):
    @step
    async def ask(self, ev: StartEvent) -> Question:
        return Question(text="Which way?")

    @step
    async def take(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=ev.response)


class Slow(Workflow):
    @step
    async def first(self, ev: StartEvent) -> Halfway:
        print("first", flush=True)
        return Halfway(text="second")

    @step
    async def second(self, ctx: Context, ev: Halfway) -> StopEvent:
        await ctx.once("what was before is written now", str)
        print("second", flush=True)
        if not Path("go").exists():
            await asyncio.sleep(60)
        return StopEvent(result="through")


greet = Greet(workflow_name="greet")
fail = Fail(workflow_name="fail")
ask = Ask(timeout=None, workflow_name="ask")
around = AskAround(timeout=None, workflow_name="around")
slow = Slow(timeout=None, workflow_name="slow")
number = 7


def make():
    return Greet(workflow_name="made")


def broken():
    raise OSError("no disk")


async def later():
    return greet
"""


def environment(**more: str) -> dict[str, str]:
    """What a process of the command line sees: none of this machine's keys."""
    kept = {name: value for name, value in os.environ.items() if name not in _KEYS}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "error", **more}


def start(folder: Path, *arguments: str, **more: str) -> "subprocess.Popen[str]":
    """Begin a command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "batonflow", *arguments], cwd=folder, env=environment(**more), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def cli(folder: Path, *arguments: str, said: str = "", **more: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command in a process of its own.

    Args:
        folder: Where it runs.
        arguments: Its command line.
        said: What it reads.
        more: Variables of its environment.
    """
    process = start(folder, *arguments, **more)
    output, errors = process.communicate(said, timeout=50)
    return process.returncode, output, errors
