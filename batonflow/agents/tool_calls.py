"""One tool call of an agent, from the model's call to the result, through the tool's layers."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from batonflow.agents import layers
from batonflow.agents.events import ToolCall, ToolCallResult
from batonflow.agents.hooks import is_cancelled
from batonflow.agents.invocation import (
    LONG_RESULTS,
    READ_RESULT,
    CallNext,
    ToolInvocation,
    ToolLayer,
    refusal_output,
    result_of,
    under_way,
)
from batonflow.agents.ledger import count_usage, limits_for, request_changes
from batonflow.agents.members import HANDOFF_TOOL, Member, Team
from batonflow.agents.prompts import ONE_HANDOFF
from batonflow.agents.tracing import dispatcher, spoken
from batonflow.llms.tool_protocol import wire_name
from batonflow.tools import AsyncBaseTool, ToolOutput, ToolSelection, run_tool
from batonflow.tools.call import error_output, unknown_tool_output
from batonflow.workflow_core import Context
from batonflow.workflow_core.engine.ports import note_failure
from batonflow.workflow_core.engine.state import current_item

if TYPE_CHECKING:
    from batonflow.agents.output_types import TypedOutput

__all__ = [
    "answer_call",
    "output_for",
    "output_here",
    "perform",
    "requests_of",
    "shorten_result",
    "tools_of",
    "with_read_result",
]

# Tools without a policy from there, such as handoffs, have no effects outside of the run.
_PARTS_OF_AGENTS = __name__.rpartition(".")[0]


def requests_of(
    team: Team, agent: Member, calls: Sequence[ToolSelection | ToolCallResult], refused: Any = None
) -> Sequence[ToolCall]:
    """Return an event for each call. Of several handoffs, the first permitted one is made and the others are refused.

    Args:
        team: The agents of the loop.
        agent: The agent that calls.
        calls: The calls of an answer.
        refused: The reasons to refuse calls, by id.
    """
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
        elif call.tool_name == HANDOFF_TOOL and team.may_hand_over(agent, call.tool_kwargs):
            if handed_over:
                data["refused"] = ONE_HANDOFF
            handed_over = True
        requests.append(request)
    return requests


async def answer_call(ctx: Context[Any], team: Team, call: ToolCall) -> ToolCallResult:
    """Make a call of the acting agent; in every case it has one result.

    Args:
        ctx: The run's context, inside a step.
        team: The agents of the loop.
        call: The call.
    """
    store, more = ctx.store, call.to_dict()
    agent = team.member(await store.get("current_agent_name", default=None))
    tool = await _find_tool(ctx, team, agent, call.tool_name)
    if isinstance(tool, ToolOutput):
        return result_of(call, tool, return_direct=False)
    direct = tool.metadata.return_direct
    if "refused" in more:
        return result_of(call, refusal_output(call, more["refused"]), direct)
    if "invalid_arguments" in more:
        output = await run_tool(tool, call.tool_kwargs, ctx=ctx, invalid_arguments=more["invalid_arguments"])
        return result_of(call, output, direct)
    turn = await store.get("num_iterations", default=0)
    # Calls that a program sends itself have no position.
    place = f"{turn}/{more.get('position', call.tool_id)}"
    invocation = ToolInvocation(ctx, team, agent, tool, call, place)
    output = await perform(invocation)
    return result_of(call, output, direct, invocation.reported, invocation.handle)


async def perform(invocation: ToolInvocation) -> ToolOutput:
    """Pass a call through the layers around its tool.

    Args:
        invocation: The call; the layers change it.

    Raises:
        BudgetExceededError: A budget that raises does not allow the call.
    """
    limits = invocation.limits = await limits_for(invocation.ctx, invocation.team, invocation.agent)
    async with count_usage(invocation.ctx, invocation.agent.name, limits, "tool") as account:
        return await _chain(_layers_around(invocation, account.run))(invocation)


def _layers_around(invocation: ToolInvocation, run: Any) -> tuple[ToolLayer, ...]:
    """Return the layers that a call passes through, the outermost first; a layer without work is left out."""
    found: list[ToolLayer] = []
    agent, policy = invocation.agent, invocation.policy
    limited, shortened, counted, asked = invocation.limits is not None, agent.max_result_chars is not None, False, False
    if policy is not None:
        shortened |= getattr(policy, "max_result_chars", None) is not None
        counted = getattr(policy, "max_calls", None) is not None
        asked = counted or getattr(policy, "requires_approval", False) is not False
    has_effects = policy is not None or not type(invocation.tool).__module__.startswith(_PARTS_OF_AGENTS)
    if has_effects and not asked and run is not None:
        asked = bool(request_changes(run).get("ask_before_tools"))
    if shortened:
        found.append(shorten_result)
    if agent.before_tool or agent.after_tool:
        found.append(layers.call_hooks)
    if agent.middleware or invocation.team.middleware:
        found += layers.middleware_around_tool(invocation.team, agent)
    if counted:
        found.append(layers.refuse_used_up)
    if asked:
        found.append(layers.check_approval)
    if counted:
        found.append(layers.count_call)
    if limited:
        found.append(layers.answer_over_budget)
    if run is not None and run.recorder is not None:
        recorded = policy is not None and run.root.drive is not None
        found.append(layers.record_call if recorded else layers.make_writable)
    if limited:
        found.append(layers.charge_call)
    return tuple(found)


@lru_cache(maxsize=256)
def _chain(around: tuple[ToolLayer, ...]) -> CallNext:
    """Return the layers as one function that ends with the call of the tool."""
    chain: CallNext = _call
    for layer in reversed(around):
        chain = partial(layer, call_next=chain)
    return chain


async def shorten_result(invocation: ToolInvocation, call_next: CallNext) -> ToolOutput:
    """Cut a result that is longer than the model is to see."""
    output = await call_next(invocation)
    longest: int | None = getattr(invocation.policy, "max_result_chars", None) or invocation.agent.max_result_chars
    if longest is None or invocation.refused or len(output.content) <= longest:
        return output
    return await layers.cut_result(invocation, output, longest)


async def _call(invocation: ToolInvocation) -> ToolOutput:
    """Call the tool; its exceptions become outputs."""
    ctx, agent, tool = invocation.ctx, invocation.agent, invocation.tool
    token = under_way.set(invocation)
    try:
        caller = invocation.team.caller(agent)
        if caller is None:
            running = run_tool(tool, invocation.arguments, ctx=ctx, **invocation.options())
        else:
            running = caller(ctx, tool, invocation.arguments)
        return await (spoken(agent.name, running) if dispatcher.enabled else running)
    except Exception as error:
        item = current_item.get()
        if ctx.run is not None and item is not None:
            named = f": agent {agent.name}, tool {tool.metadata.get_name()}, call {invocation.call.tool_id}"
            note_failure(ctx.run, item, error, named)
        raise
    except asyncio.CancelledError:
        if is_cancelled(ctx):
            raise
        # The step goes on: something that the tool awaited was cancelled, which is a failure of the tool.
        name = tool.metadata.get_name()
        error = RuntimeError(f"Tool {name!r} gave no result: a call that it awaited was cancelled")
        return error_output(name, invocation.arguments, error)
    finally:
        under_way.reset(token)


async def _find_tool(ctx: Context[Any], team: Team, agent: Member, name: str) -> AsyncBaseTool | ToolOutput:
    """Return the tool that a model names, or the output for an unknown name."""
    store = ctx.store
    known: dict[str, None] = {}
    # In a restored run a retriever that found a tool for the message may find it only by the tool's name.
    for again, text in enumerate((await store.get("user_msg_str", default=""), name)):
        for tool in await tools_of(ctx, team, agent, text if isinstance(text, str) else name, anew=bool(again)):
            found = tool.metadata.name or ""
            if found == name or wire_name(found) == name:
                return tool
            known[found] = None
        if agent.tool_retriever is None:
            break
    if name == READ_RESULT and await store.get(LONG_RESULTS, default=None):
        return layers.read_result(agent.max_result_chars)
    return unknown_tool_output(name, {}, known)


def output_for(team: Team, agent: Member) -> "TypedOutput | None":
    """Return the declared output that an agent is asked for: that of the loop, or its own."""
    loop = team.loop
    if loop.typed_output is not None or agent.typed_output is None:
        return loop.typed_output
    # The form of a team wins over the outputs of its members.
    return agent.typed_output if loop.output_cls is None and loop.structured_output_fn is None else None


def output_here(ctx: Any, agent: Any) -> "TypedOutput | None":
    """Return the declared output of the run around this code, or of the agent without a run."""
    run = getattr(ctx, "run", None)
    team = None if run is None else getattr(run.workflow, "__batonflow_team__", None)
    return agent.typed_output if team is None else output_for(team, agent)


async def tools_of(
    ctx: Context[Any], team: Team, agent: Member, text: str, *, anew: bool = False
) -> Sequence[AsyncBaseTool]:
    """Return the tools of an agent for a conversation about a text, and those that its middleware adds.

    Args:
        ctx: The run's context, inside a step.
        team: The agents of the loop.
        agent: The agent that acts.
        text: The user's message.
        anew: Ask toolsets for their tools; otherwise the tools of the last request are returned.
    """
    if agent.__batonflow_varies__ and not anew and (kept := layers.kept_tools(ctx, agent)) is not None:
        return kept
    tools = await team.tools_for(agent, text)
    if (typed := output_for(team, agent)) is not None:
        tools = [*tools, *layers.output_tools(agent, typed)]
    if agent.middleware or team.middleware:
        tools = await layers.with_added(team, agent, tools)
    if agent.__batonflow_varies__:
        layers.keep_tools(ctx, agent, tools)
    return tools


async def with_read_result(store: Any, agent: Member, tools: Sequence[AsyncBaseTool]) -> Sequence[AsyncBaseTool]:
    """Return the tools for a model, with the one that reads on where a long result is kept.

    Args:
        store: The state of the run.
        agent: The agent that acts.
        tools: Its tools.
    """
    kept = await store.get(LONG_RESULTS, default=None)
    if not kept or any(tool.metadata.get_name() == READ_RESULT for tool in tools):
        return tools
    return [*tools, layers.read_result(agent.max_result_chars)]
