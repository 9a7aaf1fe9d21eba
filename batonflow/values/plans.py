"""Plans of types: the values of a declared type that pydantic's JSON restores unchanged.

JSON has six types. A value of another type, or of a subclass of the declared type, is restored only if the declaration
alone determines its type. A plan is created once for a type. Values that it refuses are written with marks.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, is_dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from itertools import chain
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Secret, SecretBytes, SecretStr
from pydantic.fields import FieldInfo

from batonflow.lazy import at_first_use
from batonflow.values.names import SCALARS, is_plain
from batonflow.values.unmarked import alike, zone_of

__all__ = ["Plan", "Rules", "is_ours", "plan_of"]

type_adapter = at_first_use("pydantic", "TypeAdapter")

Check = Callable[[Any], bool]

# Aliases without type parameters: pyright would narrow ``list`` and ``dict`` to unknown types.
_LIST: Any = list
_DICT: Any = dict
_kind: Callable[[Any], Any] = type

# Checking up to this many values one by one is as fast as checking them as a set.
_FEW = 4


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The values of a type that JSON restores unchanged.

    Attributes:
        exact: The classes whose direct instances are all restored; classes of models are added as they are found.
        check: Tells whether another value is restored; None if no other value is.
        closed: Whether values cannot hold parts of other classes, unless code breaks the declaration.
        column: Checks several values of one class together, such as the messages of a conversation; False means that
            each value has to be checked.
    """

    exact: AbstractSet[type]
    check: Check | None
    closed: bool = False
    column: Callable[[list[Any]], bool] | None = None

    def fits(self, value: Any) -> bool:
        """Tell whether a value is restored."""
        return type(value) in self.exact or (self.check is not None and self.check(value))

    def fits_all(self, values: Any) -> bool:
        """Tell whether all of several values are restored."""
        exact, check = self.exact, self.check
        if len(values) > _FEW:
            others = set(map(_kind, values)) - exact
            column = self.column
            if not others or (
                column is not None and all(column([one for one in values if _kind(one) is kind]) for kind in others)
            ):
                return True
        for value in values:  # noqa: SIM110 - a generator would cost as much again
            if type(value) not in exact and (check is None or not check(value)):
                return False
        return True


@dataclass(frozen=True, slots=True)
class Rules:
    """The configuration of a class that holds for all of its fields.

    Attributes:
        form_of: Returns the form of a model class.
        ours: Whether the class belongs to batonflow; its serializers and validators are inverse to each other.
        strict: Whether validation is strict, so that only JSON's own types are restored.
        config: Other options of the class for writing and reading values.
    """

    form_of: Callable[[type], Any]
    ours: bool
    strict: bool
    config: Mapping[str, Any]


def is_ours(cls: Any) -> bool:
    """Tell whether a class or function is part of batonflow."""
    return str(getattr(cls, "__module__", "")).startswith("batonflow.")


_NONE = type(None)
_ALL = Plan(frozenset(), lambda _: True, closed=True)
_JSON = Plan(SCALARS, is_plain)
_TEXT = Plan(frozenset({str}), lambda value: isinstance(value, str), closed=True)

# These plans are independent of the rules.
_NATIVE: dict[Any, Plan] = {
    Any: _JSON,
    object: _JSON,
    str: _TEXT,
    bool: Plan(frozenset({bool}), None, closed=True),
    int: Plan(frozenset({int}), lambda value: isinstance(value, int), closed=True),
    float: Plan(frozenset({float, int}), lambda value: isinstance(value, float), closed=True),
    None: Plan(frozenset({_NONE}), None, closed=True),
    _NONE: Plan(frozenset({_NONE}), None, closed=True),
}


def _minutes(value: datetime | time) -> bool:
    """Tell whether pydantic writes the value completely: the zone is an unnamed offset in whole minutes."""
    zone = value.tzinfo
    if value.fold:  # the second of two equal times
        return False
    if zone is None or zone is UTC:
        return True
    offset = value.utcoffset()
    return zone_of(zone) is None and offset is not None and not offset.microseconds and not offset.seconds % 60


def _is_text(value: Any) -> bool:
    if not isinstance(value, bytes):
        return False
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


