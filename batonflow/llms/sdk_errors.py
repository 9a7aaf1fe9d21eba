"""What the vendors' SDKs raise, as errors of ours."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from batonflow.llms.errors import (
    InvalidResponseError,
    LLMConnectionError,
    LLMError,
    LLMRequestError,
    LLMServerError,
    LLMTimeoutError,
    OverloadedError,
    RateLimitError,
    error_for_status,
)

__all__ = ["base_errors", "class_of_body", "redacted", "redirect_of", "refuses_streams", "translated", "words_of"]

_KEY = re.compile(r"\b(?:sk|pk|rk|xai|gsk|AIza)[-_][A-Za-z0-9_*.-]{6,}")
_KEY_LENGTH = 8

# What vendors call an error that arrives when the HTTP status has long been sent.
_KINDS: Mapping[str, type[LLMError]] = {
    "overloaded_error": OverloadedError,
    "api_error": LLMServerError,
    "server_error": LLMServerError,
    "internal_server_error": LLMServerError,
    "timeout_error": LLMTimeoutError,
    "vector_store_timeout": LLMServerError,
    "rate_limit_error": RateLimitError,
    "rate_limit_exceeded": RateLimitError,
    "insufficient_quota": RateLimitError,
}


def base_errors(sdk: Any) -> tuple[type[Exception], ...]:
    """The roots of the SDK's errors, whichever SDK it is."""
    return tuple(getattr(sdk, name) for name in ("OpenAIError", "AnthropicError") if hasattr(sdk, name))


def refuses_streams(err: Any) -> bool:
    """Tell whether the vendor refuses a request because it asks for a stream."""
    return getattr(err, "status_code", None) == 400 and _told(getattr(err, "body", None)).get("param") == "stream"


# Of these a client makes a GET, to which no vendor answers.
_REPLACES_THE_REQUEST = (301, 302, 303)


def redirect_of(response: Any) -> tuple[int, str] | None:
    """Status and words for a redirect that kept the request from its server; None when there was not one.

    Args:
        response: The HTTP response, the last one where redirects were followed.
    """
    for one in (*response.history, response):
        followed = one is not response
        if one.status_code in _REPLACES_THE_REQUEST or (one.is_redirect and not followed):
            place = str(one.headers.get("location", "")).partition("?")[0] or "an address that it does not name"
            return one.status_code, f"the server redirects to {place}; set base_url to the address that answers"
    return None


def redacted(text: str, secrets: Iterable[str]) -> str:
    """``text`` without keys and headers: vendors and proxies quote them back."""
    for secret in secrets:
        if len(secret) >= _KEY_LENGTH:
            text = text.replace(secret, "***")
    return _KEY.sub("***", text)


def translated(
    sdk: Any, http: Any, err: Any, *, secrets: Iterable[str], timeout: float, details: dict[str, Any]
) -> LLMError | None:
    """The error of ours that says what ``err`` says; None for what is no error of the vendor's.

    Args:
        sdk: The vendor's SDK.
        http: Its HTTP package.
        err: What was raised.
        secrets: What must not stand in the message.
        timeout: Seconds that were allowed.
        details: What all of our errors are told: vendor, model, shown.
    """
    hidden = list(secrets)
    text = redacted(words_of(getattr(err, "body", None)) or str(err) or type(err).__name__, hidden)
    if isinstance(err, sdk.APITimeoutError | http.TimeoutException):
        return LLMTimeoutError(f"no answer within {timeout:g} s, or no connection within the time for one", **details)
    if isinstance(err, sdk.APIResponseValidationError):
        return InvalidResponseError(f"an answer that is none of this API: {text}", **details)
    if isinstance(err, sdk.APIStatusError):
        found = redirect_of(err.response)
        if found is not None:
            return LLMRequestError(redacted(found[1], hidden), **details, status_code=found[0])
        return _of_status(err, text, details)
    if isinstance(err, sdk.APIConnectionError | http.TransportError | http.InvalidURL):
        cause = f": {err.__cause__}" if err.__cause__ is not None and str(err.__cause__) else ""
        where = "the connection broke" if details["shown"] else "no connection"
        return LLMConnectionError(f"{where}: {text}{redacted(cause, hidden)}", **details)
    if isinstance(err, sdk.APIError):
        return class_of_body(err.body, text)(text, **details)
    if isinstance(err, ValueError):
        return InvalidResponseError(f"something that is not JSON: {text}", **details)
    if isinstance(err, base_errors(sdk)):
        return LLMRequestError(text, **details)
    return None


def _of_status(err: Any, text: str, details: dict[str, Any]) -> LLMError:
    headers = cast("Mapping[str, str]", err.response.headers)
    told: dict[str, Any] = {
        "status_code": err.status_code,
        "request_id": err.request_id or headers.get("x-request-id") or headers.get("request-id"),
        "retry_after": _retry_after(headers),
    }
    kind = class_of_body(err.body, text) if err.status_code < 400 else None
    return (kind or error_for_status(err.status_code, f"{_kind(err.body)} {text}"))(text, **details, **told)


def class_of_body(body: Any, text: str) -> type[LLMError]:
    """The class of error for a body alone: by the vendor's word, or by an HTTP status that stands in its place."""
    kind = _kind(body)
    if kind in _KINDS:
        return _KINDS[kind]
    code = str(_told(body).get("code") or "")
    if code.isdecimal() and 400 <= int(code) < 600:
        return error_for_status(int(code), f"{kind} {text}")
    refused = error_for_status(400, f"{kind} {text}")
    return refused if kind else LLMServerError


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


def words_of(body: Any) -> str:
    """The vendor's message in an error's body, with the code if there is one; empty when it has no message."""
    if isinstance(body, str):
        return body
    told = _told(body)
    if not told and isinstance(body, dict) and isinstance(cast("dict[str, Any]", body).get("error"), str):
        return cast("dict[str, Any]", body)["error"]
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
