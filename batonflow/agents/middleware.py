"""Middleware: objects of the user around answers of models, tool calls, and the two ends of a turn."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import iscoroutinefunction
from typing import Any, ClassVar, Generic, Self, cast

from typing_extensions import TypeVar

from batonflow.agents.events import AgentOutput, ToolCall
from batonflow.agents.hooks import Block
from batonflow.agents.instructions import Instructions
from batonflow.lazy import at_first_use
from batonflow.llms import LLM, ChatMessage
from batonflow.tools import AsyncBaseTool, BaseTool, ToolOutput
from batonflow.workflow_core import Context
from batonflow.workflow_core.typed import AgentDepsT

DepsT = TypeVar("DepsT", default=object)

__all__ = ["POINTS", "CallModel", "CallTool", "Middleware", "ModelRequest", "ToolRequest", "checked_middleware"]

POINTS = ("before_run", "around_model", "around_tool", "after_run")
"""The methods of a middleware that are called in a run."""

get_close_matches = at_first_use("difflib", "get_close_matches")


def _list_of(kind: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(isinstance(one, kind) for one in cast("Any", value))


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "messages": (_list_of(ChatMessage), "are a list of ChatMessage"),
    "turn": (_list_of(ChatMessage), "is a list of ChatMessage"),
    "tools": (_list_of(BaseTool), "are a list of tools"),
    "llm": (lambda value: value is None or isinstance(value, LLM), "is a model"),
    "options": (lambda value: isinstance(value, Mapping), "are a dict"),
    "arguments": (lambda value: isinstance(value, dict), "are a dict"),
}


@dataclass(frozen=True, eq=False)
class _Request:
    """A request that a middleware passes on, perhaps as a changed copy.

    Args:
        agent: The name of the agent.
    """

    agent: str

    def with_(self, **changes: Any) -> Self:
        """Return a copy with changes.

        Args:
            changes: New values of attributes by name.

        Raises:
            TypeError: The request does not have an attribute of that name.
        """
        known = [one.name for one in fields(self)]
        unknown = next((name for name in changes if name not in known), None)
        if unknown is not None:
            raise TypeError(f"{type(self).__name__}.with_() does not know {unknown}; there are {', '.join(known)}")
        for name, value in changes.items():
            fits, wanted = _KINDS.get(name, (None, ""))
            if fits is not None and not fits(value):
                raise TypeError(f"{name} of a {type(self).__name__} {wanted}, not {value!r}")
        return replace(self, **changes)


@dataclass(frozen=True, eq=False)
class ModelRequest(_Request):
    """A request for one answer of a model.

    Args:
        agent: The name of the agent that asks.
        messages: The system prompt and the conversation up to this turn's answers.
        tools: The tools for the model. A middleware may leave out some; it adds tools with ``Middleware.tools()``.
        llm: The model; None for an agent without one.
        stream: Whether the answer is streamed; False holds it back until it is whole.
        tool_choice: ``"auto"``, ``"required"``, ``"none"`` or the name of a tool; None leaves it to the agent.
        options: Further options of the request, as the model takes them.
        turn: The answers and tool results of this turn, which the agent shows after ``messages``. Empty for a
            ``ReActAgent``, which shows them as text of its own.

    Example:
        >>> request.with_(messages=request.messages[-20:]).messages
    """

    messages: list[ChatMessage]
    tools: Sequence[AsyncBaseTool]
    llm: LLM | None
    stream: bool
    tool_choice: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    turn: list[ChatMessage] = field(default_factory=list[ChatMessage])


@dataclass(frozen=True, eq=False)
class ToolRequest(_Request):
    """A tool call on its way to the tool.

    Args:
        agent: The name of the agent that calls.
        tool: The tool.
        call: The call as the model made it.
        arguments: The arguments to call with. Changed arguments are validated like the model's.
        idempotency_key: The key of the call, the same for each run of the tool for it.

    Example:
        >>> request.with_(arguments={**request.arguments, "limit": 10})
    """

    tool: AsyncBaseTool
    call: ToolCall
    arguments: dict[str, Any]
    idempotency_key: str


CallModel = Callable[[ModelRequest], Awaitable[AgentOutput]]
"""Passes a request on to the next middleware, and in the end to the model."""

CallTool = Callable[[ToolRequest], Awaitable[ToolOutput]]
"""Passes a call on to the next middleware, and in the end to the tool."""


class Middleware(Generic[AgentDepsT]):
    """An object around the work of an agent; subclasses define the methods they need.

    ``around_model`` and ``around_tool`` call ``call_next`` once, again, or not at all; without it their own return
    value is the answer. The first middleware of a list is the outermost, and those of a team are outside those of its
    members. An agent shares its middleware between all runs, so data of a run belong into ``ctx.store``. After a
    restart of a stored run ``around_tool`` is entered again, and ``call_next`` returns the recorded output.
    ``class Audit(Middleware[Deps])`` declares the type of ``ctx.deps``; the agent then needs ``deps_type=Deps``.

    Attributes:
        name: The name in notes of errors; that of the class by default.

    Example:
        >>> class Redact(Middleware):
        ...     async def around_tool(self, ctx, request, call_next):
        ...         output = await call_next(request)
        ...         return output.model_copy(update={"blocks": [TextBlock(text=hide_secrets(output.content))]})
        >>> agent = FunctionAgent(llm=llm, tools=[search], middleware=[Redact()])
    """

    name: ClassVar[str] = "Middleware"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = cls.__name__

    async def before_run(self, ctx: Context[Any, AgentDepsT], message: ChatMessage) -> ChatMessage | Block | None:
        """Look at the user's message at the beginning of a turn, after the guards.

        Args:
            ctx: The run's context.
            message: The message.

        Returns:
            Another message in its place, ``Block(reason)`` to end the turn with that answer, or None.

        Raises:
            Exception: An exception here fails the run.

        Example:
            >>> async def before_run(self, ctx, message):
            ...     return ChatMessage(hide_secrets(message.content))
        """

    async def around_model(
        self,
        ctx: Context[Any, AgentDepsT],  # noqa: ARG002 - for subclasses
        request: ModelRequest,
        call_next: CallModel,
    ) -> AgentOutput:
        """Act around one answer of the model.

        Args:
            ctx: The run's context.
            request: The request.
            call_next: Returns the answer to a request.

        Returns:
            The answer.

        Raises:
            Exception: An exception here fails the run.

        Example:
            >>> async def around_model(self, ctx, request, call_next):
            ...     return await call_next(request.with_(messages=request.messages[-20:]))
        """
        return await call_next(request)

    async def around_tool(
        self,
        ctx: Context[Any, AgentDepsT],  # noqa: ARG002 - for subclasses
        request: ToolRequest,
        call_next: CallTool,
    ) -> ToolOutput:
        """Act around a tool call: inside the hooks, and outside approvals, limits and the record.

        Args:
            ctx: The run's context.
            request: The call.
            call_next: Runs the tool and returns its output. A second time it runs the tool again, with a record of
                its own and the same idempotency key.

        Returns:
            The output.

        Raises:
            Exception: An exception here fails the run.

        Example:
            >>> async def around_tool(self, ctx, request, call_next):
            ...     output = await call_next(request)
            ...     return await call_next(request) if output.is_error else output
        """
        return await call_next(request)

    async def after_run(self, ctx: Context[Any, AgentDepsT], output: AgentOutput) -> AgentOutput | Block | None:
        """Look at the answer at the end of a turn, before the guards and before it is kept.

        The last middleware is first here.

        Args:
            ctx: The run's context.
            output: The answer. The memory keeps the message of the answer that is returned.

        Returns:
            Another answer in its place, ``Block(reason)`` to answer with the reason, or None.

        Raises:
            Exception: An exception here fails the run.

        Example:
            >>> async def after_run(self, ctx, output):
            ...     return Block("Not today.") if "secret" in str(output) else None
        """

    def tools(self) -> Sequence[BaseTool | Callable[..., Any]]:
        """Return tools that are added to those of the agent; called once for each agent.

        Example:
            >>> def tools(self):
            ...     return [read_note, write_note]
        """
        return ()

    def instructions(self) -> Instructions:
        """Return texts, and functions of ``(ctx)``, for the system message; called once for each agent.

        Example:
            >>> def instructions(self):
            ...     return "Read the note before you answer."
        """
        return ()

    @staticmethod
    def of(
        *,
        before_run: Callable[[Context[Any, DepsT], ChatMessage], Awaitable[ChatMessage | Block | None]] | None = None,
        around_model: Callable[[Context[Any, DepsT], ModelRequest, CallModel], Awaitable[AgentOutput]] | None = None,
        around_tool: Callable[[Context[Any, DepsT], ToolRequest, CallTool], Awaitable[ToolOutput]] | None = None,
        after_run: Callable[[Context[Any, DepsT], AgentOutput], Awaitable[AgentOutput | Block | None]] | None = None,
    ) -> "Middleware[DepsT]":
        """Return a middleware of functions.

        Args:
            before_run: The function for the beginning of a turn.
            around_model: The function around an answer.
            around_tool: The function around a tool call.
            after_run: The function for the end of a turn.

        Raises:
            TypeError: No function is given.

        Example:
            >>> agent = FunctionAgent(llm=llm, middleware=[Middleware.of(around_tool=count_calls)])
        """
        given: dict[str, Callable[..., Any] | None] = {
            "before_run": before_run,
            "around_model": around_model,
            "around_tool": around_tool,
            "after_run": after_run,
        }
        functions = {name: function for name, function in given.items() if function is not None}
        if not functions:
            raise TypeError(f"Middleware.of() takes at least one of {', '.join(given)}")
        for point, one in functions.items():
            if not callable(one):
                raise TypeError(f"Middleware.of({point}=...) takes a function, not {one!r}")
        name = "+".join(getattr(one, "__name__", type(one).__name__) for one in functions.values())
        return type(name, (Middleware,), {point: staticmethod(one) for point, one in functions.items()})()


def _check_names(cls: type[Any]) -> None:
    """Refuse a coroutine method with nearly the name of a point: it would never be called."""
    for name in dir(cls):
        if name.startswith("_") or hasattr(Middleware, name) or not iscoroutinefunction(getattr(cls, name)):
            continue
        for meant in get_close_matches(name, POINTS, n=1, cutoff=0.85):
            raise ValueError(
                f"Middleware {cls.__name__} has a method {name}: is {meant} meant? A helper needs another name"
            )


def checked_middleware(given: Any) -> tuple[Middleware[Any], ...]:
    """Return the option ``middleware`` of an agent or team.

    Raises:
        ValueError: It is not a list of middleware objects.
    """
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ValueError(f"middleware is a list of Middleware objects, not {given!r}")
    for place, one in enumerate(given):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if isinstance(one, type):
            raise ValueError(f"middleware[{place}] is the class {one.__name__}: make an object of it")
        if not isinstance(one, Middleware):
            raise ValueError(
                f"middleware[{place}] is not a Middleware but {one!r}: derive its class from Middleware, "
                "or write Middleware.of(around_tool=...) for functions"
            )
        _check_names(cast("type[Any]", type(one)))  # pyright: ignore[reportUnknownArgumentType]
    return tuple(given)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
