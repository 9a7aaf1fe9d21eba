"""The base of the adapters over vendors' SDKs: clients, keys and errors."""

import asyncio
import inspect
import json
import os
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, PrivateAttr, SecretStr, ValidationError, field_serializer

from batonflow.instrumentation.logs import logger_named
from batonflow.instrumentation.redaction import never_show
from batonflow.llms._vendor import Clients, aload
from batonflow.llms.answer import incomplete
from batonflow.llms.blocks import CitableBlock, ImageBlock, MediaBlock, json_data
from batonflow.llms.errors import (
    InvalidResponseError,
    LLMConfigurationError,
    LLMError,
    LLMRequestError,
    MissingKeyError,
)
from batonflow.llms.fetching import FetchError, FetchPolicy, fetching
from batonflow.llms.function_calling import FunctionCallingLLM
from batonflow.llms.messages import LLMMetadata
from batonflow.llms.sdk_body import AnswerBody, Chunks, ErrorEvent, Opened, Silence, SurrogateJoiner, iterate_events
from batonflow.llms.sdk_errors import (
    attempts_of,
    error_class_of,
    error_message,
    redacted,
    redirect_details,
    refuses_streams,
    sdk_error_classes,
    translate_error,
)
from batonflow.llms.stream import ChatRequest, Finish, StreamEvent, runs_without_keys
from batonflow.llms.strict_schema import strict_schema
from batonflow.llms.tool_protocol import ToolSpec
from batonflow.llms.usage import Usage, price, prices_available, with_cost
from batonflow.threads import in_thread

__all__ = ["SDKModel", "unsupported"]

_OFFICIAL_TIMEOUT = 600.0
_CONNECT_TIMEOUT = 5.0
# Seconds for a server to close a response after its terminal mark, as in openai's SDK.
_DRAIN_TIME = 0.1
# This header makes the SDKs return the unread HTTP response.
_RAW_RESPONSE = "X-Stainless-Raw-Response"

_logger = logger_named("batonflow.llm")


