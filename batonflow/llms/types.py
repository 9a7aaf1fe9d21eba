"""Names that signatures share."""

from collections.abc import AsyncGenerator, Generator
from enum import Enum
from typing import TypeVar

from pydantic import BaseModel

from batonflow.llms.messages import ChatMessage, MessageRole

__all__ = ["ChatMessage", "MessageRole", "Model", "PydanticProgramMode", "TokenAsyncGen", "TokenGen"]

Model = TypeVar("Model", bound=BaseModel)
"""The class of a structured answer."""

TokenGen = Generator[str, None, None]
TokenAsyncGen = AsyncGenerator[str, None]


class PydanticProgramMode(str, Enum):  # noqa: UP042 - like MessageRole, for the programs this must run
    """How a model is brought to answer in a form.

    ``DEFAULT`` takes the best way the model has. ``NATIVE``: the vendor holds the answer to the schema. ``FUNCTION``,
    also under its older name ``OPENAI``: the answer is the arguments of a tool call. ``LLM``: the schema is in the
    prompt. The others are names of ways that are not offered.
    """

    DEFAULT = "default"
    NATIVE = "native"
    FUNCTION = "function"
    OPENAI = "openai"
    LLM = "llm"
    GUIDANCE = "guidance"
    LM_FORMAT_ENFORCER = "lm-format-enforcer"
