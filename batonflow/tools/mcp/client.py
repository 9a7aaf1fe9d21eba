"""MCPTools: the tools of a server."""

import asyncio
import os
import re
import shlex
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from batonflow.instrumentation.logs import logger_named
from batonflow.llms._bridge import run_sync
from batonflow.tools.base import ToolOutput
from batonflow.tools.function import ToolPolicy
from batonflow.tools.mcp.asking import Call, confirm_change
from batonflow.tools.mcp.connection import Connection, SessionLostError
from batonflow.tools.mcp.definitions import ToolDefinition, check_patterns, namespace_of, selected, tool_name
from batonflow.tools.mcp.errors import MCPConnectionError, MCPToolChangedError, MCPToolMissingError
from batonflow.tools.mcp.pins import Pins, ToolChange
from batonflow.tools.mcp.results import output_of
from batonflow.tools.mcp.tool import MCPTool
from batonflow.tools.mcp.transport import Endpoint
from batonflow.tools.toolset import Toolset
from batonflow.workflow_core.context import Context

__all__ = ["MCPTools"]

_log = logger_named("batonflow.tool")
_NAMESPACE = re.compile(r"[a-zA-Z0-9-]+(_[a-zA-Z0-9-]+)*")

OnChange = Literal["refuse", "ask", "accept"]


