"""Properties of schemas: whatever a signature looks like, its arguments survive the way through JSON."""

import inspect
import json
import keyword
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from batonflow.llms.answer import _Call  # pyright: ignore[reportPrivateUsage]
from batonflow.llms.stream import ToolCallDelta
from batonflow.llms.tool_protocol import parse_arguments
from batonflow.tools import FunctionTool, ToolArgumentsError
from batonflow.tools.schema import parameter_docs


class Point(BaseModel):
    x: int
    label: str = ""


TEXT = st.text(max_size=20)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**40), 2**40),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: TEXT,
    bool: st.booleans(),
    list[int]: st.lists(st.integers(-9, 9), max_size=4),
    dict[str, str]: st.dictionaries(TEXT, TEXT, max_size=3),
    Literal["red", "green"]: st.sampled_from(["red", "green"]),
    int | None: st.none() | st.integers(-9, 9),
    Point: st.builds(Point, x=st.integers(-9, 9), label=TEXT),
}


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name) and name != "self"
)


@st.composite
def signatures(draw: st.DrawFn) -> tuple[inspect.Signature, dict[str, Any]]:
    """A signature, and fitting values for some of its parameters: all without default, any of the others."""
    parameters: list[inspect.Parameter] = []
    values: dict[str, Any] = {}
    for name in draw(st.lists(NAMES, unique=True, max_size=5)):
        annotation = draw(st.sampled_from(list(VALUES)))
        has_default = draw(st.booleans())
        default = draw(VALUES[annotation]) if has_default else inspect.Parameter.empty
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        )
        if not has_default or draw(st.booleans()):
            values[name] = draw(VALUES[annotation])
    return inspect.Signature(parameters), values


def make(signature: inspect.Signature) -> FunctionTool:
    def function(**kwargs: Any) -> Any:
        return kwargs

    function.__signature__ = signature  # type: ignore[attr-defined]
    return FunctionTool.from_defaults(function)


@given(signatures())
def test_arguments_that_fit_survive_the_way_through_json(case: tuple[inspect.Signature, dict[str, Any]]) -> None:
    signature, values = case
    sent = json.loads(TypeAdapter(dict[str, Any]).dump_json(values))
    assert make(signature).validate_arguments(sent) == values


@given(signatures())
def test_the_schema_names_exactly_the_parameters(case: tuple[inspect.Signature, dict[str, Any]]) -> None:
    signature, _ = case
    schema = make(signature).metadata.get_parameters_dict()
    assert list(schema["properties"]) == list(signature.parameters)
    needed = [one.name for one in signature.parameters.values() if one.default is one.empty]
    assert schema.get("required", []) == needed
    assert json.loads(json.dumps(schema)) == schema


@given(signatures(), st.dictionaries(NAMES, st.none() | TEXT | st.integers() | st.lists(TEXT, max_size=2), max_size=4))
def test_whatever_a_model_sends_is_either_accepted_or_refused_in_words(
    case: tuple[inspect.Signature, dict[str, Any]], sent: dict[str, Any]
) -> None:
    made = make(case[0])
    try:
        values = made.validate_arguments(sent)
    except ToolArgumentsError as err:
        refusal = str(err)
    else:
        refusal = ""
        # Null is how a model leaves out what it may leave out.
        assert {name for name in sent if sent[name] is not None} <= set(values) <= set(sent)
    assert refusal.startswith("Invalid arguments for tool 'function'") or not refusal


@given(st.text(max_size=400))
def test_no_docstring_breaks_the_reader(docstring: str) -> None:
    assert all(isinstance(text, str) for text in parameter_docs("Args:\n" + docstring).values())
    assert isinstance(parameter_docs(docstring), dict)


@given(
    st.dictionaries(TEXT, st.recursive(st.none() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=3))),
    st.data(),
)
def test_arguments_cut_anywhere_arrive_whole_and_never_early(arguments: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(arguments)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    call = _Call(0)
    seen = ""
    for number, piece in enumerate(pieces):
        call.add(ToolCallDelta(index=0, name="t", arguments=piece), number)
        call.settle(number, final=False)
        seen += piece
        assert call.block is None or seen == text
    call.settle(len(pieces), final=True)
    assert call.block is not None
    assert call.block.tool_kwargs == arguments
    assert parse_arguments(text) == arguments
