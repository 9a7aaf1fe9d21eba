"""Servers that speak OpenAI's chat protocol: local ones, gateways, other vendors."""

import os
from typing import Any, ClassVar

from batonflow.llms.errors import LLMConfigurationError
from batonflow.llms.openai import OpenAI

__all__ = ["DeepSeek", "Ollama", "OpenAILike"]


class OpenAILike(OpenAI):
    """A model behind a server that speaks OpenAI's chat protocol: Ollama, vLLM, OpenRouter and others.

    Args:
        model: The model's name, as the server has it.
        base_url: The server's address, usually ending in ``/v1``; ``OPENAI_BASE_URL`` when left out.
        api_key: Any text, or nothing, for a server that wants none; ``OPENAI_API_KEY`` when left out.
        is_function_calling_model: Whether the model takes tools.
        json_schema: Whether the server can hold an answer to a JSON schema.
        strict_tools: Whether it can hold tool calls to the tools' schemas.
        max_tokens_field: How it calls the limit of the answer.
        reasoning_field: Under which name it wants the model's thoughts back; None when it does not.
        include_usage: Whether to ask for token counts; some servers do not know the option.
        data: What every model over an SDK takes (see ``SDKModel``).

    Raises:
        LLMConfigurationError: No ``base_url``.

    Example:
        >>> llm = OpenAILike("qwen3", base_url="http://127.0.0.1:8000/v1", json_schema=True)
        >>> print(llm.complete("Say hello."))
    """

    vendor: ClassVar[str] = "compatible"

    max_tokens_field: str | None = "max_tokens"
    json_schema: bool | None = False

    def __init__(self, model: str, **data: Any) -> None:
        if not data.get("api_key"):
            data["api_key"] = os.environ.get("OPENAI_API_KEY") or "none"
        super().__init__(model, **data)
        if self.base_url is None:
            raise LLMConfigurationError(
                "no address: give base_url='http://…/v1' or set OPENAI_BASE_URL", vendor=self.vendor, model=model
            )

    @property
    def official(self) -> bool:
        """Never OpenAI's own."""
        return False


class Ollama(OpenAILike):
    """A model that Ollama serves.

    Args:
        model: The model's name, tag included.
        base_url: Ollama's address; from ``OLLAMA_HOST`` when left out, else this machine.
        data: See ``OpenAILike``.

    Example:
        >>> llm = Ollama("qwen3:8b")
    """

    vendor: ClassVar[str] = "ollama"
    url_variable: ClassVar[str | None] = None

    json_schema: bool | None = True

    def __init__(self, model: str, **data: Any) -> None:
        if not (data.get("base_url") or data.get("api_base")):
            data["base_url"] = _ollama_address(os.environ.get("OLLAMA_HOST", ""))
        data.setdefault("api_key", "ollama")
        super().__init__(model, **data)


def _ollama_address(host: str) -> str:
    """The address that ``OLLAMA_HOST`` stands for: a host, with or without scheme and port."""
    address = host.strip().rstrip("/") or "127.0.0.1"
    if "://" not in address:
        address = f"http://{address}"
    scheme, _, rest = address.partition("://")
    # Where a server listens on every address, a client cannot go there.
    rest = rest.replace("0.0.0.0", "127.0.0.1", 1)  # noqa: S104 - replaced, not bound
    if ":" not in rest.rpartition("]")[2]:
        rest += {"http": ":11434"}.get(scheme, "")
    return f"{scheme}://{rest}/v1"


class DeepSeek(OpenAI):
    """A model of DeepSeek's. Its thoughts go back with the conversation, as the vendor asks once tools are used.

    Args:
        model: The model's name.
        data: See ``OpenAI``.

    Raises:
        MissingKeyError: Neither ``api_key`` nor ``DEEPSEEK_API_KEY``.

    Example:
        >>> llm = DeepSeek("deepseek-chat", api_key=key)
    """

    vendor: ClassVar[str] = "deepseek"
    key_variables: ClassVar[tuple[str, ...]] = ("DEEPSEEK_API_KEY",)
    url_variable: ClassVar[str | None] = None

    max_tokens_field: str | None = "max_tokens"
    reasoning_field: str | None = "reasoning_content"
    json_schema: bool | None = False

    def __init__(self, model: str = "deepseek-chat", **data: Any) -> None:
        if "api_base" not in data:
            data.setdefault("base_url", "https://api.deepseek.com")
        super().__init__(model, **data)

    @property
    def official(self) -> bool:
        """Never OpenAI's own."""
        return False
