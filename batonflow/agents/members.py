"""The agents of a loop: their interface, the rules for all agents, and checks of options."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args
from weakref import WeakKeyDictionary

from pydantic import BaseModel

# The version of typing_extensions does not read properties in isinstance() checks; reading some
# properties of a context within a step causes a warning.
from typing_extensions import Protocol as CheckableProtocol
from typing_extensions import runtime_checkable

from batonflow import agents as kinds
from batonflow.agents.budget import Budget
from batonflow.agents.events import HANDOFF_TOOL, AgentOutput, AgentWorkflowStartEvent, ToolCallResult
from batonflow.agents.hooks import AfterTool, BeforeTool, Guard
from batonflow.agents.memory import BaseMemory
from batonflow.agents.run_output import TEXT, TextOutput
from batonflow.lazy import at_first_use
from batonflow.llms import LLM, ChatMessage, ChatResponse, MessageRole
from batonflow.llms.prompts.base import placeholders
from batonflow.tools import AsyncBaseTool, ToolOutput
from batonflow.tools.policy import ToolErrors
from batonflow.user_warnings import warn_user
from batonflow.values.types import is_whole
from batonflow.workflow_core import Context
from batonflow.workflow_core.context import DictState, InMemoryStateStore

if TYPE_CHECKING:
    from batonflow.agents.output_types import TypedOutput

__all__ = [
    "CALLED",
    "DEFAULT_MAX_ITERATIONS",
    "HANDOFF_TOOL",
    "AgentContext",
    "CallTool",
    "EarlyStopping",
    "LoopSettings",
    "Member",
    "SimpleAgentContext",
    "Team",
    "check_form",
    "check_memory",
    "check_options",
    "check_output",
    "empty_output",
    "no_option",
    "output_of",
    "warn_of_misspelt",
    "warn_of_shared_name",
]

DEFAULT_MAX_ITERATIONS = 20

EarlyStopping = Literal["force", "generate"]

CallTool = Callable[[Context[Any], AsyncBaseTool, dict[str, Any]], Awaitable[ToolOutput]]
"""Calls a tool; an exception of the tool becomes an output."""

_BY_STORE: "WeakKeyDictionary[Any, dict[str, str]]" = WeakKeyDictionary()

_OPTIONS_OF_RUNS = (
    "user_msg", "chat_history", "memory", "ctx", "max_iterations", "early_stopping_method", "start_event", "budget",
    "run_id", "session", "request_id", "if_busy", "metadata",
)  # fmt: skip


# Only options that programs do not use as names of their own data.
_OPTIONS_OF_AGENTS = frozenset(
    ("tools", "tool_retriever", "system_prompt", "can_handoff_to", "root_agent", "max_handoffs",
     "handoff_carries", "output_type", "output_retries", "output_cls", "structured_output_fn",
     "state_prompt", "initial_state", "streaming",
     "before_tool", "after_tool", "input_guards", "output_guards", "max_result_chars", "tool_errors",
     "store", "on_abandon", "timeout", "idle_release", "num_concurrent_runs")
)  # fmt: skip

get_close_matches = at_first_use("difflib", "get_close_matches")


class Member(Protocol):
    """The interface of an agent for the loop; ``BaseWorkflowAgent`` explains its members."""

    name: str
    description: str
    system_prompt: str | None
    can_handoff_to: list[str] | None
    tool_retriever: Any
    output_cls: type[BaseModel] | None
    typed_output: "TypedOutput | None"
    structured_output_fn: Callable[[list[ChatMessage]], Any] | None
    early_stopping_method: EarlyStopping
    budget: Budget | None
    input_guards: Sequence[Guard]
    output_guards: Sequence[Guard]
    before_tool: Sequence[BeforeTool]
    after_tool: Sequence[AfterTool]
    max_result_chars: int | None
    tool_errors: ToolErrors
    instructions: Sequence[Any]
    middleware: Sequence[Any]
    streaming: bool
    __batonflow_varies__: bool  # whether toolsets or prepared tools are asked for anew before each request

    @property
    def reads_on(self) -> bool: ...
    @property
    def ends_by_tool(self) -> bool: ...
    def call_one_tool(
        self, ctx: Context[Any], tool: AsyncBaseTool, tool_input: dict[str, Any]
    ) -> Coroutine[Any, Any, ToolOutput]: ...
    def llm_or_none(self) -> LLM | None: ...
    def get_tools(self, input_str: str | None = None) -> Coroutine[Any, Any, Sequence[AsyncBaseTool]]: ...
    async def take_step(
        self, ctx: Context[Any], llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool], memory: BaseMemory
    ) -> AgentOutput: ...
    async def handle_tool_call_results(
        self, ctx: Context[Any], results: list[ToolCallResult], memory: BaseMemory
    ) -> None: ...
    async def finalize(self, ctx: Context[Any], output: AgentOutput, memory: BaseMemory) -> AgentOutput: ...
    async def answer_now(self, ctx: Context[Any], messages: list[ChatMessage]) -> ChatResponse: ...
    def as_shown_to_users(self, said: ChatMessage) -> ChatMessage: ...
    async def take_back(self, ctx: Context[Any]) -> None: ...
    async def reword(self, ctx: Context[Any], said: ChatMessage) -> None: ...
    async def remind(self, ctx: Context[Any], words: str, memory: BaseMemory) -> None: ...
    async def unfinished(self, ctx: Context[Any]) -> Sequence[Any]: ...


# The loop calls these methods by name, so steps of an agent cannot have these names.
CALLED = frozenset({"run", "trace_tags", "asking", "call_one_tool", "speaks_in", "the_llm"}) | {
    name for name, value in vars(Member).items() if callable(value) and not name.startswith("_")
}


@dataclass
class LoopSettings:
    """The settings of a loop for all of its agents.

    Args:
        root: The name of the agent that begins.
        llm: The root's model, if it has one.
        initial_state: The state at the beginning.
        early_stopping_method: The end after the last allowed step.
        output_cls: A model of the structured answer.
        structured_output_fn: Makes the structured answer from the messages.
        stored: Further values for the state store at the beginning.
    """

    root: str
    llm: LLM | None
    initial_state: dict[str, Any] | BaseModel
    early_stopping_method: EarlyStopping
    output_cls: type[BaseModel] | None = None
    structured_output_fn: Callable[[list[ChatMessage]], Any] | None = None
    stored: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Team:
    """The agents of a loop, with the defaults of a single agent.

    Args:
        loop: The agent or team that runs.
    """

    budget: Budget | None = None  # for each run of the whole team
    remembers_apart: bool = False  # whether each agent has a conversation of its own
    middleware: Sequence[Any] = ()  # of the whole team; that of an agent is inside
    tool_errors: ToolErrors = "tell"  # of the whole team
    dispatched: Mapping[str, Mapping[str, Any]] = {}  # see member_steps.py

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.points: dict[str, Any] = {}  # by agent; see middleware_points.py

    @property
    def declared(self) -> TextOutput:
        """The output that a run is declared to have."""
        typed, cls = self.loop.typed_output, self.loop.output_cls
        return typed or (TEXT if cls is None else kinds.FormOutput(cls))

    def settings(self) -> LoopSettings:
        """Return the settings of the loop."""
        raise NotImplementedError

    def member(self, name: str | None) -> Member:
        """Return the agent called ``name``; the root agent for unknown names."""
        raise NotImplementedError

    def state_template(self) -> str:
        """Return the prompt around the state; it has ``{state}`` and ``{msg}``."""
        return self.loop.state_prompt.partial_text()

    def all_tools(self) -> Sequence[Any]:
        """Return the tools of all agents."""
        return self.loop.tools

    def tools_for(self, agent: Member, text: str) -> Coroutine[Any, Any, Sequence[AsyncBaseTool]]:
        """Return the tools that an agent may call in a conversation about ``text``."""
        raise NotImplementedError

    def caller(self, agent: Member) -> CallTool | None:
        """Return the user's method that calls the tools of an agent, or None if it is not overridden."""
        raise NotImplementedError

    def may_hand_over(self, agent: Member, arguments: Mapping[str, Any]) -> bool:  # noqa: ARG002 - for other teams
        """Return whether a handoff of an agent is permitted; a single agent cannot hand over."""
        return False

    async def forgotten_handoff(self, ctx: Context[Any], agent: Member, answer: ChatMessage) -> str | None:  # noqa: ARG002
        """Return a reminder if an agent announces a handoff without calling the tool; otherwise None."""
        return None

    async def hand_over(self, ctx: Context[Any], agent: Member) -> str:  # noqa: ARG002 - for other teams
        """Return the name of the next agent; the same agent unless it has handed over."""
        return agent.name

    async def name_next(self, ctx: Context[Any]) -> None:
        """Note a handoff in the same answer as a direct tool."""

    async def begin(self, ctx: Context[Any], ev: AgentWorkflowStartEvent) -> None:
        """Prepare further state of a run."""

    async def memory(self, ctx: Context[Any], agent: Member) -> BaseMemory:  # noqa: ARG002 - for other teams
        """Return the conversation of an agent."""
        return await ctx.store.get("memory")

    async def with_knowledge(
        self,
        ctx: Context[Any],  # noqa: ARG002 - for other teams
        agent: Member,  # noqa: ARG002 - for other teams
        messages: list[ChatMessage],
        asked: str | None,  # noqa: ARG002 - for other teams
    ) -> list[ChatMessage]:
        """Return the messages of an agent's memory with the knowledge of the team's memory."""
        return messages

    async def end(self, ctx: Context[Any], output: AgentOutput) -> None:
        """Keep the answer of a run."""


