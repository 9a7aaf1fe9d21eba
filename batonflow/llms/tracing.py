"""The span around a request to a model, and what it says of it and of the answer."""

import json
from contextlib import aclosing
from inspect import Parameter, Signature
from typing import Any

from batonflow.clock import current_source
from batonflow.instrumentation.redaction import redacted
from batonflow.llms import genai
from batonflow.llms.blocks import ContentBlock, TextBlock, ThinkingBlock, ToolCallBlock
from batonflow.llms.messages import ChatMessage, ChatResponse, ChatResponseAsyncGen, MessageRole
from batonflow.llms.stream import ChatRequest, ToolSpec
from batonflow.llms.telling import CHAT, Call, dispatcher, is_told, without_keys

__all__ = ["answer_tags", "request_tags", "traced"]

# Of achat and its like, whatever a model asks besides of those who call its own.
_OF_CHAT = Signature([
    Parameter("messages", Parameter.POSITIONAL_OR_KEYWORD),
    Parameter("kwargs", Parameter.VAR_KEYWORD),
])  # fmt: skip


async def traced(
    responses: ChatResponseAsyncGen, llm: Any, model: str, request: ChatRequest, kwargs: dict[str, Any], asked: str
) -> ChatResponseAsyncGen:
    """The responses, with a span around them, and told of unless a call is that they are a part of.

    Args:
        responses: What the model's stream adds up to.
        llm: The model.
        model: Its name.
        request: What it is asked.
        kwargs: The other arguments of the call.
        asked: The method of the model that is made of them.
    """
    source = current_source()
    began, first_chunk = source.monotonic(), None
    given = _OF_CHAT.bind(request.messages, **without_keys(kwargs)) if dispatcher.tells_arguments else None
    name, tags = f"{type(llm).__name__}.{asked}", request_tags(llm, model, request)
    span_id = dispatcher.open_span(name, instance=llm, bound_args=given, tags=tags)
    call = None if is_told(llm, CHAT) else Call(CHAT, llm, list(request.messages), kwargs, span_id)
    # Of an answer that is asked for as a whole there are no pieces to tell of.
    in_pieces = call if asked in {"astream_chat", "stream_chat"} else None
    response: ChatResponse | None = None
    try:
        async with aclosing(responses):
            async for response in responses:
                if first_chunk is None:
                    first_chunk = source.monotonic() - began
                if in_pieces is not None:
                    in_pieces.piece(response)
                yield response
    except BaseException as err:
        if call is not None:
            call.failed(err)
        if isinstance(err, GeneratorExit):
            # Whoever reads has had enough; nothing went wrong.
            dispatcher.close_span(span_id, response, llm, given)
        else:
            dispatcher.tag_span(span_id, {genai.ERROR_TYPE: type(err).__name__})
            dispatcher.fail_span(span_id, err, llm, given)
        raise
    if response is not None:
        dispatcher.tag_span(span_id, answer_tags(response, first_chunk))
    if call is not None:
        call.end(response)
    dispatcher.close_span(span_id, response, llm, given)


def request_tags(llm: Any, model: str, request: ChatRequest) -> dict[str, Any]:
    """Tags for the beginning of a model's span.

    Args:
        llm: The model.
        model: Its name.
        request: What it is asked.
    """
    tags: dict[str, Any] = {
        "model": model,
        genai.OPERATION: "chat",
        genai.PROVIDER: getattr(llm, "vendor", None) or llm.class_name(),
        genai.REQUEST_MODEL: model,
    }
    for name, option in ((genai.REQUEST_MAX_TOKENS, "max_tokens"), (genai.REQUEST_TEMPERATURE, "temperature")):
        given = request.options.get(option, getattr(llm, option, None))
        if isinstance(given, int | float):
            tags[name] = given
    if genai.captures_content():
        tags[genai.INPUT_MESSAGES] = json.dumps([redacted(_in_parts(message)) for message in request.messages])
        system = [message for message in request.messages if message.role == MessageRole.SYSTEM]
        if system:
            parts = [part for message in system for part in _in_parts(message)["parts"]]
            tags[genai.SYSTEM_INSTRUCTIONS] = json.dumps(redacted(parts))
        if request.tools:
            tags[genai.TOOL_DEFINITIONS] = json.dumps([redacted(_defined(tool)) for tool in request.tools])
    return tags


def answer_tags(response: ChatResponse, first_chunk: float | None) -> dict[str, Any]:
    """Tags for the end of a model's span.

    Args:
        response: The last piece of the answer.
        first_chunk: Seconds until its first piece.
    """
    found: dict[str, Any] = {
        genai.RESPONSE_MODEL: response.model,
        genai.RESPONSE_ID: response.request_id,
        genai.FINISH_REASONS: None if response.stop_reason is None else [response.stop_reason],
        genai.TIME_TO_FIRST_CHUNK: first_chunk,
    }
    usage = response.usage
    if usage is not None:
        found |= {
            genai.INPUT_TOKENS: usage.input_tokens,
            genai.OUTPUT_TOKENS: usage.output_tokens,
            genai.CACHED_TOKENS: usage.cached_tokens or None,
            genai.CACHE_WRITE_TOKENS: usage.cache_write_tokens or None,
            genai.REASONING_TOKENS: usage.reasoning_tokens or None,
            genai.COST: usage.cost,
        }
    if genai.captures_content():
        said = {**_in_parts(response.message), "finish_reason": response.stop_reason or ""}
        found[genai.OUTPUT_MESSAGES] = json.dumps([redacted(said)])
    return {name: value for name, value in found.items() if value is not None}


def _in_parts(message: ChatMessage) -> dict[str, Any]:
    """A message in the form of the conventions."""
    parts = [_part(block) for block in message.blocks]
    if message.role == MessageRole.TOOL:
        call = message.additional_kwargs.get("tool_call_id")
        parts = [{"type": "tool_call_response", "id": call, "response": message.content or ""}]
    return {"role": message.role.value, "parts": parts}


def _defined(tool: ToolSpec) -> dict[str, Any]:
    return {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _part(block: ContentBlock) -> dict[str, Any]:
    match block:
        case TextBlock(text=text):
            return {"type": "text", "content": text}
        case ThinkingBlock(content=thought):
            return {"type": "reasoning", "content": thought or ""}
        case ToolCallBlock(tool_call_id=number, tool_name=name, tool_kwargs=arguments):
            return {"type": "tool_call", "id": number, "name": name, "arguments": arguments}
        case _:  # pictures and the like: that they were there, not what is in them
            return {"type": block.block_type}
