"""Models by name: ``"openai:gpt-5.6"`` and its like."""

from typing import Any, cast

from batonflow.llms._vendor import load
from batonflow.llms.base import LLM
from batonflow.llms.errors import LLMConfigurationError

__all__ = ["llm_from"]


# Module and class for each prefix.
_ADAPTERS = {
    "openai": ("openai", "OpenAI"),
    "responses": ("openai_responses", "OpenAIResponses"),
    "anthropic": ("anthropic", "Anthropic"),
    "deepseek": ("compatible", "DeepSeek"),
    "ollama": ("compatible", "Ollama"),
    "compatible": ("compatible", "OpenAILike"),
}


def llm_from(name: str, **options: Any) -> LLM:
    """The model that ``name`` stands for.

    Args:
        name: ``"prefix:model"``, split at the first colon. Prefixes: openai, responses (OpenAI's other API), anthropic,
            deepseek, ollama, compatible (any server that speaks OpenAI's chat protocol; give ``base_url``).
        **options: For the adapter: ``api_key``, ``temperature`` and so on.

    Raises:
        LLMConfigurationError: An unknown prefix, no model, or no key; the message says what is known or which
            environment variable is missing.

    Example:
        >>> llm = llm_from("openai:gpt-5.6")
        >>> local = llm_from("ollama:qwen3:8b")
    """
    prefix, _, model = name.partition(":")
    adapter = _ADAPTERS.get(prefix)
    if adapter is None or not model:
        known = ", ".join(f"{one}:<model>" for one in sorted(_ADAPTERS))
        raise LLMConfigurationError(f"{name!r} names no model; known are {known}")
    module, made = adapter
    return cast("LLM", getattr(load(f"batonflow.llms.{module}"), made)(model, **options))
