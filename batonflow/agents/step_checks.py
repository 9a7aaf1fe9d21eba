"""Checks of steps that programs add to agents and teams. They run at class creation and team construction."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from batonflow.user_warnings import warn_user
from batonflow.workflow_core.errors import WorkflowValidationError
from batonflow.workflow_core.events import Event, InputRequiredEvent, StopEvent
from batonflow.workflow_core.routing import StepSpec, StepTable, steps_of
from batonflow.workflow_core.step import StepConfig

__all__ = ["check_step", "checked_overrides", "warn_of_member_steps"]

_DECORATIONS = ("num_workers", "retry_policy", "timeout")


def checked_overrides(cls: Any, loop: Any) -> Mapping[str, str]:
    """Return the steps of the loop that a class overrides, with the names of its steps.

    Args:
        cls: The class of an agent or a team.
        loop: The class with the steps of the loop.

    Raises:
        WorkflowValidationError: A method hides a step, or a step would run beside a step of the loop.
    """
    _refuse_hidden_steps(cls)
    of_loop, own = steps_of(loop).functions(), steps_of(cls).functions()
    overrides: dict[str, str] = {}
    for name, function in own.items():
        if function is of_loop.get(name):
            continue
        check_step(cls.__name__, name, function, of_loop)
        replaced = function._step_config.replaces or name
        if replaced not in of_loop and replaced not in own:
            raise WorkflowValidationError(
                f"Step {name} of {cls.__name__} has replaces={replaced!r}, which is not a step: the steps of the loop "
                f"are {', '.join(of_loop)}"
            )
        if replaced in of_loop:
            overrides[replaced] = name
    return overrides


def _refuse_hidden_steps(cls: Any) -> None:
    seen: set[str] = set()
    bases: tuple[type, ...] = cls.__mro__
    for base in reversed(bases):
        for name, value in vars(base).items():
            if hasattr(value, "_step_config"):
                seen.add(name)
            elif name in seen and callable(value):
                raise WorkflowValidationError(f"{name} of {base.__name__} hides a step: decorate it with @step")


def check_step(owner: str, name: str, function: Any, of_loop: Mapping[str, Any]) -> None:
    """Refuse a step that takes and returns events of the loop. The step of the loop would run too.

    Args:
        owner: The name of the class.
        name: The name of the step.
        function: The step.
        of_loop: The steps of the loop by name.

    Raises:
        WorkflowValidationError: The step would double a step of the loop.
    """
    config: StepConfig = function._step_config
    if name in of_loop or config.replaces is not None:
        return
    events = {accepted: step for step, one in of_loop.items() for accepted in one._step_config.accepted_events}
    taken = [event for event in events if _takes(config, event)]
    returned = [event for event in config.return_types if event in events]
    if taken and returned:
        doubled = events[taken[0]]
        raise WorkflowValidationError(
            f"Step {name} of {owner} takes {taken[0].__name__} and returns {returned[0].__name__}, so it would run "
            f"beside the step {doubled} of the loop: decorate it with @step(replaces={doubled!r}), or call it {doubled}"
        )


def _takes(config: StepConfig, event: type) -> bool:
    accepted = config.accepted_events
    return issubclass(event, tuple(accepted)) if config.accept_event_subclasses else event in accepted


def warn_of_member_steps(team: Any, agents: Mapping[str, Any], loop: Any) -> None:
    """Warn of steps of members, and of their decorations, that have no effect in a team.

    Args:
        team: The team.
        agents: Its members by name.
        loop: The class with the steps of the loop.
    """
    of_loop = steps_of(loop).table.steps
    table: StepTable = team.__batonflow__.steps.table
    children = team.__batonflow__.children.values()
    known = {event for child in children for event in child.__batonflow__.steps.entry_events}
    for name, agent in agents.items():
        kind: Any = agent.__class__
        own, overrides = steps_of(kind).table, kind.__batonflow_overrides__
        for step in overrides.values():
            for problem in _problems(own.steps[step], table, known):
                warn_user(f"Step {step} of agent {name} {problem}")
        for step, spec in own.steps.items():
            of_team = table.steps.get(step)
            if step in of_loop or step in overrides.values() or (of_team is not None and of_team.func is spec.func):
                continue
            warn_user(
                f"Step {step} of agent {name} does not run in a team: put it into the class of the team, or give the "
                f"agent to another one as a tool with as_tool()"
            )


def _problems(spec: StepSpec, table: StepTable, known: Iterable[type]) -> Iterator[str]:
    config = spec.config
    usual = {"num_workers": 4, "retry_policy": None, "timeout": None}
    given = [option for option in _DECORATIONS if getattr(config, option) != usual[option]]
    if given:
        yield f"has {', '.join(given)} in its decorator, which does not act in a team: decorate a step of the team"
    if config.list_return_types:
        yield "returns a list, which the same step of a team cannot: send the events with ctx.send_event"
    for event in config.return_types:
        if not issubclass(event, Event) or issubclass(event, StopEvent | InputRequiredEvent):
            continue
        if event not in known and not table.route(event).accepted:
            yield f"may return {event.__name__}, which no step of the team takes"
