"""The base of the adapters over OpenAI's SDK, for both of its APIs."""

from typing import Any, ClassVar

from batonflow.llms.sdk_model import SDKModel
from batonflow.llms.usage import Usage

__all__ = ["OpenAISDKModel", "usage_from_counts"]

_OFFICIAL = ("api.openai.com", ".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")


class OpenAISDKModel(SDKModel):
    """A model behind OpenAI's SDK.

    Args:
        model: The model's name.
        reasoning_effort: The effort of thinking: ``none``, ``low``, ``medium``, ``high`` and so on.
        data: Options of every SDK model (see ``SDKModel``).

    Raises:
        MissingKeyError: Neither ``api_key`` nor ``OPENAI_API_KEY`` is set.
    """

    vendor: ClassVar[str] = "openai"
    sdk_name: ClassVar[str] = "openai"
    key_variables: ClassVar[tuple[str, ...]] = ("OPENAI_API_KEY",)
    url_variable: ClassVar[str | None] = "OPENAI_BASE_URL"

    _scans: ClassVar[bool] = True

    reasoning_effort: str | None = None

    def __init__(self, model: str = "gpt-5.6", **data: Any) -> None:
        super().__init__(model, **data)

    @property
    def official(self) -> bool:
        """Return whether the server is OpenAI's or Azure's; compatible servers differ in details."""
        return self.base_url is None or any(host in self.base_url for host in _OFFICIAL)

    def _make_client(self, sdk: Any, options: dict[str, Any]) -> Any:
        return sdk.AsyncOpenAI(**options)


def usage_from_counts(read: int | None, written: int | None, read_details: Any, written_details: Any) -> Usage:
    """Return the usage from OpenAI's token counts; some servers leave out the details."""
    return Usage(
        input_tokens=read or 0,
        output_tokens=written or 0,
        cached_tokens=getattr(read_details, "cached_tokens", None) or 0,
        cache_write_tokens=getattr(read_details, "cache_write_tokens", None) or 0,
        reasoning_tokens=getattr(written_details, "reasoning_tokens", None) or 0,
    )
