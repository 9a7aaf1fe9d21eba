"""Models by name, and the default model of agents that are created without a model."""

from typing import Any, NoReturn, cast

from batonflow import llms
from batonflow.llms.base import LLM
from batonflow.llms.errors import LLMConfigurationError

__all__ = ["LLMSettings", "Settings", "llm_from"]

# The class of each prefix.
_ADAPTERS = {
    "openai": "OpenAI",
    "responses": "OpenAIResponses",
    "anthropic": "Anthropic",
    "deepseek": "DeepSeek",
    "ollama": "Ollama",
    "compatible": "OpenAILike",
}


def llm_from(name: str, **options: Any) -> LLM:
    """Return the model for a name.

    Args:
        name: ``"prefix:model"``, split at the first colon. Prefixes: openai, responses (OpenAI's other API), anthropic,
            deepseek, ollama, compatible (any server with OpenAI's chat protocol; pass ``base_url``).
        **options: Options of the adapter: ``api_key``, ``temperature`` and so on.

    Raises:
        LLMConfigurationError: An unknown prefix, no model, or no key; the message lists the prefixes or names the
            missing environment variable.

    Example:
        >>> llm = llm_from("openai:gpt-5.6")
        >>> local = llm_from("ollama:qwen3:8b")
    """
    prefix, _, model = name.partition(":")
    adapter = _ADAPTERS.get(prefix)
    if adapter is None or not model:
        known = ", ".join(f"{one}:<model>" for one in sorted(_ADAPTERS))
        raise LLMConfigurationError(f"{name!r} names no model; known are {known}")
    return cast("LLM", getattr(llms, adapter)(model, **options))


class LLMSettings:
    """The settings of a program: one default model.

    They exist for LlamaIndex programs. An agent created without ``llm=`` reads them once, so that a later change
    affects new agents only. New programs are clearer when they pass ``llm=``.

    Example:
        >>> Settings.llm = "openai:gpt-5.6"
        >>> agent = FunctionAgent(tools=[add])
    """

    __slots__ = ("_llm",)

    def __init__(self) -> None:
        self._llm: LLM | None = None

    @property
    def llm(self) -> LLM | None:
        """The default model, or None.

        Set it to a model, to a name (``"openai:gpt-5.6"``), which becomes a model at once, or to None.

        Raises:
            LLMConfigurationError: When set: an unknown name, no key for the model, or a value of another type.
        """
        return self._llm

    @llm.setter
    def llm(self, value: LLM | str | None) -> None:
        if isinstance(value, str):
            value = llm_from(value)
        if value is not None and not isinstance(value, LLM):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LLMConfigurationError(
                f"Settings.llm takes a model or its name, such as 'openai:gpt-5.6', got {type(value).__name__}"
            )
        self._llm = value

    def __setattr__(self, name: str, value: object) -> None:
        if name not in ("llm", "_llm"):
            raise self._unknown(name)
        object.__setattr__(self, name, value)

    # Only called for unknown names.
    def __getattr__(self, name: str) -> NoReturn:
        raise self._unknown(name)

    def _unknown(self, name: str) -> AttributeError:
        return AttributeError(
            f"Settings has no {name!r}, only Settings.llm. Pass other settings to the agent, model or memory that "
            "needs them",
            name=name,
            obj=self,
        )

    def __repr__(self) -> str:
        return f"Settings(llm={self._llm and type(self._llm).__name__})"


Settings = LLMSettings()
"""The settings of this process."""
