"""The loop of every agent, written once: a single agent is a team of one.

::

    init_run ──> setup_agent ──> run_agent_step ──> parse_agent_output ──> call_tool (one for each call)
                      ^                                  │      │               │
                      └───────────── try again ──────────┘      │        aggregate_tool_results
                      └───────────── results, perhaps another agent ────────────┘
                                                                └──> the answer

What an agent thinks is the business of its three methods: ``take_step`` asks the model, ``handle_tool_call_results``
takes note of results, ``finalize`` brings the memory up to date.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, cast

from pydantic import BaseModel

from batonflow.agents.approvals import approved_arguments
from batonflow.agents.events import (
    AgentInput,
    AgentOutput,
    AgentSetup,
    AgentStreamStructuredOutput,
    AgentWorkflowStartEvent,
    ToolCall,
    ToolCallResult,
)
from batonflow.agents.handler import AgentHandler
from batonflow.agents.memory import BaseMemory, ChatMemoryBuffer
from batonflow.agents.output import structured_response
from batonflow.agents.prompts import EARLY_STOPPING, MAX_ITERATIONS_REACHED, ONE_HANDOFF
from batonflow.llms import LLM, ChatMessage, ChatResponse, MessageRole, TextBlock, Usage, track_usage
from batonflow.llms.prompts.base import fill
from batonflow.tools import AsyncBaseTool, ToolOutput, ToolSelection, run_tool
from batonflow.tools.call import (
    checked_arguments,
    error_output,
    may_need_approval,
    needs_approval,
    unknown_tool_output,
)
from batonflow.workflow_core import Context, StopEvent, Workflow, WorkflowHandler, WorkflowRuntimeError, step
from batonflow.workflow_core.events import StartEvent

__all__ = ["HANDOFF", "AgentLoop", "EarlyStopping", "Member", "Team"]

HANDOFF = "handoff"
"""The name of the tool with which an agent hands over."""

DEFAULT_MAX_ITERATIONS = 20
EarlyStopping = Literal["force", "generate"]


class Member(Protocol):
    """What the loop asks of an agent; each of these is explained at ``BaseWorkflowAgent``."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def system_prompt(self) -> str | None: ...
    @property
    def can_handoff_to(self) -> list[str] | None: ...
    @property
    def tool_retriever(self) -> Any: ...
    @property
    def output_cls(self) -> type[BaseModel] | None: ...
    @property
    def structured_output_fn(self) -> Callable[[list[ChatMessage]], Any] | None: ...
    @property
    def early_stopping_method(self) -> EarlyStopping: ...
    def the_llm(self) -> LLM: ...
    def llm_or_none(self) -> LLM | None: ...
    async def get_tools(self, input_str: str | None = None) -> Sequence[AsyncBaseTool]: ...
    async def call_one_tool(self, ctx: Context[Any], tool: AsyncBaseTool, tool_input: dict[str, Any]) -> ToolOutput: ...
    async def take_step(
        self, ctx: Context[Any], llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool], memory: BaseMemory
    ) -> AgentOutput: ...
    async def handle_tool_call_results(
        self, ctx: Context[Any], results: list[ToolCallResult], memory: BaseMemory
    ) -> None: ...
    async def finalize(self, ctx: Context[Any], output: AgentOutput, memory: BaseMemory) -> AgentOutput: ...


@dataclass(frozen=True)
class Team:
    """Who takes part in a loop, and what holds for all of them.

    Args:
        agents: The members by name.
        root: The member that begins.
        state_prompt: How the state is shown; has ``{state}`` and ``{msg}``.
        initial_state: What the state is at the beginning.
        early_stopping_method: What happens after the last allowed step.
        output_cls: A model of the structured answer.
        structured_output_fn: Makes the structured answer from the messages.
        stored: What else lies in the state store at the beginning.
    """

    agents: Mapping[str, Member]
    root: str
    state_prompt: str
    initial_state: dict[str, Any]
    early_stopping_method: EarlyStopping
    output_cls: type[BaseModel] | None = None
    structured_output_fn: Callable[[list[ChatMessage]], Any] | None = None
    stored: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def member(self, name: str | None) -> Member:
        """The member called ``name``; the root when there is none, as in events of other programs."""
        return self.agents.get(name or "") or self.agents[self.root]


