"""Toolset: tools that an agent is given anew for each request to its model."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import fields, replace
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, cast

from batonflow.tools.base import AsyncBaseTool, BaseTool, BaseToolAsyncAdapter, ToolOutput, adapt_to_async_tool
from batonflow.tools.call import asks_for_approval
from batonflow.tools.function import FunctionTool
from batonflow.tools.policy import ToolPolicy
from batonflow.tools.schema import ToolDefinitionError, context_for, deps_of_class, deps_of_function
from batonflow.workflow_core.context import Context
from batonflow.workflow_core.typed import AgentDepsT

__all__ = ["Toolset", "root_of"]

Change = Callable[[Context[Any], Sequence[BaseTool]], Sequence[BaseTool] | Awaitable[Sequence[BaseTool]]]
ApprovalOfSet = bool | Callable[[Context[Any], str, dict[str, Any]], bool | Awaitable[bool]]


class Toolset(ABC, Generic[AgentDepsT]):
    """Tools that may change from one request to the next; subclasses define ``tools``.

    An agent takes toolsets in ``tools=``, beside functions and tools. It asks a set once for each request to its
    model, and the calls of the answer find the tools of that request. It enters the set at the first use, and leaves
    it in ``await agent.aclose()``, at the end of ``async with agent:``, or when the event loop ends. Several agents
    may share a set: the last one leaves it.

    Example:
        >>> class Shop(Toolset[Deps]):
        ...     async def tools(self, ctx):
        ...         return [search, *([refund] if ctx.deps.is_clerk else [])]
        >>> agent = FunctionAgent(llm=llm, tools=[add, Shop().prefixed("shop_")], deps_type=Deps)
    """

    __batonflow_toolset__: ClassVar[bool] = True

    @abstractmethod
    async def tools(self, ctx: Context[Any, AgentDepsT]) -> Sequence[BaseTool]:
        """Return the tools for the next request.

        Args:
            ctx: The run's context.

        Raises:
            Exception: An exception here fails the run.

        Example:
            >>> async def tools(self, ctx):
            ...     return [search, refund]
        """

    async def __batonflow_ask__(self, ctx: Context[Any, AgentDepsT]) -> Sequence[BaseTool]:
        """Return the tools for the next request, with the typed state that ``tools`` names in its annotation."""
        return await self.tools(context_for(type(self).tools, ctx))

    async def __aenter__(self) -> Self:
        """Open the connections of the set; it is entered once for an event loop."""
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        """Close them, in the task that has opened them. The end of an agent or event loop is not an error."""

    @property
    def known_tools(self) -> Sequence[BaseTool]:
        """The tools that are known without a run; agents among them become child runs of the caller."""
        return ()

    @property
    def deps_type(self) -> Any:
        """The dependencies that the set wants; ``object`` without any."""
        return deps_of_class(type(self), Toolset, self.tools)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    # --- changed sets -------------------------------------------------------------------------------------------------

    def filtered(
        self, keep: Callable[[Context[Any, AgentDepsT], BaseTool], bool | Awaitable[bool]]
    ) -> "Toolset[AgentDepsT]":
        """Return the set with some of its tools.

        Args:
            keep: A function of ``(ctx, tool)``, async or not, that returns whether the tool is offered.

        Example:
            >>> shop.filtered(lambda ctx, tool: tool.metadata.name != "refund")
        """

        async def change(ctx: Context[Any], tools: Sequence[BaseTool]) -> Sequence[BaseTool]:
            seen = context_for(keep, ctx)
            return [tool for tool in tools if await _answer(keep(seen, tool), keep, "filtered()")]

        return ChangedToolset(self, f"filtered({_name(keep)})", change, keep)

    def renamed(self, names: Mapping[str, str]) -> "Toolset[AgentDepsT]":
        """Return the set with other names of some tools.

        Args:
            names: The new names by the old ones.

        Raises:
            ToolDefinitionError: The set can never have a tool of that name.

        Example:
            >>> shop.renamed({"search": "search_shop"})
        """
        given = dict(names)
        known = [tool.metadata.name for tool in self.known_tools]
        unknown = next((name for name in given if known and name not in known), None)
        if unknown is not None:
            raise ToolDefinitionError(f"renamed(): {self!r} has no tool {unknown!r}, only {', '.join(map(str, known))}")
        return self._with_each(f"renamed({given})", lambda tool: _renamed(tool, given.get(tool.metadata.get_name())))

    def prefixed(self, prefix: str) -> "Toolset[AgentDepsT]":
        """Return the set with a prefix before the names of its tools.

        Args:
            prefix: The beginning of the names, such as ``"shop_"``.

        Example:
            >>> shop.prefixed("shop_")
        """
        return self._with_each(f"prefixed({prefix!r})", lambda tool: _renamed(tool, prefix + tool.metadata.get_name()))

    def prepared(
        self,
        change: Callable[
            [Context[Any, AgentDepsT], Sequence[BaseTool]], Sequence[BaseTool] | Awaitable[Sequence[BaseTool]]
        ],
    ) -> "Toolset[AgentDepsT]":
        """Return the set with tools that a function makes of its tools before each request.

        Args:
            change: A function of ``(ctx, tools)``, async or not, that returns the tools to offer.

        Example:
            >>> shop.prepared(lambda ctx, tools: sorted(tools, key=lambda tool: tool.metadata.name))
        """
        return ChangedToolset(self, f"prepared({_name(change)})", change, change)

    def approval_required(
        self,
        when: bool | Callable[[Context[Any, AgentDepsT], str, dict[str, Any]], bool | Awaitable[bool]] = True,
        timeout: float | None = None,
    ) -> "Toolset[AgentDepsT]":
        """Return the set with tools that a person must approve, besides the approvals that they require themselves.

        Args:
            when: True for each call, or a function of ``(ctx, name, arguments)`` that returns whether a person must
                approve the call.
            timeout: Seconds until an unanswered request counts as denied.

        Raises:
            ToolDefinitionError: A value is invalid.

        Example:
            >>> shop.approval_required(lambda ctx, name, arguments: arguments.get("amount", 0) > 100)
        """
        ToolPolicy(requires_approval=True, approval_timeout=timeout)
        if not isinstance(when, bool) and not callable(when):
            raise ToolDefinitionError(
                f"approval_required() takes True or a function of (ctx, name, arguments): {when!r}"
            )
        more = {} if timeout is None else {"approval_timeout": timeout}
        return self._with_each(
            f"approval_required({_name(when)})",
            lambda tool: _with_policy(tool, {"requires_approval": _approval(tool, when), **more}),
            when,
        )

    def with_policy(self, **policy: Any) -> "Toolset[AgentDepsT]":
        """Return the set with another policy of its tools. Omitted fields stay as the tools have them.

        Args:
            policy: Fields of ``ToolPolicy``.

        Raises:
            ToolDefinitionError: A field is unknown or has an invalid value.

        Example:
            >>> shop.with_policy(timeout=10, max_calls=3)
        """
        known = [one.name for one in fields(ToolPolicy)]
        unknown = next((name for name in policy if name not in known), None)
        if unknown is not None:
            raise ToolDefinitionError(f"with_policy() does not know {unknown}; a policy has {', '.join(known)}")
        ToolPolicy(**policy)
        return self._with_each(f"with_policy({', '.join(policy)})", lambda tool: _with_policy(tool, policy))

    def _with_each(self, said: str, make: Callable[[BaseTool], BaseTool], given: Any = None) -> "Toolset[AgentDepsT]":
        """Return the set with a change of each tool; a tool that stays the same is changed once."""
        made: dict[int, tuple[BaseTool, BaseTool]] = {}

        def change(_: Context[Any], tools: Sequence[BaseTool]) -> Sequence[BaseTool]:
            nonlocal made
            made = {id(tool): made.get(id(tool)) or (tool, make(tool)) for tool in tools}
            return [made[id(tool)][1] for tool in tools]

        return ChangedToolset(self, said, change, given)

    @staticmethod
    def of(*tools: BaseTool | Callable[..., Any]) -> "Toolset[Any]":
        """Return a set of functions and tools.

        Args:
            tools: Functions and tools.

        Raises:
            ToolDefinitionError: One of them is neither, or two have one name.

        Example:
            >>> Toolset.of(add, subtract).prefixed("math_")
        """
        return FixedToolset(tools)


class FixedToolset(Toolset[Any]):
    """A set that always has the same tools.

    Args:
        given: Functions and tools.
    """

    def __init__(self, given: Sequence[Any]) -> None:
        self._tools: list[BaseTool] = []
        for one in given:
            if isinstance(one, type) or not (isinstance(one, BaseTool) or callable(one)):
                raise ToolDefinitionError(f"Toolset.of() takes functions and tools, not {one!r}")
            made = one if isinstance(one, BaseTool) else FunctionTool.from_defaults(one)
            if any(made.metadata.name == other.metadata.name for other in self._tools):
                raise ToolDefinitionError(f"Toolset.of() was given two tools called {made.metadata.name!r}: rename one")
            self._tools.append(made)

    async def tools(self, ctx: Context[Any, Any]) -> Sequence[BaseTool]:  # noqa: ARG002 - always the same
        """Return the tools."""
        return self._tools

    @property
    def known_tools(self) -> Sequence[BaseTool]:
        """The tools."""
        return self._tools

    @property
    def deps_type(self) -> Any:
        """The set wants no dependencies, its tools may."""
        return object

    def __repr__(self) -> str:
        return f"Toolset.of({', '.join(tool.metadata.name or '' for tool in self._tools)})"


class ChangedToolset(Toolset[AgentDepsT]):
    """A set whose tools are changed before each request.

    Args:
        inner: The set.
        said: The change, for messages.
        change: Returns the tools to offer.
        given: The function of the user in it, if there is one.
    """

    def __init__(self, inner: Toolset[AgentDepsT], said: str, change: Change, given: Any = None) -> None:
        self.inner, self._said, self._change, self._given = inner, said, change, given

    async def tools(self, ctx: Context[Any, AgentDepsT]) -> Sequence[BaseTool]:
        """Return the changed tools of the set."""
        made: Any = self._change(context_for(self._change, ctx), await self.inner.__batonflow_ask__(ctx))
        return await made if inspect.isawaitable(made) else made

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:  # noqa: PYI036 - passed on
        await self.inner.__aexit__(*error)

    @property
    def known_tools(self) -> Sequence[BaseTool]:
        """The tools of the set that are known without a run, unchanged."""
        return self.inner.known_tools

    @property
    def deps_type(self) -> Any:
        """The dependencies that the set or the function of the change wants."""
        own = deps_of_function(self._given) if callable(self._given) else object
        return self.inner.deps_type if own is object else own

    def __repr__(self) -> str:
        return f"{self.inner!r}.{self._said}"


class ChangedTool(BaseToolAsyncAdapter):
    """A tool with another name or policy.

    Args:
        tool: The tool.
    """

    def __init__(self, tool: BaseTool) -> None:
        super().__init__(tool)
        self._target: Any = adapt_to_async_tool(tool)
        self.new_metadata = tool.metadata
        self.new_policy: Any = getattr(tool, "policy", None)

    @property
    def metadata(self) -> Any:
        """The metadata for models."""
        return self.new_metadata

    @property
    def policy(self) -> Any:
        """The policy, or None."""
        return self.new_policy

    async def acall(self, input: Any = ..., **kwargs: Any) -> ToolOutput:  # noqa: A002 - the contract's name
        """Call the tool."""
        return await (self._target.acall(**kwargs) if input is ... else self._target.acall(input, **kwargs))

    def acall_reporting(
        self, arguments: Mapping[str, Any], report: Callable[[Any], None] | None
    ) -> Awaitable[ToolOutput]:
        """Call the tool with arguments by name, and report its progress."""
        return cast("AsyncBaseTool", self._target).acall_reporting(arguments, report)


def root_of(toolset: Toolset[Any]) -> Toolset[Any]:
    """Return the set inside of changed sets, which is the one to enter."""
    while isinstance(toolset, ChangedToolset):
        toolset = toolset.inner
    return toolset


def _copied(tool: BaseTool) -> Any:
    return copy(tool) if isinstance(tool, FunctionTool) else ChangedTool(tool)


def _renamed(tool: BaseTool, name: str | None) -> BaseTool:
    """Return a tool under another name; None keeps the name."""
    old = tool.metadata.get_name()
    if name is None or name == old:
        return tool
    made, metadata = _copied(tool), copy(tool.metadata)
    metadata.name = name
    if metadata.description.startswith(f"{old}("):  # the signature of a function stands first
        metadata.description = name + metadata.description[len(old) :]
    if isinstance(made, FunctionTool):
        cast("Any", made)._metadata = metadata
    else:
        made.new_metadata = metadata
    return made


def _with_policy(tool: BaseTool, changes: Mapping[str, Any]) -> BaseTool:
    """Return a tool with another policy."""
    made, policy = _copied(tool), getattr(tool, "policy", None)
    policy = replace(policy if isinstance(policy, ToolPolicy) else ToolPolicy(), **changes)
    setattr(made, "policy" if isinstance(made, FunctionTool) else "new_policy", policy)
    return made


def _approval(tool: BaseTool, when: ApprovalOfSet) -> Any:
    """Return the approval that a tool of a set requires: its own, and that of the set."""
    own: Any = getattr(getattr(tool, "policy", None), "requires_approval", False)
    if when is True or own is True:
        return True
    if when is False:
        return own

    async def required(ctx: Context[Any], arguments: dict[str, Any]) -> bool:
        if own is not False and await asks_for_approval(own, ctx, arguments):
            return True
        return await _answer(
            when(context_for(when, ctx), tool.metadata.get_name(), arguments), when, "approval_required()"
        )

    return required


async def _answer(given: Any, function: Any, place: str) -> bool:
    """Return the answer of a function of the user.

    Raises:
        TypeError: It is not True or False.
    """
    answer = await given if inspect.isawaitable(given) else given
    if not isinstance(answer, bool):
        raise TypeError(f"{place}: {_name(function)} returned {answer!r}, not True or False")
    return answer


def _name(given: Any) -> str:
    return given.__name__ if callable(given) and hasattr(given, "__name__") else str(given)
