"""A team that asks two people at once, run in processes that exit in the middle.

``python -m tests.agents.interrupting FOLDER`` plays the stories of :func:`some_stories`, and with ``all`` behind it
those of :func:`stories`. Each leg of a story is a process of its own, which ends by ``os._exit`` where the story says
so and leaves nothing but ``ctx.to_dict()`` as JSON. What the tools did stands in a ledger outside, and what came of the
story in a file of its own.
"""

import asyncio
import itertools
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batonflow.agents import AgentHandler, AgentWorkflow, FunctionAgent
from batonflow.agents.approvals import ApprovalRequest
from batonflow.llms import ChatMessage, ScriptedLLM, ToolCallBlock
from batonflow.llms.stream import ChatRequest
from batonflow.tools import tool
from batonflow.workflow_core import Context

__all__ = ["DECISIONS", "EXITS", "POINTS", "Story", "some_stories", "stories"]

POINTS = ("asked", "answered", "done", "answered both")
"""Where a leg may end: both people are asked; one has answered, just now; what that one allowed is done; both have."""

EXITS = ((), *((point,) for point in POINTS), ("asked", "done"), POINTS)
"""Where the processes of a story exit."""

DECISIONS = ("approve", "deny", "edit")

LEDGER = Path("ledger")


@dataclass(frozen=True)
class Story:
    """Who answers first, what both say, and where processes exit.

    Args:
        first: The tool whose request is answered first.
        publish: What is said to one request.
        mail: What is said to the other.
        exits: The points at which a process exits.
    """

    first: str
    publish: str
    mail: str
    exits: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Names its files."""
        return "-".join([self.first, self.publish, self.mail, *self.exits]).replace(" ", "_")

    @property
    def order(self) -> tuple[str, str]:
        """The tools in the order in which their requests are answered."""
        return ("publish", "mail") if self.first == "publish" else ("mail", "publish")


def stories() -> Iterator[Story]:
    """Every order, every pair of decisions and every choice of exits."""
    for one in itertools.product(("publish", "mail"), DECISIONS, DECISIONS, EXITS):
        yield Story(*one)


def some_stories() -> Iterator[Story]:
    """Each order and pair of decisions without exits, and each choice of exits with each decision of either person."""
    yield from (story for story in stories() if not story.exits)
    for (number, exits), (place, publish) in itertools.product(enumerate(EXITS[1:]), enumerate(DECISIONS)):
        mail = DECISIONS[(number + place) % len(DECISIONS)]
        yield Story(("publish", "mail")[(number + place) % 2], publish, mail, exits)


# --- the team ---------------------------------------------------------------------------------------------------------


def wrote(line: str) -> str:
    """Write down, outside of every run, that a tool's body has run."""
    with LEDGER.open("a") as ledger:
        ledger.write(line + "\n")
    return line


@tool
async def search(topic: str) -> str:
    """Look something up."""
    return wrote(f"searched {topic}")


@tool(requires_approval=True)
async def publish(title: str) -> str:
    """Publish an article."""
    return wrote(f"published {title}")


@tool(requires_approval=True)
async def mail(to: str, text: str = "It is out.") -> str:
    """Send a letter."""
    return wrote(f"mailed {to}: {text}")


