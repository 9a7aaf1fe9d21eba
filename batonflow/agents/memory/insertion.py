"""Insertion of the content of memory blocks into a conversation."""

from collections.abc import Sequence
from typing import cast

from batonflow.agents.memory.blocks import BlockContent, InsertMethod
from batonflow.agents.memory.turns import is_observation
from batonflow.llms import ChatMessage, ContentBlock, MessageRole, TextBlock

__all__ = ["MEMORY_BLOCKS_TEMPLATE", "PLACE", "inserted"]

PLACE = "{memory_blocks}"
"""The placeholder of the sections in a template."""

MEMORY_BLOCKS_TEMPLATE = f"<memory>\n{PLACE}\n</memory>"


def inserted(
    conversation: Sequence[ChatMessage],
    contents: Sequence[tuple[str, BlockContent]],
    template: str,
    where: InsertMethod,
) -> list[ChatMessage]:
    """Return a conversation with the content of blocks: messages at its beginning, the rest in named sections.

    Args:
        conversation: The messages; they stay as they are.
        contents: Names and contents of blocks, in the order in which to show them.
        template: The text around the sections.
        where: Before the first system message's or the newest user message's own content; such a message is made when
            the conversation has no such message.
    """
    first: list[ChatMessage] = []
    sections: list[tuple[str, list[ContentBlock]]] = []
    for name, content in contents:
        if isinstance(content, str):
            sections.append((name, [TextBlock(text=content)]))
        elif isinstance(content[0], ChatMessage):
            first += cast("list[ChatMessage]", content)
        else:
            sections.append((name, cast("list[ContentBlock]", content)))
    shown = [*first, *conversation]
    if not sections:
        return shown
    blocks = _laid_out(sections, template)
    system = where == InsertMethod.SYSTEM
    role = MessageRole.SYSTEM if system else MessageRole.USER
    found = [position for position, message in enumerate(shown) if message.role == role and not is_observation(message)]
    if found:
        position = found[0] if system else found[-1]
        shown[position] = shown[position].model_copy(update={"blocks": [*blocks, *shown[position].blocks]})
    else:
        shown.insert(0 if system else len(shown), ChatMessage(blocks, role=role))
    return shown


def _laid_out(sections: Sequence[tuple[str, list[ContentBlock]]], template: str) -> list[ContentBlock]:
    before, _, after = template.partition(PLACE)
    parts: list[ContentBlock | str] = [before]
    for number, (name, blocks) in enumerate(sections):
        parts.append(f"\n<{name}>" if number else f"<{name}>")
        for block in blocks:
            parts += ["\n", block.text if isinstance(block, TextBlock) else block]
        parts.append(f"\n</{name}>")
    parts.append(after)
    laid_out: list[ContentBlock] = []
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
        else:
            laid_out += [TextBlock(text=text), part]
            text = ""
    return [*laid_out, TextBlock(text=text)]
