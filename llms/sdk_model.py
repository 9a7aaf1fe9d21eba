"""What the adapters over vendors' SDKs have in common: clients, keys and errors."""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

from pydantic import Field, PrivateAttr, SecretStr

from batonflow.llms._vendor import aload
from batonflow.llms.errors import (
    InvalidResponseError,
    LLMConfigurationError,
    LLMConnectionError,
    LLMError,
    LLMRequestError,
    LLMServerError,
    LLMTimeoutError,
    RateLimitError,
    error_for_status,
)
from batonflow.llms.function_calling import FunctionCallingLLM
from batonflow.llms.messages import LLMMetadata
from batonflow.llms.stream import ChatRequest, StreamEvent

__all__ = ["SDKModel"]

_OFFICIAL_TIMEOUT = 600.0

# What vendors call an error that arrives when the HTTP status has long been sent.
_KINDS: Mapping[str, type[LLMError]] = {
    "overloaded_error": LLMServerError,
    "api_error": LLMServerError,
    "server_error": LLMServerError,
    "internal_server_error": LLMServerError,
    "timeout_error": LLMTimeoutError,
    "rate_limit_error": RateLimitError,
    "rate_limit_exceeded": RateLimitError,
    "insufficient_quota": RateLimitError,
}


class SDKModel(FunctionCallingLLM):
    """A model behind a vendor's SDK.

    Args:
        model: The model's name, as the vendor has it.
        temperature: How freely it writes; None leaves it to the vendor.
        max_tokens: How much it writes at most.
        api_key: The key; from the environment when left out.
        base_url: Another address than the vendor's.
        timeout: Seconds for a request.
        max_retries: How often the SDK repeats a request that failed before its answer began.
        default_headers: Sent with every request.
        http_client: An ``httpx2.AsyncClient`` to use; it is not closed here.
        additional_kwargs: Options of the vendor's, sent with every request.
        context_window: Tokens the model can read and write.

    Raises:
        LLMConfigurationError: No key, or no such setting; the message names the environment variable.
    """

    vendor: ClassVar[str]
    sdk_name: ClassVar[str]
    key_variables: ClassVar[tuple[str, ...]]

    model: str
    temperature: float | None = None
    max_tokens: int | None = None
    api_key: SecretStr | None = Field(default=None, exclude=True, repr=False)
    base_url: str | None = None
    timeout: float = _OFFICIAL_TIMEOUT
    max_retries: int = Field(default=2, ge=0)
    default_headers: dict[str, str] | None = Field(default=None, exclude=True, repr=False)
    http_client: Any = Field(default=None, exclude=True, repr=False)
    additional_kwargs: dict[str, Any] = Field(default_factory=dict)
    context_window: int = 128_000

    # Connections belong to the event loop that opened them, and synchronous calls run on another one.
    _clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = PrivateAttr(
        default_factory=WeakKeyDictionary[asyncio.AbstractEventLoop, Any]
    )

    def __init__(self, model: str, **data: Any) -> None:
        if "api_base" in data:
            data.setdefault("base_url", data.pop("api_base"))
        data["model"] = model
        super().__init__(**data)
        if self.api_key is None:
            found = next((os.environ[name] for name in self.key_variables if os.environ.get(name)), None)
            self.api_key = None if found is None else SecretStr(found)
        if self.api_key is None:
            raise LLMConfigurationError(
                f"no key for {self.vendor}: set {self.key_variables[0]} or give api_key=... (any text for a server of "
                "your own that wants none)",
                vendor=self.vendor,
                model=model,
            )

    @property
    def metadata(self) -> LLMMetadata:
        """A function calling chat model."""
        return LLMMetadata(
            model_name=self.model,
            context_window=self.context_window,
            num_output=self.max_tokens or 4096,
            is_chat_model=True,
            is_function_calling_model=True,
        )

    def _make_client(self, sdk: Any, options: dict[str, Any]) -> Any:
        """The SDK's asynchronous client."""
        raise NotImplementedError

    async def _client(self) -> Any:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            sdk = await aload(self.sdk_name, self.sdk_name)
            assert self.api_key is not None  # checked by the constructor
            options: dict[str, Any] = {
                "api_key": self.api_key.get_secret_value(),
                "base_url": self.base_url,
                "timeout": self.timeout,
                "max_retries": self.max_retries,
                "default_headers": self.default_headers,
                "http_client": self.http_client,
            }
            # Made only now: another task may have been here while the SDK was imported.
            client = self._clients.get(loop)
            if client is None:
                client = self._clients[loop] = self._make_client(sdk, options)
        return client

    def _arguments(self, request: ChatRequest) -> dict[str, Any]:
        """The arguments of the SDK's method for ``request``."""
        raise NotImplementedError

    async def _open(self, client: Any, arguments: dict[str, Any]) -> Any:
        """Send the request; returns the SDK's stream."""
        raise NotImplementedError

    def _read(self, stream: Any) -> AsyncGenerator[StreamEvent, None]:
        """The events in the SDK's stream."""
        raise NotImplementedError

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        client, arguments = await self._client(), self._arguments(request)
        sdk, http = await aload(self.sdk_name, self.sdk_name), await aload("httpx2", self.sdk_name)
        seen = False
        try:
            stream = await self._open(client, arguments)
            async with stream, aclosing(self._read(stream)) as events:
                async for event in events:
                    seen = True
                    yield event
        except (*_base_errors(sdk), http.HTTPError, ValueError) as err:
            translated = self._translated(sdk, http, err)
            if translated is None:
                raise
            raise translated from err
        kind = stream.response.headers.get("content-type", "")
        if not seen and "event-stream" not in kind:
            raise InvalidResponseError(
                f"{self.vendor} answered with {kind or 'something untyped'}, not with a stream of events",
                status_code=stream.response.status_code,
                vendor=self.vendor,
                model=self.model,
            )

    async def aclose(self) -> None:
        """Close this loop's connections; the next request opens new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None and self.http_client is None:
            await client.close()

    def _translated(self, sdk: Any, http: Any, err: Any) -> LLMError | None:
        """The error of ours that says what ``err`` says; None for what is no error of the vendor's."""
        details: dict[str, Any] = {"vendor": self.vendor, "model": self.model}
        text = str(err) or type(err).__name__
        if isinstance(err, sdk.APITimeoutError | http.TimeoutException):
            return LLMTimeoutError(f"{self.vendor} did not answer within {self.timeout:g} s", **details)
        if isinstance(err, sdk.APIResponseValidationError):
            return InvalidResponseError(text, status_code=err.status_code, **details)
        if isinstance(err, sdk.APIStatusError):
            headers = cast("Mapping[str, str]", err.response.headers)
            details |= {
                "status_code": err.status_code,
                "request_id": getattr(err, "request_id", None) or headers.get("request-id"),
                "retry_after": _retry_after(headers),
            }
            kind = _KINDS.get(_kind(err.body)) if err.status_code < 400 else None
            return (kind or error_for_status(err.status_code, f"{_kind(err.body)} {text}"))(text, **details)
        if isinstance(err, sdk.APIConnectionError | http.TransportError):
            cause = f": {err.__cause__}" if err.__cause__ is not None and str(err.__cause__) else ""
            return LLMConnectionError(f"no connection to {self.vendor}: {text}{cause}", **details)
        if isinstance(err, sdk.APIError):
            kind_name = _kind(err.body)
            refused = error_for_status(400, f"{kind_name} {text}")
            return _KINDS.get(kind_name, refused if kind_name else LLMServerError)(text, **details)
        if isinstance(err, ValueError):
            return InvalidResponseError(f"{self.vendor} sent something that is not JSON: {text}", **details)
        if isinstance(err, _base_errors(sdk)):
            return LLMRequestError(text, **details)
        return None


def _base_errors(sdk: Any) -> tuple[type[Exception], ...]:
    """The roots of the SDK's errors, whichever SDK it is."""
    return tuple(getattr(sdk, name) for name in ("OpenAIError", "AnthropicError") if hasattr(sdk, name))


def _kind(body: Any) -> str:
    """The vendor's word for an error: ``error.type`` or ``error.code`` of the body, however deep it lies."""
    if not isinstance(body, dict):
        return ""
    given = cast("dict[str, Any]", body)
    inner = given.get("error")
    if isinstance(inner, dict):
        return _kind(inner)
    for name in ("code", "type"):
        if given.get(name) in _KINDS or given.get(name) == "context_length_exceeded":
            return str(given[name])
    return str(given.get("type") or given.get("code") or "")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, in either of the forms vendors send; dates are left to the SDK."""
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return float(headers[name]) / divisor
        except (KeyError, ValueError):
            continue
    return None
