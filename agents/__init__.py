"""Agents: models that use tools, as workflows.

Kinds of agents that a program does not name are not loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batonflow.agents.approvals import ApprovalRequest, ApprovalRequired, ApprovalResponse, ApprovalUsedError
from batonflow.agents.base import BaseWorkflowAgent
from batonflow.agents.events import (
    AgentInput,
    AgentOutput,
    AgentSetup,
    AgentStream,
    AgentStreamStructuredOutput,
    AgentWorkflowStartEvent,
    ToolCall,
    ToolCallResult,
)
from batonflow.agents.function import FunctionAgent
from batonflow.agents.handler import AgentHandler

if TYPE_CHECKING:
    from batonflow.agents.codeact import CodeActAgent
    from batonflow.agents.contexts import AgentContext, SimpleAgentContext
    from batonflow.agents.react import ReActAgent
    from batonflow.agents.team import AgentWorkflow

__all__ = [
    "AgentContext",
    "AgentHandler",
    "AgentInput",
    "AgentOutput",
    "AgentSetup",
    "AgentStream",
    "AgentStreamStructuredOutput",
    "AgentWorkflow",
    "AgentWorkflowStartEvent",
    "ApprovalRequest",
    "ApprovalRequired",
    "ApprovalResponse",
    "ApprovalUsedError",
    "BaseWorkflowAgent",
    "CodeActAgent",
    "FunctionAgent",
    "ReActAgent",
    "SimpleAgentContext",
    "ToolCall",
    "ToolCallResult",
]

_LAZY = {
    "AgentContext": "contexts",
    "AgentWorkflow": "team",
    "CodeActAgent": "codeact",
    "ReActAgent": "react",
    "SimpleAgentContext": "contexts",
}


def __getattr__(name: str) -> Any:
    home = _LAZY.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