# These are text in JSON, unless the configuration changes how they are written.
_TEXTUAL: dict[Any, Plan] = {
    bytes: Plan(frozenset(), _is_text, closed=True),
    datetime: Plan(frozenset(), lambda value: isinstance(value, datetime) and _minutes(value), closed=True),
    date: Plan(frozenset({date}), None, closed=True),
    time: Plan(frozenset(), lambda value: isinstance(value, time) and _minutes(value), closed=True),
    timedelta: Plan(frozenset({timedelta}), None, closed=True),
    UUID: Plan(frozenset({UUID}), None, closed=True),
    Decimal: Plan(frozenset(), lambda value: isinstance(value, Decimal) and value.is_finite(), closed=True),
}

_KEYS = (int, UUID)


def plan_of(annotation: Any, metadata: Sequence[Any], rules: Rules) -> Plan:
    """Return the plan of a type.

    Args:
        annotation: The type.
        metadata: The metadata of ``Annotated`` or of the field.
        rules: The rules of the class that declares the field.
    """
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            metadata = [*metadata, *more]
        elif hasattr(annotation, "__supertype__"):  # NewType
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        elif get_origin(annotation) is Final:
            (annotation,) = get_args(annotation)
        else:
            break
    said = [one for one in _unpacked(metadata) if not isinstance(one, str)]
    if not said:
        return _plan(annotation, rules)
    if [one for one in said if _is_tag(one)] and rules.ours | _is_tagged_union(annotation):
        return _plan(annotation, replace(rules, ours=True))
    if rules.ours:
        if any(_has_functions(one) for one in said):
            return _ALL
        return _plan(annotation, rules)
    if any(_has_functions(one) for one in said):
        return Plan(frozenset(), _round_trip(annotation, said, rules))
    if any(getattr(one, "strict", None) for one in said):
        rules = replace(rules, strict=True)
    base, accepted = _plan(annotation, rules), _accepted(annotation, said, rules)
    return Plan(frozenset(), lambda value: base.fits(value) and accepted(value))


