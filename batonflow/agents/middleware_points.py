"""Users' middleware: which of an agent acts at which point, and the checks of its results."""

import inspect
from collections.abc import Awaitable, Generator, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any

from batonflow.agents.instructions import checked_instructions
from batonflow.agents.members import Member, Team
from batonflow.agents.middleware import Middleware, checked_middleware
from batonflow.agents.toolsets import asked_tools
from batonflow.tools import AsyncBaseTool, BaseTool, FunctionTool, adapt_to_async_tool
from batonflow.tools.schema import state_of_function
from batonflow.workflow_core import Context

__all__ = [
    "PassedOn",
    "Points",
    "call_point",
    "checked_instructions",
    "checked_middleware",
    "noted",
    "points_of",
    "result_of",
    "with_added",
]


class Points:
    """The middleware of an agent by the points where it acts; methods without an override are left out.

    Args:
        given: The middleware, the outermost first.
    """

    def __init__(self, given: Sequence[Middleware[Any]]) -> None:
        self.given = given
        self.before_run = _with_own(given, "before_run")
        self.around_model = _with_own(given, "around_model")
        self.around_tool = _with_own(given, "around_tool")
        self.tool_layers: Any = None  # made by tool_middleware.py at the first call
        self.after_run = _with_own(given, "after_run")[::-1]
        self.instructions = [text for one in given for text in checked_instructions(one.instructions())]
        self.tools: list[Any] = [_adapted(tool) for one in given for tool in one.tools()]
        self.varies = any(_varies(tool) for tool in self.tools)


def _with_own(given: Sequence[Middleware[Any]], method: str) -> tuple[Middleware[Any], ...]:
    return tuple(one for one in given if getattr(type(one), method) is not getattr(Middleware, method))


def _varies(tool: Any) -> bool:
    return not isinstance(tool, BaseTool) or "prepare" in vars(tool)


def _adapted(tool: Any) -> Any:
    if getattr(tool, "__batonflow_toolset__", False):
        return tool
    return adapt_to_async_tool(tool if isinstance(tool, BaseTool) else FunctionTool.from_defaults(tool))


def points_of(team: Team, agent: Member) -> Points:
    """Return the middleware of a team and of an agent in it. It is kept until one of the lists changes."""
    given, kept = (*team.middleware, *agent.middleware), team.points.get(agent.name)
    if kept is None or len(kept.given) != len(given) or not all(map(is_, kept.given, given)):
        kept = team.points[agent.name] = Points(given)
    return kept


async def with_added(team: Team, agent: Member, tools: Sequence[AsyncBaseTool]) -> Sequence[AsyncBaseTool]:
    """Return tools of an agent with those that its middleware adds.

    Raises:
        ValueError: Two tools have one name.
    """
    points = points_of(team, agent)
    added: list[AsyncBaseTool] = points.tools
    if points.varies:
        object.__setattr__(agent, "__batonflow_varies__", True)
        added = await asked_tools(agent, points.tools)
    if not added:
        return tools
    names = {tool.metadata.get_name() for tool in tools}
    twice = next((name for tool in added if (name := tool.metadata.get_name()) in names), None)
    if twice is not None:
        raise ValueError(f"Agent {agent.name} and its middleware both have a tool {twice!r}: rename one")
    return [*tools, *added]


def call_point(middleware: Middleware[Any], method: str, ctx: Context[Any], *args: Any) -> Any:
    """Call a method of a middleware, with a view on the typed state if its annotation names one."""
    wanted = state_of_function(getattr(middleware.__class__, method))
    return getattr(middleware, method)(ctx if wanted is None else ctx.with_state_type(wanted), *args)


@contextmanager
def noted(middleware: Middleware[Any], method: str, passed_on: Sequence[BaseException] = ()) -> Generator[None]:
    """Add a note to exceptions of a middleware, but not to those that it only passes on."""
    try:
        yield
    except Exception as error:
        if not any(error is one for one in passed_on):
            error.add_note(f"in {method} of middleware {middleware.name}")
        raise


async def result_of(running: Any, middleware: Middleware[Any], method: str, kinds: tuple[type[Any], ...]) -> Any:
    """Await a method of a middleware, and check its result."""
    named = f"{method} of middleware {middleware.name}"
    if not inspect.isawaitable(running):
        raise TypeError(f"{named} is not a coroutine function: write it with `async def`")
    result: Any = await running
    if not isinstance(result, kinds):
        wanted = " or ".join("None" if one is type(None) else one.__name__ for one in kinds)
        raise TypeError(f"{named} returned {type(result).__name__}, not {wanted}")
    return result


class PassedOn(list[BaseException]):
    """The exceptions that came out of ``call_next`` of one middleware."""

    async def of(self, running: Awaitable[Any]) -> Any:
        """Await what ``call_next`` runs, and keep its exception."""
        try:
            return await running
        except Exception as error:
            self.append(error)
            raise
