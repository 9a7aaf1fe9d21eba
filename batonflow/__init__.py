"""Agents on an event-driven workflow core.

The names below are what most programs need; they are loaded when first used. Everything has a home of its own in
``batonflow.workflow_core``, ``batonflow.llms``, ``batonflow.tools`` and ``batonflow.agents``.

Example::

    from batonflow import FunctionAgent
    print(FunctionAgent(llm="openai:gpt-5.6", tools=[add]).run_sync("What is 2 + 40?"))
"""

from importlib import import_module
from typing import TYPE_CHECKING

from batonflow import _moved

if TYPE_CHECKING:
    from batonflow.agents import (
        AgentInput,
        AgentOutput,
        AgentResult,
        AgentSetup,
        AgentStream,
        AgentWorkflow,
        BaseWorkflowAgent,
        Budget,
        CodeActAgent,
        FunctionAgent,
        Middleware,
        OutputUnfitError,
        ReActAgent,
        Session,
        SessionBusyError,
        SessionInfo,
        ToolCall,
        ToolCallResult,
    )
    from batonflow.draw import draw_all_possible_flows, draw_most_recent_execution
    from batonflow.durable.stores.sqlite import SQLiteStore
    from batonflow.llms import LLM, Anthropic, ChatMessage, MessageRole, OpenAI, Price, ScriptedLLM, llm_from
    from batonflow.resources import Resource, ResourceConfig
    from batonflow.retry_policies import retry_policy
    from batonflow.tools import BaseTool, FunctionTool, ToolOutput, ToolRetry, Toolset, tool
    from batonflow.workflow_core.collect import All, Collect, Take
    from batonflow.workflow_core.context import Context, JsonSerializer, RunContext
    from batonflow.workflow_core.errors import (
        BatonflowError,
        WorkflowCancelledByUser,
        WorkflowRuntimeError,
        WorkflowTimeoutError,
        WorkflowValidationError,
    )
    from batonflow.workflow_core.events import (
        Event,
        HumanResponseEvent,
        InputRequiredEvent,
        StartEvent,
        StepFailedEvent,
        StopEvent,
    )
    from batonflow.workflow_core.handler import WorkflowHandler
    from batonflow.workflow_core.step import catch_error, step
    from batonflow.workflow_core.workflow import Workflow

__version__ = "0.1.0"

_moved.install()

__all__ = [
    "LLM",
    "AgentInput",
    "AgentOutput",
    "AgentResult",
    "AgentSetup",
    "AgentStream",
    "AgentWorkflow",
    "All",
    "Anthropic",
    "BaseTool",
    "BaseWorkflowAgent",
    "BatonflowError",
    "Budget",
    "ChatMessage",
    "CodeActAgent",
    "Collect",
    "Context",
    "Event",
    "FunctionAgent",
    "FunctionTool",
    "HumanResponseEvent",
    "InputRequiredEvent",
    "JsonSerializer",
    "MessageRole",
    "Middleware",
    "OpenAI",
    "OutputUnfitError",
    "Price",
    "ReActAgent",
    "Resource",
    "ResourceConfig",
    "RunContext",
    "SQLiteStore",
    "ScriptedLLM",
    "Session",
    "SessionBusyError",
    "SessionInfo",
    "StartEvent",
    "StepFailedEvent",
    "StopEvent",
    "Take",
    "ToolCall",
    "ToolCallResult",
    "ToolOutput",
    "ToolRetry",
    "Toolset",
    "Workflow",
    "WorkflowCancelledByUser",
    "WorkflowHandler",
    "WorkflowRuntimeError",
    "WorkflowTimeoutError",
    "WorkflowValidationError",
    "__version__",
    "catch_error",
    "draw_all_possible_flows",
    "draw_most_recent_execution",
    "llm_from",
    "retry_policy",
    "step",
    "tool",
]

# Which module a name is loaded from. Agents and vendors are heavy; a plain workflow should not pay for them.
_HOMES = {
    "agents": (
        "AgentInput AgentOutput AgentResult AgentSetup AgentStream AgentWorkflow BaseWorkflowAgent Budget CodeActAgent "
        "FunctionAgent Middleware OutputUnfitError ReActAgent Session SessionBusyError SessionInfo ToolCall "
        "ToolCallResult"
    ),
    "llms": "LLM Anthropic ChatMessage MessageRole OpenAI Price ScriptedLLM llm_from",
    "tools": "BaseTool FunctionTool ToolOutput ToolRetry Toolset tool",
    "workflow_core.collect": "All Collect Take",
    "workflow_core.context": "Context JsonSerializer RunContext",
    "workflow_core.step": "catch_error step",
    "draw": "draw_all_possible_flows draw_most_recent_execution",
    "workflow_core.errors": (
        "BatonflowError WorkflowCancelledByUser WorkflowRuntimeError WorkflowTimeoutError WorkflowValidationError"
    ),
    "workflow_core.events": "Event HumanResponseEvent InputRequiredEvent StartEvent StepFailedEvent StopEvent",
    "workflow_core.handler": "WorkflowHandler",
    "durable.stores.sqlite": "SQLiteStore",
    "resources": "Resource ResourceConfig",
    "retry_policies": "retry_policy",
    "workflow_core.workflow": "Workflow",
}
_HOME_OF = {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names.split()}


def _load(name: str) -> object:
    """Load a public name from its home on first use (PEP 562) and keep it.

    Raises:
        AttributeError: ``name`` is not a public name of batonflow.
    """
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # checkers would take every name
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
