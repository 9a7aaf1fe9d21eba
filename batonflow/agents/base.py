"""BaseWorkflowAgent: the base class of agents; subclasses define one step."""

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError, field_validator

from batonflow import agents as kinds
from batonflow.agents import layers
from batonflow.agents.asking import PAUSED, request_here, streamed, unpaused, whole_answer
from batonflow.agents.budget import Budget
from batonflow.agents.events import AgentOutput, ToolCallResult
from batonflow.agents.hooks import AfterTool, BeforeTool, Guard
from batonflow.agents.invocation import call_options
from batonflow.agents.ledger import has_options
from batonflow.agents.loop import AgentLoop
from batonflow.agents.members import (
    HANDOFF_TOOL,
    CallTool,
    EarlyStopping,
    LoopSettings,
    Member,
    Team,
    check_form,
    check_memory,
    check_name,
    check_prompt,
    no_option,
    warn_of_shared_name,
)
from batonflow.agents.memory import BaseMemory
from batonflow.agents.memory.turns import observation
from batonflow.agents.prompts import STATE_PROMPT
from batonflow.agents.running import attach_agents, refuse_itself
from batonflow.llms import LLM, ChatMessage, ChatResponse, Settings
from batonflow.llms.prompts import BasePromptTemplate, PromptMixin, PromptTemplate
from batonflow.llms.prompts.base import as_template
from batonflow.llms.settings import llm_from
from batonflow.llms.tool_protocol import wire_name
from batonflow.tools import AsyncBaseTool, BaseTool, FunctionTool, ToolOutput, adapt_to_async_tool, run_tool
from batonflow.tools.policy import ToolErrors
from batonflow.workflow_core import BatonflowError, Context, Workflow, WorkflowRuntimeError
from batonflow.workflow_core.engine.state import current_item
from batonflow.workflow_core.errors import NotInitializedError
from batonflow.workflow_core.typed import AgentDepsT, OutT

if TYPE_CHECKING:
    from dataclasses import InitVar
    from os import PathLike

    from batonflow.resources import ResourceManager
    from batonflow.tools.toolset import Toolset
    from batonflow.workflow_core.engine.ports import RunStoreLike
    from batonflow.workflow_core.options import Upcaster
    from batonflow.workflow_core.step import WorkflowGraphCheck

__all__ = ["WORKFLOW_OPTIONS", "BaseWorkflowAgent"]

WORKFLOW_OPTIONS = (
    "timeout", "verbose", "store", "on_stall", "timeout_excludes_waiting", "num_concurrent_runs", "resource_manager",
    "serializer", "version", "upcasters", "idle_release", "types", "workflows", "workflow_name", "disable_validation",
    "skip_graph_checks", "store_streamed", "debug", "on_abandon",
)  # fmt: skip


_AS_TOOL = "; an agent or a team becomes a tool by as_tool()"


def _refuse_no_tool(tool: Any) -> None:
    kind: Any = tool if isinstance(tool, type) else type(tool)
    # Other classes count as functions that create objects.
    is_class = kind is tool and (issubclass(kind, BaseTool | AgentLoop) or is_toolset(kind))
    if not is_class and (isinstance(tool, BaseTool) or callable(tool)):
        return
    got = f"the class {kind.__name__}: make an object of it" if is_class else kind.__name__
    raise ValueError(f"tools takes tools and functions, got {got}{'' if is_toolset(kind) else _remedy(kind)}")


def is_toolset(tool: Any) -> bool:
    """Tell whether an entry of ``tools`` is a toolset, or a class its class."""
    return getattr(tool, "__batonflow_toolset__", False) is True


def _remedy(kind: Any) -> str:
    """Return a hint for an object that creates tools but is not a tool."""
    if issubclass(kind, AgentLoop):
        return _AS_TOOL
    if is_toolset(kind):
        return f"; write tools=[tools], where tools is the {kind.__name__}"
    if hasattr(kind, "to_tool_list"):
        return f"; write tools=spec.to_tool_list(), where spec is the {kind.__name__}"
    return ""


