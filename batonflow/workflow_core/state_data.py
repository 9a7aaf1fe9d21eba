"""The key-value state as data: how it is written into a snapshot and read back."""

from typing import Any, cast

from pydantic import BaseModel, ValidationError

from batonflow.user_warnings import warn_user
from batonflow.values.serializers import BaseSerializer, JsonSerializer
from batonflow.workflow_core.errors import ContextSerdeError
from batonflow.workflow_core.events import DictLikeModel
from batonflow.workflow_core.telling import written

__all__ = ["DictState", "UnserializableKeyWarning", "as_declared", "declared_as_json", "dump_state", "load_state"]


KEYS_THAT_MAY_BE_LEFT_OUT = ("memory",)


class UnserializableKeyWarning(UserWarning):
    """A key of the state was left out of a snapshot because its value cannot be written."""


class DictState(DictLikeModel):
    """State without declared fields: ``state["k"]`` and ``state.k`` are the same."""


def dump_state(state: BaseModel, serializer: BaseSerializer) -> dict[str, Any]:
    """The ``state`` part of a snapshot.

    Raises:
        ValueError: A value cannot be written; the message names its key and the remedy.
    """
    cls = type(state)
    if isinstance(state, DictState) and not cls.model_fields:
        data: Any = {"_data": _dump_keys(state.to_dict(), serializer)}
    else:
        try:
            data = written(serializer, state)
        except (TypeError, ValueError) as error:
            raise ValueError(f"The state {cls.__name__} cannot be written: {error}") from error
    return {"store_type": "in_memory", "state_type": cls.__name__, "state_module": cls.__module__, "state_data": data}


def _dump_keys(values: dict[str, Any], serializer: BaseSerializer) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in values.items():
        try:
            found[key] = written(serializer, value)
        except (TypeError, ValueError) as error:
            if key not in KEYS_THAT_MAY_BE_LEFT_OUT:
                raise ValueError(
                    f"State key {key!r} holds a {type(value).__name__} that cannot be written: {error}. Store plain "
                    "data or a "
                    "pydantic model, or use PickleSerializer"
                ) from error
            warn_user(f"State key {key!r} was left out of the snapshot: {error}", UnserializableKeyWarning)
    return found


def declared_as_json(state: BaseModel, name: str, value: Any) -> Any:
    """Write a value of a declared field as pydantic does; ``as_declared`` reads it.

    Raises:
        ValueError: There is no such field, its type does not tell how to read it again, or it cannot be written.
    """
    field = type(state).model_fields.get(name)
    if field is None or "Any" in str(field.annotation):
        raise ValueError(f"{type(state).__name__} does not declare what {name!r} is")
    return state.model_copy(update={name: value}).model_dump(mode="json", include={name})[name]


def as_declared(state: BaseModel, name: str, serializer: BaseSerializer) -> None:
    """Read a value of a declared field that ``declared_as_json`` wrote.

    A value that the serializer can write stands in a record as it was set, also where the field declares another type.
    """
    if name not in type(state).model_fields:
        return
    try:
        whole: Any = type(state).__pydantic_validator__.validate_assignment(
            state.model_copy(), name, getattr(state, name)
        )
    except ValidationError:
        return  # a step may put any value there
    found = getattr(whole, name)
    if found is not getattr(state, name) and not _can_write(serializer, found):
        vars(state)[name] = found


def _can_write(serializer: BaseSerializer, value: Any) -> bool:
    if isinstance(serializer, JsonSerializer):
        serializer = serializer.for_records()
    try:
        serializer.serialize(value)
    except (TypeError, ValueError):
        return False
    return True


def load_state(payload: dict[str, Any], serializer: BaseSerializer, state_type: type[BaseModel]) -> BaseModel:
    """The state from its part of a snapshot; the shape of the data decides how it is read, never a module name.

    Raises:
        ContextSerdeError: The data is not of either shape, or does not fit ``state_type``.
    """
    data = payload.get("state_data")
    try:
        if isinstance(data, str):
            return _load_model(data, serializer, state_type)
        values = cast("dict[str, Any]", data or {}).get("_data", data or {})
        read = {key: serializer.deserialize(value) for key, value in values.items()}
        return state_type.model_validate(read)
    except (TypeError, ValueError, AttributeError) as error:
        raise ContextSerdeError(f"The state of the snapshot cannot be read: {error}") from error


def _load_model(data: str, serializer: BaseSerializer, state_type: type[BaseModel]) -> BaseModel:
    found = serializer.deserialize(data)
    if isinstance(found, dict):
        values = cast("dict[str, Any]", found)
        if set(values) == {"_data"}:
            values = {key: serializer.deserialize(value) for key, value in values["_data"].items()}
        return state_type.model_validate(values)
    if isinstance(found, BaseModel):
        return found
    raise ContextSerdeError(f"The state of the snapshot is a {type(found).__name__}, not a model")
