"""A workflow of a server: its known events, and their creation from client data."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from batonflow.durable.codec import Codec
from batonflow.durable.digests import digest_of_start
from batonflow.new_runs import reading_input
from batonflow.server.envelopes import known_as
from batonflow.server.limits import DEPTH, inside, is_deeper
from batonflow.values.names import qualified_name
from batonflow.values.problems import in_words_with_hints, unknown_fields
from batonflow.values.serializers import IS_PYDANTIC
from batonflow.workflow_core.events import Event, HumanResponseEvent, InternalDispatchEvent, StartEvent, check_public

if TYPE_CHECKING:
    from batonflow.durable.store_protocol import RunStore
    from batonflow.workflow_core.workflow import Workflow

__all__ = ["Served", "schema_of"]

_ENVELOPE = frozenset(
    {"type", "types", "qualified_name", "value", "data", "seq", "ts", "step", "path", "cause", "commit"}
)
_SEEN_AT_MOST = 1000
_MARKS = frozenset({IS_PYDANTIC, "__is_component"})


class Served:
    """A workflow under its name on the server.

    Args:
        name: The name on the server.
        workflow: The workflow, with a store.
        additional: Event classes for clients besides the classes in the steps' signatures.
    """

    def __init__(self, name: str, workflow: "Workflow", additional: Iterable[type[Event]]) -> None:
        store = workflow.__batonflow__.store
        assert store is not None
        self.name = name
        self.workflow = workflow
        self.store: RunStore = store
        self._additional = list(additional)
        workflow.__batonflow__.types += tuple(self._additional)  # its records may contain them
        self.codec = Codec.of(workflow.__batonflow__)
        # Classes that were only streamed, known after their first event.
        self._seen: dict[type[Event], None] = {}

    @property
    def is_agent(self) -> bool:
        """Tell whether it is an agent or a team, whose runs can be turns of sessions."""
        return hasattr(self.workflow, "__batonflow_team__")

    # --- classes ------------------------------------------------------------------------------------------------------

    def saw(self, cls: type[Event]) -> None:
        """Remember a class that a run has streamed."""
        if len(self._seen) < _SEEN_AT_MOST and not issubclass(cls, InternalDispatchEvent):
            self._seen[cls] = None

    @property
    def event_classes(self) -> list[type[Event]]:
        """Return all known classes of this workflow and of its attached workflows."""
        found = [*_declared(self.workflow, set()), *self._additional, *self._seen]
        return list(dict.fromkeys(found))

    def _find(self, name: str | None, qualified: str | None, also: Iterable[type[Event]]) -> type[Event]:
        known = [*self.event_classes, *also, HumanResponseEvent]
        fitting = [cls for cls in known if name is None or cls.__name__ == name]
        if qualified:
            same = [cls for cls in fitting if qualified in (own := qualified_name(cls), known_as(own))]
            # Programs for LlamaIndex use another path for the same class.
            fitting = same or (fitting if name is not None else [])
        if not fitting:
            listed = ", ".join(sorted({cls.__name__ for cls in known}))
            raise HTTPException(
                400,
                f"Workflow {self.name} declares no event {name or qualified}; it knows {listed}. Others are declared "
                "with add_workflow(..., additional_events=[...])",
            )
        return fitting[0]

    # --- making events ------------------------------------------------------------------------------------------------

    def event(self, given: Mapping[str, Any] | str, also: Iterable[type[Event]] = ()) -> Event:
        """Create the event that a client sends.

        Args:
            given: ``{"type": …, "value": {…}}``, also with ``qualified_name`` for ``type`` and ``data`` for ``value``;
                or the same as JSON text.
            also: Further classes that a run waits for.

        Raises:
            HTTPException: 400 if the workflow does not declare the class, or the fields do not fit.
        """
        data = _unwrapped(_object(given))
        name, qualified = data.get("type"), data.get("qualified_name")
        if not isinstance(name, str | None) or not isinstance(qualified, str | None) or not (name or qualified):
            raise HTTPException(400, 'An event must have the form {"type": class name, "value": {its fields}}')
        cls = self._find(name or None, qualified, also)
        return _built(cls, data.get("value", data.get("data")))

    def start_event(self, given: Mapping[str, Any] | str | None, kwargs: Mapping[str, Any] | None) -> StartEvent:
        """Create the event that a run starts with.

        Args:
            given: The fields, or the same forms as for ``event``.
            kwargs: The fields, if ``given`` is missing.

        Raises:
            HTTPException: 400 if the fields do not fit.
        """
        cls = self.workflow.__batonflow__.steps.start_event_class
        if given is None or not kwargs:
            data = dict(kwargs or {}) if given is None else _unwrapped(_object(given))
        else:
            raise HTTPException(400, "Send the fields of the start event as start_event or as kwargs, not both")
        if given is None or not self._is_envelope(data, cls):
            return _built_start(cls, data)
        name, qualified = data.get("type"), data.get("qualified_name")
        if name == StartEvent.__name__ or (name is None and str(qualified).endswith(f".{StartEvent.__name__}")):
            found = cls  # the common name of all start events
        else:
            found = self._find(name, qualified, [cls])
        if not issubclass(found, cls):
            raise HTTPException(400, f"Workflow {self.name} starts with {cls.__name__}, not with {found.__name__}")
        return _built_start(found, data.get("value", data.get("data")))

    def digest(self, event: StartEvent) -> str:
        """Return the digest that distinguishes the input of runs, as in their store."""
        return digest_of_start(self.codec, event)

    def _is_envelope(self, data: Mapping[str, Any], cls: type[Event]) -> bool:
        """Return True if an object names a class, and does not consist of start event fields."""
        named = [data[key] for key in ("type", "qualified_name") if data.get(key) is not None]
        filled = "value" in data or "data" in data or {"type", "qualified_name"} <= data.keys()
        if not named or not filled or not data.keys() <= _ENVELOPE or not all(isinstance(one, str) for one in named):
            return False
        return not data.keys() <= cls.model_fields.keys()

    # --- schemas ------------------------------------------------------------------------------------------------------

    def schemas(self) -> list[dict[str, Any]]:
        """Return the JSON schemas of all known classes."""
        return [schema_of(cls) for cls in self.event_classes]


def schema_of(cls: type[Event]) -> dict[str, Any]:
    """Return the JSON schema of a class, or only its field names."""
    try:
        return cls.model_json_schema()
    except (PydanticInvalidForJsonSchema, PydanticUserError):
        required = [name for name, field in cls.model_fields.items() if field.is_required()]
        properties: dict[str, Any] = {name: {} for name in cls.model_fields}
        return {"title": cls.__name__, "type": "object", "properties": properties, "required": required}


def _declared(workflow: "Workflow", known: set[int]) -> list[type[Event]]:
    known.add(id(workflow))
    options = workflow.__batonflow__
    found = [options.steps.start_event_class, *options.steps.events, options.steps.stop_event_class]
    for child in options.children.values():
        if id(child) not in known:
            found += _declared(child, known)
    return found


def _object(given: Mapping[str, Any] | str) -> dict[str, Any]:
    if not isinstance(given, str):
        return dict(given)
    try:
        data = from_json(given, allow_inf_nan=False)
    except ValueError as error:
        raise HTTPException(400, f"The event is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise HTTPException(400, "An event must be a JSON object")
    if is_deeper(data):
        raise HTTPException(400, f"The event is nested deeper than {DEPTH} levels")
    return cast("dict[str, Any]", data)


def _unwrapped(data: dict[str, Any]) -> dict[str, Any]:
    """Return data of ``JsonSerializer`` as an envelope, and other data unchanged.

    Raises:
        HTTPException: 400 if the serializer's mark is in another place, where it would be ignored.
    """
    if IS_PYDANTIC not in data:
        return _without_marks(data)
    inner, name = data.get("value"), data.get("qualified_name")
    whole = data.keys() == {IS_PYDANTIC, "value", "qualified_name"} and data[IS_PYDANTIC] is True
    if not whole or not isinstance(inner, dict) or not isinstance(name, str):
        raise HTTPException(400, f'An event with {IS_PYDANTIC} is {{"{IS_PYDANTIC}": true, "value": {{...}}, ...}}')
    return {
        "type": name.rpartition(".")[2],
        "qualified_name": name,
        "value": _without_marks(cast("dict[str, Any]", inner)),
    }


def _without_marks(data: dict[str, Any]) -> dict[str, Any]:
    level: list[Any] = [data]
    while level:
        for one in level:
            if isinstance(one, dict) and (marks := _MARKS & cast("dict[str, Any]", one).keys()):
                raise HTTPException(
                    400,
                    f"{min(marks)} is the mark of JsonSerializer, which is only valid for a whole event: "
                    "send the fields as plain JSON",
                )
        level = [inner for one in level for inner in inside(one)]
    return data


def _built_start(cls: type[Event], fields: Any) -> StartEvent:
    event = cast("StartEvent", _built(cls, fields))
    if problems := unknown_fields(event):
        raise HTTPException(400, problems)
    return event


def _built(cls: type[Event], fields: Any) -> Event:
    if fields is None:
        fields = {}
    if not isinstance(fields, dict):
        raise HTTPException(400, f"The fields of {cls.__name__} must be a JSON object")
    try:
        check_public(cls, cast("dict[str, Any]", fields))
        with reading_input():
            return cls.model_validate(fields)
    except ValidationError as error:
        problems = in_words_with_hints(error, cls, cast("dict[str, Any]", fields))
        raise HTTPException(400, f"{cls.__name__} cannot be made of these fields: {problems}") from None
