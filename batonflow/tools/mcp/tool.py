"""MCPTool: a tool of a server, for agents and by itself."""

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
    """A tool of a server. :class:`MCPTools` makes them.

    Args:
        definition: What the server says of it.
        name: The name that models use.
        call: Sends a call.
        policy: When it may run.

    Attributes:
        definition: What the server says of it; its ``annotations`` are the server's claims.
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
        """Arguments from a model, checked by the server's schema.

        Raises:
            ToolArgumentsError: They do not fit; its text is for the model.
        """
        return validated(self.metadata.get_name(), self.definition.schema, arguments)

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the tool; synchronous calls have a connection of their own, and ask nobody anything.

        Raises:
            ToolArgumentsError: The arguments do not fit the server's schema.
            MCPConnectionError: The server cannot be reached, or ended.
        """
        return run_sync(self._send(self._named(args, kwargs), None))

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """The same asynchronously; in a step of a workflow progress goes to its stream, and questions to a person."""
        return await self._send(self._named(args, kwargs), _step_context())

    async def _send(self, arguments: dict[str, Any], ctx: Context[Any] | None) -> ToolOutput:
        return await self._call(self, self.validate_arguments(arguments), ctx)

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = list(self.definition.schema.get("properties", {}))
        if len(args) > len(names):
            raise TypeError(f"{self.metadata.name} takes {len(names)} arguments but {len(args)} were given")
        return {**dict(zip(names, args, strict=False)), **kwargs}


def _step_context() -> Context[Any] | None:
    """That of the step which is running here, if any."""
    try:
        return Context.get_step_context()
    except WorkflowRuntimeError:
        return None