class MCPTools(Toolset[object]):
    """The tools of an MCP server, over stdio or streamable HTTP; a toolset.

    Give it to an agent in ``tools=[mcp]``. It connects with the first run, the agent follows changes of the server's
    tools, and the connection ends with ``async with agent:``, ``await agent.aclose()``, or the event loop.
    ``tools=await mcp.aget_tools()`` gives the agent the tools of this moment.

    It connects at first use, and again after the server has ended. Without an agent, use it as an asynchronous context
    manager, or end it with ``aclose()``. The connection belongs to the event loop that uses it; synchronous calls have
    their own.

    Args:
        command: The server's command, as a line or as program and arguments: ``"uvx mcp-server-time"``.
        url: The server's address, instead of a command: ``"https://example.com/mcp"``.
        headers: Sent with every request to the address.
        auth: An ``httpx2.Auth`` for the address.
        env: Variables of the command's environment, besides a few harmless ones of this process.
        cwd: The command's working directory.
        namespace: Prefix of the tool names, as in ``time__get_current_time``; derived from the command or the
            address by default. An empty text means no prefix.
        allow: Names of the server's tools to offer, with wildcards; all by default.
        deny: Names of tools to hide.
        requires_approval: True if a person must approve calls, or the names of the tools concerned, with
            wildcards.
        timeout: Seconds for a call, without the time of questions to people, and for the list of tools; None for no
            limit.
        connect_timeout: Seconds to connect.
        answer_timeout: Seconds until an unanswered question counts as cancelled; None for no limit.
        protocol: ``"auto"`` asks the server for its version; ``"legacy"`` is the protocol up to 2025-11-25; or a
            version from 2026-07-28 on.
        pins: Storage for the first seen definitions of tools: a JSON file, or a dict.
        on_change: Reaction to a tool that differs from its pin: ``"refuse"`` it, ``"ask"`` a person before a call
            (until then the model sees the pinned definition), or ``"accept"`` it.

    Raises:
        ValueError: ``command`` and ``url`` are both given or both missing, or arguments contradict each other.

    Example:
        >>> async with FunctionAgent(llm="openai:gpt-5.6", tools=[MCPTools("uvx mcp-server-time")]) as agent:
        ...     print(await agent.run("What time is it?"))
    """

    def __init__(
        self,
        command: str | Sequence[str] | None = None,
        *,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        auth: Any = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        namespace: str | None = None,
        allow: Sequence[str] | None = None,
        deny: Sequence[str] = (),
        requires_approval: bool | Sequence[str] = False,
        timeout: float | None = 60.0,
        connect_timeout: float | None = 30.0,
        answer_timeout: float | None = None,
        protocol: str = "auto",
        pins: str | os.PathLike[str] | MutableMapping[str, Any] | None = None,
        on_change: OnChange = "refuse",
    ) -> None:
        words = shlex.split(command, posix=os.name == "posix") if isinstance(command, str) else list(command or ())
        if bool(words) == (url is not None):
            raise ValueError('MCPTools takes either a command, "uvx mcp-server-time", or a url')
        if url is not None and urlsplit(url).scheme not in {"http", "https"}:
            raise ValueError(f"the url of an MCP server begins with http:// or https://, not {url.partition(':')[0]!r}")
        misplaced = {"headers": headers, "auth": auth} if url is None else {"env": env, "cwd": cwd}
        if wrong := [name for name, value in misplaced.items() if value is not None]:
            raise ValueError(f"{' and '.join(wrong)} cannot be given with a {'url' if url else 'command'}")
        if on_change not in {"refuse", "ask", "accept"}:
            raise ValueError(f'on_change is "refuse", "ask" or "accept", not {on_change!r}')
        self.namespace = namespace_of(words, url) if namespace is None else namespace
        if self.namespace and not _NAMESPACE.fullmatch(self.namespace):
            raise ValueError(
                f"the namespace {namespace!r} is not made of letters, digits, '-' and single '_' between them"
            )
        for name, value in {"allow": allow, "deny": deny, "requires_approval": requires_approval}.items():
            if isinstance(value, str):
                raise ValueError(f"{name} is a list of names, not a text: [{value!r}]")
        self.on_change: OnChange = on_change
        self._label = self.namespace or namespace_of(words, url)
        self._endpoint = Endpoint(words, env, cwd, url, headers, auth)
        self._allow, self._deny, self._requires_approval = allow, deny, requires_approval
        self._timeout, self._connect_timeout, self._patience = timeout, connect_timeout, answer_timeout
        self._protocol = protocol
        self._pins = None if pins is None else Pins(pins, _pin_key(words, url))
        self._changed: dict[str, ToolDefinition] = {}
        self._checked = False
        self._closed = False
        self._entered = 0
        self._connections: list[Connection] = []

    def __repr__(self) -> str:
        return f"<MCPTools {self._label!r}>"

    # --- its life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._closed = False
        self._entered += 1
        try:
            await self._connection()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave()

    async def _leave(self) -> None:
        """End the connection if this is the last of several users."""
        self._entered -= 1
        if self._entered <= 0:
            await self.aclose()

    async def aclose(self) -> None:
        """End the connection and the server's process, and wait for their end; calls in progress fail."""
        self._closed, self._entered = True, 0
        await asyncio.gather(*(connection.aclose() for connection in self._connections))

    def close(self) -> None:
        """End the connection synchronously."""
        run_sync(self.aclose())

    async def _connection(self) -> Connection:
        if self._closed:
            raise MCPConnectionError(f"MCPTools {self._label!r} is closed; enter it again with 'async with'")
        loop = asyncio.get_running_loop()
        connection = next((one for one in self._connections if one.loop is loop and not one.ended), None)
        if connection is None:
            connection = Connection(self._label, self._endpoint, self._protocol, self._connect_timeout)
            # An ended connection may still be closing; wait for it.
            self._connections = [one for one in self._connections if not one.is_closed] + [connection]
        await connection.opened()
        return connection

    # --- tools --------------------------------------------------------------------------------------------------------

    async def aget_tools(self) -> list[MCPTool]:
        """Return the server's tools.

        Raises:
            MCPConnectionError: The server cannot be reached or could not be started.
            MCPTimeoutError: It did not list its tools in time.
            MCPToolChangedError: A pinned tool has changed, and ``on_change`` is ``"refuse"``.
            ToolDefinitionError: ``allow``, ``deny`` or ``requires_approval`` name an unknown tool.
            MissingDependencyError: The package ``mcp`` is not installed.
        """
        found = await self._resending(lambda connection: connection.tools(self._timeout, newest=True))
        if not self._checked:
            approved = () if isinstance(self._requires_approval, bool) else self._requires_approval
            check_patterns(self._label, [*(self._allow or ()), *self._deny, *approved], list(found))
            self._checked = True
        offered = [found[name] for name in selected(found, self._allow, self._deny)]
        changes = {change.name: change for change in self._changes(offered)}
        if changes and self.on_change == "refuse":
            raise MCPToolChangedError(self._label, list(changes.values()))
        return [self._tool(one if one.name not in changes else _as_pinned(changes[one.name])) for one in offered]

    async def tools(self, ctx: Context[Any, object]) -> list[MCPTool]:  # noqa: ARG002 - the same for all runs
        """Return the server's tools for a request of an agent; see ``aget_tools``."""
        return await self.aget_tools()

    def get_tools(self) -> list[MCPTool]:
        """Return the server's tools, synchronously."""
        return run_sync(self.aget_tools())

    async def aretrieve(self, text: str) -> list[MCPTool]:  # noqa: ARG002 - the question of the agent
        """Return all tools of the server, so that this object can be an agent's ``tool_retriever``."""
        return await self.aget_tools()

    def accept(self, *names: str) -> None:
        """Accept refused changes: pin the tools as they were last seen.

        Args:
            names: Names of the server or of models; all changed tools by default.

        Raises:
            KeyError: A tool has not changed.
        """
        for name in names:
            if name not in self._changed and name not in map(self._name, self._changed):
                raise KeyError(f"tool {name!r} of MCP server {self._label!r} has not changed; nothing to accept")
        for name, definition in list(self._changed.items()):
            if not names or name in names or self._name(name) in names:
                self._pin(definition)

    def _pin(self, definition: ToolDefinition) -> None:
        assert self._pins is not None
        self._pins.pin([definition])
        self._changed.pop(definition.name, None)

    def _changes(self, tools: Sequence[ToolDefinition]) -> list[ToolChange]:
        """Return unaccepted differences from the pins, after accepting the ones that need no consent."""
        if self._pins is None:
            return []
        found = self._pins.changes(tools)
        if self.on_change == "accept":
            self._pins.pin([tool for tool in tools if any(change.name == tool.name for change in found)])
            return []
        for tool in tools:
            self._changed.pop(tool.name, None)
            if any(change.name == tool.name for change in found):
                self._changed[tool.name] = tool
        return found

    def _name(self, name: str) -> str:
        return tool_name(self.namespace, name)

    def _tool(self, definition: ToolDefinition) -> MCPTool:
        required = self._requires_approval
        if not isinstance(required, bool):
            required = bool(selected([definition.name], required, ()))
        return MCPTool(definition, self._name(definition.name), self._send, ToolPolicy(requires_approval=required))

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _send(self, tool: MCPTool, arguments: dict[str, Any], ctx: Context[Any] | None) -> ToolOutput:
        name = tool.metadata.get_name()

        async def send(connection: Connection) -> Any:
            definition = (await connection.tools(self._timeout)).get(tool.definition.name)
            if definition is None:
                raise MCPToolMissingError(f"MCP server {self._label!r} no longer has the tool {tool.definition.name!r}")
            for change in self._changes([definition]):
                if self.on_change == "refuse" or not await confirm_change(
                    ctx, self._label, name, change, self._patience
                ):
                    # The caller may be a model, which must not read the server's new definition.
                    _log.warning(
                        "MCP server %r changed the tool %r, which is refused:\n%s", self._label, name, change.difference
                    )
                    raise MCPToolChangedError(self._label, [change])
                self._pin(definition)
            call = Call(self._label, name, arguments, ctx, self._patience)
            return await connection.call(tool.definition.name, call, self._timeout)

        return output_of(name, arguments, await self._resending(send))

    async def _resending(self, send: Callable[[Connection], Any]) -> Any:
        """Return the result of ``send``; repeat it over a new connection if the server rejected the request."""
        try:
            return await send(await self._connection())
        except SessionLostError:
            return await send(await self._connection())


def _as_pinned(change: ToolChange) -> ToolDefinition:
    return ToolDefinition(change.name, change.before["description"], change.before["schema"])


def _pin_key(command: Sequence[str], url: str | None) -> str:
    if url is None:
        return shlex.join(command)
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
