"""``check``: check a workflow or an agent without running it or calling a model."""

import os
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, cast

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from batonflow.agents import AgentWorkflow, BaseWorkflowAgent
from batonflow.agents.running import refuse_itself
from batonflow.cli.errors import DONE, FAILED
from batonflow.cli.loading import load_workflow
from batonflow.cli.output import say, say_json
from batonflow.llms.tool_protocol import not_a_tool
from batonflow.tools import BaseTool
from batonflow.workflow_core.errors import BatonflowError
from batonflow.workflow_core.validation.validate import validate_workflow
from batonflow.workflow_core.workflow import Workflow

__all__ = ["check"]

# Models need a key when they are created; here they are created and never called.
_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY")
_NO_KEY = "not-used-by-check"


def check(given: Namespace) -> int:
    """Check a workflow or an agent."""
    missing = [name for name in _KEYS if not os.environ.get(name)]
    os.environ.update(dict.fromkeys(missing, _NO_KEY))
    try:
        checks = _Checks()
        checks.workflow(load_workflow(given.object), "")
    finally:
        for name in missing:
            del os.environ[name]
    if given.json:
        say_json(
            {"object": given.object, "ok": not checks.problems, "problems": checks.problems, "checked": checks.passed}
        )
    else:
        for passed in checks.passed:
            say(f"ok       {passed}")
        for problem in checks.problems:
            say(f"problem  {problem}")
    return FAILED if checks.problems else DONE


class _Checks:
    """The passed checks and the problems."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.problems: list[str] = []

    def _note(self, passed: str, problems: list[str]) -> None:
        if problems:
            self.problems += problems
        else:
            self.passed.append(passed)

    def workflow(self, workflow: Workflow, path: str) -> None:
        """Check a workflow with its agents and the workflows attached to it."""
        name = path or type(workflow).__name__
        try:
            asks = validate_workflow(workflow)
        except (BatonflowError, ValueError, TypeError, OSError) as error:
            self.problems.append(f"graph of {name}: {error}")
        else:
            of_class = workflow.__batonflow__.steps
            steps = list(of_class.table.steps)
            people = ", asks people" if asks else ""
            start, stop = of_class.start_event_class.__name__, of_class.stop_event_class.__name__
            self.passed.append(f"graph of {name}: {len(steps)} steps, from {start} to {stop}{people}")
        members = _members(workflow)
        for member in members:
            self._agent(member)
        if isinstance(workflow, AgentWorkflow):
            team = cast("AgentWorkflow[Any, Any]", workflow)
            self._handoffs(team)
            self._output(team, f"team {workflow.name}")
        for inner, attached in workflow.__batonflow__.children.items():
            if attached not in members:
                self.workflow(attached, f"{path}/{inner}" if path else inner)

    # --- agents -------------------------------------------------------------------------------------------------------

    def _agent(self, agent: Any) -> None:
        name = f"agent {agent.name}"
        tools = list(getattr(agent, "tools", ()))
        problems = [f"{name}: {problem}" for tool in tools for problem in _tool_problems(tool)]
        try:
            refuse_itself(agent, tools)
        except ValueError as error:
            problems.append(f"{name}: {error}")
        names = f" ({', '.join(str(tool.metadata.get_name()) for tool in tools)})" if tools and not problems else ""
        self._note(f"{name}: {len(tools)} tool{'' if len(tools) == 1 else 's'}{names}", problems)
        self._output(agent, name)

    def _output(self, agent: Any, name: str) -> None:
        cls: type[BaseModel] | None = getattr(agent, "output_cls", None)
        if cls is None:
            return
        try:
            cls.model_json_schema()
        except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
            self.problems.append(f"{name}: output_cls {cls.__name__} has no JSON Schema: {error}")
        else:
            self.passed.append(f"{name}: answers as {cls.__name__}")

    def _handoffs(self, team: AgentWorkflow[Any, Any]) -> None:
        names = list(team.agents)
        ways: dict[str, list[str]] = {}
        problems: list[str] = []
        for agent in team.agents.values():
            allowed = (
                [one for one in names if one != agent.name] if agent.can_handoff_to is None else agent.can_handoff_to
            )
            unknown = [one for one in allowed if one not in names]
            problems += [f"agent {agent.name} can hand off to {one}, which is not in the team" for one in unknown]
            ways[agent.name] = [one for one in allowed if one in names]
        found, front = {team.root_agent}, [team.root_agent]
        while front:
            fresh = [one for one in ways[front.pop()] if one not in found]
            found.update(fresh)
            front += fresh
        problems += [f"agent {one} is never handed over to from {team.root_agent}" for one in names if one not in found]
        handoffs = "; ".join(f"{name} to {', '.join(to)}" for name, to in ways.items() if to) or "no handoffs"
        self._note(f"handoffs from {team.root_agent}: {handoffs}", problems)


def _members(workflow: Workflow) -> list[Any]:
    if isinstance(workflow, AgentWorkflow):
        return list(workflow.agents.values())
    return [workflow] if isinstance(workflow, BaseWorkflowAgent) else []


def _tool_problems(tool: Any) -> Iterator[str]:
    if not isinstance(tool, BaseTool):
        yield not_a_tool(tool)
        return
    name = tool.metadata.get_name()
    if not tool.metadata.description:
        yield f"tool {name} has no description: the model cannot know its purpose"
    try:
        tool.metadata.get_parameters_dict()
    except (PydanticInvalidForJsonSchema, PydanticUserError, TypeError, ValueError) as error:
        yield f"tool {name} has no JSON Schema: {error}"
