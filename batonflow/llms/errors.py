"""Every error of the model layer.

::

    LLMError (BatonflowError)                something went wrong between us and a model
    ├── LLMConfigurationError (ValueError)   an unknown model string, a setting that cannot be
    ├── MissingDependencyError (ImportError) the vendor's SDK is not installed
    ├── LLMConnectionError (ConnectionError) no answer, or the connection broke                   retryable
    │   └── LLMTimeoutError (TimeoutError)   ... in time                                          retryable
    ├── IncompleteResponseError              the answer ended before its terminal mark            retryable
    ├── InvalidResponseError                 an answer that is not one of the vendor's            retryable
    ├── LLMRequestError                      the vendor refuses the request (4xx)
    │   ├── AuthenticationError              ... the key (401, 403)
    │   │   └── MissingKeyError              ... there is none (LLMConfigurationError too)
    │   ├── ModelNotFoundError               ... the model's name (404)
    │   ├── ContextLengthError               ... the length of the conversation
    │   ├── ContentFilterError               ... what it is about
    │   └── FetchError                       an address in a message was not fetched (llms.fetching)
    ├── RateLimitError                       too many requests (429)                              retryable
    ├── LLMServerError                       the vendor failed (5xx)                              retryable
    │   └── OverloadedError                  ... has too much to do (503, 529)                    retryable
    ├── NoToolCallError (ValueError)         a tool call was demanded and none came
    ├── ToolCallError (ValueError)           more calls came than were allowed, or one failed
    ├── StructuredOutputError (ValueError)   the answer does not fit the schema
    │   └── RefusalError                     the model declines to answer in that form
    ├── ReplayMissError (LookupError)        a recording does not hold the request
    └── ScriptExhaustedError                 a ScriptedLLM was asked more often than its script allows

A request that failed retryably may succeed when it is sent again; once a part of its answer has been shown
(``error.shown``), sending it again would show that part twice, and ``error.retryable`` is false.

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
    """Something went wrong between us and a model.

    Args:
        message: What, in words.
        status_code: Of the HTTP answer, None when there was none.
        request_id: The vendor's id of the request, for its support.
        retry_after: Seconds the vendor asks to wait.
        vendor: Who was asked, ``"openai"`` for instance.
        model: The model that was asked.
        shown: Whether a part of the answer had been handed out before.
    """

    _passing: ClassVar[bool] = False

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
        who = " ".join(one for one in (vendor, model) if one)
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
        """Whether the same request may succeed when it is sent again, with nothing shown twice."""
        return self._passing and not self.shown


class LLMConfigurationError(LLMError, ValueError):
    """A model cannot be set up like this: an unknown model string, a setting that cannot be."""


class MissingDependencyError(LLMError, ImportError):
    """A vendor's SDK is not installed; the message says what to install."""


class LLMConnectionError(LLMError, ConnectionError):
    """The vendor could not be reached, or the connection broke."""

    _passing = True


class LLMTimeoutError(LLMConnectionError, TimeoutError):
    """The vendor did not answer in time."""


class IncompleteResponseError(LLMError):
    """The answer ended without the mark that says it is whole."""

    _passing = True


class InvalidResponseError(LLMError):
    """What came back is not an answer of this vendor's API: a proxy's error page, broken JSON."""

    _passing = True


class LLMRequestError(LLMError):
    """The vendor refuses the request; asking again will not help."""


class AuthenticationError(LLMRequestError):
    """The key is wrong, or may not use this model."""


class MissingKeyError(AuthenticationError, LLMConfigurationError):
    """There is no key; the message names the environment variable."""


class ModelNotFoundError(LLMRequestError):
    """The vendor has no such model or route."""


class ContextLengthError(LLMRequestError):
    """The conversation is longer than the model's context window."""


class ContentFilterError(LLMRequestError):
    """The vendor does not let the model see this conversation."""


class RateLimitError(LLMError):
    """Too many requests or tokens; ``retry_after`` says how long to wait when the vendor does."""

    _passing = True


class LLMServerError(LLMError):
    """The vendor failed."""

    _passing = True


class OverloadedError(LLMServerError):
    """The vendor has too much to do."""


class NoToolCallError(LLMError, ValueError):
    """A tool call was demanded and the model answered in words; the message holds them."""


class ToolCallError(LLMError, ValueError):
    """More calls came than were allowed, or a call failed and that was to be an error."""


class StructuredOutputError(LLMError, ValueError):
    """The model's answer does not fit the schema that was asked for."""


class RefusalError(StructuredOutputError):
    """The model declines to answer in the form that was asked for; the message holds its words."""


class ReplayMissError(LLMError, LookupError):
    """A recording does not hold this request; the message says what differs from the nearest one."""


class ScriptExhaustedError(LLMError):
    """A ScriptedLLM was asked more often than its script has turns."""


_CONTEXT = ("context_length", "context window", "context length", "prompt is too long", "maximum context")
_FILTER = ("content_filter", "content_policy", "content management policy", "content filtering", "invalid_prompt")


def error_for_status(status: int, text: str) -> type[LLMError]:
    """The class of error for an HTTP status; ``text`` is the body, read for what a status alone does not tell."""
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