def empty_output(agent: Member) -> AgentOutput:
    """Return an empty answer of an agent."""
    return AgentOutput(response=ChatMessage("", role=MessageRole.ASSISTANT), current_agent_name=agent.name)


async def output_of(running: Any, agent: Member, method: str) -> AgentOutput:
    """Await a method of an agent, and return its output.

    Args:
        running: The result of calling the method.
        agent: The agent.
        method: The name of the method.

    Raises:
        TypeError: The method is not a coroutine function, or its result is not an output.
    """
    kind = type(agent).__name__
    if not inspect.isawaitable(running):
        raise TypeError(f"{kind}.{method} is not a coroutine function: write it with `async def`")
    output = await running
    if not isinstance(output, AgentOutput):
        raise TypeError(f"{kind}.{method} returned {type(output).__name__}, not an AgentOutput")
    if not output.current_agent_name:
        output.current_agent_name = agent.name
    return output


@runtime_checkable
class AgentContext(CheckableProtocol):
    """The interface of a ``Context`` for ``take_step`` of an agent; it supports ``isinstance``.

    Example:
        >>> isinstance(SimpleAgentContext(), AgentContext)
        True
    """

    @property
    def store(self) -> InMemoryStateStore[Any]:
        """The key-value state."""
        ...

    @property
    def is_running(self) -> bool:
        """The state of the run: True while it is running."""
        ...

    def write_event_to_stream(self, ev: Any) -> None:
        """Append an event to the stream of the run."""
        ...


