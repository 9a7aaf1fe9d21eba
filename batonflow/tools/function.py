"""FunctionTool: a Python function as a tool."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from types import CoroutineType, NoneType
from typing import Annotated, Any, cast, get_args, get_origin, overload

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typing_extensions import is_typeddict

from batonflow.llms._bridge import run_sync
from batonflow.llms.blocks import BaseContentBlock, TextBlock, ThinkingBlock, ToolCallBlock, sendable
from batonflow.threads import call_in_thread
from batonflow.tools.base import AsyncBaseTool, BaseTool, ToolMetadata, ToolOutput, validated_arguments
from batonflow.tools.generators import GENERATORS, Report, settled, settled_sync
from batonflow.tools.policy import Approval, OnUnknown, ToolErrors, ToolPolicy
from batonflow.tools.schema import (
    IDEMPOTENCY_KEY,
    Parameter,
    ToolArgumentsError,
    ToolDefinitionError,
    argument_names,
    cleaned,
    context_parameter,
    create_schema_from_function,
    parameter_docs,
    parameters_of,
    types_of_context,
)
from batonflow.workflow_core.context import Context
from batonflow.workflow_core.step import RetryPolicy

__all__ = ["FunctionTool", "ToolPolicy", "text_of", "tool"]


Function = Callable[..., Any]
AsyncFunction = Callable[..., Awaitable[Any]]
Prepare = Callable[[Context[Any], BaseTool], BaseTool | Awaitable[BaseTool | None] | None]
"""Returns the tool to offer in the next request, or None to hide it."""

_DEFAULT_POLICY = ToolPolicy()
_PLAIN = {dict, list, Mapping}


def _is_async(function: Function) -> bool:
    target = function.func if isinstance(function, partial) else function
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(type(target).__call__)


def _at_once(function: Function) -> AsyncFunction:
    """Return True for an asynchronous generator function: its call only creates the generator and needs no thread."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _in_thread(function: Function) -> AsyncFunction:
    name = f"Tool function {_name_of(function)}"

    async def call(*args: Any, **kwargs: Any) -> Any:
        return await call_in_thread(partial(function, *args, **kwargs), name)

    return call


def _synchronously(function: AsyncFunction) -> Function:
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return lambda *args, **kwargs: run_sync(call(*args, **kwargs))


