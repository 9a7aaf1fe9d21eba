"""JSON schemas in the strict form to which vendors can hold a model's output."""

from typing import Any, cast

__all__ = ["strict_schema"]

# What not every vendor takes in strict mode. It is told to the model in words instead; whoever validates what the
# model wrote still holds it to the whole schema.
_IN_WORDS = (
    "format", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minItems", "maxItems", "uniqueItems",
)  # fmt: skip
_DROPPED = ("default", "title", "examples", "required", "additionalProperties", "discriminator", "description")


def strict_schema(schema: dict[str, Any], *, nullable: bool = True) -> dict[str, Any] | None:
    """``schema`` in strict form: closed objects whose properties are all required.

    Args:
        schema: A JSON schema of an object.
        nullable: Whether a property that may be left out becomes one that may be null, so that the model need not
            invent a value; whoever validates what it wrote takes null there for absent (``batonflow.tools`` does).

    Returns:
        The strict schema, or None for one that has no such form: an object with free keys, for instance.

    Example:
        >>> strict_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    """
    try:
        return _closed(schema, nullable)
    except _NotStrictError:
        return None


class _NotStrictError(Exception):
    """The schema has no strict form."""


def _closed(schema: dict[str, Any], nullable: bool) -> dict[str, Any]:
    free = bool(schema.get("additionalProperties", False)) or "patternProperties" in schema
    if free or "allOf" in schema or (schema.get("type") == "object" and "properties" not in schema):
        raise _NotStrictError
    made: dict[str, Any] = {}
    for name, value in schema.items():
        match name:
            case "properties" | "$defs" | "definitions":
                made[name] = {
                    key: _closed(inner, nullable) for key, inner in cast("dict[str, dict[str, Any]]", value).items()
                }
            case "items":
                made[name] = _closed(cast("dict[str, Any]", value), nullable)
            case "anyOf" | "oneOf":
                made["anyOf"] = [_closed(inner, nullable) for inner in cast("list[dict[str, Any]]", value)]
            case _ if name not in _DROPPED and name not in _IN_WORDS:
                made[name] = value
            case _:
                continue
    described = _described(schema)
    if described:
        made["description"] = described
    if "properties" in made:
        required = cast("list[str]", schema.get("required", []))
        properties = cast("dict[str, dict[str, Any]]", made["properties"])
        made["properties"] = {
            name: _nullable(inner) if nullable and name not in required else inner for name, inner in properties.items()
        }
        made["required"] = list(properties)
        made["additionalProperties"] = False
    return made


def _described(schema: dict[str, Any]) -> str:
    bounds = ", ".join(f"{name}: {schema[name]}" for name in _IN_WORDS if name in schema)
    return " ".join(text for text in (schema.get("description", ""), bounds and f"({bounds})") if text)


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema and "const" not in schema:
        return {**schema, "type": [kind, "null"]}
    choices = cast("list[dict[str, Any]]", schema.get("anyOf", [schema]))
    if any(one.get("type") == "null" for one in choices):
        return schema
    described = {name: value for name, value in schema.items() if name == "description" and "anyOf" in schema}
    return {**described, "anyOf": [*choices, {"type": "null"}]}
