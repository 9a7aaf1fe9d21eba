"""Values as data: JSON forms of models, marked types and exceptions, and the serializers for them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batonflow.values.answers import AnswerType, given_answer, request_schema, schema_without, type_of_schema
    from batonflow.values.forms import form_of
    from batonflow.values.pickle_serializer import PickleSerializer
    from batonflow.values.pickle_serializer import PickleSerializer as JsonPickleSerializer
    from batonflow.values.plans import is_ours
    from batonflow.values.problems import close_to_fields, in_words_with_hints, misspelt
    from batonflow.values.serializers import BaseSerializer, JsonSerializer
    from batonflow.values.unmarked import alike, built_in, dict_as_data, has_mark, value_as_data, value_of
    from batonflow.values.words import in_words, is_writable, json_or_words, written

__all__ = [
    "AnswerType", "BaseSerializer", "JsonPickleSerializer", "JsonSerializer", "PickleSerializer", "alike", "built_in",
    "close_to_fields", "dict_as_data", "form_of", "given_answer", "has_mark", "in_words", "in_words_with_hints",
    "is_ours", "is_writable", "json_or_words", "misspelt", "request_schema", "schema_without", "type_of_schema",
    "value_as_data", "value_of", "written",
]  # fmt: skip

# Pickle can run code, so its module is loaded only when it is asked for by name; the others, as most runs do without.
_HOMES = {
    "JsonPickleSerializer": ("pickle_serializer", "PickleSerializer"),
    "PickleSerializer": ("pickle_serializer", "PickleSerializer"),
    "form_of": ("forms", "form_of"),
    "is_ours": ("plans", "is_ours"),
    **{
        name: ("answers", name)
        for name in ("AnswerType", "given_answer", "request_schema", "schema_without", "type_of_schema")
    },
    **{name: ("words", name) for name in ("in_words", "is_writable", "json_or_words", "written")},
    **{name: ("problems", name) for name in ("close_to_fields", "in_words_with_hints", "misspelt")},
    **{
        name: ("unmarked", name)
        for name in ("alike", "built_in", "dict_as_data", "has_mark", "value_as_data", "value_of")
    },
}


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, attribute = _HOMES.get(name, ("serializers", name))
    found = getattr(import_module(f"{__name__}.{home}"), attribute)
    globals()[name] = found
    return found