class SDKModel(FunctionCallingLLM):
    """A model behind a vendor's SDK.

    Args:
        model: The vendor's name of the model.
        temperature: The sampling temperature; None for the vendor's default.
        max_tokens: The maximum of output tokens.
        api_key: The key; by default from the environment.
        base_url: A URL in place of the vendor's.
        timeout: Seconds without content from the vendor, before and within a response. Comments, pings and empty events
            are not content. The limit for connecting is five seconds, or these if they are fewer.
        max_retries: The number of the SDK's retries before a response starts.
        default_headers: Headers of every request.
        http_client: An ``httpx2.AsyncClient``, for a proxy or a certificate; it is not closed here. A client belongs to
            one event loop, and synchronous calls run on another loop than asynchronous ones: pass a function that makes
            a client if the model is used both ways.
        additional_kwargs: Entries for the body of every request, which replace computed ones; None removes an entry.
            Entries that the SDK's method does not know go into ``extra_body``.
        context_window: Tokens of input and output.
        is_function_calling_model: Whether the model takes tools.
        strict_tools: Whether the vendor should enforce the schemas of tools that have a strict form.
        reuse_client: Whether requests share connections; otherwise each request opens and closes its own.
        streaming: Whether responses are streamed. With False each arrives whole, also in streaming methods, as with the
            option ``stream=False`` of a call. After a vendor refuses to stream a model (a 400 about ``stream``), or
            answers with a JSON body, its responses are requested whole.
        fetch_urls: Whether this process fetches documents and audio from URLs that the vendor does not fetch itself.
            The default is to fetch, except in runs that a server starts, because a client may have chosen the URL
            there. True fetches there too, False fetches nothing, and a ``FetchPolicy`` has further rules. Private
            networks are never fetched from.
        max_answer_bytes: The maximum of bytes of a response.

    Raises:
        MissingKeyError: There is no key; the message names the environment variable.
        LLMConfigurationError: A setting is invalid.
    """

    vendor: ClassVar[str]
    sdk_name: ClassVar[str]
    key_variables: ClassVar[tuple[str, ...]]
    url_variable: ClassVar[str | None] = None
    # Whether the reader of chunks reports content itself, which costs less than examining every chunk twice.
    _reader_hears: ClassVar[bool] = False
    # Whether the SDK ignores [DONE] and error events.
    _scans: ClassVar[bool] = False

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    model: str = Field(min_length=1)
    temperature: float | None = None
    max_tokens: int | None = None
    api_key: SecretStr | None = Field(default=None, exclude=True, repr=False)
    base_url: str | None = None
    timeout: float = Field(default=_OFFICIAL_TIMEOUT, gt=0)
    max_retries: int = Field(default=2, ge=0)
    default_headers: dict[str, str] | None = Field(default=None, exclude=True, repr=False)
    http_client: Any = Field(default=None, exclude=True, repr=False)
    additional_kwargs: dict[str, Any] = Field(default_factory=dict, repr=False)
    context_window: int = 128_000
    is_function_calling_model: bool = True
    strict_tools: bool = False
    reuse_client: bool = True
    streaming: bool = True
    fetch_urls: FetchPolicy | bool | None = None
    max_answer_bytes: int = Field(default=256 * 1024 * 1024, gt=0)

    _clients: Clients = PrivateAttr(default_factory=Clients)
    # The models that do not stream, as their servers have reported or shown.
    _whole_only: set[str] = PrivateAttr(default_factory=set[str])

    def __init__(self, model: str, **data: Any) -> None:
        if "api_base" in data:
            data.setdefault("base_url", data.pop("api_base"))
        if self.url_variable is not None and data.get("base_url") is None:
            data["base_url"] = os.environ.get(self.url_variable) or None
        data["model"] = model
        try:
            super().__init__(**data)
        except ValidationError as err:
            raise self._misfit(err, model) from None
        self._check_options(self.additional_kwargs)
        if self.api_key is None:
            found = next((os.environ[name] for name in self.key_variables if os.environ.get(name)), None)
            if found is None and runs_without_keys():
                found = "no-key-in-a-replay"
            self.api_key = None if found is None else SecretStr(found)
        if self.api_key is None or not self.api_key.get_secret_value():
            raise MissingKeyError(
                f"no key: set {self.key_variables[0]} or give api_key=... (any text for your own server without keys)",
                vendor=self.vendor,
                model=model,
            )

    def _misfit(self, err: ValidationError, model: Any) -> LLMConfigurationError:
        """Return the error for invalid constructor arguments, without their values, which may be secrets."""
        known, problems = list(type(self).model_fields), list[str]()
        for one in err.errors(include_input=False, include_url=False):
            name = ".".join(str(part) for part in one["loc"])
            if one["type"] != "extra_forbidden":
                problems.append(f"{name}: {one['msg']}")
                continue
            near = get_close_matches(name, known, n=1)
            meant = f"did you mean {near[0]}?" if near else "options of the vendor's go into additional_kwargs"
            problems.append(f"{name} is not an argument of {type(self).__name__}; {meant}")
        return LLMConfigurationError("; ".join(problems), vendor=self.vendor, model=str(model))

    @field_serializer("additional_kwargs")
    def _without_headers(self, given: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in given.items() if name != "extra_headers"}

    @field_serializer("base_url")
    def _without_credentials(self, url: str | None) -> str | None:
        return redacted_url(url)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, redacted_url(value) if name == "base_url" else value

    @property
    def metadata(self) -> LLMMetadata:
        """The metadata of a function calling chat model."""
        return LLMMetadata(
            model_name=self.model,
            context_window=self.context_window,
            num_output=self.max_tokens or 4096,
            is_chat_model=True,
            is_function_calling_model=self.is_function_calling_model,
        )

    def _make_client(self, sdk: Any, options: dict[str, Any]) -> Any:
        """Return the SDK's asynchronous client."""
        raise NotImplementedError

    def _check_options(self, options: Mapping[str, Any]) -> None:
        """Raise an error for invalid options."""
        if not isinstance(options.get("stream"), bool | None):
            raise LLMConfigurationError(
                f"stream is True or False, got {options['stream']!r}", vendor=self.vendor, model=self.model
            )

    async def _client(self) -> Any:
        if self.reuse_client:
            return await self._clients.get(self._made_client, self._owns_connections)
        return await self._made_client()

    async def _made_client(self) -> Any:
        return self._new_client(await aload(self.sdk_name, self.sdk_name), await aload("httpx2", self.sdk_name))

    def _new_client(self, sdk: Any, http: Any) -> Any:
        assert self.api_key is not None  # checked by the constructor
        key = self.api_key.get_secret_value()
        never_show(key)  # a vendor may quote the key, and the SDK's error may quote the vendor in a traceback
        options: dict[str, Any] = {
            "api_key": key,
            "base_url": self.base_url,
            "timeout": http.Timeout(self.timeout, connect=min(_CONNECT_TIMEOUT, self.timeout)),
            "max_retries": self.max_retries,
            "default_headers": self.default_headers,
            "http_client": self.http_client() if callable(self.http_client) else self.http_client,
        }
        try:
            return self._make_client(sdk, options)
        except (TypeError, ValueError) as err:
            # An http_client of another package, or a key that is not a valid header.
            raise LLMConfigurationError(str(err), vendor=self.vendor, model=self.model) from err

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the body for ``request``, without the options."""
        raise NotImplementedError

    def _renamed(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options of a call under the vendor's names."""
        return options

    def _method(self, client: Any, body: dict[str, Any]) -> Any:
        """Call the SDK's method that sends ``body``."""
        raise NotImplementedError

    def _read(self, stream: Any) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of the SDK's stream."""
        raise NotImplementedError

    def _read_whole(self, answer: Any) -> Iterable[StreamEvent]:
        """Return the events of a whole response, ``Finish`` last."""
        raise NotImplementedError

    def _whole_class(self, sdk: Any, body: Mapping[str, Any]) -> Any:
        """Return the SDK's class of a whole response."""
        raise NotImplementedError

    def _instead(self, err: Any, request: ChatRequest) -> Sequence[StreamEvent]:  # noqa: ARG002 - for adapters
        """Return the events for a vendor's error that is a response, ``Finish`` last; empty for a real error."""
        return ()

    def _is_empty(self, chunk: Any) -> bool:  # noqa: ARG002 - for adapters
        """Return whether a chunk of the SDK's stream has no content, such as a ping."""
        return False

    def _request_id(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-request-id")

    def _tool_schema(self, tool: ToolSpec) -> tuple[dict[str, Any], bool]:
        """Return the schema of a tool, and whether the vendor should enforce it."""
        strict = strict_schema(tool.parameters) if self.strict_tools else None
        return (tool.parameters, False) if strict is None else (strict, True)

    def _merged(self, request: ChatRequest) -> dict[str, Any]:
        self._check_options({"stream": request.stream})
        body = {**self._body(request), **self.additional_kwargs, **self._renamed(dict(request.options))}
        body["stream"] = self._streams(request, str(body.get("model")))
        return {name: value for name, value in body.items() if value is not None}

    def _fetched(self, request: ChatRequest) -> dict[str, Any]:
        """Return the request with the data of files and URLs loaded."""
        try:
            with fetching(self.fetch_urls):
                return self._merged(request)
        except FetchError as err:
            raise FetchError(str(err), **self._named) from err

    def _streams(self, request: ChatRequest, model: str) -> bool:
        """Return whether to request a stream."""
        asked = (request.stream, self.additional_kwargs.get("stream"), self.streaming)
        return next(one for one in asked if one is not None) and model not in self._whole_only

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        sdk, http = await aload(self.sdk_name, self.sdk_name), await aload("httpx2", self.sdk_name)
        # Files are read and URLs are fetched while the body is made.
        fetches = any(not _is_here(block) for message in request.messages for block in message.blocks)
        body = await in_thread(self._fetched, request) if fetches else self._merged(request)
        timeout = body.get("timeout", self.timeout)
        seconds = float(timeout) if isinstance(timeout, int | float) else self.timeout
        client = await self._client()
        shown, opened, silence = False, None, Silence(seconds, self._named)
        instead: Sequence[StreamEvent] = ()
        try:
            opened = await self._opened(client, body, silence)
            async with opened, aclosing(self._events_of(opened)) as events:
                async for event in events:
                    if isinstance(event, Finish):
                        await _drain(http, opened.response)
                        yield await self._finished(event, opened)
                        return
                    shown = True
                    yield event
        except LLMError as err:
            err.shown = shown
            raise
        except (*sdk_error_classes(sdk), http.HTTPError, http.InvalidURL, ValueError) as err:
            translation = translate_error(
                sdk, http, err, secrets=self._secrets(body), timeout=seconds, details={**self._named, "shown": shown}
            )
            if translation is None:
                raise
            translation.attempts = attempts_of(err)
            instead = self._instead(err, request)
            if not instead:
                raise translation from err
        finally:
            silence.stop()
            if not self.reuse_client and self._owns_connections:
                await client.close()
        for event in instead:
            yield event
        if instead:
            return
        assert opened is not None  # otherwise an error was raised, or events were returned
        kind = opened.headers.get("content-type", "")
        if not shown and "event-stream" not in kind:
            raise self._invalid_response(
                f"the answer is {kind or 'something untyped'}, not a stream of events; is base_url right?", opened
            )
        raise incomplete(shown, self.vendor, self.model)

    async def _opened(self, client: Any, body: dict[str, Any], silence: Silence) -> Opened:
        """Send the request and open its response: a stream, or a whole response."""
        method = self._method(client, body)
        if body["stream"]:
            try:
                stream = await self._sent(method, body)
            except sdk_error_classes(await aload(self.sdk_name, self.sdk_name)) as err:
                if not refuses_streams(err):
                    raise
                self._remember_whole(body)
            else:
                return await self._opened_stream(stream, body, silence)
        whole = {name: value for name, value in body.items() if name not in {"stream", "stream_options"}}
        whole["extra_headers"] = {**(body.get("extra_headers") or {}), _RAW_RESPONSE: "stream"}
        # Anthropic's SDK refuses long responses that are not streamed, unless there is a timeout.
        whole.setdefault("timeout", client.timeout)
        answer = await self._sent(method, whole)
        response = getattr(answer, "http_response", None)
        if response is None:
            # A program that patches the SDK returns the response itself.
            opened = Opened(None, iterate_events(()))
            opened.events = iterate_events(self._events_of_whole(answer, opened))
            return opened
        return await self._opened_whole(response, body, silence)

    async def _opened_stream(self, stream: Any, body: dict[str, Any], silence: Silence) -> Opened:
        response = stream.response
        try:
            self._check_redirects(response)
            arriving = AnswerBody(response, self.max_answer_bytes, self._named, scan=self._scans)
            if "event-stream" in response.headers.get("content-type", "") or not await arriving.begins_as_json(silence):
                opened = Opened(
                    response,
                    self._read(Chunks(stream, silence, None if self._reader_hears else self._is_empty, arriving)),
                )
                opened.closes = stream.close
                return opened
            opened = await self._opened_whole(response, body, silence, arriving)
        except BaseException:
            await stream.close()
            raise
        self._remember_whole(body)
        return opened

    async def _opened_whole(
        self, response: Any, body: dict[str, Any], silence: Silence, arriving: AnswerBody | None = None
    ) -> Opened:
        """Read a whole response to its end."""
        opened = Opened(response, iterate_events(()))
        try:
            self._check_redirects(response)
            arriving = arriving or AnswerBody(response, self.max_answer_bytes, self._named, scan=False)
            data = await arriving.read(silence)
            answer = self._as_answer(data, await aload(self.sdk_name, self.sdk_name), body, opened)
            opened.events = iterate_events(self._events_of_whole(answer, opened))
        except BaseException:
            await response.aclose()
            raise
        return opened

    def _as_answer(self, data: bytes, sdk: Any, body: Mapping[str, Any], opened: Opened) -> Any:
        """Return the SDK's object for the bytes of a whole response."""
        try:
            decoded: Any = json.loads(data)
        except ValueError as err:
            kind = opened.headers.get("content-type", "") or "something untyped"
            raise self._invalid_response(f"the answer is {kind} and not JSON; is base_url right?", opened) from err
        if not isinstance(decoded, dict):
            raise self._invalid_response(f"the answer is a JSON {type(decoded).__name__}, not an object", opened)
        given = cast("dict[str, Any]", decoded)
        if given.get("error"):
            raise self._reported_error(given, opened)
        return self._whole_class(sdk, body).construct(**given)

    def _events_of_whole(self, answer: Any, opened: Opened) -> list[StreamEvent]:
        with self._translating_misfits(opened):
            return list(self._read_whole(answer))

    def _reported_error(self, data: Any, opened: Opened) -> LLMError:
        """Return the error of this package for an error in a response of status 200."""
        text = redacted(error_message(data) or str(data)[:1000], self._secrets({}))
        if isinstance(data, dict) and cast("dict[str, Any]", data).get("type") == "error" and "error" not in data:
            # The type is the type of the event.
            data = {"code": cast("dict[str, Any]", data).get("code")}
        return error_class_of(data, text)(text, **self._about(opened))

    def _invalid_response(self, text: str, opened: Opened) -> InvalidResponseError:
        return InvalidResponseError(text, **self._about(opened))

    @property
    def _named(self) -> dict[str, Any]:
        """The arguments of all errors."""
        return {"vendor": self.vendor, "model": self.model}

    def _about(self, opened: Opened) -> dict[str, Any]:
        """Return the arguments of errors about a response."""
        return {
            "status_code": None if opened.response is None else opened.response.status_code,
            "request_id": self._request_id(opened.headers),
            **self._named,
        }

    def _check_redirects(self, response: Any) -> None:
        found = redirect_details(response)
        if found is not None:
            status, text = found
            raise LLMRequestError(redacted(text, self._secrets({})), status_code=status, **self._named)

    def _remember_whole(self, body: Mapping[str, Any]) -> None:
        _logger.info("%s %s does not stream; its responses are requested whole from now on", self.vendor, body["model"])
        self._whole_only.add(str(body["model"]))

    async def _sent(self, method: Any, body: dict[str, Any]) -> Any:
        """Open the SDK's stream; raise LLMRequestError for a request that cannot be sent."""
        arguments = _arguments(method, body)
        try:
            try:
                return await method(**arguments)
            except ValueError:
                # Only now, because no other request needs the check, and the SDK could not serialize this one.
                changed = json_data(arguments)
                if changed == arguments:
                    raise
                return await method(**changed)
        except (TypeError, ValueError, RecursionError) as err:
            if isinstance(err, TypeError) and "authentication" in str(err):
                raise MissingKeyError("the request has no key", vendor=self.vendor, model=self.model) from err
            text = redacted(str(err), self._secrets(body))
            raise LLMRequestError(f"it cannot be sent: {text}", vendor=self.vendor, model=self.model) from err

    async def _events_of(self, opened: Opened) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of a response; translate errors about invalid events.

        The SDKs do not validate: other JSON becomes objects with missing attributes.
        """
        halves = SurrogateJoiner()
        with self._translating_misfits(opened):
            async with aclosing(opened.events) as events:
                async for event in events:
                    if halves.affects(event):
                        for one in halves.joined(event):
                            yield one
                    else:
                        yield event

    @contextmanager
    def _translating_misfits(self, opened: Opened) -> Generator[None, None, None]:
        """Translate the errors of reading a response in another form."""
        try:
            yield
        except ErrorEvent as err:
            raise self._reported_error(err.data, opened) from None
        except (AttributeError, TypeError, LookupError) as err:
            text = redacted(str(err), self._secrets({}))
            raise self._invalid_response(f"an event that is not one of this API: {text}", opened) from err

    async def _finished(self, event: Finish, opened: Opened) -> Finish:
        """Return the terminal mark with vendor, request id and cost added."""
        usage = event.usage
        if usage is not None:
            if self.price is None and prices_available():
                await aload("genai_prices", "prices")
            usage = with_cost(usage, self.cost_of)
        request_id = event.request_id or self._request_id(opened.headers)
        attempts = attempts_of(opened)
        return replace(event, usage=usage, vendor=self.vendor, request_id=request_id, attempts=attempts)

    @property
    def _owns_connections(self) -> bool:
        return self.http_client is None or callable(self.http_client)

    def cost_of(self, usage: Usage) -> float | None:
        """Return the cost of a request by ``price``. At a vendor's address, the default is the list of ``prices``."""
        if self.price is not None or not prices_available():
            return super().cost_of(usage)
        return price(usage, self.model, self.vendor, base_url=self.base_url)

    async def aclose(self) -> None:
        """Close the connections of this event loop; the next request opens new ones."""
        await self._clients.close()

    def _secrets(self, body: Mapping[str, Any]) -> list[str]:
        """Return the texts to redact in error messages."""
        key = self.api_key.get_secret_value() if self.api_key is not None else ""
        per_call: Mapping[str, Any] = body.get("extra_headers") or {}
        headers = [*(self.default_headers or {}).values(), *map(str, per_call.values())]
        return [key, *headers, *_credentials(self.base_url)]


def _credentials(url: str | None) -> list[str]:
    """Return user and password of a URL, as written there."""
    found = urlsplit(url or "").netloc.rpartition("@")[0]
    return [found, *found.split(":", 1)] if found else []


def _is_here(block: Any) -> bool:
    """Return whether the data of a block are inline, or at a URL that the vendor fetches itself."""
    if isinstance(block, CitableBlock):
        return all(_is_here(inner) for inner in block.content)
    if not isinstance(block, MediaBlock):
        return True
    return block.path is None and (block.url is None or isinstance(block, ImageBlock))


def unsupported(block: Any, api: str) -> LLMRequestError:
    """Return the error for a block that an API does not take."""
    return LLMRequestError(f"{api} do not accept {type(block).__name__}: leave it out, or use a model that can read it")


async def _drain(http: Any, response: Any) -> None:
    """Read the rest after the terminal mark, usually nothing, so that the connection can be used again."""
    if response is None or response.is_closed:
        return
    try:
        async with asyncio.timeout(_DRAIN_TIME):
            async for _ in response.stream:
                pass
    except (TimeoutError, http.HTTPError, http.StreamError):
        # The response is complete, so an error of its connection does not matter.
        pass


@cache
def _known(function: Any) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def _arguments(method: Any, body: dict[str, Any]) -> dict[str, Any]:
    """Return ``body`` as arguments of the SDK's method; unknown entries go into ``extra_body``."""
    known = _known(method.__func__)
    arguments = {name: value for name, value in body.items() if name in known}
    rest = {name: value for name, value in body.items() if name not in known}
    if rest:
        arguments["extra_body"] = {**rest, **(arguments.get("extra_body") or {})}
    return arguments


def redacted_url(url: Any) -> Any:
    """Return a URL without user and password."""
    if not isinstance(url, str) or "@" not in url:
        return url
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
