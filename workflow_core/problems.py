"""What is wrong with the fields of a model, in words that name the place and not the value."""

from typing import Any

from pydantic import ValidationError

__all__ = ["in_words", "problems_of"]


def problems_of(error: ValidationError) -> list[dict[str, Any]]:
    """What is wrong, each with ``loc`` and ``msg``, without the values that were given: they may be secrets."""
    return [{"loc": list(problem["loc"]), "msg": problem["msg"]} for problem in error.errors(include_url=False)]


def in_words(error: ValidationError, whole: str = "all") -> str:
    """The same as text.

    Args:
        error: What pydantic says.
        whole: Stands for the place of what is wrong with no field of its own.
    """
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or whole}: {one['msg']}" for one in problems_of(error))
