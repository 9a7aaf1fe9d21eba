"""Dependencies of agents: their declaration, its check against members and tools, and the deps of a new run."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextvars import copy_context
from inspect import isawaitable
from typing import Any, get_origin

from batonflow import agents as kinds
from batonflow.agents.hooks import name_of
from batonflow.agents.middleware import POINTS
from batonflow.run_facts import RunInfo, info_of_run
from batonflow.tools import FunctionTool
from batonflow.tools.schema import deps_of_class, deps_of_function
from batonflow.workflow_core import Context
from batonflow.workflow_core.dependencies import DepsSource, known_deps
from batonflow.workflow_core.validation.tree import calling_step

__all__ = ["context_with", "deps_of_tool", "source_of", "source_of_team"]


def source_of(
    name: str,
    deps_type: Any,
    deps_for: Any,
    tools: Iterable[Any] = (),
    instructions: Iterable[Any] = (),
    middleware: Iterable[Any] = (),
) -> DepsSource | None:
    """Return the declared dependencies of an agent; None for an agent without any.

    Args:
        name: The name of the agent, for errors.
        deps_type: The class of the dependencies.
        deps_for: Makes them for a run.
        tools: The tools and toolsets of the agent.
        instructions: Its instructions.
        middleware: Its middleware.

    Raises:
        ValueError: A tool, toolset, instruction or middleware wants dependencies of another type, or ``deps_for`` is
            not a function.
    """
    if deps_for is not None and not callable(deps_for):
        raise ValueError(f"deps_for is a function of (info) that makes the deps of a run, not {deps_for!r}")
    if not (deps_type is None or isinstance(deps_type, type) or get_origin(deps_type) is not None):
        raise ValueError(f"deps_type is the class of the deps of a run, not {deps_type!r}")
    named = name if name == "the team" else f"agent {name}"
    made_by = None if deps_for is None else _noted(deps_for, named)
    source = DepsSource(object if deps_type is None else deps_type, made_by)
    for said, wanted in _wishes(tools, instructions, middleware):
        if not _fits(source.deps_type, wanted):
            raise ValueError(
                f"{said} wants deps of type {_name(wanted)}, and {named} has deps_type={_name(source.deps_type)}: "
                f"give {'the team' if named == name else 'the agent'} deps_type={_name(wanted)}"
            )
    return source if source.is_required or deps_for is not None else None


def _noted(deps_for: Callable[[RunInfo], Any], named: str) -> Callable[[RunInfo], Awaitable[Any]]:
    """Return ``deps_for`` with a note in its errors that names it."""

    async def make(info: RunInfo) -> Any:
        try:
            made = deps_for(info)
            return await made if isawaitable(made) else made
        except Exception as error:
            error.add_note(f"in deps_for of {named}")
            raise

    return make


def _wishes(tools: Iterable[Any], instructions: Iterable[Any], middleware: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the name and the wanted dependencies of each part of an agent that may want some."""
    for tool in tools:
        if isinstance(tool, FunctionTool):
            yield f"Tool {tool.metadata.get_name()}", tool.deps_type
        elif getattr(tool, "__batonflow_toolset__", False):
            yield f"Toolset {tool!r}", tool.deps_type
            yield from _wishes(tool.known_tools, (), ())
    for one in instructions:
        if not isinstance(one, str):
            function = getattr(one, "function", one)
            yield f"Instruction {name_of(function)}", deps_of_function(function)
    for one in middleware:
        cls: Any = one.__class__
        methods = [getattr(cls, point) for point in POINTS]
        yield f"Middleware {one.name}", deps_of_class(cls, kinds.Middleware, *methods)


def source_of_team(
    deps_type: Any, deps_for: Any, members: Iterable[Any], middleware: Iterable[Any] = ()
) -> DepsSource | None:
    """Return the declared dependencies of a team; without a type, those of its members.

    Args:
        deps_type: The class of the dependencies; None for that of the members.
        deps_for: Makes them for a run.
        members: The members.
        middleware: The middleware of the team.

    Raises:
        ValueError: A member or middleware wants dependencies of another type.
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
    return source_of("the team", deps_type, deps_for, middleware=middleware)


def context_with(workflow: Any, ctx: Context[Any] | None, deps: Any) -> Context[Any] | None:
    """Return the context for a new run, with its dependencies.

    Args:
        workflow: The agent or team.
        ctx: The context that was given.
        deps: The dependencies that were given; None for those of ``ctx`` or of the run around.

    Raises:
        DepsMissingError: There are no dependencies, and the agent needs some.
        TypeError: The dependencies are not of the declared type.
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
        made = source.deps_for(info_of_run(ctx.run_id, agent.__batonflow__.workflow_name, copy_context()))
    return await made if isawaitable(made) else made


def _fits(given: Any, wanted: Any) -> bool:
    """Return whether dependencies of one type serve where another is wanted; types without classes always do."""
    if not isinstance(wanted, type) or wanted is object or getattr(wanted, "_is_protocol", False):
        return True
    return isinstance(given, type) and issubclass(given, wanted)


def _name(kind: Any) -> str:
    return getattr(kind, "__qualname__", str(kind))
