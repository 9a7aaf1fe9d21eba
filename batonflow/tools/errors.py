"""Every error of the tool layer.

::

    ToolError (BatonflowError)           a tool cannot be made or called
    ├── ToolDefinitionError (TypeError)  a function or a policy that no tool can be made of
    ├── ToolArgumentsError (ValueError)  arguments do not fit the tool; the text is for the model
    └── ToolTimeoutError (TimeoutError)  an attempt took longer than the tool's timeout

What a tool's own body raises stays what it is.
"""

from batonflow.workflow_core.errors import BatonflowError

__all__ = ["ToolArgumentsError", "ToolDefinitionError", "ToolError", "ToolTimeoutError"]


class ToolError(BatonflowError):
    """A tool cannot be made or called."""


class ToolDefinitionError(ToolError, TypeError):
    """A parameter that no model could fill, or a policy's value that means nothing; the message names the remedy."""


class ToolArgumentsError(ToolError, ValueError):
    """Arguments do not fit the tool's schema, or one is missing that the caller fills; the message says what to do."""


class ToolTimeoutError(ToolError, TimeoutError):
    """One attempt of a call took longer than the tool's ``timeout``; counts as a failure of that attempt."""
