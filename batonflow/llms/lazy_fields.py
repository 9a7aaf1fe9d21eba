"""Fields of models and entries of messages that are made on demand."""

import json
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer
from typing_extensions import override

from batonflow.llms.blocks import ToolCallBlock, json_data

__all__ = ["CALLS", "KwargsWithCalls", "LazyFields", "OlderFunction", "OlderToolCall", "arguments_text", "assembled"]

_new = object.__new__

# The slots of a model. A lookup by name would take half as long again.
_put_values: Any = BaseModel.__dict__["__dict__"].__set__
_put_given: Any = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_put_extra: Any = BaseModel.__dict__["__pydantic_extra__"].__set__
_put_private: Any = BaseModel.__dict__["__pydantic_private__"].__set__


_ModelT = TypeVar("_ModelT", bound=BaseModel)

# The field names by class: one set shared by all assembled models, which keeps the number of objects for the garbage
# collector low. It contains all names, so that setting a field later does not change it.
_names: dict[type[BaseModel], set[str]] = {}


def assembled(cls: type[_ModelT], values: dict[str, Any]) -> _ModelT:
    """Return a model of all its fields, without validation.

    ``model_construct`` takes three times as long.

    Args:
        cls: A class without extra data and private attributes.
        values: All fields by name; the dict is not copied.
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
    """A model that a stream creates for every chunk, while most consumers read few fields.

    The full text of each chunk would take quadratic time. :meth:`partial` leaves such fields out until they are read,
    or until the model is compared, copied, shown, changed or serialized.
    """

    _extra: ClassVar[bool] = False

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls._extra = cls.model_config.get("extra") == "allow"

    @classmethod
    def made(cls, **values: Any) -> Self:
        """Return a model of all its fields, without validation."""
        return cls.partial(None, values)

    @classmethod
    def partial(
        cls, make: Callable[[Any], dict[str, Any]] | None, values: dict[str, Any], given: set[str] | None = None
    ) -> Self:
        """Return a model with ``values``, without validation; ``make(mark)`` returns the other fields, once.

        Args:
            make: Makes the fields that are not in ``values``; None when there are no others.
            values: The fields by name, and the argument of ``make`` under ``"_mark"``. The dict is not copied.
            given: The names of ``values``: one set that many models share.
        """
        made = _new(cls)
        # As the constructor does, but with ``make`` in the slot of the private attributes, which these models do not
        # have. A stream keeps thousands of chunks, so every object less helps the garbage collector.
        _put_values(made, values)
        _put_given(made, set(values) if given is None else given)
        _put_extra(made, {} if make is None and cls._extra else None)
        _put_private(made, make)
        return made

    @property
    def is_partial(self) -> bool:
        """Return whether there are fields that are not made yet."""
        return self.__pydantic_private__ is not None

    @property
    def source(self) -> Callable[[Any], dict[str, Any]] | None:
        """The function that makes the other fields, None when there are no others."""
        make: Any = self.__pydantic_private__
        return make

    def settle(self) -> None:
        """Make the other fields."""
        make = self.source
        if make is None:
            return
        # Read once: another thread may settle the model too, and its dict has no mark.
        now: Mapping[str, Any] = self.__dict__
        fields = self.__pydantic_fields__
        left = {} if now.keys() >= fields.keys() else self._rest(make, now.get("_mark"))
        found = {**now, **left}
        if self._extra and self.__pydantic_extra__ is None:
            _put_extra(self, {})
        # In the order of the fields, as the constructor does. In one step, because another thread may read the model at
        # the same time.
        _put_values(self, {name: found[name] for name in fields if name in found})
        _put_given(self, self.__pydantic_fields_set__.union(left))
        _put_private(self, None)

    def _rest(self, make: Callable[[Any], dict[str, Any]], mark: Any) -> dict[str, Any]:
        """Return the other fields; for subclasses that share ``make`` with another model."""
        return make(mark)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Also called for other names, such as private attributes.
            self.settle()
            # Another thread may have made the field in between.
            now = self.__dict__
            return now[name] if name in now else super().__getattr__(name)

        @override
        def __setattr__(self, name: str, value: Any) -> None:
            self.settle()
            super().__setattr__(name, value)

    # Methods that read the fields without their names.

    @model_serializer(mode="wrap")
    def _dump_settled(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        self.settle()
        return handler(self)

    def __eq__(self, other: object) -> bool:
        self.settle()
        if isinstance(other, LazyFields):
            other.settle()
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment] - as in every model that is not frozen

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


_CallsT = TypeVar("_CallsT", bound="KwargsWithCalls")

CALLS = "tool_calls"
"""The key of the calls in the ``additional_kwargs`` of a message."""


def arguments_text(block: ToolCallBlock) -> str:
    """Return the arguments of a call as JSON text, formatted as models write it.

    Text that is not a JSON object is returned unchanged, so that the model can see its mistake.
    """
    given = block.tool_kwargs
    if isinstance(given, str):
        return given
    try:
        return _as_models_write(given)
    except ValueError:
        # A number too large for a float, or a name that only Python reads as a number.
        return _as_models_write(json_data(given))


def _as_models_write(given: dict[str, Any]) -> str:
    return json.dumps(given, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class OlderFunction(BaseModel):
    """The name and arguments of a call in the form of OpenAI's chat completions."""

    name: str
    arguments: str


