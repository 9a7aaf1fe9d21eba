"""Forms of models: all that there is to know of a class before a model of it is written."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, RootModel
from pydantic_core import SchemaSerializer

from batonflow.values.names import SCALARS, NotWritable, is_plain, payload_name
from batonflow.values.plans import Plan, Rules, adapter_of, is_ours, plan_of
from batonflow.values.unmarked import alike

if TYPE_CHECKING:
    from pydantic_core.core_schema import CoreConfig

__all__ = ["Form", "form_of"]

_WAYS_TO_WRITE = ("ser_json_bytes", "ser_json_temporal", "ser_json_timedelta")
_WAYS_TO_READ = ("use_enum_values", "val_json_bytes", "val_temporal_unit")
_ABSENT: Any = object()
_FITS = "__batonflow_fits__"
"""The attribute with the checks of fields that a model's own code writes and reads."""

OwnCheck = Callable[..., bool]


@dataclass(slots=True)
class Form:
    """The facts about a class of models that writing needs.

    Attributes:
        cls: The class.
        name: Its name in payloads.
        problem: The reason why no model of it can be written with its name.
        untyped: The fields whose types say nothing about their values; None without one.
        has_data: Whether there may be dynamic data.
        has_result: Whether it ends runs, with a result that is not a field.
        dumps_itself: Whether it has its own way of writing all of itself.
        is_root: Whether it is a single value without names.
        is_whole: Whether it is as a memory is, changed in place by methods of its own, and pydantic's JSON says all.
        free: Where values of any class may be: ``untyped``, dynamic data and a result.
        private: The private attributes that are written.
        computed: The fields that are made of others, where they must not be read again.
        tried: Whether code of the program's own takes part, so that reading is tried each time.
        tried_once: Whether it does so when a model is made, so that reading is tried the first time.
        is_simple: Whether there is nothing in it but fields and what was added by name.
        is_closed: Whether each of its models comes back, as those of batonflow without models inside do.
        checks: Of each field that declares a type: its name and its plan.
        open_checks: The same, without the fields of batonflow's own models that have no parts of other classes.
        has_own_words: Whether a serializer of its own writes the fields.
        columns: The same with what gets their values, and with ``untyped``.
        names: Of all fields.
        beside: The fields that are plain data in most models, and are written as they are then.
        is_short: Whether pydantic writes all of it, but for ``untyped``.
        scalars: Of each field its name and the scalar classes that stay as they are; None where that is not all.
        serializer: Pydantic's own, but for the numbers for which JSON proper has no name: these stay numbers.
    """

    cls: type[BaseModel]
    name: str
    problem: str | None
    untyped: set[str] | None
    has_data: bool
    has_result: bool
    dumps_itself: bool
    is_root: bool
    is_whole: bool
    free: tuple[str, ...]
    private: tuple[str, ...]
    computed: frozenset[str]
    tried: bool
    tried_once: bool
    checks: tuple[tuple[str, AbstractSet[type], Callable[[Any], bool] | None], ...]
    rules: Rules
    is_simple: bool
    is_closed: bool
    serializer: SchemaSerializer
    is_short: bool
    names: frozenset[str]
    beside: set[str] | None
    has_own_words: bool
    open_checks: tuple[tuple[str, AbstractSet[type], Callable[[Any], bool] | None], ...]
    columns: tuple[tuple[Callable[[Any], Any], Plan], ...]
    scalars: tuple[tuple[str, AbstractSet[type]], ...] | None
    adapters: dict[str, Any] = field(default_factory=dict[str, Any])

    def scalars_of(self, model: BaseModel) -> dict[str, Any] | None:
        """The fields of a model as JSON has them; None where one is not a scalar, or there is more than fields."""
        values = model.__dict__
        if self.scalars is None or model.__pydantic_extra__ or len(values) != len(self.scalars):
            return None
        for name, exact in self.scalars:
            if type(values[name]) not in exact:
                return None
        if self.has_result and cast("Any", model).result is not None:
            return None
        return values.copy()

    def apart(self, model: BaseModel) -> list[str]:
        """The fields with values that pydantic's JSON would not bring back."""
        found: list[str] = []
        values: Mapping[str, Any] = model.__dict__
        for name, exact, check in self.checks:
            value = values[name] if name in values else getattr(model, name, _ABSENT)  # made when it is asked for
            if type(value) not in exact and value is not _ABSENT and (check is None or not check(value)):
                found.append(name)
        extra = model.__pydantic_extra__
        if extra and not self.has_data and not is_plain(extra):  # beside the fields, where a class allows it
            found += [name for name, value in extra.items() if not is_plain(value)]
        return found

    def comes_back(self, model: Any) -> bool:
        """Tell whether a model inside another comes back from the JSON that pydantic writes of it."""
        if self.is_closed:
            return True
        extra = model.__pydantic_extra__
        if extra and not is_plain(extra):
            return False
        values: Mapping[str, Any] = model.__dict__
        for name in self.untyped or ():
            value = values[name] if name in values else getattr(model, name, None)
            if type(value) not in SCALARS and not is_plain(value):
                return False
        for name, exact, check in self.open_checks:
            value = values[name] if name in values else getattr(model, name, _ABSENT)
            if type(value) not in exact and (check is None or not check(value)):
                return False
        return self.is_simple or self._comes_back_whole(model)

    def all_come_back(self, models: list[Any]) -> bool:
        """Tell whether that is known of all of some models, without a look at each; False says nothing."""
        return self.is_short and all(plan.fits_all(list(map(value_of, models))) for value_of, plan in self.columns)

    def _comes_back_whole(self, model: Any) -> bool:
        if _lost_field(self.cls) or self.computed or (self.private and self.private_of(model)):
            return False
        if self.has_result and not is_plain(model.result):
            return False
        return not (self.tried or self.tried_once) or self._is_read(model)

    def _is_read(self, model: Any) -> bool:
        try:
            data = self.serializer.to_python(model, mode="json")
            back = self.cls.model_validate(data, by_name=True, by_alias=True)
            same = alike(back, model) or self.serializer.to_python(back, mode="json") == data
        except Exception:  # noqa: BLE001 - code of the program's own
            return False
        self.tried_once = self.tried_once and not same
        return same

    def private_of(self, model: Any) -> dict[str, Any]:
        """Return the private attributes that differ from a new model's."""
        held: Any = model.__pydantic_private__
        if not isinstance(held, dict):
            return {}
        values, found = cast("dict[str, Any]", held), dict[str, Any]()
        for name in self.private:
            value = values.get(name, _ABSENT)
            if value is _ABSENT:
                continue
            default = self.cls.__private_attributes__[name].get_default()
            if not alike(value, default) and not _is_made_anew(value, default):
                found[name] = value
        return found

    def accept(self, name: str, value: Any) -> None:
        """Refuse a value that the declaration of its field does not take, as it could not be read again.

        Raises:
            NotWritable: It does not take the value, or makes another one of it.
        """
        declared = self.cls.model_fields.get(name)
        if declared is None:  # data beside the fields: the class says nothing of it
            return
        adapter = self.adapters.get(name)
        if adapter is None:
            adapter = self.adapters[name] = adapter_of(declared.annotation, declared.metadata, self.rules)
        try:
            same = alike(adapter.validate_python(value), value)
        except Exception:  # noqa: BLE001 - validators of the program's own may raise anything
            same = False
        if not same:
            kind = type(value).__name__
            raise NotWritable(
                f"{self.cls.__name__} declares this field as {_words(declared.annotation)}, and the {kind} in it could "
                "not be read again: put a value of the declared type there, or declare the type that it has",
                (name,),
            )


