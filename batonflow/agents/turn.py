"""The bookkeeping of a turn: its beginning, its conversation, its calls, and its end, also an early one."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, cast

from batonflow.agents import layers
from batonflow.agents.asking import with_reason
from batonflow.agents.budget import BudgetExceededError
from batonflow.agents.events import (
    AgentInput,
    AgentOutput,
    AgentStreamStructuredOutput,
    AgentWorkflowStartEvent,
    ToolCallResult,
)
from batonflow.agents.invocation import refusal_output, result_of
from batonflow.agents.layers.model import OVER_BUDGET
from batonflow.agents.ledger import (
    ARRIVED,
    BUDGET_ANSWER,
    INSTRUCTIONS,
    LEDGER,
    OUTPUT_RETRIES,
    REFUSED,
    RUN_OPTIONS,
    TOOLS_RUN,
    count_usage,
    limits_for,
    within_time,
)
from batonflow.agents.members import DEFAULT_MAX_ITERATIONS, Member, Team, empty_output, output_of
from batonflow.agents.memory import BaseMemory, ChatMemoryBuffer
from batonflow.agents.memory.turns import is_question
from batonflow.agents.prompts import NO_STEPS_LEFT, OUTPUT_NOT_REACHED
from batonflow.agents.tool_calls import output_for, requests_of
from batonflow.llms import ChatMessage, MessageRole, TextBlock, Usage
from batonflow.tools import ToolSelection
from batonflow.workflow_core import Context, StopEvent

__all__ = [
    "Turn",
    "answer_early",
    "begin_run",
    "close_failed_turn",
    "is_final",
    "question_of",
    "refuse_calls",
    "with_question",
]

_MISSING = object()


async def close_failed_turn(ctx: Context[Any], team: Team) -> None:
    """Add the turn of a failed earlier run to the memory, before the new message.

    Args:
        ctx: The run's context, inside a step.
        team: The agents of the loop.
    """
    if await ctx.store.get("memory", default=None) is None:
        return
    agent = team.member(await ctx.store.get("current_agent_name", default=None))
    left = list(await agent.unfinished(ctx))
    if left:
        await layers.close_turn(ctx, agent, left, await team.memory(ctx, agent))


async def begin_run(ctx: Context[Any], ev: AgentWorkflowStartEvent, team: Team) -> None:
    """Set the state of a run: its own values first, then values of an earlier run, then defaults.

    Args:
        ctx: The run's context, inside a step.
        ev: The event that starts the run.
        team: The agents of the loop.
    """
    settings, store = team.settings(), ctx.store
    given = ev.get("memory") or await store.get("memory", default=None)
    if given is None and getattr(team.loop, "memory", None) is not None:
        given = layers.fresh_memory(team.loop)
    values: dict[str, Any] = {
        "memory": given or ChatMemoryBuffer.from_defaults(llm=settings.llm),
        "state": ev.get("state") or await store.get("state", default=None) or deepcopy(settings.initial_state),
        "max_iterations": ev.get("max_iterations") or DEFAULT_MAX_ITERATIONS,
        "early_stopping_method": ev.get("early_stopping_method") or settings.early_stopping_method,
        **settings.stored,
        "num_iterations": 0,
        "formatted_input_with_state": False,
        "current_tool_calls": [],
        "usage": {},
    }
    # Values from an earlier run on the same context do not apply to this run.
    kept = dict.fromkeys((LEDGER, BUDGET_ANSWER, TOOLS_RUN, REFUSED, ARRIVED, INSTRUCTIONS, OUTPUT_RETRIES))
    for name, value in (*values.items(), *((name, ev.get(name)) for name in ("budget", RUN_OPTIONS)), *kept.items()):
        # An interrupted step begins again, and its writes are known by their numbers: it has to make the same ones.
        if name in values or value is not None or await store.get(name, default=_MISSING) is not _MISSING:
            await store.set(name, value)
    await team.begin(ctx, ev)


def is_final(output: AgentOutput) -> bool:
    """Tell whether an output of the model is an answer for the user."""
    return not output.tool_calls and not output.retry_messages and OVER_BUDGET not in output


def question_of(ev: AgentWorkflowStartEvent) -> tuple[ChatMessage | None, Any, list[ChatMessage]]:
    """Return the message of a user, the history, and the questions of both.

    Raises:
        ValueError: Both are missing.
    """
    user_msg, history = ev.get("user_msg"), ev.get("chat_history")
    if isinstance(user_msg, str):
        # A text of a subclass, such as a member of an enum, becomes a plain text.
        user_msg = ChatMessage.of_text(user_msg) if type(user_msg) is str else ChatMessage(user_msg)
    if user_msg is None and not history:
        raise ValueError("Must provide either user_msg or chat_history")
    return user_msg, history, [user_msg] if user_msg is not None else [one for one in history if is_question(one)]


def with_question(
    said: ChatMessage, user_msg: ChatMessage | None, history: Sequence[ChatMessage], asked: Sequence[ChatMessage]
) -> tuple[ChatMessage | None, list[ChatMessage], list[ChatMessage]]:
    """Return the message of a user, the history and the questions with another last question."""
    if said is asked[-1] or user_msg is not None:
        return user_msg and said, [*history], [*asked[:-1], said]
    return None, [said if one is asked[-1] else one for one in history], [*asked[:-1], said]


class Turn:
    """The turn of an agent.

    Args:
        ctx: The run's context, inside a step.
        team: The agents of the loop.
        agent: The agent that acts.
        memory: The conversation as the agent knows it.
    """

    __slots__ = ("agent", "ctx", "memory", "team")

    def __init__(self, ctx: Context[Any], team: Team, agent: Member, memory: BaseMemory) -> None:
        self.ctx, self.team, self.agent, self.memory = ctx, team, agent, memory

    async def conversation(self, asked: str | None = None) -> list[ChatMessage]:
        """Return the messages that the memory shows; a summary that it makes is charged to the agent.

        Args:
            asked: The user's message as text.
        """
        memory: Any = self.memory
        if getattr(memory, "asks_models", True) is False:
            shown = await (memory.aget() if asked is None else memory.aget(input=asked))
        else:
            llm = self.team.member(None).llm_or_none()
            if llm is not None and isinstance(memory, BaseMemory):
                memory.attach_llm(llm)  # a restored memory has lost its model for summaries
            limits = await limits_for(self.ctx, self.team, self.agent)
            async with count_usage(self.ctx, self.agent.name, limits, "summary", only_around=True):
                shown = await (memory.aget() if asked is None else memory.aget(input=asked))
        if self.team.remembers_apart:
            return await self.team.with_knowledge(self.ctx, self.agent, shown, asked)
        return shown

    async def next_input(self, asked: str | None = None, more: Sequence[ChatMessage] = ()) -> AgentInput:
        """Return the input of the agent's next step: the conversation with ``more`` messages after it."""
        shown = await self.conversation(asked)
        return AgentInput.made(input=[*shown, *more] if more else shown, current_agent_name=self.agent.name)

    async def answer(self, ev: AgentOutput) -> StopEvent | AgentInput:
        """End the run with the answer of the model, unless it does not fit the declared output."""
        # A copy: readers of the stream have the original, and an agent may cut its answer out of the text.
        output = ev.model_copy(update={"tool_calls": list(ev.tool_calls), "response": ev.response.model_copy()})
        typed = output_for(self.team, self.agent)
        if typed is not None and (again := await layers.read_output(self, typed, output)) is not None:
            return again
        output = await self._finalized(output)
        if self.agent.output_guards:  # the answer has not been streamed yet
            self.ctx.write_event_to_stream(output if "blocked" in output else ev)
        output.tool_calls.extend(await self.ctx.store.get("current_tool_calls", default=[]))
        await self.add_form(output)
        return await self.end(output)

    async def answer_directly(self, direct: ToolCallResult, so_far: Sequence[ToolCallResult]) -> StopEvent:
        """End the run with the result of a tool.

        Args:
            direct: The result.
            so_far: The calls of this run.
        """
        output = _direct_output(self.agent.name, direct, so_far, await layers.whole_text(self.ctx, direct))
        if (typed := output_for(self.team, self.agent)) is not None:
            layers.take_result(typed, output, direct)
        output = await self._finalized(output)
        if typed is not None:
            output.tool_calls = list(so_far)
        await self.add_form(output, shown=layers.cut_text(direct))
        await self.team.name_next(self.ctx)
        return await self.end(output)

    async def hand_over(self, direct: ToolCallResult, results: Sequence[ToolCallResult]) -> "Turn":
        """Finish this turn, and return the turn of the next agent: the same agent after a refused handoff.

        Args:
            direct: The result of the handoff.
            results: The results of the same answer.
        """
        ctx, team = self.ctx, self.team
        output = _direct_output(self.agent.name, direct, results, await layers.whole_text(ctx, direct))
        await self.agent.finalize(ctx, output, self.memory)
        agent = team.member(await team.hand_over(ctx, self.agent))
        return Turn(ctx, team, agent, await team.memory(ctx, agent))

    async def _finalized(self, output: AgentOutput) -> AgentOutput:
        """Finish with an answer, unless a guard or a middleware blocks it."""
        ctx, agent = self.ctx, self.agent
        if agent.middleware or self.team.middleware:
            output = await self._after_middleware(output)
        if agent.output_guards and "blocked" not in output:
            shown = agent.as_shown_to_users(output.response)
            blocked = await layers.block_output(ctx, agent, shown, output.tool_calls)
            if blocked is not None:
                await agent.take_back(ctx)
                output = blocked
        return await output_of(agent.finalize(ctx, output, self.memory), agent, "finalize")

    async def _after_middleware(self, output: AgentOutput) -> AgentOutput:
        """Return the answer after the middleware; the memory will have its message."""
        ctx, agent = self.ctx, self.agent
        shown = agent.as_shown_to_users(output.response)
        ended = await layers.after_run(ctx, self.team, agent, output.model_copy(update={"response": shown}))
        if ended.response is shown and "blocked" not in ended:
            ended.response = output.response  # the agent cuts its answer out of the text
        elif "blocked" in ended:
            await agent.take_back(ctx)
        else:
            await agent.reword(ctx, ended.response)
        return ended

    async def add_form(self, output: AgentOutput, shown: str = "") -> None:
        """Put the structured form of the answer into the output and stream it, if one is wanted.

        A form that a guard blocks is left out; the answer stays.

        Args:
            output: The output; it is changed.
            shown: The beginning of a long answer, as it stands in the conversation.
        """
        settings, ctx, agent = self.team.settings(), self.ctx, self.agent
        if output_for(self.team, agent) is not None:
            await self._show_form(output)
            return
        source = agent if settings.output_cls is None and settings.structured_output_fn is None else settings
        cls, function = source.output_cls, source.structured_output_fn
        if "blocked" in output or (cls is None and function is None):
            return
        known, limits = await self.conversation(), await limits_for(ctx, self.team, agent)
        answer = output.response.content
        if known and shown not in ("", answer):
            known = [*known[:-1], _with_text(known[-1], shown, answer or "")]
        async with count_usage(ctx, agent.name, limits, "structured"):
            data = await layers.structured_response(agent.llm_or_none(), known, cls, function, answer, limits)
        output.structured_response = data
        await self._show_form(output)

    async def _show_form(self, output: AgentOutput) -> None:
        data = None if "blocked" in output else output.structured_response
        guarded = self.agent.output_guards
        if data is not None and (not guarded or await layers.guard_form(self.ctx, self.agent, output)):
            self.ctx.write_event_to_stream(AgentStreamStructuredOutput(output=data))

    async def end(self, output: AgentOutput) -> StopEvent:
        """Return the end of the run, with the usage of all agents in the output."""
        await self.team.end(self.ctx, output)
        totals: Any = await self.ctx.store.get("usage", default=None)
        # Mocks of a store in tests return values other than dicts.
        if isinstance(totals, dict) and (totals or output.usage is not None or output.usage_by_agent):
            output.usage_by_agent = dict(cast("dict[str, Usage]", totals))
            output.usage = sum(output.usage_by_agent.values(), Usage()) if totals else None
        await self.ctx.store.set("current_tool_calls", [])
        output.declare(self.team.declared)
        return StopEvent(result=output)


