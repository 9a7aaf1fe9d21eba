"""Argument models from function signatures, validation of arguments from models, and the errors of tools.

::

    ToolError (BatonflowError)           a tool cannot be made or called
    ├── ToolDefinitionError (TypeError)  a function or a policy is not usable for a tool
    ├── ToolArgumentsError (ValueError)  arguments do not fit the tool; the text is for the model
    └── ToolTimeoutError (TimeoutError)  an attempt took longer than the tool's timeout

Exceptions of a tool's own body propagate unchanged.
"""

import ast
import inspect
import json
import re
import sys
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from textwrap import indent
from types import UnionType
from typing import Annotated, Any, NamedTuple, NotRequired, Required, Union, cast, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from batonflow.llms._vendor import load
from batonflow.resources import Resource, ResourceConfig, ResourceDefinition
from batonflow.values.types import is_context_class, without_alias
from batonflow.workflow_core.errors import BatonflowError
from batonflow.workflow_core.events import DictState

__all__ = [
    "IDEMPOTENCY_KEY",
    "Parameter",
    "ToolArgumentsError",
    "ToolDefinitionError",
    "ToolError",
    "ToolRetry",
    "ToolTimeoutError",
    "argument_names",
    "cleaned",
    "context_for",
    "context_parameter",
    "create_schema_from_function",
    "deps_of_class",
    "deps_of_function",
    "parameter_docs",
    "parameters_of",
    "parameters_text",
    "readable",
    "state_of_function",
    "types_of_context",
]


class ToolError(BatonflowError):
    """A tool cannot be created or called."""


class ToolRetry(ToolError):
    """A tool asks the model for another call; the text is for the model.

    A tool raises it. The model reads the text whatever ``tool_errors`` says, and nothing is logged as a fault.

    Example:
        >>> if not rows:
        ...     raise ToolRetry(f"There is no customer {name}: ask for the number instead")
    """


class ToolDefinitionError(ToolError, TypeError):
    """A model cannot fill a parameter, or a policy has an invalid value. The message names the remedy."""


class ToolArgumentsError(ToolError, ValueError):
    """Arguments do not fit the tool's schema, or the caller did not fill in a required one."""


class ToolTimeoutError(ToolError, TimeoutError):
    """One attempt of a call exceeded the tool's ``timeout``; it counts as a failed attempt."""


IDEMPOTENCY_KEY = "idempotency_key"
"""Name of a parameter for a key that is equal for all attempts of a call. It is hidden from models."""

_DOCUMENTS_PARAMETERS = re.compile(
    r"[:@](param|arg|key|kwarg)|\b(Arg(ument)?s|Param(eter)?s):|^\s*(\w+ )?(Arg(ument)?s|Param(eter)?s)\s*$",
    re.MULTILINE,
)
# Sections of Google's form that the parser does not know.
_OTHER_PARAMETERS = re.compile(r"^([ \t]*)(?:Keyword Arg(?:ument)?s|Other (?:Args|Parameters)):[ \t]*$", re.MULTILINE)
_TITLES = ("Params", "Parameters", "Arguments", "Args")
_BEGINS_WITH_SECTION = re.compile(rf"(?:{'|'.join(_TITLES)}|Keyword Arg(?:ument)?s|Other (?:Args|Parameters)):[ \t]*\n")
_JAVADOC_PARAMETER = re.compile(r"@param\s+(\w+):?[ \t]+(.+)")
_BARE_PARAMETER = re.compile(r"^\s*(\w+)\s*\([^)\n]*\):\s*(.+)$", re.MULTILINE)


