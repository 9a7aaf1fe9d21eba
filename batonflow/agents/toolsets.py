"""Tools of toolsets and prepared tools. They are asked for before each request, and kept for the answer's calls."""

import inspect
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, cast
from weakref import WeakKeyDictionary

from batonflow.agents.entering import enter_toolset, leave_toolsets
from batonflow.agents.hooks import name_of
from batonflow.agents.members import HANDOFF_TOOL
from batonflow.llms.tool_protocol import wire_name
from batonflow.tools import AsyncBaseTool, BaseTool, adapt_to_async_tool
from batonflow.tools.schema import ToolDefinitionError, context_for
from batonflow.tools.toolset import Toolset
from batonflow.workflow_core import Context, WorkflowRuntimeError
from batonflow.workflow_core.run import Run

__all__ = ["asked_tools", "keep_tools", "kept_tools", "leave_toolsets", "prepare_of"]

_kept: "WeakKeyDictionary[Run, dict[str, Sequence[AsyncBaseTool]]]" = WeakKeyDictionary()


def prepare_of(tool: Any) -> Any:
    """Return the function that prepares a tool for a request; None for most tools."""
    return getattr(tool, "__dict__", {}).get("prepare")


async def asked_tools(agent: Any, given: Iterable[Any]) -> list[AsyncBaseTool]:
    """Return the tools for a request, of a list of tools and toolsets.

    Args:
        agent: The agent that asks its model.
        given: Its tools and toolsets.

    Raises:
        ToolDefinitionError: Two tools have one name.
        Exception: The exception of a toolset or of a function that prepares a tool, with a note.
    """
    ctx = _context(agent)
    found: list[AsyncBaseTool] = []
    owners: dict[str, str] = {}
    for one in given:
        owner = f"the toolset {one!r}" if isinstance(one, Toolset) else f"the tools of agent {agent.name}"
        for tool in await _tools_in(agent, one, ctx):
            prepared = await _prepared(tool, ctx)
            if prepared is None:
                continue
            _check_name(agent, prepared.metadata.get_name(), owner, owners)
            found.append(adapt_to_async_tool(prepared))
    return found


def keep_tools(ctx: Context[Any], agent: Any, tools: Sequence[AsyncBaseTool]) -> None:
    """Keep the tools of a request for the calls of its answer."""
    names: set[str] = set()
    for name in (tool.metadata.get_name() for tool in tools):
        if name in names:
            raise ToolDefinitionError(
                f"Agent {agent.name} has two tools called {name!r} in one request: give toolset.prefixed(...) or "
                "toolset.renamed(...) in the place of the set"
            )
        names.add(name)
    if ctx.run is not None:
        _kept.setdefault(ctx.run, {})[agent.name] = tools


def kept_tools(ctx: Context[Any], agent: Any) -> Sequence[AsyncBaseTool] | None:
    """Return the tools of the last request of an agent in this process; None before it."""
    return None if ctx.run is None else _kept.get(ctx.run, {}).get(agent.name)


def _context(agent: Any) -> Context[Any]:
    try:
        return Context.get_step_context()
    except WorkflowRuntimeError:  # a program asks the agent for its tools, outside of a run
        return Context(agent)


async def _tools_in(agent: Any, given: Any, ctx: Context[Any]) -> Sequence[BaseTool]:
    """Return the tools of a set, which is entered; a tool stands for itself."""
    if not isinstance(given, Toolset):
        return (given,)
    given = cast("Toolset[Any]", given)
    with _noted(f"in toolset {given!r}"):
        await enter_toolset(agent, given)
        tools: list[Any] = list(await given.__batonflow_ask__(ctx))
        wrong = next((one for one in tools if not isinstance(one, BaseTool)), None)
        if wrong is not None:
            raise TypeError(f"{given!r}.tools() returns tools, not {wrong!r}: make a tool of a function by tool()")
    running: Any = None if ctx.run is None else ctx.run.workflow
    if hasattr(running, "__batonflow_attach__"):
        running.__batonflow_attach__(tools)
    return tools


async def _prepared(tool: BaseTool, ctx: Context[Any]) -> BaseTool | None:
    prepare = prepare_of(tool)
    if prepare is None:
        return tool
    with _noted(f"in prepare {name_of(prepare)} of tool {tool.metadata.name}"):
        made = prepare(context_for(prepare, ctx), tool)
        made = await made if inspect.isawaitable(made) else made
        if made is not None and not isinstance(made, BaseTool):
            raise TypeError(f"prepare returns a tool or None, not {made!r}")
    return made


def _check_name(agent: Any, name: str, owner: str, owners: dict[str, str]) -> None:
    sent = wire_name(name)
    if sent == HANDOFF_TOOL:
        raise ToolDefinitionError(f"The tool name {name!r} of {owner} is reserved for teams: rename it by renamed()")
    if sent in owners:
        raise ToolDefinitionError(
            f"Agent {agent.name} has two tools called {name!r} in one request, of {owners[sent]} and of {owner}: give "
            f'toolset.prefixed("...") in the place of one of the sets'
        )
    owners[sent] = owner


@contextmanager
def _noted(text: str) -> Generator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(text)
        raise
