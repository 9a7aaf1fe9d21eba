"""Configuration files are read before a run: a missing or wrong one is named with its step and parameter."""

import json
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel

from batonflow.workflow_core import (
    Resource,
    ResourceConfig,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowValidationError,
    step,
)
from tests.contract import contract


class Limits(BaseModel):
    tokens: int


def flow(file: Path) -> Workflow:
    config = ResourceConfig(str(file))

    def make(limits: Annotated[Limits, config]) -> str:
        return str(limits.tokens)

    class Flow(Workflow):
        @step
        async def direct(self, ev: StartEvent, limits: Annotated[Limits, config]) -> StopEvent:
            return StopEvent(result=limits.tokens)

        @step
        async def through(self, ev: StartEvent, client: Annotated[str, Resource(make)]) -> None: ...

    return Flow()


@contract("9.7")
async def test_a_missing_file_is_named_with_step_and_parameter_also_behind_a_factory(tmp_path: Path) -> None:
    workflow = flow(tmp_path / "limits.json")
    with pytest.raises(WorkflowValidationError, match="Resource config validation failed") as caught:
        workflow.run()
    text = str(caught.value)
    assert "step 'direct', parameter 'limits': No such file: " in text
    assert "step 'through', parameter 'client' (" in text


@contract("9.7")
async def test_a_file_that_was_put_right_is_read_at_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "limits.json"
    file.write_text(json.dumps({"tokens": "many"}))
    workflow = flow(file)
    with pytest.raises(WorkflowValidationError, match=r"step 'direct', parameter 'limits': [\s\S]*tokens"):
        workflow.run()
    file.write_text(json.dumps({"tokens": 10_000}))
    assert await workflow.run() == 10_000


@contract("9.7")
def test_validate_can_leave_the_files_alone(tmp_path: Path) -> None:
    assert flow(tmp_path / "limits.json").validate(validate_resource_configs=False) is False
