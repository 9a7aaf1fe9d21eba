"""Resources: values that a step gets in addition to its event, such as clients, indexes and settings.

A step declares a resource in its signature, ``llm: Annotated[LLM, Resource(make_llm)]`` or
``settings: Annotated[Settings, ResourceConfig("settings.json")]``. A factory declares other resources in the same way.

A ``ResourceManager`` (one per workflow instance unless shared) keeps values under the *identity* of the factory, so
factories with the same name do not share a value. The dependencies of a factory are read from its signature, so a
circular dependency is found before anything is built. Many steps may request the same resource at once, and it is
still built once.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from pathlib import Path
from types import MethodType
from typing import (
    Annotated,
    Any,
    Generic,
    NamedTuple,
    Protocol,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from pydantic import BaseModel
from pydantic_core import from_json

__all__ = ["Resource", "ResourceConfig", "ResourceDefinition", "ResourceDescriptor", "ResourceManager"]

T = TypeVar("T")

_MISSING: Any = object()


@runtime_checkable
class ResourceDescriptor(Protocol):
    """The interface of a resource for ``ResourceManager``; ``Resource`` and ``ResourceConfig`` implement it."""

    @property
    def name(self) -> str:
        """The name in messages, in ``ResourceManager.set`` and in ``get_all``."""
        ...

    @property
    def cache(self) -> bool:
        """Tell whether the manager keeps the value."""
        ...

    def identity(self, type_annotation: Any) -> Hashable:
        """Return the key under which two requests share a value."""
        ...

    def is_async(self) -> bool:
        """Tell whether ``build`` returns an awaitable."""
        ...

    def get_dependencies(self) -> "list[ResourceDefinition]":
        """Return the resources that this one needs, in the order of the factory's parameters."""
        ...

    def build(self, dependencies: Mapping[str, Any], type_annotation: Any) -> Any:
        """Create the value, or an awaitable of it if ``is_async()``."""
        ...


class ResourceDefinition(NamedTuple):
    """A parameter with a resource: its name, the descriptor, and ``T`` of ``Annotated[T, descriptor]``."""

    name: str
    descriptor: ResourceDescriptor
    type_annotation: Any = None

    @property
    def resource(self) -> ResourceDescriptor:
        """The descriptor; another name for it."""
        return self.descriptor


class _Bare:
    """An object for ``get_type_hints`` with the annotation of a single parameter."""

    def __init__(self, name: str, annotation: Any) -> None:
        self.__annotations__ = {name: annotation}


def may_be_left_out(parameter: inspect.Parameter) -> bool:
    """Tell whether a function can be called without this argument."""
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return variadic or parameter.default is not parameter.empty


