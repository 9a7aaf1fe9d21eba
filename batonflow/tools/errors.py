"""Errors of the tool layer.

::

    ToolError (BatonflowError)           a tool cannot be made or called
    ├── ToolDefinitionError (TypeError)  a function or a policy is not usable for a tool
    ├── ToolArgumentsError (ValueError)  arguments do not fit the tool; the text is for the model
    └── ToolTimeoutError (TimeoutError)  an attempt took longer than the tool's timeout

Exceptions of a tool's own body propagate unchanged.
"""

from batonflow.workflow_core.errors import BatonflowError

__all__ = ["ToolArgumentsError", "ToolDefinitionError", "ToolError", "ToolTimeoutError"]


class ToolError(BatonflowError):
    """A tool cannot be created or called."""


class ToolDefinitionError(ToolError, TypeError):
    """A parameter cannot be filled by a model, or a policy has an invalid value; the message names the remedy."""


class ToolArgumentsError(ToolError, ValueError):
    """Arguments do not fit the tool's schema, or the caller did not fill in a required one."""


class ToolTimeoutError(ToolError, TimeoutError):
    """One attempt of a call exceeded the tool's ``timeout``; it counts as a failed attempt."""
