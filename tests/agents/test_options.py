"""The options that type checkers know are those that agents and teams have."""

import inspect
from dataclasses import InitVar
from typing import get_type_hints

import pytest

from batonflow import AgentWorkflow, CodeActAgent, FunctionAgent, ReActAgent, ScriptedLLM, Workflow
from batonflow.agents import options
from batonflow.agents.base import WORKFLOW_OPTIONS, BaseWorkflowAgent

DECLARED_APART = {"deps_type", "output_cls", "output_type"}
"""Options that the overloads of the constructors name."""


def names_of(cls):
    return set(get_type_hints(cls))


def test_the_options_of_workflows():
    real = set(inspect.signature(Workflow.__init__).parameters) - {"self", "runtime"}
    assert names_of(options.WorkflowOptions) == real == set(WORKFLOW_OPTIONS)


@pytest.mark.parametrize(
    ("kind", "declared", "by_position"),
    [
        (BaseWorkflowAgent, options.AgentOptions, set()),
        (FunctionAgent, options.FunctionAgentOptions, set()),
        (ReActAgent, options.ReActAgentOptions, set()),
        (CodeActAgent, options.CodeActAgentOptions, {"code_execute_fn"}),
    ],
)
def test_the_options_of_agents(kind, declared, by_position):
    real = set(kind.model_fields) | set(WORKFLOW_OPTIONS) | {"state"}
    assert names_of(declared) == real - DECLARED_APART - by_position


def test_the_options_of_teams():
    real = set(inspect.signature(AgentWorkflow.__init__).parameters) - {"self", "options"} | set(WORKFLOW_OPTIONS)
    assert names_of(options.TeamOptions) == real - DECLARED_APART - {"agents", "initial_state", "root_agent"}


def test_the_constructors_of_subclasses_know_the_options_that_are_no_fields():
    text = inspect.getsource(BaseWorkflowAgent)
    known = {name for name in WORKFLOW_OPTIONS if f"        {name}: {InitVar.__name__}[" in text}
    properties = {name for name in WORKFLOW_OPTIONS if hasattr(inspect.getattr_static(Workflow, name, None), "__get__")}
    assert known | properties == set(WORKFLOW_OPTIONS)
    assert not known & properties


@pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
def test_an_option_that_is_none_counts_as_left_out(kind):
    given = dict.fromkeys(names_of(options.AgentOptions) - set(WORKFLOW_OPTIONS) - {"llm", "max_result_chars"})
    left_out = kind(llm=ScriptedLLM(["hi"]), workflow_name="one")
    agent = kind(llm=left_out.llm, workflow_name="one", **given)
    assert agent.name == left_out.name
    assert agent.tools == left_out.tools