def call(call_id: str, name: str, **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(tool_call_id=call_id, tool_name=name, tool_kwargs=arguments)


def handoff(call_id: str, to: str) -> ToolCallBlock:
    return call(call_id, "handoff", to_agent=to, reason=f"this is for the {to}")


def finds(request: ChatRequest) -> Any:
    if request.messages[-1].role == "user":
        return call("r1", "search", topic="tides")
    return handoff("r2", "writer")


def writes(request: ChatRequest) -> Any:
    asked = {message.additional_kwargs.get("tool_call_id") for message in request.messages}
    if "w1" not in asked:
        return ["Both at once.", call("w1", "publish", title="Tides"), call("w2", "mail", to="Ann")]
    return handoff("w3", "reviewer")


def reviews(request: ChatRequest) -> Any:
    told = [message.content for message in request.messages if message.role == "tool"]
    return f"In all: {'; '.join(str(one).splitlines()[0] for one in told)}"


def team() -> AgentWorkflow:
    """The team, whose models go by the conversation alone, as models do."""

    def agent(name: str, model: Any, tools: list[Any]) -> FunctionAgent:
        return FunctionAgent(name=name, description=f"The {name}.", tools=tools, llm=ScriptedLLM([model] * 9))

    return AgentWorkflow(
        agents=[
            agent("researcher", finds, [search]),
            agent("writer", writes, [publish, mail]),
            agent("reviewer", reviews, []),
        ],
        root_agent="researcher",
        initial_state={"topic": "tides"},
    )


# --- one leg of a story -----------------------------------------------------------------------------------------------

EDITED: dict[str, dict[str, Any]] = {"publish": {"title": "Tides, edited"}, "mail": {"to": "Bob", "text": "Read it."}}


def answer(request: ApprovalRequest, decision: str) -> None:
    """Say what the story has a person say."""
    if decision == "deny":
        request.deny("not today")
    else:
        request.approve(arguments=EDITED[request.tool_name] if decision == "edit" else None)


def read(name: str) -> Any:
    return json.loads(Path(name).read_text())


def write(name: str, value: Any) -> None:
    Path(name).write_text(json.dumps(value, sort_keys=True))


class Leg:
    """A process: takes the story up where the last one exited, until the next exit or the end.

    Args:
        story: The story.
        passed: How many of the points lie behind it.
    """

    def __init__(self, story: Story, passed: int) -> None:
        self.story = story
        self.passed = passed

    async def play(self) -> None:
        """Go on to the next exit, or write down what came of it."""
        made = team()
        if self.passed:
            handler = made.run(ctx=Context.from_dict(made, read("run.json")))
        else:
            handler = made.run("Write about tides.", run_id="tides")
        decisions = {"publish": self.story.publish, "mail": self.story.mail}
        first, second = self.story.order
        # What was answered before this process is not asked again.
        asked = 2 if self.passed < 2 else 1
        waiting: dict[str, ApprovalRequest] = {}
        async for request in handler.approvals():
            waiting[request.tool_name] = request
            if len(waiting) < asked:
                continue
            if asked == 2:
                self._point("asked", handler)
                answer(waiting[first], decisions[first])
                self._point("answered", handler)
            await settled(handler)
            self._point("done", handler)
            answer(waiting[second], decisions[second])
            self._point("answered both", handler)
        await self._end(handler)

    def _point(self, name: str, handler: AgentHandler) -> None:
        if name in self.story.exits and POINTS.index(name) >= self.passed:
            write("run.json", handler.ctx.to_dict())
            os._exit(POINTS.index(name) + 1)

    async def _end(self, handler: AgentHandler) -> None:
        output = await handler
        memory: list[ChatMessage] = await (await handler.ctx.store.get("memory")).aget_all()
        found = {
            "output": output.model_dump(mode="json", exclude={"raw"}),
            "memory": [message.model_dump(mode="json") for message in memory],
            "state": await handler.ctx.store.get("state"),
        }
        write("outcome.json", found)


async def settled(handler: AgentHandler) -> None:
    """Let the run go on until it waits for the other person."""
    for _ in range(200):
        await asyncio.sleep(0)
    assert not handler.is_done()


def play(story: Story, folder: Path) -> None:
    """Play a story, each leg in a process of its own; ``exits`` in its folder says where they exited."""
    folder.mkdir()
    passed, exits = 0, list[str]()
    while True:
        pid = os.fork()
        if pid == 0:
            try:
                os.chdir(folder)
                asyncio.run(Leg(story, passed).play())
                os._exit(0)
            except BaseException as error:  # noqa: BLE001 - nothing may come out of the fork
                write("outcome.json", {"failed": repr(error)})
                os._exit(99)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code in (0, 99):
            (folder / "exits").write_text(json.dumps(exits))
            return
        passed = code
        exits.append(POINTS[code - 1])


if __name__ == "__main__":
    for one in stories() if sys.argv[2:] == ["all"] else some_stories():
        play(one, Path(sys.argv[1]) / one.name)
