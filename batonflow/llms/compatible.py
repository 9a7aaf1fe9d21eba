"""Servers that speak OpenAI's chat protocol: local ones, gateways, other vendors."""

import os
from typing import Any, ClassVar

from batonflow.llms.errors import LLMConfigurationError
from batonflow.llms.openai import OpenAI

__all__ = ["DeepSeek", "Ollama", "OpenAILike"]


class OpenAILike(OpenAI):
    """A model of a server with OpenAI's chat protocol: Ollama, vLLM, OpenRouter and others.

    Args:
        model: The model's name on the server.
        base_url: The server's URL, usually ending in ``/v1``; by default ``OPENAI_BASE_URL``.
        api_key: Any text, or nothing, for a server without keys; by default ``OPENAI_API_KEY``.
        is_function_calling_model: Whether the model takes tools.
        json_schema: Whether the server enforces a JSON schema for answers.
        strict_tools: Whether the server enforces the schemas of tools.
        max_tokens_field: The server's name for the limit of the response.
        reasoning_field: The field in which the server wants thoughts back; None when it does not.
        include_usage: Whether to request token counts; some servers do not know the option.
        data: Options of every SDK model (see ``SDKModel``).

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
        """Always False."""
        return False


class Ollama(OpenAILike):
    """A model that Ollama serves.

    Args:
        model: The model's name, with its tag.
        base_url: Ollama's URL; by default from ``OLLAMA_HOST``, or this machine.
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
    """Return the URL for ``OLLAMA_HOST``: a host, with or without scheme and port."""
    address = host.strip().rstrip("/") or "127.0.0.1"
    if "://" not in address:
        address = f"http://{address}"
    scheme, _, rest = address.partition("://")
    # A server may listen on all addresses, but a client cannot connect to this address.
    rest = rest.replace("0.0.0.0", "127.0.0.1", 1)  # noqa: S104 - replaced, not bound
    if ":" not in rest.rpartition("]")[2]:
        rest += {"http": ":11434"}.get(scheme, "")
    return f"{scheme}://{rest}/v1"


class DeepSeek(OpenAI):
    """A model of DeepSeek. Its thoughts are sent back, as the vendor requires after tool calls.

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
        """Always False."""
        return False