class Parameter(NamedTuple):
    """A parameter of a tool's function, with its annotation evaluated.

    Args:
        name: Its name.
        annotation: Its type; Any if it is missing or cannot be evaluated.
        default: Its default, ``inspect.Parameter.empty`` without one.
        is_context: True if it takes the workflow's Context.
        resource: The resource that it takes, as a parameter of a step does.
        unknown: The annotation, if it names a type that is not defined in the module of the function.
    """

    name: str
    annotation: Any
    default: Any
    is_context: bool
    unknown: str | None = None
    resource: ResourceDefinition | None = None

    @property
    def is_filled_in(self) -> bool:
        """Tell whether the caller fills it in, and models do not see it."""
        return self.is_context or self.resource is not None


class _Annotations:
    """Carrier of a single annotation for ``get_type_hints``."""

    def __init__(self, annotations: dict[str, Any]) -> None:
        self.__annotations__ = annotations


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    """Evaluate an annotation in the scope of ``function``; return its text if that fails."""
    unwrapped = inspect.unwrap(function)
    names: dict[str, Any] = dict(getattr(unwrapped, "__globals__", {}))
    code, cells = getattr(unwrapped, "__code__", None), getattr(unwrapped, "__closure__", None)
    if code is not None and cells:
        for name, cell in zip(code.co_freevars, cells, strict=True):
            try:
                names[name] = cell.cell_contents
            except ValueError:
                # A variable of the enclosing function that is assigned later.
                continue
    try:
        return get_type_hints(_Annotations({"it": annotation}), names, names, include_extras=True)["it"]
    except (NameError, TypeError, SyntaxError, AttributeError):
        return annotation


def _is_context(annotation: Any) -> bool:
    if isinstance(annotation, str):
        # The type was imported only for type checkers; its name is all that is known.
        return _says_context(annotation)
    annotation = without_alias(annotation)
    origin = get_origin(annotation)
    if origin in {Union, UnionType, Annotated}:
        return any(_is_context(one) for one in get_args(annotation))
    return is_context_class(origin or annotation)


