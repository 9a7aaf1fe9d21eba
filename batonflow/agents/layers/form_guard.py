"""Guards of structured answers."""

import json
from typing import Any

from batonflow.agents.events import AgentOutput
from batonflow.agents.layers.guards import blocked
from batonflow.agents.members import Member
from batonflow.instrumentation.logs import logger_named
from batonflow.llms import ChatMessage, MessageRole, TextBlock
from batonflow.tools.code.worker import jsonable
from batonflow.workflow_core import Context

__all__ = ["guard_form"]

logger = logger_named("batonflow.agent")


async def guard_form(ctx: Context[Any], agent: Member, output: AgentOutput) -> bool:
    """Return whether guards permit the structured form of an answer; remove a blocked form from the output.

    Guards get the text of the answer followed by the form.

    Args:
        ctx: The run's context, inside a step.
        agent: The agent that answers.
        output: The answer.
    """
    form = TextBlock(text=json.dumps(jsonable(output.structured_response), ensure_ascii=False))
    whole = ChatMessage([*output.response.blocks, form], role=MessageRole.ASSISTANT)
    reason = await blocked(agent.output_guards, ctx, whole)
    if reason is None:
        return True
    logger.warning("Agent %s: the structured form of its answer is blocked: %s", agent.name, reason)
    output.structured_response = None
    output["blocked"] = "structured"
    return False
