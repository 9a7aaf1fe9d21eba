"""Who takes part in an agent's loop, and what holds for all of them."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from pydantic import BaseModel

from batonflow.agents.budget import Budget
from batonflow.agents.calling import Caller
from batonflow.agents.events import HANDOFF_TOOL, AgentOutput, ToolCallResult
from batonflow.agents.hooks import Guard
from batonflow.agents.memory import BaseMemory
from batonflow.lazy import at_first_use
from batonflow.llms import LLM, ChatMessage, ChatResponse
from batonflow.llms.prompts.base import placeholders
from batonflow.tools import AsyncBaseTool
from batonflow.user_warnings import warn_user
from batonflow.workflow_core import Context
from batonflow.workflow_core.types import is_whole

__all__ = [
    "CALLED",
    "HANDOFF_TOOL",
    "EarlyStopping",
    "Member",
    "Team",
    "check_form",
    "check_options",
    "check_output",
    "no_option",
    "warn_of_misspelt",
]

EarlyStopping = Literal["force", "generate"]

_OPTIONS_OF_RUNS = (
    "user_msg", "chat_history", "memory", "ctx", "max_iterations", "early_stopping_method", "start_event", "budget",
    "run_id",
)  # fmt: skip


# Of those that nobody gives to a run as a value of the program's own.
_OPTIONS_OF_AGENTS = frozenset(
    ("llm", "tools", "tool_retriever", "system_prompt", "can_handoff_to", "root_agent", "max_handoffs",
     "handoff_carries", "output_cls", "structured_output_fn", "state_prompt", "initial_state", "streaming",
     "before_tool", "after_tool", "input_guards", "output_guards", "max_result_chars", "store", "timeout",
     "idle_release", "num_concurrent_runs")
)  # fmt: skip

get_close_matches = at_first_use("difflib", "get_close_matches")


class Member(Caller, Protocol):
    """What the loop asks of an agent; each of these is explained at ``BaseWorkflowAgent``."""

    description: str
    system_prompt: str | None
    can_handoff_to: list[str] | None
    tool_retriever: Any
    output_cls: type[BaseModel] | None
    structured_output_fn: Callable[[list[ChatMessage]], Any] | None
    early_stopping_method: EarlyStopping
    budget: Budget | None
    input_guards: Sequence[Guard]
    output_guards: Sequence[Guard]

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
    async def remind(self, ctx: Context[Any], words: str, memory: BaseMemory) -> None: ...
    async def unfinished(self, ctx: Context[Any]) -> Sequence[Any]: ...


# What the loop and what is around it call by these names: no step of an agent can have one.
CALLED = frozenset({"run", "trace_tags", "asking", "call_one_tool", "speaks_in", "the_llm"}) | {
    name for name, value in vars(Member).items() if callable(value) and not name.startswith("_")
}


@dataclass
class Team:
    """What holds for all who take part in a loop.

    Args:
        root: The member that begins.
        llm: The root's model, if it has one.
        initial_state: What the state is at the beginning.
        early_stopping_method: What happens after the last allowed step.
        output_cls: A model of the structured answer.
        structured_output_fn: Makes the structured answer from the messages.
        stored: What else lies in the state store at the beginning.
    """

    root: str
    llm: LLM | None
    initial_state: dict[str, Any]
    early_stopping_method: EarlyStopping
    output_cls: type[BaseModel] | None = None
    structured_output_fn: Callable[[list[ChatMessage]], Any] | None = None
    stored: Mapping[str, Any] = field(default_factory=dict[str, Any])


def check_options(max_iterations: Any = None, early_stopping_method: Any = None, budget: Any = None) -> None:
    """Refuse what a run or a team cannot be given; None is what is left out.

    Raises:
        ValueError: A value is not what it may be.
    """
    if max_iterations is not None and not is_whole(max_iterations, least=1):
        raise ValueError(f"max_iterations is a whole number from 1 on, not {max_iterations!r}")
    if early_stopping_method is not None and early_stopping_method not in get_args(EarlyStopping):
        raise ValueError(f"early_stopping_method is 'force' or 'generate', not {early_stopping_method!r}")
    if budget is not None and not isinstance(budget, Budget):
        raise ValueError(f"budget is a Budget(...), for example Budget(max_tokens=50_000), not {budget!r}")


def check_output(initial_state: Any = None, output_cls: Any = None, structured_output_fn: Any = None) -> None:
    """Refuse what a team cannot begin with or answer in; None is what is left out.

    Raises:
        ValueError: A value is not what it may be.
    """
    if initial_state is not None and not isinstance(initial_state, dict):
        raise ValueError(f"initial_state is a dict, not {initial_state!r}")
    if output_cls is not None and not (isinstance(output_cls, type) and issubclass(output_cls, BaseModel)):
        raise ValueError(f"output_cls is a class of pydantic models, not {output_cls!r}")
    check_form(output_cls)
    if structured_output_fn is not None and not callable(structured_output_fn):
        raise ValueError(f"structured_output_fn is a function that is given the messages, not {structured_output_fn!r}")


def check_form(output_cls: type[BaseModel] | None) -> None:
    """Refuse a model that is no object in JSON, as vendors and ``output.structured_response`` need it.

    Raises:
        ValueError: It is a list, a text or a number.
    """
    if output_cls is not None and "root" in output_cls.model_fields and not _is_object(output_cls):
        raise ValueError(
            f"output_cls {output_cls.__name__} is no object in JSON but {output_cls.model_fields['root'].annotation}: "
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
    """The name of an agent.

    Raises:
        ValueError: It says nothing.
    """
    if not isinstance(name, str):
        raise ValueError(f"name is what the agent is called in events and in a team: a text, not {name!r}")
    if not name.strip():
        raise ValueError("name is what the agent is called in events and in a team: it cannot be empty")
    return name


def check_prompt(name: str, prompt: str, *needed: str) -> None:
    """Refuse a prompt that would not show what it is for.

    Raises:
        ValueError: A placeholder is missing.
    """
    missing = [one for one in needed if one not in placeholders(prompt)]
    if missing:
        raise ValueError(f"{name} must contain {' and '.join(f'{{{one}}}' for one in missing)}")


def no_option(kind: str, name: str, options: Iterable[str]) -> str:
    """What to say of an option that agents do not have."""
    if name in _OPTIONS_OF_RUNS:
        return f"{kind} has no option {name}: it is one of run({name}=...)"
    near = get_close_matches(name, list(options), n=1)
    return f"{kind} has no option {name}" + (f": is {near[0]} meant?" if near else "")


def warn_of_misspelt(names: Iterable[str], kind: str) -> None:
    """Say so when what a run is given beside its options looks like one of them: it would go unnoticed.

    Args:
        names: What it is given.
        kind: What the run is of.
    """
    for name in names:
        if name in _OPTIONS_OF_AGENTS:
            warn_user(f"run({name}=...) changes nothing: {name} is given to {kind}(...)")
            continue
        for meant in get_close_matches(name, _OPTIONS_OF_RUNS, n=1, cutoff=0.75):
            # A name that only goes on behind an option's is one of the program's own.
            if name != meant and not name.startswith(f"{meant}_"):
                warn_user(f"run({name}=...) is no option of a run and changes nothing: is {meant} meant?")
