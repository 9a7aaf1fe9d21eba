"""Agents: models that use tools, as workflows.

Each kind of agent is loaded at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batonflow._moved import module_at
from batonflow.agents.approvals import ApprovalRequest, ApprovalRequired, ApprovalResponse, ApprovalUsedError
from batonflow.agents.base import BaseWorkflowAgent
from batonflow.agents.budget import Budget, BudgetExceededError
from batonflow.agents.events import (
    AgentInput,
    AgentOutput,
    AgentResult,
    AgentSetup,
    AgentStream,
    AgentStreamStructuredOutput,
    AgentWorkflowStartEvent,
    ToolCall,
    ToolCallResult,
    ToolProgress,
)
from batonflow.agents.function import FunctionAgent
from batonflow.agents.handler import AgentHandler
from batonflow.agents.hooks import Block, Deny, Replace
from batonflow.agents.run_output import OutputMissingError, OutputUnfitError

if TYPE_CHECKING:
    from batonflow.agents.codeact import CodeActAgent
    from batonflow.agents.instructions import ChoiceOfTools, Instruction, Instructions, ToolChoice, each_step
    from batonflow.agents.members import AgentContext, SimpleAgentContext
    from batonflow.agents.middleware import CallModel, CallTool, Middleware, ModelRequest, ToolRequest
    from batonflow.agents.notebook import handler_bundle as handler_bundle
    from batonflow.agents.notebook import output_bundle as output_bundle
    from batonflow.agents.notebook import session_bundle as session_bundle
    from batonflow.agents.output_types import FormOutput as FormOutput
    from batonflow.agents.output_types import TypedOutput as TypedOutput
    from batonflow.agents.output_types import declared_output as declared_output
    from batonflow.agents.output_types import declared_output_of as declared_output_of
    from batonflow.agents.react import ReActAgent
    from batonflow.agents.request_changes import RequestChanges
    from batonflow.agents.sessions.errors import SessionBusyError
    from batonflow.agents.sessions.history import end_of_turn_of as end_of_turn_of
    from batonflow.agents.sessions.session import Session, SessionInfo, Turn
    from batonflow.agents.sessions.session import list_sessions as list_sessions
    from batonflow.agents.sessions.starting import start_request as start_request
    from batonflow.agents.sessions.starting import take_request as take_request
    from batonflow.agents.team import AgentWorkflow
    from batonflow.agents.typed_state import StateTypeWarning, state_of_run
    from batonflow.agents.typed_state import declared_state as declared_state
    from batonflow.agents.typed_state import state_of as state_of
    from batonflow.agents.typed_state import state_of_team as state_of_team
    from batonflow.agents.typed_state import view_of as view_of
    from batonflow.agents.typed_state import warn_of_untyped as warn_of_untyped
    from batonflow.llms.predict_and_call import AgentChatResponse
    from batonflow.llms.react_text import ReActChatFormatter, ReActOutputParser
    from batonflow.run_facts import RunInfo
    from batonflow.tools.toolset import Toolset
    from batonflow.values.agent_info import AgentInfo

__all__ = [
    "AgentChatResponse",
    "AgentContext",
    "AgentHandler",
    "AgentInfo",
    "AgentInput",
    "AgentOutput",
    "AgentResult",
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
    "Block",
    "Budget",
    "BudgetExceededError",
    "CallModel",
    "CallTool",
    "ChoiceOfTools",
    "CodeActAgent",
    "Deny",
    "FunctionAgent",
    "Instruction",
    "Instructions",
    "Middleware",
    "ModelRequest",
    "OutputMissingError",
    "OutputUnfitError",
    "ReActAgent",
    "ReActChatFormatter",
    "ReActOutputParser",
    "Replace",
    "RequestChanges",
    "RunInfo",
    "Session",
    "SessionBusyError",
    "SessionInfo",
    "SimpleAgentContext",
    "StateTypeWarning",
    "ToolCall",
    "ToolCallResult",
    "ToolChoice",
    "ToolProgress",
    "ToolRequest",
    "Toolset",
    "Turn",
    "each_step",
    "state_of_run",
]

_LAZY = {
    "AgentChatResponse": "llms.predict_and_call",
    "AgentContext": "agents.members",
    "AgentInfo": "values.agent_info",
    "CallModel": "agents.middleware",
    "CallTool": "agents.middleware",
    "ChoiceOfTools": "agents.instructions",
    "Instruction": "agents.instructions",
    "Instructions": "agents.instructions",
    "ToolChoice": "agents.instructions",
    "AgentWorkflow": "agents.team",
    "CodeActAgent": "agents.codeact",
    "Middleware": "agents.middleware",
    "ModelRequest": "agents.middleware",
    "ReActAgent": "agents.react",
    "ReActChatFormatter": "llms.react_text",
    "ReActOutputParser": "llms.react_text",
    "RequestChanges": "agents.request_changes",
    "RunInfo": "run_facts",
    "SimpleAgentContext": "agents.members",
    "StateTypeWarning": "agents.typed_state",
    "ToolRequest": "agents.middleware",
    "Toolset": "tools.toolset",
    "Session": "agents.sessions.session",
    "SessionBusyError": "agents.sessions.errors",
    "SessionInfo": "agents.sessions.session",
    "Turn": "agents.sessions.session",
    "list_sessions": "agents.sessions.session",
    "end_of_turn_of": "agents.sessions.history",
    "start_request": "agents.sessions.starting",
    "take_request": "agents.sessions.starting",
    "FormOutput": "agents.output_types",
    "TypedOutput": "agents.output_types",
    "declared_output": "agents.output_types",
    "declared_output_of": "agents.output_types",
    "declared_state": "agents.typed_state",
    "each_step": "agents.instructions",
    "handler_bundle": "agents.notebook",
    "output_bundle": "agents.notebook",
    "session_bundle": "agents.notebook",
    "state_of": "agents.typed_state",
    "state_of_run": "agents.typed_state",
    "state_of_team": "agents.typed_state",
    "view_of": "agents.typed_state",
    "warn_of_untyped": "agents.typed_state",
}


def _load(name: str) -> Any:
    home = _LAZY.get(name)
    if home is None:
        return module_at(__name__, name)
    found = globals()[name] = getattr(import_module(f"batonflow.{home}"), name)
    return found


if not TYPE_CHECKING:  # checkers would take every name
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
