"""Streams that nobody reads, and a model that makes its messages itself."""

import gc
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from typing import Any

from batonflow.agents import AgentStream, BaseWorkflowAgent
from batonflow.llms import ChatMessage, ChatResponse, MockFunctionCallingLLM
from batonflow.llms.messages import ChatResponseAsyncGen

__all__ = ["Cumulative", "held_by_a_stream"]


class Cumulative(MockFunctionCallingLLM):
    """Answers with ``text``, five characters at a time, in messages that hold all of it so far.

    Args:
        text: The answer.
        one_message: Write on in the message that was handed out, in place of making another one.
        bare: Leave the messages empty.
        prefix: Put before the text so far in every second message, as of a model that takes back what it said.
    """

    text: str = ""
    one_message: bool = False
    bare: bool = False
    prefix: str = ""

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        return self._said()

    async def _said(self) -> AsyncIterator[ChatResponse]:
        message = ChatMessage("", role="assistant")
        for number, end in enumerate(range(5, len(self.text) + 5, 5)):
            content = "" if self.bare else self.prefix * (number % 2) + self.text[:end]
            if self.one_message:
                message.content = content
            else:
                message = ChatMessage(content, role="assistant")
            yield ChatResponse(message=message, delta=self.text[end - 5 : end])


async def held_by_a_stream(agent: BaseWorkflowAgent, pieces: int) -> int:
    """How many bytes the stream of a run takes that nobody has read, of at least so many pieces."""
    gc.collect()
    tracemalloc.start()
    try:
        handler = agent.run("go")
        await handler
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len([item async for item in handler.subscribe() if isinstance(item.event, AgentStream)]) >= pieces - 20
    return taken
