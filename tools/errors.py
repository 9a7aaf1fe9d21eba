"""Every error of the tool layer.

::

    ToolError (BatonflowError)           a tool cannot be made or called
    ├── ToolDefinitionError (TypeError)  a function has a parameter no model could fill
    └── ToolArgumentsError (ValueError)  arguments do not fit the tool's schema; the text is for the model

What a tool's own body raises stays what it is.
"""

from batonflow.workflow_core.errors import BatonflowError

__all__ = ["ToolArgumentsError", "ToolDefinitionError", "ToolError"]


class ToolError(BatonflowError):
    """A tool cannot be made or called."""


class ToolDefinitionError(ToolError, TypeError):
    """A function has a parameter that no model could fill; the message names it and the remedy."""


class ToolArgumentsError(ToolError, ValueError):
    """Arguments do not fit the tool's schema; the message tells a model what to change."""