def _is_made_anew(value: Any, default: Any) -> bool:
    """Tell whether a value is a tool of the model's own, such as a lock, of which each model has another one."""
    return type(value) is type(default) and type(value).__eq__ is object.__eq__ and not isinstance(value, type)


def _words(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


@cache
def form_of(cls: type) -> Form | None:
    """Return the form of a class, None for a class that is not a model."""
    if not issubclass(cls, BaseModel):
        return None
    if not cls.__pydantic_complete__:
        cls.model_rebuild()
    return _made(cls)


def _made(cls: type[BaseModel]) -> Form:
    kept = {name: field for name, field in cls.model_fields.items() if not field.exclude}
    own, by_field = _own_code(cls)
    without_type = {name for name, field in kept.items() if "Any" in str(field.annotation)}
    own_checks: Mapping[str, OwnCheck] = getattr(cls, _FITS, {})
    untyped = without_type - own_checks.keys() if is_ours(cls) else without_type - by_field
    has_data, dumps_itself = hasattr(cls, "__batonflow_dynamic__"), _dumps_itself(cls)
    has_result = hasattr(cls, "__batonflow_ends__") and "result" not in cls.model_fields
    is_root = issubclass(cls, cast("Any", RootModel))
    said = cast("dict[str, Any]", cls.model_config)
    config = {name: said[name] for name in (*_WAYS_TO_WRITE, *_WAYS_TO_READ) if name in said}
    rules = Rules(form_of, is_ours(cls), bool(cls.model_config.get("strict")), config)
    plans = {
        name: plan_of(field.annotation, [*field.metadata, *([field] if field.discriminator else [])], rules)
        for name, field in kept.items()
        if not (name in untyped or name in by_field or "*" in by_field or dumps_itself)
    }
    plans |= {name: _of_own(partial(check, is_plain=is_plain)) for name, check in own_checks.items()}
    open_plans = {name: plan for name, plan in plans.items() if not (is_ours(cls) and plan.closed)}
    untyped = set[str]() if is_root or (dumps_itself and not is_ours(cls)) else untyped
    extra, private, starts_itself = cls.model_config.get("extra"), _private_names(cls), _starts_itself(cls)
    computed = frozenset(cls.model_computed_fields) if extra in ("allow", "forbid") else frozenset[str]()
    (name, nameless), lost = _name(cls), _lost_field(cls)
    simple = not (computed or private or has_result or own or starts_itself or lost)
    closed = simple and is_ours(cls) and extra != "allow" and not untyped
    return Form(
        cls=cls,
        name=name,
        problem=lost or nameless,
        untyped=untyped or None,
        has_data=has_data,
        has_result=has_result,
        dumps_itself=cls.model_dump is not BaseModel.model_dump,
        is_root=is_root,
        is_whole=getattr(cls, "shared_in_drafts", False) and not (untyped or has_data or dumps_itself),
        free=(*untyped, *(["_data"] if has_data else []), *(["result"] if has_result else [])),
        private=private,
        computed=computed,
        tried=own,
        tried_once=starts_itself,
        checks=tuple(_check(name, plan) for name, plan in plans.items()),
        rules=rules,
        is_simple=simple,
        is_closed=closed and all(plan.closed for plan in plans.values()),
        serializer=_serializer_of(cls),
        has_own_words=dumps_itself,
        is_short=simple and not (nameless or has_data or has_result or dumps_itself or is_root),
        names=frozenset(cls.model_fields),
        beside=(untyped | (own_checks.keys() & _always(cls))) or None,
        open_checks=tuple(_check(name, plan) for name, plan in open_plans.items()),
        columns=(
            *((attrgetter(name), plan) for name, plan in open_plans.items()),
            *((attrgetter(name), _PLAIN) for name in untyped),
        ),
        scalars=(
            tuple((name, SCALARS & plans[name].exact if name in plans else SCALARS) for name in kept)
            if not (private or own or starts_itself or lost or nameless) and _writes_names(cls)
            else None
        ),
    )


def _writes_names(cls: type[BaseModel]) -> bool:
    """Tell whether pydantic writes each field and no more, under its name, and scalars as they are."""
    found = cls.__pydantic_decorators__
    return not (
        found.field_serializers
        or cls.model_computed_fields
        or cls.model_config.keys() & {"serialize_by_alias", "ser_json_inf_nan"}
        or cls.model_dump is not BaseModel.model_dump
        or any(field.exclude or field.exclude_if for field in cls.model_fields.values())
        or any(_function(one.func).__qualname__ not in _KNOWN_DUMPS[:2] for one in found.model_serializers.values())
    )


def _of_own(check: Callable[[Any], bool]) -> Plan:
    """The plan of a field that code of our own writes and reads."""

    def column(values: list[Any]) -> bool:
        return all(check(value) for value in values if value)

    return Plan(frozenset(), check, column=column)


_PLAIN = Plan(frozenset(), is_plain)


def _check(name: str, plan: Plan) -> tuple[str, AbstractSet[type], Callable[[Any], bool] | None]:
    return name, plan.exact, plan.check


def _name(cls: type[BaseModel]) -> tuple[str, str | None]:
    """The name of a class in payloads; or the reason why it has no name."""
    try:
        return payload_name(cls), None
    except ValueError as error:
        return "", f"{cls.__name__} cannot be written: {error}"


def _lost_field(cls: type[BaseModel]) -> str | None:
    """The reason why a class cannot be read again, where a field that must be given is never written."""
    for name, declared in cls.model_fields.items():
        if declared.exclude and declared.is_required():
            return (
                f"{cls.__name__}.{name} is left out where it is written, and must be given where it is read: give it a "
                "default, or write it"
            )
    return None


def _private_names(cls: type[BaseModel]) -> tuple[str, ...]:
    """Return the private attributes that are data; memories and batonflow's own models have working attributes."""
    if getattr(cls, "shared_in_drafts", False):
        return ()
    return tuple(name for name in cls.__private_attributes__ if not is_ours(_home_of(name, cls)))


def _home_of(name: str, cls: type[BaseModel]) -> type:
    """The class that declares a private attribute."""
    return next(base for base in reversed(cls.__mro__) if name in getattr(base, "__private_attributes__", ()))


def _own_code(cls: type[BaseModel]) -> tuple[bool, set[str]]:
    """Tell whether the program's own code writes or reads a class, and the fields that own serializers write."""
    found = cls.__pydantic_decorators__
    groups: list[dict[str, Any]] = [
        found.validators, found.field_validators, found.root_validators, found.field_serializers,
        found.model_serializers, found.model_validators,
    ]  # fmt: skip
    own = any(not is_ours(_function(one.func)) for group in groups for one in group.values())
    return own, {name for one in found.field_serializers.values() for name in one.info.fields}


def _always(cls: type[BaseModel]) -> set[str]:
    """The fields that have the same serializer for JSON and for Python."""
    found = cls.__pydantic_decorators__.field_serializers.values()
    return {name for one in found if one.info.when_used == "always" for name in one.info.fields}


def _function(func: Any) -> Any:
    func = getattr(func, "__func__", func)
    return getattr(func, "func", func)


def _dumps_itself(cls: type[BaseModel]) -> bool:
    serializers = cls.__pydantic_decorators__.model_serializers
    return cls.model_dump is not BaseModel.model_dump or any(
        _function(one.func).__qualname__ not in _KNOWN_DUMPS for one in serializers.values()
    )


# They write the same as pydantic, and dynamic data besides.
_KNOWN_DUMPS = ("DictLikeModel._dump", "StopEvent._dump", "LazyFields._dump_settled", "AgentStream._dump")


def _starts_itself(cls: type[BaseModel]) -> bool:
    """Tell whether the program's own code runs when a model is made."""
    makers = (cls.__init__, cls.model_post_init)
    return not all(str(getattr(one, "__module__", "")).startswith(("pydantic", "batonflow.")) for one in makers)


def _serializer_of(cls: type[BaseModel]) -> SchemaSerializer:
    config = {name: way for name, way in cls.model_config.items() if name in _WAYS_TO_WRITE}
    return SchemaSerializer(
        cls.__pydantic_core_schema__, cast("CoreConfig", {**config, "ser_json_inf_nan": "constants"})
    )
