"""The errors of the model layer.

::

        LLMError (BatonflowError)                a call to a model failed
        ├── LLMConfigurationError (ValueError)   an unknown model string, an invalid setting
    ├── MissingDependencyError (ImportError) the vendor's SDK is not installed
        ├── LLMConnectionError (ConnectionError) no connection, or the connection broke               retryable
        │   └── LLMTimeoutError (TimeoutError)   ... no response in time                              retryable
        ├── IncompleteResponseError              the response ended before its terminal mark          retryable
        ├── InvalidResponseError                 the response is not one of the vendor's API          retryable
    ├── LLMRequestError                      the vendor refuses the request (4xx)
    │   ├── AuthenticationError              ... the key (401, 403)
        │   │   └── MissingKeyError              ... no key (LLMConfigurationError too)
    │   ├── ModelNotFoundError               ... the model's name (404)
    │   ├── ContextLengthError               ... the length of the conversation
        │   ├── ContentFilterError               ... the content of the conversation
        │   └── FetchError                       a URL in a message was not fetched (llms.fetching)
    ├── RateLimitError                       too many requests (429)                              retryable
    ├── LLMServerError                       the vendor failed (5xx)                              retryable
        │   └── OverloadedError                  ... is overloaded (503, 529)                         retryable
        ├── NoToolCallError (ValueError)         a required tool call is missing
        ├── ToolCallError (ValueError)           too many tool calls, or a failed one
    ├── StructuredOutputError (ValueError)   the answer does not fit the schema
        │   └── RefusalError                     the model refuses to answer
        ├── ReplayMissError (LookupError)        a recording does not contain the request
        └── ScriptExhaustedError                 a ScriptedLLM received more requests than turns

A retryable request may succeed when it is sent again. When a part of its response was already yielded
(``error.shown``), a retry would yield this part twice, so ``error.retryable`` is false.

The vendor's own exception is kept as ``__cause__``.
"""

from typing import ClassVar

from batonflow.workflow_core.errors import BatonflowError

__all__ = [
    "AuthenticationError",
    "ContentFilterError",
    "ContextLengthError",
    "IncompleteResponseError",
    "InvalidResponseError",
    "LLMConfigurationError",
    "LLMConnectionError",
    "LLMError",
    "LLMRequestError",
    "LLMServerError",
    "LLMTimeoutError",
    "MissingDependencyError",
    "MissingKeyError",
    "ModelNotFoundError",
    "NoToolCallError",
    "OverloadedError",
    "RateLimitError",
    "RefusalError",
    "ReplayMissError",
    "ScriptExhaustedError",
    "StructuredOutputError",
    "ToolCallError",
    "error_for_status",
]


class LLMError(BatonflowError):
    """A call to a model failed.

    Args:
        message: The description of the failure.
        status_code: The HTTP status of the response, None without a response.
        request_id: The vendor's id of the request, for its support.
        retry_after: Seconds to wait before a retry, as the vendor asks.
        vendor: The vendor, for example ``"openai"``.
        model: The name of the model.
        shown: Whether a part of the response was already yielded.
    """

    _passing: ClassVar[bool] = False

    attempts: int = 1
    """The number of requests that were sent, with the retries of the vendor's SDK."""

    def __init__(
        self,
        message: str = "",
        *,
        status_code: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        vendor: str | None = None,
        model: str | None = None,
        shown: bool = False,
    ) -> None:
        who = " ".join(dict.fromkeys(one for one in (vendor, model) if one))
        details = [f"status {status_code}"] if status_code is not None else []
        if request_id:
            details.append(f"request {request_id}")
        written = f"{who}: {message}" if who else message
        super().__init__(f"{written} ({', '.join(details)})" if details else written)
        self.status_code = status_code
        self.request_id = request_id
        self.retry_after = retry_after
        self.vendor = vendor
        self.model = model
        self.shown = shown

    @property
    def retryable(self) -> bool:
        """Return whether a retry of the request may succeed without yielding a part of the response twice."""
        return self._passing and not self.shown


class LLMConfigurationError(LLMError, ValueError):
    """The configuration of a model is invalid."""


class MissingDependencyError(LLMError, ImportError):
    """A vendor's SDK is not installed; the message has the command that installs it."""


class LLMConnectionError(LLMError, ConnectionError):
    """The vendor could not be reached, or the connection broke."""

    _passing = True


class LLMTimeoutError(LLMConnectionError, TimeoutError):
    """The vendor did not respond in time."""


class IncompleteResponseError(LLMError):
    """The response ended without its terminal mark."""

    _passing = True


class InvalidResponseError(LLMError):
    """The response is not from this vendor's API, for example a proxy's error page or broken JSON."""

    _passing = True


class LLMRequestError(LLMError):
    """The vendor refuses the request; a retry will not help."""


class AuthenticationError(LLMRequestError):
    """The key is wrong, or may not use this model."""


class MissingKeyError(AuthenticationError, LLMConfigurationError):
    """The key is missing; the message names the environment variable."""


class ModelNotFoundError(LLMRequestError):
    """The vendor has no such model or route."""


class ContextLengthError(LLMRequestError):
    """The conversation is longer than the model's context window."""


class ContentFilterError(LLMRequestError):
    """The vendor's content filter blocks the conversation."""


class RateLimitError(LLMError):
    """Too many requests or tokens; ``retry_after`` has the seconds to wait when the vendor sends them."""

    _passing = True


class LLMServerError(LLMError):
    """The vendor failed to process the request."""

    _passing = True


class OverloadedError(LLMServerError):
    """The vendor is overloaded."""


class NoToolCallError(LLMError, ValueError):
    """A tool call was required, and the model answered with text; the message contains the text."""


class ToolCallError(LLMError, ValueError):
    """The response has more tool calls than allowed, or a call failed that had to succeed."""


class StructuredOutputError(LLMError, ValueError):
    """The answer does not fit the requested schema."""


class RefusalError(StructuredOutputError):
    """The model refuses to answer in the requested form; the message contains its text."""


class ReplayMissError(LLMError, LookupError):
    """A recording does not contain the request; the message shows the difference to the nearest one."""


class ScriptExhaustedError(LLMError):
    """A ScriptedLLM received more requests than its script has turns."""


_CONTEXT = ("context_length", "context window", "context length", "prompt is too long", "maximum context")
_FILTER = ("content_filter", "content_policy", "content management policy", "content filtering", "invalid_prompt")


def error_for_status(status: int, text: str) -> type[LLMError]:
    """Return the error class for an HTTP status; ``text`` is the body, which tells similar statuses apart."""
    known: dict[int, type[LLMError]] = {
        401: AuthenticationError,
        403: AuthenticationError,
        404: ModelNotFoundError,
        408: LLMTimeoutError,
        429: RateLimitError,
        503: OverloadedError,
        529: OverloadedError,
    }
    if status in known:
        return known[status]
    if status >= 500:
        return LLMServerError
    lowered = text.lower()
    if any(words in lowered for words in _CONTEXT):
        return ContextLengthError
    if any(words in lowered for words in _FILTER):
        return ContentFilterError
    return LLMRequestError
