"""Keeping secrets out of what is shown and written down."""

import re
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

__all__ = ["REDACTED", "redacted"]

REDACTED = "[redacted]"

_NAMES = re.compile(
    r"(?:^|[_\-.\s])(?:api[_-]?key|secrets?|passwords?|passwd|pwd|(?:access|auth|refresh|bearer|id|session)?[_-]?tokens?"
    r"|authorization|cookies?|credentials?|private[_-]?key)$",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Keys of vendors, bearer tokens, JSON web tokens, passwords in addresses, and blocks of private keys.
_VALUES = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_\-]{16,}|\b(?:gh[pousr]|github_pat|xox[abprs])[_-][A-Za-z0-9_\-]{16,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bAIza[0-9A-Za-z_\-]{30,}|(?<=Bearer )[A-Za-z0-9._~+/\-]{12,}=*|\beyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*"
    r"|(?<=://)[^\s/:@]+:[^\s/@]+(?=@)|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)


def redacted(value: Any) -> Any:
    """``value`` as data of JSON, with what looks like a secret replaced.

    That is: pydantic's secrets, values under names such as ``api_key``, ``password`` or ``access_token``, and texts in
    the form of a key or token. It is a net with holes: nothing finds a secret that looks like any other text.

    Args:
        value: Anything; what has no form in JSON becomes its ``repr``.

    Example:
        >>> redacted({"user": "ann", "api_key": "sk-1234"})
        {'user': 'ann', 'api_key': '[redacted]'}
    """
    if isinstance(value, SecretStr | SecretBytes):
        return REDACTED
    if isinstance(value, BaseModel):
        names = (*type(value).model_fields, *(value.model_extra or {}))
        return redacted({name: getattr(value, name) for name in names})
    if isinstance(value, Mapping):
        given = cast("Mapping[Any, Any]", value)
        return {str(name): REDACTED if _is_secret(name, one) else redacted(one) for name, one in given.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted(one) for one in cast("list[Any]", value)]
    if isinstance(value, str):
        return _VALUES.sub(REDACTED, value)
    plain = to_jsonable_python(value, fallback=repr)
    return _VALUES.sub(REDACTED, plain) if isinstance(plain, str) else plain


def _is_secret(name: Any, value: Any) -> bool:
    # A number of tokens is none.
    return (
        isinstance(name, str)
        and isinstance(value, str | bytes | SecretStr | SecretBytes)
        and _NAMES.search(_CAMEL.sub("_", name)) is not None
    )
