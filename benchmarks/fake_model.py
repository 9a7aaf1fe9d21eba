"""A model without latency for the benchmarks of agents: it streams what a plan says.

``model(plan)`` takes an asynchronous generator function of the messages, which yields ``("delta", text)`` and
``("calls", [(id, name, arguments), ...])``.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

from pydantic import Field

from batonflow.llms import ChatMessage, FunctionCallingLLM, LLMMetadata, ToolCallBlock
from batonflow.llms.lazy_fields import assembled
from batonflow.llms.stream import BlockDone, ChatRequest, Finish, StreamEvent, TextDelta

Plan = Callable[[Sequence[ChatMessage]], AsyncIterator[tuple[str, Any]]]


_METADATA = LLMMetadata(model_name="fake", is_chat_model=True, is_function_calling_model=True)


class FakeModel(FunctionCallingLLM):
    """Streams what its plan says, through the same events as every adapter.

    Calls come as whole blocks with their arguments as data, as from the peers' models without latency.
    """

    plan: Plan = Field(exclude=True, repr=False)

    @property
    def metadata(self) -> LLMMetadata:
        return _METADATA

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        called = False
        async for kind, value in self.plan(request.messages):
            if kind == "delta":
                yield TextDelta(text=value)
                continue
            called = True
            for call_id, name, arguments in value:
                values = {"tool_call_id": call_id, "tool_name": name, "tool_kwargs": arguments}
                # As the adapters make it: without validation.
                yield BlockDone(block=assembled(ToolCallBlock, {"block_type": "tool_call", **values}))
        yield Finish(reason="tool_calls" if called else "stop")


def model(plan: Plan) -> FakeModel:
    """A model that streams what ``plan`` says."""
    return FakeModel(plan=plan)
