"""A model that pauses its answer, as models do whose vendor runs tools for them."""

from collections.abc import AsyncGenerator

from pydantic import PrivateAttr

from batonflow.llms import ChatMessage, FunctionCallingLLM, LLMMetadata
from batonflow.llms.stream import ChatRequest, Finish, StreamEvent, TextDelta

__all__ = ["Pausing"]


class Pausing(FunctionCallingLLM):
    """Gives its answers in turn, and pauses after each of their parts but the last."""

    answers: list[list[str]]

    _seen: list[list[ChatMessage]] = PrivateAttr(default_factory=list[list[ChatMessage]])

    @property
    def seen(self) -> list[list[str | None]]:
        """What each request showed."""
        return [[message.content for message in messages] for messages in self._seen]

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=True, is_function_calling_model=True)

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        self._seen.append(list(request.messages))
        parts = [(text, text is answer[-1]) for answer in self.answers for text in answer]
        text, is_last = parts[len(self._seen) - 1]
        yield TextDelta(text=text)
        yield Finish(reason="stop" if is_last else "pause")
