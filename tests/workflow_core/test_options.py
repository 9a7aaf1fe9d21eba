"""The options of a workflow: each says at construction what it is when it is given something else."""

from enum import Enum
from typing import Any

import pytest

from batonflow.workflow_core import JsonSerializer, ResourceManager, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.errors import StoreError, WorkflowValidationError
from batonflow.workflow_core.plugins import BasicRuntime


class Hello(Workflow):
    @step
    async def greet(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="hello")


class Colour(Enum):
    RED = 1


class Reads:
    def deserialize(self, value: str) -> Any: ...


@pytest.mark.parametrize(
    ("option", "said", "wrong"),
    [
        ("resource_manager", r"must be a ResourceManager\(\)", ["x", "", 0, ResourceManager]),
        ("runtime", r"must be a runtime such as BasicRuntime\(\)", ["x", "", 0, BasicRuntime]),
        ("serializer", r"must be an object with serialize\(value\) and deseri", ["json", 5, JsonSerializer, Reads()]),
        ("workflow_name", 'must be a text such as "orders"', [5, b"orders", Hello]),
        ("types", r"must be a list of classes, such as \[Note\]", ["x", 5, None, Colour, int, ["int"], {"n": int}]),
        ("workflows", "must be a dict of names with workflows", ["x", 5, [Hello()], {1: Hello()}]),
        ("upcasters", "must be a dict of versions with functions", ["x", 5, [print], {1: print}, {"1": "print"}]),
    ],
)
def test_an_option_of_a_value_that_it_cannot_have_is_refused(option: str, said: str, wrong: list[Any]):
    for value in wrong:
        with pytest.raises(WorkflowValidationError, match=f"{option} {said}.*; got ") as raised:
            Hello(**{option: value})
        assert str(raised.value).endswith(f"; got {value!r}")


def test_options_of_values_that_they_can_have_are_taken():
    flow = Hello(
        resource_manager=ResourceManager(),
        runtime=BasicRuntime(),
        serializer=JsonSerializer(),
        workflow_name="hello",
        types=(cls for cls in (Colour, Reads)),
        workflows={"other": Hello()},
        upcasters={"1": dict},
    )
    assert {Colour, Reads} <= set(flow.declared_types)
    assert list(flow.attached_workflows) == ["other"]


def test_what_is_not_a_workflow_is_not_attached():
    with pytest.raises(WorkflowValidationError, match=r"other=.*takes a workflow or its class, got int"):
        Hello(workflows={"other": 5})  # type: ignore[dict-item]


def test_what_the_end_of_a_parent_means_is_one_of_two():
    with pytest.raises(WorkflowValidationError, match='on_parent_stop must be "finish" or "cancel"; got \'stop\''):
        Hello().add_workflows(on_parent_stop="stop", other=Hello())  # type: ignore[arg-type]


def test_another_store_is_chosen_by_the_same_rules():
    flow = Hello()
    with pytest.raises(StoreError, match='store=5: give the path of a SQLite file, "memory:", or an object'):
        flow.with_store(5)  # type: ignore[arg-type]
    with pytest.raises(WorkflowValidationError, match="idle_release must be a number of seconds, 0 or more; got 'x'"):
        flow.with_store("memory:", idle_release="x")  # type: ignore[arg-type]
    with pytest.raises(WorkflowValidationError, match='workflow_name must be a text such as "orders"; got 5'):
        flow.with_store("memory:", name=5)  # type: ignore[arg-type]
    assert flow.with_store("memory:").run_store is not None
