"""Models some of whose fields are made when somebody asks for them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer
from typing_extensions import override

__all__ = ["LazyFields", "assembled"]

_new = object.__new__

# What a model consists of, set in its slots: looking each up by name would take half as long again.
_put_values: Any = BaseModel.__dict__["__dict__"].__set__
_put_given: Any = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_put_extra: Any = BaseModel.__dict__["__pydantic_extra__"].__set__
_put_private: Any = BaseModel.__dict__["__pydantic_private__"].__set__


_ModelT = TypeVar("_ModelT", bound=BaseModel)

# By class, the names of its fields: one set for all models that are assembled, as each of their own would be an object
# more for the collector to look at. All names are in it, so that a field that is set later adds none; and that is all
# that can be set, as the classes take no other data.
_names: dict[type[BaseModel], set[str]] = {}


def assembled(cls: type[_ModelT], values: dict[str, Any]) -> _ModelT:
    """A model of all its fields, unvalidated as they are of our own making.

    ``model_construct`` does the same in three times the time.

    Args:
        cls: A class without extra data and private attributes.
        values: All fields by name; the dict is kept.
    """
    given = _names.get(cls)
    if given is None:
        given = _names[cls] = set(cls.model_fields)
    made = _new(cls)
    _put_values(made, values)
    _put_given(made, given)
    _put_extra(made, None)
    _put_private(made, None)
    return made


class LazyFields(BaseModel):
    """A model of which a stream makes one for every piece, and most readers look at few fields.

    Writing out the text so far for each piece would take time with the square of its length; :meth:`partial` leaves
    such fields out until they are asked for by name, or the model is compared, copied, shown, changed or written down.
    """

    _extra: ClassVar[bool] = False

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls._extra = cls.model_config.get("extra") == "allow"

    @classmethod
    def made(cls, **values: Any) -> Self:
        """A model of all its fields, unvalidated as they are of our own making."""
        return cls.partial(None, values)

    @classmethod
    def partial(
        cls, make: Callable[[Any], dict[str, Any]] | None, values: dict[str, Any], given: set[str] | None = None
    ) -> Self:
        """A model with ``values``, unvalidated as they are of our own making; ``make(mark)`` gives the rest, once.

        Args:
            make: Makes the fields that are not among ``values``; None when all are.
            values: All other fields by name, and under ``"_mark"`` what ``make`` is called with, None without. The dict
                is kept.
            given: The names of ``values``, where many are made that have the same ones: a set that all of them share.
        """
        made = _new(cls)
        # What the constructor would do; but what makes the rest lies where private attributes would, which these models
        # have none of. A stream holds thousands of these: each object that the collector need not look at counts.
        _put_values(made, values)
        _put_given(made, set(values) if given is None else given)
        _put_extra(made, {} if make is None and cls._extra else None)
        _put_private(made, make)
        return made

    @property
    def is_partial(self) -> bool:
        """Whether there is something left to make."""
        return self.__pydantic_private__ is not None

    @property
    def source(self) -> Callable[[Any], dict[str, Any]] | None:
        """What makes the fields that are left, None when there are none."""
        make: Any = self.__pydantic_private__
        return make

    def settle(self) -> None:
        """Make what is left."""
        make = self.source
        if make is None:
            return
        # Looked at once: another thread may be doing the same, and what it puts there has no mark.
        now: Mapping[str, Any] = self.__dict__
        fields = self.__pydantic_fields__
        left = {} if now.keys() >= fields.keys() else self._rest(make, now.get("_mark"))
        found = {**now, **left}
        if self._extra and self.__pydantic_extra__ is None:
            _put_extra(self, {})
        # In the order of the fields, as a constructor would have put them; and in one step, or another thread that
        # looks at the same moment would find nothing.
        _put_values(self, {name: found[name] for name in fields if name in found})
        _put_given(self, self.__pydantic_fields_set__.union(left))
        _put_private(self, None)

    def _rest(self, make: Callable[[Any], dict[str, Any]], mark: Any) -> dict[str, Any]:
        """The fields that are left; for subclasses that share ``make`` with another model."""
        return make(mark)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Also for what is no field: private attributes are looked for next.
            self.settle()
            # Another thread may have made it since it was missed.
            now = self.__dict__
            return now[name] if name in now else super().__getattr__(name)

        @override
        def __setattr__(self, name: str, value: Any) -> None:
            self.settle()
            super().__setattr__(name, value)

    # Everything that reads the fields without asking for them by name.

    @model_serializer(mode="wrap")
    def _dump_settled(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        self.settle()
        return handler(self)

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
