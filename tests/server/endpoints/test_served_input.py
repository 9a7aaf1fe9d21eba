"""Clients of a server choose neither the addresses nor the files that its process reads."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from batonflow import FunctionAgent
from batonflow.llms import OpenAI
from batonflow.llms.fetching import FetchPolicy
from batonflow.new_runs import input_is_served
from batonflow.server import WorkflowServer
from batonflow.workflow_core import Context, StartEvent, StopEvent, Workflow, step
from tests.llms.loopback import Answer, Loopback, loopback
from tests.llms.wire import chat
from tests.llms.wire.content import Said, Text

ALLOWED = FetchPolicy(private_addresses=True, served=True)


@pytest.fixture
async def inside() -> AsyncIterator[Loopback]:
    """A model, and in the same network a page that is not for clients."""
    async with loopback() as told:
        told.answers = lambda one: Answer([b"secret"] if one.method == "GET" else [chat.stream(Said((Text("Read."),)))])
        yield told


async def asked(agent: Any, message: dict[str, Any]) -> httpx2.Response:
    server = WorkflowServer()
    server.add_workflow("helper", agent)
    transport = httpx2.ASGITransport(server.app, client=("127.0.0.1", 1))
    async with server.contextmanager(), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.post("/workflows/helper/run", json={"start_event": {"user_msg": message}})


def agent_of(inside: Loopback, **options: Any) -> FunctionAgent:
    return FunctionAgent(llm=OpenAI("m", api_key="k", base_url=f"{inside.url}/v1", **options))


def message(**block: Any) -> dict[str, Any]:
    return {"role": "user", "blocks": [{"block_type": "document", **block}]}


@pytest.mark.parametrize("private", [False, True])
async def test_an_address_is_not_fetched_unless_the_model_allows_it(inside: Loopback, private: bool) -> None:
    agent = agent_of(inside, fetch_urls=FetchPolicy(private_addresses=private))
    answer = await asked(agent, message(url=f"{inside.url}/secret.pdf"))
    assert answer.json()["status"] == "failed"
    assert "was not fetched" in answer.text
    assert "fetch_urls=True" in answer.text
    assert inside.received == []


async def test_a_model_that_allows_it_reads_it(inside: Loopback) -> None:
    agent = agent_of(inside, fetch_urls=ALLOWED)
    answer = await asked(agent, message(url=f"{inside.url}/notes.pdf"))
    assert answer.json()["status"] == "completed"
    assert [one.method for one in inside.received] == ["GET", "POST"]


async def test_a_file_of_the_server_is_not_read(inside: Loopback, tmp_path: Path) -> None:
    file = tmp_path / "secret.txt"
    file.write_text("secret")
    answer = await asked(agent_of(inside, fetch_urls=ALLOWED), message(path=str(file)))
    assert answer.status_code == 400
    assert "names no files of this machine" in answer.text
    assert inside.received == []


async def test_a_run_knows_that_a_server_began_it(tmp_path: Path) -> None:
    class Says(Workflow):
        @step
        async def say(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=input_is_served())

    assert await Says().run() is False
    answer = await asked(Says(), {"role": "user"})
    assert answer.json()["result"]["value"]["result"] is True
    assert await Says().run() is False
