"""Models by name: ``"openai:gpt-5.6"`` and its like."""

import os
from collections.abc import Callable
from typing import Any, cast

from batonflow.llms._vendor import load
from batonflow.llms.base import LLM
from batonflow.llms.errors import LLMConfigurationError

__all__ = ["llm_from"]


def _openai(model: str, options: dict[str, Any]) -> LLM:
    return cast("LLM", load("batonflow.llms.openai").OpenAI(model=model, **options))


def _anthropic(model: str, options: dict[str, Any]) -> LLM:
    return cast("LLM", load("batonflow.llms.anthropic").Anthropic(model=model, **options))


def _deepseek(model: str, options: dict[str, Any]) -> LLM:
    return cast("LLM", load("batonflow.llms.openai").DeepSeek(model=model, **options))


def _ollama(model: str, options: dict[str, Any]) -> LLM:
    options.setdefault("base_url", os.environ.get("OLLAMA_HOST", "http://127.0.0.1:11434").rstrip("/") + "/v1")
    options.setdefault("api_key", "ollama")
    return cast("LLM", load("batonflow.llms.openai").OpenAI(model=model, **options))


def _compatible(model: str, options: dict[str, Any]) -> LLM:
    if "base_url" not in options and not os.environ.get("OPENAI_BASE_URL"):
        raise LLMConfigurationError("compatible: needs base_url=..., or OPENAI_BASE_URL in the environment")
    if not options.get("api_key"):
        options["api_key"] = os.environ.get("OPENAI_API_KEY") or "none"
    return cast("LLM", load("batonflow.llms.openai").OpenAI(model=model, **options))


_ADAPTERS: dict[str, Callable[[str, dict[str, Any]], LLM]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "deepseek": _deepseek,
    "ollama": _ollama,
    "compatible": _compatible,
}


def llm_from(name: str, **options: Any) -> LLM:
    """The model that ``name`` stands for.

    Args:
        name: ``"prefix:model"``, split at the first colon. Prefixes: openai, anthropic, deepseek, ollama, compatible
            (any server that speaks OpenAI's chat protocol; give ``base_url``).
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
    return adapter(model, dict(options))
