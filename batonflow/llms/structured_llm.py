"""StructuredLLM: a model with structured answers only."""

import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from typing import Any, cast

from pydantic import BaseModel, Field, SerializeAsAny

from batonflow.llms._bridge import closed_after, run_sync
from batonflow.llms.base import LLM
from batonflow.llms.blocks import TextBlock, ToolCallBlock
from batonflow.llms.json_text import PartialModel
from batonflow.llms.lazy_fields import arguments_text
from batonflow.llms.messages import ChatMessage, ChatResponse, ChatResponseAsyncGen, LLMMetadata, MessageRole
from batonflow.llms.predicting import Predicting, after_system_prompt
from batonflow.llms.prompts.base import ChatPromptTemplate
from batonflow.llms.structured import Outcome
from batonflow.llms.usage import Usage

__all__ = ["StructuredLLM", "generate_structured_response", "messages_to_xml_format"]


class _Conversation(ChatPromptTemplate):
    """A conversation as a prompt for models that override ``structured_predict``; its braces are text."""

    def format_messages(self, llm: Any = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: ARG002 - overrides
        return list(self.message_templates)


class StructuredLLM(LLM):
    """A model that answers with instances of a pydantic model.

    The text of a response is JSON, ``response.raw`` is the instance, and ``response.usage`` counts all attempts. In a
    stream ``raw`` is a partial model, and the text is its JSON.

    Args:
        llm: The wrapped model.
        output_cls: The class of the answers.

    Raises:
        StructuredOutputError: An answer does not fit the class; raised by calls, as in ``LLM.astructured_predict``.

    Example:
        >>> response = await StructuredLLM(llm=llm, output_cls=Song).achat([ChatMessage("A song of the tides")])
        >>> print(response.raw.title)
    """

    llm: SerializeAsAny[LLM]
    output_cls: type[BaseModel] = Field(exclude=True)

    @property
    def metadata(self) -> LLMMetadata:
        """The metadata of the wrapped model."""
        return self.llm.metadata

    def cost_of(self, usage: Usage) -> float | None:
        """Return the cost of a request, by the price of this model or of the wrapped one."""
        return self.llm.cost_of(usage) if self.price is None else super().cost_of(usage)

    async def aclose(self) -> None:
        """Close the wrapped model."""
        await self.llm.aclose()

    def _traces_call(self, method: str) -> bool:
        # The wrapped model reports its own calls.
        return method not in {"chat", "achat", "stream_chat", "astream_chat"} and super()._traces_call(method)

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Send a conversation and return the whole response.

        Args:
            messages: The conversation.
            **kwargs: Options of the call.

        Raises:
            LLMError: One of its subclasses, as in ``LLM.astructured_predict``.
        """
        asked = self.llm.astructured_predict
        if getattr(asked, "__func__", None) is not Predicting.astructured_predict:
            return self._of_output(await asked(**self._arguments(messages, kwargs)))
        [answer] = [response async for response in self._answers(messages, kwargs, stream=False)]
        return answer.model_copy(update={"delta": None})

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The synchronous form of :meth:`achat`."""
        asked = self.llm.structured_predict
        if getattr(asked, "__func__", None) is Predicting.structured_predict:
            return run_sync(self.achat(messages, **kwargs))
        output: Any = asked(**self._arguments(messages, kwargs))
        return self._of_output(run_sync(_awaited(output)) if inspect.isawaitable(output) else output)

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """Send a conversation and stream the response. Await the call, then iterate.

        Args:
            messages: The conversation.
            **kwargs: Options of the call.

        Returns:
            A generator of responses: ``raw`` is a partial model; the last response has the validated instance.
        """
        asked = self.llm.astream_structured_predict
        if getattr(asked, "__func__", None) is Predicting.astream_structured_predict:
            return self._answers(messages, kwargs, stream=True)
        return self._of_outputs(await asked(**self._arguments(messages, kwargs)))

    def _arguments(self, messages: Sequence[ChatMessage], options: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments for a model that overrides ``structured_predict``."""
        prompt = _Conversation(message_templates=list(messages))
        return {"output_cls": self.output_cls, "prompt": prompt, "llm_kwargs": options}

    async def _of_outputs(self, outputs: AsyncGenerator[Any, None]) -> ChatResponseAsyncGen:
        async with closed_after(outputs):
            async for output in outputs:
                yield self._of_output(output)

    def _of_output(self, output: Any) -> ChatResponse:
        if not isinstance(output, BaseModel):
            raise TypeError(
                f"structured_predict of {type(self.llm).__name__} must return an instance of "
                f"{self.output_cls.__name__}; it returned {output!r}"
            )
        return ChatResponse(message=_message(output), raw=output)

    async def _answers(
        self, messages: Sequence[ChatMessage], options: dict[str, Any], *, stream: bool
    ) -> ChatResponseAsyncGen:
        conversation = after_system_prompt(self.llm, messages)
        pieces = self.llm._structured_pieces(self.output_cls, conversation, options, stream=stream)
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Outcome):
                    yield _whole(piece)
                else:
                    # The text is made on demand.
                    yield ChatResponse.piece(_rest, "", piece, {}, piece)


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def _whole(outcome: Outcome[Any]) -> ChatResponse:
    last = outcome.response
    changes = {
        "message": _message(outcome.output),
        "raw": outcome.output,
        "delta": "",
        "usage": outcome.usage,
        # The message has no tool call, so neither has the stop reason.
        "stop_reason": "stop" if last.stop_reason == "tool_calls" else last.stop_reason,
    }
    return last.model_copy(update=changes)


def _message(output: BaseModel) -> ChatMessage:
    text = output.model_dump_json(exclude_unset=isinstance(output, PartialModel))
    return ChatMessage(text, role=MessageRole.ASSISTANT)


def _rest(output: BaseModel) -> dict[str, Any]:
    return {"message": _message(output)}


def messages_to_xml_format(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return a conversation as one message with tags, after the last system message.

    Args:
        messages: The conversation.

    Example:
        >>> messages_to_xml_format([ChatMessage("Why are there tides?")])
    """
    lines = ["<current_conversation>"]
    for message in messages:
        lines.append(f"\t<{message.role.value}>")
        for block in message.blocks:
            if isinstance(block, TextBlock):
                lines.append(f"\t\t<message>{block.text}</message>")
            elif isinstance(block, ToolCallBlock):
                lines.append(f"\t\t<tool_call>{block.tool_name} {arguments_text(block)}</tool_call>")
        lines.append(f"\t</{message.role.value}>")
    lines += ["</current_conversation>", "", "Format the output of this conversation according to the provided schema."]
    system = [message for message in messages if message.role is MessageRole.SYSTEM]
    return [*system[-1:], ChatMessage("\n".join(lines))]


async def generate_structured_response(
    messages: Sequence[ChatMessage], llm: LLM, output_cls: type[BaseModel]
) -> dict[str, Any]:
    """Return the answer to a conversation as data in the form of ``output_cls``.

    Args:
        messages: The conversation.
        llm: The model.
        output_cls: The class of the answer.

    Raises:
        LLMError: One of its subclasses, as in ``LLM.astructured_predict``.

    Example:
        >>> await generate_structured_response(messages, llm, Song)
        {'title': 'Ebb'}
    """
    response = await llm.as_structured_llm(output_cls).achat(messages_to_xml_format(messages))
    return cast("dict[str, Any]", json.loads(response.message.content or "{}"))
