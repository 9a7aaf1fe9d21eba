"""Outputs of declared types: asked for in the messages or by a tool, and read from the answer."""

import json
from collections.abc import Sequence
from typing import Any

from batonflow.agents.events import AgentInput, AgentOutput, ToolCallResult
from batonflow.agents.ledger import OUTPUT_RETRIES
from batonflow.agents.members import Member
from batonflow.agents.output_types import FINAL_ANSWER, TypedOutput
from batonflow.agents.prompts import OUTPUT_FORM, OUTPUT_NOT_READ, OUTPUT_UNFIT
from batonflow.agents.run_output import OutputUnfitError
from batonflow.llms import ChatMessage, MessageRole, TextBlock
from batonflow.llms.structured import UnfitError
from batonflow.tools import AsyncBaseTool
from batonflow.tools.schema import ToolArgumentsError
from batonflow.workflow_core import Context

__all__ = ["ask_for_output", "count_unfit", "native_output", "output_tools", "read_early", "read_output", "take_result"]


def native_output(agent: Member, typed: TypedOutput) -> Any:
    """Return the schema of an output for vendors that enforce it; None where another way is needed."""
    if not agent.ends_by_tool or typed.functions or typed.takes_text or typed.form is None:
        return None
    llm = agent.llm_or_none()
    return typed.form.native if getattr(llm, "native_output_schema", False) is True else None


def output_tools(agent: Member, typed: TypedOutput) -> Sequence[AsyncBaseTool]:
    """Return the tools that take the output of an agent: the functions, and ``final_answer``."""
    if agent.ends_by_tool and native_output(agent, typed) is None:
        return typed.tools
    return [tool for tool in typed.tools if tool.metadata.name != FINAL_ANSWER]


def ask_for_output(agent: Member, typed: TypedOutput, shown: list[ChatMessage]) -> list[ChatMessage]:
    """Return the messages for a model with the schema of the output, if the agent answers in text."""
    if agent.ends_by_tool or typed.form is None:
        return shown
    asked = TextBlock(text=OUTPUT_FORM.format(schema=json.dumps(typed.form.parameters, ensure_ascii=False)))
    if shown and shown[-1].role is MessageRole.USER:
        return [*shown[:-1], shown[-1].model_copy(update={"blocks": [*shown[-1].blocks, asked]})]
    return [*shown, ChatMessage(blocks=[asked])]


async def read_output(turn: Any, typed: TypedOutput, output: AgentOutput) -> AgentInput | None:
    """Put the wire form of an answer into the output. If the answer does not fit, return the input of another step.

    Args:
        turn: The turn of the agent.
        typed: The declared output.
        output: The answer of the model; it is changed.

    Raises:
        OutputUnfitError: It does not fit, and there are no more retries.
    """
    agent: Member = turn.agent
    if typed.takes_text and agent.ends_by_tool:
        return None
    text = agent.as_shown_to_users(output.response).content or ""
    try:
        output.structured_response = typed.wire_of_text(text)
    except UnfitError as error:
        await _count(turn.ctx, typed, text, str(error))
        tools = [tool.metadata.get_name() for tool in output_tools(agent, typed)]
        remedy = f"Call {' or '.join(tools)} with it." if tools else "Write it again, as JSON that fits the schema."
        await agent.remind(turn.ctx, OUTPUT_UNFIT.format(problems=error, remedy=remedy), turn.memory)
        return await turn.next_input()
    return None


async def count_unfit(ctx: Context[Any], typed: TypedOutput, results: Sequence[ToolCallResult]) -> None:
    """Count calls of the last tools with arguments that do not fit.

    Raises:
        OutputUnfitError: There are no more retries.
    """
    names = {tool.metadata.get_name() for tool in typed.tools}
    for result in results:
        output = result.tool_output
        if result.tool_name in names and isinstance(output.exception, ToolArgumentsError):
            await _count(ctx, typed, json.dumps(result.tool_kwargs, ensure_ascii=False, default=str), output.content)
            return  # the calls of one answer count once


async def _count(ctx: Context[Any], typed: TypedOutput, text: str, problems: str) -> None:
    failed: int = await ctx.store.get(OUTPUT_RETRIES, default=None) or 0
    if failed >= typed.retries:
        raise OutputUnfitError(text, problems, typed.output_type)
    await ctx.store.set(OUTPUT_RETRIES, failed + 1)


def take_result(typed: TypedOutput, output: AgentOutput, direct: ToolCallResult) -> None:
    """Put the result of a last tool into the output of the run."""
    tool = next((one for one in typed.tools if one.metadata.get_name() == direct.tool_name), None)
    if tool is None:  # another direct tool, whose text is the answer
        if not typed.takes_text:
            read_early(typed, output, OUTPUT_NOT_READ.format(tool=direct.tool_name))
        return
    if direct.tool_name == FINAL_ANSWER and typed.form is not None:
        value = typed.form.parse_text(direct.tool_output.content)
        output.structured_response = typed.form.wire(value)
        output.keep_value(value)
        return
    value = direct.tool_output.raw_output
    output.structured_response = typed.whole.wire(value)
    output.keep_value(value)


def read_early(typed: TypedOutput, output: AgentOutput, reason: str) -> None:
    """Put the wire form of an answer into the output; without a fitting answer, put the reason there."""
    try:
        output.structured_response = typed.wire_of_text(str(output))
    except UnfitError:
        if not typed.takes_text:
            output["missing"] = reason
