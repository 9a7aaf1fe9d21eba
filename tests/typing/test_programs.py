"""The programs of this folder run: what type checkers are told of a value holds for the value."""

import asyncio
import inspect
import runpy
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ENGINE = {"asking_models.py", "names.py", "retry_policies.py", "typed_state.py"}  # checked for types alone
PROGRAMS = sorted({path.name for path in HERE.glob("*.py")} - {"check.py", Path(__file__).name} - ENGINE)
NOT_RUN = {"refused"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_values_of_a_typed_program_have_their_declared_types(name):
    program = runpy.run_path(str(HERE / name), run_name="program")
    functions = [
        value
        for key, value in program.items()
        if inspect.isfunction(value)
        and value.__module__ == "program"
        and key not in NOT_RUN
        and not inspect.signature(value).parameters
    ]
    assert functions
    for function in functions:
        if inspect.iscoroutinefunction(function):
            asyncio.run(function())
        else:
            function()


@pytest.mark.parametrize("name", PROGRAMS)
def test_beside_each_declared_type_of_a_value_stands_an_isinstance(name):
    lines = (HERE / name).read_text().splitlines()
    for number, line in enumerate(lines):
        if line.strip().startswith("assert_type(ctx"):
            continue  # a parameter, which has no type argument at run time
        if line.strip().startswith("assert_type("):
            assert lines[number + 1].strip().startswith("assert isinstance("), f"{name}:{number + 1}"
