"""The loop of every agent, written once: a single agent is a team of one.

::

    init_run ──> setup_agent ──> run_agent_step ──> parse_agent_output ──> call_tool (one for each call)
                      ^                                  │      │               │
                      └───────────── try again ──────────┘      │        aggregate_tool_results
                      └───────────── results, perhaps another agent ────────────┘
                                                                └──> the answer

What an agent thinks is the business of its three methods: ``take_step`` asks the model, ``handle_tool_call_results``
takes note of results, ``finalize`` brings the memory up to date. Private names that begin with ``_bf_`` are ours, the
other ones are left to the subclasses that users write.
"""

from abc import abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar, cast

from batonflow.agents.as_tool import AgentTool, attach_agents
from batonflow.agents.budget import Budget, BudgetExceededError, Limits, ledger_of, paying
from batonflow.agents.calling import (
    ARRIVED,
    BUDGET_ANSWER,
    LEDGER,
    REFUSED,
    TOOLS_RUN,
    Performed,
    in_time,
    perform,
    refusal_output,
    spending,
)
from batonflow.agents.events import (
    AgentInput,
    AgentOutput,
    AgentSetup,
    AgentStreamStructuredOutput,
    AgentWorkflowStartEvent,
    ToolCall,
    ToolCallResult,
)
from batonflow.agents.forking import AgentForks
from batonflow.agents.handler import AgentHandler
from batonflow.agents.hooks import blocked
from batonflow.agents.members import CALLED, HANDOFF_TOOL, EarlyStopping, Member, Team, check_options, warn_of_misspelt
from batonflow.agents.memory import BaseMemory, ChatMemoryBuffer
from batonflow.agents.memory.turns import is_question, text_of
from batonflow.agents.outcomes import (
    as_output,
    awaitable,
    blocked_output,
    direct_output,
    form_is_blocked,
    last_answer,
    nothing_said,
    result_of,
    with_text,
)
from batonflow.agents.prompts import (
    BUDGET_EXCEEDED,
    EARLY_STOPPING,
    GOES_ON,
    MAX_ITERATIONS_REACHED,
    NO_STEPS_LEFT,
    ONE_HANDOFF,
)
from batonflow.agents.results import LONG_RESULTS, READ_RESULT, cut_text, read_result, whole_text
from batonflow.agents.shown_state import with_shown_state
from batonflow.agents.tracing import is_traced, traced
from batonflow.agents.unfinished import close_turn, left_over
from batonflow.instrumentation.logs import logger_named
from batonflow.lazy import at_first_use
from batonflow.llms import ChatMessage, MessageRole, Usage, genai
from batonflow.llms.tool_protocol import wire_name
from batonflow.tools import AsyncBaseTool, ToolOutput, ToolSelection, run_tool
from batonflow.tools.call import unknown_tool_output
from batonflow.workflow_core import Context, StopEvent, WorkflowHandler, WorkflowRuntimeError, step
from batonflow.workflow_core.events import StartEvent
from batonflow.workflow_core.stored_runs import check_context

__all__ = ["AgentLoop"]

structured_response = at_first_use("batonflow.agents.output", "structured_response")

logger = logger_named(__name__)

DEFAULT_MAX_ITERATIONS = 20
_OVER_BUDGET = "over_budget"
_Calls = Sequence[ToolSelection | ToolCallResult]


