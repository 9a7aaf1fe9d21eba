"""The program of a team with a human gate: it runs as written here, and the example is the same program."""

import ast
from pathlib import Path
from typing import Any

import pytest

from batonflow.llms import ScriptedLLM, tool_call
from tests.promises.programs.running import ROOT

PROGRAM = '''
from batonflow import AgentWorkflow, FunctionAgent, tool

@tool(requires_approval=True)
def publish(title: str, body: str) -> str:
    """Publish the article."""
    ...

researcher = FunctionAgent(name="researcher", description="Finds facts.", tools=[search], can_handoff_to=["writer"], llm=llm)
writer = FunctionAgent(name="writer", description="Writes and publishes.", tools=[publish], llm=llm)
team = AgentWorkflow(agents=[researcher, writer], root_agent="researcher", store="runs.db")

handler = team.run("Write about tides.", run_id="tides-1")   # the same id after a crash: carries on, never starts twice
async for request in handler.approvals():
    request.approve()                                        # or request.deny("why")
print(await handler)
'''  # noqa: E501
EXAMPLE = ROOT / "examples" / "19_team_with_approval.py"
GIVEN = "from tides import llm, search"
AROUND = {"import asyncio", GIVEN, "asyncio.run(main())"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is a file in the current directory."""
    monkeypatch.chdir(tmp_path)


def given() -> dict[str, Any]:
    """What the program takes for granted."""

    def search(topic: str) -> str:
        """Look up facts."""
        return {"tides": "twice a day"}[topic]

    turns = [
        tool_call("search", topic="tide"),
        tool_call("search", topic="tides"),
        tool_call("handoff", to_agent="writer", reason="here are the facts"),
        tool_call("publish", title="Tides", body="Twice a day."),
        "It is out.",
    ]
    return {"search": search, "llm": ScriptedLLM(turns)}


async def run(program: str) -> dict[str, Any]:
    names = given()
    await eval(compile(program, "program.py", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    return names


async def test_it_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    names = await run(PROGRAM)
    assert capsys.readouterr().out == "It is out.\n"
    assert names["handler"].run_id == "tides-1"
    output = await names["handler"]
    calls = [(call.tool_name, call.tool_output.is_error) for call in output.tool_calls]
    assert calls == [("search", True), ("search", False), ("handoff", False), ("publish", False)]


async def test_without_the_approval_nothing_is_published(capsys: pytest.CaptureFixture[str]) -> None:
    denying = PROGRAM.replace("request.approve()", 'request.deny("not now")')
    output = await (await run(denying))["handler"]
    assert output.tool_calls[-1].tool_output.is_error
    assert "not now" in output.tool_calls[-1].tool_output.content


async def test_without_a_store_it_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    await run(PROGRAM.replace(', store="runs.db"', ""))
    assert capsys.readouterr().out == "It is out.\n"


async def test_under_the_same_id_it_is_not_done_again(capsys: pytest.CaptureFixture[str]) -> None:
    first, again = await run(PROGRAM), await run(PROGRAM)
    assert capsys.readouterr().out == "It is out.\n" * 2
    assert len(first["llm"].requests) == 5
    assert again["llm"].requests == []


def statements(source: str) -> list[str]:
    """The program's statements, those of `main` among them, without what a script needs around them."""
    found: list[ast.stmt] = []
    tree = ast.parse(source)
    for statement in tree.body[1:] if ast.get_docstring(tree) else tree.body:
        found.extend(statement.body if isinstance(statement, ast.AsyncFunctionDef) else [statement])
    for statement in found:
        if isinstance(statement, ast.FunctionDef):
            statement.body = statement.body[:1]  # what publishing is, is everybody's own
    return [text for text in map(ast.unparse, found) if text not in AROUND]


def test_the_example_is_this_program() -> None:
    assert statements(EXAMPLE.read_text()) == statements(PROGRAM)


def test_the_example_has_at_most_18_lines_and_4_imported_names() -> None:
    lines = [line for line in EXAMPLE.read_text().splitlines() if line.strip()]
    lines = [line for line in lines if line != GIVEN and not line.startswith('"""')]
    imports = [one for one in ast.parse("\n".join(lines)).body if isinstance(one, ast.Import | ast.ImportFrom)]
    assert len(lines) <= 18
    assert sum(len(one.names) for one in imports) <= 4
