"""Models as data: their settings without secrets, and models made from such data."""

import json
import re
from typing import Any, Self

from pydantic import BaseModel, SecretBytes, SecretStr

from batonflow.instrumentation.redaction import without_secrets

__all__ = ["AsData"]

_ADDRESS = re.compile(r"https?://\S+\?\S*")
_MAY_BE_KEY = re.compile(r"key|token|secret|sig|pass|pwd|auth|cred|jwt|(?<![a-z])code(?![a-z])", re.IGNORECASE)

# Inside the class, ``dict`` is the method.
_Data = dict[str, Any]

_CLASS = "class_name"
# Objects of the program, which are not settings.
_PARTS = frozenset(
    {
        "callback_manager",
        "completion_to_prompt",
        "messages_to_prompt",
        "output_parser",
        "query_wrapper_prompt",
        "rate_limiter",
    }
)


def _without_keys(value: Any) -> Any:
    """Return a URL without query parameters that may be keys."""
    if not (isinstance(value, str) and _ADDRESS.fullmatch(value)):
        return value
    base, _, query = value.partition("?")
    kept = [entry for entry in query.split("&") if not _MAY_BE_KEY.search(entry.partition("=")[0])]
    return f"{base}?{'&'.join(kept)}" if kept else base


class AsData(BaseModel):
    """The methods with which a component of LlamaIndex is serialized and restored.

    The data leave out secrets (by type, by a name such as ``api_key``, or by form), functions, and parts of a model
    that are objects of the program.
    """

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class."""
        return cls.__name__

    def dict(self, **kwargs: Any) -> _Data:  # pyright: ignore[reportIncompatibleMethodOverride] - not deprecated here
        """Return the settings as JSON data, with ``class_name``.

        Args:
            **kwargs: Options of ``model_dump``, such as ``exclude``.

        Example:
            >>> MockLLM(max_tokens=4).dict()["max_tokens"]
            4
        """
        found = self.model_dump(**kwargs)
        settings = {
            name: _without_keys(value)
            for name, value in found.items()
            if name not in _PARTS
            and not callable(value)
            and not isinstance(getattr(self, name, None), SecretStr | SecretBytes)
        }
        return {**without_secrets(settings), _CLASS: self.class_name()}

    def to_dict(self, **kwargs: Any) -> _Data:
        """Return the data of ``dict``."""
        return self.dict(**kwargs)

    def json(self, **kwargs: Any) -> str:  # pyright: ignore[reportIncompatibleMethodOverride] - not deprecated here
        """Return the text of ``to_json``."""
        return self.to_json(**kwargs)

    def to_json(self, **kwargs: Any) -> str:
        """Return the data of ``to_dict`` as JSON text.

        Args:
            **kwargs: Options of ``model_dump``.
        """
        return json.dumps(self.to_dict(**kwargs))

    @classmethod
    def from_dict(cls, data: _Data, **kwargs: Any) -> Self:
        """Make a model of this class from the data of ``to_dict``.

        Args:
            data: The settings; the ``class_name`` in them is ignored.
            **kwargs: Settings that replace or complete the data, such as ``api_key``.

        Raises:
            ValidationError: The data do not fit; models of vendors raise LLMConfigurationError.
            TypeError: The model contains other models, which cannot be made from data.
        """
        given = {name: value for name, value in {**data, **kwargs}.items() if name != _CLASS}
        return cls(**given)

    @classmethod
    def from_json(cls, data_str: str, **kwargs: Any) -> Self:
        """Make a model of this class from the text of ``to_json``.

        Args:
            data_str: The text.
            **kwargs: As for ``from_dict``.

        Raises:
            ValueError: The text is not JSON, or the data do not fit.
        """
        return cls.from_dict(json.loads(data_str), **kwargs)
