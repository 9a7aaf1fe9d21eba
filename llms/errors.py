"""Every error of the model layer.

::

    LLMError (BatonflowError)                something went wrong between us and a model
    ├── LLMConfigurationError (ValueError)   no key, an unknown model string, a setting that cannot be
    ├── MissingDependencyError (ImportError) the vendor's SDK is not installed
    ├── LLMConnectionError (ConnectionError) no answer                                            retryable
    │   └── LLMTimeoutError (TimeoutError)   ... in time                                          retryable
    ├── IncompleteResponseError              the answer ended before its terminal mark            retryable
    ├── InvalidResponseError                 an answer that is not one of the vendor's            retryable
    ├── LLMRequestError                      the vendor refuses the request (4xx)
    │   ├── AuthenticationError              ... the key (401, 403)
    │   ├── ModelNotFoundError               ... the model's name (404)
    │   └── ContextLengthError               ... the length of the conversation
    ├── RateLimitError                       too many requests (429)                              retryable
    ├── LLMServerError                       the vendor failed (5xx, overloaded)                  retryable
    ├── NoToolCallError (ValueError)         a tool call was demanded and none came
    ├── StructuredOutputError (ValueError)   the answer does not fit the schema
    └── ScriptExhaustedError                 a ScriptedLLM was asked more often than its script allows

The vendor's own exception is kept as ``__cause__``.
"""

from typing import ClassVar

from batonflow.workflow_core.errors import BatonflowError

__all__ = [
    "AuthenticationError",
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
    "ModelNotFoundError",
    "NoToolCallError",
    "RateLimitError",
    "ScriptExhaustedError",
    "StructuredOutputError",
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
    """

    retryable: ClassVar[bool] = False
    """Whether the same request may succeed later."""

    def __init__(
        self,
        message: str = "",
        *,
        status_code: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        vendor: str | None = None,
        model: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.request_id = request_id
        self.retry_after = retry_after
        self.vendor = vendor
        self.model = model


class LLMConfigurationError(LLMError, ValueError):
    """A model cannot be set up like this: no key, an unknown model string."""


class MissingDependencyError(LLMError, ImportError):
    """A vendor's SDK is not installed; the message says what to install."""


class LLMConnectionError(LLMError, ConnectionError):
    """The vendor could not be reached, or the connection broke."""

    retryable = True


class LLMTimeoutError(LLMConnectionError, TimeoutError):
    """The vendor did not answer in time."""


class IncompleteResponseError(LLMError):
    """The answer ended without the mark that says it is whole."""

    retryable = True


class InvalidResponseError(LLMError):
    """What came back is not an answer of this vendor's API: a proxy's error page, broken JSON."""

    retryable = True


class LLMRequestError(LLMError):
    """The vendor refuses the request; asking again will not help."""


class AuthenticationError(LLMRequestError):
    """The key is wrong, or may not use this model."""


class ModelNotFoundError(LLMRequestError):
    """The vendor has no such model or route."""


class ContextLengthError(LLMRequestError):
    """The conversation is longer than the model's context window."""


class RateLimitError(LLMError):
    """Too many requests or tokens; ``retry_after`` says how long to wait when the vendor does."""

    retryable = True


class LLMServerError(LLMError):
    """The vendor failed or is overloaded."""

    retryable = True


class NoToolCallError(LLMError, ValueError):
    """A tool call was demanded and the model answered in words; the message holds them."""


class StructuredOutputError(LLMError, ValueError):
    """The model's answer does not fit the schema that was asked for."""


class ScriptExhaustedError(LLMError):
    """A ScriptedLLM was asked more often than its script has turns."""


def error_for_status(status: int, text: str) -> type[LLMError]:
    """The class of error for an HTTP status; ``text`` is the body, read for what a status alone does not tell."""
    if status in {401, 403}:
        return AuthenticationError
    if status == 404:
        return ModelNotFoundError
    if status == 408:
        return LLMTimeoutError
    if status == 429:
        return RateLimitError
    if status >= 500:
        return LLMServerError
    lowered = text.lower()
    if "context_length" in lowered or "context window" in lowered or "prompt is too long" in lowered:
        return ContextLengthError
    return LLMRequestError
