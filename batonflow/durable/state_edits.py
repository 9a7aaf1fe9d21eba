"""Changes of a state from outside, checked by the class of the state."""

from collections.abc import Mapping
from copy import copy
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from batonflow.values.problems import in_words
from batonflow.values.serializers import is_plain
from batonflow.values.state_data import MAX_DEPTH, key_in
from batonflow.workflow_core.errors import WorkflowRuntimeError
from batonflow.workflow_core.events import DictLikeModel

__all__ = ["edited_state"]


def edited_state(state: BaseModel, edits: Mapping[str, Any]) -> tuple[BaseModel, list[tuple[str, Any]]]:
    """Return a copy of a state with changed values, and the changes for the record: paths with values.

    Args:
        state: The state; it is not changed.
        edits: The values by dotted path. The class of their container validates them.

    Raises:
        WorkflowRuntimeError: A path does not exist or is private, or a value does not fit.

    Example:
        >>> edited_state(Cart(), {"items.0.count": 2})
    """
    changes: list[tuple[str, Any]] = []
    for path, value in edits.items():
        names = path.split(".")
        if len(names) > MAX_DEPTH:
            raise _refusal(path, f"it has {len(names)} parts, the most is {MAX_DEPTH}")
        state = _with(state, names, value, path)
        head, found = names[0], _at(state, names)
        if head in type(state).model_fields and not is_plain(found):
            # The parts can only be read with the type of the whole value.
            changes.append((head, getattr(state, head)))
        else:
            changes.append((path, found))
    return state, changes


def _refusal(path: str, reason: str) -> WorkflowRuntimeError:
    return WorkflowRuntimeError(f"The state cannot be changed at {path!r}: {reason}")


def _with(container: Any, names: list[str], value: Any, path: str) -> Any:
    """Return a copy of a container with a new value at a path; all other values are shared."""
    name, inner = names[0], names[1:]
    if not name:
        raise _refusal(path, "a part of the path is empty")
    if inner:
        value = _with(_held(container, name), inner, value, path)
    if container is None:
        return {name: value}
    if isinstance(container, BaseModel):
        return _with_field(container, name, value, path)
    if isinstance(container, dict):
        found = cast("dict[Any, Any]", container)
        return {**found, key_in(found, name): value}
    changed: Any = copy(container)
    if isinstance(container, list):
        try:
            changed[int(name)] = value
        except (ValueError, IndexError):
            raise _refusal(path, f"{name!r} is not a place in a list of {len(changed)}") from None
        return changed
    raise _refusal(path, f"a value of type {type(container).__name__} has no part {name!r}")


def _with_field(model: BaseModel, name: str, value: Any, path: str) -> BaseModel:
    cls = type(model)
    declared = name in cls.model_fields
    if name.startswith("_") or not (declared or cls.model_config.get("extra") == "allow"):
        raise _refusal(
            path, f"{cls.__name__} has no field {name!r}; it has {', '.join(cls.model_fields) or 'no field'}"
        )
    changed = model.model_copy()
    if not declared:
        cast("dict[str, Any]", changed.__pydantic_extra__)[name] = value
        return changed
    try:
        cls.__pydantic_validator__.validate_assignment(changed, name, value)
    except ValidationError as error:
        raise _refusal(path, in_words(error)) from None
    return changed


def _held(container: Any, name: str) -> Any:
    """Return the value of a container under a name, or None."""
    if isinstance(container, dict):
        found = cast("dict[Any, Any]", container)
        return found.get(key_in(found, name))
    if isinstance(container, list):
        try:
            return cast("list[Any]", container)[int(name)]
        except (ValueError, IndexError):
            return None
    if isinstance(container, BaseModel) and name in type(container).model_fields:
        return getattr(container, name)
    return container.get(name) if isinstance(container, DictLikeModel) else None


def _at(container: Any, names: list[str]) -> Any:
    for name in names:
        container = _held(container, name)
    return container
