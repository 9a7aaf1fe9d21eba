"""Agents with every kind of memory: runs that follow one another, snapshots, other processes."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from pydantic import BaseModel, Field

from batonflow.agents import AgentOutput, FunctionAgent
from batonflow.agents.memory import (
    BaseMemory,
    BaseMemoryBlock,
    ChatMemoryBuffer,
    ChatSummaryMemoryBuffer,
    Memory,
    SQLiteChatStore,
    StaticMemoryBlock,
)
from batonflow.agents.memory.turns import is_observation, observation
from batonflow.llms import ChatMessage, MessageRole, ScriptedLLM, tool_call
from batonflow.tools import tool
from batonflow.workflow_core import Context, MemoryStore, SQLiteStore
from tests.agents.memory.conversations import shows_whole_calls
from tests.promises.programs.running import ROOT


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Topics(BaseMemoryBlock[str]):
    """Remembers what users asked about in turns that fell out."""

    name: str = "topics"
    asked: list[str] = Field(default_factory=list)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        return ", ".join(self.asked)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        self.asked += [message.content or "" for message in messages if message.role == MessageRole.USER]


KINDS = ["buffer", "buffer in a file", "summary", "memory", "memory in a file"]


def made(kind: str, folder: Path, **options: Any) -> BaseMemory:
    path = folder / "chats.db"
    match kind:
        case "buffer":
            return ChatMemoryBuffer.from_defaults(**options)
        case "buffer in a file":
            return ChatMemoryBuffer.from_defaults(chat_store=path, **options)
        case "summary":
            return ChatSummaryMemoryBuffer.from_defaults(llm=ScriptedLLM(["Summary."] * 50), **options)
        case "memory":
            blocks = [StaticMemoryBlock(name="user", static_content="Ann"), Topics()]
            return Memory.from_defaults(session_id="ann", memory_blocks=blocks, **options)
        case _:
            return Memory.from_defaults(session_id="ann", chat_store=f"sqlite:///{path}", **options)


def spoken(messages: list[ChatMessage]) -> list[str]:
    return [str(message) for message in messages if message.role in ("user", "assistant") and message.content]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_the_second_run_on_one_context_knows_the_first(kind: str, tmp_path: Path) -> None:
    llm = ScriptedLLM([tool_call("add", a=2, b=40), "It is 42.", "You asked for 2 + 40."])
    agent = FunctionAgent(llm=llm, tools=[add])
    ctx: Context[Any] = Context(agent)
    memory = made(kind, tmp_path)
    await agent.run("What is 2 + 40?", ctx=ctx, memory=memory)
    await agent.run("What did I ask?", ctx=ctx)
    shown = llm.requests[-1].messages
    assert spoken(shown) == ["user: What is 2 + 40?", "assistant: It is 42.", "user: What did I ask?"]
    assert [message.content for message in shown if message.role == "tool"] == ["42"]
    assert len(memory.get_all()) == 6


async def test_a_run_goes_on_with_a_context_out_of_json(kind: str, tmp_path: Path) -> None:
    agent = FunctionAgent(llm=ScriptedLLM(["Hello Ann."]))
    handler = agent.run("I am Ann.", memory=made(kind, tmp_path))
    await handler
    text = json.dumps(handler.ctx.to_dict())
    llm = ScriptedLLM(["Ann."])
    agent = FunctionAgent(llm=llm)
    again = agent.run("Who am I?", ctx=Context.from_dict(agent, json.loads(text)))
    await again
    assert spoken(llm.requests[0].messages) == ["user: I am Ann.", "assistant: Hello Ann.", "user: Who am I?"]
    memory = await again.ctx.store.get("memory")
    assert type(memory) is type(made(kind, tmp_path))
    assert len(await memory.aget_all()) == 4


async def test_long_conversations_stay_short_and_whole(kind: str, tmp_path: Path) -> None:
    memory = made(kind, tmp_path, token_limit=300, token_flush_size=60)
    turns = [turn for number in range(12) for turn in (tool_call("add", a=number, b=1), f"That is {number + 1}.")]
    llm = ScriptedLLM(turns)
    agent = FunctionAgent(llm=llm, tools=[add])
    ctx: Context[Any] = Context(agent)
    for number in range(12):
        await agent.run(f"What is {number} and 1? ".ljust(100, "."), ctx=ctx, memory=memory)
    everything = await memory.aget_all()
    assert len(everything) == 48
    for request in llm.requests:
        conversation = [message for message in request.messages if message.role != "system"]
        assert conversation[0].role == "user"
        assert shows_whole_calls(conversation, conversation)
    assert 2 <= len(llm.requests[-1].messages) < 30


async def test_observations_are_kept_with_their_turn_and_shown_without_a_mark(kind: str, tmp_path: Path) -> None:
    memory = made(kind, tmp_path, token_limit=60)
    turn = [ChatMessage("Run it."), ChatMessage("<execute>", role="assistant"), observation("42 ".ljust(60, "."))]
    for number in range(4):
        await memory.aput_messages([ChatMessage(f"q{number}".ljust(40, ".")), *turn])
    assert sum(map(is_observation, await memory.aget_all())) == 4
    shown = [message for message in await memory.aget() if message.role != "system"]
    assert [message.content for message in shown[-3:]] == [message.content for message in turn]
    assert len(shown) < 16
    assert "42" not in (shown[0].content or "")
    assert not any(map(is_observation, shown))


async def test_a_summary_is_shown_to_the_agent_and_comes_along_in_json() -> None:
    memory = ChatSummaryMemoryBuffer.from_defaults(llm=ScriptedLLM(["They spoke of tides."]), token_limit=30)
    agent = FunctionAgent(llm=ScriptedLLM(["a" * 60, "b" * 60]))
    ctx: Context[Any] = Context(agent)
    await agent.run("Tides?".ljust(60), ctx=ctx, memory=memory)
    handler = agent.run("Moon?".ljust(60), ctx=ctx)
    await handler
    llm = ScriptedLLM(["c"])
    agent = FunctionAgent(llm=llm)
    restored: Context[Any] = Context.from_dict(agent, json.loads(json.dumps(handler.ctx.to_dict())))
    (await restored.store.get("memory")).attach_llm(ScriptedLLM(["They spoke of tides and the moon."]))
    await agent.run("And now?", ctx=restored)
    assert llm.requests[0].messages[0].content == "They spoke of tides and the moon."


async def test_blocks_are_shown_to_the_agent_and_keep_what_they_learnt() -> None:
    memory = Memory.from_defaults(
        token_limit=40,
        chat_history_token_ratio=0.5,
        memory_blocks=[StaticMemoryBlock(name="user", static_content="Ann"), Topics()],
    )
    agent = FunctionAgent(llm=ScriptedLLM(["a" * 40, "b" * 40]))
    ctx: Context[Any] = Context(agent)
    await agent.run("Tides?", ctx=ctx, memory=memory)
    handler = agent.run("Moon?", ctx=ctx)
    await handler
    llm = ScriptedLLM(["c"])
    agent = FunctionAgent(llm=llm, system_prompt="Be kind.")
    await agent.run("Now?", ctx=Context.from_dict(agent, json.loads(json.dumps(handler.ctx.to_dict()))))
    first, second, *_ = llm.requests[0].messages
    assert first.content == "Be kind."
    assert second.content == "<memory>\n<user>\nAnn\n</user>\n<topics>\nTides?\n</topics>\n</memory>"


async def test_structured_answers_and_early_stops_see_the_whole_turn(kind: str, tmp_path: Path) -> None:
    class Sum(BaseModel):
        """A sum."""

        value: int

    memory = made(kind, tmp_path, token_limit=10)
    llm = ScriptedLLM([tool_call("add", a=2, b=40), "It is 42.", tool_call("Sum", value=42)])
    output = await FunctionAgent(llm=llm, tools=[add], output_cls=Sum).run("What is 2 + 40? Think well.", memory=memory)
    assert output.structured_response == {"value": 42}
    assert "What is 2 + 40?" in (llm.requests[-1].messages[-1].content or "")

    llm = ScriptedLLM([tool_call("add", a=2, b=40), "I found 42."])
    agent = FunctionAgent(llm=llm, tools=[add])
    await agent.run("Again: 2 + 40?", memory=memory, max_iterations=1, early_stopping_method="generate")
    assert any(message.content == "Again: 2 + 40?" for message in llm.requests[-1].messages)


PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from batonflow.agents import FunctionAgent
from batonflow.agents.memory import ChatMemoryBuffer, Memory
from batonflow.llms import ScriptedLLM
from batonflow.workflow_core import Context

async def main(kind, folder, asked, answer):
    saved = Path(folder, "context.json")
    llm = ScriptedLLM([answer])
    agent = FunctionAgent(llm=llm)
    if saved.exists():
        ctx, options = Context.from_dict(agent, json.loads(saved.read_text())), {}
    else:
        store = Path(folder, "chats.db") if "file" in kind else None
        make = ChatMemoryBuffer if "buffer" in kind else Memory
        ctx, options = Context(agent), {"memory": make.from_defaults(chat_store=store)}
    handler = agent.run(asked, ctx=ctx, **options)
    await handler
    saved.write_text(json.dumps(handler.ctx.to_dict()))
    print([str(message) for message in llm.requests[0].messages])

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "summary"])
async def test_another_process_goes_on(kind: str, tmp_path: Path) -> None:
    printed = []
    for asked, answer in (("I am Ann.", "Hello Ann."), ("Who am I?", "Ann.")):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-c", PROGRAM, kind, str(tmp_path), asked, answer,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, errors = await process.communicate()
        assert (process.returncode, errors.decode()) == (0, "")
        printed.append(output.decode().strip())
    assert printed[1] == str(["user: I am Ann.", "assistant: Hello Ann.", "user: Who am I?"])


async def test_the_methods_of_an_agent_take_a_mock_for_the_memory() -> None:
    agent = FunctionAgent(llm=ScriptedLLM(["hello"]), streaming=False)
    ctx = MagicMock(spec=Context)
    ctx.store.get, ctx.store.set = AsyncMock(return_value=[ChatMessage("scratch")]), AsyncMock()
    output = AgentOutput(response=ChatMessage("hello", role=MessageRole.ASSISTANT), current_agent_name="Agent")
    for memory in (MagicMock(spec=BaseMemory), AsyncMock(spec=BaseMemory)):
        assert await agent.finalize(ctx, output, memory) is output
        memory.aput_messages.assert_awaited_once_with([ChatMessage("scratch")])


async def test_a_tool_that_edits_the_state_leaves_the_memory_what_the_program_holds() -> None:
    async def note(ctx: Context[Any], text: str) -> str:
        """Write a note."""
        async with ctx.store.edit_state() as run:
            run["state"]["notes"] = [text]
        return "Noted."

    memory = ChatMemoryBuffer.from_defaults()
    llm = ScriptedLLM([tool_call("note", text="high"), "Done.", "Again."])
    agent = FunctionAgent(llm=llm, tools=[note], initial_state={"notes": []})
    ctx = Context[Any](agent)
    await agent.run("Take a note.", ctx=ctx, memory=memory)
    await agent.run("And?", ctx=ctx)
    assert [message.content for message in memory.get_all()][-2:] == ["And?", "Again."]
    assert await ctx.store.get("state") == {"notes": ["high"]}


RESTORES = """
import asyncio, json, sys
from batonflow.agents import FunctionAgent
from batonflow.llms import ScriptedLLM
from batonflow.workflow_core import Context

