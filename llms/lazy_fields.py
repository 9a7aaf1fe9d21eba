"""Models some of whose fields are made when somebody asks for them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, cast

from pydantic import BaseModel, PrivateAttr, SerializerFunctionWrapHandler, model_serializer

__all__ = ["LazyFields"]


class LazyFields(BaseModel):
    """A model of which a stream makes one for every piece, and most readers look at few fields.

    Writing out the text so far for each piece would take time with the square of its length; :meth:`partial` leaves
    such fields out until they are asked for by name, or the model is compared, copied, shown or written down.
    """

    _make: Callable[[], dict[str, Any]] | None = PrivateAttr(default=None)

    @classmethod
    def made(cls, **values: Any) -> Self:
        """A model of all its fields, unvalidated as they are of our own making."""
        return cls.partial(None, values)

    @classmethod
    def partial(cls, make: Callable[[], dict[str, Any]] | None, values: dict[str, Any]) -> Self:
        """A model with ``values``, unvalidated as they are of our own making; ``make()`` gives the rest, once.

        Args:
            make: Makes the fields that are not among ``values``; None when all are.
            values: All other fields by name; the dict is kept.
        """
        made = cls.__new__(cls)
        # What the constructor would do.
        object.__setattr__(made, "__dict__", values)
        object.__setattr__(made, "__pydantic_fields_set__", set(values))
        object.__setattr__(made, "__pydantic_extra__", None)
        object.__setattr__(made, "__pydantic_private__", {"_make": make})
        return made

    @property
    def is_partial(self) -> bool:
        """Whether there is something left to make."""
        # Not through the attribute: pydantic looks for private ones last and slowest.
        private = self.__pydantic_private__
        return private is not None and private["_make"] is not None

    def settle(self) -> None:
        """Make what is left."""
        private = self.__pydantic_private__
        make = None if private is None else cast("Callable[[], dict[str, Any]] | None", private["_make"])
        if make is None:
            return
        left = make()
        found: Mapping[str, Any] = {**self.__dict__, **left}
        # In the order of the fields, as a constructor would have put them; and in one step, or another thread that
        # looks at the same moment would find nothing.
        object.__setattr__(self, "__dict__", {name: found[name] for name in type(self).model_fields if name in found})
        self.__pydantic_fields_set__.update(left)
        self._make = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in type(self).model_fields and self.is_partial:
                self.settle()
                return self.__dict__[name]
            return super().__getattr__(name)

    # Everything that reads the fields without asking for them by name.

    @model_serializer(mode="wrap")
    def _dump_settled(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        self.settle()
        return cast("dict[str, Any]", handler(self))

    def __eq__(self, other: object) -> bool:
        self.settle()
        if isinstance(other, LazyFields):
            other.settle()
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment] - as of every model that is not frozen

    def __copy__(self) -> Self:
        self.settle()
        return super().__copy__()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        self.settle()
        return super().__deepcopy__(memo)

    def __getstate__(self) -> dict[Any, Any]:
        self.settle()
        return super().__getstate__()

    def __repr_args__(self) -> Any:
        self.settle()
        return super().__repr_args__()

    def __iter__(self) -> Any:
        self.settle()
        return super().__iter__()
