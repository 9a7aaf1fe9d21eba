"""Forms of models: the facts about a model class for the serializer, computed once per class."""

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast, get_args

from pydantic import BaseModel, RootModel
from pydantic_core import SchemaSerializer

from batonflow.values.names import IN_PARTS, SCALARS, InParts, NotWritable, is_plain, payload_name
from batonflow.values.plans import Plan, Rules, adapter_of, is_ours, plan_of
from batonflow.values.unmarked import alike

if TYPE_CHECKING:
    from pydantic_core.core_schema import CoreConfig

__all__ = ["Form", "form_of"]

_WAYS_TO_WRITE = ("ser_json_bytes", "ser_json_temporal", "ser_json_timedelta")
_WAYS_TO_READ = ("use_enum_values", "val_json_bytes", "val_temporal_unit")
_ABSENT: Any = object()
_FITS = "__batonflow_fits__"
"""The class attribute with the checks of fields that have their own serializer and validator."""

_KEPT = "__batonflow_parts__"
"""The class attribute with the functions that write fields as parts of a conversation, by name."""

OwnCheck = Callable[..., bool]


@dataclass(slots=True)
class Form:
    """The facts about a model class that writing its instances needs.

    Attributes:
        cls: The class.
        name: Its name in payloads.
        problem: The reason why instances cannot be written; None if they can.
        untyped: The fields annotated with ``Any`` and the like; None without such fields.
        has_data: Whether instances may hold dynamic data.
        has_result: Whether it is a StopEvent, with a result that is not a field.
        dumps_itself: Whether the class overrides ``model_dump``.
        is_root: Whether it is a RootModel.
        free: The places for values of any class: ``untyped``, dynamic data and the result.
        private: The private attributes to write.
        computed: The computed fields, which cannot be given when an instance is read.
        tried: Whether validators or serializers of the program take part; reading is tried for each instance.
        tried_once: Whether code of the program runs at creation; reading is tried for the first instance.
        is_simple: Whether instances consist of declared fields and plain extra data.
        is_closed: Whether every instance can be restored, as for batonflow's own models without models inside.
        checks: Name, exact classes and check of each field with a declared type.
        open_checks: The same, without fields of batonflow's own models that cannot hold other classes.
        has_own_words: Whether the class overrides ``model_dump`` or has a model serializer of its own.
        columns: A getter and a plan for each field of ``open_checks`` and ``untyped``.
        names: The names of all fields.
        beside: The fields that hold plain data in most instances; plain data is written unchanged.
        is_short: Whether pydantic writes everything except ``untyped``.
        scalars: The name and the permitted scalar classes of each field; None if there is more than scalars.
        in_parts: The fields that records may write as parts, with the functions that do so.
        is_part: Whether an instance in a list of a state is a part.
        serializer: The serializer of pydantic, which writes NaN and infinity as numbers.
    """

    cls: type[BaseModel]
    name: str
    problem: str | None
    untyped: set[str] | None
    has_data: bool
    has_result: bool
    dumps_itself: bool
    is_root: bool
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
    in_parts: Mapping[str, InParts]
    is_part: bool
    adapters: dict[str, Any] = field(default_factory=dict[str, Any])

    def scalars_of(self, model: BaseModel) -> dict[str, Any] | None:
        """The fields of a model as JSON has them. None if one is not a scalar, or there is more than fields."""
        values = model.__dict__
        if self.scalars is None or model.__pydantic_extra__ or len(values) != len(self.scalars):
            return None
        for name, exact in self.scalars:
            if type(values[name]) not in exact:
                return None
        if self.has_result and cast("Any", model).result is not None:
            return None
        return values.copy()

    def apart(self, model: BaseModel, but: Collection[str] = ()) -> list[str]:
        """Return the fields, except ``but``, with values that cannot be restored from pydantic's JSON."""
        found: list[str] = []
        values: Mapping[str, Any] = model.__dict__
        for name, exact, check in self.checks:
            if name in but:
                continue
            value = values[name] if name in values else getattr(model, name, _ABSENT)  # may be lazy
            if type(value) not in exact and value is not _ABSENT and (check is None or not check(value)):
                found.append(name)
        extra = model.__pydantic_extra__
        if extra and not self.has_data and not is_plain(extra):  # undeclared data, if the class allows them
            found += [name for name, value in extra.items() if not is_plain(value)]
        return found

    def comes_back(self, model: Any) -> bool:
        """Tell whether a nested model can be restored from pydantic's JSON."""
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
        """Tell whether all models of a list can be restored; False means that each has to be checked."""
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
        """Return the private attributes that differ from their defaults."""
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
        """Raise an error if validation of its field would reject or change a value. It could not be read again.

        Raises:
            NotWritable: Validation rejects or changes the value.
        """
        declared = self.cls.model_fields.get(name)
        if declared is None:  # undeclared data have no declaration to check
            return
        adapter = self.adapters.get(name)
        if adapter is None:
            adapter = self.adapters[name] = adapter_of(declared.annotation, declared.metadata, self.rules)
        try:
            same = alike(adapter.validate_python(value), value)
        except Exception:  # noqa: BLE001 - validators of the program may raise any exception
            same = False
        if not same:
            kind = type(value).__name__
            raise NotWritable(
                f"{self.cls.__name__} declares this field as {_words(declared.annotation)}, and the {kind} in it could "
                "not be read again: put a value of the declared type there, or declare the type that it has",
                (name,),
            )


