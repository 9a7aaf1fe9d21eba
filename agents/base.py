"""BaseWorkflowAgent: the loop of an agent as a workflow; subclasses say how one step of thinking goes."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, ClassVar, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator

from batonflow.agents.events import (
    AgentInput,
    AgentOutput,
    AgentSetup,
    AgentStreamStructuredOutput,
    AgentWorkflowStartEvent,
    ToolCall,
    ToolCallResult,
)
from batonflow.agents.memory import BaseMemory, ChatMemoryBuffer
from batonflow.agents.output import structured_response
from batonflow.agents.prompts import EARLY_STOPPING, MAX_ITERATIONS_REACHED, STATE_PROMPT
from batonflow.llms import LLM, ChatMessage, ChatResponse, MessageRole, TextBlock, Usage, track_usage
from batonflow.llms.registry import llm_from
from batonflow.tools import (
    AsyncBaseTool,
    BaseTool,
    FunctionTool,
    ToolOutput,
    ToolSelection,
    adapt_to_async_tool,
    run_tool,
)
from batonflow.tools.call import unknown_tool_output
from batonflow.workflow_core import Context, StopEvent, Workflow, WorkflowHandler, WorkflowRuntimeError, step
from batonflow.workflow_core.events import StartEvent

__all__ = ["BaseWorkflowAgent"]

DEFAULT_MAX_ITERATIONS = 20
EarlyStopping = Literal["force", "generate"]
_WORKFLOW_OPTIONS = (
    "timeout", "verbose", "store", "on_stall", "timeout_excludes_waiting", "num_concurrent_runs", "resource_manager",
    "serializer", "version", "types", "workflows", "workflow_name", "disable_validation", "skip_graph_checks",
)  # fmt: skip


class BaseWorkflowAgent(Workflow, BaseModel):  # pyright: ignore[reportIncompatibleMethodOverride] - validate() is Workflow's
    """An agent: a model that is shown a conversation and tools, again and again, until it answers.

    Subclasses say how one step goes by ``take_step``, ``handle_tool_call_results`` and ``finalize``.

    Args:
        name: Names the agent in events and in a team.
        description: Says what it is for.
        system_prompt: Put before every conversation.
        tools: Tools or plain functions.
        tool_retriever: Finds more tools for a message; has ``aretrieve(text)``.
        can_handoff_to: Names of the agents of a team it may hand over to; None for all.
        llm: A model, or its name: ``"openai:gpt-5.6"``.
        initial_state: State that the model is shown and tools may change, under the key ``state``.
        state_prompt: How the state is shown; has ``{state}`` and ``{msg}``.
        output_cls: A model of the structured answer.
        structured_output_fn: Makes the structured answer from the messages.
        streaming: Stream the model's answers.
        early_stopping_method: After ``max_iterations`` steps: ``"force"`` an error, or ``"generate"`` an answer.
        options: Options of ``Workflow``: ``timeout`` (None unless given), ``verbose``, ``store`` and so on.

    Raises:
        ValueError: A tool is called ``handoff``, which teams use themselves, or is no tool.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    name: str = "Agent"
    description: str = "An agent that can perform a task"
    system_prompt: str | None = None
    tools: list[BaseTool | Callable[..., Any]] = Field(default_factory=list[BaseTool | Callable[..., Any]])
    tool_retriever: Any = None
    can_handoff_to: list[str] | None = None
    llm: LLM | str | None = None
    initial_state: dict[str, Any] = Field(default_factory=dict[str, Any])
    state_prompt: str = STATE_PROMPT
    output_cls: type[BaseModel] | None = Field(default=None, exclude=True)
    structured_output_fn: Callable[[list[ChatMessage]], Any] | None = Field(default=None, exclude=True)
    streaming: bool = True
    early_stopping_method: EarlyStopping = "force"

    __hash__: ClassVar[Any] = object.__hash__  # an agent is itself, whatever its fields say

    def __init__(self, **options: Any) -> None:
        workflow_options = {name: options.pop(name) for name in _WORKFLOW_OPTIONS if name in options}
        workflow_options.setdefault("timeout", None)
        fields = {name: value for name, value in options.items() if value is not None}
        BaseModel.__init__(self, **fields)
        Workflow.__init__(self, **workflow_options)
        if self.output_cls is not None:
            self.structured_output_fn = None

    def __eq__(self, other: object) -> bool:
        return self is other

    @field_validator("llm", mode="before")
    @classmethod
    def _named_llm(cls, value: Any) -> Any:
        return llm_from(value) if isinstance(value, str) else value

    @field_validator("tools", mode="before")
    @classmethod
    def _as_tools(cls, value: Any) -> list[BaseTool]:
        found: list[BaseTool] = []
        for tool in cast("Sequence[Any]", value or ()):
            if not isinstance(tool, BaseTool) and not callable(tool):
                raise ValueError(f"tools takes tools and functions, got {type(tool).__name__}")
            made = tool if isinstance(tool, BaseTool) else FunctionTool.from_defaults(tool)
            if made.metadata.name == "handoff":
                raise ValueError("The tool name 'handoff' is reserved for teams of agents: rename the tool")
            found.append(made)
        return found

    # --- what a subclass says -----------------------------------------------------------------------------------------

    @abstractmethod
    async def take_step(
        self, ctx: Context[Any], llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool], memory: BaseMemory
    ) -> AgentOutput:
        """Show the model the conversation and return what it says."""

    @abstractmethod
    async def handle_tool_call_results(
        self, ctx: Context[Any], results: list[ToolCallResult], memory: BaseMemory
    ) -> None:
        """Take note of what the tools gave back, in the order of the calls."""

    @abstractmethod
    async def finalize(self, ctx: Context[Any], output: AgentOutput, memory: BaseMemory) -> AgentOutput:
        """Bring the memory up to date with a finished answer."""

    # --- helpers ------------------------------------------------------------------------------------------------------

    async def get_tools(self, input_str: str | None = None) -> Sequence[AsyncBaseTool]:
        """The agent's tools, and those that the retriever finds for a text."""
        found = cast("list[BaseTool]", list(self.tools))  # functions have become tools at construction
        if self.tool_retriever is not None:
            found.extend(await self.tool_retriever.aretrieve(input_str or ""))
        return [adapt_to_async_tool(tool) for tool in found]

    async def _call_tool(self, ctx: Context[Any], tool: AsyncBaseTool, tool_input: dict[str, Any]) -> ToolOutput:
        return await run_tool(tool, tool_input, ctx=ctx)

    def _llm_or_none(self) -> LLM | None:
        return self.llm if isinstance(self.llm, LLM) else None  # a name has become a model at construction

    def the_llm(self) -> LLM:
        """The model.

        Raises:
            WorkflowRuntimeError: The agent has none.
        """
        if not isinstance(self.llm, LLM):
            raise WorkflowRuntimeError(
                f'Agent {self.name} has no model: pass llm=, for example llm="openai:gpt-5.6" or an LLM object'
            )
        return self.llm

    def run(  # pyright: ignore[reportIncompatibleMethodOverride] - the agent's own positional arguments
        self,
        user_msg: str | ChatMessage | Context[Any] | None = None,
        chat_history: list[ChatMessage] | StartEvent | None = None,
        memory: BaseMemory | None = None,
        ctx: Context[Any] | None = None,
        max_iterations: int | None = None,
        early_stopping_method: EarlyStopping | None = None,
        start_event: StartEvent | None = None,
        **kwargs: Any,
    ) -> WorkflowHandler:
        """Start a run and return its handler.

        Args:
            user_msg: What the user says. A Context here is taken as ``ctx``.
            chat_history: The conversation before it.
            memory: Keeps the conversation; one given here replaces that of ``ctx``.
            ctx: Carries memory and state from an earlier run, or a snapshot to go on with.
            max_iterations: How many answers the model may give, 20 by default.
            early_stopping_method: What to do then.
            start_event: The event to start with, instead of the arguments before.
            kwargs: ``run_id``, and further values for the start event.

        Example:
            >>> handler = agent.run("What is 2 + 40?")
            >>> print(await handler)
        """
        if isinstance(user_msg, Context):
            ctx, user_msg = user_msg, None
            if isinstance(chat_history, StartEvent):
                start_event, chat_history = chat_history, None
        if start_event is None and not (ctx is not None and ctx.is_resumable):
            given = {
                "user_msg": user_msg,
                "chat_history": chat_history,
                "memory": memory,
                "max_iterations": max_iterations,
                "early_stopping_method": early_stopping_method,
            }
            options = {name: kwargs.pop(name) for name in ("run_id", "stepwise") if name in kwargs}
            given = {name: value for name, value in given.items() if value is not None}
            return super().run(ctx=ctx, start_event=AgentWorkflowStartEvent(**given, **kwargs), **options)
        return super().run(ctx=ctx, start_event=start_event, **kwargs)

    # --- steps --------------------------------------------------------------------------------------------------------

    @step
    async def init_run(self, ctx: Context, ev: AgentWorkflowStartEvent) -> AgentInput:
        """Set the run's memory, state and limits, and put the user's message into the memory."""
        await self._init_context(ctx, ev)
        memory: BaseMemory = await ctx.store.get("memory")
        user_msg, history = ev.get("user_msg"), ev.get("chat_history")
        if isinstance(user_msg, str):
            user_msg = ChatMessage(user_msg)
        if history:
            await memory.aset(history)
        if user_msg is not None:
            await memory.aput(user_msg)
            await ctx.store.set("user_msg_str", _text(user_msg))
        elif history:
            asked = [message for message in history if message.role == MessageRole.USER]
            await ctx.store.set("user_msg_str", _text(asked[-1]) if asked else "")
        else:
            raise ValueError("Must provide either user_msg or chat_history")
        return AgentInput(input=await memory.aget(), current_agent_name=self.name)

    async def _init_context(self, ctx: Context[Any], ev: AgentWorkflowStartEvent) -> None:
        """What is given to this run wins over what an earlier run left, and that over the defaults."""
        store = ctx.store
        memory = ev.get("memory") or await store.get("memory", default=None)
        await store.set("memory", memory or ChatMemoryBuffer.from_defaults(llm=self._llm_or_none()))
        if not await store.get("state", default=None):
            await store.set("state", deepcopy(self.initial_state))
        await store.set("max_iterations", ev.get("max_iterations") or DEFAULT_MAX_ITERATIONS)
        await store.set("early_stopping_method", ev.get("early_stopping_method") or self.early_stopping_method)
        await store.set("num_iterations", 0)
        await store.set("formatted_input_with_state", False)
        await store.set("current_tool_calls", [])
        await store.set("usage", {})

    @step
    async def setup_agent(self, ctx: Context, ev: AgentInput) -> AgentSetup:
        """Put the system prompt first, and the state around the newest message, in what is shown, not in the memory."""
        shown = list(ev.input)
        if self.system_prompt:
            shown.insert(0, ChatMessage(self.system_prompt, role=MessageRole.SYSTEM))
        state = await ctx.store.get("state", default=None)
        if state and not await ctx.store.get("formatted_input_with_state", default=False) and shown:
            shown[-1] = self._with_state(shown[-1], state)
            await ctx.store.set("formatted_input_with_state", True)
        return AgentSetup(input=shown, current_agent_name=ev.current_agent_name)

    def _with_state(self, message: ChatMessage, state: dict[str, Any]) -> ChatMessage:
        blocks = list(message.blocks)
        for index in range(len(blocks) - 1, -1, -1):
            block = blocks[index]
            if isinstance(block, TextBlock):
                blocks[index] = TextBlock(text=self.state_prompt.format(state=state, msg=block.text))
                break
        return ChatMessage(blocks, role=message.role, additional_kwargs=message.additional_kwargs)

    @step
    async def run_agent_step(self, ctx: Context, ev: AgentSetup) -> AgentOutput:
        """One answer of the model."""
        memory: BaseMemory = await ctx.store.get("memory")
        tools = await self.get_tools(await ctx.store.get("user_msg_str", default=""))
        with track_usage() as spent:
            output = await self.take_step(ctx, ev.input, tools, memory)
        if spent.requests:
            output.usage = spent.usage
            await self._add_usage(ctx, spent.usage)
        ctx.write_event_to_stream(output)
        return output

    async def _add_usage(self, ctx: Context[Any], usage: Usage) -> None:
        totals: dict[str, Usage] = dict(await ctx.store.get("usage", default={}))
        totals[self.name] = totals.get(self.name, Usage()) + usage
        await ctx.store.set("usage", totals)

    async def _ended(self, ctx: Context[Any], output: AgentOutput) -> StopEvent:
        """The end of a run, with what it took."""
        totals: Any = await ctx.store.get("usage", default=None)
        if isinstance(totals, dict):  # a store that stands in for one in a test has anything but that
            output.usage_by_agent = dict(cast("dict[str, Usage]", totals))
            output.usage = sum(output.usage_by_agent.values(), Usage()) if totals else None
        await ctx.store.set("current_tool_calls", [])
        return StopEvent(result=output)

    @step
    async def parse_agent_output(self, ctx: Context, ev: AgentOutput) -> StopEvent | AgentInput | ToolCall | None:
        """Decide how to go on: finish, try again, call tools, or stop early."""
        memory: BaseMemory = await ctx.store.get("memory")
        iterations: int = await ctx.store.get("num_iterations", default=0) + 1
        await ctx.store.set("num_iterations", iterations)
        if not ev.tool_calls and not ev.retry_messages:
            return await self._answer(ctx, ev, memory)
        limit: int = await ctx.store.get("max_iterations", default=DEFAULT_MAX_ITERATIONS)
        if iterations >= limit:
            return await self._stop_early(ctx, memory, limit)
        if ev.retry_messages:
            return AgentInput(
                input=[*await memory.aget(), *ev.retry_messages], current_agent_name=ev.current_agent_name
            )
        await ctx.store.set("num_tool_calls", len(ev.tool_calls))
        for position, call in enumerate(ev.tool_calls):
            request = ToolCall(tool_name=call.tool_name, tool_kwargs=call.tool_kwargs, tool_id=call.tool_id)
            request["position"] = position
            if isinstance(call, ToolSelection) and call.invalid_arguments is not None:
                request["invalid_arguments"] = call.invalid_arguments
            ctx.send_event(request)
        return None

    async def _answer(self, ctx: Context[Any], ev: AgentOutput, memory: BaseMemory) -> StopEvent:
        output = await self.finalize(ctx, ev, memory)
        output.tool_calls.extend(await ctx.store.get("current_tool_calls", default=[]))
        with track_usage() as spent:
            data = await structured_response(
                self._llm_or_none(), await memory.aget(), self.output_cls, self.structured_output_fn
            )
        if spent.requests:
            await self._add_usage(ctx, spent.usage)
        if data is not None:
            output.structured_response = data
            ctx.write_event_to_stream(AgentStreamStructuredOutput(output=data))
        return await self._ended(ctx, output)

    async def _stop_early(self, ctx: Context[Any], memory: BaseMemory, limit: int) -> StopEvent:
        """After the last allowed step: an error, or an answer from what was gathered."""
        if await ctx.store.get("early_stopping_method", default=self.early_stopping_method) != "generate":
            raise WorkflowRuntimeError(MAX_ITERATIONS_REACHED.format(max_iterations=limit))
        gathered = await self.finalize(
            ctx, AgentOutput(response=ChatMessage("", role=MessageRole.ASSISTANT), current_agent_name=self.name), memory
        )
        shown = await memory.aget()
        if self.system_prompt:
            shown = [ChatMessage(self.system_prompt, role=MessageRole.SYSTEM), *shown]
        closing = ChatMessage(EARLY_STOPPING.format(max_iterations=limit), role=MessageRole.SYSTEM)
        with track_usage() as spent:
            response: ChatResponse = await self.the_llm().achat([*shown, closing])
        if spent.requests:
            await self._add_usage(ctx, spent.usage)
        await memory.aput(response.message)
        output = AgentOutput(
            response=response.message,
            tool_calls=await ctx.store.get("current_tool_calls", default=[]),
            raw=response.raw,
            current_agent_name=gathered.current_agent_name,
        )
        ended = await self._ended(ctx, output)
        ctx.write_event_to_stream(output)
        return ended

    @step
    async def call_tool(self, ctx: Context, ev: ToolCall) -> ToolCallResult:
        """Call one tool; whatever happens, there is one result."""
        ctx.write_event_to_stream(ToolCall(tool_name=ev.tool_name, tool_kwargs=ev.tool_kwargs, tool_id=ev.tool_id))
        tools = {tool.metadata.get_name(): tool for tool in await self.get_tools(ev.tool_name)}
        tool = tools.get(ev.tool_name)
        if tool is None:
            output = unknown_tool_output(ev.tool_name, ev.tool_kwargs, tools)
        elif ev.get("invalid_arguments") is not None:
            output = await run_tool(tool, ev.tool_kwargs, ctx=ctx, invalid_arguments=ev.get("invalid_arguments"))
        else:
            output = await self._call_tool(ctx, tool, ev.tool_kwargs)
        result = ToolCallResult(
            tool_name=ev.tool_name,
            tool_kwargs=ev.tool_kwargs,
            tool_id=ev.tool_id,
            tool_output=output,
            return_direct=tool.metadata.return_direct if tool is not None else False,
        )
        result["position"] = ev.get("position", 0)
        ctx.write_event_to_stream(result)
        return result

    @step
    async def aggregate_tool_results(self, ctx: Context, ev: ToolCallResult) -> AgentInput | StopEvent | None:
        """Wait for all results of an answer, and show them to the model in the order of its calls."""
        expected: int = await ctx.store.get("num_tool_calls", default=0)
        if expected == 0:
            raise ValueError("No tool calls found, cannot aggregate results.")
        arrived = ctx.collect_events(ev, [ToolCallResult] * expected)
        if arrived is None:
            return None
        results = sorted(cast("list[ToolCallResult]", arrived), key=lambda result: result.get("position", 0))
        memory: BaseMemory = await ctx.store.get("memory")
        so_far: list[ToolCallResult] = [*await ctx.store.get("current_tool_calls", default=[]), *results]
        await ctx.store.set("current_tool_calls", so_far)
        await self.handle_tool_call_results(ctx, results, memory)
        direct = next((r for r in results if r.return_direct and not r.tool_output.is_error), None)
        if direct is not None:
            return await self._return_direct(ctx, direct, so_far, memory)
        asked: str = await ctx.store.get("user_msg_str", default="")
        return AgentInput(input=await memory.aget(input=asked), current_agent_name=self.name)

    async def _return_direct(
        self, ctx: Context[Any], direct: ToolCallResult, so_far: list[ToolCallResult], memory: BaseMemory
    ) -> StopEvent:
        """The output of a tool is the answer."""
        message = ChatMessage(direct.tool_output.content or "", role=MessageRole.ASSISTANT)
        calls: list[ToolSelection | ToolCallResult] = [
            ToolSelection(tool_id=call.tool_id, tool_name=call.tool_name, tool_kwargs=call.tool_kwargs)
            for call in so_far
        ]
        output = AgentOutput(
            response=message, tool_calls=calls, raw=direct.tool_output.raw_output, current_agent_name=self.name
        )
        return await self._ended(ctx, await self.finalize(ctx, output, memory))


def _text(message: ChatMessage) -> str:
    return "\n".join(block.text for block in message.blocks if isinstance(block, TextBlock))