def _taken(function: Function) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function, including parameters that a wrapper hides."""
    taken = dict(inspect.signature(function).parameters)
    with suppress(ValueError):  # functions written in C, such as caches, have no signature
        taken.update(inspect.signature(function, follow_wrapped=False).parameters)
    return taken


def _name_of(function: Function) -> str:
    target = function.func if isinstance(function, partial) else function
    return cast("str", getattr(target, "__name__", None) or type(target).__name__)


def text_of(value: Any) -> str | None:
    """Return the text of a document or node of a retrieval library, or None for other objects."""
    get_content: Any = getattr(value, "get_content", None)
    return str(get_content()) if callable(get_content) else None


# Types that can only be text.
_PLAIN_VALUES = (str, int, float, NoneType)


def _content_blocks(value: Any) -> list[Any]:
    items = cast("list[Any]", value) if isinstance(value, list) and value else cast("list[Any]", [value])
    if all(isinstance(one, BaseContentBlock) and not isinstance(one, ThinkingBlock | ToolCallBlock) for one in items):
        return items
    texts = [text_of(one) for one in items]
    if None not in texts:
        return [TextBlock(text=sendable(cast("str", text))) for text in texts]
    return [TextBlock(text=sendable(str(cast("object", value))))]


# The receiver of each tool's progress, for calls that pass through an overridden method.
_reporting: ContextVar[tuple["FunctionTool | None", Report | None]] = ContextVar("reporting", default=(None, None))


class FunctionTool(AsyncBaseTool):
    """A function that models can call.

    Create it with :meth:`from_defaults` or the decorator :func:`tool`.

    Args:
        fn: The function, synchronous or not.
        metadata: Name, description and schema for the model.
        async_fn: An asynchronous version, used by asynchronous calls.
        callback: Called with the result; a returned ToolOutput replaces the output, a returned text the content.
        async_callback: The asynchronous form of ``callback``.
        partial_params: Fixed arguments, hidden from the model.
        policy: Approval, timeout, retries and other limits.

    Attributes:
        prepare: A function of ``(ctx, tool)`` that returns the tool to offer to the model, or None; see :func:`tool`.
        requires_context: True if the function takes the workflow's Context.
        ctx_param_name: The parameter that takes it.
        state_type: The typed state in the annotation of the Context, or None.
        deps_type: The dependencies in the annotation of the Context; ``object`` without any.
        resources: The parameters that take resources, as ``Annotated[Database, Resource(open_database)]``.
        takes_idempotency_key: True if the function takes a key that is equal for all attempts of a call.

    Raises:
        ValueError: ``metadata`` is missing, or ``fn`` and ``async_fn`` are both missing.
        ToolDefinitionError: The function does not take the arguments in ``partial_params``.
    """

    prepare: Prepare | None = None

    def __init__(
        self,
        fn: Function | None = None,
        metadata: ToolMetadata | None = None,
        async_fn: AsyncFunction | None = None,
        callback: Function | None = None,
        async_callback: AsyncFunction | None = None,
        partial_params: Mapping[str, Any] | None = None,
        policy: ToolPolicy = _DEFAULT_POLICY,
    ) -> None:
        real = fn or async_fn
        if real is None:
            raise ValueError("fn or async_fn must be provided.")
        if metadata is None:
            raise ValueError("metadata must be provided")
        self._real_fn: Function = real
        awaited = _at_once(async_fn) if inspect.isasyncgenfunction(async_fn) else async_fn
        if fn is None or _is_async(fn):
            self._async_fn: AsyncFunction = awaited or real
            self._fn: Function = _synchronously(self._async_fn)
        else:
            self._fn = fn
            self._async_fn = awaited or (_at_once(fn) if inspect.isasyncgenfunction(fn) else _in_thread(fn))
        self._metadata = metadata
        self._callback = callback or (None if async_callback is None else _synchronously(async_callback))
        self._async_callback = async_callback or (None if callback is None else _in_thread(callback))
        self.partial_params: dict[str, Any] = dict(partial_params or {})
        self.policy = policy
        self._parameters: list[Parameter] = parameters_of(real)
        self.ctx_param_name = context_parameter(self._parameters)
        self.requires_context = self.ctx_param_name is not None
        self.state_type, self.deps_type = types_of_context(self._parameters)
        self.resources = [one.resource for one in self._parameters if one.resource is not None]
        signature = inspect.signature(real)
        self.takes_idempotency_key = IDEMPOTENCY_KEY in signature.parameters
        self._injected = {one.name for one in self._parameters if one.is_filled_in or one.name == IDEMPOTENCY_KEY}
        self._needed = {one for one in self._injected if signature.parameters[one].default is inspect.Parameter.empty}
        self._takes_any = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
        self._positional_only = [one.name for one in signature.parameters.values() if one.kind is one.POSITIONAL_ONLY]
        # For a default written as Field(...), use the value inside it.
        self._field_defaults = {
            one.name: one.default.get_default(call_default_factory=True)
            for one in self._parameters
            if isinstance(one.default, FieldInfo) and not one.default.is_required()
        }
        self._own_schema = False
        strangers = [repr(one) for one in self.partial_params if not self._takes_any and one not in _taken(real)]
        if strangers:
            raise ToolDefinitionError(
                f"tool {metadata.name!r}: partial_params has {', '.join(strangers)}, which are not parameters of the "
                f"function (its parameters: {', '.join(_taken(real)) or 'nothing'})"
            )

    @classmethod
    def from_defaults(
        cls,
        fn: Function | None = None,
        name: str | None = None,
        description: str | None = None,
        return_direct: bool = False,
        fn_schema: type[BaseModel] | None = None,
        async_fn: AsyncFunction | None = None,
        tool_metadata: ToolMetadata | None = None,
        callback: Function | None = None,
        async_callback: AsyncFunction | None = None,
        partial_params: Mapping[str, Any] | None = None,
        policy: ToolPolicy = _DEFAULT_POLICY,
        prepare: Prepare | None = None,
    ) -> "FunctionTool":
        """Create a tool from a function; name, description and schema default to those of the function.

        Args:
            fn: The function, synchronous or not.
            name: The function's name by default.
            description: Signature and docstring by default.
            return_direct: End the run with the output as the answer.
            fn_schema: Model of the arguments.
            async_fn: An asynchronous version, used by asynchronous calls.
            tool_metadata: Complete metadata, instead of the separate arguments.
            callback: See the class.
            async_callback: See the class.
            partial_params: Fixed arguments, hidden from the model.
            policy: Approval, timeout, retries and other limits.
            prepare: Called before each request of an agent; see :func:`tool`.

        Raises:
            ToolDefinitionError: A parameter's type has no JSON form, or ``prepare`` is not a function.

        Example:
            >>> add = FunctionTool.from_defaults(lambda a, b: a + b, name="add", description="Add two numbers.")
        """
        real = fn or async_fn
        if real is None:
            raise ValueError("fn must be provided")
        derived = tool_metadata is None and fn_schema is None
        metadata = tool_metadata or _metadata(real, name, description, return_direct, fn_schema, partial_params or {})
        made = cls(
            fn=fn,
            metadata=metadata,
            async_fn=async_fn,
            callback=callback,
            async_callback=async_callback,
            partial_params=partial_params,
            policy=policy,
        )
        made._own_schema = derived
        if prepare is not None:
            if not callable(prepare):
                raise ToolDefinitionError(f"tool {metadata.name!r}: prepare is a function of (ctx, tool): {prepare!r}")
            made.prepare = prepare
        return made

    @property
    def metadata(self) -> ToolMetadata:
        """The metadata for models."""
        return self._metadata

    @property
    def fn(self) -> Function:
        """The function in synchronous form."""
        return self._fn

    @property
    def async_fn(self) -> AsyncFunction:
        """The function in asynchronous form."""
        return self._async_fn

    @property
    def real_fn(self) -> Function:
        """The original function."""
        return self._real_fn

    def __repr__(self) -> str:
        return f"<FunctionTool {self._metadata.name!r}>"

    @staticmethod
    def extract_param_docs(docstring: str, fn_params: set[str] | None = None) -> tuple[dict[str, str], set[str]]:
        """Return the parameter descriptions of a docstring, and its parameter names that are not in ``fn_params``."""
        found = parameter_docs(docstring)
        if not fn_params:
            return found, set()
        return {name: text for name, text in found.items() if name in fn_params}, set(found) - fn_params

    def validate_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check and convert a model's arguments with the schema.

        Raises:
            ToolArgumentsError: The arguments do not fit; the text is for the model.
        """
        schema = self._metadata.fn_schema
        if schema is None:
            return dict(arguments)
        passed_on: dict[str, Any] = {}
        refused: set[str] = set()
        if self._injected or self.partial_params:
            # The model must not send arguments that the caller fills in.
            refused = {*self._injected, *self.partial_params} - argument_names(schema).keys()
        if self._takes_any and schema.model_config.get("extra") != "allow":
            known = argument_names(schema).keys() | refused
            passed_on = {name: value for name, value in arguments.items() if name not in known}
            arguments = {name: value for name, value in arguments.items() if name in known}
        values = validated_arguments(self._metadata.name or "", schema, arguments, refused)
        if not self._own_schema:
            values = {name: self._as_annotated(name, value) for name, value in values.items()}
        values.update(passed_on)
        return values

    def _as_annotated(self, name: str, value: Any) -> Any:
        """Convert models of a user's schema to dicts for functions that take dicts."""
        annotation = next((one.annotation for one in self._parameters if one.name == name), Any)
        if annotation is Any or is_typeddict(annotation) or (get_origin(annotation) or annotation) in _PLAIN:
            return _models_to_dicts(value)
        return value

    def filled_in(self, ctx: Any = None, idempotency_key: str | None = None) -> dict[str, Any]:
        """Return the arguments that the caller fills in: the Context and the idempotency key.

        Args:
            ctx: The workflow's Context.
            idempotency_key: Equal for all attempts of a call; a key in ``partial_params`` has precedence.
        """
        found: dict[str, Any] = {}
        if self.ctx_param_name is not None and ctx is not None:
            view = None if self.state_type is None else getattr(ctx, "with_state_type", None)
            found[self.ctx_param_name] = ctx if view is None else view(self.state_type)
        if self.takes_idempotency_key and idempotency_key is not None and IDEMPOTENCY_KEY not in self.partial_params:
            found[IDEMPOTENCY_KEY] = idempotency_key
        return found

    async def resolved(self, ctx: Any) -> dict[str, Any]:
        """Return the resources, each built once for the agent or team that runs.

        Args:
            ctx: The context of a run.

        Raises:
            Exception: The exception of a factory, with a note that names the parameter.
        """
        if ctx is None or ctx.run is None:
            return {}
        resolved: dict[str, Any] = await ctx.run.workflow.__batonflow__.resource_manager.resolve(self.resources)
        return resolved

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        arguments = {**self._field_defaults, **self.partial_params, **kwargs}
        missing = self._needed - arguments.keys()
        if missing and args:
            missing -= inspect.signature(self._real_fn).bind_partial(*args).arguments.keys()
        if IDEMPOTENCY_KEY in missing:
            raise ToolArgumentsError(
                f"Tool {self._metadata.get_name()!r} needs an idempotency key, which agents pass. In other calls use "
                f"run_tool(tool, arguments, {IDEMPOTENCY_KEY}=...) or tool.call(..., {IDEMPOTENCY_KEY}=...); a "
                "default of the parameter makes it optional"
            )
        if self.ctx_param_name in missing:
            raise ToolArgumentsError("Context is required for this tool")
        if missing:
            raise ToolArgumentsError(
                f"Tool {self._metadata.get_name()!r} needs {', '.join(sorted(missing))}, which runs of agents pass; "
                "in other calls give resources by name"
            )
        return arguments

    def _split(self, args: tuple[Any, ...], arguments: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Move positional-only parameters out of the named arguments; models name all arguments."""
        if not self._positional_only or args:
            return args, arguments
        rest = dict(arguments)
        front: list[Any] = []
        for name in self._positional_only:
            if name not in rest:
                break
            front.append(rest.pop(name))
        return tuple(front), rest

    def _output(self, args: tuple[Any, ...], arguments: dict[str, Any], value: Any) -> ToolOutput:
        shown = arguments
        if self._injected:
            shown = {name: one for name, one in arguments.items() if name not in self._injected}
        name, raw_input = self._metadata.get_name(), {"args": args, "kwargs": shown}
        if isinstance(value, _PLAIN_VALUES):
            text = str(value)
            if isinstance(value, str):
                text, value = sendable(text), sendable(value)
            return ToolOutput.of_text(name, text, raw_input, value)
        return ToolOutput(blocks=_content_blocks(value), tool_name=name, raw_input=raw_input, raw_output=value)

    def _overridden(self, output: ToolOutput, result: Any) -> ToolOutput:
        if result is None:
            return output
        if isinstance(result, ToolOutput):
            return result
        return ToolOutput(
            content=str(result), tool_name=output.tool_name, raw_input=output.raw_input, raw_output=output.raw_output
        )

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the function with these arguments, without validation and without the policy.

        Raises:
            ToolArgumentsError: A required Context or idempotency key is missing. It is a ValueError.
        """
        arguments = self._arguments(args, kwargs)
        front, rest = self._split(args, arguments)
        value = settled_sync(self._fn(*front, **rest))
        output = value if isinstance(value, ToolOutput) else self._output(args, arguments, value)
        return output if self._callback is None else self._overridden(output, self._callback(value))

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the function asynchronously; a synchronous function runs in a thread."""
        tool, report = _reporting.get()
        if tool is not self:
            return await self._perform(args, kwargs, None)
        token = _reporting.set((None, None))  # only for this call, not for nested ones
        try:
            return await self._perform(args, kwargs, report)
        finally:
            _reporting.reset(token)

    def acall_reporting(self, arguments: Mapping[str, Any], report: Report | None) -> Coroutine[Any, Any, ToolOutput]:
        """Call the function asynchronously with arguments by name, and report the progress of a generator.

        Args:
            arguments: By name.
            report: Called on the event loop's thread with each value that the function yields.

        Example:
            >>> await index.acall_reporting({"folder": "notes"}, print)
        """
        if type(self).acall is not _acall or "acall" in self.__dict__:
            # A subclass overrides acall(), or a program has wrapped it.
            return self._called_reporting(arguments, report)
        return self._perform((), dict(arguments), report)

    async def _called_reporting(self, arguments: Mapping[str, Any], report: Report | None) -> ToolOutput:
        token = _reporting.set((self, report))
        try:
            return await self.acall(**arguments)
        finally:
            _reporting.reset(token)

    async def _perform(self, args: tuple[Any, ...], kwargs: dict[str, Any], report: Report | None) -> ToolOutput:
        arguments = self._arguments(args, kwargs)
        if self._positional_only:
            front, rest = self._split(args, arguments)
            value = await self._async_fn(*front, **rest)
        else:
            value = await self._async_fn(*args, **arguments)
        if isinstance(value, CoroutineType):
            # a synchronous decorator around an asynchronous function
            value = await cast("Awaitable[Any]", value)
        if isinstance(value, GENERATORS):
            value = await settled(value, report)
        output = value if isinstance(value, ToolOutput) else self._output(args, arguments, value)
        return output if self._async_callback is None else self._overridden(output, await self._async_callback(value))


# Look up acall() at call time: programs replace it on one tool or on the class.
_acall = FunctionTool.acall


def _models_to_dicts(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, list):
        return [_models_to_dicts(one) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _models_to_dicts(one) for key, one in cast("dict[Any, Any]", value).items()}
    return value


def _metadata(
    function: Function,
    name: str | None,
    description: str | None,
    return_direct: bool,
    fn_schema: type[BaseModel] | None,
    partial_params: Mapping[str, Any],
) -> ToolMetadata:
    name = name or _name_of(function)
    docstring = cleaned(_docstring(function))
    parameters = parameters_of(function)
    hidden = {one.name for one in parameters if one.is_filled_in} | {"self", IDEMPOTENCY_KEY, *partial_params}
    if description is None:
        signature = inspect.signature(function)
        types = {one.name: one.annotation for one in parameters}
        unseen = hidden | {one.name for one in parameters if one.unknown is not None}
        shown = [_shown(one, types.get(one.name)) for one in signature.parameters.values() if one.name not in unseen]
        description = f"{name}{_rendered(signature, shown)}\n{docstring}".strip()
    if fn_schema is None:
        fn_schema = create_schema_from_function(
            name, function, ignore_fields=hidden, param_descriptions=parameter_docs(docstring)
        )
    return ToolMetadata(description=description, name=name, fn_schema=fn_schema, return_direct=return_direct)


class _Bare:
    """An annotation written as text, shown without its quotes."""

    def __init__(self, text: str) -> None:
        self._text = text.strip("'\"")

    def __repr__(self) -> str:
        return self._text


def _shown(parameter: inspect.Parameter, evaluated: Any) -> inspect.Parameter:
    """Return a parameter without defaults and annotations made of Field, which only the schema needs."""
    if isinstance(parameter.default, FieldInfo):
        parameter = parameter.replace(default=parameter.empty)
    if get_origin(evaluated) is Annotated:
        return parameter.replace(annotation=get_args(evaluated)[0])
    if isinstance(parameter.annotation, str):
        return parameter.replace(annotation=_Bare(parameter.annotation))
    return parameter


def _docstring(function: Function) -> str:
    target = function.func if isinstance(function, partial) else function
    if inspect.isroutine(target) or inspect.isclass(target):
        return target.__doc__ or ""
    return type(target).__call__.__doc__ or type(target).__doc__ or ""


def _rendered(signature: inspect.Signature, parameters: list[inspect.Parameter]) -> str:
    if isinstance(signature.return_annotation, str):
        signature = signature.replace(return_annotation=_Bare(signature.return_annotation))
    try:
        return str(signature.replace(parameters=parameters))
    except ValueError:
        # Without defaults, parameters may violate the order of a signature.
        return f"({', '.join(str(one) for one in parameters)})"


@overload
def tool(fn: Function, /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    return_direct: bool = False,
    fn_schema: type[BaseModel] | None = None,
    partial_params: Mapping[str, Any] | None = None,
    requires_approval: Approval = False,
    approval_timeout: float | None = None,
    idempotent: bool = False,
    on_unknown: OnUnknown = "ask",
    timeout: float | None = None,
    retry: RetryPolicy | None = None,
    max_calls: int | None = None,
    max_result_chars: int | None = None,
    on_error: ToolErrors | None = None,
    prepare: Prepare | None = None,
) -> Callable[[Function], FunctionTool]: ...
def tool(
    fn: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    return_direct: bool = False,
    fn_schema: type[BaseModel] | None = None,
    partial_params: Mapping[str, Any] | None = None,
    requires_approval: Approval = False,
    approval_timeout: float | None = None,
    idempotent: bool = False,
    on_unknown: OnUnknown = "ask",
    timeout: float | None = None,
    retry: RetryPolicy | None = None,
    max_calls: int | None = None,
    max_result_chars: int | None = None,
    on_error: ToolErrors | None = None,
    prepare: Prepare | None = None,
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Create a tool from a function, as a decorator with or without arguments.

    Args:
        fn: The function.
        name: The function's name by default.
        description: Signature and docstring by default.
        return_direct: End the run with the output as the answer.
        fn_schema: Model of the arguments.
        partial_params: Fixed arguments, hidden from the model.
        requires_approval: True if a person must approve calls, or a function of ``(arguments)`` or
            ``(ctx, arguments)`` that returns this.
        approval_timeout: Seconds until an unanswered request counts as denied.
        idempotent: True if a repeated call does no harm.
        on_unknown: Reaction to a call with an unknown outcome; see :class:`ToolPolicy`.
        timeout: Seconds for one attempt; None for no limit.
        retry: Retry policy of failed attempts; see ``batonflow.workflow_core.retry_policy``.
        max_calls: Largest number of calls in one run of an agent; None for no limit.
        max_result_chars: Characters of a result that the model receives at once; None for all.
        on_error: ``"tell"`` exceptions to the model, let ``"raise_bugs"`` bugs out of the run, or ``"raise"`` all of
            them; by default the setting of the agent.
        prepare: A function of ``(ctx, tool)``, async or not, that is called before each request of an agent. It
            returns the tool to offer, the given one or another, or None to hide it.

    Raises:
        ToolDefinitionError: A parameter's type has no JSON form, or a value of the policy is invalid.

    Example:
        >>> @tool
        ... def add(a: int, b: int) -> int:
        ...     "Add two numbers."
        ...     return a + b
    """

    def make(function: Function) -> FunctionTool:
        try:
            policy = ToolPolicy(
                requires_approval=requires_approval,
                approval_timeout=approval_timeout,
                idempotent=idempotent,
                on_unknown=on_unknown,
                timeout=timeout,
                retry=retry,
                max_calls=max_calls,
                max_result_chars=max_result_chars,
                on_error=on_error,
            )
        except ToolDefinitionError as err:
            raise ToolDefinitionError(f"tool {name or _name_of(function)!r}: {err}") from None
        return FunctionTool.from_defaults(
            function,
            name=name,
            description=description,
            return_direct=return_direct,
            fn_schema=fn_schema,
            partial_params=partial_params,
            policy=policy,
            prepare=prepare,
        )

    return make if fn is None else make(fn)
