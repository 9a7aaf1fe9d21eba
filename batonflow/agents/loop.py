"""The loop of every agent, written once: a single agent is a team of one.

::

    init_run ──> setup_agent ──> run_agent_step ──> parse_agent_output ──> call_tool (one for each call)
                      ^                                  │      │               │
                      └───────────── try again ──────────┘      │        aggregate_tool_results
                      └───────────── results, perhaps another agent ────────────┘
                                                                └──> the answer

An agent has three methods: ``take_step`` asks the model, ``handle_tool_call_results`` keeps results, and
``finalize`` updates the memory. The loop gets agents, tools and memories from :class:`Team`. Policies such as
budgets, guards and approvals are components in ``layers``, which act at named points.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast

from batonflow.agents import layers
from batonflow.agents.events import (
    AgentInput,
    AgentOutput,
    AgentSetup,
    AgentWorkflowStartEvent,
    ToolCall,
    ToolCallResult,
)
from batonflow.agents.layers.model import OVER_BUDGET, ask_model
from batonflow.agents.ledger import ARRIVED, has_options, limits_for
from batonflow.agents.members import CALLED, DEFAULT_MAX_ITERATIONS, HANDOFF_TOOL, empty_output
from batonflow.agents.memory.turns import text_of
from batonflow.agents.prompts import BUDGET_EXCEEDED, EARLY_STOPPING, MAX_ITERATIONS_REACHED
from batonflow.agents.running import AgentRuns
from batonflow.agents.tool_calls import answer_call, output_for, requests_of, tools_of, with_read_result
from batonflow.agents.turn import (
    Turn,
    answer_early,
    begin_run,
    close_failed_turn,
    is_final,
    question_of,
    refuse_calls,
    with_question,
)
from batonflow.llms import ChatMessage, MessageRole
from batonflow.workflow_core import Context, StopEvent, WorkflowRuntimeError, step
from batonflow.workflow_core.routing import steps_of
from batonflow.workflow_core.typed import AgentDepsT, OutT

__all__ = ["AgentLoop"]


class AgentLoop(AgentRuns[AgentDepsT, OutT]):
    """A workflow that runs one agent, or several that hand over to one another."""

    __batonflow_id_matters__: ClassVar[bool] = True  # keys of tool calls, sessions of code
    __batonflow_on_stall__: ClassVar[Literal["raise"] | None] = "raise"
    __batonflow_on_abandon__: ClassVar[Literal["stop", "continue"]] = "stop"
    __batonflow_called__: ClassVar[frozenset[str]] = CALLED
    __batonflow_overrides__: ClassVar[Mapping[str, str]] = {}  # the steps of the loop that the class overrides

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__module__.startswith("batonflow."):
            cls.__batonflow_overrides__ = layers.checked_overrides(cls, AgentLoop)

    @classmethod
    def add_step(cls, func: Any) -> None:
        """Add a decorated free function as a step of this class only; see ``Workflow.add_step``."""
        if hasattr(func, "_step_config"):
            layers.check_step(cls.__name__, func.__name__, func, steps_of(AgentLoop).functions())
        super().add_step(func)

    @step
    async def init_run(self, ctx: Context[Any], ev: AgentWorkflowStartEvent) -> AgentInput | StopEvent:
        """Set the run's memory, state and limits, and put the user's message into the memory."""
        ctx = ctx.whole or ctx
        team, store = self.__batonflow_team__, ctx.store
        if "init_run" in team.dispatched:
            team = await layers.acting_team(self, "init_run", ctx, ev)
            if isinstance(team, layers.StepResult):
                return team.value
        await close_failed_turn(ctx, team)
        await team.loop._init_context(ctx, ev)
        user_msg, history, asked = question_of(ev)
        agent = team.member(await store.get("current_agent_name", default=None))
        await store.set("current_agent_name", agent.name)
        if agent.input_guards and asked:
            await limits_for(ctx, team, agent)  # the time of budgets counts from here on
            blocked = await layers.block_input(ctx, agent, asked[-1])
            if blocked is not None:
                return await Turn(ctx, team, agent, await store.get("memory")).end(blocked)
        if asked and (agent.middleware or team.middleware):
            said = await layers.before_run(ctx, team, agent, asked[-1])
            if isinstance(said, AgentOutput):
                return await Turn(ctx, team, agent, await store.get("memory")).end(said)
            user_msg, history, asked = with_question(said, user_msg, history or (), asked)
        memory, shared = await team.memory(ctx, agent), await store.get("memory")
        for one in (memory,) if memory is shared else (memory, shared):
            if history:
                await one.aset(history)
            if user_msg is not None:
                await one.aput(user_msg)
        await store.set("user_msg_str", text_of(asked[-1]) if asked else "")
        return await Turn(ctx, team, agent, memory).next_input()

    async def _init_context(self, ctx: Context[Any], ev: AgentWorkflowStartEvent) -> None:
        await begin_run(ctx, ev, self.__batonflow_team__)

    @step
    async def setup_agent(self, ctx: Context[Any], ev: AgentInput) -> AgentSetup:
        """Add the system prompt and the state to the messages for the model. The memory stays unchanged."""
        shown, team, ctx = ev.input, self.__batonflow_team__, ctx.whole or ctx
        if "setup_agent" in team.dispatched:
            team = await layers.acting_team(self, "setup_agent", ctx, ev)
            if isinstance(team, layers.StepResult):
                return team.value
        agent = team.member(ev.current_agent_name)
        if agent.instructions or agent.middleware or team.middleware or has_options(ctx.run):
            prompt = await layers.system_message(ctx, team, agent)
            shown = shown if prompt is None else [prompt, *shown]
        elif agent.system_prompt:
            shown = [ChatMessage(agent.system_prompt, role=MessageRole.SYSTEM), *shown]
        state = await ctx.store.get("state", default=None)
        if state and shown:
            shown = await layers.with_shown_state(ctx, shown, state, ev.current_agent_name, team.state_template())
        if (typed := output_for(team, agent)) is not None:
            shown = layers.ask_for_output(agent, typed, shown)
        return AgentSetup.made(input=shown, current_agent_name=ev.current_agent_name)

    @step
    async def run_agent_step(self, ctx: Context[Any], ev: AgentSetup) -> AgentOutput:
        """Ask the model for one answer."""
        ctx = ctx.whole or ctx
        team, store = self.__batonflow_team__, ctx.store
        if "run_agent_step" in team.dispatched:
            team = await layers.acting_team(self, "run_agent_step", ctx, ev)
            if isinstance(team, layers.StepResult):
                return team.value
        agent = team.member(ev.current_agent_name)
        memory = await team.memory(ctx, agent)
        tools = await tools_of(ctx, team, agent, await store.get("user_msg_str", default=""), anew=True)
        tools = await with_read_result(store, agent, tools)
        output = await ask_model(ctx, team, agent, ev.input, tools, memory)
        if not (agent.output_guards and is_final(output)):  # guards see an answer first
            ctx.write_event_to_stream(output)
        return output

    @step
    async def parse_agent_output(self, ctx: Context[Any], ev: AgentOutput) -> StopEvent | AgentInput | ToolCall | None:
        """Decide how to go on: finish, try again, call tools, or stop early."""
        ctx = ctx.whole or ctx
        team, store = self.__batonflow_team__, ctx.store
        if "parse_agent_output" in team.dispatched:
            team = await layers.acting_team(self, "parse_agent_output", ctx, ev)
            if isinstance(team, layers.StepResult):
                return team.value
        if not ev.current_agent_name:
            ev.current_agent_name = await store.get("current_agent_name", default="")
        agent = team.member(ev.current_agent_name)
        iterations: int = await store.get("num_iterations", default=0) + 1
        await store.set("num_iterations", iterations)
        limit: int = await store.get("max_iterations", default=DEFAULT_MAX_ITERATIONS)
        if ev.tool_calls and not ev.retry_messages and iterations < limit:
            await store.set("num_tool_calls", len(ev.tool_calls))
            for request in requests_of(team, agent, ev.tool_calls, ev.get("refused_calls")):
                ctx.send_event(request)
            return None
        turn = Turn(ctx, team, agent, await team.memory(ctx, agent))
        if ev.get(OVER_BUDGET):
            return await answer_early(turn, BUDGET_EXCEEDED, over_budget=True)
        if not ev.tool_calls and not ev.retry_messages:
            words = await team.forgotten_handoff(ctx, agent, ev.response) if iterations < limit else None
            if words is None:
                return await turn.answer(ev)
            await agent.remind(ctx, words, turn.memory)
            return await turn.next_input()
        if iterations < limit:
            return await turn.next_input(more=ev.retry_messages)
        await refuse_calls(turn, ev.tool_calls)
        if await store.get("early_stopping_method", default=agent.early_stopping_method) == "generate":
            return await answer_early(turn, EARLY_STOPPING.format(max_iterations=limit))
        await agent.finalize(ctx, empty_output(agent), turn.memory)
        raise WorkflowRuntimeError(MAX_ITERATIONS_REACHED.format(max_iterations=limit))

    @step
    async def call_tool(self, ctx: Context[Any], ev: ToolCall) -> ToolCallResult:
        """Call one tool, and return its result in all cases."""
        team, ctx = self.__batonflow_team__, ctx.whole or ctx
        if "call_tool" in team.dispatched:
            team = await layers.acting_team(self, "call_tool", ctx, ev)
            if isinstance(team, layers.StepResult):
                return team.value
        ctx.write_event_to_stream(ev)
        result = await answer_call(ctx, team, ev)
        ctx.write_event_to_stream(result)
        return result

    @step
    async def aggregate_tool_results(self, ctx: Context[Any], ev: ToolCallResult) -> AgentInput | StopEvent | None:
        """Wait for all results of an answer, and give them to the model in call order."""
        ctx = ctx.whole or ctx
        team, store = self.__batonflow_team__, ctx.store
        if "aggregate_tool_results" in team.dispatched:
            team = await layers.acting_team(self, "aggregate_tool_results", ctx, ev)
            if isinstance(team, layers.StepResult):
                return team.value
        expected: int = await store.get("num_tool_calls", default=0)
        if expected == 0:
            raise ValueError("No tool calls found, cannot aggregate results.")
        results = [ev]
        if expected > 1:  # a single result needs no collection
            # Kept in case the run ends before the other results arrive. Nothing is awaited after the collection: a
            # step that waits would be behind when the last result goes on.
            await store.set(f"{ARRIVED}.{ev.get('position', 0)}", ev)
            if (arrived := ctx.collect_events(ev, [ToolCallResult] * expected)) is None:
                return None
            await store.set(ARRIVED, {})
            results = sorted(cast("list[ToolCallResult]", arrived), key=lambda result: result.get("position", 0))
        agent = team.member(await store.get("current_agent_name", default=None))
        turn = Turn(ctx, team, agent, await team.memory(ctx, agent))
        so_far: list[ToolCallResult] = [*await store.get("current_tool_calls", default=[]), *results]
        await store.set("current_tool_calls", so_far)
        await agent.handle_tool_call_results(ctx, results, turn.memory)
        if (typed := output_for(team, agent)) is not None:
            await layers.count_unfit(ctx, typed, results)
        direct = next((one for one in results if one.return_direct and not one.tool_output.is_error), None)
        if direct is not None:
            if direct.tool_name != HANDOFF_TOOL:
                return await turn.answer_directly(direct, so_far)
            turn = await turn.hand_over(direct, results)
        return await turn.next_input(asked=await store.get("user_msg_str", default=""))