def _unpacked(metadata: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for one in metadata:
        if isinstance(one, FieldInfo):
            found += one.metadata
            if one.discriminator is not None:
                found.append(one)
        else:
            found.append(one)
    return found


def _is_tag(one: Any) -> bool:
    return isinstance(one, FieldInfo) or type(one).__name__ == "Discriminator"


def _is_tagged_union(annotation: Any) -> bool:
    """Tell whether all members of a union are models, one of which a tag selects."""
    return all(isinstance(one, type) and issubclass(one, BaseModel) for one in get_args(annotation))


def _has_functions(said: Any) -> bool:
    """Tell whether metadata contain code that converts values."""
    return hasattr(said, "func") or hasattr(said, "__get_pydantic_core_schema__") or hasattr(said, "serializer")


def _plan(annotation: Any, rules: Rules) -> Plan:
    try:
        known = _NATIVE.get(annotation) or (None if rules.strict or rules.config else _TEXTUAL.get(annotation))
    except TypeError:  # not hashable
        known = None
    if known is not None:
        return known
    origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
    if origin in (Union, UnionType):
        return _of_union(annotation, arguments, rules)
    if origin is Literal:
        return _of_literal(arguments)
    if isinstance(annotation, TypeVar) and annotation.__bound__ is None and not annotation.__constraints__:
        return _JSON
    maker = _MAKERS.get(origin)
    if maker is not None:
        return maker(arguments, rules)
    if isinstance(origin, type):
        if issubclass(origin, SecretStr | SecretBytes | Secret):
            return _ALL  # secrets are written and read as stars by design
        if issubclass(origin, BaseModel):
            return _of_model(origin, rules)
        if issubclass(origin, Enum) and not hasattr(origin, "__get_pydantic_core_schema__"):
            return _of_enum(origin, rules)
        if rules.ours and is_dataclass(cast("Any", origin)):
            return Plan(frozenset[type]({cast("Any", origin)}), None)
    return _ALL if rules.ours else Plan(frozenset(), _round_trip(annotation, (), rules))


def _of_union(annotation: Any, members: tuple[Any, ...], rules: Rules) -> Plan:
    others = [one for one in members if one is not _NONE]
    none = frozenset({_NONE}) if len(others) < len(members) else frozenset[type]()
    if len(others) == 1:
        plan = plan_of(others[0], (), rules)
        return Plan(plan.exact | none, plan.check, plan.closed)
    # A scalar is validated as the member of exactly its type.
    scalars = none.union(one for one in others if one in (str, int, float, bool))
    if not rules.ours:
        return Plan(scalars, _round_trip(annotation, (), rules))
    models = frozenset(one for one in others if isinstance(one, type) and issubclass(one, BaseModel))
    plans = [plan_of(one, (), rules) for one in others if one not in models]
    exact = set(scalars).union(*(plan.exact for plan in plans if plan is not _JSON))
    checks = [plan.check for plan in plans if plan.check is not None]
    return _of_models(models, exact, checks, rules)


def _of_literal(values: tuple[Any, ...]) -> Plan:
    known = {(_kind(one), one) for one in values if type(one) in SCALARS}
    return Plan(frozenset(), lambda value: _kind(value) in SCALARS and (_kind(value), value) in known, closed=True)


def _of_model(cls: type[BaseModel], rules: Rules) -> Plan:
    if rules.strict:
        return Plan(frozenset(), None)
    return _of_models(frozenset({cls}), set(), (), rules)


def _of_models(models: frozenset[type], exact: set[type], checks: Sequence[Check], rules: Rules) -> Plan:
    """Return the plan of a union of model classes and other types.

    Args:
        models: The model classes.
        exact: The exact classes of the other types, see :class:`Plan`.
        checks: The checks of the other types.
        rules: The rules of the class that declares the field.
    """
    forms: dict[type, Any] = {}

    def form_of(kind: Any) -> Any:
        form = forms.get(kind)
        if form is None:  # created at the first value, as a class may refer to itself
            form = forms[kind] = rules.form_of(kind)
            if form.is_closed:
                exact.add(kind)
        return form

    def check(value: Any) -> bool:
        kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType] - a cast costs as much as the look
        if kind not in models:
            return any(check(value) for check in checks)
        return form_of(kind).comes_back(value)

    def column(values: list[Any]) -> bool:
        kind: Any = _kind(values[0])
        return kind in models and form_of(kind).all_come_back(values)

    return Plan(exact, check, column=column)


def _of_enum(cls: type[Enum], rules: Rules) -> Plan:
    values = {(_kind(member.value), member.value) for member in cls if type(member.value) in (str, int)}
    if len(values) < len(cls.__members__) or issubclass(cls, Flag) or rules.strict:
        # Values do not determine members with aliases; flags and members with other values are written by name.
        return Plan(frozenset(), None)
    exact = frozenset({cls})
    return Plan(
        exact,
        (lambda value: (_kind(value), value) in values) if rules.config.get("use_enum_values") else None,
        closed=True,
    )


def _of_abstract(kind: Any, made: Callable[[tuple[Any, ...], Rules], Plan]) -> Callable[[tuple[Any, ...], Rules], Plan]:
    """Return a maker of plans for abstract types such as ``Sequence``. Pydantic keeps the value's class there."""

    def kept(arguments: tuple[Any, ...], rules: Rules) -> Plan:
        plan = made(arguments, rules)

        def check(value: Any) -> bool:
            return _kind(value) is kind and plan.fits(value)

        return replace(plan, check=check)

    return kept


def _of_list(arguments: tuple[Any, ...], rules: Rules) -> Plan:
    if not arguments:
        return Plan(frozenset(), lambda value: isinstance(value, _LIST) and is_plain(value))
    item = plan_of(arguments[0], (), rules)
    fits_all = item.fits_all

    def column(values: list[Any]) -> bool:
        return issubclass(_kind(values[0]), list) and fits_all(list(chain.from_iterable(values)))

    return Plan(
        frozenset(), lambda value: isinstance(value, _LIST) and (not value or fits_all(value)), item.closed, column
    )


