"""Users' middleware as layers around a tool call."""

from copy import copy
from typing import Any

from batonflow.agents.arguments import as_sent
from batonflow.agents.invocation import CallNext, ToolInvocation, ToolLayer
from batonflow.agents.members import Member, Team
from batonflow.agents.middleware import Middleware, ToolRequest
from batonflow.agents.middleware_points import PassedOn, call_point, noted, points_of, result_of
from batonflow.tools import ToolOutput
from batonflow.tools.call import own as copy_containers

__all__ = ["AroundTool", "middleware_around_tool"]


def middleware_around_tool(team: Team, agent: Member) -> tuple[ToolLayer, ...]:
    """Return the middleware of a team and of an agent in it as layers, the outermost first."""
    points = points_of(team, agent)
    if points.tool_layers is None:
        points.tool_layers = tuple(map(AroundTool, points.around_tool))
    return points.tool_layers


class AroundTool:
    """A middleware as a layer around a tool call.

    Args:
        middleware: The middleware; it overrides ``around_tool``.
    """

    def __init__(self, middleware: Middleware[Any]) -> None:
        self.middleware = middleware

    async def __call__(self, invocation: ToolInvocation, call_next: CallNext) -> ToolOutput:
        """Let the middleware make the call."""
        times, passed_on, middleware = 0, PassedOn(), self.middleware

        async def run(request: ToolRequest) -> ToolOutput:
            nonlocal times
            times += 1
            if request.tool is not first.tool or request.call is not first.call:
                raise TypeError("around_tool may change the arguments of a request, and nothing else")
            same = request.arguments is first.arguments and _equal(first.arguments, invocation.arguments)
            inner = _repeated(invocation, None if same else request.arguments, times)
            try:
                return await passed_on.of(call_next(inner))
            finally:
                invocation.reported, invocation.refused = inner.reported, inner.refused
                invocation.handle, invocation.approval = inner.handle, inner.approval

        first = ToolRequest(
            agent=invocation.agent.name,
            tool=invocation.tool,
            call=invocation.call,
            arguments=copy_containers(invocation.arguments),
            idempotency_key=invocation.idempotency_key,
        )
        with noted(middleware, "around_tool", passed_on):
            running = call_point(middleware, "around_tool", invocation.ctx, first, run)
            return await result_of(running, middleware, "around_tool", (ToolOutput,))


def _equal(given: dict[str, Any], before: dict[str, Any]) -> bool:
    """Tell whether a middleware has left arguments as they were; it may change them in place."""
    try:
        return bool(given == before)
    except Exception:  # noqa: BLE001 - == of user values may raise anything
        return True


def _repeated(invocation: ToolInvocation, arguments: dict[str, Any] | None, times: int) -> ToolInvocation:
    """Return the invocation for one run of the tool. After the first run, it has its own place in the records."""
    inner = copy(invocation)
    if arguments is not None:
        inner.arguments, inner.reported = arguments, as_sent(arguments)
    if times > 1:
        inner.place, inner.refused = f"{invocation.place}.{times}", False
    return inner