def _says_context(text: str) -> bool:
    """Return True if an unevaluable annotation is ``Context``: bare, with a state, or in a union."""
    try:
        return _is_named_context(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError:
        return False


def _is_named_context(node: ast.AST) -> bool:
    match node:
        case ast.Name(id="Context" | "RunContext") | ast.Attribute(attr="Context" | "RunContext"):
            return True
        case ast.Constant(value=str() as text):
            return _says_context(text)
        case ast.BinOp(left=left, right=right):
            return _is_named_context(left) or _is_named_context(right)
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            if name == "Annotated":
                return _is_named_context(parts[0])
            return name in {"Context", "RunContext"} or (
                name in {"Optional", "Union"} and any(_is_named_context(one) for one in parts)
            )
        case _:
            return False


def _unwrap_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    return cast("partial[Any]", function).func if isinstance(function, partial) else function


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """Return the named parameters of ``function``, without ``self``, ``*args`` and ``**kwargs``."""
    target = _unwrap_partial(function)
    if not (inspect.isroutine(target) or inspect.isclass(target)) and not hasattr(target, "__wrapped__"):
        # For an object with __call__, annotations are evaluated in the scope of that method.
        target = type(target).__call__
    found: list[Parameter] = []
    for one in inspect.signature(function).parameters.values():
        if one.kind in {one.VAR_POSITIONAL, one.VAR_KEYWORD} or one.name == "self":
            continue
        annotation = Any if one.annotation is one.empty else readable(_evaluated(one.annotation, target))
        is_context, unknown = _is_context(annotation), None
        if isinstance(annotation, str) and not is_context:
            unknown = annotation if _is_expression(annotation) else None
            annotation = Any
        resource = _resource(one.name, annotation)
        found.append(Parameter(one.name, annotation, one.default, is_context, unknown, resource))
    return found


def _resource(name: str, annotation: Any) -> ResourceDefinition | None:
    """Return the resource of ``Annotated[T, Resource(make)]``; None for other annotations."""
    if get_origin(annotation) is not Annotated:
        return None
    wanted, *marks = get_args(annotation)
    found: list[Any] = [mark for mark in marks if isinstance(mark, Resource | ResourceConfig)]
    return ResourceDefinition(name, found[0], wanted) if found else None


def _is_expression(text: str) -> bool:
    """Return True if an annotation could be a type; some programs write descriptions there."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return False
    return _is_expression(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else True


def context_parameter(parameters: Sequence[Parameter]) -> str | None:
    """Return the name of the parameter for the Context, or None."""
    return next((one.name for one in parameters if one.is_context), None)


def types_of_context(parameters: Sequence[Parameter]) -> tuple[type[BaseModel] | None, Any]:
    """Return the state and the dependencies that the annotation of the Context names: None and ``object`` without."""
    annotation = next((without_alias(one.annotation) for one in parameters if one.is_context), None)
    if get_origin(annotation) in {Union, UnionType, Annotated}:
        annotation = next((without_alias(one) for one in get_args(annotation) if _is_context(one)), None)
    named: list[Any] = [*get_args(annotation), Any, Any]
    state, deps = named[:2]
    typed = isinstance(state, type) and issubclass(state, BaseModel) and state is not DictState
    return cast("type[BaseModel]", state) if typed else None, object if deps is Any else deps


def context_for(function: Callable[..., Any], ctx: Any) -> Any:
    """Return the context for a function of the user, with the typed state that its annotation names.

    Args:
        function: The function.
        ctx: The context of a run.
    """
    wanted = state_of_function(function)
    view = None if wanted is None else getattr(ctx, "with_state_type", None)
    return ctx if view is None else view(wanted)


def state_of_function(function: Callable[..., Any]) -> type[BaseModel] | None:
    """Return the typed state that the Context of a function names, or None."""
    try:
        return _state_of_function(function)
    except TypeError:  # an object that cannot be a key
        return _state_of_function.__wrapped__(function)


@lru_cache(maxsize=512)
def _state_of_function(function: Callable[..., Any]) -> type[BaseModel] | None:
    try:
        return types_of_context(parameters_of(function))[0]
    except (TypeError, ValueError):  # without a signature
        return None


def deps_of_function(function: Callable[..., Any]) -> Any:
    """Return the dependencies that the Context of a function names; ``object`` without any."""
    try:
        found = types_of_context(parameters_of(function))[1]
    except (TypeError, ValueError):  # without a signature
        return object
    return object if isinstance(found, typing.TypeVar) else found


def deps_of_class(cls: type, generic: type, *methods: Callable[..., Any]) -> Any:
    """Return the dependencies of a subclass: those in ``generic[Deps]``, else those that its methods name.

    Args:
        cls: The subclass.
        generic: The generic base class.
        methods: Methods of the subclass that take the Context.
    """
    for one in cls.__mro__:
        for base in cast("tuple[Any, ...]", vars(one).get("__orig_bases__", ())):
            declared = get_args(base) if get_origin(base) is generic else ()
            if declared and declared[0] is not Any and not isinstance(declared[0], typing.TypeVar):
                return declared[0]
    return next((found for one in methods if (found := deps_of_function(one)) is not object), object)


def _below(docstring: str) -> str:
    """Return a docstring with uniform indentation if its first line is a section title."""
    found = _BEGINS_WITH_SECTION.match(docstring)
    if found is None:
        return docstring
    title, rest = found[0], docstring[found.end() :]
    # inspect.cleandoc() may have removed the indentation of the section.
    if not rest.lstrip("\n").startswith((" ", "\t")):
        rest = indent(rest, "    ")
    return f"\n{title}{rest}"


def _with_known_titles(docstring: str) -> str:
    """Return a docstring with a parser-known title for each section of parameters."""
    free = [title for title in _TITLES if not re.search(rf"^[ \t]*{title}:", docstring, re.MULTILINE)]
    return _OTHER_PARAMETERS.sub(lambda found: f"{found[1]}{free.pop(0)}:" if free else found[0], docstring)


def cleaned(docstring: str) -> str:
    """Return a docstring without the indentation of its code."""
    return inspect.cleandoc(_below(docstring))


def parameter_docs(docstring: str) -> dict[str, str]:
    """Return the parameter descriptions of a docstring in Google, Sphinx, NumPy, Epydoc or Javadoc form."""
    found: dict[str, str] = {}
    if _DOCUMENTS_PARAMETERS.search(docstring):
        parser = load("docstring_parser")
        try:
            # With one common docstring, the parser tries all styles and takes the one that finds most.
            params: list[Any] = parser.parse(_below(_with_known_titles(docstring))).params
        except parser.ParseError:
            params = []
        for one in params:
            # NumPy's form can describe several parameters at once.
            for name in one.arg_name.split(",") if one.description else ():
                found.setdefault(name.strip().lstrip("*"), " ".join(one.description.split()))
        for name, text in _JAVADOC_PARAMETER.findall(docstring):
            found.setdefault(name, text.strip())
    for name, text in _BARE_PARAMETER.findall(docstring):
        found.setdefault(name, text.strip())
    return found


def _field_name(name: str) -> str:
    """Return a field name that pydantic accepts; the argument keeps its name as alias."""
    return f"{name.strip('_') or 'argument'}_field" if name.startswith("_") or hasattr(BaseModel, name) else name


def _field(parameter: Parameter, description: str | None) -> tuple[Any, Any]:
    """Return annotation and field of a parameter; its own description overrides the docstring's."""
    annotation, default = parameter.annotation, parameter.default
    own: str | None = None
    if get_origin(annotation) is Annotated:
        for extra in get_args(annotation)[1:]:
            if isinstance(extra, str):
                own = own or extra
            elif isinstance(extra, FieldInfo):
                own = own or extra.description
    changes: dict[str, Any] = {"description": own or description}
    if _field_name(parameter.name) != parameter.name:
        changes["alias"] = parameter.name
    if default is inspect.Parameter.empty:
        default = ...
    elif not isinstance(default, FieldInfo) and not _is_jsonable(default):
        # The model needs to know only that the argument is optional, not its default.
        return Annotated[annotation, Field(**changes)], Field(default_factory=lambda: default)
    # Pydantic merges a default written as Field(...), and its description wins.
    return Annotated[annotation, Field(**changes)], default


def _is_jsonable(value: Any) -> bool:
    try:
        to_jsonable_python(value)
    except (PydanticSerializationError, UnicodeDecodeError):  # bytes that are not valid text
        return False
    return True


def create_schema_from_function(
    name: str,
    func: Callable[..., Any],
    additional_fields: Sequence[tuple[Any, ...]] | None = None,
    ignore_fields: Collection[str] | None = None,
    param_descriptions: Mapping[str, str] | None = None,
) -> type[BaseModel]:
    """Create a model of the arguments of ``func``.

    Args:
        name: Name of the model.
        func: The function; its Context and ``idempotency_key`` parameters are left out.
        additional_fields: More fields: ``(name, type)`` or ``(name, type, default)``.
        ignore_fields: Parameters to leave out.
        param_descriptions: Descriptions for parameters without their own.

    Raises:
        ToolDefinitionError: A parameter's type has no JSON form, or cannot be found.

    Example:
        >>> create_schema_from_function("add", add).model_json_schema()["required"]
        ['a', 'b']
    """
    docs = param_descriptions or {}
    hidden = {IDEMPOTENCY_KEY, *(ignore_fields or ())}
    shown = [one for one in parameters_of(func) if not one.is_filled_in and one.name not in hidden]
    for one in list(shown):
        if one.unknown is not None and one.default is not inspect.Parameter.empty:
            shown.remove(one)  # the function has a default for it
        elif one.unknown is not None:
            raise ToolDefinitionError(
                f"tool {name!r}: parameter {one.name!r} has the type {one.unknown}, which is not defined in the module "
                "of the function. Import or define it at the top of the module (not for type checkers only), give "
                "it in partial_params, or write the arguments' model (fn_schema)"
            )
    fields: dict[str, Any] = {_field_name(one.name): _field(one, docs.get(one.name)) for one in shown}
    for extra in additional_fields or ():
        if len(extra) not in {2, 3}:
            raise ValueError(f"an additional field is (name, type) or (name, type, default), not {extra!r}")
        fields[extra[0]] = (extra[1], extra[2] if len(extra) == 3 else ...)
    try:
        return _model(name, fields)
    except (PydanticSchemaGenerationError, PydanticUserError) as err:
        unfit = [one for one in shown if not _has_json_form(one)]
        needed = [one for one in unfit if one.default is inspect.Parameter.empty]
        if needed or not unfit:
            named = needed or shown
            raise ToolDefinitionError(
                f"tool {name!r}: parameter {', '.join(repr(one.name) for one in named)} has a type that JSON cannot "
                "carry. Give it in partial_params, give it a default, or write the arguments' model (fn_schema)"
            ) from err
    # The function has defaults for these, so that models need not know them.
    left_out = {_field_name(one.name) for one in unfit}
    return _model(name, {key: value for key, value in fields.items() if key not in left_out})


def _model(name: str, fields: dict[str, Any]) -> type[BaseModel]:
    config = ConfigDict(protected_namespaces=())
    model = create_model(name, __config__=config, **fields)
    # Some types can be validated but not described; fail here instead of at the first request.
    parameters_text(model)
    return model


def _has_json_form(parameter: Parameter) -> bool:
    try:
        TypeAdapter(parameter.annotation).json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError):
        return False
    return True