def _empty() -> InMemoryStateStore[DictState]:
    return InMemoryStateStore(DictState())


@dataclass(frozen=True)
class SimpleAgentContext:
    """A context without a run: it keeps state, and drops streamed events.

    Args:
        store: The key-value state, empty at first.
        is_running: False, as there is no run.

    Example:
        >>> ctx = SimpleAgentContext()
        >>> output = await agent.take_step(ctx, [ChatMessage("What is 2 + 40?")], tools, memory)
    """

    store: InMemoryStateStore[Any] = field(default_factory=_empty)
    is_running: bool = False

    def write_event_to_stream(self, ev: Any) -> None:
        """Do nothing, because there are no readers."""


def check_options(max_iterations: Any = None, early_stopping_method: Any = None, budget: Any = None) -> None:
    """Refuse invalid options of a run or a team; None counts as left out.

    Raises:
        ValueError: A value is not allowed.
    """
    if max_iterations is not None and not is_whole(max_iterations, least=1):
        raise ValueError(f"max_iterations is a whole number from 1 on, not {max_iterations!r}")
    if early_stopping_method is not None and early_stopping_method not in get_args(EarlyStopping):
        raise ValueError(f"early_stopping_method is 'force' or 'generate', not {early_stopping_method!r}")
    if budget is not None and not isinstance(budget, Budget):
        raise ValueError(f"budget is a Budget(...), for example Budget(max_tokens=50_000), not {budget!r}")


def check_output(initial_state: Any = None, output_cls: Any = None, structured_output_fn: Any = None) -> None:
    """Refuse invalid options for a team's state and answer; None counts as left out.

    Raises:
        ValueError: A value is not allowed.
    """
    if initial_state is not None and not isinstance(initial_state, dict):
        raise ValueError(f"initial_state is a dict, not {initial_state!r}")
    if output_cls is not None and not (isinstance(output_cls, type) and issubclass(output_cls, BaseModel)):
        raise ValueError(f"output_cls is a class of pydantic models, not {output_cls!r}")
    check_form(output_cls)
    if structured_output_fn is not None and not callable(structured_output_fn):
        raise ValueError(f"structured_output_fn is a function that is given the messages, not {structured_output_fn!r}")


