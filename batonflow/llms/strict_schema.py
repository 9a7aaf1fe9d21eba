"""JSON schemas in the strict form that vendors enforce."""

from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import unquote

__all__ = ["strict_schema"]

_Schema = dict[str, Any]

# Not every vendor takes these keywords in strict mode. They are moved into the description; the validation of the
# output still applies the whole schema.
_IN_WORDS = (
    "format", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minItems", "maxItems", "uniqueItems", "contentEncoding", "contentMediaType", "contentSchema",
)  # fmt: skip
# Keywords that restrict the values but have no strict form.
_WITHOUT_FORM = (
    "allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "patternProperties",
    "propertyNames", "prefixItems", "additionalItems", "contains", "minContains", "maxContains", "minProperties",
    "maxProperties", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}

# The limits of OpenAI's structured outputs.
_MOST_PROPERTIES = 5000
_MOST_LEVELS = 10
_MOST_CHOICES = 1000
_LONGEST_NAMES = 120_000
_MANY_CHOICES, _LONGEST_OF_MANY = 250, 15_000


def strict_schema(schema: _Schema, *, nullable: bool = True) -> _Schema | None:
    """Return ``schema`` in strict form: closed objects with all properties required.

    Args:
        schema: A JSON schema of an object.
        nullable: True to make optional properties nullable, so that the model can leave them out. The code that
            validates the output must then read null as a missing value, as ``batonflow.tools`` does.

    Returns:
        The strict schema. None if strict form cannot express the schema: an object with free keys, a tuple, or a value
        of any type.

    Example:
        >>> strict_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    """
    try:
        return _Closing(schema, nullable).whole()
    except _NotStrictError:
        return None


class _NotStrictError(Exception):
    """The schema has no strict form."""


class _Closing:
    """Builder of the strict form of a schema and its definitions."""

    def __init__(self, root: _Schema, nullable: bool) -> None:
        self._root = root
        self._nullable = nullable
        self._given: _Schema = {**root.get("definitions", {}), **root.get("$defs", {})}
        self._made: dict[str, _Schema] = {}

    def whole(self) -> _Schema:
        made = self._closed(self._opened(self._root))
        # The root must be an object, and a reference is not one.
        if made.get("type") != "object":
            raise _NotStrictError
        if self._made:
            made = {"$defs": self._made, **made}
        _Limits(made).check()
        return made

    def _opened(self, schema: Any) -> _Schema:
        """Return ``schema`` with its reference replaced by the definition; its own keywords win."""
        seen: set[str] = set()
        while isinstance(schema, dict) and "$ref" in schema:
            given = cast("_Schema", schema)
            ref = str(given["$ref"])
            if ref in seen:
                raise _NotStrictError
            seen.add(ref)
            found = self._root if ref == "#" else self._definition(ref)[1]
            schema = {**found, **{name: value for name, value in given.items() if name != "$ref"}}
        if not isinstance(schema, dict):
            raise _NotStrictError  # True and False are schemas too
        return cast("_Schema", schema)

    def _definition(self, ref: str) -> tuple[str, _Schema]:
        for prefix in ("#/$defs/", "#/definitions/"):
            if ref.startswith(prefix):
                name = unquote(ref.removeprefix(prefix)).replace("~1", "/").replace("~0", "~")
                if isinstance(self._given.get(name), dict):
                    return name, self._given[name]
        raise _NotStrictError

    def _closed(self, schema: Any) -> _Schema:
        if not isinstance(schema, dict):
            raise _NotStrictError
        given = cast("_Schema", schema)
        if "$ref" in given:
            # Vendors take no other keyword beside a reference, such as a description.
            return self._closed(self._opened(given)) if _says_more(given) else self._reference(str(given["$ref"]))
        if any(name in given for name in _WITHOUT_FORM) or given.get("additionalProperties"):
            raise _NotStrictError
        made: _Schema = {}
        for name in ("type", "enum", "const"):
            if name in given:
                made[name] = given[name]
        made.setdefault("type", _kind_of(given))
        if made["type"] is None:
            del made["type"]
        choices = given.get("anyOf", given.get("oneOf"))
        if choices is not None:
            made["anyOf"] = [self._closed(one) for one in cast("list[Any]", choices)]
        elif "type" not in made:
            raise _NotStrictError
        if "array" in _kinds(made):
            made["items"] = self._closed(given.get("items"))
        if described := _described(given):
            made["description"] = described
        if "object" in _kinds(made):
            self._close_object(made, given)
        return made

    def _reference(self, ref: str) -> _Schema:
        if ref == "#":
            return {"$ref": "#"}
        name, definition = self._definition(ref)
        if name not in self._made:
            self._made[name] = {}  # a definition may refer to itself
            self._made[name] = self._closed(definition)
        return {"$ref": f"#/$defs/{_pointer(name)}"}

    def _close_object(self, made: _Schema, given: _Schema) -> None:
        if "properties" not in given:
            raise _NotStrictError
        required = cast("list[str]", given.get("required", []))
        made["properties"] = {
            name: self._property(inner, name in required)
            for name, inner in cast("dict[str, Any]", given["properties"]).items()
        }
        made["required"] = list(cast("dict[str, Any]", made["properties"]))
        made["additionalProperties"] = False

    def _property(self, schema: Any, is_required: bool) -> _Schema:
        made = self._closed(schema)
        return made if is_required or not self._nullable else _nullable(made)