_texts: WeakKeyDictionary[type[BaseModel], str] = WeakKeyDictionary()
_SHOWN = ("type", "properties", "required", "definitions", "$defs")


@lru_cache(maxsize=256)
def argument_names(schema: type[BaseModel]) -> Mapping[str, str]:
    """Return the names of a schema's arguments, as models use them, with the schema's fields."""
    return {field.alias or name: name for name, field in schema.model_fields.items()}


def parameters_text(schema: type[BaseModel]) -> str:
    """Return the JSON schema for models as text, cached per class because it takes a millisecond."""
    text = _texts.get(schema)
    if text is None:
        whole = schema.model_json_schema()
        text = _texts[schema] = json.dumps({key: value for key, value in whole.items() if key in _SHOWN})
    return text


def readable(annotation: Any) -> Any:
    """Replace every ``typing.TypedDict`` in an annotation by a type that pydantic accepts.

    Example:
        >>> TypeAdapter(readable(list[Point])).json_schema()
    """
    return annotation if sys.version_info >= (3, 12) else _translated(annotation, ())


def _translated(annotation: Any, inside: tuple[Any, ...]) -> Any:
    if annotation in inside:
        # A recursive type; pydantic reports it.
        return annotation
    if typing.is_typeddict(annotation):
        return _typed_dict(annotation, (*inside, annotation))
    arguments = get_args(annotation)
    changed = tuple(_translated(one, inside) for one in arguments)
    if all(new is old for new, old in zip(changed, arguments, strict=True)):
        return annotation
    origin: Any = get_origin(annotation)
    return (Union if origin is UnionType else origin)[changed]


def _typed_dict(original: Any, inside: tuple[Any, ...]) -> Any:
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(original, include_extras=True).items():
        # For annotations written as text, __required_keys__ and __optional_keys__ are wrong.
        mark, inner = get_origin(hint), hint
        if mark in {Required, NotRequired}:
            inner = get_args(hint)[0]
        else:
            mark = Required if name in original.__required_keys__ else NotRequired
        fields[name] = mark[_translated(inner, inside)]
    make: Any = typing_extensions.TypedDict
    made = make(original.__name__, fields)
    made.__doc__ = original.__doc__
    return made
