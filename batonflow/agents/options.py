"""The options of agents and teams, as type checkers know them; no program loads this module."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Generic, Literal, TypedDict

from pydantic import BaseModel
from typing_extensions import TypeVar

from batonflow.agents.budget import Budget
from batonflow.agents.handoff import Carried
from batonflow.agents.hooks import AfterTool, BeforeTool, Guard
from batonflow.agents.instructions import ChoiceOfTools, Instructions, ToolChoice
from batonflow.agents.members import EarlyStopping
from batonflow.agents.memory import BaseMemory
from batonflow.agents.middleware import Middleware
from batonflow.llms import LLM, ChatMessage
from batonflow.llms.prompts import BasePromptTemplate
from batonflow.llms.react_text import ReActChatFormatter
from batonflow.resources import ResourceManager
from batonflow.tools import BaseTool
from batonflow.tools.code import Executor, Limits
from batonflow.tools.policy import ToolErrors
from batonflow.tools.toolset import Toolset
from batonflow.values.serializers import BaseSerializer
from batonflow.workflow_core import Workflow
from batonflow.workflow_core.dependencies import RunInfo
from batonflow.workflow_core.engine.ports import RunStoreLike
from batonflow.workflow_core.options import Upcaster
from batonflow.workflow_core.step import WorkflowGraphCheck

__all__ = [
    "BT",
    "DT",
    "AgentOptions",
    "CodeActAgentOptions",
    "FunctionAgentOptions",
    "ReActAgentOptions",
    "T",
    "TeamOptions",
    "ToolChoice",
    "WorkflowOptions",
]

# Variables of the module, because a constructor cannot use those of its class for another type of itself.
T = TypeVar("T", default=Any)
BT = TypeVar("BT", bound=BaseModel, default=BaseModel)
DT = TypeVar("DT", default=object)


class WorkflowOptions(TypedDict, total=False):
    """The options of every workflow."""

    timeout: float | None
    verbose: bool
    store: str | PathLike[str] | RunStoreLike | None
    on_stall: Literal["warn", "raise", "wait"] | None
    on_abandon: Literal["stop", "continue"] | None
    timeout_excludes_waiting: bool | None
    num_concurrent_runs: int | None
    resource_manager: ResourceManager | None
    serializer: BaseSerializer | None
    version: str | None
    upcasters: Mapping[str, Upcaster] | None
    idle_release: float | None
    types: Iterable[type]
    workflows: Mapping[str, Workflow[Any]] | None
    workflow_name: str | None
    disable_validation: bool
    skip_graph_checks: set[WorkflowGraphCheck] | None
    store_streamed: bool
    debug: bool | None


class AgentOptions(WorkflowOptions, Generic[DT], total=False):
    """The options of every agent; None counts as left out."""

    name: str | None
    description: str | None
    system_prompt: str | None
    instructions: Instructions[DT] | None
    tools: Sequence[BaseTool | Callable[..., Any] | Toolset[DT]] | None
    tool_retriever: Any
    can_handoff_to: Sequence[str] | None
    llm: LLM | str | None
    initial_state: dict[str, Any] | None
    state: type[BaseModel] | BaseModel | None
    state_prompt: str | BasePromptTemplate | None
    output_retries: int | None
    structured_output_fn: Callable[[list[ChatMessage]], Any] | None
    streaming: bool | None
    early_stopping_method: EarlyStopping | None
    budget: Budget | None
    before_tool: Sequence[BeforeTool] | None
    after_tool: Sequence[AfterTool] | None
    input_guards: Sequence[Guard] | None
    output_guards: Sequence[Guard] | None
    middleware: Sequence[Middleware[DT]] | None
    memory: BaseMemory | None
    max_result_chars: int | None
    deps_for: Callable[[RunInfo], DT | Awaitable[DT]] | None
    tool_errors: ToolErrors | None


class FunctionAgentOptions(AgentOptions[DT], total=False):
    """The options of a FunctionAgent."""

    scratchpad_key: str | None
    initial_tool_choice: str | None
    tool_choice: ChoiceOfTools[DT] | None
    allow_parallel_tool_calls: bool | None


class ReActAgentOptions(AgentOptions[DT], total=False):
    """The options of a ReActAgent."""

    reasoning_key: str | None
    output_parser: Any
    formatter: ReActChatFormatter | None
    max_parse_retries: int | None


class CodeActAgentOptions(AgentOptions[DT], total=False):
    """The options of a CodeActAgent; ``code_execute_fn`` may also be given by position."""

    scratchpad_key: str | None
    executor: Executor | None
    limits: Limits | None
    code_act_system_prompt: str | BasePromptTemplate | None


class TeamOptions(WorkflowOptions, Generic[DT], total=False):
    """The options of an AgentWorkflow; the first ones may also be given by position."""

    state: type[BaseModel] | BaseModel | None
    handoff_prompt: str | BasePromptTemplate | None
    handoff_output_prompt: str | BasePromptTemplate | None
    state_prompt: str | BasePromptTemplate | None
    output_retries: int
    structured_output_fn: Callable[[list[ChatMessage]], Any] | None
    early_stopping_method: EarlyStopping
    max_handoffs: int | None
    budget: Budget | None
    handoff_carries: Carried
    middleware: Sequence[Middleware[DT]]
    memory: BaseMemory | None
    deps_for: Callable[[RunInfo], DT | Awaitable[DT]] | None
    tool_errors: ToolErrors
    name: str
    description: str
