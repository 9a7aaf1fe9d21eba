"""Workflows and agents as tools of an MCP server, over HTTP or stdio.

Both versions of the protocol are supported. A question of a run becomes an elicitation: the older protocol sends it
during the call, and the protocol of 2026-07-28 returns it, to be answered with a new call.
"""

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError
from pydantic_core import to_json, to_jsonable_python

from batonflow.agents.events import AgentOutput, AgentStream
from batonflow.agents.loop import AgentLoop
from batonflow.clock import current_source
from batonflow.llms import BaseContentBlock, ChatMessage, ImageBlock, TextBlock
from batonflow.llms._vendor import load
from batonflow.new_runs import reading_input, served_input
from batonflow.values.problems import in_words, unknown_fields
from batonflow.workflow_core import Workflow
from batonflow.workflow_core.errors import BatonflowError, InputResponseError
from batonflow.workflow_core.events import StartEvent
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.inputs import InputRequest
from batonflow.workflow_core.runs import keep_when_abandoned
from batonflow.workflow_core.stored_runs import StoredRuns
from batonflow.workflow_core.turns import Turns

if TYPE_CHECKING:
    from mcp.server import Server, ServerRequestContext
    from starlette.applications import Starlette

__all__ = ["mcp_app", "serve_mcp_stdio"]

NO_BACK_CHANNEL = "2026-07-28"
"""Since this version of the protocol, servers do not ask their callers during a call."""

PATIENCE = 600.0
"""Seconds until a waiting run ends without a further call."""

