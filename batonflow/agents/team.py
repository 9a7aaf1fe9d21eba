"""AgentWorkflow: several agents that hand over to one another."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from copy import copy
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, cast, get_args, overload

from pydantic import BaseModel

from batonflow import agents as kinds
from batonflow.agents import layers
from batonflow.agents.base import WORKFLOW_OPTIONS, BaseWorkflowAgent
from batonflow.agents.budget import Budget, BudgetExceededError
from batonflow.agents.events import AgentOutput, AgentWorkflowStartEvent, ToolCallResult
from batonflow.agents.function import FunctionAgent
from batonflow.agents.handoff import Carried, HandoffTool, meant, refusal, targets
from batonflow.agents.ledger import count_usage, limits_for, within_time
from batonflow.agents.loop import AgentLoop
from batonflow.agents.members import (
    HANDOFF_TOOL,
    CallTool,
    EarlyStopping,
    LoopSettings,
    Member,
    Team,
    check_memory,
    check_options,
    check_output,
    check_prompt,
    no_option,
    warn_of_shared_name,
)
from batonflow.agents.memory import BaseMemory, ChatMemoryBuffer
from batonflow.agents.memory.turns import is_question, observation, text_of
from batonflow.agents.prompts import (
    HANDOFF_CARRIED,
    HANDOFF_CARRIED_SUMMARY,
    HANDOFF_DONE,
    HANDOFF_NOT_CALLED,
    HANDOFF_PROMPT,
    HANDOFF_SUMMARY,
    STATE_PROMPT,
)
from batonflow.agents.running import attach, attach_agents, run_within
from batonflow.agents.turn import Turn
from batonflow.llms import LLM, ChatMessage, ChatResponse, MessageRole, Settings, TextBlock, genai
from batonflow.llms.prompts import BasePromptTemplate, PromptMixin, PromptTemplate
from batonflow.llms.settings import llm_from
from batonflow.tools import AsyncBaseTool, BaseTool, ToolOutput
from batonflow.tools.policy import ToolErrors
from batonflow.user_warnings import warn_user
from batonflow.values.types import is_whole
from batonflow.workflow_core import Context
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.options import NotInitialized
from batonflow.workflow_core.routing import steps_of
from batonflow.workflow_core.typed import AgentDepsT, OutT

if TYPE_CHECKING:
    from typing_extensions import TypeForm, Unpack

    from batonflow.agents.middleware import Middleware
    from batonflow.agents.options import BT, DT, T, TeamOptions

__all__ = ["AgentWorkflow"]

_TEAM_NAME = "Team"
_TEAM_DESCRIPTION = "A team of agents that perform a task together"

_DEFAULTS = BaseWorkflowAgent.model_fields
_description = attrgetter("description")
_OPTIONS = (
    "agents", "initial_state", "root_agent", "handoff_prompt", "handoff_output_prompt", "state_prompt", "output_cls",
    "output_type", "output_retries",
    "structured_output_fn", "early_stopping_method", "max_handoffs", "budget", "handoff_carries", "middleware",
    "memory", "deps_type", "deps_for", "tool_errors", "state", "name", "description", *WORKFLOW_OPTIONS,
)  # fmt: skip


_STEP_OF: dict[type[Any], str] = {
    spec.config.accepted_events[0]: name for name, spec in steps_of(AgentLoop).table.steps.items()
}
_ANY_STEP: Mapping[str, Mapping[str, Any]] = {name: {} for name in _STEP_OF.values()}


class TeamMember(BaseWorkflowAgent):
    """A team in the place of an agent. The team gets its messages, and its answer is the agent's.

    Args:
        team: The team.
    """

    team: Any

    @classmethod
    def of(cls, team: "AgentWorkflow[Any, Any]") -> Self:
        """The member that stands for ``team``, under its name and description."""
        return cls(name=team.name, description=team.description, can_handoff_to=[], team=team)

    async def take_step(
        self,
        ctx: Context[Any],
        llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],  # noqa: ARG002 - part of the contract
        memory: BaseMemory,  # noqa: ARG002 - part of the contract
    ) -> AgentOutput:
        """Return the team's answer to the conversation that the member is shown."""
        shown = list(llm_input)
        asked = await ctx.store.get("user_msg_str", default="")
        asking = [n for n, one in enumerate(shown) if one.role == MessageRole.USER and asked in (one.content or "")]
        for number in range(asking[-1] + 1 if asking else 0, len(shown)):
            # A message after the question under the user's name is an observation, not another question.
            if shown[number].role == MessageRole.USER and asking:
                shown[number] = observation(shown[number].content or "")
        output = await run_within(self.team, chat_history=shown)
        answer = AgentOutput(
            response=output.response,
            raw=output.raw,
            structured_response=output.structured_response,
            current_agent_name=self.name,
        )
        more = dict(output.to_dict())  # the reason of an answer that is not whole, or not the team's own
        if more.get("blocked") == "structured":
            del more["blocked"]  # only the inner team's form was left out
        answer.to_dict().update(more)
        return answer

    async def answer_now(self, ctx: Context[Any], messages: list[ChatMessage]) -> ChatResponse:
        """Return the answer of the agent that begins in the team."""
        return await self.team.agents[self.team.root_agent].answer_now(ctx, messages)

    def llm_or_none(self) -> LLM | None:
        """The model of the agent with which the team begins."""
        return self.team.agents[self.team.root_agent].llm_or_none()

    async def handle_tool_call_results(
        self, ctx: Context[Any], results: list[ToolCallResult], memory: BaseMemory
    ) -> None:
        """A team calls its tools itself."""

    async def finalize(self, ctx: Context[Any], output: AgentOutput, memory: BaseMemory) -> AgentOutput:  # noqa: ARG002
        """Keep the answer, if there is one."""
        if _says_something(output.response):
            await memory.aput(output.response)
        return output


