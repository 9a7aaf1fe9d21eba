"""Language models: messages, the base class, adapters for vendors, and models for tests.

Adapters, and the SDKs of their vendors, are loaded at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batonflow._moved import module_at
from batonflow.llms.base import LLM, CustomLLM
from batonflow.llms.blocks import (
    AudioBlock,
    BaseContentBlock,
    CacheControl,
    CachePoint,
    CitableBlock,
    CitationBlock,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    NativeBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from batonflow.llms.errors import (
    AuthenticationError,
    ContentFilterError,
    ContextLengthError,
    IncompleteResponseError,
    InvalidResponseError,
    LLMConfigurationError,
    LLMConnectionError,
    LLMError,
    LLMRequestError,
    LLMServerError,
    LLMTimeoutError,
    MissingDependencyError,
    MissingKeyError,
    ModelNotFoundError,
    NoToolCallError,
    OverloadedError,
    RateLimitError,
    RefusalError,
    ReplayMissError,
    ScriptExhaustedError,
    StructuredOutputError,
    ToolCallError,
)
from batonflow.llms.function_calling import FunctionCallingLLM
from batonflow.llms.messages import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    LogProb,
    MessageRole,
    Messages,
)
from batonflow.llms.stream import ModelCall
from batonflow.llms.tool_protocol import ToolSelection, ToolSpec
from batonflow.llms.usage import Price, Usage, UsageTotals, price, track_usage

if TYPE_CHECKING:
    from batonflow.llms import fetching as fetching
    from batonflow.llms import predict_and_call as predict_and_call
    from batonflow.llms import structured as structured
    from batonflow.llms import watched as watched
    from batonflow.llms.anthropic import Anthropic
    from batonflow.llms.compatible import DeepSeek, Ollama, OpenAILike
    from batonflow.llms.fallback import FallbackLLM
    from batonflow.llms.fetching import FetchError, FetchPolicy
    from batonflow.llms.json_text import PartialModel
    from batonflow.llms.limits import RateLimitedLLM, RateLimits
    from batonflow.llms.mock import MockFunctionCallingLLM, MockLLM
    from batonflow.llms.openai import OpenAI
    from batonflow.llms.openai_responses import OpenAIResponses
    from batonflow.llms.predict_and_call import AgentChatResponse
    from batonflow.llms.prompts import BasePromptTemplate, ChatPromptTemplate, PromptTemplate
    from batonflow.llms.replay import RecordingLLM, ReplayLLM
    from batonflow.llms.scripted import Faults, ScriptedLLM, tool_call
    from batonflow.llms.settings import Settings, llm_from
    from batonflow.llms.structured_llm import StructuredLLM

__all__ = [
    "LLM",
    "AgentChatResponse",
    "Anthropic",
    "AudioBlock",
    "AuthenticationError",
    "BaseContentBlock",
    "BasePromptTemplate",
    "CacheControl",
    "CachePoint",
    "ChatMessage",
    "ChatPromptTemplate",
    "ChatResponse",
    "ChatResponseAsyncGen",
    "ChatResponseGen",
    "CitableBlock",
    "CitationBlock",
    "CompletionResponse",
    "CompletionResponseAsyncGen",
    "CompletionResponseGen",
    "ContentBlock",
    "ContentFilterError",
    "ContextLengthError",
    "CustomLLM",
    "DeepSeek",
    "DocumentBlock",
    "FallbackLLM",
    "Faults",
    "FetchError",
    "FetchPolicy",
    "FunctionCallingLLM",
    "ImageBlock",
    "IncompleteResponseError",
    "InvalidResponseError",
    "LLMConfigurationError",
    "LLMConnectionError",
    "LLMError",
    "LLMMetadata",
    "LLMRequestError",
    "LLMServerError",
    "LLMTimeoutError",
    "LogProb",
    "MessageRole",
    "Messages",
    "MissingDependencyError",
    "MissingKeyError",
    "MockFunctionCallingLLM",
    "MockLLM",
    "ModelCall",
    "ModelNotFoundError",
    "NativeBlock",
    "NoToolCallError",
    "Ollama",
    "OpenAI",
    "OpenAILike",
    "OpenAIResponses",
    "OverloadedError",
    "PartialModel",
    "Price",
    "PromptTemplate",
    "RateLimitError",
    "RateLimitedLLM",
    "RateLimits",
    "RecordingLLM",
    "RefusalError",
    "ReplayLLM",
    "ReplayMissError",
    "ScriptExhaustedError",
    "ScriptedLLM",
    "Settings",
    "StructuredLLM",
    "StructuredOutputError",
    "TextBlock",
    "ThinkingBlock",
    "ToolCallBlock",
    "ToolCallError",
    "ToolSelection",
    "ToolSpec",
    "Usage",
    "UsageTotals",
    "VideoBlock",
    "llm_from",
    "price",
    "tool_call",
    "track_usage",
]

_LAZY = {
    "AgentChatResponse": "predict_and_call",
    "Anthropic": "anthropic",
    "BasePromptTemplate": "prompts",
    "ChatPromptTemplate": "prompts",
    "DeepSeek": "compatible",
    "FallbackLLM": "fallback",
    "Faults": "scripted",
    "FetchError": "fetching",
    "FetchPolicy": "fetching",
    "MockFunctionCallingLLM": "mock",
    "MockLLM": "mock",
    "Ollama": "compatible",
    "OpenAI": "openai",
    "OpenAILike": "compatible",
    "OpenAIResponses": "openai_responses",
    "PartialModel": "json_text",
    "PromptTemplate": "prompts",
    "RateLimitedLLM": "limits",
    "RateLimits": "limits",
    "RecordingLLM": "replay",
    "ReplayLLM": "replay",
    "ScriptedLLM": "scripted",
    "Settings": "settings",
    "StructuredLLM": "structured_llm",
    "llm_from": "settings",
    "tool_call": "scripted",
}

_MODULES = frozenset({"fetching", "predict_and_call", "structured", "watched"})

_NOT_OFFERED = {
    "BaseLLM": "LLM is the base of every model here. Derive from it, and name it in annotations",
    "resolve_llm": 'use llm_from to make a model from its name; agents also take the name itself: llm="openai:gpt-5.6"',
}


def _load(name: str) -> Any:
    if name in _NOT_OFFERED:
        raise ImportError(f"{name} is not offered: {_NOT_OFFERED[name]}", name=f"{__name__}.{name}")
    home = name if name in _MODULES else _LAZY.get(name)
    if home is None:
        return module_at(__name__, name)
    module = import_module(f"{__name__}.{home}")
    found = module if name in _MODULES else getattr(module, name)
    globals()[name] = found
    return found


if not TYPE_CHECKING:  # checkers would take every name
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