async def main():
    made = FunctionAgent(llm=ScriptedLLM(["two"]))
    ctx = Context.from_dict(made, json.loads(sys.argv[1]))
    print(await made.run("y", ctx=ctx), type(await ctx.store.get("kept")).__name__)

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["SQLiteChatStore", "Memory"])
async def test_what_a_program_keeps_is_restored_where_nothing_has_named_it_yet(tmp_path: Path, kind: str) -> None:
    made = FunctionAgent(llm=ScriptedLLM(["one"]))
    ctx: Context[Any] = Context(made)
    kept = SQLiteChatStore(tmp_path / "a.db") if kind == "SQLiteChatStore" else Memory.from_defaults(session_id="a")
    await ctx.store.set("kept", kept)
    await made.run("x", ctx=ctx)
    command = [sys.executable, "-W", "error", "-c", RESTORES, json.dumps(ctx.to_dict())]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ended.stdout, ended.stderr) == (f"two {kind}\n", "")


@pytest.mark.parametrize("first", ["chats", "runs"])
async def test_chats_and_runs_lie_in_one_file_whichever_was_there_first(first: str, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    memory = ChatMemoryBuffer.from_defaults(chat_store=path)
    if first == "chats":
        assert memory.get_all() == []
    store = SQLiteStore(path)
    made = FunctionAgent(llm=ScriptedLLM(["At six."]), store=store)
    assert str(await made.run("When?", memory=memory)) == "At six."
    assert [message.content for message in memory.get_all()] == ["When?", "At six."]
    await store.aclose()


@pytest.mark.parametrize("message", ["hello", {"role": "user", "content": "hello"}, None])
async def test_a_memory_says_what_it_keeps(message: Any) -> None:
    memory = ChatMemoryBuffer.from_defaults()
    for put in (lambda: memory.put(message), lambda: memory.put_messages([message])):
        with pytest.raises(TypeError, match=r"a memory keeps ChatMessage objects, not .*: use ChatMessage\(text"):
            put()
    for aput in (memory.aput(message), memory.aput_messages([message])):
        with pytest.raises(TypeError, match="a memory keeps ChatMessage"):
            await aput
    with pytest.raises(TypeError, match=r"put_messages\(\) takes a list of ChatMessage; use put\(\) for"):
        memory.put_messages(ChatMessage("hello"))  # type: ignore[arg-type]
    assert memory.get_all() == []


async def test_a_turn_records_the_memory_where_it_changes_and_nowhere_else() -> None:
    @tool
    def look(word: str) -> str:
        """Look a word up."""
        return "an answer"

    store = MemoryStore()
    agent = FunctionAgent(llm=ScriptedLLM([tool_call("look", word="tide"), "done"]), tools=[look], store=store)
    await agent.run("What is a tide?", run_id="r")
    records = await store.history("r")
    writers = [record["step"] for record in records for _, path, _ in record.get("writes", ()) if path == "memory"]
    assert writers == ["init_run", "parse_agent_output"]
