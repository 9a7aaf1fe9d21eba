"""Agents behind OpenAI's chat completions, for all clients of that protocol.

The agent's tools, handoffs and thoughts are hidden: the caller sees a model that answers. Source of the wire format:
OpenAI's API reference, "Chat completions".
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from batonflow.agents.base import BaseWorkflowAgent
from batonflow.agents.events import AgentOutput, AgentStream, ToolCallResult
from batonflow.agents.handler import AgentHandler
from batonflow.agents.team import AgentWorkflow
from batonflow.clock import current_source
from batonflow.llms import ChatMessage, ContentBlock, ImageBlock, MessageRole, TextBlock, ToolCallBlock, Usage
from batonflow.new_runs import served_input
from batonflow.server.sse import disconnected
from batonflow.values.serializers import as_json, read_json
from batonflow.workflow_core.errors import BatonflowError
from batonflow.workflow_core.events import InputRequiredEvent
from batonflow.workflow_core.runs import keep_when_abandoned

__all__ = ["chat_completions_app"]

Servable = BaseWorkflowAgent | AgentWorkflow

_ROLES = {
    "tool": MessageRole.TOOL,
    "system": MessageRole.SYSTEM,
    "developer": MessageRole.SYSTEM,
    "user": MessageRole.USER,
    "assistant": MessageRole.ASSISTANT,
}
_UNSUPPORTED = {
    "tools": "the agent has tools of its own, and calls them itself",
    "functions": "the agent has tools of its own, and calls them itself",
    "response_format": "give the agent an output_cls instead",
    "audio": "agents answer in text",
    "logprobs": "an answer may combine several answers of models",
}


class _Refused(Exception):
    """The request cannot be served."""

    def __init__(self, status: int, message: str, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param


class _Part(BaseModel):
    type: Literal["text", "image_url", "refusal"]
    text: str = ""
    refusal: str = ""
    image_url: dict[str, Any] = Field(default_factory=dict[str, Any])


class _Function(BaseModel):
    name: str
    arguments: str = "{}"


class _ToolCall(BaseModel):
    id: str
    function: _Function


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    # Null or missing if the message has tool calls instead.
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None


class _StreamOptions(BaseModel):
    include_usage: bool = False


class _Request(BaseModel):
    # Sampling options, such as temperature, are left to the agent's own models.
    model_config = ConfigDict(extra="allow")

    model: str
    messages: list[_Message] = Field(min_length=1)
    stream: bool = False
    stream_options: _StreamOptions | None = None
    n: Literal[1] | None = None


@dataclass
class _Answer:
    """An answer in progress: the fields that every piece repeats."""

    id: str
    created: int
    model: str

    def chunk(self, delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]
        return _frame({**self._head("chat.completion.chunk"), "choices": choices, **more})

    def whole(self, text: str, usage: Usage | None) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(usage)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def chat_completions_app(agents: Mapping[str, Servable] | Iterable[Servable] | Servable) -> Starlette:
    """Return an ASGI app with ``/chat/completions`` and ``/models``, to be mounted as ``/v1``.

    The messages of a request are the whole conversation, including calls of the caller's tools and their results;
    nothing is kept between requests. An unstreamed answer is the agent's answer. A streamed one contains all texts of
    its models, in paragraphs, and an answer that no model has streamed: of a tool, a guard, or an agent without
    streaming. If a run needs a person, the answer states it: with a store the run continues after an answer there,
    otherwise it is cancelled. A disconnect cancels the run.

    Args:
        agents: Agents by model name; without names, each under its own name.

    Raises:
        ValueError: Two agents have the same name.

    Example:
        >>> server.mount("/v1", chat_completions_app(agent))
        >>> OpenAI(base_url="http://127.0.0.1:8080/v1", api_key="-").chat.completions.create(model=agent.name, ...)
    """
    served = _named(agents)

    async def models(request: Request) -> Response:  # noqa: ARG001
        return JSONResponse({"object": "list", "data": [_model(name) for name in served]})

    async def complete(request: Request) -> Response:
        try:
            asked = _read(await request.body())
            agent = served.get(asked.model)
            if agent is None:
                raise _unknown(asked.model, served, 404)
            return await _answer(agent, asked, request)
        except _Refused as refused:
            return _error(refused)

    async def model(request: Request) -> Response:
        name: str = request.path_params["name"]
        if name not in served:
            return _error(_unknown(name, served, 404))
        return JSONResponse(_model(name))

    return Starlette(
        routes=[
            Route("/chat/completions", complete, methods=["POST"]),
            Route("/models", models),
            Route("/models/{name:path}", model),
        ]
    )


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "batonflow"}


def _unknown(name: str, served: Iterable[str], status: int) -> _Refused:
    return _Refused(status, f"unknown model {name!r}; the agents are {', '.join(served)}", "model_not_found", "model")


def _named(agents: Mapping[str, Servable] | Iterable[Servable] | Servable) -> dict[str, Servable]:
    if isinstance(agents, BaseWorkflowAgent | AgentWorkflow):
        return {agents.name: agents}
    if isinstance(agents, Mapping):
        return dict(cast("Mapping[str, Servable]", agents))
    served: dict[str, Servable] = {}
    for agent in agents:
        if agent.name in served:
            raise ValueError(f"Two agents have the name {agent.name!r}: pass a dict of agents by name")
        served[agent.name] = agent
    return served


def _read(body: bytes) -> _Request:
    try:
        asked = _Request.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise _Refused(400, f"{where or 'the body'}: {first['msg']}", "invalid_request", where or None) from error
    for name, reason in _UNSUPPORTED.items():
        given = (asked.model_extra or {}).get(name)
        if given and given != {"type": "text"}:
            raise _Refused(400, f"{name} is not supported: {reason}", "unsupported_parameter", name)
    if asked.messages[-1].role != "user":
        raise _Refused(400, "the last message must be the user's", "invalid_request", "messages")
    _check_turns(asked.messages)
    return asked


def _check_turns(messages: list[_Message]) -> None:
    """Refuse calls without results, results without calls, and empty messages.

    Raises:
        _Refused: The history is one that models refuse.
    """
    open_calls: set[str] = set()
    for number, message in enumerate(messages):
        where = f"messages.{number}"
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                raise _Refused(
                    400, f"{where}: no call before has the id {message.tool_call_id!r}", "invalid_request", where
                )
            open_calls.remove(message.tool_call_id)
            continue
        if open_calls:
            raise _Refused(
                400, f"{where}: the results of the calls {', '.join(sorted(open_calls))} are missing before it",
                "invalid_request", where,
            )  # fmt: skip
        open_calls = {call.id for call in message.tool_calls or ()}
        if open_calls and message.role != "assistant":
            raise _Refused(400, f"{where}: only the assistant can have tool_calls", "invalid_request", where)
        if message.content is None and message.role != "assistant":
            raise _Refused(400, f"{where}.content: a message of the {message.role} has one", "invalid_request", where)


async def _answer(agent: Servable, asked: _Request, request: Request) -> Response:
    *before, last = [_message(message) for message in asked.messages]
    source = current_source()
    answer = _Answer(f"chatcmpl-{source.token(24)}", int(source.now()), asked.model)
    with served_input():
        handler = agent.run(user_msg=last, chat_history=before, run_id=answer.id)
    keep_when_abandoned(handler.ctx.run)
    if asked.stream:
        usage = asked.stream_options is not None and asked.stream_options.include_usage
        return StreamingResponse(_streamed(handler, answer, usage=usage), media_type="text/event-stream")
    answering = asyncio.create_task(_whole(handler, answer))
    leaving = asyncio.create_task(disconnected(request.receive))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return answering.result() if answering.done() else Response(status_code=499)  # the result is not needed
    finally:
        for task in (answering, leaving):
            task.cancel()
        await _leave(handler)


async def _whole(handler: AgentHandler, answer: _Answer) -> Response:
    try:
        question = await _question(handler)
        if question is not None:
            return JSONResponse(answer.whole(_asks(handler, question), None))
        output: AgentOutput = await handler
        return JSONResponse(answer.whole(output.response.content or "", output.usage))
    except Exception as error:  # noqa: BLE001 - a handler boundary: any error that ended the run
        return _error(_failure(handler, error))


async def _streamed(handler: AgentHandler, answer: _Answer, *, usage: bool) -> AsyncGenerator[bytes, None]:
    try:
        yield answer.chunk({"role": "assistant", "content": ""})
        async with aclosing(_texts(handler)) as texts:
            async for text in texts:
                yield answer.chunk({"content": text})
        spent = (await handler).usage if handler.is_done() else None
        yield answer.chunk({}, "stop")
        if usage:
            yield answer.chunk(None, usage=_usage(spent))
    except Exception as error:  # noqa: BLE001 - a handler boundary: any error that ended the run
        refused = _failure(handler, error)
        yield _frame(
            {"error": {"message": refused.message, "type": "server_error", "param": None, "code": refused.code}}
        )
    finally:
        await _leave(handler)
    yield b"data: [DONE]\n\n"


async def _texts(handler: AgentHandler) -> AsyncGenerator[str, None]:
    """Yield texts, a paragraph for each answer of a model, ending with the answer. Stop at a question to a person."""
    paragraph, last = "", ""
    async for item in handler.subscribe():
        event = item.event
        if isinstance(event, AgentStream) and event.delta and not item.path:
            last = event.delta if paragraph else last + event.delta
            yield paragraph + event.delta
            paragraph = ""
        elif isinstance(event, ToolCallResult | AgentOutput) and last:
            paragraph = "\n\n"
        elif isinstance(event, InputRequiredEvent):
            yield paragraph + _asks(handler, event)
            return
    output: AgentOutput = await handler
    answer, said = output.response.content or "", last.strip()
    # Thoughts before an unformatted answer are part of the answer and are not sent.
    if answer.strip() != said and not (said and answer.rstrip().endswith(said)):
        yield paragraph + answer


async def _question(handler: AgentHandler) -> InputRequiredEvent | None:
    """Return the first question to a person, or None if the run ends without one."""
    async for item in handler.subscribe():
        if isinstance(item.event, InputRequiredEvent):
            return item.event
    return None


def _asks(handler: AgentHandler, question: InputRequiredEvent) -> str:
    fields = question.model_dump(mode="json")
    fields |= fields.pop("_data", {})
    what = (
        f"approval of {fields['tool_name']}({_request_text(fields['arguments'])})"
        if "tool_name" in fields
        else _request_text(fields)
    )
    if handler.workflow.__batonflow__.store is None:
        return f"[stopped, as it needs a person: {what}]"
    return f"[waits for a person: {what}; run {handler.run_id}]"


def _request_text(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in fields.items() if value is not None)


async def _leave(handler: AgentHandler) -> None:
    if handler.is_done() or (handler.open_inputs() and handler.workflow.__batonflow__.store is not None):
        return
    await handler.cancel_run()


def _message(message: _Message) -> ChatMessage:
    given = message.content
    parts = [_Part(type="text", text=given)] if isinstance(given, str) else given or []
    blocks: list[ContentBlock] = [
        _picture(part.image_url) if part.type == "image_url" else TextBlock(text=part.text or part.refusal)
        for part in parts
    ]
    if message.refusal and not blocks:
        blocks.append(TextBlock(text=message.refusal))
    blocks += [
        ToolCallBlock(tool_call_id=call.id, tool_name=call.function.name, tool_kwargs=_arguments(call.function))
        for call in message.tool_calls or ()
    ]
    more = {} if message.tool_call_id is None else {"tool_call_id": message.tool_call_id}
    return ChatMessage(role=_ROLES[message.role], blocks=blocks, additional_kwargs=more)


def _arguments(function: _Function) -> dict[str, Any] | str:
    """Return the arguments of a call, or the text itself if it is not a JSON object."""
    try:
        found: Any = read_json(function.arguments.encode())
    except ValueError:
        return function.arguments
    return cast("dict[str, Any]", found) if isinstance(found, dict) else function.arguments


def _picture(image_url: Mapping[str, Any]) -> ImageBlock:
    """Return an image inside the request; addresses are refused, because this machine would request them.

    Raises:
        _Refused: The image is not inside the request.
    """
    head, _, data = str(image_url.get("url", "")).partition(",")
    if not (head.startswith("data:image/") and head.endswith(";base64")):
        raise _Refused(400, "image_url must be a data: address with a base64 image", "invalid_image", "messages")
    return ImageBlock(image=data.encode(), image_mimetype=head.removeprefix("data:").removesuffix(";base64"))


def _usage(usage: Usage | None) -> dict[str, Any]:
    spent = usage or Usage()
    return {
        "prompt_tokens": spent.input_tokens,
        "completion_tokens": spent.output_tokens,
        "total_tokens": spent.total_tokens,
        "prompt_tokens_details": {"cached_tokens": spent.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": spent.reasoning_tokens},
    }


def _failure(handler: AgentHandler, error: Exception) -> _Refused:
    """Return the kind of an error; its text may quote anything, and is in the run's records."""
    kind = type(error).__name__ if isinstance(error, BatonflowError) else "an error"
    return _Refused(500, f"run {handler.run_id} failed with {kind}", "run_failed")


def _error(refused: _Refused) -> JSONResponse:
    kind = "server_error" if refused.status >= 500 else "invalid_request_error"
    error = {"message": refused.message, "type": kind, "param": refused.param, "code": refused.code}
    # Clients repeat a request after status 500, but a failed run may have done half of its work.
    return JSONResponse({"error": error}, refused.status, {"x-should-retry": "false"})


def _frame(data: dict[str, Any]) -> bytes:
    return b"data: " + as_json(data, inf_nan_mode="null") + b"\n\n"
