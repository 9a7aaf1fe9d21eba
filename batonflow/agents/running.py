"""Runs of an agent or a team: starting one, forking one, and calling one as a tool."""

import asyncio
import copy
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast, overload

from pydantic import BaseModel

from batonflow import agents as kinds
from batonflow.agents import layers
from batonflow.agents.budget import Budget, run_inside
from batonflow.agents.events import AgentOutput, AgentResult, AgentWorkflowStartEvent
from batonflow.agents.handler import AgentHandler
from batonflow.agents.ledger import LEDGER, count_earlier_usage
from batonflow.agents.members import EarlyStopping, Team, check_options, warn_of_misspelt
from batonflow.agents.memory import BaseMemory
from batonflow.agents.prompts import AGENT_AS_TOOL, GOES_ON
from batonflow.instrumentation.logs import logger_named
from batonflow.llms import LLM, ChatMessage, genai
from batonflow.resources import ResourceDefinition
from batonflow.tools import FunctionTool, ToolMetadata, ToolOutput, ToolPolicy
from batonflow.tools.base import DefaultToolFnSchema
from batonflow.user_warnings import warn_of_checkpoints
from batonflow.workflow_core import Context, Workflow, WorkflowHandler
from batonflow.workflow_core.events import Event, StartEvent
from batonflow.workflow_core.options import NotInitialized
from batonflow.workflow_core.stored_runs import check_context
from batonflow.workflow_core.typed import AgentDepsT, OfAgent, OutT

if TYPE_CHECKING:
    from batonflow.agents.instructions import ChoiceOfTools, Instructions
    from batonflow.agents.output_types import TypedOutput
    from batonflow.agents.request_changes import RequestChanges
    from batonflow.agents.sessions.session import Session, SessionInfo
    from batonflow.agents.sessions.starting import IfBusy

__all__ = ["AgentRuns", "AgentTool", "attach", "attach_agents", "known_tools", "refuse_itself", "run_within"]

logger = logger_named("batonflow.agent")

_REQUEST = frozenset({"session", "request_id", "if_busy", "metadata"})

_OF_ONE_RUN = frozenset({"llm", "instructions", "tool_choice"})

_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]+")


def attach(workflow: Workflow, name: str, other: Workflow) -> None:
    """Attach an agent, so that its runs inside steps of ``workflow`` become child runs.

    Args:
        workflow: The workflow with the steps that run it.
        name: The name; a number is added if the name is used for another agent.
        other: The agent or team.
    """
    attached, free, number = workflow.__batonflow__.children, name, 1
    if any(known is other for known in attached.values()):
        return
    while free in attached:
        number += 1
        free = f"{name}-{number}"
    workflow.__batonflow__.attach({free: other})


def attach_agents(workflow: Workflow, tools: Sequence[Any]) -> None:
    """Attach the agents among the tools of a workflow. This includes the known tools of its toolsets."""
    for tool in tools:
        if isinstance(tool, AgentTool):
            attach(workflow, tool.metadata.get_name(), tool.agent)
        elif known := getattr(tool, "known_tools", None):
            attach_agents(workflow, known)


def refuse_itself(agent: Any, tools: Any) -> None:
    """Refuse tools through which an agent calls itself, directly or through other agents.

    Raises:
        ValueError: The agent calls itself; the message names the agents in between.
    """
    left: list[tuple[Any, tuple[str, ...]]] = [(tool, ()) for tool in _agent_tools(tools)]
    seen: set[int] = set()
    while left:
        tool, way = left.pop()
        way = (*way, tool.metadata.get_name())
        for other in (tool.agent, *getattr(tool.agent, "agents", {}).values()):
            if other is agent:
                raise ValueError(
                    f"Agent {agent.name} would be its own tool, through {' -> '.join(way)}: "
                    "leave that tool out, or give it another agent"
                )
            if id(other) not in seen:
                seen.add(id(other))
                left += [(inner, way) for inner in _agent_tools(getattr(other, "tools", ()))]


def _agent_tools(tools: Any) -> list["AgentTool"]:
    return [tool for tool in known_tools(tools) if isinstance(tool, AgentTool)]


