"""A pydantic model as a tool: the arguments of the call are the fields of the object."""

from typing import Any

from pydantic import BaseModel

from batonflow.tools.function import FunctionTool
from batonflow.tools.schema import ToolArgumentsError

__all__ = ["get_function_tool"]


def get_function_tool(output_cls: type[BaseModel]) -> FunctionTool:
    """Create a tool whose call creates an instance of ``output_cls``, to get such an object from a model.

    Args:
        output_cls: The tool takes its name from the title, its description from the docstring, and its parameters
            from the fields.

    Example:
        >>> get_function_tool(Song).call(title="Ebb", verses=3).raw_output
        Song(title='Ebb', verses=3)
    """
    schema = output_cls.model_json_schema()

    def make(*values: Any, **fields: Any) -> BaseModel:
        if len(values) > 1 or (values and fields):
            raise ToolArgumentsError(f"{output_cls.__name__} takes its fields by name, or one value")
        if not values:
            return output_cls(**fields)
        names = list(schema.get("properties", {}))
        # call_tool() passes the value of a single field by position.
        alone = len(names) == 1 and not isinstance(values[0], dict)
        return output_cls.model_validate({names[0]: values[0]} if alone else values[0])

    return FunctionTool.from_defaults(
        make,
        name=schema.get("title", output_cls.__name__),
        description=schema.get("description") or f"Give a {output_cls.__name__}.",
        fn_schema=output_cls,
    )