def _is_made_anew(value: Any, default: Any) -> bool:
    """Tell whether each model creates its own object of this kind, such as a lock."""
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
    if is_root and untyped:
        plans["root"] = _PLAIN
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
        in_parts={} if own or starts_itself or (dumps_itself and not is_ours(cls)) else _in_parts(cls),
        is_part=getattr(cls, "__batonflow_is_part__", False),
    )


def _in_parts(cls: type[BaseModel]) -> Mapping[str, InParts]:
    lists = {
        name: InParts(get_args(field.annotation)[0], partial(_list_in_parts, name))
        for name, field in cls.model_fields.items()
        if IN_PARTS in field.metadata
    }
    return {**lists, **getattr(cls, _KEPT, {})}


def _list_in_parts(name: str, model: BaseModel, keep: Callable[..., Any]) -> Any:
    value = getattr(model, name)
    return keep(value) if type(value) is list else None


def _writes_names(cls: type[BaseModel]) -> bool:
    """Tell whether pydantic writes exactly the fields, under their names, and scalars unchanged."""
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
    """Return the plan of a field with a serializer and validator of batonflow."""

    def column(values: list[Any]) -> bool:
        return all(check(value) for value in values if value)

    return Plan(frozenset(), check, column=column)


_PLAIN = Plan(frozenset(), is_plain)


def _check(name: str, plan: Plan) -> tuple[str, AbstractSet[type], Callable[[Any], bool] | None]:
    return name, plan.exact, plan.check


def _name(cls: type[BaseModel]) -> tuple[str, str | None]:
    """Return the name of a class in payloads, or an empty name and the reason."""
    try:
        return payload_name(cls), None
    except ValueError as error:
        return "", f"{cls.__name__} cannot be written: {error}"


def _lost_field(cls: type[BaseModel]) -> str | None:
    """Return the reason why a class cannot be read again, a required field excluded from JSON."""
    for name, declared in cls.model_fields.items():
        if declared.exclude and declared.is_required():
            return (
                f"{cls.__name__}.{name} is left out where it is written, and must be given where it is read: give it a "
                "default, or write it"
            )
    return None


def _private_names(cls: type[BaseModel]) -> tuple[str, ...]:
    """Return the private attributes that hold data; those of memories and of batonflow's own models do not."""
    if getattr(cls, "shared_in_drafts", False):
        return ()
    return tuple(name for name in cls.__private_attributes__ if not is_ours(_home_of(name, cls)))


def _home_of(name: str, cls: type[BaseModel]) -> type:
    """Return the class that declares a private attribute."""
    return next(base for base in reversed(cls.__mro__) if name in getattr(base, "__private_attributes__", ()))


def _own_code(cls: type[BaseModel]) -> tuple[bool, set[str]]:
    """Tell whether validators or serializers of the program take part, and return the fields with serializers."""
    found = cls.__pydantic_decorators__
    groups: list[dict[str, Any]] = [
        found.validators, found.field_validators, found.root_validators, found.field_serializers,
        found.model_serializers, found.model_validators,
    ]  # fmt: skip
    own = any(not is_ours(_function(one.func)) for group in groups for one in group.values())
    return own, {name for one in found.field_serializers.values() for name in one.info.fields}


def _always(cls: type[BaseModel]) -> set[str]:
    """Return the fields that have the same serializer for JSON and for Python."""
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


# These write the same as pydantic, with dynamic data added.
_KNOWN_DUMPS = ("DictLikeModel._dump", "StopEvent._dump", "LazyFields._dump_settled", "AgentStream._dump")


def _starts_itself(cls: type[BaseModel]) -> bool:
    """Tell whether code of the program runs when an instance is created."""
    makers = (cls.__init__, cls.model_post_init)
    return not all(str(getattr(one, "__module__", "")).startswith(("pydantic", "batonflow.")) for one in makers)


def _serializer_of(cls: type[BaseModel]) -> SchemaSerializer:
    config = {name: way for name, way in cls.model_config.items() if name in _WAYS_TO_WRITE}
    return SchemaSerializer(
        cls.__pydantic_core_schema__, cast("CoreConfig", {**config, "ser_json_inf_nan": "constants"})
    )
