"""Validation errors in words that name the field but not its value."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

from batonflow.lazy import at_first_use

__all__ = ["close_to_fields", "in_words", "in_words_with_hints", "misspelt", "problems_of", "unknown_fields"]

get_close_matches = at_first_use("difflib", "get_close_matches")


def problems_of(error: ValidationError) -> list[dict[str, Any]]:
    """Return the errors with ``loc`` and ``msg``, without the values, which may be secret."""
    return [{"loc": list(problem["loc"]), "msg": problem["msg"]} for problem in error.errors(include_url=False)]


def in_words(error: ValidationError, whole: str = "all") -> str:
    """Return the errors as text.

    Args:
        error: The validation error.
        whole: The name for errors that do not belong to a field.
    """
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or whole}: {one['msg']}" for one in problems_of(error))


def unknown_fields(model: BaseModel) -> str:
    """Describe the data that a class does not declare, with suggestions for similar fields.

    A class without fields accepts any data, so the result is empty.
    """
    cls = type(model)
    taken: Collection[str] = getattr(cls, "__batonflow_takes__", ())
    extra = [name for name in model.__pydantic_extra__ or () if name not in taken]
    return _unknown(cls, extra, cls.model_fields.keys() - model.model_fields_set) if extra and cls.model_fields else ""


def in_words_with_hints(error: ValidationError, cls: type[BaseModel], given: Mapping[str, Any]) -> str:
    """Return the errors as text, with suggestions for missing fields from the other names."""
    missing = {str(one["loc"][0]) for one in error.errors(include_url=False) if one["type"] == "missing" and one["loc"]}
    inner = given.get("_data")
    names = {**given, **(cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else {})}
    others = [name for name in names if name not in _names(cls) and get_close_matches(name, missing, n=1)]
    return "; ".join(filter(None, (_by_field(error, cls), _unknown(cls, others, missing))))


def _by_field(error: ValidationError, cls: type[BaseModel]) -> str:
    """As ``in_words``, with one text for a field of several types, which pydantic reports once for each type."""
    said: dict[str, list[str]] = {}
    for one in problems_of(error):
        loc = one["loc"]
        field = cls.model_fields.get(str(loc[0])) if loc else None
        annotation: Any = None if field is None else field.annotation
        if get_origin(annotation) in (Union, UnionType) and len({*get_args(annotation)} - {type(None)}) > 1:
            loc = [*loc[:1], *loc[2:]]  # without the name of the type
        said.setdefault(".".join(map(str, loc)) or "all", []).append(one["msg"])
    return "; ".join(f"{place}: {_or(texts)}" for place, texts in said.items())


def _or(texts: Sequence[str]) -> str:
    first, *others = dict.fromkeys(texts)
    return ", or ".join([first, *(text.removeprefix("Input should be ") for text in others)])


def close_to_fields(model: BaseModel) -> str:
    """Describe undeclared data as in ``unknown_fields``, but only names that resemble a missing field."""
    open_fields = type(model).model_fields.keys() - model.model_fields_set
    names = [name for name in model.__pydantic_extra__ or () if get_close_matches(name, open_fields, n=1, cutoff=0.75)]
    return _unknown(type(model), names, open_fields)


def misspelt(names: Iterable[str], fields: Collection[str]) -> dict[str, str]:
    """Return the similar field for each name. A name that extends the name of a field is not a mistake."""
    near = {name: get_close_matches(name, fields, n=1, cutoff=0.75) for name in names}
    return {name: found[0] for name, found in near.items() if found and not name.startswith(found[0])}


def _unknown(cls: type[BaseModel], names: Iterable[str], open_fields: Collection[str]) -> str:
    said: list[str] = []
    for name in names:
        near = get_close_matches(name, list(open_fields) or list(cls.model_fields), n=1)
        meant = f". Did you mean {near[0]!r}?" if near else f"; it has {', '.join(cls.model_fields)}"
        said.append(f"{cls.__name__} has no field {name!r}{meant}")
    return "; ".join(said)


def _names(cls: type[BaseModel]) -> set[str]:
    """Return the names and aliases of fields; for paths, the first part."""
    return {"_data", *cls.model_fields, *(str(field.validation_alias or "") for field in cls.model_fields.values())}
