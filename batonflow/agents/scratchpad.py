"""Agents that keep the messages of a turn apart from the memory until there is an answer."""

import asyncio
from typing import Any

from batonflow.agents.base import BaseWorkflowAgent
from batonflow.agents.events import AgentOutput, ToolCallResult
from batonflow.agents.memory import BaseMemory
from batonflow.agents.memory.turns import observation
from batonflow.llms import ChatMessage, MessageRole
from batonflow.llms.lazy_fields import assembled
from batonflow.workflow_core import Context

__all__ = ["ScratchpadAgent", "move_into", "tool_message"]


def tool_message(result: ToolCallResult) -> ChatMessage:
    """The message that answers a native call; it says so when the call failed, for vendors that want to know."""
    output = result.tool_output
    about: dict[str, Any] = {"tool_call_id": result.tool_id}
    if output.is_error:
        about["is_error"] = True
    return assembled(ChatMessage, {"role": MessageRole.TOOL, "additional_kwargs": about, "blocks": list(output.blocks)})


async def move_into(memory: BaseMemory, messages: list[ChatMessage], ctx: Context[Any], key: str) -> None:
    """Put messages into the memory, and forget what they were made of.

    Args:
        memory: Where to.
        messages: What is put there.
        ctx: The run's context.
        key: Where the state store has what they were made of, a list.
    """
    try:
        await memory.aput_messages(messages)
    except asyncio.CancelledError:
        # A thread may be done with it all the same, and twice they must not be there.
        if messages and [_told(one) for one in (await memory.aget_all())[-len(messages) :]] == [*map(_told, messages)]:
            await ctx.store.set(key, [])
        raise
    await ctx.store.set(key, [])


def _told(message: ChatMessage) -> tuple[str, str | None, Any]:
    return message.role.value, message.content, message.additional_kwargs.get("tool_call_id")


class ScratchpadAgent(BaseWorkflowAgent):
    """Keeps what is said in a turn in the run's state, and moves it into the memory with the answer.

    Args:
        scratchpad_key: Where the messages of the current turn are kept.
    """

    scratchpad_key: str = "scratchpad"

    async def _bf_scratchpad(self, ctx: Context[Any]) -> list[ChatMessage]:
        return list(await ctx.store.get(self.scratchpad_key, default=[]))

    async def finalize(self, ctx: Context[Any], output: AgentOutput, memory: BaseMemory) -> AgentOutput:
        """Move the messages of this turn into the memory."""
        await move_into(memory, await self._bf_scratchpad(ctx), ctx, self.scratchpad_key)
        return output

    async def take_back(self, ctx: Context[Any]) -> None:
        """Forget the last answer."""
        await ctx.store.set(self.scratchpad_key, (await self._bf_scratchpad(ctx))[:-1])

    async def unfinished(self, ctx: Context[Any]) -> list[Any]:
        """The messages of this turn."""
        return await self._bf_scratchpad(ctx)

    async def remind(self, ctx: Context[Any], words: str, memory: BaseMemory) -> None:  # noqa: ARG002 - the loop's hook
        """Show ``words`` to the model after its last answer."""
        await ctx.store.set(self.scratchpad_key, [*await self._bf_scratchpad(ctx), observation(words)])