def _says_more(schema: _Schema) -> bool:
    """Return whether there are relevant keywords besides the reference."""
    counts = ("type", "enum", "const", "anyOf", "oneOf", "properties", "items", "description", *_IN_WORDS)
    return any(name in schema for name in (*counts, *_WITHOUT_FORM))


def _pointer(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _kind_of(schema: _Schema) -> str | list[str] | None:
    """Return the type of a schema without one, from its values; vendors require a type everywhere."""
    if "properties" in schema:
        return "object"
    values: list[Any] = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else []
    if not values or any(type(value) not in _KINDS for value in values):
        return None
    kinds = list(dict.fromkeys(_KINDS[type(value)] for value in values))
    return kinds[0] if len(kinds) == 1 else kinds


def _kinds(schema: _Schema) -> list[str]:
    kind = schema.get("type")
    return [kind] if isinstance(kind, str) else cast("list[str]", kind or [])


def _described(schema: _Schema) -> str:
    bounds = ", ".join(f"{name}: {schema[name]}" for name in _IN_WORDS if name in schema)
    return " ".join(text for text in (schema.get("description", ""), bounds and f"({bounds})") if text)


def _nullable(schema: _Schema) -> _Schema:
    kinds = _kinds(schema)
    if "null" in kinds and "enum" not in schema and "const" not in schema:
        return schema
    if kinds and not {"enum", "const", "anyOf"} & schema.keys():
        return {**schema, "type": [*kinds, "null"]}
    choices = cast("list[_Schema]", schema.get("anyOf", [schema]))
    if any(one.get("type") == "null" for one in choices):
        return schema
    described = {name: value for name, value in schema.items() if name == "description" and "anyOf" in schema}
    return {**described, "anyOf": [*choices, {"type": "null"}]}


class _Limits:
    """Counter of the sizes that vendors limit."""

    def __init__(self, root: _Schema) -> None:
        self._root = root
        self._properties = self._choices = self._length = 0

    def check(self) -> None:
        definitions = cast("dict[str, _Schema]", self._root.get("$defs", {}))
        for one in (self._root, *definitions.values()):
            self._count(one)
        self._length += sum(map(len, definitions))
        too_many = self._properties > _MOST_PROPERTIES or self._choices > _MOST_CHOICES
        if too_many or self._length > _LONGEST_NAMES or self._levels(self._root, ()) > _MOST_LEVELS:
            raise _NotStrictError

    def _count(self, schema: _Schema) -> None:
        properties = cast("dict[str, _Schema]", schema.get("properties", {}))
        values = cast("list[Any]", schema.get("enum", []))
        length = sum(len(str(value)) for value in values)
        if len(values) > _MANY_CHOICES and length > _LONGEST_OF_MANY:
            raise _NotStrictError
        self._properties += len(properties)
        self._choices += len(values)
        self._length += length + sum(map(len, properties)) + len(str(schema.get("const", "")))
        for inner in _inside(schema):
            self._count(inner)

    def _levels(self, schema: _Schema, above: tuple[str, ...]) -> int:
        """Return the levels of nested objects; a recursive object counts once."""
        ref = schema.get("$ref")
        if ref is not None:
            if ref in above or ref == "#":
                return 0
            name = str(ref).removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")
            return self._levels(self._root["$defs"][name], (*above, ref))
        deepest = max((self._levels(inner, above) for inner in _inside(schema)), default=0)
        return deepest + ("properties" in schema)


def _inside(schema: _Schema) -> Iterable[_Schema]:
    yield from cast("dict[str, _Schema]", schema.get("properties", {})).values()
    yield from cast("list[_Schema]", schema.get("anyOf", []))
    if "items" in schema:
        yield schema["items"]
