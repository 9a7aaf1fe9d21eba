"""A model without latency for the benchmarks of agents: it streams what a plan says.

``model(plan)`` takes an asynchronous generator function of the messages, which yields ``("delta", text)`` and
``("calls", [(id, name, arguments), ...])``.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

from pydantic import PrivateAttr

from batonflow.llms import ChatMessage, FunctionCallingLLM, LLMMetadata
from batonflow.llms.stream import ChatRequest, Finish, StreamEvent, TextDelta, ToolCallDelta

Plan = Callable[[Sequence[ChatMessage]], AsyncIterator[tuple[str, Any]]]


_METADATA = LLMMetadata(model_name="fake", is_chat_model=True, is_function_calling_model=True)


class FakeModel(FunctionCallingLLM):
    """Streams what its plan says, through the same events as every adapter."""

    _plan: Plan = PrivateAttr()

    @property
    def metadata(self) -> LLMMetadata:
        return _METADATA

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        called = False
        async for kind, value in self._plan(request.messages):
            if kind == "delta":
                yield TextDelta(text=value)
                continue
            called = True
            for number, (call_id, name, arguments) in enumerate(value):
                yield ToolCallDelta(index=number, id=call_id, name=name, arguments=json.dumps(arguments))
        yield Finish(reason="tool_calls" if called else "stop")


def model(plan: Plan) -> FakeModel:
    """A model that streams what ``plan`` says."""
    made = FakeModel()
    made._plan = plan
    return made
