"""The rules that OpenAI publishes for schemas in strict mode, as a check."""

from typing import Any

__all__ = ["BrokenSchema", "check_strict"]

_KEYWORDS = {
    "type", "enum", "const", "anyOf", "properties", "required", "additionalProperties", "items", "$defs", "$ref",
    "description", "title", "pattern", "format", "multipleOf", "maximum", "exclusiveMaximum", "minimum",
    "exclusiveMinimum", "minItems", "maxItems",
}  # fmt: skip
_TYPES = {"string", "number", "boolean", "integer", "object", "array", "null"}


class BrokenSchema(AssertionError):
    """A schema that the vendor would refuse; the text names the place."""


def check_strict(schema: dict[str, Any]) -> None:
    """Judge a schema.

    Raises:
        BrokenSchema: The vendor would refuse it.
    """
    _Check(schema).run()


class _Check:
    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.properties = self.choices = self.length = 0

    def run(self) -> None:
        if self.root.get("type") != "object" or "anyOf" in self.root:
            raise BrokenSchema("the root is not an object")
        self.judge(self.root, "root", 0, ())
        for name, definition in self.root.get("$defs", {}).items():
            self.length += len(name)
            self.judge(definition, f"$defs.{name}", 0, ())
        if self.properties > 5000 or self.choices > 1000 or self.length > 120_000:
            raise BrokenSchema(f"{self.properties} properties, {self.choices} choices, {self.length} characters")

    def judge(self, schema: Any, place: str, level: int, above: tuple[str, ...]) -> None:
        if not isinstance(schema, dict):
            raise BrokenSchema(f"{place}: {schema!r} is not an object")
        unknown = schema.keys() - _KEYWORDS
        if unknown:
            raise BrokenSchema(f"{place}: {sorted(unknown)} is not permitted")
        if "$ref" in schema:
            self.judge_reference(schema, place, level, above)
            return
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not kinds and "anyOf" not in schema:
            raise BrokenSchema(f"{place}: schema must have a 'type' key")
        if set(kinds) - _TYPES:
            raise BrokenSchema(f"{place}: there is no type {kinds}")
        if "object" in kinds:
            self.judge_object(schema, place, level + 1, above)
        elif "properties" in schema:
            raise BrokenSchema(f"{place}: properties of what is not an object")
        if "array" in kinds:
            if "items" not in schema:
                raise BrokenSchema(f"{place}: array schema missing items")
            self.judge(schema["items"], f"{place}.items", level, above)
        for number, one in enumerate(schema.get("anyOf", [])):
            self.judge(one, f"{place}.anyOf[{number}]", level, above)
        self.count_choices(schema, place)

    def judge_reference(self, schema: dict[str, Any], place: str, level: int, above: tuple[str, ...]) -> None:
        ref = schema["$ref"]
        if len(schema) > 1:
            raise BrokenSchema(f"{place}: $ref cannot have keywords {sorted(schema.keys() - {'$ref'})}")
        if ref == "#" or ref in above:
            return
        name = ref.removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")
        if not ref.startswith("#/$defs/") or name not in self.root.get("$defs", {}):
            raise BrokenSchema(f"{place}: there is no {ref}")
        before = self.properties, self.choices, self.length
        self.judge(self.root["$defs"][name], f"{place}->{name}", level, (*above, ref))
        self.properties, self.choices, self.length = before  # a definition counts once

    def judge_object(self, schema: dict[str, Any], place: str, level: int, above: tuple[str, ...]) -> None:
        properties = schema.get("properties")
        if properties is None:
            raise BrokenSchema(f"{place}: an object without properties")
        if schema.get("additionalProperties") is not False:
            raise BrokenSchema(f"{place}: additionalProperties is required to be supplied and to be false")
        if set(schema.get("required", ())) != set(properties):
            raise BrokenSchema(f"{place}: required must include every key in properties")
        if level > 10:
            raise BrokenSchema(f"{place}: level {level} of nesting")
        self.properties += len(properties)
        self.length += sum(map(len, properties))
        for name, inner in properties.items():
            self.judge(inner, f"{place}.{name}", level, above)

    def count_choices(self, schema: dict[str, Any], place: str) -> None:
        values = schema.get("enum", [])
        length = sum(len(str(value)) for value in values)
        if len(values) > 250 and length > 15_000:
            raise BrokenSchema(f"{place}: {len(values)} choices of {length} characters")
        self.choices += len(values)
        self.length += length + len(str(schema.get("const", "")))
