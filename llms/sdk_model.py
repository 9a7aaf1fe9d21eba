"""What the adapters over vendors' SDKs have in common: clients, keys and errors."""

import asyncio
import inspect
import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import cache
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

from pydantic import Field, PrivateAttr, SecretStr

from batonflow.llms._vendor import aload
from batonflow.llms.answer import incomplete
from batonflow.llms.blocks import ImageBlock, MediaBlock
from batonflow.llms.errors import (
    InvalidResponseError,
    LLMConfigurationError,
    LLMConnectionError,
    LLMError,
    LLMRequestError,
    LLMServerError,
    LLMTimeoutError,
    MissingKeyError,
    OverloadedError,
    RateLimitError,
    error_for_status,
)
from batonflow.llms.function_calling import FunctionCallingLLM
from batonflow.llms.messages import LLMMetadata
from batonflow.llms.stream import ChatRequest, Finish, StreamEvent
from batonflow.llms.strict_schema import strict_schema
from batonflow.llms.tool_protocol import ToolSpec
from batonflow.llms.usage import price, prices_available

__all__ = ["SDKModel", "unsupported"]

_OFFICIAL_TIMEOUT = 600.0
# Seconds that a server has to end an answer whose terminal mark has come; openai's SDK waits as long.
_DRAIN_TIME = 0.1

_KEY = re.compile(r"\b(?:sk|pk|rk|xai|gsk|AIza)[-_][A-Za-z0-9_*.-]{6,}")
_KEY_LENGTH = 8

