"""Settings: the model of agents that are given none, for programs that set it in one place."""

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
    return cast("LLM", getattr(llms, adapter)(model, **options))


class LLMSettings:
    """What holds for a whole program: one default model, and nothing else.

    LlamaIndex users know it. It is read when an agent is made without ``llm=`` and at no other time, so that setting it
    later changes no agent that there is. Programs of your own are clearer when they pass ``llm=``.

    Example:
        >>> Settings.llm = "openai:gpt-5.6"
        >>> agent = FunctionAgent(tools=[add])
    """

    __slots__ = ("_llm",)

    def __init__(self) -> None:
        self._llm: LLM | None = None

    @property
    def llm(self) -> LLM | None:
        """The default model, None while there is none.

        Set it to a model, or to its name (``"openai:gpt-5.6"``), which becomes a model at once; None takes it away.

        Raises:
            LLMConfigurationError: When set: a name that names no model, no key for it, or something that is neither.
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

    # Only asked for what there is not.
    def __getattr__(self, name: str) -> NoReturn:
        raise self._unknown(name)

    def _unknown(self, name: str) -> AttributeError:
        return AttributeError(
            f"Settings has no {name!r}: Settings.llm is all there is; whatever else is needed is passed to the agent, "
            "model or memory that needs it",
            name=name,
            obj=self,
        )

    def __repr__(self) -> str:
        return f"Settings(llm={self._llm and type(self._llm).__name__})"


Settings = LLMSettings()
"""The one of this process."""
