"""What the adapters over vendors' SDKs have in common: clients, keys and errors."""

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
from batonflow.llms.blocks import CitableBlock, ImageBlock, MediaBlock
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
from batonflow.llms.sdk_body import AnswerBody, Chunks, ErrorEvent, Halves, Opened, Silence, given
from batonflow.llms.sdk_errors import (
    base_errors,
    class_of_body,
    redacted,
    redirect_of,
    refuses_streams,
    translated,
    words_of,
)
from batonflow.llms.sendable import json_data
from batonflow.llms.stream import ChatRequest, Finish, StreamEvent
from batonflow.llms.strict_schema import strict_schema
from batonflow.llms.tool_protocol import ToolSpec
from batonflow.llms.usage import price, prices_available
from batonflow.threads import in_thread

__all__ = ["SDKModel", "unsupported"]

_OFFICIAL_TIMEOUT = 600.0
_CONNECT_TIMEOUT = 5.0
# Seconds that a server has to end an answer whose terminal mark has come; openai's SDK waits as long.
_DRAIN_TIME = 0.1
# Has the SDKs give the HTTP response, unread, in place of an answer.
_RAW_RESPONSE = "X-Stainless-Raw-Response"

_logger = logger_named(__name__)


class SDKModel(FunctionCallingLLM):
    """A model behind a vendor's SDK.

    Args:
        model: The model's name, as the vendor has it.
        temperature: How freely it writes; None leaves it to the vendor.
        max_tokens: How much it writes at most.
        api_key: The key; from the environment when left out.
        base_url: Another address than the vendor's.
        timeout: Seconds that the vendor may send no content, before its answer and within it. Comments, pings and empty
            events are not content. A connection must be there within five seconds, or within these if they are fewer.
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
        streaming: Whether answers are streamed. With False each comes in one piece, also where pieces are asked for;
            ``stream=False`` among the options of a call does the same for that call. A model whose vendor refuses to
            stream (a 400 about ``stream``), or answers with a JSON body, is asked for whole answers from then on.
        fetch_urls: Whether this process fetches documents and sounds whose address the vendor does not fetch itself.
            When left out it does so, but not in runs that a server begins: there a client may have chosen the address.
            True fetches there too, False nowhere, and a ``FetchPolicy`` says more. Addresses of private networks are
            not fetched.
        max_answer_bytes: Bytes that an answer may have on the wire.

    Raises:
        MissingKeyError: No key; the message names the environment variable.
        LLMConfigurationError: A setting that cannot be.
    """

    vendor: ClassVar[str]
    sdk_name: ClassVar[str]
    key_variables: ClassVar[tuple[str, ...]]
    url_variable: ClassVar[str | None] = None
    # Whether the reader of chunks tells of content itself, which costs less than to look at every chunk twice.
    _reader_hears: ClassVar[bool] = False
    # Whether the SDK passes over [DONE] and error events without a word.
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
    # Names of models that do not stream, as their servers have said or shown.
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
            self.api_key = None if found is None else SecretStr(found)
        if self.api_key is None or not self.api_key.get_secret_value():
            raise MissingKeyError(
                f"no key: set {self.key_variables[0]} or give api_key=... (any text for a server of your own that "
                "wants none)",
                vendor=self.vendor,
                model=model,
            )

    def _misfit(self, err: ValidationError, model: Any) -> LLMConfigurationError:
        """The error for constructor arguments that cannot be; their values may be secrets and are not shown."""
        known, problems = list(type(self).model_fields), list[str]()
        for one in err.errors(include_input=False, include_url=False):
            name = ".".join(str(part) for part in one["loc"])
            if one["type"] != "extra_forbidden":
                problems.append(f"{name}: {one['msg']}")
                continue
            near = get_close_matches(name, known, n=1)
            meant = f"did you mean {near[0]}?" if near else "options of the vendor's go into additional_kwargs"
            problems.append(f"{name} is no argument of {type(self).__name__}; {meant}")
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
        """Refuse options that cannot be."""
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
        never_show(key)  # a vendor may quote it, and the SDK's error that, in a traceback
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
            # An http_client of another package, a key that cannot stand in a header.
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

    def _read_whole(self, answer: Any) -> Iterable[StreamEvent]:
        """The events that an answer in one piece stands for, ``Finish`` last."""
        raise NotImplementedError

    def _whole_class(self, sdk: Any, body: Mapping[str, Any]) -> Any:
        """The SDK's class of an answer in one piece."""
        raise NotImplementedError

    def _instead(self, err: Any, request: ChatRequest) -> Sequence[StreamEvent]:  # noqa: ARG002 - for adapters
        """The events that an error of the vendor's stands for, ``Finish`` last; nothing when it is an error."""
        return ()

    def _is_empty(self, chunk: Any) -> bool:  # noqa: ARG002 - for adapters
        """Tell whether a chunk of the SDK's stream only keeps the connection alive."""
        return False

    def _request_id(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-request-id")

    def _tool_schema(self, tool: ToolSpec) -> tuple[dict[str, Any], bool]:
        """The tool's schema as it is to be sent, and whether the vendor is to hold the model to it."""
        strict = strict_schema(tool.parameters) if self.strict_tools else None
        return (tool.parameters, False) if strict is None else (strict, True)

    def _merged(self, request: ChatRequest) -> dict[str, Any]:
        self._check_options({"stream": request.stream})
        body = {**self._body(request), **self.additional_kwargs, **self._renamed(dict(request.options))}
        body["stream"] = self._streams(request, str(body.get("model")))
        return {name: value for name, value in body.items() if value is not None}

    def _fetched(self, request: ChatRequest) -> dict[str, Any]:
        """The same for a request with data that are elsewhere."""
        try:
            with fetching(self.fetch_urls):
                return self._merged(request)
        except FetchError as err:
            raise FetchError(str(err), **self._named) from err

    def _streams(self, request: ChatRequest, model: str) -> bool:
        """Tell whether to ask for a stream."""
        asked = (request.stream, self.additional_kwargs.get("stream"), self.streaming)
        return next(one for one in asked if one is not None) and model not in self._whole_only

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        sdk, http = await aload(self.sdk_name, self.sdk_name), await aload("httpx2", self.sdk_name)
        # Files are read and addresses fetched while the body is made.
        fetches = any(not _is_here(block) for message in request.messages for block in message.blocks)
        body = await in_thread(self._fetched, request) if fetches else self._merged(request)
        told = body.get("timeout", self.timeout)
        seconds = float(told) if isinstance(told, int | float) else self.timeout
        client = await self._client()
        shown, opened, silence = False, None, Silence(seconds, self._named)
        instead: Sequence[StreamEvent] = ()
        try:
            opened = await self._opened(client, body, silence)
            async with opened, aclosing(self._understood(opened)) as events:
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
        except (*base_errors(sdk), http.HTTPError, http.InvalidURL, ValueError) as err:
            translation = translated(
                sdk, http, err, secrets=self._secrets(body), timeout=seconds, details={**self._named, "shown": shown}
            )
            if translation is None:
                raise
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
        assert opened is not None  # else an error was raised, or events were given in its place
        kind = opened.headers.get("content-type", "")
        if not shown and "event-stream" not in kind:
            raise self._no_answer(
                f"the answer is {kind or 'something untyped'}, not a stream of events; is base_url right?", opened
            )
        raise incomplete(shown, self.vendor, self.model)

    async def _opened(self, client: Any, body: dict[str, Any], silence: Silence) -> Opened:
        """Send the request and open its answer: a stream, or a whole answer where streams are not wanted or refused."""
        method = self._method(client, body)
        if body["stream"]:
            try:
                stream = await self._sent(method, body)
            except base_errors(await aload(self.sdk_name, self.sdk_name)) as err:
                if not refuses_streams(err):
                    raise
                self._remember_whole(body)
            else:
                return await self._opened_stream(stream, body, silence)
        whole = {name: value for name, value in body.items() if name not in {"stream", "stream_options"}}
        whole["extra_headers"] = {**(body.get("extra_headers") or {}), _RAW_RESPONSE: "stream"}
        # Else Anthropic's SDK refuses long answers in one piece.
        whole.setdefault("timeout", client.timeout)
        answer = await self._sent(method, whole)
        response = getattr(answer, "http_response", None)
        if response is None:
            # Programs that patch the SDK give the answer itself.
            opened = Opened(None, given(()))
            opened.events = given(self._told_whole(answer, opened))
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
        """A whole answer, read to its end."""
        opened = Opened(response, given(()))
        try:
            self._check_redirects(response)
            arriving = arriving or AnswerBody(response, self.max_answer_bytes, self._named, scan=False)
            data = await arriving.read(silence)
            answer = self._as_answer(data, await aload(self.sdk_name, self.sdk_name), body, opened)
            opened.events = given(self._told_whole(answer, opened))
        except BaseException:
            await response.aclose()
            raise
        return opened

    def _as_answer(self, data: bytes, sdk: Any, body: Mapping[str, Any], opened: Opened) -> Any:
        """The SDK's object for a whole answer's bytes."""
        try:
            told: Any = json.loads(data)
        except ValueError as err:
            kind = opened.headers.get("content-type", "") or "something untyped"
            raise self._no_answer(f"the answer is {kind} and not JSON; is base_url right?", opened) from err
        if not isinstance(told, dict):
            raise self._no_answer(f"the answer is a JSON {type(told).__name__}, not an object", opened)
        given = cast("dict[str, Any]", told)
        if given.get("error"):
            raise self._told_error(given, opened)
        return self._whole_class(sdk, body).construct(**given)

    def _told_whole(self, answer: Any, opened: Opened) -> list[StreamEvent]:
        with self._misfits(opened):
            return list(self._read_whole(answer))

    def _told_error(self, data: Any, opened: Opened) -> LLMError:
        """The error of ours for an error that a server tells in an answer of status 200."""
        text = redacted(words_of(data) or str(data)[:1000], self._secrets({}))
        if isinstance(data, dict) and cast("dict[str, Any]", data).get("type") == "error" and "error" not in data:
            # The type is that of the event.
            data = {"code": cast("dict[str, Any]", data).get("code")}
        return class_of_body(data, text)(text, **self._about(opened))

    def _no_answer(self, text: str, opened: Opened) -> InvalidResponseError:
        return InvalidResponseError(text, **self._about(opened))

    @property
    def _named(self) -> dict[str, Any]:
        """What every error says."""
        return {"vendor": self.vendor, "model": self.model}

    def _about(self, opened: Opened) -> dict[str, Any]:
        """What errors say of an answer."""
        return {
            "status_code": None if opened.response is None else opened.response.status_code,
            "request_id": self._request_id(opened.headers),
            **self._named,
        }

    def _check_redirects(self, response: Any) -> None:
        found = redirect_of(response)
        if found is not None:
            status, text = found
            raise LLMRequestError(redacted(text, self._secrets({})), status_code=status, **self._named)

    def _remember_whole(self, body: Mapping[str, Any]) -> None:
        _logger.info("%s %s does not stream; it is asked for whole answers from now on", self.vendor, body["model"])
        self._whole_only.add(str(body["model"]))

    async def _sent(self, method: Any, body: dict[str, Any]) -> Any:
        """The SDK's stream; what cannot be sent is the request's fault, and was not sent."""
        arguments = _arguments(method, body)
        try:
            try:
                return await method(**arguments)
            except ValueError:
                # Looked through only now: no other request needs it, and this one the SDK could not even write.
                changed = json_data(arguments)
                if changed == arguments:
                    raise
                return await method(**changed)
        except (TypeError, ValueError, RecursionError) as err:
            if isinstance(err, TypeError) and "authentication" in str(err):
                raise MissingKeyError("the request has no key", vendor=self.vendor, model=self.model) from err
            text = redacted(str(err), self._secrets(body))
            raise LLMRequestError(f"it cannot be sent: {text}", vendor=self.vendor, model=self.model) from err

    async def _understood(self, opened: Opened) -> AsyncGenerator[StreamEvent, None]:
        """The events of an answer; an event that makes no sense is an error of ours.

        The SDKs check nothing: JSON of any other form comes out as objects without what the vendor's have.
        """
        halves = Halves()
        with self._misfits(opened):
            async with aclosing(opened.events) as events:
                async for event in events:
                    if halves.concern(event):
                        for one in halves.whole(event):
                            yield one
                    else:
                        yield event

    @contextmanager
    def _misfits(self, opened: Opened) -> Generator[None, None, None]:
        """Turn into errors of ours what reading an answer of another form raises."""
        try:
            yield
        except ErrorEvent as err:
            raise self._told_error(err.data, opened) from None
        except (AttributeError, TypeError, LookupError) as err:
            text = redacted(str(err), self._secrets({}))
            raise self._no_answer(f"an event that is not one of this API: {text}", opened) from err

    async def _finished(self, event: Finish, opened: Opened) -> Finish:
        """The terminal mark with what is known beside the vendor's words: whose it is, which request, what it cost."""
        usage, model = event.usage, event.model or self.model
        if usage is not None and self._priced and prices_available():
            await aload("genai_prices", "prices")
            usage = usage.model_copy(update={"cost": price(usage, model, self.vendor)})
        request_id = event.request_id or self._request_id(opened.headers)
        return replace(event, usage=usage, vendor=self.vendor, request_id=request_id)

    @property
    def _owns_connections(self) -> bool:
        return self.http_client is None or callable(self.http_client)

    @property
    def _priced(self) -> bool:
        """Whether the public price list holds for this address."""
        return self.base_url is None or self.vendor in self.base_url

    async def aclose(self) -> None:
        """Close this loop's connections; the next request opens new ones."""
        await self._clients.close()

    def _secrets(self, body: Mapping[str, Any]) -> list[str]:
        """What no message of ours may show."""
        key = self.api_key.get_secret_value() if self.api_key is not None else ""
        per_call: Mapping[str, Any] = body.get("extra_headers") or {}
        headers = [*(self.default_headers or {}).values(), *map(str, per_call.values())]
        return [key, *headers, *_credentials(self.base_url)]


def _credentials(url: str | None) -> list[str]:
    """User and password in an address, as they stand there."""
    found = urlsplit(url or "").netloc.rpartition("@")[0]
    return [found, *found.split(":", 1)] if found else []


def _is_here(block: Any) -> bool:
    """Whether a block's data are in it, or at an address that goes to the vendor as it is."""
    if isinstance(block, CitableBlock):
        return all(_is_here(inner) for inner in block.content)
    if not isinstance(block, MediaBlock):
        return True
    return block.path is None and (block.url is None or isinstance(block, ImageBlock))


def unsupported(block: Any, api: str) -> LLMRequestError:
    """The error for a block that an API does not take."""
    return LLMRequestError(f"{api} take no {type(block).__name__}: leave it out, or ask a model that can read it")


async def _drain(http: Any, response: Any) -> None:
    """Read what comes after the terminal mark, nearly always nothing: only then can the connection be used again."""
    if response is None or response.is_closed:
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


def redacted_url(url: Any) -> Any:
    """An address without user and password."""
    if not isinstance(url, str) or "@" not in url:
        return url
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