def _direct_output(name: str, direct: ToolCallResult, so_far: Sequence[ToolCallResult], text: str) -> AgentOutput:
    """Return the output of a tool as the answer, with its pictures and documents.

    Args:
        name: The name of the agent.
        direct: The result of the tool.
        so_far: The calls of this run.
        text: The whole text of the result.
    """
    calls = [ToolSelection.made(call.tool_id, call.tool_name, dict(call.tool_kwargs)) for call in so_far]
    blocks: list[Any] = list(direct.tool_output.blocks)
    message = ChatMessage.of_text(text, MessageRole.ASSISTANT)
    if text != direct.tool_output.content:  # the blocks contain only the beginning
        blocks = [TextBlock(text=text), *(block for block in blocks if not isinstance(block, TextBlock))]
    if any(not isinstance(block, TextBlock) for block in blocks):
        message.blocks = blocks
    return AgentOutput.of(message, calls, name, raw=direct.tool_output.raw_output)


def _with_text(message: ChatMessage, shown: str, whole: str) -> ChatMessage:
    """Return a message with a whole text in place of the last occurrence of its beginning."""
    blocks: list[Any] = list(message.blocks)
    for place in reversed(range(len(blocks))):
        block = blocks[place]
        if isinstance(block, TextBlock) and shown in block.text:
            before, _, after = block.text.rpartition(shown)
            blocks[place] = block.model_copy(update={"text": f"{before}{whole}{after}"})
            break
    return message.model_copy(update={"blocks": blocks})


