"""The base class and the tool selection under the path that LlamaIndex has for them."""

from batonflow.llms.base import LLM
from batonflow.llms.tool_protocol import ToolSelection

__all__ = ["LLM", "ToolSelection"]
