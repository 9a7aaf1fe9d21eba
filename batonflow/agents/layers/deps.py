"""Dependencies of agents: their declaration, its check against members and tools, and the deps of a new run."""

from collections.abc import Callable, Iterable
from inspect import isawaitable
from typing import Any, get_origin

from batonflow.tools import FunctionTool
from batonflow.workflow_core import Context
from batonflow.workflow_core.dependencies import DepsSource, RunInfo, known_deps
from batonflow.workflow_core.validation.tree import calling_step

__all__ = ["context_with", "deps_of_tool", "source_of", "source_of_team"]


def source_of(name: str, deps_type: Any, deps_for: Any, tools: Iterable[Any]) -> DepsSource | None:
    """Return the declared dependencies of an agent; None for an agent without any.

    Args:
        name: The name of the agent, for errors.
        deps_type: The class of the dependencies.
        deps_for: Makes them for a run.
        tools: The tools of the agent.

    Raises:
        ValueError: A tool wants dependencies of another type, or ``deps_for`` is not a function.
    """
    if deps_for is not None and not callable(deps_for):
        raise ValueError(f"deps_for is a function of (info) that makes the deps of a run, not {deps_for!r}")
    if not (deps_type is None or isinstance(deps_type, type) or get_origin(deps_type) is not None):
        raise ValueError(f"deps_type is the class of the deps of a run, not {deps_type!r}")
    source = DepsSource(object if deps_type is None else deps_type, deps_for)
    for tool in tools:
        wanted = tool.deps_type if isinstance(tool, FunctionTool) else object
        if not _fits(source.deps_type, wanted):
            raise ValueError(
                f"Tool {tool.metadata.get_name()} wants deps of type {_name(wanted)}, and agent {name} has "
                f"deps_type={_name(source.deps_type)}: give the agent deps_type={_name(wanted)}"
            )
    return source if source.is_required or deps_for is not None else None


def source_of_team(deps_type: Any, deps_for: Any, members: Iterable[Any]) -> DepsSource | None:
    """Return the declared dependencies of a team; without a type, those of its members.

    Args:
        deps_type: The class of the dependencies; None for that of the members.
        deps_for: Makes them for a run.
        members: The members.

    Raises:
        ValueError: A member wants dependencies of another type.
    """
    wanted: dict[Any, str] = {}
    for agent in members:
        inner = getattr(agent, "team", agent).__batonflow__.deps
        if inner is not None and inner.is_required:
            wanted.setdefault(inner.deps_type, agent.name)
    if deps_type is None:
        deps_type = next((one for one in wanted if all(_fits(one, other) for other in wanted)), None)
        if deps_type is None and wanted:
            (first, one), (second, other), *_ = wanted.items()
            raise ValueError(
                f"{one} wants deps of type {_name(first)}, and {other} of type {_name(second)}: give the team "
                "deps_type=..., a class that is both"
            )
    for other, name in wanted.items():
        if not _fits(deps_type, other):
            raise ValueError(f"{name} wants deps of type {_name(other)}, and the team has deps_type={_name(deps_type)}")
    return source_of("the team", deps_type, deps_for, ())


def context_with(workflow: Any, ctx: Context[Any] | None, deps: Any) -> Context[Any] | None:
    """Return the context for a new run, with its dependencies.

    Args:
        workflow: The agent or team.
        ctx: The context that was given.
        deps: The dependencies that were given; None for those of ``ctx`` or of the run around.

    Raises:
        DepsMissingError: There are no dependencies, and the agent needs some.
        TypeError: The dependencies have another type than declared.
    """
    source: DepsSource = workflow.__batonflow__.deps or DepsSource()
    if deps is not None:
        source.check(deps)
        ctx = Context(workflow) if ctx is None else ctx
        ctx.given_deps = deps
        return ctx
    found = None if ctx is None else ctx.given_deps
    if found is None and ctx is not None:
        found = known_deps(ctx.run)
    if found is None:
        around = calling_step(workflow)
        found = None if around is None else known_deps(around[0].run)
    if found is not None:
        source.check(found)
    elif source.is_required and source.deps_for is None:
        raise source.missing("", workflow.name)
    return ctx


async def deps_of_tool(agent: Any, make: Callable[[Context[Any]], Any] | None) -> Any:
    """Return the dependencies for an agent as a tool; None for those of the caller.

    Args:
        agent: The agent.
        make: Makes them from the caller's context, as ``as_tool(deps=...)`` says.
    """
    ctx = Context.get_step_context()
    source: DepsSource = agent.__batonflow__.deps or DepsSource()
    made: Any = None
    if make is not None:
        made = make(ctx)
    elif source.deps_for is not None and known_deps(ctx.run) is None:
        made = source.deps_for(RunInfo(ctx.run_id, agent.__batonflow__.workflow_name))
    return await made if isawaitable(made) else made


def _fits(given: Any, wanted: Any) -> bool:
    """Return whether dependencies of one type serve where another is wanted; types without classes always do."""
    if not isinstance(wanted, type) or wanted is object:
        return True
    return isinstance(given, type) and (issubclass(given, wanted) or getattr(wanted, "_is_protocol", False))


def _name(kind: Any) -> str:
    return getattr(kind, "__qualname__", str(kind))