async def refuse_calls(turn: Turn, calls: Sequence[ToolSelection | ToolCallResult]) -> None:
    """Add results for the calls of the last allowed step, because vendors refuse conversations without them.

    Args:
        turn: The turn.
        calls: The calls.
    """
    if not calls:
        return
    ctx, results = turn.ctx, list[ToolCallResult]()
    for request in requests_of(turn.team, turn.agent, calls):
        ctx.write_event_to_stream(request)
        results.append(result_of(request, refusal_output(request, NO_STEPS_LEFT), return_direct=False))
        ctx.write_event_to_stream(results[-1])
    so_far: list[ToolCallResult] = await ctx.store.get("current_tool_calls", default=[])
    await ctx.store.set("current_tool_calls", [*so_far, *results])
    await turn.agent.handle_tool_call_results(ctx, results, turn.memory)


async def answer_early(turn: Turn, words: str, *, over_budget: bool = False) -> StopEvent:
    """End the run with an answer from the results so far.

    Args:
        turn: The turn.
        words: The message that asks the model for the answer.
        over_budget: Whether a budget is used up, which then does not apply to this answer.
    """
    ctx, agent = turn.ctx, turn.agent
    await agent.finalize(ctx, empty_output(agent), turn.memory)
    so_far: AgentInput = await turn.next_input()
    shown = [*(await turn.team.loop.setup_agent(ctx, so_far)).input, ChatMessage(words, role=MessageRole.SYSTEM)]
    output = await _last_answer(turn, shown, over_budget=over_budget)
    output.tool_calls = await ctx.store.get("current_tool_calls", default=[])
    await turn.memory.aput(output.response)
    if (typed := output_for(turn.team, agent)) is not None and "blocked" not in output:
        layers.read_early(typed, output, OUTPUT_NOT_REACHED)
    await turn.add_form(output)
    ended = await turn.end(output)
    ctx.write_event_to_stream(output)
    return ended


async def _last_answer(turn: Turn, shown: list[ChatMessage], *, over_budget: bool) -> AgentOutput:
    """Ask for an answer within the other budgets than the one that requires it.

    Raises:
        BudgetExceededError: It may exceed a budget with ``on_exceeded="raise"``.
    """
    ctx, agent, response = turn.ctx, turn.agent, None
    limits = await limits_for(ctx, turn.team, agent)
    if limits is not None and not over_budget:
        try:
            async with count_usage(ctx, agent.name, limits, "answer"):
                response = await within_time(agent.answer_now(ctx, shown), limits)
        except BudgetExceededError as err:
            if not limits.wants_answer(err):
                raise
    if response is None:
        async with count_usage(ctx, agent.name, limits, "answer", only_around=True):
            response = await agent.answer_now(ctx, shown)
    output = AgentOutput(response=response.message, raw=response.raw, current_agent_name=agent.name)
    output = with_reason(output, response.stop_reason)
    if agent.middleware or turn.team.middleware:
        output = await layers.after_run(ctx, turn.team, agent, output)
    if agent.output_guards and "blocked" not in output:
        blocked = await layers.block_output(ctx, agent, output.response)
        if blocked is not None:
            return blocked
    return output
