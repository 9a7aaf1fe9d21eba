"""What models that stand in front of other models have in common."""

from typing import Any

from pydantic import SerializeAsAny

from batonflow.llms.base import LLM
from batonflow.llms.function_calling import FunctionCallingLLM
from batonflow.llms.messages import LLMMetadata

__all__ = ["WrappedLLM", "label"]


def label(llm: LLM) -> str:
    """How a model is called where several are told apart: its kind and its name."""
    return f"{llm.class_name()} {llm.metadata.model_name}"


class WrappedLLM(FunctionCallingLLM):
    """A model in front of another one. Subclasses write ``_stream`` and ask ``self.llm._stream``.

    Args:
        llm: The model behind.
    """

    llm: SerializeAsAny[LLM]

    def __init__(self, llm: LLM, **data: Any) -> None:
        data["llm"] = llm
        super().__init__(**data)

    @property
    def metadata(self) -> LLMMetadata:
        """Of the model behind."""
        return self.llm.metadata

    @property
    def native_output_schema(self) -> bool:
        """Of the model behind."""
        return self.llm.native_output_schema

    async def aclose(self) -> None:
        """Close the model behind."""
        await self.llm.aclose()