LAST_WORDS = 5.0
"""Seconds that the result waits for a slow reader of the progress."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PRIMITIVE = {"string", "integer", "number", "boolean"}
_MESSAGE = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "The user's message."}},
    "required": ["message"],
    "additionalProperties": False,
}


def mcp_app(
    workflows: Mapping[str, Workflow],
    *,
    name: str = "batonflow",
    path: str = "/",
    allowed_hosts: Sequence[str] | None = (),
) -> "Starlette":
    """Return an ASGI app that serves workflows and agents as tools over streamable HTTP.

    The arguments are the fields of the start event, and ``message`` for an agent; the output is the result. Streamed
    events are reported as progress. A disconnect cancels the run.

    Args:
        workflows: Workflows by tool name: 1 to 64 letters, digits, ``_`` or ``-``.
        name: The name of the server.
        path: The path of the endpoint in the app.
        allowed_hosts: Host names besides the names of this machine; None leaves the checks of hosts and origins to the
            outer server, such as a ``WorkflowServer``.

    Raises:
        ValueError: A name is not valid for a tool.
        MissingDependencyError: The extra ``mcp`` is not installed.

    Example:
        >>> server.mount("/mcp", mcp_app({"ask_about_tides": agent}, allowed_hosts=None))
    """
    security = load("mcp.server.transport_security", "mcp").TransportSecuritySettings
    hosts = ["127.0.0.1", "localhost", "[::1]", *(allowed_hosts or ())]
    checks = security(
        enable_dns_rebinding_protection=allowed_hosts is not None,
        allowed_hosts=[*hosts, *(f"{host}:*" for host in hosts)],
        allowed_origins=[
            f"{scheme}://{host}{port}" for scheme in ("http", "https") for host in hosts for port in ("", ":*")
        ],
    )
    tools = _Tools(workflows)
    app: Starlette = tools.server(name).streamable_http_app(streamable_http_path=path, transport_security=checks)
    begin = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: "Starlette") -> AsyncGenerator[Any]:
        async with begin(app) as state:
            yield state
        await tools.leave_all()

    app.router.lifespan_context = lifespan
    return app


async def serve_mcp_stdio(workflows: Mapping[str, Workflow], *, name: str = "batonflow") -> None:
    """Serve workflows and agents as tools over this process's standard input and output, until the input ends.

    Args:
        workflows: As for ``mcp_app``.
        name: The name of the server.

    Raises:
        ValueError: A name is not valid for a tool.
        MissingDependencyError: The extra ``mcp`` is not installed.

    Example:
        >>> asyncio.run(serve_mcp_stdio({"ask_about_tides": agent}))
    """
    stdio = load("mcp.server.stdio", "mcp")
    tools = _Tools(workflows)
    server = tools.server(name)
    try:
        async with stdio.stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    finally:
        await tools.leave_all()


class _Tools:
    """The tools, and the runs that wait for answers."""

    def __init__(self, workflows: Mapping[str, Workflow]) -> None:
        for name in workflows:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} cannot be the name of a tool: 1 to 64 letters, digits, _ or -")
        self._workflows = {name: _patient(workflow) for name, workflow in workflows.items()}
        self._types: Any = load("mcp_types", "mcp")
        self._waiting: dict[str, tuple[WorkflowHandler, asyncio.TimerHandle]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def server(self, name: str) -> "Server[Any]":
        return load("mcp.server", "mcp").Server(name, on_list_tools=self._list, on_call_tool=self._call)

    async def _list(self, context: "ServerRequestContext[Any]", params: Any) -> Any:  # noqa: ARG002
        tools = [
            self._types.Tool(name=name, description=_description(name, workflow), input_schema=_input_schema(workflow))
            for name, workflow in self._workflows.items()
        ]
        return self._types.ListToolsResult(tools=tools)

    async def _call(self, context: "ServerRequestContext[Any]", params: Any) -> Any:
        workflow = self._workflows.get(params.name)
        if workflow is None:
            known = ", ".join(self._workflows)
            return self._failed(f"unknown tool {params.name!r}; the tools are {known}")
        if params.request_state is not None:
            handler = await self._waited_for(params.name, params.request_state, params.input_responses or {})
        else:
            handler = _started(workflow, params.name, params.arguments or {})
        if isinstance(handler, str):
            return self._failed(handler)
        keep_when_abandoned(handler.ctx.run)  # a run may outlive its call; this server decides about its end
        progress = asyncio.create_task(_report(context, handler))
        try:
            outcome = await self._outcome(context, handler)
            if handler.is_done():  # the last progress is sent before the result
                await asyncio.wait({progress}, timeout=LAST_WORDS)
            return outcome
        finally:
            progress.cancel()
            if handler.run_id not in self._waiting:
                self._leave(handler)

    async def _outcome(self, context: "ServerRequestContext[Any]", handler: WorkflowHandler) -> Any:
        async for request in handler.inputs():
            asked = {one.id: self._question(one) for one in handler.open_inputs()} or {request.id: None}
            if not all(asked.values()):
                return self._failed(
                    f"the run asks a {type(request.event).__name__}, which no MCP form can answer: {request.schema}"
                )
            if context.protocol_version >= NO_BACK_CHANNEL:
                self._keep(handler)
                return self._types.InputRequiredResult(input_requests=asked, request_state=handler.run_id)
            if not context.session.can_send_request:
                return self._failed("the run asks a person, and this connection cannot pass the question on")
            params = self._question(request).params
            answer = await context.session.elicit_form(params.message, params.requested_schema, context.request_id)
            refused = _respond(request, answer)
            if refused:
                return self._failed(refused)
        try:
            result = await handler
        except Exception as error:  # noqa: BLE001 - a handler boundary: any error that ended the run
            kind = type(error).__name__ if isinstance(error, BatonflowError) else "an error"
            return self._failed(f"run {handler.run_id} failed with {kind}")
        return self._result(result)

    def _result(self, result: Any) -> Any:
        if isinstance(result, AgentOutput):
            blocks, data = result.response.blocks, result.structured_response
        else:
            blocks = _blocks_of(result)
            data = None if blocks is not None else to_jsonable_python(result, fallback=str)
        if blocks is None:
            content = [self._text(data if isinstance(data, str) else to_json(data).decode())]
        else:
            content = [made for block in blocks if (made := self._content(block)) is not None] or [self._text("")]
        structured = cast("dict[str, Any]", data) if isinstance(data, dict) else None
        return self._types.CallToolResult(content=content, structured_content=structured)

    def _text(self, text: str) -> Any:
        return self._types.TextContent(type="text", text=text)

    def _content(self, block: Any) -> Any:
        """Return a block for callers, or None for hidden ones such as thoughts."""
        if isinstance(block, TextBlock):
            return self._text(block.text)
        if not isinstance(block, ImageBlock):
            return None
        if block.image is None and block.path is None:
            return self._text(str(block.url or ""))  # an address is passed on, and not requested
        data = block.resolve_image(as_base64=True).read().decode()
        return self._types.ImageContent(type="image", data=data, mime_type=block.image_mimetype or "image/png")

    def _failed(self, text: str) -> Any:
        return self._types.CallToolResult(content=[self._text(text)], is_error=True)

    # --- questions ----------------------------------------------------------------------------------------------------

    def _question(self, request: InputRequest) -> Any:
        """Return the question as an elicitation, or None if its answer needs more than plain fields."""
        schema = request.schema
        named = schema.get("$defs", {})
        fields = {name: _plain_field(field, named) for name, field in schema.get("properties", {}).items()}
        required = [name for name in schema.get("required", ()) if name in fields]
        if not all(fields[name] for name in required):
            return None
        form = {
            "type": "object",
            "properties": {name: field for name, field in fields.items() if field},
            "required": required,
        }
        return self._types.ElicitRequest(
            params=self._types.ElicitRequestFormParams(message=_message(request), requested_schema=form)
        )

    def _keep(self, handler: WorkflowHandler) -> None:
        loop = asyncio.get_running_loop()
        self._waiting[handler.run_id] = handler, loop.call_later(PATIENCE, self._give_up, handler.run_id)

    def _give_up(self, run_id: str) -> None:
        handler, _ = self._waiting.pop(run_id)
        self._leave(handler)

    async def leave_all(self) -> None:
        """Leave all waiting runs, because no further calls will come."""
        for run_id, (_, timer) in list(self._waiting.items()):
            timer.cancel()
            self._give_up(run_id)
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _leave(self, handler: WorkflowHandler) -> None:
        """Leave a run, in its own task: the call may be cancelled, and must not await anything then."""
        leaving = asyncio.create_task(_leave(handler))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def _waited_for(self, tool: str, run_id: str, answers: Mapping[str, Any]) -> WorkflowHandler | str:
        """Return the run that a further call continues, with its answers, or an error."""
        handler = await self._found(tool, run_id)
        if handler is None:
            return "the run to continue has ended: call the tool again"
        refused = ""
        try:
            if not handler.is_done() and not handler.open_inputs():
                async for _ in handler.inputs():  # a resumed run must be read first
                    break
            asked = {request.id: request for request in handler.open_inputs()}
            for request_id in answers.keys() & asked.keys():
                refused = refused or _respond(asked[request_id], answers[request_id])
        except BaseException:
            self._leave(handler)
            raise
        if refused:
            self._leave(handler)
            return refused
        return handler

    async def _found(self, tool: str, run_id: str) -> WorkflowHandler | None:
        """Return a waiting run of this tool, from memory or from the store of its workflow."""
        if not run_id.startswith(_prefix(tool)) or not run_id.removeprefix(_prefix(tool)).isalnum():
            return None
        if run_id in self._waiting:
            handler, timer = self._waiting.pop(run_id)
            timer.cancel()
            return handler
        workflow = self._workflows[tool]
        info = None if workflow.__batonflow__.store is None else await workflow.__batonflow__.store.info(run_id)
        if info is None or info.workflow != workflow.__batonflow__.workflow_name:
            return None
        return StoredRuns.resume(workflow, run_id)


def _patient(workflow: Workflow) -> Workflow:
    """Return a copy of the workflow whose timeout excludes the wait for a person."""
    if workflow.__batonflow__.timeout is None:
        return workflow
    other, options = copy(workflow), copy(workflow.__batonflow__)
    options.timeout_excludes_waiting = True
    options.turns = Turns(options)
    object.__setattr__(other, "__batonflow__", options)
    return other


def _prefix(tool: str) -> str:
    """Return the prefix of a tool's run ids, because the caller names the run to continue."""
    return f"mcp-{tool}-"


