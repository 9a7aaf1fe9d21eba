"""MCPTool: a tool of a server, for agents and for direct calls."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from batonflow.llms._bridge import run_sync
from batonflow.tools.base import ToolOutput
from batonflow.tools.function import FunctionTool, ToolPolicy
from batonflow.tools.mcp.arguments import MCPToolMetadata, validated
from batonflow.tools.mcp.definitions import ToolDefinition
from batonflow.workflow_core.context import Context
from batonflow.workflow_core.errors import WorkflowRuntimeError

__all__ = ["MCPTool"]

Caller = Callable[["MCPTool", dict[str, Any], Context[Any] | None], Awaitable[ToolOutput]]


class MCPTool(FunctionTool):
    """A tool of a server, created by :class:`MCPTools`.

    Args:
        definition: The server's definition.
        name: The name for models.
        call: Sends a call.
        policy: Approval, timeout, retries and other limits.

    Attributes:
        definition: The server's definition; its ``annotations`` are unverified claims.
    """

    def __init__(self, definition: ToolDefinition, name: str, call: Caller, policy: ToolPolicy) -> None:
        metadata = MCPToolMetadata(
            description=definition.description, name=name, fn_schema=None, schema=definition.schema
        )

        async def send(**arguments: Any) -> ToolOutput:
            return await call(self, arguments, None)

        super().__init__(async_fn=send, metadata=metadata, policy=policy)
        self.definition = definition
        self._call = call

    def __repr__(self) -> str:
        return f"<MCPTool {self.metadata.name!r}>"

    def validate_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check a model's arguments with the server's schema.

        Raises:
            ToolArgumentsError: The arguments do not fit; the text is for the model.
        """
        return validated(self.metadata.get_name(), self.definition.schema, arguments)

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the tool over a separate connection, without questions to people.

        Raises:
            ToolArgumentsError: The arguments do not fit the server's schema.
            MCPConnectionError: The server cannot be reached, or ended.
        """
        return run_sync(self._send(self._named(args, kwargs), None))

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the tool asynchronously; a step publishes progress on its stream and asks people."""
        return await self._send(self._named(args, kwargs), _step_context())

    async def _send(self, arguments: dict[str, Any], ctx: Context[Any] | None) -> ToolOutput:
        return await self._call(self, self.validate_arguments(arguments), ctx)

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = list(self.definition.schema.get("properties", {}))
        if len(args) > len(names):
            raise TypeError(f"{self.metadata.name} takes {len(names)} arguments but {len(args)} were given")
        return {**dict(zip(names, args, strict=False)), **kwargs}


def _step_context() -> Context[Any] | None:
    try:
        return Context.get_step_context()
    except WorkflowRuntimeError:
        return None