# What vendors call an error that arrives when the HTTP status has long been sent.
_KINDS: Mapping[str, type[LLMError]] = {
    "overloaded_error": OverloadedError,
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
        http_client: An ``httpx2.AsyncClient`` to use, for a proxy or a certificate of one's own; it is not closed
            here. A client belongs to one event loop, and synchronous calls run on another than asynchronous ones: give
            a function that makes a client if the model is used both ways.
        additional_kwargs: Merged into the body of every request, over whatever is computed here; None takes a key out.
            What the SDK's method does not know goes into ``extra_body``.
        context_window: Tokens the model can read and write.
        is_function_calling_model: Whether it takes tools.
        strict_tools: Whether the vendor is to hold the model to the tools' schemas, as far as they have a strict form.
        reuse_client: Whether requests share connections; otherwise each opens its own and closes it.

    Raises:
        MissingKeyError: No key; the message names the environment variable.
        LLMConfigurationError: A setting that cannot be.
    """

    vendor: ClassVar[str]
    sdk_name: ClassVar[str]
    key_variables: ClassVar[tuple[str, ...]]
    url_variable: ClassVar[str | None] = None

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
    is_function_calling_model: bool = True
    strict_tools: bool = False
    reuse_client: bool = True

    # Connections belong to the event loop that opened them, and synchronous calls run on another one.
    _clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = PrivateAttr(
        default_factory=WeakKeyDictionary[asyncio.AbstractEventLoop, Any]
    )

    def __init__(self, model: str, **data: Any) -> None:
        if "api_base" in data:
            data.setdefault("base_url", data.pop("api_base"))
        if self.url_variable is not None and data.get("base_url") is None:
            data["base_url"] = os.environ.get(self.url_variable)
        data["model"] = model
        super().__init__(**data)
        self._check_options(self.additional_kwargs)
        if self.api_key is None:
            found = next((os.environ[name] for name in self.key_variables if os.environ.get(name)), None)
            self.api_key = None if found is None else SecretStr(found)
        if self.api_key is None or not self.api_key.get_secret_value():
            raise MissingKeyError(
                f"no key: set {self.key_variables[0]} or give api_key=... (any text for a server of your own that "
                "wants none)",
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
            is_function_calling_model=self.is_function_calling_model,
        )

    def _make_client(self, sdk: Any, options: dict[str, Any]) -> Any:
        """The SDK's asynchronous client."""
        raise NotImplementedError

    def _check_options(self, options: Mapping[str, Any]) -> None:
        if "stream" in options:
            raise LLMConfigurationError(
                "'stream' cannot be set: every request is streamed, and chat() waits for its end",
                vendor=self.vendor,
                model=self.model,
            )

    async def _client(self) -> Any:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            sdk = await aload(self.sdk_name, self.sdk_name)
            # Made only now: another task may have been here while the SDK was imported.
            client = self._clients.get(loop) or self._new_client(sdk)
            if self.reuse_client:
                self._clients[loop] = client
        return client

    def _new_client(self, sdk: Any) -> Any:
        assert self.api_key is not None  # checked by the constructor
        options: dict[str, Any] = {
            "api_key": self.api_key.get_secret_value(),
            "base_url": self.base_url,
            "timeout": self.timeout,
            "max_retries": self.max_retries,
            "default_headers": self.default_headers,
            "http_client": self.http_client() if callable(self.http_client) else self.http_client,
        }
        try:
            return self._make_client(sdk, options)
        except TypeError as err:
            # An http_client of another package, for instance.
            raise LLMConfigurationError(str(err), vendor=self.vendor, model=self.model) from err

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        """What to send for ``request``, but for the options."""
        raise NotImplementedError

    def _renamed(self, options: dict[str, Any]) -> dict[str, Any]:
        """Options of a call under the vendor's names."""
        return options

    def _method(self, client: Any, body: dict[str, Any]) -> Any:
        """The SDK's method that sends ``body``."""
        raise NotImplementedError

    def _read(self, stream: Any) -> AsyncGenerator[StreamEvent, None]:
        """The events in the SDK's stream."""
        raise NotImplementedError

    def _request_id(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-request-id")

    def _tool_schema(self, tool: ToolSpec) -> tuple[dict[str, Any], bool]:
        """The tool's schema as it is to be sent, and whether the vendor is to hold the model to it."""
        strict = strict_schema(tool.parameters) if self.strict_tools else None
        return (tool.parameters, False) if strict is None else (strict, True)

    def _merged(self, request: ChatRequest) -> dict[str, Any]:
        self._check_options(request.options)
        body = {**self._body(request), **self.additional_kwargs, **self._renamed(dict(request.options)), "stream": True}
        return {name: value for name, value in body.items() if value is not None}

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        sdk, http = await aload(self.sdk_name, self.sdk_name), await aload("httpx2", self.sdk_name)
        # Files are read and addresses fetched while the body is made.
        fetches = any(
            isinstance(one, MediaBlock) and not _is_here(one) for message in request.messages for one in message.blocks
        )
        body = await asyncio.to_thread(self._merged, request) if fetches else self._merged(request)
        client = await self._client()
        shown = False
        try:
            method = self._method(client, body)
            stream = await _without_key(method, _arguments(method, body), self.vendor, self.model)
            async with stream, aclosing(self._understood(stream)) as events:
                async for event in events:
                    if isinstance(event, Finish):
                        await _drain(http, stream.response)
                        yield await self._finished(event, stream)
                        return
                    shown = True
                    yield event
        except LLMError as err:
            err.shown = shown
            raise
        except (*_base_errors(sdk), http.HTTPError, http.InvalidURL, ValueError) as err:
            translated = self._translated(sdk, http, err, shown)
            if translated is None:
                raise
            raise translated from err
        finally:
            if not self.reuse_client and self._owns_connections:
                await client.close()
        kind = stream.response.headers.get("content-type", "")
        if not shown and "event-stream" not in kind:
            raise InvalidResponseError(
                f"the answer is {kind or 'something untyped'}, not a stream of events; is base_url right?",
                status_code=stream.response.status_code,
                request_id=self._request_id(stream.response.headers),
                vendor=self.vendor,
                model=self.model,
            )
        raise incomplete(shown, self.vendor, self.model)

    async def _understood(self, stream: Any) -> AsyncGenerator[StreamEvent, None]:
        """The events in the SDK's stream; what makes no sense is an error of ours.

        The SDKs check nothing: JSON of any other form comes out as objects without what the vendor's have.
        """
        try:
            async with aclosing(self._read(stream)) as events:
                async for event in events:
                    yield event
        except (AttributeError, TypeError, LookupError) as err:
            raise InvalidResponseError(
                f"an event that is none of this API: {self._redacted(str(err))}",
                status_code=stream.response.status_code,
                request_id=self._request_id(stream.response.headers),
                vendor=self.vendor,
                model=self.model,
            ) from err

    async def _finished(self, event: Finish, stream: Any) -> Finish:
        """The terminal mark with what is known beside the vendor's words: whose it is, which request, what it cost."""
        usage, model = event.usage, event.model or self.model
        if usage is not None and self._priced and prices_available():
            await aload("genai_prices", "prices")
            usage = usage.model_copy(update={"cost": price(usage, model, self.vendor)})
        request_id = event.request_id or self._request_id(stream.response.headers)
        return event.model_copy(update={"usage": usage, "vendor": self.vendor, "request_id": request_id})

    @property
    def _owns_connections(self) -> bool:
        return self.http_client is None or callable(self.http_client)

    @property
    def _priced(self) -> bool:
        """Whether the public price list holds for this address."""
        return self.base_url is None or self.vendor in self.base_url

    async def aclose(self) -> None:
        """Close this loop's connections; the next request opens new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None and self._owns_connections:
            await client.close()

    def _translated(self, sdk: Any, http: Any, err: Any, shown: bool) -> LLMError | None:
        """The error of ours that says what ``err`` says; None for what is no error of the vendor's."""
        details: dict[str, Any] = {"vendor": self.vendor, "model": self.model, "shown": shown}
        text = self._redacted(_words(getattr(err, "body", None)) or str(err) or type(err).__name__)
        if isinstance(err, sdk.APITimeoutError | http.TimeoutException):
            return LLMTimeoutError(f"no answer within {self.timeout:g} s", **details)
        if isinstance(err, sdk.APIResponseValidationError):
            return InvalidResponseError(f"an answer that is none of this API: {text}", **details)
        if isinstance(err, sdk.APIStatusError):
            headers = cast("Mapping[str, str]", err.response.headers)
            details |= {
                "status_code": err.status_code,
                "request_id": err.request_id or self._request_id(headers),
                "retry_after": _retry_after(headers),
            }
            kind = _KINDS.get(_kind(err.body)) if err.status_code < 400 else None
            return (kind or error_for_status(err.status_code, f"{_kind(err.body)} {text}"))(text, **details)
        if isinstance(err, sdk.APIConnectionError | http.TransportError | http.InvalidURL):
            cause = f": {err.__cause__}" if err.__cause__ is not None and str(err.__cause__) else ""
            where = "the connection broke" if shown else "no connection"
            return LLMConnectionError(f"{where}: {text}{self._redacted(cause)}", **details)
        if isinstance(err, sdk.APIError):
            kind_name = _kind(err.body)
            refused = error_for_status(400, f"{kind_name} {text}")
            return _KINDS.get(kind_name, refused if kind_name else LLMServerError)(text, **details)
        if isinstance(err, ValueError):
            return InvalidResponseError(f"something that is not JSON: {text}", **details)
        if isinstance(err, _base_errors(sdk)):
            return LLMRequestError(text, **details)
        return None

    def _redacted(self, text: str) -> str:
        """``text`` without keys and headers: vendors and proxies quote them back."""
        key = self.api_key.get_secret_value() if self.api_key is not None else ""
        for secret in (key, *(self.default_headers or {}).values()):
            if len(secret) >= _KEY_LENGTH:
                text = text.replace(secret, "***")
        return _KEY.sub("***", text)


def _is_here(block: MediaBlock) -> bool:
    """Whether the data are in the block, or at an address that goes to the vendor as it is."""
    return block.path is None and (block.url is None or isinstance(block, ImageBlock))


def unsupported(block: Any, api: str) -> LLMRequestError:
    """The error for a block that an API does not take."""
    return LLMRequestError(f"{api} take no {type(block).__name__}: leave it out, or ask a model that can read it")


async def _without_key(method: Any, arguments: dict[str, Any], vendor: str, model: str) -> Any:
    """Call the SDK's method; that it finds no key is an error of ours."""
    try:
        return await method(**arguments)
    except TypeError as err:
        if "authentication" not in str(err):
            raise
        raise MissingKeyError("the request has no key", vendor=vendor, model=model) from err


async def _drain(http: Any, response: Any) -> None:
    """Read what comes after the terminal mark, nearly always nothing: only then can the connection be used again."""
    if response.is_closed:
        return
    try:
        async with asyncio.timeout(_DRAIN_TIME):
            async for _ in response.stream:
                pass
    except (TimeoutError, http.HTTPError, http.StreamError):
        # The answer is whole, whatever happens to its connection.
        pass


@cache
def _known(function: Any) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def _arguments(method: Any, body: dict[str, Any]) -> dict[str, Any]:
    """``body`` as arguments of the SDK's method: what it has no parameter for goes into ``extra_body``."""
    known = _known(method.__func__)
    arguments = {name: value for name, value in body.items() if name in known}
    rest = {name: value for name, value in body.items() if name not in known}
    if rest:
        arguments["extra_body"] = {**rest, **(arguments.get("extra_body") or {})}
    return arguments


def _base_errors(sdk: Any) -> tuple[type[Exception], ...]:
    """The roots of the SDK's errors, whichever SDK it is."""
    return tuple(getattr(sdk, name) for name in ("OpenAIError", "AnthropicError") if hasattr(sdk, name))


def _told(body: Any) -> dict[str, Any]:
    """What an error's body says, however deep it lies under ``error``."""
    while isinstance(body, dict):
        given = cast("dict[str, Any]", body)
        if not isinstance(given.get("error"), dict):
            return given
        body = given["error"]
    return {}


def _kind(body: Any) -> str:
    """The vendor's word for an error: its type or its code, whichever is one that we know."""
    told = _told(body)
    for name in ("code", "type"):
        if told.get(name) in _KINDS or told.get(name) == "context_length_exceeded":
            return str(told[name])
    return str(told.get("type") or told.get("code") or "")


def _words(body: Any) -> str:
    """The vendor's message, with the code if there is one."""
    told = _told(body)
    message, code = told.get("message"), told.get("code")
    if not isinstance(message, str) or not message:
        return ""
    return f"{message} [{code}]" if isinstance(code, str) and code and code not in message else message


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, in either of the forms vendors send; dates are left to the SDK."""
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return float(headers[name]) / divisor
        except (KeyError, ValueError):
            continue
    return None