class AgentLoop(Workflow):
    """A workflow that runs one agent, or several that hand over to one another."""

    run_handler_class: ClassVar[type[WorkflowHandler]] = AgentHandler

    @abstractmethod
    def _team(self) -> Team:
        """Who takes part."""

    async def _tools_for(self, agent: Member, text: str) -> Sequence[AsyncBaseTool]:
        """What ``agent`` may call in a conversation about ``text``."""
        return await agent.get_tools(text)

    def _may_hand_over(self, agent: Member, arguments: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Whether the handoff that ``agent`` asks for is permitted; a single agent has nobody to hand over to."""
        return False

    def run(  # pyright: ignore[reportIncompatibleMethodOverride] - an agent's own positional arguments
        self,
        user_msg: str | ChatMessage | Context[Any] | None = None,
        chat_history: list[ChatMessage] | StartEvent | None = None,
        memory: BaseMemory | None = None,
        ctx: Context[Any] | None = None,
        max_iterations: int | None = None,
        early_stopping_method: EarlyStopping | None = None,
        start_event: StartEvent | None = None,
        **kwargs: Any,
    ) -> AgentHandler:
        """Start a run and return its handler.

        Args:
            user_msg: What the user says. A Context here is taken as ``ctx``.
            chat_history: The conversation before it.
            memory: Keeps the conversation; one given here replaces that of ``ctx``.
            ctx: Carries memory and state from an earlier run, or a snapshot to go on with.
            max_iterations: How many answers the models may give, 20 by default.
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
            start_event, kwargs = AgentWorkflowStartEvent(**given, **kwargs), options
        return cast("AgentHandler", super().run(ctx=ctx, start_event=start_event, **kwargs))

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
        team = self._team()
        current = team.member(await ctx.store.get("current_agent_name", default=team.root))
        await ctx.store.set("current_agent_name", current.name)
        return AgentInput(input=await memory.aget(), current_agent_name=current.name)

    async def _init_context(self, ctx: Context[Any], ev: AgentWorkflowStartEvent) -> None:
        """What is given to this run wins over what an earlier run left, and that over the defaults."""
        team, store = self._team(), ctx.store
        llm = team.agents[team.root].llm_or_none()
        memory = ev.get("memory") or await store.get("memory", default=None) or ChatMemoryBuffer.from_defaults(llm=llm)
        if llm is not None and isinstance(memory, BaseMemory):
            # One that was restored has lost the model it makes summaries with.
            memory.attach_llm(llm)
        await store.set("memory", memory)
        if not await store.get("state", default=None):
            await store.set("state", deepcopy(team.initial_state))
        await store.set("max_iterations", ev.get("max_iterations") or DEFAULT_MAX_ITERATIONS)
        await store.set("early_stopping_method", ev.get("early_stopping_method") or team.early_stopping_method)
        for name, value in {**team.stored, "num_iterations": 0, "formatted_input_with_state": False}.items():
            await store.set(name, value)
        await store.set("current_tool_calls", [])
        await store.set("usage", {})

    @step
    async def setup_agent(self, ctx: Context, ev: AgentInput) -> AgentSetup:
        """Put the system prompt first, and the state around the newest message, in what is shown, not in the memory."""
        team, shown = self._team(), list(ev.input)
        prompt = team.member(ev.current_agent_name).system_prompt
        if prompt:
            shown.insert(0, ChatMessage(prompt, role=MessageRole.SYSTEM))
        state = await ctx.store.get("state", default=None)
        if state and not await ctx.store.get("formatted_input_with_state", default=False) and shown:
            shown[-1] = _with_state(shown[-1], state, team.state_prompt)
            await ctx.store.set("formatted_input_with_state", True)
        return AgentSetup(input=shown, current_agent_name=ev.current_agent_name)

    @step
    async def run_agent_step(self, ctx: Context, ev: AgentSetup) -> AgentOutput:
        """One answer of the model."""
        agent = self._team().member(ev.current_agent_name)
        memory: BaseMemory = await ctx.store.get("memory")
        tools = await self._tools_for(agent, await ctx.store.get("user_msg_str", default=""))
        with track_usage() as spent:
            output = await agent.take_step(ctx, ev.input, tools, memory)
        if spent.requests:
            output.usage = spent.usage
            await _add_usage(ctx, agent.name, spent.usage)
        ctx.write_event_to_stream(output)
        return output

    @step
    async def parse_agent_output(self, ctx: Context, ev: AgentOutput) -> StopEvent | AgentInput | ToolCall | None:
        """Decide how to go on: finish, try again, call tools, or stop early."""
        agent = self._team().member(ev.current_agent_name)
        memory: BaseMemory = await ctx.store.get("memory")
        iterations: int = await ctx.store.get("num_iterations", default=0) + 1
        await ctx.store.set("num_iterations", iterations)
        if not ev.tool_calls and not ev.retry_messages:
            return await self._answer(ctx, agent, ev, memory)
        limit: int = await ctx.store.get("max_iterations", default=DEFAULT_MAX_ITERATIONS)
        if iterations >= limit:
            return await self._stop_early(ctx, agent, memory, limit)
        if ev.retry_messages:
            shown = [*await memory.aget(), *ev.retry_messages]
            return AgentInput(input=shown, current_agent_name=ev.current_agent_name)
        await ctx.store.set("num_tool_calls", len(ev.tool_calls))
        for request in self._requests(agent, ev.tool_calls):
            ctx.send_event(request)
        return None

    def _requests(self, agent: Member, calls: Sequence[ToolSelection | ToolCallResult]) -> Sequence[ToolCall]:
        """An event for each call; of several handoffs the first permitted one is made, the others are refused."""
        handed_over, requests = False, list[ToolCall]()
        for position, call in enumerate(calls):
            request = ToolCall(tool_name=call.tool_name, tool_kwargs=call.tool_kwargs, tool_id=call.tool_id)
            request["position"] = position
            if isinstance(call, ToolSelection) and call.invalid_arguments is not None:
                request["invalid_arguments"] = call.invalid_arguments
            elif call.tool_name == HANDOFF and self._may_hand_over(agent, call.tool_kwargs):
                if handed_over:
                    request["refused"] = ONE_HANDOFF
                handed_over = True
            requests.append(request)
        return requests

    async def _answer(self, ctx: Context[Any], agent: Member, ev: AgentOutput, memory: BaseMemory) -> StopEvent:
        output = await agent.finalize(ctx, ev, memory)
        output.tool_calls.extend(await ctx.store.get("current_tool_calls", default=[]))
        asker = self._team()
        if asker.output_cls is None and asker.structured_output_fn is None:
            cls, function = agent.output_cls, agent.structured_output_fn
        else:
            cls, function = asker.output_cls, asker.structured_output_fn
        with track_usage() as spent:
            data = await structured_response(agent.llm_or_none(), await memory.aget(), cls, function)
        if spent.requests:
            await _add_usage(ctx, agent.name, spent.usage)
        if data is not None:
            output.structured_response = data
            ctx.write_event_to_stream(AgentStreamStructuredOutput(output=data))
        return await _ended(ctx, output)

    async def _stop_early(self, ctx: Context[Any], agent: Member, memory: BaseMemory, limit: int) -> StopEvent:
        """After the last allowed step: an error, or an answer from what was gathered."""
        if await ctx.store.get("early_stopping_method", default=agent.early_stopping_method) != "generate":
            raise WorkflowRuntimeError(MAX_ITERATIONS_REACHED.format(max_iterations=limit))
        nothing = ChatMessage("", role=MessageRole.ASSISTANT)
        await agent.finalize(ctx, AgentOutput(response=nothing, current_agent_name=agent.name), memory)
        shown = await memory.aget()
        if agent.system_prompt:
            shown = [ChatMessage(agent.system_prompt, role=MessageRole.SYSTEM), *shown]
        closing = ChatMessage(EARLY_STOPPING.format(max_iterations=limit), role=MessageRole.SYSTEM)
        with track_usage() as spent:
            response: ChatResponse = await agent.the_llm().achat([*shown, closing])
        if spent.requests:
            await _add_usage(ctx, agent.name, spent.usage)
        await memory.aput(response.message)
        output = AgentOutput(
            response=response.message,
            tool_calls=await ctx.store.get("current_tool_calls", default=[]),
            raw=response.raw,
            current_agent_name=agent.name,
        )
        ended = await _ended(ctx, output)
        ctx.write_event_to_stream(output)
        return ended

    @step
    async def call_tool(self, ctx: Context, ev: ToolCall) -> ToolCallResult:
        """Call one tool; whatever happens, there is one result."""
        ctx.write_event_to_stream(ToolCall(tool_name=ev.tool_name, tool_kwargs=ev.tool_kwargs, tool_id=ev.tool_id))
        agent = self._team().member(await ctx.store.get("current_agent_name", default=None))
        tool = await self._find_tool(ctx, agent, ev.tool_name)
        if isinstance(tool, ToolOutput):
            output = tool
        elif ev.get("refused") is not None:
            output = ToolOutput(tool_name=ev.tool_name, content=ev["refused"], raw_input=ev.tool_kwargs, is_error=True)
        elif ev.get("invalid_arguments") is not None:
            output = await run_tool(tool, ev.tool_kwargs, ctx=ctx, invalid_arguments=ev["invalid_arguments"])
        else:
            output = await self._call(ctx, agent, tool, ev)
        result = ToolCallResult(
            tool_name=ev.tool_name,
            tool_kwargs=ev.tool_kwargs,
            tool_id=ev.tool_id,
            tool_output=output,
            return_direct=not isinstance(tool, ToolOutput) and tool.metadata.return_direct,
        )
        result["position"] = ev.get("position", 0)
        ctx.write_event_to_stream(result)
        return result

    async def _call(self, ctx: Context[Any], agent: Member, tool: AsyncBaseTool, ev: ToolCall) -> ToolOutput:
        """Run a tool, after a person has agreed where one must."""
        if not may_need_approval(tool):
            return await agent.call_one_tool(ctx, tool, ev.tool_kwargs)
        try:
            checked = checked_arguments(tool, ev.tool_kwargs)
            if not await needs_approval(tool, checked):
                return await run_tool(tool, ev.tool_kwargs, ctx=ctx, approved=True)
            turn = await ctx.store.get("num_iterations", default=0)
            call = f"{turn}.{ev.get('position', 0)}.{ev.tool_id}"
            arguments = await approved_arguments(ctx, tool, checked, call=call, agent=agent.name)
        except Exception as err:  # noqa: BLE001 - a predicate or validator of the user's may raise anything
            return error_output(ev.tool_name, ev.tool_kwargs, err)
        if isinstance(arguments, str):
            return ToolOutput(tool_name=ev.tool_name, content=arguments, raw_input=ev.tool_kwargs, is_error=True)
        return await run_tool(tool, arguments, ctx=ctx, approved=True)

    async def _find_tool(self, ctx: Context[Any], agent: Member, name: str) -> AsyncBaseTool | ToolOutput:
        """The tool that is meant; what the model is told when there is none."""
        tools: dict[str, AsyncBaseTool] = {}
        # A retriever that found a tool for the message may know it by its name alone in a run that was restored.
        for text in (await ctx.store.get("user_msg_str", default=""), name):
            found = await self._tools_for(agent, text if isinstance(text, str) else name)
            tools |= {tool.metadata.get_name(): tool for tool in found}
            if name in tools or agent.tool_retriever is None:
                break
        return tools[name] if name in tools else unknown_tool_output(name, {}, tools)

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
        team = self._team()
        agent = team.member(await ctx.store.get("current_agent_name", default=None))
        memory: BaseMemory = await ctx.store.get("memory")
        so_far: list[ToolCallResult] = [*await ctx.store.get("current_tool_calls", default=[]), *results]
        await ctx.store.set("current_tool_calls", so_far)
        await agent.handle_tool_call_results(ctx, results, memory)
        direct = next((one for one in results if one.return_direct and not one.tool_output.is_error), None)
        if direct is not None:
            output = await agent.finalize(ctx, _direct_output(agent.name, direct, so_far), memory)
            if direct.tool_name != HANDOFF:
                return await _ended(ctx, output)
        current = await self._hand_over(ctx, agent)
        asked: str = await ctx.store.get("user_msg_str", default="")
        return AgentInput(input=await memory.aget(input=asked), current_agent_name=current)

    async def _hand_over(self, ctx: Context[Any], agent: Member) -> str:  # noqa: ARG002
        """Who goes on; the same agent unless it handed over."""
        return agent.name


def _text(message: ChatMessage) -> str:
    return "\n".join(block.text for block in message.blocks if isinstance(block, TextBlock))


def _with_state(message: ChatMessage, state: dict[str, Any], prompt: str) -> ChatMessage:
    blocks = list(message.blocks)
    for index in range(len(blocks) - 1, -1, -1):
        block = blocks[index]
        if isinstance(block, TextBlock):
            blocks[index] = TextBlock(text=fill(prompt, {"state": state, "msg": block.text}))
            break
    return ChatMessage(blocks, role=message.role, additional_kwargs=message.additional_kwargs)


def _direct_output(name: str, direct: ToolCallResult, so_far: Sequence[ToolCallResult]) -> AgentOutput:
    """The output of a tool as the answer."""
    calls: list[ToolSelection | ToolCallResult] = [
        ToolSelection(tool_id=call.tool_id, tool_name=call.tool_name, tool_kwargs=call.tool_kwargs) for call in so_far
    ]
    message = ChatMessage(direct.tool_output.content or "", role=MessageRole.ASSISTANT)
    return AgentOutput(response=message, tool_calls=calls, raw=direct.tool_output.raw_output, current_agent_name=name)


async def _add_usage(ctx: Context[Any], name: str, usage: Usage) -> None:
    totals: dict[str, Usage] = dict(await ctx.store.get("usage", default={}))
    totals[name] = totals.get(name, Usage()) + usage
    await ctx.store.set("usage", totals)


async def _ended(ctx: Context[Any], output: AgentOutput) -> StopEvent:
    """The end of a run, with what it took."""
    totals: Any = await ctx.store.get("usage", default=None)
    if isinstance(totals, dict):  # a store that stands in for one in a test has anything but that
        output.usage_by_agent = dict(cast("dict[str, Usage]", totals))
        output.usage = sum(output.usage_by_agent.values(), Usage()) if totals else None
    await ctx.store.set("current_tool_calls", [])
    return StopEvent(result=output)
