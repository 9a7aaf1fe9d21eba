"""Components: pydantic models that name their class in their data."""

import json
import pickle
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_serializer

__all__ = ["BaseComponent"]


_Data = dict[Any, Any]
"""A dict, under a name that the methods of a component do not have."""


class BaseComponent(BaseModel):
    """A pydantic model whose data contain its ``class_name``.

    Private parts that cannot be pickled are left out of copies and pickles.
    """

    model_config = ConfigDict(populate_by_name=True)
    _class_name: ClassVar[str] = "base_component"

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class in its data."""
        return cls._class_name

    @model_serializer(mode="wrap")
    def _with_class_name(self, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {**write(self), "class_name": self.class_name()}

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Return the component as data."""
        return self.model_dump(**kwargs)

    def to_json(self, **kwargs: Any) -> str:
        """Return the component as JSON."""
        return json.dumps(self.to_dict(mode="json", **kwargs))

    def json(self, **kwargs: Any) -> str:
        """Return the component as JSON."""
        return self.to_json(**kwargs)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], **kwargs: Any) -> Self:
        """Return a component of data; further values replace those in the data."""
        return cls(**{name: value for name, value in {**data, **kwargs}.items() if name != "class_name"})

    @classmethod
    def from_json(cls, data_str: str, **kwargs: Any) -> Self:
        """Return a component of JSON."""
        return cls.from_dict(json.loads(data_str), **kwargs)

    def __getstate__(self) -> _Data:
        state = super().__getstate__()
        private = state.get("__pydantic_private__")
        if private:
            state["__pydantic_private__"] = {name: value for name, value in private.items() if _can_be_pickled(value)}
        return state

    def __deepcopy__(self, memo: _Data | None = None) -> Self:
        made = type(self).__new__(type(self))
        made.__setstate__(deepcopy(self.__getstate__(), memo))
        return made

    def dict(self, **kwargs: Any) -> _Data:
        """Return the component as data."""
        return self.model_dump(**kwargs)


def _can_be_pickled(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - objects may raise anything
        return False
    return True
