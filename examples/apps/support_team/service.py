"""The support team inside a FastAPI application: questions come in, events go out, runs outlive the process."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from desk import Desk, Shop, build
from fastapi import FastAPI, HTTPException
from fastapi.responses import RedirectResponse
from pydantic import BaseModel

from batonflow import SQLiteStore
from batonflow.server import WorkflowServer

FOLDER = Path(os.environ.get("SUPPORT_FOLDER", "."))
shop = Shop(FOLDER / "shop.db")
store = SQLiteStore(FOLDER / "runs.db")
team = build(shop, store)
server = WorkflowServer(store=store)  # it takes up the runs of a process that was killed, and shows them at /runs/
server.add_workflow("support", team)


class Question(BaseModel):
    customer: str
    text: str


class Ticket(BaseModel):
    run_id: str


class Status(BaseModel):
    status: str
    open_questions: list[str]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    async with server.contextmanager():
        yield


app = FastAPI(title="Support", lifespan=lifespan)
app.mount("/runs", server.app)


@app.post("/tickets", status_code=202)
async def ask(question: Question) -> Ticket:
    """Start a run; it goes on when the caller leaves."""
    run_id = f"ticket-{uuid4().hex[:8]}"
    shop.add_ticket(run_id, question.customer)
    deps = Desk(shop, question.customer)  # in another process `deps_for` of the team makes it
    await team.run(question.text, run_id=run_id, deps=deps).started()
    return Ticket(run_id=run_id)


@app.get("/tickets/{run_id}")
async def status(run_id: str) -> Status:
    info = await store.info(run_id)
    if info is None:
        raise HTTPException(404, f"there is no ticket {run_id}")
    asked = [] if info.is_over else await team.open_inputs(run_id)
    return Status(status=info.status, open_questions=[repr(request.event) for request in asked])


@app.get("/tickets/{run_id}/events")
async def events(run_id: str) -> RedirectResponse:
    """The events of a run as server-sent events: those so far, then those to come, up to its end."""
    return RedirectResponse(f"/runs/events/{run_id}")
