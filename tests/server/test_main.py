"""python -m batonflow.server"""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import httpx2
import pytest

from tests.server.test_survival import ROOT, free_port

APP = textwrap.dedent("""
    from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step
    from batonflow.server import WorkflowServer
    from beside import WORD

    class Hello(Workflow):
        @step
        async def greet(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=WORD)

    server = WorkflowServer()
    server.add_workflow("hello", Hello())
""")


def command(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "batonflow.server", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_application_ends_with_its_uvicorn_though_somebody_reads(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("""
from batonflow.server import WorkflowServer
from tests.server.flows import Slow

server = WorkflowServer(store="runs.db")
server.add_workflow("slow", Slow(timeout=None))
""")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    program = [sys.executable, "-m", "uvicorn", "app:server.app", "--port", str(port), "--log-level", "warning"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(program, cwd=tmp_path, env=environment) as process:
        try:
            while True:
                try:
                    run_id = httpx2.post(f"{url}/workflows/slow/run-nowait", json={}).json()["handler_id"]
                    break
                except httpx2.TransportError:
                    assert process.poll() is None
                    time.sleep(0.05)
            with httpx2.stream("GET", f"{url}/events/{run_id}", timeout=20) as answer:
                lines = answer.iter_lines()
                assert next(lines).startswith("id: ")
                process.terminate()
                assert not [line for line in lines if "StopEvent" in line]
            process.wait(20)
        finally:
            process.kill()


def test_the_server_of_a_file_is_served(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "beside.py").write_text('WORD = "hello"')
    port = free_port()
    with command(str(tmp_path / "app.py"), BATONFLOW_SERVER_PORT=str(port)) as process:
        try:
            url = f"http://127.0.0.1:{port}/workflows/hello/run"
            while True:
                try:
                    told = httpx2.post(url, json={}).json()
                    break
                except httpx2.TransportError:
                    assert process.poll() is None
                    time.sleep(0.05)
            assert told["result"]["value"] == {"result": "hello"}
        finally:
            process.terminate()
            process.communicate(timeout=10)


@pytest.mark.parametrize(
    ("text", "environment", "said"),
    [
        (None, {}, "usage"),
        ("server = None", {}, "no WorkflowServer"),
        (APP, {"BATONFLOW_SERVER_PORT": "x"}, "not a number"),
        (APP, {"BATONFLOW_SERVER_HOST": "0.0.0.0"}, "set a token"),
    ],
)
def test_what_cannot_be_served_is_said_and_the_exit_code_tells(
    tmp_path: Path, text: str | None, environment: dict[str, str], said: str
) -> None:
    (tmp_path / "beside.py").write_text('WORD = "hello"')
    if text is not None:
        (tmp_path / "app.py").write_text(text)
    with command(str(tmp_path / "app.py"), **environment) as process:
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert said in errors
