"""A server goes by none of the names that a workflow may have for its own."""

from pathlib import Path
from urllib.parse import quote

import pytest

from batonflow.cli import main
from batonflow.server import WorkflowServer
from batonflow.workflow_core import SQLiteStore, Workflow
from tests.server.conftest import Running, Serving
from tests.server.flows import Ask

CALLED = {"run", "run_sync", "trace_tags"}
TAKEN = {name: "mine" for name in dir(Workflow) if not name.startswith("__") and name not in CALLED}
Taken = type("Taken", (Ask,), {**TAKEN, "__module__": __name__})


async def answered(running: Running, run_id: str) -> None:
    await running.until(run_id, lambda found: found["waiting"])
    [asked] = (await running.get(f"/handlers/{run_id}/pending"))["pending"]
    await running.post(f"/handlers/{run_id}/pending/{quote(asked['id'], safe='')}", {"response": {"text": "Ann"}})
    found = await running.until(run_id, lambda found: found["status"] == "completed")
    assert found["result"]["value"] == {"result": "Ann"}


async def test_a_workflow_that_took_all_the_names_is_served(serving: Serving, tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    async with serving(
        WorkflowServer(store=SQLiteStore(file), idle_timeout=0.05), taken=Taken(timeout=None)
    ) as running:
        assert set(await running.get("/workflows/taken/schema")) == {"start", "stop"}
        first, second = await running.start("taken"), await running.start("taken")
        await answered(running, first)
        forked = (await running.post(f"/handlers/{first}/fork", {"at": 1}))["handler_id"]
        await answered(running, forked)
        await running.until(second, lambda found: found["waiting"])
    async with serving(WorkflowServer(store=SQLiteStore(file)), taken=Taken(timeout=None)) as running:
        await answered(running, second)


def test_a_workflow_that_took_all_the_names_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{__name__}:Taken"]) == 0
    assert "1 steps, from StartEvent to StopEvent" in capsys.readouterr().out