def _started(workflow: Workflow, tool: str, arguments: dict[str, Any]) -> WorkflowHandler | str:
    run_id = _prefix(tool) + current_source().token(24)
    if isinstance(workflow, AgentLoop):
        message = arguments.get("message")
        if not isinstance(message, str):
            return "the argument message must be a text"
        with served_input():
            return cast("AgentLoop[Any, Any]", workflow).run(message, run_id=run_id)
    try:
        with reading_input():
            event = workflow.__batonflow__.steps.start_event_class(**arguments)
    except ValidationError as error:
        return in_words(error, "the arguments")
    if problems := unknown_fields(event):
        return problems
    with served_input():
        return workflow.run(start_event=event, run_id=run_id)


async def _report(context: "ServerRequestContext[Any]", handler: WorkflowHandler) -> None:
    """Report the stream of a run as progress; do nothing if the caller did not request it."""
    number = 0
    async for item in handler.subscribe():
        number += 1
        event = item.event
        message = event.delta if isinstance(event, AgentStream) else type(event).__name__
        await context.session.report_progress(number, None, message)


async def _leave(handler: WorkflowHandler) -> None:
    """End a run without callers, unless a store keeps it waiting for a person."""
    if handler.is_done():
        return
    if handler.open_inputs() and handler.workflow.__batonflow__.store is not None:
        await handler.interrupt()
    else:
        await handler.cancel_run()


