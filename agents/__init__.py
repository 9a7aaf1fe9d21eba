"""Agents: models that use tools, as workflows."""

from batonflow.agents.approvals import ApprovalRequest, ApprovalRequired, ApprovalResponse, ApprovalUsedError
from batonflow.agents.base import BaseWorkflowAgent
from batonflow.agents.codeact import CodeActAgent
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
from batonflow.agents.react import ReActAgent
from batonflow.agents.team import AgentWorkflow

__all__ = [
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
    "ToolCall",
    "ToolCallResult",
]
