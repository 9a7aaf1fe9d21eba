"""The errors of vendors' SDKs, translated into the errors of this package."""

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

__all__ = [
    "attempts_of",
    "error_class_of",
    "error_message",
    "redacted",
    "redirect_details",
    "refuses_streams",
    "sdk_error_classes",
    "translate_error",
]

_KEY = re.compile(r"\b(?:sk|pk|rk|xai|gsk|AIza)[-_][A-Za-z0-9_*.-]{6,}")
_KEY_LENGTH = 8

# The vendors' names for errors that arrive in a stream, after the HTTP status.
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


def sdk_error_classes(sdk: Any) -> tuple[type[Exception], ...]:
    """Return the base classes of an SDK's errors."""
    return tuple(getattr(sdk, name) for name in ("OpenAIError", "AnthropicError") if hasattr(sdk, name))


def refuses_streams(err: Any) -> bool:
    """Return whether the vendor refuses a request because it asks for a stream."""
    return getattr(err, "status_code", None) == 400 and _error_in(getattr(err, "body", None)).get("param") == "stream"


# After these redirects a client sends a GET, which no vendor answers.
_REPLACES_THE_REQUEST = (301, 302, 303)


def redirect_details(response: Any) -> tuple[int, str] | None:
    """Return status and message of a redirect that the request did not survive; None without one.

    Args:
        response: The HTTP response, the last one after redirects.
    """
    for one in (*response.history, response):
        followed = one is not response
        if one.status_code in _REPLACES_THE_REQUEST or (one.is_redirect and not followed):
            place = str(one.headers.get("location", "")).partition("?")[0] or "an address that it does not name"
            return one.status_code, f"the server redirects to {place}; set base_url to the address that answers"
    return None


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` without keys and headers, which vendors and proxies quote."""
    for secret in secrets:
        if len(secret) >= _KEY_LENGTH:
            text = text.replace(secret, "***")
    return _KEY.sub("***", text)


def translate_error(
    sdk: Any, http: Any, err: Any, *, secrets: Iterable[str], timeout: float, details: dict[str, Any]
) -> LLMError | None:
    """Return the error of this package for an error of an SDK; None for other errors.

    Args:
        sdk: The vendor's SDK.
        http: Its HTTP package.
        err: The error.
        secrets: The texts to redact in the message.
        timeout: The timeout in seconds.
        details: The arguments of all errors: vendor, model, shown.
    """
    hidden = list(secrets)
    text = redacted(error_message(getattr(err, "body", None)) or str(err) or type(err).__name__, hidden)
    if isinstance(err, sdk.APITimeoutError | http.TimeoutException):
        return LLMTimeoutError(f"no answer within {timeout:g} s, or no connection within the time for one", **details)
    if isinstance(err, sdk.APIResponseValidationError):
        return InvalidResponseError(f"the response is not one of this API: {text}", **details)
    if isinstance(err, sdk.APIStatusError):
        found = redirect_details(err.response)
        if found is not None:
            return LLMRequestError(redacted(found[1], hidden), **details, status_code=found[0])
        return _of_status(err, text, details)
    if isinstance(err, sdk.APIConnectionError | http.TransportError | http.InvalidURL):
        cause = f": {err.__cause__}" if err.__cause__ is not None and str(err.__cause__) else ""
        where = "the connection broke" if details["shown"] else "no connection"
        return LLMConnectionError(f"{where}: {text}{redacted(cause, hidden)}", **details)
    if isinstance(err, sdk.APIError):
        return error_class_of(err.body, text)(text, **details)
    if isinstance(err, ValueError):
        return InvalidResponseError(f"the response is not JSON: {text}", **details)
    if isinstance(err, sdk_error_classes(sdk)):
        return LLMRequestError(text, **details)
    return None


def attempts_of(source: Any) -> int:
    """Return the number of requests that an SDK sent until a response or an error. A header counts its retries."""
    request = getattr(getattr(source, "response", None), "request", None) or getattr(source, "request", None)
    retries = "0" if request is None else request.headers.get("x-stainless-retry-count", "0")
    return int(retries) + 1 if retries.isdecimal() else 1


def _of_status(err: Any, text: str, details: dict[str, Any]) -> LLMError:
    headers = cast("Mapping[str, str]", err.response.headers)
    error: dict[str, Any] = {
        "status_code": err.status_code,
        "request_id": err.request_id or headers.get("x-request-id") or headers.get("request-id"),
        "retry_after": _retry_after(headers),
    }
    kind = error_class_of(err.body, text) if err.status_code < 400 else None
    return (kind or error_for_status(err.status_code, f"{_kind(err.body)} {text}"))(text, **details, **error)


def error_class_of(body: Any, text: str) -> type[LLMError]:
    """Return the error class for a body, by the vendor's code or an HTTP status in it."""
    kind = _kind(body)
    if kind in _KINDS:
        return _KINDS[kind]
    code = str(_error_in(body).get("code") or "")
    if code.isdecimal() and 400 <= int(code) < 600:
        return error_for_status(int(code), f"{kind} {text}")
    refused = error_for_status(400, f"{kind} {text}")
    return refused if kind else LLMServerError


def _error_in(body: Any) -> dict[str, Any]:
    """Return the error in a body, at any depth under ``error``."""
    while isinstance(body, dict):
        given = cast("dict[str, Any]", body)
        if not isinstance(given.get("error"), dict):
            return given
        body = given["error"]
    return {}


def _kind(body: Any) -> str:
    """Return the vendor's type or code of an error, whichever is known."""
    error = _error_in(body)
    for name in ("code", "type"):
        if error.get(name) in _KINDS or error.get(name) == "context_length_exceeded":
            return str(error[name])
    return str(error.get("type") or error.get("code") or "")


def error_message(body: Any) -> str:
    """Return the vendor's message in an error body, with its code; empty without a message."""
    if isinstance(body, str):
        return body
    error = _error_in(body)
    if not error and isinstance(body, dict) and isinstance(cast("dict[str, Any]", body).get("error"), str):
        return cast("dict[str, Any]", body)["error"]
    message, code = error.get("message"), error.get("code")
    if not isinstance(message, str) or not message:
        return ""
    return f"{message} [{code}]" if isinstance(code, str) and code and code not in message else message


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait, from either header of the vendors; dates are left to the SDK."""
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return float(headers[name]) / divisor
        except (KeyError, ValueError):
            continue
    return None
