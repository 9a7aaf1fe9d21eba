"""The service is killed with an approval open, starts again, and the answer of another process leads to one refund."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

HERE = Path(__file__).parent


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def service(folder: Path, port: int) -> Generator[tuple[subprocess.Popen[str], httpx2.Client]]:
    """Run uvicorn in a process of its own; it is killed at the end of the block."""
    command = [sys.executable, "-m", "uvicorn", "service:app", "--port", str(port), "--log-level", "warning"]
    environment = {**os.environ, "SUPPORT_FOLDER": str(folder)}
    with (
        subprocess.Popen(command, cwd=HERE, env=environment, stderr=subprocess.PIPE, text=True) as process,
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=20, follow_redirects=True) as client,
    ):
        try:
            until(lambda: process.poll() is not None or answers(client))
            assert process.poll() is None, process.stderr and process.stderr.read()
            yield process, client
        finally:
            process.send_signal(signal.SIGKILL)


def answers(client: httpx2.Client) -> bool:
    try:
        return client.get("/openapi.json").status_code == 200
    except httpx2.TransportError:
        return False


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def events(client: httpx2.Client, run_id: str, after: int = -1) -> Generator[dict[str, Any]]:
    headers = {"Last-Event-ID": str(after)} if after >= 0 else {}
    with client.stream("GET", f"/tickets/{run_id}/events", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


def first(client: httpx2.Client, run_id: str, kind: str) -> dict[str, Any]:
    with closing(events(client, run_id)) as found:
        return next(event for event in found if event["type"] == kind)


def approve(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "approve.py", *arguments, "--folder", str(folder)]
    return subprocess.run(command, cwd=HERE, check=True, capture_output=True, text=True).stdout.strip()


def refunds(folder: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(folder / "shop.db")) as db:
        return db.execute("SELECT order_id, amount FROM refunds").fetchall()


def text(stop: dict[str, Any]) -> str:
    """Return the answer in the last event of a run."""
    return str(stop["value"]["result"]["response"]["blocks"][0]["text"])


def ticket(client: httpx2.Client) -> str:
    posted = client.post("/tickets", json={"customer": "ann", "text": "My kettle is broken."})
    assert posted.status_code == 202
    return str(posted.json()["run_id"])


def test_killed_with_an_approval_open_it_pays_once_after_another_process_approved(tmp_path: Path, port: int) -> None:
    with service(tmp_path, port) as (process, client):
        run_id = ticket(client)
        asked = first(client, run_id, "ApprovalRequired")
        assert asked["value"]["arguments"] == {"order": "A-17", "amount": 40}
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert refunds(tmp_path) == []

    with service(tmp_path, port) as (_, client):
        until(lambda: "refund" in str(client.get(f"/tickets/{run_id}").json()["open_questions"]))
        assert approve(tmp_path, run_id) == "approved 1"
        stop = list(events(client, run_id))[-1]
        assert text(stop) == "We paid back 40 euros for A-17."
        assert client.get(f"/tickets/{run_id}").json() == {"status": "completed", "open_questions": []}
    assert refunds(tmp_path) == [("A-17", 40)]
    assert approve(tmp_path, run_id) == f"run {run_id} asks nothing"


def test_an_answer_that_comes_while_no_service_runs_is_heard(tmp_path: Path, port: int) -> None:
    with service(tmp_path, port) as (_, client):
        run_id = ticket(client)
        until(lambda: "refund" in approve(tmp_path, run_id, "--show"))  # another process sees it: it is in the store
    assert approve(tmp_path, run_id, "--deny", "the kettle is old") == "denied 1"
    with service(tmp_path, port) as (_, client):
        stop = list(events(client, run_id))[-1]
    assert text(stop) == "I am sorry, we cannot pay it back."
    assert refunds(tmp_path) == []


def test_a_reader_that_leaves_stops_nothing_and_the_next_goes_on_behind_its_last_event(
    tmp_path: Path, port: int
) -> None:
    with service(tmp_path, port) as (_, client):
        run_id = ticket(client)
        last = first(client, run_id, "ApprovalRequired")["seq"]
        until(lambda: approve(tmp_path, run_id) == "approved 1")
        rest = list(events(client, run_id, last))
        assert all(event["seq"] > last for event in rest)
        assert text(rest[-1]).startswith("We paid back")


def test_customers_see_their_own_orders_alone(tmp_path: Path, port: int) -> None:
    with service(tmp_path, port) as (_, client):
        run_id = client.post("/tickets", json={"customer": "bob", "text": "My kettle is broken."}).json()["run_id"]
        found = first(client, run_id, "ToolCallResult")
        assert found["value"]["tool_output"]["blocks"][0]["text"] == "['B-2: 15 euros']"