class OlderToolCall(BaseModel):
    """A call in the form of OpenAI's chat completions."""

    id: str
    type: str = "function"
    function: OlderFunction


class KwargsWithCalls(dict[str, Any]):
    """The ``additional_kwargs`` of a response with tool calls.

    LlamaIndex's OpenAI models put the calls there under ``"tool_calls"``, besides the blocks, and programs read them.
    Here they are made on demand: by this key, or for all keys, as in ``{**kwargs}``. Dumps, comparisons, sizes and
    requests leave them out, because the blocks contain them.

    Args:
        kept: The other entries.
        calls: The calls of the response, or a function that makes them. None after they were removed.
    """

    __slots__ = ("_calls",)

    def __init__(
        self, kept: dict[str, Any], calls: Sequence[ToolCallBlock | Callable[[], ToolCallBlock]] | None
    ) -> None:
        super().__init__(kept)
        self._calls = calls

    def entries(self) -> dict[str, Any]:
        """The entries besides the calls."""
        return dict(super().items())

    def beside(self, blocks: Iterable[Any]) -> dict[str, Any]:
        """Return the entries for a message of ``blocks``; calls are dropped when no block is a call."""
        return self.copy() if any(isinstance(block, ToolCallBlock) for block in blocks) else self.entries()

    def _blocks(self) -> list[ToolCallBlock]:
        return [call if isinstance(call, ToolCallBlock) else call() for call in self._calls or ()]

    def _has_more(self) -> bool:
        """Return whether there are calls that are not set as an entry."""
        return self._calls is not None and not super().__contains__(CALLS)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (key == CALLS and self._calls is not None)

    def __missing__(self, key: str) -> Any:
        if key != CALLS or self._calls is None:
            raise KeyError(key)
        return [
            OlderToolCall(
                id=call.tool_call_id or "", function=OlderFunction(name=call.tool_name, arguments=arguments_text(call))
            )
            for call in self._blocks()
        ]

    # dict(kwargs) and {**kwargs} use these two methods when a class defines __iter__.

    def __iter__(self) -> Iterator[str]:
        yield from super().__iter__()
        if self._has_more():
            yield CALLS

    def keys(self) -> Any:
        """As in a dict."""
        return KeysView(self)

    def get(self, key: str, default: Any = None) -> Any:
        """As in a dict."""
        return self[key] if key in self else default  # noqa: SIM401 - SIM401 would call this method again

    def __setitem__(self, key: str, value: Any) -> None:
        if key == CALLS:
            self._calls = None
        super().__setitem__(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """As in a dict."""
        return self[key] if key in self else super().setdefault(key, default)

    def __delitem__(self, key: str) -> None:
        more = key == CALLS and self._has_more()
        if key == CALLS:
            self._calls = None
        if not more:
            super().__delitem__(key)

    def pop(self, key: str, *default: Any) -> Any:
        """As in a dict."""
        if key not in self:
            return super().pop(key, *default)
        value = self[key]
        del self[key]
        return value

    def clear(self) -> None:
        """As in a dict."""
        self._calls = None
        super().clear()

    def copy(self) -> "KwargsWithCalls":
        """As in a dict."""
        return self.copy_as(KwargsWithCalls)

    def copy_as(self, cls: "type[_CallsT]") -> "_CallsT":
        """Return a copy of a class derived from this one."""
        return cls(self.entries(), self._calls)

    def __or__(self, other: Any) -> Any:
        if isinstance(other, KwargsWithCalls):
            return other.__ror__(self.entries())
        return KwargsWithCalls({**self.entries(), **other}, self._calls)

    def __ror__(self, other: Any) -> Any:
        merged = {**other, **self.entries()}
        if self._has_more():
            merged.pop(CALLS, None)
        return KwargsWithCalls(merged, self._calls)

    def __reduce__(self) -> tuple[Any, ...]:
        return KwargsWithCalls, (self.entries(), None if self._calls is None else self._blocks())
