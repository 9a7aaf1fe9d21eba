"""Results and answers that the loop makes itself."""

import inspect
import json
from collections.abc import Awaitable, Sequence
from typing import Any

from batonflow.agents.budget import BudgetExceededError, Limits
from batonflow.agents.calling import in_time, spending
from batonflow.agents.events import AgentOutput, ToolCall, ToolCallResult
from batonflow.agents.hooks import blocked
from batonflow.agents.members import Member
from batonflow.agents.prompts import CALL_DECLINED, CALL_NOT_WHOLE
from batonflow.agents.results import HANDLE
from batonflow.instrumentation.logs import logger_named
from batonflow.lazy import at_first_use
from batonflow.llms import ChatMessage, MessageRole, TextBlock
from batonflow.tools import ToolOutput, ToolSelection
from batonflow.workflow_core import Context

__all__ = [
    "as_output",
    "awaitable",
    "blocked_output",
    "direct_output",
    "form_is_blocked",
    "last_answer",
    "nothing_said",
    "result_of",
    "with_reason",
    "with_text",
]

# Most agents answer in words.
jsonable = at_first_use("batonflow.tools.code.worker", "jsonable")

logger = logger_named(__name__)

_NOT_WHOLE = ("length", "refusal", "content_filter")


def with_reason(output: AgentOutput, reason: str | None) -> AgentOutput:
    """The output of an answer; of one that is not whole, with the reason, and without the calls that nobody may trust.

    Args:
        output: The output; it is changed.
        reason: Why the model stopped.
    """
    if reason not in _NOT_WHOLE:
        return output
    data, calls = output.to_dict(), output.tool_calls
    data["stop_reason"] = reason
    if calls and reason == "length":  # the last one is where it was cut
        data["refused_calls"] = {calls[-1].tool_id: CALL_NOT_WHOLE}
    elif calls:
        # By id, as a subclass may add calls of its own.
        data["refused_calls"] = {call.tool_id: CALL_DECLINED.format(reason=reason) for call in calls}
    logger.warning("Agent %s: an answer of the model is not whole (%s)", output.current_agent_name, reason)
    return output


def direct_output(name: str, direct: ToolCallResult, so_far: Sequence[ToolCallResult], text: str) -> AgentOutput:
    """The output of a tool as the answer, with its pictures and documents.

    Args:
        name: Of the agent.
        direct: What the tool gave back.
        so_far: What was called in this run.
        text: The whole text of it.
    """
    calls = [ToolSelection.made(call.tool_id, call.tool_name, dict(call.tool_kwargs)) for call in so_far]
    blocks: list[Any] = list(direct.tool_output.blocks)
    message = ChatMessage.of_text(text, MessageRole.ASSISTANT)
    if text != direct.tool_output.content:  # they have the beginning only
        blocks = [TextBlock(text=text), *(block for block in blocks if not isinstance(block, TextBlock))]
    if any(not isinstance(block, TextBlock) for block in blocks):
        message.blocks = blocks
    return AgentOutput.of(message, calls, name, raw=direct.tool_output.raw_output)


def with_text(message: ChatMessage, shown: str, whole: str) -> ChatMessage:
    """A message that has a whole text in the place of what was shown of it, where that stands last."""
    blocks: list[Any] = list(message.blocks)
    for place in reversed(range(len(blocks))):
        block = blocks[place]
        if isinstance(block, TextBlock) and shown in block.text:
            before, _, behind = block.text.rpartition(shown)
            blocks[place] = block.model_copy(update={"text": f"{before}{whole}{behind}"})
            break
    return message.model_copy(update={"blocks": blocks})


