"""Models for tests: one that echoes, and one that answers with a function."""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import Any, cast

from pydantic import Field, PrivateAttr
from pydantic.fields import FieldInfo

from batonflow.clock import current_source
from batonflow.llms.base import CustomLLM
from batonflow.llms.blocks import (
    AudioBlock,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from batonflow.llms.call_tracing import llm_chat_callback, llm_completion_callback
from batonflow.llms.function_calling import FunctionCallingLLM
from batonflow.llms.messages import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from batonflow.llms.tool_protocol import ToolSelection, kept_calls, tool_selections

__all__ = ["MockFunctionCallingLLM", "MockLLM"]


class MockLLM(CustomLLM):
    """Repeat the prompt, or a number of words.

    Args:
        max_tokens: Repeat the word "text" this many times instead of the prompt.
        is_chat_model: The value for the metadata.
    """

    max_tokens: int | None = None
    is_chat_model: bool | None = False

    def __init__(self, max_tokens: int | None = None, is_chat_model: bool | None = False, **data: Any) -> None:
        data.update(max_tokens=max_tokens, is_chat_model=is_chat_model)
        super().__init__(**data)

    @property
    def metadata(self) -> LLMMetadata:
        """The metadata with the arguments of the constructor."""
        return LLMMetadata(num_output=self.max_tokens or -1, is_chat_model=bool(self.is_chat_model))

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:  # noqa: ARG002
        """Return the prompt, or ``max_tokens`` words."""
        return CompletionResponse(text=" ".join(["text"] * self.max_tokens) if self.max_tokens else prompt)

    @llm_completion_callback()
    def stream_complete(
        self,
        prompt: str,
        formatted: bool = False,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> CompletionResponseGen:
        """Stream the completion by characters or words."""
        text = ""
        if not self.max_tokens:
            for character in prompt:
                text += character
                yield CompletionResponse(text=text, delta=character)
            if not prompt:
                yield CompletionResponse(text="", delta="")
            return
        for number in range(self.max_tokens):
            delta = "text" if number == 0 else " text"
            text += delta
            yield CompletionResponse(text=text, delta=delta)


def _media(block: ImageBlock | AudioBlock | VideoBlock | DocumentBlock) -> str:
    match block:
        case ImageBlock():
            data = block.image
        case AudioBlock():
            data = block.audio
        case VideoBlock():
            data = block.video
        case DocumentBlock():
            data = block.data
    # The data as text, because tests look for them in the echo.
    data_text = "" if data is None else _decoded(data)
    return f"<{block.block_type}>{data_text}</{block.block_type}>"


def _decoded(data: bytes) -> str:
    return ImageBlock(image=data).resolve_image().read().decode(errors="replace")


def _echo(blocks: Sequence[Any], tool_calls: list[ToolCallBlock] | None = None) -> str:
    """Return blocks as one text; tool calls are appended to ``tool_calls``."""
    parts: list[str] = []
    for block in blocks:
        match block:
            case TextBlock():
                parts.append(block.text)
            case ThinkingBlock():
                parts.append(block.content or "")
            case CitableBlock():
                parts.append(_echo(block.content))
            case CitationBlock():
                parts.append(_echo([block.cited_content]))
            case ImageBlock() | AudioBlock() | VideoBlock() | DocumentBlock():
                parts.append(_media(block))
            case ToolCallBlock():
                if tool_calls is not None:
                    tool_calls.append(block)
            case _:
                pass
    return "".join(parts)


def _call_every_tool(messages: Sequence[ChatMessage], tools: Sequence[Any]) -> ChatMessage:
    """Call all tools with their defaults; after their results, return a fixed text."""
    if any(message.role is MessageRole.TOOL for message in messages):
        return ChatMessage(role=MessageRole.ASSISTANT, content="Tool calls complete.")
    blocks: list[Any] = []
    for tool in tools:
        schema = getattr(tool.metadata, "fn_schema", None)
        fields = cast("dict[str, FieldInfo]", {} if schema is None else schema.model_fields)
        blocks.append(
            ToolCallBlock(
                tool_call_id=f"mock-tool-call-{current_source().token(16)}",
                tool_name=tool.metadata.name or "",
                tool_kwargs={
                    name: field.get_default(call_default_factory=True)
                    for name, field in fields.items()
                    if not field.is_required()
                },
            )
        )
    return ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks)


class MockFunctionCallingLLM(FunctionCallingLLM):
    """Answer with the result of a function.

    Args:
        response_generator: Called with the messages, and with the call's other arguments if it takes them. It returns a
            message, or a sync or async iterator of messages, which is streamed. By default tools are called with their
            defaults, and a conversation without tools is echoed.
        blocks_to_content_callback: Returns blocks as text for the echo.
        is_chat_model: The value for the metadata.

    Example:
        >>> llm = MockFunctionCallingLLM(response_generator=lambda messages: ChatMessage("hello", role="assistant"))
    """

    tool_calls: list[ToolCallBlock] = Field(default_factory=list[ToolCallBlock])
    blocks_to_content_callback: Callable[..., str] = _echo
    is_chat_model: bool | None = False

    _response_generator: Callable[..., Any] | None = PrivateAttr(default=None)

    def __init__(
        self,
        response_generator: Callable[..., Any] | None = None,
        blocks_to_content_callback: Callable[..., str] | None = None,
        is_chat_model: bool | None = False,
        **data: Any,
    ) -> None:
        if blocks_to_content_callback is not None:
            data["blocks_to_content_callback"] = blocks_to_content_callback
        data["is_chat_model"] = is_chat_model
        super().__init__(**data)
        self._response_generator = response_generator

    @property
    def metadata(self) -> LLMMetadata:
        """The metadata of a function calling model."""
        return LLMMetadata(is_function_calling_model=True, is_chat_model=bool(self.is_chat_model))

    @property
    def response_generator(self) -> Callable[..., Any]:
        """The function that answers; it can be set."""
        return self._response_generator or self._default

    @response_generator.setter
    def response_generator(self, value: Callable[..., Any]) -> None:
        self._response_generator = value

    def _default(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatMessage:
        tools = cast("Sequence[Any]", kwargs.get("tools") or ())
        if tools or any(message.role is MessageRole.TOOL for message in messages):
            return _call_every_tool(messages, tools)
        content = self.blocks_to_content_callback(messages[-1].blocks, self.tool_calls) if messages else ""
        return ChatMessage(role=MessageRole.ASSISTANT, content=content or "<empty>")

    def _answer(self, messages: Sequence[ChatMessage], kwargs: dict[str, Any]) -> Any:
        function = self.response_generator
        parameters = inspect.signature(function).parameters
        # The functions of older test suites take the messages only.
        if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            kwargs = {name: value for name, value in kwargs.items() if name in parameters}
        return function(messages, **kwargs)

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """Stream the messages of the function."""
        # Called here and not when the stream is read, so that an error is raised where the model is called.
        answer = self._answer(messages, kwargs)
        if inspect.isawaitable(answer):
            answer = await answer
        return self._pieces(answer)

    async def _pieces(self, answer: Any) -> AsyncGenerator[ChatResponse, None]:
        if isinstance(answer, ChatMessage):
            yield self._response(answer)
        elif isinstance(answer, AsyncIterator):
            async for message in cast("AsyncIterator[ChatMessage]", answer):
                yield self._response(message)
        else:
            for message in cast("Iterator[ChatMessage]", answer):
                yield self._response(message)

    def _response(self, message: ChatMessage) -> ChatResponse:
        content = message.content or ""
        return ChatResponse(message=message, delta=content, raw={"content": content})

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        verbose: bool = False,  # noqa: ARG002
        allow_parallel_tool_calls: bool = False,  # noqa: ARG002
        tool_required: bool = False,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        messages = list(chat_history or ())
        if user_msg:
            messages.append(ChatMessage(user_msg) if isinstance(user_msg, str) else user_msg)
        return {"messages": messages, "tools": tools}

    def get_tool_calls_from_response(
        self,
        response: ChatResponse,
        error_on_no_tool_call: bool = False,  # noqa: ARG002 - the mock raises no error
        **kwargs: Any,  # noqa: ARG002
    ) -> list[ToolSelection]:
        """Return the calls in ``additional_kwargs["tool_calls"]``, or in the blocks."""
        kept = kept_calls(response.message)
        if kept is None:
            return tool_selections(response.message)
        if all(isinstance(call, ToolSelection) for call in kept):
            return cast("list[ToolSelection]", kept)
        return tool_selections(ChatMessage(additional_kwargs={"tool_calls": kept}))