def known_tools(tools: Any) -> list[Any]:
    """Return the tools of a list with toolsets, as far as they are known without a run."""
    listed = cast("Iterable[Any]", tools) if isinstance(tools, Iterable) else ()
    return [known for tool in listed for known in getattr(tool, "known_tools", (tool,))]


def _with_inner_agents(agent: Any) -> list[Any]:
    """Return an agent or team with its members and the agents among its tools."""
    found: list[Any] = []
    left = [agent]
    while left:
        one = left.pop()
        if not any(one is known for known in found):
            found.append(one)
            left += [*getattr(one, "agents", {}).values(), *one.__batonflow__.children.values()]
    return found


async def run_within(agent: Any, *args: Any, **options: Any) -> AgentOutput:
    """Run an agent or a team inside a step of another agent, which is charged for it.

    Args:
        agent: The agent or team.
        args: The arguments of ``run``.
        options: The keyword arguments of ``run``.
    """
    with run_inside() as charge:
        handler = agent.run(*args, **options)
        store = handler.ctx.store
        try:
            # Usage from before an interruption, which has not been counted here.
            count_earlier_usage(await store.get("usage", default=None) or {})
            charge(await store.get(LEDGER, default=None) or {})
            return await handler
        except asyncio.CancelledError:
            if not _is_over_around(handler.ctx):
                # Only this call was given up, so its answer is no longer needed.
                await handler.cancel_run()
            raise


def _is_over_around(ctx: Context[Any]) -> bool:
    """Return whether a run around the run of ``ctx`` is over, which also ends this run."""
    around = None if ctx.run is None or ctx.run.family is None else ctx.run.family.parent
    while around is not None and not around.run.ending.over:
        around = around.parent
    return around is not None


def _declares(agent: Workflow[Any], name: str) -> bool:
    """Return whether the start event of an agent's class has a field of this name."""
    return name in agent.__batonflow__.steps.start_event_class.model_fields


def _start_event_class(agent: Workflow[Any]) -> type[StartEvent]:
    """Return the class of the start event that the arguments of ``run`` make."""
    declared = agent.__batonflow__.steps.start_event_class
    return declared if issubclass(declared, AgentWorkflowStartEvent) else AgentWorkflowStartEvent


