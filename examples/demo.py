"""A FunctionAgent at work: it streams, calls two real tools, meets a failing one, and answers. Run it with `make demo`.

Without a key it uses a scripted model, whose answers are written below; everything else is real: the tools, the
agent's loop, the events. With OPENAI_API_KEY or ANTHROPIC_API_KEY set (and OPENAI_BASE_URL, for servers that speak
OpenAI's protocol) it asks that model instead.
"""

import asyncio
import csv
import tempfile
from collections.abc import Callable
from pathlib import Path

from models import model_or

from batonflow import FunctionAgent
from batonflow.agents import AgentOutput, AgentStream, ToolCall, ToolCallResult
from batonflow.llms import LLM, ScriptedLLM, tool_call

TIDES = [("06:12", 5.4), ("12:27", 0.9), ("18:41", 5.7)]
TASK = "Read tides.csv and tell me how much the water rises between noon and evening."


def file_reader(folder: Path) -> Callable[[str], str]:
    """A tool that reads files of one folder and of no other."""

    def read_file(name: str) -> str:
        """Read a text file.

        Args:
            name: The file's name, without folders.
        """
        path = folder / Path(name).name
        if not path.exists():
            raise FileNotFoundError(
                f"there is no {name}; there is {', '.join(sorted(p.name for p in folder.iterdir()))}"
            )
        return path.read_text()

    return read_file


def subtract(a: float, b: float) -> float:
    """Subtract b from a."""
    return round(a - b, 3)


def choose_model() -> tuple[LLM, str]:
    """A real model when there is a key for one, else the script; and how to say which."""
    llm = model_or(
        ["I will look at the file.", tool_call("read_file", name="tide.csv")],
        ["That name was wrong; the file is called tides.csv.", tool_call("read_file", name="tides.csv")],
        tool_call("subtract", a=5.7, b=0.9),
        "Between 12:27 and 18:41 the water rises by 4.8 metres, from 0.9 to 5.7.",
    )
    if isinstance(llm, ScriptedLLM):
        return llm, "a scripted model (set OPENAI_API_KEY or ANTHROPIC_API_KEY for a real one)"
    return llm, f"{llm.class_name()}'s {llm.metadata.model_name}"


async def main(folder: Path) -> None:
    """Write the file, ask, and print events as they come."""
    with (folder / "tides.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("time", "metres"), *TIDES])
    llm, which = choose_model()
    print(f"model: {which}\ntask:  {TASK}\n")
    agent = FunctionAgent(llm=llm, tools=[file_reader(folder), subtract])
    handler = agent.run(TASK)
    async for event in handler.stream_events():
        match event:
            case AgentStream():
                print(event.delta, end="", flush=True)
            case ToolCall():
                print(f"\n  -> {event.tool_name}({', '.join(f'{k}={v!r}' for k, v in event.tool_kwargs.items())})")
            case ToolCallResult():
                mark = "failed" if event.tool_output.is_error else "gave"
                print(f"  <- {event.tool_name} {mark}: {event.tool_output.content.strip()!r}")
            case AgentOutput():
                print()
            case _:
                pass
    output = await handler
    failed = sum(call.tool_output.is_error for call in output.tool_calls if isinstance(call, ToolCallResult))
    print(f"\nanswer: {output}")
    print(f"{len(output.tool_calls)} tool calls, {failed} of them failed and was recovered from.")


with tempfile.TemporaryDirectory() as name:
    asyncio.run(main(Path(name)))
