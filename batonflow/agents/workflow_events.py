"""The events of agents, under the path that LlamaIndex has for them."""

from batonflow.agents.events import (
    AgentInput,
    AgentOutput,
    AgentSetup,
    AgentStream,
    AgentStreamStructuredOutput,
    AgentWorkflowStartEvent,
    PydanticConversionWarning,
    ToolCall,
    ToolCallResult,
)

__all__ = [
    "AgentInput",
    "AgentOutput",
    "AgentSetup",
    "AgentStream",
    "AgentStreamStructuredOutput",
    "AgentWorkflowStartEvent",
    "PydanticConversionWarning",
    "ToolCall",
    "ToolCallResult",
]