def _debug_option(agent: Workflow[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Take ``debug=`` out of the arguments of a run; a field of the start event keeps its value."""
    given = kwargs.get("debug")
    if given is None or _declares(agent, "debug"):
        return {}
    if not isinstance(given, bool):
        raise ValueError(f"debug is True or False, not {given!r}")
    return {"debug": kwargs.pop("debug")}


def _own_options(agent: Workflow[Any], kwargs: dict[str, Any]) -> Any:
    """Take the options of one run out of its arguments; fields of the start event keep their values."""
    own = {name: kwargs.pop(name) for name in _OF_ONE_RUN & kwargs.keys() if not _declares(agent, name)}
    return layers.options_of_run(agent, own)


class AgentTool(FunctionTool):
    """A tool that calls an agent or a team. The run is its own, without the caller's conversation.

    The run is a child run of the caller's: its events are in the caller's stream, it is cancelled with it, people are
    asked through it, and its usage counts there, too.

    Args:
        agent: The agent or team.
        name: The name for models; characters that vendors do not allow become ``_``.
        description: The description for models.
        deps: Makes the dependencies of the agent from the caller's context.
    """

    def __init__(
        self,
        agent: "AgentRuns[Any, Any]",
        name: str,
        description: str,
        deps: Callable[[Context[Any]], Any] | None = None,
    ) -> None:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"as_tool() takes the name of the tool, not {name!r}")
        if deps is not None and not callable(deps):
            raise ValueError(f"as_tool(deps=...) is a function of (ctx) that makes the deps of the agent, not {deps!r}")
        name = _NOT_ALLOWED.sub("_", name)

        async def ask(input: str) -> ToolOutput:  # noqa: A002 - the name that models know from other tools
            needs = deps is not None or agent.__batonflow__.deps is not None
            given = {"deps": await layers.deps_of_tool(agent, deps)} if needs else {}
            output = await run_within(agent, input, **given)
            typed = agent.typed_output
            if typed is not None and output.blocked is None:
                text, value = typed.as_json(output)
                return ToolOutput(tool_name=name, content=text, raw_input={"input": input}, raw_output=value)
            return ToolOutput(
                tool_name=name, content=str(output) or "(no text)", raw_input={"input": input}, raw_output=str(output)
            )

        metadata = ToolMetadata(
            description=AGENT_AS_TOOL.format(description=description), name=name, fn_schema=DefaultToolFnSchema
        )
        # The run continues where it stopped, so a repeated call does not repeat work.
        super().__init__(async_fn=ask, metadata=metadata, policy=ToolPolicy(idempotent=True))
        self.agent = agent


class AgentRuns(OfAgent[AgentDepsT, OutT], Workflow[AgentResult[OutT]]):
    """A workflow of agents, as a program runs it."""

    name: str
    description: str
    if TYPE_CHECKING:
        typed_output: TypedOutput | None
    else:
        typed_output = None

    __batonflow_state__: BaseModel | None = None  # the typed state at the beginning of a run
    __batonflow_handler__: ClassVar[type[WorkflowHandler]] = AgentHandler
    if TYPE_CHECKING:
        __batonflow_team__: Team

        async def recover(  # noqa: D102  # pyright: ignore[reportIncompatibleMethodOverride] - lists are invariant
            self,
            limit: int = 10_000,
            *,
            skip: Collection[str] = (),
            queues: Sequence[str] | None = None,
            deps: Any = None,
        ) -> list[AgentHandler[OutT]]: ...
    else:
        __batonflow_team__ = NotInitialized()

    def __batonflow_resources__(self) -> Iterable[tuple[str, list[ResourceDefinition]]]:
        tools = [one for one in known_tools(self.__batonflow_team__.all_tools()) if isinstance(one, FunctionTool)]
        return [(f"In tool '{tool.metadata.get_name()}'", tool.resources) for tool in tools if tool.resources]

    def __batonflow_view__(self, store: Any, wanted: Any) -> Any:
        """Return a view on the typed state in the store of a run, or None for another type."""
        return kinds.view_of(store, wanted)

    def __batonflow_agent__(self, ctx: Context[Any]) -> Any:
        return layers.acting_agent(self, ctx)

    def __batonflow_attach__(self, tools: Sequence[Any]) -> None:
        attach_agents(self, tools)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leave the toolsets of this agent or team, of its members and of agents among its tools.

        A later run enters them again. ``async with agent:`` does the same at its end.

        Raises:
            Exception: A toolset could not be left.

        Example:
            >>> async with FunctionAgent(llm=llm, tools=[MCPTools("uvx mcp-server-time")]) as agent:
            ...     print(await agent.run("What time is it?"))
        """
        await layers.leave_toolsets(_with_inner_agents(self))

    def trace_tags(self) -> dict[str, Any]:
        """Return the tags for the span of a run."""
        return {genai.OPERATION: "invoke_agent", genai.AGENT_NAME: self.name, genai.AGENT_DESCRIPTION: self.description}

    def as_tool(
        self,
        name: str | None = None,
        description: str | None = None,
        *,
        deps: Callable[[Context[Any]], Any] | None = None,
    ) -> AgentTool:
        """Return this agent or team as a tool of another agent. It works in its own run, inside the caller's.

        Args:
            name: The tool's name for models; the agent's name when left out.
            description: The tool's description for models; the agent's description when left out.
            deps: Makes the dependencies of the agent from the caller's context; by default it gets those of the caller.

        Example:
            >>> editor = FunctionAgent(name="editor", llm=llm, tools=[researcher.as_tool()])
        """
        return AgentTool(self, name or self.name, description or self.description, deps)

    def speaks_in(self, path: str) -> bool:
        """Return whether text of the inner run at ``path`` counts as its own. Text of tools does not."""
        return not path

    if TYPE_CHECKING:  # for checkers; the method of workflows calls run

        @overload
        def run_sync(
            self: "AgentRuns[None, OutT]",
            user_msg: str | ChatMessage | Context[Any] | None = None,
            chat_history: list[ChatMessage] | StartEvent | None = None,
            memory: BaseMemory | None = None,
            ctx: Context[Any] | None = None,
            max_iterations: int | None = None,
            early_stopping_method: EarlyStopping | None = None,
            start_event: StartEvent | None = None,
            budget: Budget | None = None,
            *,
            deps: None = None,
            session: str | None = None,
            request_id: str | None = None,
            if_busy: "IfBusy" = "raise",
            metadata: Mapping[str, str] | None = None,
            llm: LLM | str | None = None,
            instructions: "Instructions[Any] | None" = None,
            tool_choice: "ChoiceOfTools[Any] | None" = None,
            **kwargs: Any,
        ) -> AgentResult[OutT]: ...
        @overload
        def run_sync(
            self,
            user_msg: str | ChatMessage | Context[Any] | None = None,
            chat_history: list[ChatMessage] | StartEvent | None = None,
            memory: BaseMemory | None = None,
            ctx: Context[Any] | None = None,
            max_iterations: int | None = None,
            early_stopping_method: EarlyStopping | None = None,
            start_event: StartEvent | None = None,
            budget: Budget | None = None,
            *,
            deps: AgentDepsT | None,
            session: str | None = None,
            request_id: str | None = None,
            if_busy: "IfBusy" = "raise",
            metadata: Mapping[str, str] | None = None,
            llm: LLM | str | None = None,
            instructions: "Instructions[AgentDepsT] | None" = None,
            tool_choice: "ChoiceOfTools[AgentDepsT] | None" = None,
            **kwargs: Any,
        ) -> AgentResult[OutT]: ...
        def run_sync(self, *args: Any, **kwargs: Any) -> Any:
            """Run to the end and return the result, as ``run_sync`` of workflows."""

    @overload
    def run(
        self: "AgentRuns[None, OutT]",
        user_msg: str | ChatMessage | Context[Any] | None = None,
        chat_history: list[ChatMessage] | StartEvent | None = None,
        memory: BaseMemory | None = None,
        ctx: Context[Any] | None = None,
        max_iterations: int | None = None,
        early_stopping_method: EarlyStopping | None = None,
        start_event: StartEvent | None = None,
        budget: Budget | None = None,
        *,
        deps: None = None,
        session: str | None = None,
        request_id: str | None = None,
        if_busy: "IfBusy" = "raise",
        metadata: Mapping[str, str] | None = None,
        llm: LLM | str | None = None,
        instructions: "Instructions[Any] | None" = None,
        tool_choice: "ChoiceOfTools[Any] | None" = None,
        **kwargs: Any,
    ) -> AgentHandler[OutT]: ...
    @overload
    def run(
        self,
        user_msg: str | ChatMessage | Context[Any] | None = None,
        chat_history: list[ChatMessage] | StartEvent | None = None,
        memory: BaseMemory | None = None,
        ctx: Context[Any] | None = None,
        max_iterations: int | None = None,
        early_stopping_method: EarlyStopping | None = None,
        start_event: StartEvent | None = None,
        budget: Budget | None = None,
        *,
        deps: AgentDepsT | None,
        session: str | None = None,
        request_id: str | None = None,
        if_busy: "IfBusy" = "raise",
        metadata: Mapping[str, str] | None = None,
        llm: LLM | str | None = None,
        instructions: "Instructions[AgentDepsT] | None" = None,
        tool_choice: "ChoiceOfTools[AgentDepsT] | None" = None,
        **kwargs: Any,
    ) -> AgentHandler[OutT]: ...
    def run(  # pyright: ignore[reportIncompatibleMethodOverride] - an agent's own positional arguments
        self,
        user_msg: str | ChatMessage | Context[Any] | None = None,
        chat_history: list[ChatMessage] | StartEvent | None = None,
        memory: BaseMemory | None = None,
        ctx: Context[Any] | None = None,
        max_iterations: int | None = None,
        early_stopping_method: EarlyStopping | None = None,
        start_event: StartEvent | None = None,
        budget: Budget | None = None,
        **kwargs: Any,
    ) -> AgentHandler[OutT]:
        """Start a run and return its handler.

        Args:
            user_msg: The user's message. A Context here is taken as ``ctx``.
            chat_history: The conversation before it.
            memory: Keeps the conversation; one given here replaces that of ``ctx``.
            ctx: Carries memory and state from an earlier run, or a snapshot to go on with. A cancelled run goes on
                without a message; a message begins a turn of its own.
            max_iterations: The number of answers the models may give, 20 by default.
            early_stopping_method: The end after that: ``"force"`` an error, or ``"generate"`` an answer.
            start_event: The event to start with, instead of the arguments before.
            budget: The limits of this run, beside the limits of agents and team.
            kwargs: ``llm``, a model or its name for all agents of this run; ``instructions`` after the instructions of
                the agents; ``tool_choice`` in the place of theirs;
                ``run_id``, ``debug``; ``deps``, the dependencies of the run; ``state``, a model or an instance of
                it, instead of the agent's; ``session``, the conversation to which the run adds a turn, and ``if_busy``
                for a session with another turn; ``request_id``: a known request gives its recorded result;
                ``metadata``, texts to find the run by; further values for the start event.

        Raises:
            TypeError: ``ctx`` is not a Context, or ``deps`` is not an instance of ``deps_type``.
            DepsMissingError: The agent needs ``deps``.
            ValueError: Another argument has a value that it cannot have; the message names it.

        Example:
            >>> handler = agent.run("What is 2 + 40?")
            >>> print(await handler)
        """
        attach_agents(self, self.__batonflow_team__.all_tools())  # some are put there after construction
        check_options(max_iterations, early_stopping_method, budget)
        of_run = None if _OF_ONE_RUN.isdisjoint(kwargs) else _own_options(self, kwargs)
        if kwargs:
            warn_of_misspelt(kwargs, type(self).__name__)
            warn_of_checkpoints(type(self), kwargs)
        if isinstance(user_msg, Context):
            ctx, user_msg = user_msg, None
            if isinstance(chat_history, StartEvent):
                start_event, chat_history = chat_history, None
        check_context(ctx)
        request = None
        if not _REQUEST.isdisjoint(kwargs):
            request = kinds.take_request(self, kwargs, {"ctx": ctx, "memory": memory, "chat_history": chat_history})
        deps = None if "deps" in kwargs and _declares(self, "deps") else kwargs.pop("deps", None)
        if deps is not None or self.__batonflow__.deps is not None:
            ctx = layers.context_with(self, ctx, deps)
        if "state" in kwargs and not _declares(self, "state"):
            kwargs["state"] = kinds.state_of_run(self, kwargs["state"])
        given = {
            "user_msg": user_msg,
            "chat_history": chat_history,
            "memory": memory,
            "max_iterations": max_iterations,
            "early_stopping_method": early_stopping_method,
            "budget": budget,
        }
        given = {name: value for name, value in given.items() if value is not None}
        options = {name: kwargs.pop(name) for name in ("run_id", "stepwise") if name in kwargs}
        options |= _debug_option(self, kwargs)
        # Before the context is touched, as the event may refuse its values.
        begins = _start_event_class(self)(**given, **kwargs) if start_event is None else start_event
        if of_run is not None:
            begins = of_run.recorded_in(begins)
            start_event = None if start_event is None else begins
        if ctx is not None and (start_event is not None or user_msg is not None or chat_history):
            ctx.leave_cancelled_run()
            layers.forget_changes(ctx)
        if ctx is not None and ctx.is_resumable:
            if given:
                logger.warning(GOES_ON.format(names=", ".join(given)))
        elif start_event is None:
            start_event, kwargs = begins, {}
        if request is None:
            handler = super().run(ctx=ctx, start_event=start_event, **options, **kwargs)
        else:
            handler = kinds.start_request(self, request, ctx, start_event, options)
        if of_run is not None:
            of_run.give_to(handler)
        return cast("AgentHandler[OutT]", handler)

    def session(self, name: str) -> "Session[AgentDepsT, OutT]":
        """Return the session with a name, which need not exist yet.

        Args:
            name: 1 to 180 characters of ``A-Za-z0-9_.:/-``.

        Raises:
            ValueError: The name is not valid.

        Example:
            >>> chat = agent.session("ann")
            >>> answer = await chat.run("And tomorrow?")
        """
        return kinds.Session(self, name)

    async def sessions(self, prefix: str = "", limit: int = 100) -> "list[SessionInfo]":
        """Return the sessions of this agent in the order of their names.

        Args:
            prefix: The beginning of their names.
            limit: The maximum number.

        Raises:
            StoreError: The store does not keep sessions, or it fails.
        """
        return await kinds.list_sessions(self, prefix, limit)

    async def __batonflow_turn__(self, run: Any) -> Any:
        """Return the end of the session turn that a stored run is. The store calls it for a run it takes up."""
        return await kinds.end_of_turn_of(self, run)

    def resume(
        self,
        run_id: str,
        *,
        deps: Any = None,
        llm: LLM | str | None = None,
        instructions: "Instructions[Any] | None" = None,
        tool_choice: "ChoiceOfTools[Any] | None" = None,
    ) -> AgentHandler[OutT]:
        """Resume a stored run, and return its handler at once; see ``Workflow.resume``.

        Args:
            run_id: The run; the handler of a finished run has its recorded result.
            deps: The dependencies of the run, which no store keeps.
            llm: The model of the run, in the place of that of ``run(llm=...)``. A name is recorded with the run. An
                object is given anew here; otherwise the run goes on with the agent's own model and a warning.
            instructions: The same for ``run(instructions=...)``. Texts are recorded, also those that functions have
                returned.
            tool_choice: The same for ``run(tool_choice=...)``. Texts are recorded.

        Raises:
            WorkflowRuntimeError: The agent has no store.
            TypeError: ``deps`` is not of the declared type.
            ValueError: An option has a value that it cannot have.

        Example:
            >>> print(await agent.resume("order-7", llm=my_model))
        """
        given = {"llm": llm, "instructions": instructions, "tool_choice": tool_choice}
        of_run = layers.options_of_run(self, given) if any(one is not None for one in given.values()) else None
        handler = super().resume(run_id, deps=deps)
        if of_run is not None:
            of_run.give_to(handler)
        return cast("AgentHandler[OutT]", handler)

    def fork(  # pyright: ignore[reportIncompatibleMethodOverride] - it takes a model too
        self,
        run_id: str,
        at: int,
        *,
        state: Mapping[str, Any] | None = None,
        event: Event | None = None,
        new_id: str | None = None,
        llm: LLM | str | None = None,
        changes: "RequestChanges | None" = None,
        deps: Any = None,
    ) -> AgentHandler[OutT]:
        """Begin a run that shares the beginning of another one, up to a commit; see ``Workflow.fork``.

        Args:
            run_id: The run to branch off from.
            at: The last commit that both have.
            state: Values to put into the state.
            event: Sent to the new run.
            new_id: Id of the new run.
            llm: The model of all agents from here on, in the new run only. A name is recorded with the run.
            changes: Changes of the requests to models, and a question before each tool call; in the new run only.
            deps: The dependencies of the new run.

        Example:
            >>> handler = team.fork("tides-1", at=12, llm="anthropic:claude-sonnet-5")
        """
        of_run = None if llm is None else layers.options_of_run(self, {"llm": llm})
        model = None if of_run is None else of_run.objects["llm"]
        agent = self if model is None else self.asking(model)
        name = llm if isinstance(llm, str) else None
        if changes is not None or name is not None:
            given: Any = changes or kinds.RequestChanges()
            if not isinstance(given, kinds.RequestChanges):
                raise TypeError(f"changes is a RequestChanges, not {given!r}")
            state = {**(state or {}), **given.edits(name)}
        forked = super(AgentRuns, agent).fork(run_id, at, state=state, event=event, new_id=new_id, deps=deps)
        if of_run is not None:
            of_run.give_to(forked)
        return cast("AgentHandler[OutT]", forked)

    def asking(self, llm: LLM) -> Self:
        """Return the same agent or team with another model."""
        other = copy.copy(self)
        cast("Any", other).llm = llm
        return other