def check_form(output_cls: type[BaseModel] | None) -> None:
    """Refuse a model that is not a JSON object, as required by vendors and ``output.structured_response``.

    Raises:
        ValueError: The model is a list, a text or a number.
    """
    if output_cls is not None and "root" in output_cls.model_fields and not _is_object(output_cls):
        raise ValueError(
            f"output_cls {output_cls.__name__} is not an object in JSON but "
            f"{output_cls.model_fields['root'].annotation}: "
            "write a model that has it as a field"
        )


def _is_object(model: type[BaseModel]) -> bool:
    if not model.__pydantic_root_model__:
        return True
    schema = model.model_json_schema()
    while "$ref" in schema:
        schema = {**schema, **schema["$defs"][schema["$ref"].rpartition("/")[2]]}
        del schema["$ref"]
    kinds = [schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return any(one.get("type") == "object" or "$ref" in one for one in kinds)


def check_name(name: Any) -> str:
    """Return the name of an agent.

    Raises:
        ValueError: The name is empty.
    """
    if not isinstance(name, str):
        raise ValueError(f"name identifies the agent in events and in a team: it is a text, not {name!r}")
    if not name.strip():
        raise ValueError("name identifies the agent in events and in a team: it cannot be empty")
    return name


def check_memory(memory: Any) -> BaseMemory | None:
    """Return the memory that is the pattern of an agent's sessions.

    Raises:
        ValueError: The value is not a memory.
    """
    if memory is not None and not isinstance(memory, BaseMemory):
        raise ValueError(f"memory is a memory such as Memory(memory_blocks=[...]), not {memory!r:.100}")
    return memory


def check_prompt(name: str, prompt: str, *needed: str) -> None:
    """Refuse a prompt without its placeholders.

    Raises:
        ValueError: A placeholder is missing.
    """
    missing = [one for one in needed if one not in placeholders(prompt)]
    if missing:
        raise ValueError(f"{name} must contain {' and '.join(f'{{{one}}}' for one in missing)}")


def no_option(kind: str, name: str, options: Iterable[str]) -> str:
    """Return the text of the error for an unknown option."""
    if name in _OPTIONS_OF_RUNS:
        return f"{kind} has no option {name}: it is one of run({name}=...)"
    near = get_close_matches(name, list(options), n=1)
    return f"{kind} has no option {name}" + (f": is {near[0]} meant?" if near else "")


def warn_of_shared_name(workflow: Any, who: str) -> None:
    """Warn if another agent or team has the same store and default name. It could take up the runs.

    Args:
        workflow: The agent or team.
        who: Its name, and the names of the members of a team.
    """
    options, cls = workflow.__batonflow__, cast("type[Any]", type(workflow))
    if options.store is None or options.workflow_name != f"{cls.__module__}.{cls.__qualname__}":
        return
    first = _BY_STORE.setdefault(options.store, {}).setdefault(options.workflow_name, who)
    if first != who:
        warn_user(
            f"{first} and {who} share a store and the workflow name {options.workflow_name}, so that one may take up "
            "the runs and sessions of the other: give each a workflow_name="
        )


def warn_of_misspelt(names: Iterable[str], kind: str) -> None:
    """Warn of values of a run that look like misspelt options."""
    for problem in misspelt_options(names, kind):
        warn_user(problem)


def misspelt_options(names: Iterable[str], kind: str) -> Iterator[str]:
    """Yield a text for each value of a run that looks like a misspelt option.

    Args:
        names: The names of the values.
        kind: The class of the agent or team.
    """
    for name in names:
        if name in _OPTIONS_OF_AGENTS:
            yield f"run({name}=...) changes nothing: {name} is given to {kind}(...)"
            continue
        for meant in get_close_matches(name, _OPTIONS_OF_RUNS, n=1, cutoff=0.75):
            # A name that extends the name of an option is not a mistake.
            if name != meant and not name.startswith(f"{meant}_"):
                yield f"run() ignores unknown option {name!r}. Did you mean {meant!r}?"