def result_of(
    call: ToolCall,
    output: ToolOutput,
    *,
    return_direct: bool,
    arguments: dict[str, Any] | None = None,
    handle: str | None = None,
) -> ToolCallResult:
    """The result of a call, which remembers where the call stood in the model's answer.

    Args:
        call: The call.
        output: What came of it.
        return_direct: Whether that ends the run as the answer.
        arguments: With what the tool was called, where that is not what the model asked for.
        handle: Under which its whole text is kept, if it is shown in part.
    """
    result = ToolCallResult.of(
        call, call.tool_kwargs if arguments is None else arguments, output, return_direct=return_direct
    )
    result.to_dict()["position"] = call.get("position", 0)
    if handle is not None and return_direct:
        result.to_dict()[HANDLE] = handle
    return result


def awaitable(given: Any, agent: Member, method: str) -> Awaitable[Any]:
    """What a method of an agent gave, if it can be awaited.

    Raises:
        TypeError: It cannot.
    """
    if not inspect.isawaitable(given):
        raise TypeError(f"{type(agent).__name__}.{method} is no coroutine function: write it with `async def`")
    return given


def as_output(given: Any, agent: Member, method: str) -> AgentOutput:
    """What a method of an agent returned, if it is an output.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(given, AgentOutput):
        raise TypeError(f"{type(agent).__name__}.{method} returned {type(given).__name__}, not an AgentOutput")
    return given


def nothing_said(agent: Member) -> AgentOutput:
    """An empty answer."""
    return AgentOutput(response=ChatMessage("", role=MessageRole.ASSISTANT), current_agent_name=agent.name)


def blocked_output(
    agent: Member, reason: str, what: str, calls: Sequence[ToolSelection | ToolCallResult] = ()
) -> AgentOutput:
    """The reason as the answer; ``output.get("blocked")`` says what was blocked, ``"input"`` or ``"output"``."""
    said = ChatMessage(reason, role=MessageRole.ASSISTANT)
    output = AgentOutput(response=said, current_agent_name=agent.name, tool_calls=list(calls))
    output["blocked"] = what
    return output


async def last_answer(
    ctx: Context[Any], agent: Member, shown: list[ChatMessage], limits: Limits | None, *, over_budget: bool
) -> AgentOutput:
    """An agent's answer from what was gathered, within the budgets, unless it is the one they call for.

    Args:
        ctx: The run's context, inside a step.
        agent: Who answers.
        shown: The conversation, with the words that ask for it.
        limits: The budgets that hold.
        over_budget: Whether it is asked for as one of them is used up.

    Raises:
        BudgetExceededError: It may take more than is left, of a budget that is to raise it.
    """
    response = None
    if limits is not None and not over_budget:
        try:
            async with spending(ctx, agent.name, limits):
                response = await in_time(agent.answer_now(ctx, shown), limits)
        except BudgetExceededError as err:
            if not limits.wants_answer(err):
                raise
    if response is None:
        async with spending(ctx, agent.name, limits, only_around=True):
            response = await agent.answer_now(ctx, shown)
    reason = await blocked(agent.output_guards, ctx, response.message)
    if reason is not None:
        return blocked_output(agent, reason, "output")
    output = AgentOutput(response=response.message, raw=response.raw, current_agent_name=agent.name)
    return with_reason(output, response.stop_reason)


async def form_is_blocked(ctx: Context[Any], agent: Member, output: AgentOutput) -> bool:
    """Whether a guard is against the structured form of an answer; then it is taken out of the output.

    Guards see it behind the text, which they have let pass: what they want to see in that is there, too.

    Args:
        ctx: The run's context, inside a step.
        agent: Whose answer it is.
        output: The answer.
    """
    form = TextBlock(text=json.dumps(jsonable(output.structured_response), ensure_ascii=False))
    whole = ChatMessage([*output.response.blocks, form], role=MessageRole.ASSISTANT)
    reason = await blocked(agent.output_guards, ctx, whole)
    if reason is None:
        return False
    logger.warning("Agent %s: the structured form of its answer is blocked: %s", agent.name, reason)
    output.structured_response = None
    output["blocked"] = "structured"
    return True
