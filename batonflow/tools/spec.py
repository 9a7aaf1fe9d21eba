"""BaseToolSpec: methods of an object as tools."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from pydantic import BaseModel

from batonflow.tools.base import ToolMetadata
from batonflow.tools.function import FunctionTool
from batonflow.tools.schema import ToolDefinitionError

__all__ = ["BaseToolSpec", "SpecFunction"]

SpecFunction = str | tuple[str, str]


class BaseToolSpec:
    """Related methods with shared state, as tools.

    Attributes:
        spec_functions: Names of the methods, or pairs of a synchronous and an equivalent asynchronous one.

    Example:
        >>> class Mail(BaseToolSpec):
        ...     spec_functions = ["send", ("read", "aread")]
        >>> agent = FunctionAgent(llm=llm, tools=Mail(account).to_tool_list())
    """

    spec_functions: ClassVar[Sequence[SpecFunction]] = ()

    def to_tool_list(
        self,
        spec_functions: Sequence[SpecFunction] | None = None,
        func_to_metadata_mapping: Mapping[str, ToolMetadata] | None = None,
    ) -> list[FunctionTool]:
        """Return a tool for each method.

        Args:
            spec_functions: Methods to use instead of the class attribute.
            func_to_metadata_mapping: Metadata by name of the method, instead of metadata from the signature.

        Raises:
            ToolDefinitionError: A method does not exist, or a parameter's type has no JSON form.
            ValueError: An entry is not a name or a pair of names.
        """
        metadata = func_to_metadata_mapping or {}
        return [self._tool(one, metadata) for one in spec_functions or self.spec_functions]

    async def to_tool_list_async(
        self,
        spec_functions: Sequence[SpecFunction] | None = None,
        func_to_metadata_mapping: Mapping[str, ToolMetadata] | None = None,
    ) -> list[FunctionTool]:
        """Return the tools; subclasses that request their tools from a service override it."""
        return self.to_tool_list(spec_functions, func_to_metadata_mapping)

    def _tool(self, entry: Any, metadata: Mapping[str, ToolMetadata]) -> FunctionTool:
        names = cast("tuple[Any, ...]", entry) if isinstance(entry, tuple) else (entry,)
        if len(names) not in {1, 2} or not all(isinstance(one, str) for one in names):
            raise ValueError(
                "spec_functions must be of type: List[Union[str, Tuple[str, str]]]. "
                f"{type(self).__name__} contains {entry!r}"
            )
        methods = [self._method(name) for name in names]
        given = next((metadata[name] for name in names if name in metadata), None)
        if given is None:
            given = self.get_metadata_from_fn_name(names[0])
        if len(methods) == 2:
            return FunctionTool.from_defaults(methods[0], async_fn=methods[1], tool_metadata=given)
        if inspect.iscoroutinefunction(methods[0]):
            return FunctionTool.from_defaults(async_fn=methods[0], tool_metadata=given)
        return FunctionTool.from_defaults(methods[0], tool_metadata=given)

    def get_fn_schema_from_fn_name(
        self,
        fn_name: str,  # noqa: ARG002 - for subclasses
        spec_functions: Sequence[SpecFunction] | None = None,  # noqa: ARG002 - for subclasses
    ) -> type[BaseModel] | None:
        """Return the model of a method's arguments, or None to derive it from the signature.

        Args:
            fn_name: Name of the method.
            spec_functions: Methods to use instead of the class attribute.
        """
        return None

    def get_metadata_from_fn_name(
        self, fn_name: str, spec_functions: Sequence[SpecFunction] | None = None
    ) -> ToolMetadata | None:
        """Return the metadata of a method, or None to derive it from the method; subclasses may override it.

        Args:
            fn_name: Name of the method.
            spec_functions: Methods to use instead of the class attribute.
        """
        schema = self.get_fn_schema_from_fn_name(fn_name, spec_functions=spec_functions)
        if schema is None:
            return None
        return FunctionTool.from_defaults(self._method(fn_name), fn_schema=schema).metadata

    def _method(self, name: str) -> Any:
        method = getattr(self, name, None)
        if not callable(method):
            raise ToolDefinitionError(
                f"spec_functions of {type(self).__name__} name {name!r}, which is not one of its methods. Write the "
                "method, or remove the name"
            )
        return method
