"""The state of a run in what a model is shown."""

from batonflow.llms import ChatMessage, TextBlock
from batonflow.llms.prompts.base import fill

__all__ = ["with_state"]


def with_state(message: ChatMessage, state: str, prompt: str) -> ChatMessage:
    """A message with the state around its last text.

    Args:
        message: What the user asked.
        state: The state as text.
        prompt: How it is shown; has ``{state}`` and ``{msg}``.
    """
    blocks = list(message.blocks)
    for index in range(len(blocks) - 1, -1, -1):
        block = blocks[index]
        if isinstance(block, TextBlock):
            blocks[index] = TextBlock(text=fill(prompt, {"state": state, "msg": block.text}))
            break
    return ChatMessage(blocks, role=message.role, additional_kwargs=message.additional_kwargs)