class AgentWorkflow(AgentLoop[AgentDepsT, OutT], PromptMixin):
    """A team of agents. One begins, each may hand the task over to another one, and all see one conversation.

    Args:
        agents: The members, each with a name and a description of its own; a team among them works on the conversation
            in a run of its own, and its answer is the member's.
        initial_state: State that the models are shown and tools may change, under the key ``state``.
        state: The same as a pydantic model or an instance of it; by default that of the members.
        root_agent: The name of the member that begins; may be left out for a team of one.
        handoff_prompt: The description of the handoff tool for models; has ``{agent_info}``.
        handoff_output_prompt: The text of a handoff for the next agent; has ``{to_agent}`` and ``{reason}``.
        state_prompt: How the state is shown; has ``{state}`` and ``{msg}``.
        output_type: The type of the output, whichever agent answers; see ``BaseWorkflowAgent``.
        output_retries: How often an answer that does not fit ``output_type`` goes back to the model.
        output_cls: A model of the structured answer; wins over that of the agents.
        structured_output_fn: Makes the structured answer from the messages.
        early_stopping_method: After the last allowed step: ``"force"`` an error, or ``"generate"`` an answer.
        max_handoffs: The number of handoffs in a run; None for no limit.
        handoff_carries: The knowledge of the next agent: the ``"full"`` conversation; or the task, the reason and its
            own messages (``"own"``), with a ``"summary"`` that the agent before makes with its model.
        budget: The limits of a run, whichever agent acts.
        middleware: Objects around the work of all members, outside their own middleware; see ``Middleware``.
        memory: The pattern of the memory of each session, and of each run that is given no memory; see agents.
        deps_type: The class of ``deps`` of a run; by default that of the members.
        deps_for: Makes ``deps`` for a run that was given no deps, as on agents.
        tool_errors: As for agents, for all members; the stricter setting of team and member holds.
        name: Names the team where it is a tool or a member of another team.
        description: The purpose of the team there.
        timeout: Seconds for a run; None for as long as it takes.
        options: Options of ``Workflow``: ``verbose``, ``store`` and so on.

    Raises:
        ValueError: No agents, two with one name, a name or description that says nothing, a root that is not there,
            or a prompt that lacks a placeholder.

    Example:
        >>> team = AgentWorkflow(agents=[researcher, writer], root_agent="researcher")
        >>> print(await team.run("Write about tides."))
    """

    if not TYPE_CHECKING:
        agents = NotInitialized()

    @overload
    def __init__(
        self: "AgentWorkflow[DT, str]",
        agents: "Sequence[AgentLoop[DT, Any]]",
        initial_state: dict[str, Any] | None = None,
        root_agent: str | None = None,
        *,
        deps_type: "type[DT] | None" = None,
        output_type: None = None,
        output_cls: None = None,
        **options: "Unpack[TeamOptions[DT]]",
    ) -> None: ...
    @overload
    def __init__(
        self: "AgentWorkflow[DT, BT]",
        agents: "Sequence[AgentLoop[DT, Any]]",
        initial_state: dict[str, Any] | None = None,
        root_agent: str | None = None,
        *,
        deps_type: "type[DT] | None" = None,
        output_type: None = None,
        output_cls: "type[BT]",
        **options: "Unpack[TeamOptions[DT]]",
    ) -> None: ...
    @overload
    def __init__(
        self: "AgentWorkflow[DT, T]",
        agents: "Sequence[AgentLoop[DT, Any]]",
        initial_state: dict[str, Any] | None = None,
        root_agent: str | None = None,
        *,
        deps_type: "type[DT] | None" = None,
        output_type: "TypeForm[T]",
        output_cls: None = None,
        **options: "Unpack[TeamOptions[DT]]",
    ) -> None: ...
    @overload
    def __init__(
        self: "AgentWorkflow[DT, T]",
        agents: "Sequence[AgentLoop[DT, Any]]",
        initial_state: dict[str, Any] | None = None,
        root_agent: str | None = None,
        *,
        deps_type: "type[DT] | None" = None,
        output_type: "Callable[..., Awaitable[T]]",
        output_cls: None = None,
        **options: "Unpack[TeamOptions[DT]]",
    ) -> None: ...
    @overload
    def __init__(
        self: "AgentWorkflow[DT, T]",
        agents: "Sequence[AgentLoop[DT, Any]]",
        initial_state: dict[str, Any] | None = None,
        root_agent: str | None = None,
        *,
        deps_type: "type[DT] | None" = None,
        output_type: "Callable[..., T]",
        output_cls: None = None,
        **options: "Unpack[TeamOptions[DT]]",
    ) -> None: ...
    @overload
    def __init__(
        self: "AgentWorkflow[DT, T]",
        agents: "Sequence[AgentLoop[DT, Any]]",
        initial_state: dict[str, Any] | None = None,
        root_agent: str | None = None,
        *,
        deps_type: "type[DT] | None" = None,
        output_type: "Sequence[type[T] | Callable[..., Awaitable[T]] | Callable[..., T]]",
        output_cls: None = None,
        **options: "Unpack[TeamOptions[DT]]",
    ) -> None: ...
    @overload
    def __init__(
        self: "AgentWorkflow[DT, Any]",
        agents: "Sequence[AgentLoop[DT, Any]]",
        initial_state: dict[str, Any] | None = None,
        root_agent: str | None = None,
        *,
        deps_type: "type[DT] | None" = None,
        output_type: Sequence[Any],
        output_cls: None = None,
        **options: "Unpack[TeamOptions[DT]]",
    ) -> None: ...
    def __init__(
        self,
        agents: Sequence[AgentLoop[Any, Any]],
        initial_state: dict[str, Any] | None = None,
        root_agent: str | None = None,
        handoff_prompt: str | BasePromptTemplate | None = None,
        handoff_output_prompt: str | BasePromptTemplate | None = None,
        state_prompt: str | BasePromptTemplate | None = None,
        timeout: float | None = None,
        output_cls: type[BaseModel] | None = None,
        structured_output_fn: Callable[[list[ChatMessage]], Any] | None = None,
        early_stopping_method: EarlyStopping = "force",
        max_handoffs: int | None = None,
        budget: Budget | None = None,
        handoff_carries: Carried = "full",
        middleware: "Sequence[Middleware[Any]]" = (),
        memory: BaseMemory | None = None,
        deps_type: Any = None,
        deps_for: Any = None,
        tool_errors: ToolErrors = "tell",
        name: str = _TEAM_NAME,
        description: str = _TEAM_DESCRIPTION,
        output_type: Any = None,
        output_retries: int = 1,
        state: type[BaseModel] | BaseModel | None = None,
        **options: Any,
    ) -> None:
        unknown = next((option for option in options if option not in WORKFLOW_OPTIONS), None)
        if unknown is not None:
            raise TypeError(no_option("AgentWorkflow", unknown, _OPTIONS))
        super().__init__(timeout=timeout, **options)
        check_options(None, early_stopping_method, budget)
        if max_handoffs is not None and not (type(max_handoffs) is int and max_handoffs >= 0):
            raise ValueError(f"max_handoffs is a whole number from 0 on, or None for no limit, not {max_handoffs!r}")
        if handoff_carries not in get_args(Carried):
            raise ValueError(f"handoff_carries is one of {', '.join(get_args(Carried))}, not {handoff_carries!r}")
        check_output(initial_state, output_cls, structured_output_fn)
        if not is_whole(output_retries):
            raise ValueError(f"output_retries is a whole number from 0 on, not {output_retries!r}")
        if tool_errors not in get_args(ToolErrors):
            raise ValueError(f"tool_errors is one of {', '.join(get_args(ToolErrors))}, not {tool_errors!r}")
        for option, value in (("name", name), ("description", description)):
            if not isinstance(value, str) or not value.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError(f"{option} is a text that says something, not {value!r}")
        self.name, self.description = name, description
        self.agents = _named(_members(agents))
        _warn_of_strangers(self.agents)
        self.handoff_carries: Carried = handoff_carries
        for agent in self.agents.values():
            attach_agents(self, agent.tools)
            if isinstance(agent, TeamMember):
                attach(self, agent.name, agent.team)
        self.root_agent = _root(self.agents, root_agent)
        self.initial_state = initial_state or {}
        if state is not None or any(agent.__batonflow_state__ is not None for agent in self.agents.values()):
            self.__batonflow_state__ = kinds.state_of_team(state, initial_state, self.agents.values())
        self.handoff_prompt = _prompt("handoff_prompt", handoff_prompt or HANDOFF_PROMPT, "agent_info")
        self.handoff_output_prompt = _prompt(
            "handoff_output_prompt", handoff_output_prompt or HANDOFF_DONE, "to_agent", "reason"
        )
        self.state_prompt = _prompt("state_prompt", state_prompt or STATE_PROMPT, "state", "msg")
        self.output_cls, self.output_type = output_cls, output_type
        if output_type is not None:
            self.typed_output = kinds.declared_output(output_type, output_cls, output_retries)
        self.structured_output_fn = None if output_cls is not None else structured_output_fn
        self.early_stopping_method: EarlyStopping = early_stopping_method
        self.max_handoffs = max_handoffs
        self.budget, self.memory = budget, check_memory(memory)
        self.tool_errors: ToolErrors = tool_errors
        self.middleware = layers.checked_middleware(middleware) if middleware else ()
        self.__batonflow_team__ = TeamOfMembers(self)
        self.__batonflow__.deps = layers.source_of_team(deps_type, deps_for, self.agents.values(), self.middleware)
        _take_in(self)
        warn_of_shared_name(self, f"{name} of {', '.join(self.agents)}")

    @overload
    @classmethod
    def from_tools_or_functions(
        cls,
        tools_or_functions: Sequence[BaseTool | Callable[..., Any]],
        llm: LLM | str | None = None,
        system_prompt: str | None = None,
        state_prompt: str | BasePromptTemplate | None = None,
        initial_state: dict[str, Any] | None = None,
        output_cls: None = None,
        structured_output_fn: Callable[[list[ChatMessage]], Any] | None = None,
        timeout: float | None = None,
        verbose: bool = False,
    ) -> Self: ...
    @overload
    @classmethod
    def from_tools_or_functions(
        cls,
        tools_or_functions: Sequence[BaseTool | Callable[..., Any]],
        llm: LLM | str | None = None,
        system_prompt: str | None = None,
        state_prompt: str | BasePromptTemplate | None = None,
        initial_state: dict[str, Any] | None = None,
        *,
        output_cls: "type[BT]",
        structured_output_fn: Callable[[list[ChatMessage]], Any] | None = None,
        timeout: float | None = None,
        verbose: bool = False,
    ) -> "AgentWorkflow[object, BT]": ...
    @classmethod
    def from_tools_or_functions(
        cls,
        tools_or_functions: Sequence[BaseTool | Callable[..., Any]],
        llm: LLM | str | None = None,
        system_prompt: str | None = None,
        state_prompt: str | BasePromptTemplate | None = None,
        initial_state: dict[str, Any] | None = None,
        output_cls: type[BaseModel] | None = None,
        structured_output_fn: Callable[[list[ChatMessage]], Any] | None = None,
        timeout: float | None = None,
        verbose: bool = False,
    ) -> Any:
        """Return a team of one agent: a FunctionAgent if the model calls tools natively, else a ReActAgent.

        Example:
            >>> team = AgentWorkflow.from_tools_or_functions([add], llm="openai:gpt-5.6")
        """
        model = llm_from(llm) if isinstance(llm, str) else llm or Settings.llm
        kind = FunctionAgent if model is None or model.metadata.is_function_calling_model else kinds.ReActAgent
        agent = kind(name="Agent", tools=list(tools_or_functions), llm=model, system_prompt=system_prompt)
        make: Any = cls
        return make(
            agents=[agent],
            state_prompt=state_prompt,
            initial_state=initial_state,
            output_cls=output_cls,
            structured_output_fn=structured_output_fn,
            timeout=timeout,
            verbose=verbose,
        )

    def speaks_in(self, path: str) -> bool:
        """Return whether text of the inner run at ``path`` counts as its own. Inner teams are members."""
        if not path:
            return True
        first, _, rest = path.partition("/")
        attached = self.__batonflow__.children
        inside = attached.get(first, attached.get(first.rpartition("#")[0]))
        teams = [agent.team for agent in self.agents.values() if isinstance(agent, TeamMember)]
        return any(team is inside and team.speaks_in(rest) for team in teams)

    def trace_tags(self) -> dict[str, Any]:
        """Return the tags for the span of a run."""
        return {genai.OPERATION: "invoke_workflow", genai.WORKFLOW_NAME: self.name}

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other.__batonflow_team__ = TeamOfMembers(other)
        return other

    def asking(self, llm: LLM) -> Self:
        """Return the same team with another model for all agents; teams in it keep their models."""
        other = copy(self)
        other.agents = {name: agent.asking(llm) for name, agent in self.agents.items()}
        return other

    async def get_tools(self, agent_name: str, input_str: str | None = None) -> Sequence[AsyncBaseTool]:
        """Return the tools that an agent may call: its own, the ones of its retriever, and the handoff.

        Args:
            agent_name: The agent.
            input_str: The text for the retriever.

        Raises:
            KeyError: The agent is unknown.
        """
        agent = self.agents[agent_name]
        tools = await agent.get_tools(input_str)
        handoff = self._get_handoff_tool(agent)
        return tools if handoff is None else [*tools, handoff]

    async def _call_tool(self, ctx: Context[Any], tool: AsyncBaseTool, tool_input: dict[str, Any]) -> ToolOutput:
        given: Any = ctx  # None in programs that call a tool by hand
        name = None if given is None else await ctx.store.get("current_agent_name", default=None)
        return await self.__batonflow_team__.member(name).call_one_tool(ctx, tool, tool_input)

    async def member_step(self, ctx: Context[Any], ev: Event) -> Any:
        """Call a step of the acting agent from the override of that step in a team's class.

        Args:
            ctx: The run's context.
            ev: The event of the step.

        Returns:
            The result of the agent's override, or of the loop where the agent has no override.

        Raises:
            TypeError: No step of the loop takes the event.

        Example:
            >>> class Careful(AgentWorkflow):
            ...     @step
            ...     async def call_tool(self, ctx: Context, ev: ToolCall) -> ToolCallResult:
            ...         print("calls", ev.tool_name)
            ...         return await self.member_step(ctx, ev)
        """
        step = next((_STEP_OF[cls] for cls in type(ev).__mro__ if cls in _STEP_OF), None)
        if step is None:
            raise TypeError(f"member_step() takes an event of the loop, not {type(ev).__name__}")
        return await layers.call_member_step(self, layers.overrides_of_members(self.agents), step, ctx, ev)

    def _get_handoff_tool(self, current_agent: Member) -> AsyncBaseTool | None:
        """Return the agent's handoff tool, made anew only when its texts have changed."""
        # The argument is called as programs of LlamaIndex that override this call it.
        team: Any = self.__batonflow_team__
        return team.handoff_tool(current_agent)

    def _get_prompts(self) -> dict[str, BasePromptTemplate]:
        return {
            "handoff_prompt": self.handoff_prompt,
            "handoff_output_prompt": self.handoff_output_prompt,
            "state_prompt": self.state_prompt,
        }

    def _get_prompt_modules(self) -> dict[str, Any]:
        return dict(self.agents)

    def _update_prompts(self, prompts_dict: dict[str, BasePromptTemplate]) -> None:
        for name, prompt in prompts_dict.items():
            setattr(self, name, prompt)


