"""Options of one run: ``run(llm=..., instructions=..., tool_choice=...)``.

The texts among them are recorded with the run. Objects, such as models and functions, are kept in this process, as
dependencies are: a run that goes on in another process is given them anew, or it goes on without them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batonflow.agents.instructions import checked_instructions
from batonflow.agents.ledger import RUN_OPTIONS, options_given, request_changes
from batonflow.instrumentation.logs import in_words, logger_named
from batonflow.llms import LLM
from batonflow.llms.settings import llm_from

__all__ = ["RunOptions", "choice_of_run", "instructions_of_run", "llm_of_run", "options_of_run"]

logger = logger_named("batonflow.agent")

_REPLACED = {"llm": "the agent's own model", "tool_choice": "the agent's own choice", "instructions": "fewer of them"}


@dataclass(frozen=True)
class RunOptions:
    """The options of a run.

    Args:
        recorded: The part that is recorded with the run.
        objects: The values, for this process.
    """

    recorded: dict[str, Any]
    objects: dict[str, Any]

    def recorded_in(self, event: Any) -> Any:
        """Return a copy of a start event with the part that is recorded."""
        event = event.model_copy(deep=False)
        event._data = {**event.to_dict(), RUN_OPTIONS: self.recorded}
        return event

    def give_to(self, handler: Any) -> None:
        """Keep the values for the run of a handler in this process."""
        options_given.setdefault(handler.ctx.run, {}).update(self.objects)


def options_of_run(loop: Any, given: dict[str, Any]) -> RunOptions | None:
    """Return the options of a run; None without any.

    Args:
        loop: The agent or team that runs.
        given: The options by name; None counts as left out.

    Raises:
        ValueError: A value is not allowed; the message names the option.
    """
    objects = {name: value for name, value in given.items() if value is not None}
    recorded: dict[str, Any] = {}
    if "llm" in objects:
        objects["llm"] = _model(objects["llm"])
    if "instructions" in objects:
        objects["instructions"] = checked_instructions(objects["instructions"])
        recorded["instructions"] = [one if isinstance(one, str) else None for one in objects["instructions"]]
    if "tool_choice" in objects:
        _check_choice(loop, objects["tool_choice"])
    for name in ("llm", "tool_choice"):
        if isinstance(given.get(name), str):
            recorded[name] = given[name]
    lost = [name for name in objects if name not in recorded or (name == "instructions" and None in recorded[name])]
    if lost:
        recorded["objects"] = lost
    return RunOptions(recorded, objects) if objects else None


def _model(llm: Any) -> LLM:
    if isinstance(llm, str):
        return llm_from(llm)
    if not isinstance(llm, LLM):
        raise ValueError(f'llm of a run is a model or its name, for example "openai:gpt-5.6", not {llm!r}')
    return llm


def _check_choice(loop: Any, choice: Any) -> None:
    if not isinstance(choice, str) and not callable(choice):
        raise ValueError(f"tool_choice is 'auto', 'required', 'none', the name of a tool or a function, not {choice!r}")
    agents = getattr(loop, "agents", None)
    members: Sequence[Any] = [loop] if agents is None else list(agents.values())
    if not any(hasattr(one, "tool_choice") for one in members):
        raise ValueError(f"tool_choice is an option of FunctionAgent; {type(members[0]).__name__} does not take it")


def llm_of_run(run: Any, agent: Any, own: LLM | None) -> LLM | None:
    """Return the model of an agent in a run: that of the run, or its own.

    Args:
        run: The run of the step around this code.
        agent: The agent.
        own: Its own model.
    """
    team = getattr(run.workflow, "__batonflow_team__", None)
    if team is None or team.member(agent.name) is not agent:  # an agent inside another run, with a run of its own
        return own
    given = options_given.get(run, {}).get("llm") or request_changes(run).get("llm") or _given(run, "llm", own)
    if isinstance(given, str):
        given = options_given.setdefault(run, {})["llm"] = llm_from(given)
    return given


def instructions_of_run(run: Any) -> Sequence[Any]:
    """Return the instructions of a run. For functions of another process, their texts are in the run's state."""
    texts: Sequence[str | None] = _recorded(run).get("instructions", ())
    # In the place of a function stands one without a text, so the recorded texts keep their places.
    return _given(run, "instructions", [(lambda: None) if one is None else one for one in texts])


def choice_of_run(run: Any, own: Any) -> Any:
    """Return the choice of tools of a run, a value or a function. The default is the choice of the agent."""
    return _given(run, "tool_choice", own)


def _given(run: Any, name: str, own: Any) -> Any:
    kept, recorded = options_given.get(run, {}), _recorded(run)
    if name in kept:
        return kept[name]
    if name in recorded.get("objects", ()) and f"no {name}" not in kept:
        options_given.setdefault(run, {})[f"no {name}"] = True  # warned of once
        text = "%s was started with run(%s=...), which cannot be recorded; it goes on with %s: give it to resume()"
        logger.warning(text, in_words(f"run {run.state.run_id}"), name, _REPLACED[name])
    return own if name == "instructions" else recorded.get(name, own)


def _recorded(run: Any) -> dict[str, Any]:
    kept: dict[str, Any] = run.cell.state.__pydantic_extra__ or {}
    return kept.get(RUN_OPTIONS) or {}