def _name_state(tools: Iterable[Any]) -> bool:
    return any(getattr(tool, "state_type", None) is not None for tool in tools)


class TeamOfOne(Team):
    """A single agent as its own team.

    Args:
        loop: The agent.
    """

    loop: "BaseWorkflowAgent[Any, Any]"

    def __init__(self, loop: "BaseWorkflowAgent[Any, Any]") -> None:
        super().__init__(loop)
        self._given: list[Any] = []
        self._adapted: list[Any] = []

    def settings(self) -> LoopSettings:
        """Return the settings of the loop."""
        agent = self.loop
        return LoopSettings(
            root=agent.name,
            llm=agent.llm_or_none(),
            initial_state=agent.__batonflow_state__ or agent.initial_state,
            early_stopping_method=agent.early_stopping_method,
        )

    def member(self, name: str | None) -> Member:  # noqa: ARG002 - a single agent
        """Return the agent."""
        return self.loop

    def tools_for(self, agent: Member, text: str) -> Coroutine[Any, Any, Sequence[AsyncBaseTool]]:
        """Return the tools that an agent may call in a conversation about ``text``."""
        return agent.get_tools(text)

    def caller(self, agent: Any) -> CallTool | None:
        """Return the user's method that calls the tools of an agent, or None if it is not overridden."""
        kind: Any = agent.__class__
        if kind._call_tool is _CALL_TOOL and kind.call_one_tool is _CALL_ONE_TOOL and "_call_tool" not in vars(agent):
            return None
        return agent.call_one_tool

    def adapted_tools(self) -> list[Any]:
        """Return the agent's tools and toolsets for the loop, adapted again after a change of the list."""
        tools = self.loop.tools
        if self._given != tools:
            # Functions became tools at construction.
            refuse_itself(self.loop, tools)
            self._given = list(tools)
            varies = any(is_toolset(tool) or "prepare" in getattr(tool, "__dict__", ()) for tool in tools)
            object.__setattr__(self.loop, "__batonflow_varies__", varies)
            self._adapted = [tool if is_toolset(tool) else adapt_to_async_tool(cast("Any", tool)) for tool in tools]
        return self._adapted