_call_tool: Any = getattr(AgentWorkflow, "_call_tool")  # noqa: B009 - as it is here


class TeamOfMembers(Team):
    """The members of a team, with the rules for handoffs and for their memories.

    Args:
        loop: The team.
    """

    loop: AgentWorkflow[Any, Any]

    def __init__(self, loop: AgentWorkflow[Any, Any]) -> None:
        super().__init__(loop)
        if any(type(agent).__batonflow_overrides__ for agent in loop.agents.values()):
            overridden, own = layers.overrides_of_members(loop.agents), type(loop).__batonflow_overrides__
            self.dispatched = {step: members for step, members in overridden.items() if step not in own}
        self._handoffs: dict[str, tuple[Any, AsyncBaseTool | None]] = {}

    @property
    def remembers_apart(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Tell whether each agent has a conversation of its own."""
        return self.loop.handoff_carries != "full"

    @property
    def budget(self) -> Budget | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The budget of each run, whichever agent acts."""
        return self.loop.budget

    @property
    def middleware(self) -> "Sequence[Middleware[Any]]":  # pyright: ignore[reportIncompatibleVariableOverride]
        """The middleware of the whole team."""
        return self.loop.middleware

    @property
    def tool_errors(self) -> ToolErrors:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The way of exceptions of tools, for all members."""
        return self.loop.tool_errors

    def settings(self) -> LoopSettings:
        """Return the settings of the loop."""
        team = self.loop
        return LoopSettings(
            root=team.root_agent,
            llm=team.agents[team.root_agent].llm_or_none(),
            initial_state=team.__batonflow_state__ or team.initial_state,
            early_stopping_method=team.early_stopping_method,
            output_cls=team.output_cls,
            structured_output_fn=team.structured_output_fn,
            stored={
                "agents": list(team.agents),
                "can_handoff_to": {name: agent.can_handoff_to for name, agent in team.agents.items()},
                "handoff_output_prompt": team.handoff_output_prompt.partial_text(),
                "next_agent": None,
                "num_handoffs": 0,
                "handoff_reminded": False,
            },
        )

    def member(self, name: str | None) -> Member:
        """Return the agent called ``name``; the root agent for unknown names."""
        return self.loop.agents.get(name or "") or self.loop.agents[self.loop.root_agent]

    def all_tools(self) -> Sequence[Any]:
        """Return the tools of all agents."""
        return [tool for agent in self.loop.agents.values() for tool in agent.tools]

    def tools_for(self, agent: Member, text: str) -> Coroutine[Any, Any, Sequence[AsyncBaseTool]]:
        """Return the tools that an agent may call in a conversation about ``text``."""
        return self.loop.get_tools(agent.name, text)

    def caller(self, agent: Member) -> CallTool | None:
        """Return the user's method that calls the tools of an agent, or None if it is not overridden."""
        # Programs of LlamaIndex put guards around this method of a team; otherwise the member's own is asked.
        team: Any = self.loop
        kind: Any = team.__class__
        replaced = kind._call_tool is not _call_tool or "_call_tool" in vars(team)
        member: Any = agent
        return team._call_tool if replaced else member.__batonflow_team__.caller(member)

    def handoff_tool(self, agent: Member) -> AsyncBaseTool | None:
        """Return the agent's handoff tool, made anew only when its texts have changed."""
        team = self.loop
        prompt, allowed = team.handoff_prompt.partial_text(), agent.can_handoff_to
        described = map(_description, team.agents.values())
        key = (prompt, team.max_handoffs, None if allowed is None else (*allowed,), *team.agents, *described)
        kept = self._handoffs.get(agent.name)
        if kept is None or kept[0] != key:
            made = None
            if targets(agent, list(team.agents)):
                made = HandoffTool(agent, team.agents, prompt, team.max_handoffs)
            kept = self._handoffs[agent.name] = (key, made)
        return kept[1]

    def may_hand_over(self, agent: Member, arguments: Mapping[str, Any]) -> bool:
        """Return whether a handoff of an agent is permitted."""
        if set(arguments) != {"to_agent", "reason"} or not isinstance(arguments["reason"], str):
            return False  # the tool will say why
        return refusal(agent, str(arguments.get("to_agent")), list(self.loop.agents)) is None

    async def forgotten_handoff(self, ctx: Context[Any], agent: Member, answer: ChatMessage) -> str | None:
        """Return a reminder if an agent announces a handoff without calling the tool; otherwise None."""
        to_agent = meant(answer.content or "", targets(agent, list(self.loop.agents)))
        # Once in a run: an agent that does not follow the reminder has meant something else.
        if to_agent is None or await ctx.store.get("handoff_reminded", default=False):
            return None
        await ctx.store.set("handoff_reminded", True)
        return HANDOFF_NOT_CALLED.format(to_agent=to_agent, tool=HANDOFF_TOOL)

    async def hand_over(self, ctx: Context[Any], agent: Member) -> str:
        """Return the name of the next agent; the same agent unless it has handed over."""
        chosen: str | None = await ctx.store.get("next_agent", default=None)
        if not chosen:
            return agent.name
        if self.loop.handoff_carries != "full":
            # Before anything is changed: a model makes the summary, which may fail, or be interrupted.
            task = await self._task(ctx, agent)
            await (await self.memory(ctx, self.loop.agents[chosen])).aput(task)
        await ctx.store.set("current_agent_name", chosen)
        await ctx.store.set("next_agent", None)
        return chosen

    async def name_next(self, ctx: Context[Any]) -> None:
        """Note a handoff in the same answer as a direct tool."""
        chosen: str | None = await ctx.store.get("next_agent", default=None)
        # The run has its answer, so no task is handed over; an agent with only the task could not go on without one.
        if chosen and not self.remembers_apart:
            await ctx.store.set("current_agent_name", chosen)

    async def _task(self, ctx: Context[Any], agent: Member) -> ChatMessage:
        """Return the task that an agent hands over: its words, with the pictures and documents of the user."""
        asked: str = await ctx.store.get("user_msg_str", default="")
        calls: list[ToolCallResult] = await ctx.store.get("current_tool_calls", default=[])
        made = [call for call in calls if call.tool_name == HANDOFF_TOOL and not call.tool_output.is_error]
        reason = made[-1].tool_kwargs.get("reason") if made else ""
        task = HANDOFF_CARRIED.format(user_msg=asked, from_agent=agent.name, reason=reason)
        if self.loop.handoff_carries == "summary":
            known = await Turn(ctx, self, agent, await self.memory(ctx, agent)).conversation()
            summary = await self._summary(ctx, agent, [*known, ChatMessage(HANDOFF_SUMMARY)])
            task += HANDOFF_CARRIED_SUMMARY.format(summary=summary)
        messages = await (await ctx.store.get("memory")).aget_all()
        question = next((one for one in reversed(messages) if is_question(one) and text_of(one) == asked), None)
        beside = [block for block in question.blocks if not isinstance(block, TextBlock)] if question else []
        return ChatMessage([TextBlock(text=task), *beside])

    async def _summary(self, ctx: Context[Any], agent: Member, messages: Sequence[ChatMessage]) -> str:
        """Return the answer of an agent's model to a question of the loop; it is not streamed."""
        llm, limits = agent.llm_or_none(), await limits_for(ctx, self, agent)
        if llm is None:
            return ""
        try:
            async with count_usage(ctx, agent.name, limits, "summary"):
                response = await within_time(llm.achat(messages), limits)
        except BudgetExceededError as err:
            if limits is None or not limits.wants_answer(err):
                raise
            return ""
        return response.message.content or ""

    async def begin(self, ctx: Context[Any], ev: AgentWorkflowStartEvent) -> None:
        """Forget the members' conversations when the run begins with another one."""
        if self.remembers_apart and (ev.get("memory") or ev.get("chat_history")):
            await ctx.store.set("memories", {})

    async def memory(self, ctx: Context[Any], agent: Member) -> BaseMemory:
        """Return the conversation of an agent."""
        shared: Any = await ctx.store.get("memory")
        if self.loop.handoff_carries == "full":
            return shared
        memories: dict[str, BaseMemory] = await ctx.store.get("memories", default={})
        if agent.name in memories:
            return memories[agent.name]
        usual = ChatMemoryBuffer.from_defaults(llm=self.member(None).llm_or_none())
        made = shared.new_conversation() if isinstance(shared, BaseMemory) else None
        if made is None or made == usual:  # the program has not chosen a memory, and each model has its own window
            made = ChatMemoryBuffer.from_defaults(llm=agent.llm_or_none())
        if not memories:
            # The agent that begins goes on with the conversation before.
            await made.aset(await shared.aget_all())
        await ctx.store.set("memories", {**memories, agent.name: made})
        return made

    async def with_knowledge(
        self, ctx: Context[Any], agent: Member, messages: list[ChatMessage], asked: str | None
    ) -> list[ChatMessage]:
        """Return the messages of an agent's memory with the knowledge of the team's memory."""
        memory = await ctx.store.get("memory")
        if not isinstance(memory, BaseMemory):
            return messages
        async with count_usage(ctx, agent.name, await limits_for(ctx, self, agent), "knowledge", only_around=True):
            return await memory.with_knowledge(messages, asked)

    async def end(self, ctx: Context[Any], output: AgentOutput) -> None:
        """Keep the answer of a run in the conversation with the user, where each agent has its own."""
        is_answer = output.get("blocked") not in ("input", "output") and _says_something(output.response)
        if self.remembers_apart and is_answer:
            await (await ctx.store.get("memory")).aput(output.response)


def _says_something(message: ChatMessage) -> bool:
    return bool(message.blocks) and message.content != ""


def _members(agents: Any) -> list[BaseWorkflowAgent[Any, Any]]:
    if not isinstance(agents, Iterable) or isinstance(agents, str | Mapping | BaseModel):
        raise ValueError(f"agents is a list of agents and teams, not {type(cast('Any', agents)).__name__}")
    listed: list[Any] = [*cast("Iterable[Any]", agents)]
    for number, one in enumerate(listed):
        if not isinstance(cast("object", one), BaseWorkflowAgent | AgentWorkflow):
            raise ValueError(f"agents[{number}] is neither an agent nor a team: {one!r}")
    return [TeamMember.of(cast("Any", one)) if isinstance(one, AgentWorkflow) else one for one in listed]


def _warn_of_strangers(agents: Mapping[str, BaseWorkflowAgent[Any, Any]]) -> None:
    """Warn of names in ``can_handoff_to`` that no agent has; an agent may take part in several teams."""
    for agent in agents.values():
        strangers = [name for name in agent.can_handoff_to or () if name not in agents]
        if strangers:
            warn_user(
                f"Agent {agent.name} may hand over to {', '.join(strangers)}, but the team has no such agent. "
                f"There are: {', '.join(agents)}"
            )


def _take_in(team: AgentWorkflow[Any, Any]) -> None:
    """Make the steps of the members act in the team."""
    for agent in team.agents.values():
        agent.__batonflow_team__.dispatched = _ANY_STEP
    if any(not type(agent).__module__.startswith("batonflow.") for agent in team.agents.values()):
        layers.warn_of_member_steps(team, team.agents, AgentLoop)


def _named(agents: Sequence[BaseWorkflowAgent[Any, Any]]) -> dict[str, BaseWorkflowAgent[Any, Any]]:
    if not agents:
        raise ValueError("At least one agent must be provided")
    if len(agents) > 1:
        for field in ("name", "description"):
            if any(getattr(agent, field) == _DEFAULTS[field].default for agent in agents):
                raise ValueError(f"All agents must have a {field} of their own in a team: it tells them apart")
    found: dict[str, BaseWorkflowAgent[Any, Any]] = {}
    for agent in agents:
        if agent.name in found:
            raise ValueError(f"Two agents are named {agent.name!r}: give each a name of its own")
        if agent.initial_state:
            raise ValueError(
                f"Agent {agent.name} has an initial_state, which is not supported in a team: give initial_state to "
                "AgentWorkflow"
            )
        found[agent.name] = agent
    return found


def _root(agents: Mapping[str, BaseWorkflowAgent[Any, Any]], root: str | None) -> str:
    if root is None:
        if len(agents) > 1:
            raise ValueError(f"Exactly one root agent must be provided: root_agent= one of {', '.join(agents)}")
        return next(iter(agents))
    if root not in agents:
        raise ValueError(f"Root agent {root} not found among the agents: {', '.join(agents)}")
    return root


def _prompt(name: str, prompt: str | BasePromptTemplate, *needed: str) -> BasePromptTemplate:
    if not isinstance(prompt, str):
        return prompt
    check_prompt(name, prompt, *needed)
    return PromptTemplate(prompt)