class AgentLoop(AgentForks):
    """A workflow that runs one agent, or several that hand over to one another."""

    name: str
    description: str

    __batonflow_id_matters__: ClassVar[bool] = True  # keys of tool calls, sessions of code
    __batonflow_handler__: ClassVar[type[WorkflowHandler]] = AgentHandler
    __batonflow_called__: ClassVar[frozenset[str]] = CALLED

    def trace_tags(self) -> dict[str, Any]:
        """What the span of a run is tagged with."""
        return {
            genai.OPERATION: "invoke_agent",
            genai.AGENT_NAME: self.name,
            genai.AGENT_DESCRIPTION: self.description,
        }

    @abstractmethod
    def _bf_team(self) -> Team:
        """What holds for all."""

    @abstractmethod
    def _bf_member(self, name: str | None) -> Member:
        """The member called ``name``; the root when there is none, as in events of other programs."""

    @abstractmethod
    def _bf_state_template(self) -> str:
        """How the state is shown; has ``{state}`` and ``{msg}``."""

    def _bf_tools_for(self, agent: Member, text: str) -> Coroutine[Any, Any, Sequence[AsyncBaseTool]]:
        """What ``agent`` may call in a conversation about ``text``."""
        return agent.get_tools(text)

    def _bf_may_hand_over(self, agent: Member, arguments: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Whether the handoff that ``agent`` asks for is permitted; a single agent has nobody to hand over to."""
        return False

    async def _bf_forgotten_handoff(self, ctx: Context[Any], agent: Member, said: ChatMessage) -> str | None:  # noqa: ARG002
        """What to tell an agent that says it hands over and does not; None when it does not say so."""
        return None

    async def _bf_hand_over(self, ctx: Context[Any], agent: Member) -> str:  # noqa: ARG002
        """Who goes on; the same agent unless it handed over."""
        return agent.name

    async def _bf_name_next(self, ctx: Context[Any]) -> None:
        """The run ends with the answer of a tool, beside which the agent may have handed over."""

    async def _bf_memory(self, ctx: Context[Any], agent: Member) -> BaseMemory:  # noqa: ARG002
        """The conversation as ``agent`` knows it."""
        return await ctx.store.get("memory")

    async def _bf_ended(self, ctx: Context[Any], output: AgentOutput) -> StopEvent:
        """The end of a run, with what it took."""
        totals: Any = await ctx.store.get("usage", default=None)
        # A store that stands in for one in a test has anything but a dict.
        if isinstance(totals, dict) and (totals or output.usage is not None or output.usage_by_agent):
            output.usage_by_agent = dict(cast("dict[str, Usage]", totals))
            output.usage = sum(output.usage_by_agent.values(), Usage()) if totals else None
        await ctx.store.set("current_tool_calls", [])
        return StopEvent(result=output)

    def as_tool(self, name: str | None = None, description: str | None = None) -> AgentTool:
        """This agent or team as a tool of another agent: it works in a run of its own, inside the caller's.

        Args:
            name: What models call it; its own name when left out.
            description: What models read of it; its own description when left out.

        Example:
            >>> editor = FunctionAgent(name="editor", llm=llm, tools=[researcher.as_tool()])
        """
        return AgentTool(cast("Any", self), name or self.name, description or self.description)

    def speaks_in(self, path: str) -> bool:
        """Whether what is said in a run inside this one, or in itself, is said in its name; a tool's is not."""
        return not path

    def _bf_all_tools(self) -> Sequence[Any]:
        """The tools of all who take part."""
        return ()

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
    ) -> AgentHandler:
        """Start a run and return its handler.

        Args:
            user_msg: What the user says. A Context here is taken as ``ctx``.
            chat_history: The conversation before it.
            memory: Keeps the conversation; one given here replaces that of ``ctx``.
            ctx: Carries memory and state from an earlier run, or a snapshot to go on with. One that was cancelled goes
                on when nothing is said here, else what is said begins a turn of its own.
            max_iterations: How many answers the models may give, 20 by default.
            early_stopping_method: What to do then.
            start_event: The event to start with, instead of the arguments before.
            budget: What this run may spend, beside what agents and team say.
            kwargs: ``run_id``, and further values for the start event.

        Raises:
            TypeError: ``ctx`` is no Context.
            ValueError: Another argument is not what it may be; the text names it.

        Example:
            >>> handler = agent.run("What is 2 + 40?")
            >>> print(await handler)
        """
        attach_agents(self, self._bf_all_tools())  # some are put there after construction
        check_options(max_iterations, early_stopping_method, budget)
        warn_of_misspelt(kwargs, type(self).__name__)
        if isinstance(user_msg, Context):
            ctx, user_msg = user_msg, None
            if isinstance(chat_history, StartEvent):
                start_event, chat_history = chat_history, None
        check_context(ctx)
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
        # Before the context is touched, as it may be refused.
        begins = AgentWorkflowStartEvent(**given, **kwargs) if start_event is None else start_event
        if ctx is not None and (start_event is not None or user_msg is not None or chat_history):
            ctx.leave_cancelled_run()
        if ctx is not None and ctx.is_resumable:
            if given:
                logger.warning(GOES_ON.format(names=", ".join(given)))
        elif start_event is None:
            start_event, kwargs = begins, {}
        return cast("AgentHandler", super().run(ctx=ctx, start_event=start_event, **options, **kwargs))

    @step
    async def init_run(self, ctx: Context, ev: AgentWorkflowStartEvent) -> AgentInput | StopEvent:
        """Set the run's memory, state and limits, and put the user's message into the memory."""
        await self._bf_close_failed_turn(ctx)
        await self._init_context(ctx, ev)
        user_msg, history = ev.get("user_msg"), ev.get("chat_history")
        if isinstance(user_msg, str):
            # A text of a class of its own, as a member of an enum, becomes a plain one.
            user_msg = ChatMessage.of_text(user_msg) if type(user_msg) is str else ChatMessage(user_msg)
        if user_msg is None and not history:
            raise ValueError("Must provide either user_msg or chat_history")
        asked = [user_msg] if user_msg is not None else [one for one in history if is_question(one)]
        current = self._bf_member(await ctx.store.get("current_agent_name", default=None))
        await ctx.store.set("current_agent_name", current.name)
        if current.input_guards and asked:
            await self._bf_limits(ctx, current)  # from here on time counts
            reason = await blocked(current.input_guards, ctx, asked[-1])
            if reason is not None:
                return await self._bf_ended(ctx, blocked_output(current, reason, "input"))
        memory, shared = await self._bf_memory(ctx, current), await ctx.store.get("memory")
        for one in (memory,) if memory is shared else (memory, shared):
            if history:
                await one.aset(history)
            if user_msg is not None:
                await one.aput(user_msg)
        await ctx.store.set("user_msg_str", text_of(asked[-1]) if asked else "")
        return AgentInput.made(input=await self._bf_shown(ctx, current, memory), current_agent_name=current.name)

    async def _bf_close_failed_turn(self, ctx: Context[Any]) -> None:
        """What an earlier run of the conversation had done when it failed comes before what is said now."""
        if await ctx.store.get("memory", default=None) is None:
            return
        agent = self._bf_member(await ctx.store.get("current_agent_name", default=None))
        left = await left_over(ctx, agent)
        if left:
            await close_turn(ctx, agent, left, await self._bf_memory(ctx, agent))

    async def _init_context(self, ctx: Context[Any], ev: AgentWorkflowStartEvent) -> None:
        """What is given to this run wins over what an earlier run left, and that over the defaults."""
        team, store = self._bf_team(), ctx.store
        given = ev.get("memory") or await store.get("memory", default=None)
        memory = given or ChatMemoryBuffer.from_defaults(llm=team.llm)
        budget = ev.get("budget")
        values: dict[str, Any] = {
            "memory": memory,
            "state": await store.get("state", default=None) or deepcopy(team.initial_state),
            "max_iterations": ev.get("max_iterations") or DEFAULT_MAX_ITERATIONS,
            "early_stopping_method": ev.get("early_stopping_method") or team.early_stopping_method,
            **team.stored,
            "num_iterations": 0,
            "formatted_input_with_state": False,
            "current_tool_calls": [],
            "usage": {},
        }
        # What an earlier run on the same context has left of these is not this run's.
        kept = {"budget": budget, LEDGER: None, BUDGET_ANSWER: None, TOOLS_RUN: None, REFUSED: None, ARRIVED: None}
        for name, value in (*values.items(), *kept.items()):
            if name in values or value is not None or await store.get(name, default=None) is not None:
                await store.set(name, value)

    @step
    async def setup_agent(self, ctx: Context, ev: AgentInput) -> AgentSetup:
        """Put the system prompt first, and the state around the newest message, in what is shown, not in the memory."""
        shown = ev.input
        prompt = self._bf_member(ev.current_agent_name).system_prompt
        if prompt:
            shown = [ChatMessage(prompt, role=MessageRole.SYSTEM), *shown]
        state = await ctx.store.get("state", default=None)
        if state and shown:
            shown = await with_shown_state(ctx, shown, state, ev.current_agent_name, self._bf_state_template())
        return AgentSetup.made(input=shown, current_agent_name=ev.current_agent_name)

    @step
    async def run_agent_step(self, ctx: Context, ev: AgentSetup) -> AgentOutput:
        """One answer of the model."""
        agent, store = self._bf_member(ev.current_agent_name), ctx.store
        memory = await self._bf_memory(ctx, agent)
        asked: str = await store.get("user_msg_str", default="")
        tools = await self._bf_tools_for(agent, asked)
        if await store.get(LONG_RESULTS, default=None) and all(
            tool.metadata.get_name() != READ_RESULT for tool in tools
        ):
            tools = [*tools, read_result(agent.max_result_chars)]
        limits = await self._bf_limits(ctx, agent)
        async with spending(ctx, agent.name, limits) as spent:
            if limits is None:
                running = agent.take_step(ctx, ev.input, tools, memory)
            else:
                running = self._bf_step_within(ctx, agent, limits, ev.input, tools, memory)
            if is_traced():
                turn = await store.get("num_iterations", default=0) + 1
                alone = cast("Any", agent) is self
                running = traced(agent, (ctx, ev.input, tools, memory), turn, asked, alone, running)
            output = as_output(await awaitable(running, agent, "take_step"), agent, "take_step")
        if spent.requests:
            output.usage = spent.usage
        ctx.write_event_to_stream(output)
        return output

    async def _bf_limits(self, ctx: Context[Any], agent: Member) -> Limits | None:
        """The budgets that hold for what ``agent`` does now; None when there is none, as nearly always."""
        given: Any = await ctx.store.get("budget", default=None)
        of_all = self._bf_run_budget()
        if given is None and of_all is None and agent.budget is None and not paying():
            return None
        budgets = [one for one in (given, of_all) if isinstance(one, Budget)]
        if not budgets and agent.budget is None and not paying():
            return None
        kept: dict[str, Any] = await ctx.store.get(LEDGER, default=None) or {}
        return Limits(ledger_of(ctx, kept), budgets, agent.name, agent.budget)

    def _bf_shown(
        self, ctx: Context[Any], agent: Member, memory: BaseMemory, asked: str | None = None
    ) -> Coroutine[Any, Any, list[ChatMessage]]:
        """The conversation as the memory shows it; a summary that it makes is on the agent's account."""
        if getattr(memory, "asks_models", True) is False:
            return memory.aget() if asked is None else memory.aget(input=asked)
        return self._bf_shown_on_account(ctx, agent, memory, asked)

    async def _bf_shown_on_account(
        self, ctx: Context[Any], agent: Member, memory: Any, asked: str | None
    ) -> list[ChatMessage]:
        llm = self._bf_member(None).llm_or_none()
        if llm is not None and isinstance(memory, BaseMemory):
            memory.attach_llm(llm)  # one that was restored has lost the model it makes summaries with
        async with spending(ctx, agent.name, await self._bf_limits(ctx, agent), only_around=True):
            return await (memory.aget() if asked is None else memory.aget(input=asked))

    def _bf_run_budget(self) -> Budget | None:
        """What every run may spend, whoever acts."""
        return None

    async def _bf_step_within(
        self,
        ctx: Context[Any],
        agent: Member,
        limits: Limits,
        shown: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        memory: BaseMemory,
    ) -> AgentOutput:
        """A step of thinking that a budget may end; what the step leaves undone is told by an event of its own."""
        nothing = nothing_said(agent)
        nothing[_OVER_BUDGET] = True
        used_up: Any = await ctx.store.get(BUDGET_ANSWER, default=None)
        if used_up is True or agent.name in (used_up or ()):
            return nothing
        try:
            limits.check_unseen(shown)
            output = await in_time(agent.take_step(ctx, shown, tools, memory), limits)
            limits.charge_unseen(agent.llm_or_none(), shown, output.response)
        except BudgetExceededError as err:
            if not limits.wants_answer(err):
                raise
            return nothing
        finally:
            await ctx.store.set(LEDGER, limits.ledger.dump())
        return output

    @step
    async def parse_agent_output(self, ctx: Context, ev: AgentOutput) -> StopEvent | AgentInput | ToolCall | None:
        """Decide how to go on: finish, try again, call tools, or stop early."""
        agent, store = self._bf_member(ev.current_agent_name), ctx.store
        iterations: int = await store.get("num_iterations", default=0) + 1
        await store.set("num_iterations", iterations)
        limit: int = await store.get("max_iterations", default=DEFAULT_MAX_ITERATIONS)
        if ev.tool_calls and not ev.retry_messages and iterations < limit:
            await store.set("num_tool_calls", len(ev.tool_calls))
            for request in self._bf_requests(agent, ev.tool_calls, ev.get("refused_calls")):
                ctx.send_event(request)
            return None
        memory = await self._bf_memory(ctx, agent)
        if ev.get(_OVER_BUDGET):
            return await self._bf_stop_early(ctx, agent, memory, BUDGET_EXCEEDED)
        if not ev.tool_calls and not ev.retry_messages:
            words = await self._bf_forgotten_handoff(ctx, agent, ev.response) if iterations < limit else None
            if words is None:
                return await self._bf_answer(ctx, agent, ev, memory)
            await agent.remind(ctx, words, memory)
            return AgentInput.made(input=await self._bf_shown(ctx, agent, memory), current_agent_name=agent.name)
        if iterations >= limit:
            await self._bf_leave_undone(ctx, agent, ev.tool_calls, memory)
            if await store.get("early_stopping_method", default=agent.early_stopping_method) != "generate":
                await agent.finalize(ctx, nothing_said(agent), memory)
                raise WorkflowRuntimeError(MAX_ITERATIONS_REACHED.format(max_iterations=limit))
            return await self._bf_stop_early(ctx, agent, memory, EARLY_STOPPING.format(max_iterations=limit))
        shown = [*await self._bf_shown(ctx, agent, memory), *ev.retry_messages]
        return AgentInput.made(input=shown, current_agent_name=ev.current_agent_name)

    async def _bf_leave_undone(self, ctx: Context[Any], agent: Member, calls: _Calls, memory: BaseMemory) -> None:
        """Answer the calls of the last allowed step: a conversation in which one has no result is of no use."""
        if not calls:
            return
        results: list[ToolCallResult] = []
        for request in self._bf_requests(agent, calls):
            ctx.write_event_to_stream(request)
            results.append(result_of(request, refusal_output(request, NO_STEPS_LEFT), return_direct=False))
            ctx.write_event_to_stream(results[-1])
        so_far: list[ToolCallResult] = await ctx.store.get("current_tool_calls", default=[])
        await ctx.store.set("current_tool_calls", [*so_far, *results])
        await agent.handle_tool_call_results(ctx, results, memory)

    def _bf_requests(self, agent: Member, calls: _Calls, refused: Any = None) -> Sequence[ToolCall]:
        """An event for each call; of several handoffs the first permitted one is made, the others are refused."""
        handed_over = False
        requests: list[ToolCall] = []
        for position, call in enumerate(calls):
            request = ToolCall.made(tool_name=call.tool_name, tool_kwargs=call.tool_kwargs, tool_id=call.tool_id)
            data = request.to_dict()
            data["position"] = position
            if refused and call.tool_id in refused:
                data["refused"] = refused[call.tool_id]
            elif isinstance(call, ToolSelection) and call.invalid_arguments is not None:
                data["invalid_arguments"] = call.invalid_arguments
            elif call.tool_name == HANDOFF_TOOL and self._bf_may_hand_over(agent, call.tool_kwargs):
                if handed_over:
                    data["refused"] = ONE_HANDOFF
                handed_over = True
            requests.append(request)
        return requests

    async def _bf_answer(self, ctx: Context[Any], agent: Member, ev: AgentOutput, memory: BaseMemory) -> StopEvent:
        # A copy: who reads the stream holds the other one, and an agent may cut its answer out of what was said.
        output = ev.model_copy(update={"tool_calls": list(ev.tool_calls), "response": ev.response.model_copy()})
        output = await self._bf_final(ctx, agent, output, memory)
        output.tool_calls.extend(await ctx.store.get("current_tool_calls", default=[]))
        await self._bf_structure(ctx, agent, output, memory)
        return await self._bf_ended(ctx, output)

    async def _bf_final(self, ctx: Context[Any], agent: Member, output: AgentOutput, memory: BaseMemory) -> AgentOutput:
        """Finish with an answer, unless a guard is against it."""
        if agent.output_guards:
            reason = await blocked(agent.output_guards, ctx, agent.as_shown_to_users(output.response))
            if reason is not None:
                await agent.take_back(ctx)
                output = blocked_output(agent, reason, "output", output.tool_calls)
        finished = await awaitable(agent.finalize(ctx, output, memory), agent, "finalize")
        return as_output(finished, agent, "finalize")

    async def _bf_structure(
        self, ctx: Context[Any], agent: Member, output: AgentOutput, memory: BaseMemory, *, shown: str = ""
    ) -> None:
        """Put the answer's structured form into the output, and show it, where one is wanted.

        A form that a guard blocks is left out; the answer stays. The conversation has what was ``shown`` of a long one.
        """
        team = self._bf_team()
        says = agent if team.output_cls is None and team.structured_output_fn is None else team
        cls, function = says.output_cls, says.structured_output_fn
        if "blocked" in output or (cls is None and function is None):
            return
        known, limits = await self._bf_shown(ctx, agent, memory), await self._bf_limits(ctx, agent)
        if known and shown not in ("", output.response.content):
            known = [*known[:-1], with_text(known[-1], shown, output.response.content or "")]
        async with spending(ctx, agent.name, limits):
            data = await structured_response(agent.llm_or_none(), known, cls, function, output.response.content, limits)
        output.structured_response = data
        if data is not None and not await form_is_blocked(ctx, agent, output):
            ctx.write_event_to_stream(AgentStreamStructuredOutput(output=data))

    async def _bf_stop_early(self, ctx: Context[Any], agent: Member, memory: BaseMemory, words: str) -> StopEvent:
        """An answer from what was gathered, asked for with ``words``."""
        await agent.finalize(ctx, nothing_said(agent), memory)
        so_far = AgentInput.made(input=await self._bf_shown(ctx, agent, memory), current_agent_name=agent.name)
        shown = [*(await self.setup_agent(ctx, so_far)).input, ChatMessage(words, role=MessageRole.SYSTEM)]
        over, limits = words == BUDGET_EXCEEDED, await self._bf_limits(ctx, agent)
        output = await last_answer(ctx, agent, shown, limits, over_budget=over)
        output.tool_calls = await ctx.store.get("current_tool_calls", default=[])
        await memory.aput(output.response)
        await self._bf_structure(ctx, agent, output, memory)
        ended = await self._bf_ended(ctx, output)
        ctx.write_event_to_stream(output)
        return ended

    @step
    async def call_tool(self, ctx: Context, ev: ToolCall) -> ToolCallResult:
        """Call one tool; whatever happens, there is one result."""
        ctx.write_event_to_stream(ev)
        store, more = ctx.store, ev.to_dict()
        agent = self._bf_member(await store.get("current_agent_name", default=None))
        tool = await self._bf_find_tool(ctx, agent, ev.tool_name)
        arguments, handle = ev.tool_kwargs, None
        if isinstance(tool, ToolOutput):
            output = tool
        elif "refused" in more:
            output = refusal_output(ev, more["refused"])
        elif "invalid_arguments" in more:
            output = await run_tool(tool, ev.tool_kwargs, ctx=ctx, invalid_arguments=more["invalid_arguments"])
        else:
            turn = await store.get("num_iterations", default=0)
            # Calls that a program sends itself have no position.
            place = f"{turn}/{more.get('position', ev.tool_id)}"
            output, arguments, handle = await self._bf_call(ctx, agent, tool, ev, place)
        direct = not isinstance(tool, ToolOutput) and tool.metadata.return_direct
        result = result_of(ev, output, return_direct=direct, arguments=arguments, handle=handle)
        ctx.write_event_to_stream(result)
        return result

    async def _bf_call(
        self, ctx: Context[Any], agent: Member, tool: AsyncBaseTool, ev: ToolCall, place: str
    ) -> Performed:
        """Run a tool, within what hooks, people, policies and budgets allow."""
        limits = await self._bf_limits(ctx, agent)
        async with spending(ctx, agent.name, limits):
            if limits is None:
                return await perform(ctx, agent, tool, ev, place)
            try:
                return await perform(ctx, agent, tool, ev, place, limits)
            finally:
                await ctx.store.set(LEDGER, limits.ledger.dump())

    async def _bf_find_tool(self, ctx: Context[Any], agent: Member, name: str) -> AsyncBaseTool | ToolOutput:
        """The tool that is meant; what the model is told when there is none."""
        known: dict[str, None] = {}
        # A retriever that found a tool for the message may know it by its name alone in a run that was restored.
        for text in (await ctx.store.get("user_msg_str", default=""), name):
            for tool in await self._bf_tools_for(agent, text if isinstance(text, str) else name):
                found = tool.metadata.get_name()
                if found == name or wire_name(found) == name:
                    return tool
                known[found] = None
            if agent.tool_retriever is None:
                break
        if name == READ_RESULT and await ctx.store.get(LONG_RESULTS, default=None):
            return read_result(agent.max_result_chars)
        return unknown_tool_output(name, {}, known)

    @step
    async def aggregate_tool_results(self, ctx: Context, ev: ToolCallResult) -> AgentInput | StopEvent | None:
        """Wait for all results of an answer, and show them to the model in the order of its calls."""
        store = ctx.store
        expected: int = await store.get("num_tool_calls", default=0)
        if expected == 0:
            raise ValueError("No tool calls found, cannot aggregate results.")
        results = [ev]
        if expected > 1:  # a single one need not be put aside
            arrived = ctx.collect_events(ev, [ToolCallResult] * expected)
            if arrived is None:
                # Should the run end before the others are there, this one is known.
                await store.set(f"{ARRIVED}.{ev.get('position', 0)}", ev)
                return None
            await store.set(ARRIVED, {})
            results = sorted(cast("list[ToolCallResult]", arrived), key=lambda result: result.get("position", 0))
        agent = self._bf_member(await store.get("current_agent_name", default=None))
        memory = await self._bf_memory(ctx, agent)
        so_far: list[ToolCallResult] = [*await store.get("current_tool_calls", default=[]), *results]
        await store.set("current_tool_calls", so_far)
        await agent.handle_tool_call_results(ctx, results, memory)
        direct = next((one for one in results if one.return_direct and not one.tool_output.is_error), None)
        if direct is not None:
            text = await whole_text(ctx, direct)
            if direct.tool_name != HANDOFF_TOOL:
                output = await self._bf_final(ctx, agent, direct_output(agent.name, direct, so_far, text), memory)
                await self._bf_structure(ctx, agent, output, memory, shown=cut_text(direct))
                await self._bf_name_next(ctx)
                return await self._bf_ended(ctx, output)
            await agent.finalize(ctx, direct_output(agent.name, direct, results, text), memory)
            agent = self._bf_member(await self._bf_hand_over(ctx, agent))
            memory = await self._bf_memory(ctx, agent)
        asked: str = await store.get("user_msg_str", default="")
        return AgentInput.made(input=await self._bf_shown(ctx, agent, memory, asked), current_agent_name=agent.name)