class BaseWorkflowAgent(AgentLoop[AgentDepsT, OutT], BaseModel, PromptMixin):  # pyright: ignore[reportIncompatibleMethodOverride] - validate() is Workflow's
    """An agent: a model that gets a conversation and tools, repeatedly until it answers.

    Subclasses define a step with ``take_step``, ``handle_tool_call_results`` and ``finalize``.

    Args:
        name: The name of the agent in events and in a team.
        description: The purpose of the agent.
        system_prompt: The system message before each conversation.
        instructions: Texts, and functions of ``(ctx)``, that follow the system prompt. A function is asked once in a
            turn, or before each request with ``each_step(function)``; None leaves it out.
        tools: Tools, toolsets and plain functions.
        tool_retriever: Finds more tools for a message with ``aretrieve(text)``.
        can_handoff_to: The names of the agents in a team to which it may hand over; None for all.
        llm: A model, or its name: ``"openai:gpt-5.6"``; by default ``Settings.llm``.
        initial_state: State that the model sees and tools may change, under the key ``state``.
        state: The same as a pydantic model, or an instance of it that is copied for each run. A tool or step with
            ``ctx: Context[Model]`` gets a ``ctx.store`` that holds this model.
        state_prompt: The prompt around the state, with ``{state}`` and ``{msg}``.
        output_type: The type of the output: anything that pydantic validates, a function whose result is the output, or
            a list of these. With ``str`` in a union, an answer in plain text is the output.
        output_retries: How often an answer that does not fit ``output_type`` goes back to the model.
        output_cls: A model of the structured answer, which the model is asked for after its answer.
        structured_output_fn: Makes the structured answer from the messages.
        streaming: Stream the model's answers.
        early_stopping_method: After ``max_iterations`` steps: ``"force"`` an error, or ``"generate"`` an answer.
        budget: The limits of the agent in a run.
        before_tool: Hooks ``(ctx, call)`` before each tool call, which return None to permit it,
            ``Deny(reason)`` or ``Replace(arguments)``.
        after_tool: Hooks ``(ctx, result)`` after each tool call, which return None or another ToolOutput.
        input_guards: Guards ``(ctx, message)`` of the user's message, which return None or ``Block(reason)``.
        output_guards: The same for the answer, before it is kept; its text may have been streamed before.
        middleware: Objects around the model, the tools and the ends of a turn; see ``Middleware``.
        deps_type: The class of the objects that ``run(deps=...)`` gives to tools as ``ctx.deps``.
        deps_for: A function of ``(info)``, async or not, that makes ``deps`` for a run that was given no deps: a served
            run, or one that ``recover()`` continues.
        memory: The pattern of the memory of each session, and of each run that is given no memory; its messages are
            not copied.
        max_result_chars: Characters of a tool's result that the model gets at once; None for all. The model reads the
            rest with a tool.
        tool_errors: ``"tell"`` exceptions of tools to the model; ``"raise_bugs"``: NameError, AttributeError,
            TypeError, ImportError and AssertionError fail the run; ``"raise"``: all exceptions do. Errors of
            ``ToolError`` are always told.
        **options: Options of ``Workflow``: ``timeout`` (in seconds; None by default), ``verbose``, ``store`` and so on.

    Raises:
        ValueError: A tool has the reserved name ``handoff`` or is not a tool, the agent is its own
            tool, or an option is unknown.

    Example:
        >>> class Echo(BaseWorkflowAgent):
        ...     async def take_step(self, ctx, llm_input, tools, memory):
        ...         said = ChatMessage(llm_input[-1].content, role="assistant")
        ...         return AgentOutput(response=said, current_agent_name=self.name)
        ...
        ...     async def handle_tool_call_results(self, ctx, results, memory): ...
        ...
        ...     async def finalize(self, ctx, output, memory):
        ...         await memory.aput(output.response)
        ...         return output
        >>> print(Echo().run_sync("hello"))
        hello
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    name: str = "Agent"
    description: str = "An agent that can perform a task"
    system_prompt: str | None = None
    if TYPE_CHECKING:
        tools: list[BaseTool | Callable[..., Any] | Toolset[Any]] = Field(default_factory=list[Any])
    else:
        tools: list[Any] = Field(default_factory=list)
    tool_retriever: Any = None
    can_handoff_to: list[str] | None = None
    llm: LLM | str | None = None
    initial_state: dict[str, Any] = Field(default_factory=dict[str, Any])
    state_prompt: SerializeAsAny[BasePromptTemplate] = Field(default_factory=lambda: PromptTemplate(STATE_PROMPT))
    output_type: Any = Field(default=None, exclude=True)
    output_retries: int = Field(default=1, ge=0)
    output_cls: type[BaseModel] | None = Field(default=None, exclude=True)
    structured_output_fn: Callable[[list[ChatMessage]], Any] | None = Field(default=None, exclude=True)
    streaming: bool = True
    early_stopping_method: EarlyStopping = "force"
    budget: Budget | None = None
    before_tool: Sequence[BeforeTool] = ()
    after_tool: Sequence[AfterTool] = ()
    input_guards: Sequence[Guard] = ()
    output_guards: Sequence[Guard] = ()
    max_result_chars: int | None = Field(default=100_000, ge=1)
    tool_errors: ToolErrors = "tell"
    instructions: Any = Field(default=(), exclude=True)
    deps_type: Any = Field(default=object, exclude=True)
    deps_for: Any = Field(default=None, exclude=True)
    middleware: Sequence[Any] = Field(default=(), exclude=True)
    memory: Any = Field(default=None, exclude=True)

    if TYPE_CHECKING:  # of workflows: they are not fields, but the constructors of subclasses take them
        timeout: InitVar[float | None] = None
        verbose: InitVar[bool] = False
        store: InitVar[str | PathLike[str] | RunStoreLike | None] = None
        debug: InitVar[bool | None] = None
        state: InitVar[type[BaseModel] | BaseModel | None] = None
        on_stall: InitVar[Literal["warn", "raise", "wait"] | None] = None
        on_abandon: InitVar[Literal["stop", "continue"] | None] = None
        timeout_excludes_waiting: InitVar[bool | None] = None
        num_concurrent_runs: InitVar[int | None] = None
        resource_manager: InitVar[ResourceManager | None] = None
        upcasters: InitVar[Mapping[str, Upcaster] | None] = None
        types: InitVar[Iterable[type]] = ()
        workflows: InitVar[Mapping[str, Workflow] | None] = None
        disable_validation: InitVar[bool] = False
        skip_graph_checks: InitVar[set[WorkflowGraphCheck] | None] = None

    __batonflow_varies__: bool = False
    __hash__: ClassVar[Any] = object.__hash__  # agents are compared by identity

    def __init__(self, **options: Any) -> None:
        # A field of a subclass has priority over the option of this name.
        of_workflows = [name for name in WORKFLOW_OPTIONS if name in options and name not in type(self).model_fields]
        workflow_options = {name: options.pop(name) for name in of_workflows}
        workflow_options.setdefault("timeout", None)
        state = None if "state" in type(self).model_fields else options.pop("state", None)
        # None counts as left out, as in programs of LlamaIndex, unless None is a value of the option.
        known = type(self).model_fields.keys() - {"max_result_chars"}
        fields = {name: value for name, value in options.items() if value is not None or name not in known}
        if "llm" not in fields and Settings.llm is not None:
            fields["llm"] = Settings.llm
        try:
            BaseModel.__init__(self, **fields)
        except ValidationError as error:
            unknown = [str(one["loc"][0]) for one in error.errors() if one["type"] == "extra_forbidden"]
            if unknown:
                names = [*type(self).model_fields, *WORKFLOW_OPTIONS, "state"]
                raise ValueError(no_option(type(self).__name__, unknown[0], names)) from None
            causes = [one.get("ctx", {}).get("error") for one in error.errors()]
            for cause in causes:
                if isinstance(cause, BatonflowError):  # has its own text and class
                    raise cause from None
            raise
        if self.initial_state:
            # Without these placeholders the model would not get the user's message or the state.
            check_prompt("state_prompt", self.state_prompt.get_template(), "state", "msg")
        Workflow.__init__(self, **workflow_options)
        warn_of_shared_name(self, self.name)
        object.__setattr__(self, "__batonflow_team__", TeamOfOne(self))
        if state is not None:
            object.__setattr__(self, "__batonflow_state__", kinds.declared_state(state, self.initial_state))
        elif self.instructions or self.middleware or _name_state(self.tools) or self.__batonflow_overrides__:
            kinds.warn_of_untyped(self)
        if self.output_cls is not None:
            self.structured_output_fn = None
        if self.output_type is not None:
            object.__setattr__(self, "typed_output", kinds.declared_output_of(self))
        refuse_itself(self, self.tools)
        attach_agents(self, self.tools)
        wants = any(getattr(tool, "deps_type", object) is not object or is_toolset(tool) for tool in self.tools)
        wants = wants or self.middleware or any(not isinstance(one, str) for one in self.instructions)
        if wants or self.deps_type is not object or self.deps_for is not None:
            self.__batonflow__.deps = layers.source_of(
                self.name, self.deps_type, self.deps_for, self.tools, self.instructions, self.middleware
            )

    def __eq__(self, other: object) -> bool:
        return self is other

    def __copy__(self) -> Self:
        other = super().__copy__()
        object.__setattr__(other, "__batonflow_team__", TeamOfOne(other))
        other.__batonflow_team__.dispatched = self.__batonflow_team__.dispatched
        return other

    if not TYPE_CHECKING:  # otherwise type checkers would allow any attribute

        def __getattr__(self, name: str) -> Any:
            try:
                object.__getattribute__(self, "__pydantic_fields_set__")
            except AttributeError:
                base = next(cls for cls in type(self).__mro__ if cls.__module__.startswith("batonflow."))
                raise NotInitializedError(type(self), f"the options of {base.__name__}") from None
            return super().__getattr__(name)

        def __setattr__(self, name: str, value: Any) -> None:
            # Pydantic validates fields only at construction, but a name may be changed later.
            if name == "tools":
                refuse_itself(self, value)
            super().__setattr__(name, check_name(value) if name == "name" else value)

    @field_validator("name")
    @classmethod
    def _bf_says_something(cls, value: str) -> str:
        return check_name(value)

    @field_validator("llm", mode="before")
    @classmethod
    def _bf_named_llm(cls, value: Any) -> Any:
        return llm_from(value) if isinstance(value, str) else value

    @field_validator("tool_retriever")
    @classmethod
    def _bf_retrieves(cls, value: Any) -> Any:
        if value is not None and not callable(getattr(value, "aretrieve", None)):
            raise ValueError(f"tool_retriever has a coroutine aretrieve(text) that returns tools; {value!r} lacks it")
        return value

    @field_validator("instructions", mode="before")
    @classmethod
    def _bf_instructs(cls, value: Any) -> Any:
        return layers.checked_instructions(value) if value else ()

    @field_validator("middleware", mode="before")
    @classmethod
    def _bf_acts_around(cls, value: Any) -> Any:
        return layers.checked_middleware(value) if value else ()

    @field_validator("memory", mode="before")
    @classmethod
    def _bf_remembers(cls, value: Any) -> Any:
        return check_memory(value)

    @field_validator("output_cls")
    @classmethod
    def _bf_is_object(cls, value: type[BaseModel] | None) -> type[BaseModel] | None:
        check_form(value)
        return value

    @field_validator("state_prompt", mode="before")
    @classmethod
    def _bf_as_prompt_template(cls, value: Any) -> Any:
        return as_template(value)

    @field_validator("tools", mode="before")
    @classmethod
    def _bf_as_tools(cls, value: Any) -> list[Any]:
        found: list[BaseTool] = []
        given: list[Any] = []
        if isinstance(value, BaseTool | AgentLoop) or callable(value):
            remedy = _AS_TOOL if isinstance(value, AgentLoop) else ""
            raise ValueError(f"tools is a list: write tools=[...] around a single one{remedy}")
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable | None):
            remedy = _remedy(cast("Any", value).__class__)
            raise ValueError(f"tools is a list of tools and functions, not {value!r}{remedy}")
        for tool in cast("Iterable[Any]", value or ()):
            if is_toolset(tool) and not isinstance(tool, type):
                given.append(tool)
                continue
            _refuse_no_tool(tool)
            made = tool if isinstance(tool, BaseTool) else FunctionTool.from_defaults(tool)
            if made.metadata.name == HANDOFF_TOOL:
                raise ValueError(f"The tool name {HANDOFF_TOOL!r} is reserved for teams of agents: rename the tool")
            sent = wire_name(made.metadata.get_name())
            if any(wire_name(one.metadata.get_name()) == sent for one in found):
                raise ValueError(
                    f"Two tools are called {sent!r}, and a model could not tell them apart: rename one; "
                    "agents take as_tool(name=...)"
                )
            found.append(made)
            given.append(made)
        return given

    # --- methods of subclasses ----------------------------------------------------------------------------------------

    @abstractmethod
    async def take_step(
        self, ctx: Context[Any], llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool], memory: BaseMemory
    ) -> AgentOutput:
        """Ask the model and return its answer; it is called again after tool results, until a final answer.

        Args:
            ctx: The run's context. Data of the turn belong into ``ctx.store``, because all runs share the
                agent; ``ctx.write_event_to_stream`` streams ``AgentStream`` pieces.
            llm_input: The system prompt and the conversation from the memory, with the state if there is one.
            tools: The available tools; in a team, with the handoff tool.
            memory: The conversation before the turn. ``finalize`` adds the messages of the turn.

        Returns:
            An output with ``tool_calls`` for the loop, or with ``retry_messages`` to add to the conversation for
            another step. Otherwise ``response`` is the answer. ``current_agent_name`` is
            ``self.name``.

        Raises:
            Exception: An exception here fails the run.

        Example:
            >>> async def take_step(self, ctx, llm_input, tools, memory):
            ...     answer = await self.the_llm().achat(llm_input)
            ...     return AgentOutput(response=answer.message, current_agent_name=self.name)
        """

    @abstractmethod
    async def handle_tool_call_results(
        self, ctx: Context[Any], results: list[ToolCallResult], memory: BaseMemory
    ) -> None:
        """Keep the results of tools, so that the next ``take_step`` can pass them to the model.

        Args:
            ctx: The run's context.
            results: A result for each call of the last step, in order, including handoffs and calls that failed, were
                denied or were not made (``tool_output.is_error``).
            memory: The conversation before the turn.

        Raises:
            Exception: An exception here fails the run.

        Example:
            >>> async def handle_tool_call_results(self, ctx, results, memory):
            ...     for result in results:
            ...         await memory.aput(ChatMessage(result.tool_output.content))
        """

    @abstractmethod
    async def finalize(self, ctx: Context[Any], output: AgentOutput, memory: BaseMemory) -> AgentOutput:
        """Bring the memory up to date at the end of a turn.

        Args:
            ctx: The run's context.
            output: The answer of the model or of a direct tool, or the reason of a guard that blocked it. It is also
                called with the text of a handoff, and with an empty answer if the steps or
                the budget are used up.
            memory: The memory for the messages of the turn.

        Returns:
            The output of the run, the given one or another.

        Raises:
            Exception: An exception here fails the run.

        Example:
            >>> async def finalize(self, ctx, output, memory):
            ...     await memory.aput(output.response)
            ...     return output
        """

    # --- optional methods of subclasses -------------------------------------------------------------------------------

    def as_shown_to_users(self, said: ChatMessage) -> ChatMessage:
        """Return the answer without the model's text around it, for guards."""
        return said

    async def take_back(self, ctx: Context[Any]) -> None:
        """Forget the last answer, which a guard has blocked."""

    async def reword(self, ctx: Context[Any], said: ChatMessage) -> None:
        """Put the answer of a middleware in the place of the last answer, for the memory."""

    async def remind(self, ctx: Context[Any], words: str, memory: BaseMemory) -> None:  # noqa: ARG002 - for subclasses
        """Add ``words`` after the model's last answer, for the next step."""
        await memory.aput(observation(words))

    async def unfinished(self, ctx: Context[Any]) -> Sequence[Any]:  # noqa: ARG002 - for subclasses
        """Return the messages or thoughts of the turn that ``finalize`` has not moved into the memory.

        Calls that are not part of the messages, such as code, follow as ``ToolSelection``. A run on the context of a
        failed run first moves them into the memory with ``finalize``; calls without a result
        get one from ``handle_tool_call_results`` before. The default is an empty list.
        """
        return ()

    def _get_prompts(self) -> dict[str, BasePromptTemplate]:
        return {}

    def _update_prompts(self, prompts_dict: dict[str, BasePromptTemplate]) -> None:
        pass

    # --- helpers ------------------------------------------------------------------------------------------------------

    async def get_tools(self, input_str: str | None = None) -> Sequence[AsyncBaseTool]:
        """Return the agent's tools, its toolsets' tools, and the tools that the retriever finds for a text."""
        team: Any = self.__batonflow_team__
        adapted: list[Any] = team.adapted_tools()
        found: list[BaseTool] = []
        if self.tool_retriever is not None:
            found = await self.tool_retriever.aretrieve(input_str or "")
        if self.__batonflow_varies__:
            return await layers.asked_tools(self, [*adapted, *found])
        return [*adapted, *(adapt_to_async_tool(tool) for tool in found)] if found else list(adapted)

    @property
    def ends_by_tool(self) -> bool:
        """Tell whether the model gives an output by a native tool call or schema, and not as text."""
        return False

    @property
    def reads_on(self) -> bool:
        """Tell whether the model can read on in results that are too long for it."""
        return True

    # The loop calls these only if a subclass overrides one of them.

    def call_one_tool(
        self, ctx: Context[Any], tool: AsyncBaseTool, tool_input: dict[str, Any]
    ) -> Coroutine[Any, Any, ToolOutput]:
        """Call a tool; an exception of the tool becomes an output."""
        return self._call_tool(ctx, tool, tool_input)

    def _call_tool(
        self, ctx: Context[Any], tool: AsyncBaseTool, tool_input: dict[str, Any]
    ) -> Coroutine[Any, Any, ToolOutput]:
        return run_tool(tool, tool_input, ctx=ctx, **call_options())

    async def _get_llm_response(
        self, ctx: Context[Any], llm_input: list[ChatMessage], llm: LLM | None = None
    ) -> ChatResponse:
        """Return an answer without tools, streamed if the agent streams its answers."""
        model = llm or self.the_llm()
        options = {name: value for name, value in self.request_options().items() if name != "tool_choice"}
        if self.streams_answer():
            return await streamed(ctx, await model.astream_chat(llm_input, **options), self.name)
        return await model.achat(llm_input, **whole_answer(model), **options)

    async def answer_now(self, ctx: Context[Any], messages: list[ChatMessage]) -> ChatResponse:
        """Return the model's answer to a conversation without tools."""
        response = await self._get_llm_response(ctx, messages)
        if response.stop_reason == PAUSED:
            response = await unpaused(response, lambda said: self._get_llm_response(ctx, [*messages, said]), self.name)
        return response

    def request_options(self) -> dict[str, Any]:
        """Return further options for the request to the model, which a middleware has set."""
        request = request_here.get()
        if request is None or request.agent != self.name:
            return {}
        choice = {} if request.tool_choice is None else {"tool_choice": request.tool_choice}
        return {**choice, **request.options}

    def streams_answer(self) -> bool:
        """Tell whether the next answer is streamed."""
        request = request_here.get()
        return self.streaming if request is None or request.agent != self.name else request.stream

    def llm_or_none(self) -> LLM | None:
        """Return the model of the run, or of the agent; None without one."""
        own: Any = self.llm  # a name became a model at construction
        item = current_item.get()
        return own if item is None or not has_options(item.run) else layers.llm_of_run(item.run, self, own)

    def the_llm(self) -> LLM:
        """The model.

        Raises:
            WorkflowRuntimeError: The agent has no model.
        """
        request = request_here.get()
        llm = self.llm_or_none() if request is None or request.agent != self.name else request.llm
        if llm is None:
            raise WorkflowRuntimeError(
                f'Agent {self.name} has no model: pass llm=, for example llm="openai:gpt-5.6" or an LLM object'
            )
        return llm


# The original methods, because a program may replace them in the class.
_CALL_ONE_TOOL: Any = BaseWorkflowAgent.call_one_tool
_CALL_TOOL: Any = getattr(BaseWorkflowAgent, "_call_tool")  # noqa: B009 - a private name