def _of_set(kind: type) -> Callable[[tuple[Any, ...], Rules], Plan]:
    def made(arguments: tuple[Any, ...], rules: Rules) -> Plan:
        if rules.strict:
            return Plan(frozenset(), None)
        item = plan_of(arguments[0], (), rules) if arguments else Plan(SCALARS, None)
        if item is _JSON:
            item = Plan(SCALARS, None)
        return Plan(frozenset(), lambda value: isinstance(value, kind) and item.fits_all(value))

    return made


def _of_tuple(arguments: tuple[Any, ...], rules: Rules) -> Plan:
    if rules.strict:
        return Plan(frozenset(), None)
    if not arguments or arguments[-1] is Ellipsis:
        item = plan_of(arguments[0], (), rules) if arguments else _JSON
        return Plan(frozenset(), lambda value: _kind(value) is tuple and item.fits_all(value))
    items = [plan_of(one, (), rules) for one in arguments]

    def check(value: Any) -> bool:
        return _kind(value) is tuple and len(value) == len(items) and all(map(Plan.fits, items, value))

    return Plan(frozenset(), check)


def _of_dict(arguments: tuple[Any, ...], rules: Rules) -> Plan:
    key, held = arguments or (Any, Any)
    value_plan = plan_of(held, (), rules)
    names = frozenset({str})
    if key in (Any, str, object):
        return Plan(frozenset(), lambda value: isinstance(value, _DICT) and _fits_dict(value, names, value_plan))
    if key in _KEYS and not rules.strict:
        keys = frozenset({key})
        return Plan(frozenset(), lambda value: isinstance(value, _DICT) and _fits_dict(value, keys, value_plan))
    whole = _round_trip(dict[key, held], (), rules)

    def check(value: Any) -> bool:
        return isinstance(value, _DICT) and value_plan.fits_all(_DICT.values(value)) and whole(value)

    return Plan(frozenset(), check)


def _fits_dict(value: dict[Any, Any], keys: frozenset[type], held: Plan) -> bool:
    return not value or (keys.issuperset(map(type, value)) and held.fits_all(_DICT.values(value)))


_MAKERS: dict[Any, Callable[[tuple[Any, ...], Rules], Plan]] = {
    list: _of_list,
    Sequence: _of_abstract(list, _of_list),
    set: _of_set(set),
    frozenset: _of_set(frozenset),
    tuple: _of_tuple,
    dict: _of_dict,
    Mapping: _of_abstract(dict, _of_dict),
}


# --- trying -----------------------------------------------------------------------------------------------------------


def adapter_of(annotation: Any, said: Sequence[Any], rules: Rules) -> Any:
    """Return pydantic's adapter of a type."""
    kind: Any = Annotated[annotation, *said] if said else annotation
    config = ConfigDict(arbitrary_types_allowed=True, **cast("Any", {**rules.config, "strict": rules.strict}))
    try:
        return type_adapter(kind, config=config)
    except Exception:  # noqa: BLE001 - some types have a config of their own, and take no other
        return type_adapter(kind)


def _lazily(annotation: Any, said: Sequence[Any], rules: Rules) -> Callable[[], Any]:
    made: list[Any] = []

    def adapter() -> Any:
        if not made:
            made.append(adapter_of(annotation, said, rules))
        return made[0]

    return adapter


def _round_trip(annotation: Any, said: Sequence[Any], rules: Rules) -> Check:
    """Return a check that writes and reads each value, and compares the result."""
    adapter = _lazily(annotation, said, rules)

    def check(value: Any) -> bool:
        try:
            made = adapter()
            data = made.dump_python(value, mode="json", warnings="error")
            back = made.validate_python(data)
            # Values of batonflow's own types may lack a comparison, for example exceptions.
            return alike(back, value) or (bool(said) and made.dump_python(back, mode="json") == data)
        except Exception:  # noqa: BLE001 - code of the program's own
            return False

    return check


def _accepted(annotation: Any, said: Sequence[Any], rules: Rules) -> Check:
    """Return a check that validation accepts a value unchanged."""
    adapter = _lazily(annotation, said, rules)

    def check(value: Any) -> bool:
        try:
            return alike(adapter().validate_python(value), value)
        except Exception:  # noqa: BLE001 - code of the program's own
            return False

    return check
