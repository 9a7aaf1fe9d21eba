"""Steps of members: in a team, a step of the loop calls the override of the acting member."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from batonflow.agents.members import Member, Team
from batonflow.threads import call_in_thread
from batonflow.workflow_core import Context
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.routing import StepSpec, steps_of

__all__ = ["StepResult", "acting_team", "call_member_step", "overrides_of_members"]

MemberSteps = Mapping[str, Mapping[str, StepSpec]]
"""The overrides of members: by step of the loop, then by name of the member."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a member's override.

    Args:
        value: An event or None.
    """

    value: Any


def overrides_of_members(agents: Mapping[str, Any]) -> MemberSteps:
    """Return the overrides of the members of a team.

    Args:
        agents: The members by name.
    """
    found: dict[str, dict[str, StepSpec]] = {}
    for name, agent in agents.items():
        kind: Any = agent.__class__
        table = steps_of(kind).table
        for of_loop, own in kind.__batonflow_overrides__.items():
            found.setdefault(of_loop, {})[name] = table.steps[own]
    return found


async def acting_team(loop: Any, step: str, ctx: Context[Any], ev: Event) -> Team | StepResult:
    """Call the override of the acting member; without one, return the team for the step of the loop.

    Args:
        loop: The agent or team with the step. It is a member of the running team when ``super()`` is called in an
            override.
        step: The name of the step.
        ctx: The run's context, inside a step.
        ev: The event of the step.
    """
    own: Team = loop.__batonflow_team__
    running: Any = None if ctx.run is None else ctx.run.workflow
    if running is not loop:
        around: Team | None = getattr(running, "__batonflow_team__", None)
        is_member = any(one is loop for one in getattr(running, "agents", {}).values())
        return around if around is not None and is_member else own
    overrides = own.dispatched[step]
    if not overrides:
        return own  # an agent that is a member of a team runs alone
    member = await _acting(own, ctx, ev)
    spec = overrides.get(member.name)
    return own if spec is None else StepResult(await _call(spec, member, ctx, ev))


async def call_member_step(team: Any, overrides: MemberSteps, step: str, ctx: Context[Any], ev: Event) -> Any:
    """Call a step of the acting member of a team: its override, or the step of the loop.

    Args:
        team: The team that runs.
        overrides: The overrides of its members.
        step: The name of the step of the loop.
        ctx: The run's context, inside a step.
        ev: The event of the step.
    """
    member = await _acting(team.__batonflow_team__, ctx, ev)
    spec = overrides.get(step, {}).get(member.name)
    if spec is not None:
        return await _call(spec, member, ctx, ev)
    return await getattr(member, step)(ctx, ev)


async def _acting(team: Team, ctx: Context[Any], ev: Event) -> Member:
    """Return the member that an event names, or else the current member of the run."""
    name: str | None = getattr(ev, "current_agent_name", None)
    return team.member(name or await ctx.store.get("current_agent_name", default=None))


async def _call(spec: StepSpec, member: Any, ctx: Context[Any], ev: Event) -> Any:
    arguments: dict[str, Any] = {spec.config.event_name: ev}
    if spec.context_name is not None:
        wanted = spec.config.context_state_type
        arguments[spec.context_name] = ctx if wanted is None else ctx.with_state_type(wanted)
    if spec.resources and ctx.run is not None:
        arguments.update(await ctx.run.resources(spec))
    call = partial(spec.func, **arguments) if spec.is_free else partial(spec.func, member, **arguments)
    return await (call() if spec.is_async else call_in_thread(call, f"Step {spec.name}"))