def _without_partial(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return function


def _is_async_callable(factory: Callable[..., Any]) -> bool:
    factory = _without_partial(factory)
    return inspect.iscoroutinefunction(factory) or inspect.iscoroutinefunction(getattr(factory, "__call__", None))  # noqa: B004


class Resource(Generic[T]):
    """The result of a factory as a parameter of a step.

    Args:
        factory: A function, sync or ``async def``, or another callable. Its parameters may be
            ``Annotated[..., Resource(...)]`` or ``Annotated[..., ResourceConfig(...)]``.
        cache: Keep the value for all later steps and runs of the manager. Otherwise each step execution gets a new
            value, which is shared within the execution.

    Example::

        async def answer(self, ev: StartEvent, llm: Annotated[LLM, Resource(make_llm)]) -> StopEvent: ...
    """

    def __init__(self, factory: "Callable[..., T | Awaitable[T]]", cache: bool = True) -> None:
        self.factory = factory
        self._cache = cache
        self._is_async = _is_async_callable(factory)
        self._locals: dict[str, Any] | None = None
        self._dependencies: list[ResourceDefinition] | None = None
        self._reading = False  # circular factories read their signatures recursively

    @property
    def name(self) -> str:
        """The qualified name of the factory."""
        return str(getattr(self.factory, "__qualname__", type(self.factory).__name__))

    @property
    def cache(self) -> bool:
        """Tell whether the manager keeps the value."""
        return self._cache

    def __repr__(self) -> str:
        return f"Resource({self.name}, cache={self._cache})"

    def identity(self, type_annotation: Any = None) -> Hashable:  # noqa: ARG002 - a factory makes one kind of value
        """Return the identity of the factory; for a bound method, that of the function and the object."""
        if isinstance(self.factory, MethodType):  # bound methods are new objects at each access
            return (Resource, id(self.factory.__self__), id(self.factory.__func__))
        return (Resource, id(self.factory))

    def is_async(self) -> bool:
        """Tell whether the factory, or the ``__call__`` of a callable object, is ``async def``."""
        return self._is_async

    def set_localns(self, localns: Mapping[str, Any] | None) -> None:
        """Set the names around the step's definition, for annotations that the factory's globals lack.

        The names are dropped after the factory's parameters are read.
        """
        if self._dependencies is None and not self._reading:
            self._locals = dict(localns) if localns else None
            self._reading = True
            try:
                self._dependencies = self._read_signature()
            except NameError:
                return  # defined later in the module; read at first use
            finally:
                self._reading = False
            self._locals = None

    def get_dependencies(self) -> list[ResourceDefinition]:
        """Return the factory's parameters that are resources.

        Raises:
            NameError: The annotation of a parameter without a default contains an unknown name.
        """
        if self._dependencies is None:
            self._dependencies = self._read_signature()
            self._locals = None
        return self._dependencies

    def build(self, dependencies: Mapping[str, Any], type_annotation: Any = None) -> Any:  # noqa: ARG002 - as above
        """Call the factory with its resources.

        Raises:
            TypeError: A factory that is not ``async def`` returned a coroutine.
        """
        value = self.factory(**dependencies)
        if not self._is_async and inspect.iscoroutine(value):
            value.close()
            raise TypeError(f"The resource factory {self.name} returned a coroutine: define it with `async def`")
        return value

    def _read_signature(self) -> list[ResourceDefinition]:
        try:
            parameters = inspect.signature(self.factory).parameters.values()
        except ValueError:  # builtins without a signature get no arguments
            return []
        found: list[ResourceDefinition] = []
        for parameter in parameters:
            if parameter.annotation is parameter.empty:
                continue
            try:
                annotation = self._evaluate(parameter)
            except NameError:
                if may_be_left_out(parameter):
                    continue  # a type known to type checkers only is common here
                raise
            if get_origin(annotation) is not Annotated:
                continue
            wanted, *marks = get_args(annotation)
            for mark in marks:
                if isinstance(mark, Resource):
                    cast("Resource[Any]", mark).set_localns(self._locals)
                if isinstance(mark, ResourceDescriptor):
                    found.append(ResourceDefinition(parameter.name, cast("ResourceDescriptor", mark), wanted))
                    break
        return found

    def _evaluate(self, parameter: inspect.Parameter) -> Any:
        function = _without_partial(self.factory)
        if not hasattr(function, "__globals__") and not hasattr(function, "__func__"):
            function = function.__init__ if isinstance(function, type) else type(function).__call__
        function = inspect.unwrap(getattr(function, "__func__", function))
        global_names: dict[str, Any] = getattr(function, "__globals__", {})
        local_names = {k: v for k, v in (self._locals or {}).items() if k not in global_names}
        closure = getattr(function, "__closure__", None) or ()
        for name, cell in zip(function.__code__.co_freevars if closure else (), closure, strict=True):
            try:
                local_names[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        holder = _Bare(parameter.name, parameter.annotation)
        try:
            hints = get_type_hints(holder, globalns=global_names, localns=local_names, include_extras=True)
        except NameError:
            if get_origin(parameter.annotation) is Annotated:  # the type is unknown, but the resource is marked
                return parameter.annotation
            raise
        return hints[parameter.name]


@functools.lru_cache(maxsize=128)
def _load_json(path: str, version: tuple[int, int]) -> Any:  # noqa: ARG001 - part of the cache's key
    """Read a file once per process and version (modification time and size)."""
    with Path(path).open(encoding="utf-8") as file:
        try:
            return from_json(file.read())
        except ValueError as error:
            error.add_note(f"in {path}")
            raise


class ResourceConfig:
    """A part of a JSON file, as a pydantic model, for a parameter of a step.

    Args:
        config_file: The path of a ``.json`` file, relative to the working directory; it is read at first use.
        path_selector: The keys of the part in the file, separated by dots.
        label: A short name for drawings.
        description: A longer text for drawings.

    Raises:
        ValueError: the file is not a ``.json`` file.

    Example::

        AppLimits = Annotated[Limits, ResourceConfig("app.json", "limits")]
        async def ask(self, ev: StartEvent, limits: AppLimits) -> StopEvent: ...
    """

    def __init__(
        self,
        config_file: str,
        path_selector: str | None = None,
        label: str | None = None,
        description: str | None = None,
    ) -> None:
        if Path(config_file).suffix != ".json":
            raise ValueError(f"Only JSON files can be used as configuration of a resource, got {config_file!r}")
        self._given = str(config_file)
        self._found: str | None = None
        self.path_selector = path_selector
        self.label = label
        self.description = description

    def __repr__(self) -> str:
        return f"ResourceConfig({self.name})"

    @property
    def config_file(self) -> str:
        """The absolute path of the file.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        if self._found is None:
            path = Path(self._given)
            if not path.is_file():
                raise FileNotFoundError(f"No such file: {self._given}")
            self._found = str(path.resolve())
        return self._found

    @property
    def name(self) -> str:
        """The file as given, and the selector."""
        return self._given if self.path_selector is None else f"{self._given}.{self.path_selector}"

    @property
    def cache(self) -> bool:
        """Return True: the value is kept."""
        return True

    def identity(self, type_annotation: Any = None) -> Hashable:
        """Return file, selector and class, because one part may be read as several classes."""
        return (ResourceConfig, Path(self._given).absolute(), self.path_selector, type_annotation)

    def is_async(self) -> bool:
        """Return False: files are read synchronously."""
        return False

    def get_dependencies(self) -> list[ResourceDefinition]:
        """Return an empty list, because a file needs no resources."""
        return []

    def read(self) -> dict[str, Any]:
        """Return the selected part of the file.

        Raises:
            FileNotFoundError: The file does not exist.
            ValueError: the file is not JSON, or the selected part is not an object.
        """
        status = Path(self.config_file).stat()
        value: Any = _load_json(self.config_file, (status.st_mtime_ns, status.st_size))
        walked: list[str] = []
        keys = [] if self.path_selector is None else self.path_selector.split(".")
        for key in [None, *keys]:
            if key is not None:
                walked.append(key)
                value = cast("dict[str, Any]", value).get(key)
            if not isinstance(value, dict):
                where = ".".join(walked) or "(the whole file)"
                found = type(cast("object", value))
                raise ValueError(
                    f"Expected dictionary for configuration from {self._given} at path {where}, got: {found}"
                )
        return cast("dict[str, Any]", value)

    def build(self, dependencies: Mapping[str, Any], type_annotation: Any = None) -> BaseModel:  # noqa: ARG002 - none
        """Validate the selected part into the annotated class.

        Raises:
            ValueError: The annotated class is not a pydantic model, or the data do not fit it.
        """
        if not (isinstance(type_annotation, type) and issubclass(type_annotation, BaseModel)):
            raise ValueError(f"{self!r} must be annotated with a pydantic model class, not {type_annotation!r}")
        return type_annotation.model_validate(self.read())


class _Building:
    """A cached resource while it is built; further requests wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.ended = asyncio.Event()
        self.error: Exception | None = None


class ResourceManager:
    """Builds resources and keeps the cached ones.

    A failure is not kept: concurrent requests get the same error, and later requests call the factory again.
    Several workflows may share a manager: ``Workflow(resource_manager=manager)``.

    Example:
        >>> manager = ResourceManager()
        >>> manager.get_all()
        {}
    """

    def __init__(self) -> None:
        self._set_by_name: dict[str, Any] = {}
        # The descriptor is kept with the value, because a new factory could reuse the id of a deleted one.
        self._built: dict[Hashable, tuple[ResourceDescriptor, Any]] = {}
        self._building: dict[Hashable, _Building] = {}
        self._without_circle: dict[Hashable, ResourceDescriptor] = {}

    async def set(self, name: str, val: Any) -> None:
        """Set the value of all cached resources with a name, instead of their factories' values.

        Args:
            name: The qualified name of a factory, or the ``name`` of another descriptor.
            val: The value.
        """
        self._set_by_name[name] = val

    async def get(self, descriptor: ResourceDescriptor, type_annotation: Any = None) -> Any:
        """Return the value of a resource; build it if needed.

        Args:
            descriptor: A ``Resource`` or ``ResourceConfig``.
            type_annotation: The class for the data of a ``ResourceConfig``.

        Raises:
            ValueError: ``Circular resource dependency detected``.
        """
        return await self._value(ResourceDefinition(descriptor.name, descriptor, type_annotation), {})

    def get_all(self) -> dict[str, Any]:
        """Return all kept values by name; a second factory with the same name appears as ``name#2``."""
        values: dict[str, Any] = {}
        for descriptor, value in self._built.values():
            name, count = descriptor.name, 1
            while name in values:
                count += 1
                name = f"{descriptor.name}#{count}"
            values[name] = value
        return values | self._set_by_name

    async def resolve(self, definitions: Sequence[ResourceDefinition]) -> dict[str, Any]:
        """Return the values for the parameters of one step execution.

        Args:
            definitions: The parameters of the step. They and their dependencies share uncached values.

        Raises:
            ValueError: ``Circular resource dependency detected``.
            Exception: The exception of a factory, with a note that names the parameter.
        """
        graph: dict[Hashable, Any] = {}
        values: dict[str, Any] = {}
        for definition in definitions:
            try:
                values[definition.name] = await self._value(definition, graph)
            except Exception as error:
                _note(error, definition)
                raise
        return values

    def resolve_sync_if_ready(self, definitions: Sequence[ResourceDefinition]) -> dict[str, Any] | None:
        """Resolve without waiting; return None, and start nothing, if a factory has to be awaited."""
        graph: dict[Hashable, Any] = {}
        values: dict[str, Any] = {}
        for definition in definitions:
            try:
                self._refuse_circle(definition, [])
                if not self._is_ready(definition):
                    return None
            except Exception as error:
                _note(error, definition)
                raise
        for definition in definitions:
            try:
                values[definition.name] = self._value_now(definition, graph)
            except Exception as error:
                _note(error, definition)
                raise
        return values

    def validate_configs(self, definitions: Sequence[ResourceDefinition]) -> list[str]:
        """Read all configuration files that the parameters need, directly or through factories.

        Returns:
            A text for each problem, ``parameter 'x': ...``.
        """
        problems: list[str] = []
        for definition in definitions:
            self._validate(definition, f"parameter '{definition.name}'", [], problems)
        return problems

    def _validate(self, definition: ResourceDefinition, where: str, chain: list[str], problems: list[str]) -> None:
        descriptor = definition.descriptor
        if descriptor.name in chain:
            return  # the resolver reports circular dependencies
        path = [*chain, descriptor.name]
        try:
            if isinstance(descriptor, ResourceConfig):
                descriptor.build({}, definition.type_annotation)
            dependencies = descriptor.get_dependencies()
        except (OSError, ValueError, NameError) as error:
            through = f" ({' -> '.join(path)})" if chain else ""
            problems.append(f"{where}{through}: {error}")
            return
        for dependency in dependencies:
            self._validate(dependency, where, path, problems)

    def _kept(self, descriptor: ResourceDescriptor, identity: Hashable) -> Any:
        if not descriptor.cache:
            return _MISSING
        if self._set_by_name and descriptor.name in self._set_by_name:
            return self._set_by_name[descriptor.name]
        built = self._built.get(identity)
        return _MISSING if built is None else built[1]

    def _refuse_circle(self, definition: ResourceDefinition, chain: list[tuple[Hashable, str]]) -> None:
        """Look for circular dependencies before anything is built, because two builds could wait for each other."""
        descriptor = definition.descriptor
        identity = descriptor.identity(definition.type_annotation)
        if identity in self._without_circle or (descriptor.cache and descriptor.name in self._set_by_name):
            return
        if any(identity == seen for seen, _ in chain):
            names = " -> ".join([*(name for _, name in chain), descriptor.name])
            raise ValueError(f"Circular resource dependency detected: {names}")
        chain.append((identity, descriptor.name))
        for dependency in descriptor.get_dependencies():
            self._refuse_circle(dependency, chain)
        chain.pop()
        self._without_circle[identity] = descriptor

    def _is_ready(self, definition: ResourceDefinition) -> bool:
        descriptor = definition.descriptor
        identity = descriptor.identity(definition.type_annotation)
        if self._kept(descriptor, identity) is not _MISSING:
            return True
        if descriptor.is_async() or identity in self._building:
            return False
        return all(self._is_ready(dependency) for dependency in descriptor.get_dependencies())

    def _value_now(self, definition: ResourceDefinition, graph: dict[Hashable, Any]) -> Any:
        descriptor = definition.descriptor
        identity = descriptor.identity(definition.type_annotation)
        value = graph.get(identity, _MISSING)
        if value is _MISSING:
            value = self._kept(descriptor, identity)
        if value is _MISSING:
            arguments = {d.name: self._value_now(d, graph) for d in descriptor.get_dependencies()}
            value = descriptor.build(arguments, definition.type_annotation)
            if descriptor.cache:
                self._built[identity] = (descriptor, value)
        graph[identity] = value
        return value

    async def _value(self, definition: ResourceDefinition, graph: dict[Hashable, Any]) -> Any:
        descriptor = definition.descriptor
        identity = descriptor.identity(definition.type_annotation)
        if identity in graph:
            return graph[identity]
        value = self._kept(descriptor, identity)
        if value is _MISSING:
            self._refuse_circle(definition, [])
            if descriptor.cache:
                value = await self._build_once(definition, identity, graph)
            else:
                value = await self._build(definition, graph)
        graph[identity] = value
        return value

    async def _build(self, definition: ResourceDefinition, graph: dict[Hashable, Any]) -> Any:
        descriptor = definition.descriptor
        arguments = {d.name: await self._value(d, graph) for d in descriptor.get_dependencies()}
        value = descriptor.build(arguments, definition.type_annotation)
        return await value if descriptor.is_async() else value

    async def _build_once(self, definition: ResourceDefinition, identity: Hashable, graph: dict[Hashable, Any]) -> Any:
        loop = asyncio.get_running_loop()
        # A build on another loop cannot be awaited here; both build, and the later value is kept.
        while (other := self._building.get(identity)) is not None and other.loop is loop:
            await other.ended.wait()
            if other.error is not None:
                raise other.error
            value = self._kept(definition.descriptor, identity)
            if value is not _MISSING:
                return value
            # The builder was cancelled; the first waiting request continues.
        mine = self._building[identity] = _Building(loop)
        try:
            value = await self._build(definition, graph)
            self._built[identity] = (definition.descriptor, value)
        except Exception as error:
            mine.error = error
            raise
        finally:
            if self._building.get(identity) is mine:
                del self._building[identity]
            mine.ended.set()
        return value


def _note(error: Exception, definition: ResourceDefinition) -> None:
    note = f"while the resource {definition.descriptor.name} was made for the step parameter '{definition.name}'"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