def _respond(request: InputRequest, answer: Any) -> str:
    fields: dict[str, Any] = dict(answer.content or {})
    if answer.action != "accept":
        if "approved" not in request.schema.get("properties", {}):
            return "the person did not answer"
        fields = {"approved": False, "reason": "the person declined"}
    try:
        request.respond(**fields)
    except InputResponseError as error:
        return str(error)
    return ""


def _blocks_of(result: Any) -> list[Any] | None:
    """Return the blocks of a message, a block, or a list of blocks; None for other results."""
    if isinstance(result, ChatMessage):
        return list(result.blocks)
    parts: list[Any] = cast("list[Any]", result) if isinstance(result, list) else [result]
    return parts if parts and all(isinstance(part, BaseContentBlock) for part in parts) else None


def _description(name: str, workflow: Workflow) -> str:
    """Return the description of a tool; models choose by it, so it is never empty."""
    own = workflow.description if isinstance(workflow, AgentLoop) else type(workflow).__doc__
    if own and own.strip():
        return inspect.cleandoc(own)
    if isinstance(workflow, AgentLoop):
        return f"Asks the agent {name}."
    steps = workflow.__batonflow__.steps
    cls = steps.start_event_class
    about = inspect.cleandoc(cls.__doc__).partition("\n")[0] if cls is not StartEvent and cls.__doc__ else ""
    fields = f" Takes {', '.join(cls.model_fields)}." if cls.model_fields else ""
    return f"Runs the workflow {name}.{f' {about}' if about else ''}{fields}"


def _input_schema(workflow: Workflow) -> dict[str, Any]:
    if isinstance(workflow, AgentLoop):
        return _MESSAGE
    return workflow.__batonflow__.steps.start_event_class.model_json_schema()


def _message(request: InputRequest) -> str:
    told = request.event.model_dump(mode="json")
    told |= told.pop("_data", {})
    if "tool_name" in told and "arguments" in told:
        shown = ", ".join(f"{name}={value!r}" for name, value in told["arguments"].items())
        return f"May {told['tool_name']}({shown}) run?"
    if told.get("prefix"):
        return str(told["prefix"])
    return ", ".join(f"{name}: {value}" for name, value in told.items()) or type(request.event).__name__


def _plain_field(field: dict[str, Any], named: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a field for MCP forms, with enumerations inline; None if it is not plain."""
    found = field
    if "anyOf" in field:
        others = [one for one in field["anyOf"] if one.get("type") != "null"]
        if len(others) != 1:
            return None
        found = others[0]
    if "$ref" in found:
        found = named.get(str(found["$ref"]).rpartition("/")[2], {})
        if "enum" not in found:
            return None
    told = {name: field[name] for name in ("title", "description", "default") if field.get(name) is not None}
    if found.get("type") == "array":
        several = _plain_field(found.get("items", {}), named)
        if several is None or several.get("type") != "string" or "enum" not in several:
            return None  # forms only have lists of choices
        bounds = {name: found[name] for name in ("minItems", "maxItems") if name in found}
        return {"type": "array", "items": {"type": "string", "enum": several["enum"]}, **bounds, **told}
    if "const" in found:
        found = {"type": "string", **found, "enum": [found["const"]]}
    if found.get("type") not in _PRIMITIVE:
        # A field of any type can be answered with a text.
        return {"type": "string"} if "type" not in found and "$ref" not in found else None
    kept = {
        name: found[name] for name in ("type", "enum", "minimum", "maximum", "minLength", "maxLength") if name in found
    }
    return {**kept, **told}
