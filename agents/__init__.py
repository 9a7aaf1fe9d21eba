"""Agents: models that use tools, as workflows."""

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

__all__ = [
    "AgentInput",
    "AgentOutput",
    "AgentSetup",
    "AgentStream",
    "AgentStreamStructuredOutput",
    "AgentWorkflowStartEvent",
    "BaseWorkflowAgent",
    "FunctionAgent",
    "ToolCall",
    "ToolCallResult",
]
