"""The fields of an answer class as data, for programs that check answers without having the class."""

from collections.abc import Mapping
from typing import Any, get_origin
from weakref import WeakKeyDictionary

from pydantic import BaseModel, TypeAdapter, ValidationError

__all__ = ["AnswerFields", "answer_fields", "needed", "unfit"]

AnswerFields = Mapping[str, tuple[str, bool]]
"""Name of a field -> its JSON type and whether it is required. The type is empty when it is not plain."""

_TYPES: dict[Any, str] = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object",
}  # fmt: skip
_known: WeakKeyDictionary[type[BaseModel], dict[str, tuple[str, bool]]] = WeakKeyDictionary()


def answer_fields(cls: type[BaseModel]) -> AnswerFields:
    """Describe the fields of a class; None if validators of the class change values."""
    found = _known.get(cls)
    if found is None:
        found = _known[cls] = _fields_of(cls)
    return found


def _fields_of(cls: type[BaseModel]) -> dict[str, tuple[str, bool]]:
    decorators = cls.__pydantic_decorators__
    if cls.__pydantic_custom_init__ or any(one.info.mode != "after" for one in decorators.model_validators.values()):
        return {}
    changed = {name for one in decorators.field_validators.values() for name in one.info.fields}
    found: dict[str, tuple[str, bool]] = {}
    for name, field in cls.model_fields.items():
        if field.validation_alias is not None:
            continue
        is_plain = changed.isdisjoint((name, "*")) and not field.metadata
        kind: Any = get_origin(field.annotation) or field.annotation
        found[name] = _TYPES.get(kind, "") if is_plain else "", field.is_required()
    return found


def needed(fields: AnswerFields, filled: Mapping[str, Any]) -> str:
    """Describe the fields of an answer in words; empty if they are unknown."""
    left = {name: about for name, about in fields.items() if name not in filled}
    told = {name: f"{name} ({kind})" if kind else name for name, (kind, _) in left.items()}
    must = ", ".join(told[name] for name, (_, is_needed) in left.items() if is_needed)
    may = ", ".join(told[name] for name, (_, is_needed) in left.items() if not is_needed)
    return "; ".join(part for part in (must and f"needs {must}", may and f"may have {may}") if part)


def unfit(fields: AnswerFields, given: Mapping[str, Any]) -> list[str]:
    """Describe the errors in the fields of an answer."""
    problems = [f"{name} is missing" for name, (_, is_needed) in fields.items() if is_needed and name not in given]
    for name, (kind, _) in fields.items():
        if kind and name in given and not _is(kind, given[name]):
            problems.append(f"{name} has to be {'an' if kind[0] in 'aio' else 'a'} {kind}, and is {given[name]!r}")
    return problems


def _is(kind: str, value: Any) -> bool:
    cls = next(cls for cls, name in _TYPES.items() if name == kind)
    try:
        TypeAdapter[Any](cls).validate_python(value)  # validates as the class itself does
    except ValidationError:
        return False
    return True
