"""Prompts: texts with placeholders, and a mixin to read and replace the prompts of an object."""

from batonflow.llms.messages import ChatMessage, MessageRole
from batonflow.llms.prompts.base import BasePromptTemplate, ChatPromptTemplate, PromptMixin, PromptTemplate, PromptType

__all__ = [
    "BasePromptTemplate",
    "ChatMessage",
    "ChatPromptTemplate",
    "MessageRole",
    "PromptMixin",
    "PromptTemplate",
    "PromptType",
]

_NOT_OFFERED = {
    "RichPromptTemplate": "its templates are Jinja programs, and a prompt here is text with {names}. Use "
    "ChatPromptTemplate for several messages, and compute loops and conditions in Python or in function_mappings",
    "LangchainPromptTemplate": "prompts of LangChain are formatted there. Make a PromptTemplate of their text",
    "get_template_vars": "a prompt knows its placeholders. Make a PromptTemplate of the text and read its "
    "template_vars",
    "SelectorPromptTemplate": "which prompt a model gets is decided in plain Python. Choose the PromptTemplate where "
    "you have the model",
}


def __getattr__(name: str) -> None:
    if name in _NOT_OFFERED:
        raise ImportError(f"{name} is not offered: {_NOT_OFFERED[name]}", name=f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
