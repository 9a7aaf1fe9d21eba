"""Where programs of LlamaIndex look for the events of agents; they live in ``events``."""

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
