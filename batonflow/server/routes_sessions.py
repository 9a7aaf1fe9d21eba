"""Routes of the sessions of agents: their list, the turns of one, and a branch of one."""

from collections.abc import Callable
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from batonflow.instrumentation.redaction import redacted
from batonflow.server.bodies import body_of, number
from batonflow.server.responses import JSON
from batonflow.server.runs import Runs
from batonflow.server.shapes import SessionForkBody
from batonflow.workflow_core.errors import StoreError

__all__ = ["SessionRoutes", "turn_as_json"]

MOST_SESSIONS = 1000


class SessionRoutes:
    """Handler of requests about sessions.

    Args:
        runs: The runs of the server.
        accept_sessions: Whether clients may use sessions.
        chats: Returns the names of the agents with sessions that clients may use.
    """

    def __init__(self, runs: Runs, *, accept_sessions: bool, chats: Callable[[], list[str]]) -> None:
        self._runs = runs
        self._chats = chats
        self._accept_sessions = accept_sessions

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/chats", self.chats, methods=["GET"]),
            Route("/workflows/{name}/sessions", self.sessions, methods=["GET"]),
            Route("/workflows/{name}/sessions", self.fork, methods=["POST"]),
            Route("/workflows/{name}/turns", self.turns, methods=["GET"]),
        ]

    def _agent(self, request: Request) -> Any:
        """Return the agent of a request.

        Raises:
            HTTPException: 400 if the server does not accept sessions, or the workflow is not an agent.
        """
        served = self._runs.workflow(request.path_params["name"])
        if not self._accept_sessions:
            raise HTTPException(
                400, "This server does not accept sessions: create it with WorkflowServer(accept_sessions=True)"
            )
        if not served.is_agent:
            raise HTTPException(400, f"Workflow {served.name} is not an agent, so it has no sessions")
        return served.workflow

    async def chats(self, _: Request) -> Response:
        """Return the names of the agents with sessions that clients may use."""
        return JSON({"chats": self._chats()})

    async def sessions(self, request: Request) -> Response:
        """Return the sessions of an agent, the latest first; of those with the first 1,000 names."""
        prefix, most = (
            request.query_params.get("prefix", ""),
            number(request, "limit", 100, least=1, most=MOST_SESSIONS),
        )
        found: list[Any] = await self._agent(request).sessions(prefix, MOST_SESSIONS)
        found.sort(key=attrgetter("updated"), reverse=True)
        sessions = [
            {
                "name": one.name,
                "turns": one.turns,
                "created_at": _iso(one.created),
                "updated_at": _iso(one.updated),
                "running": one.running,
            }
            for one in found[:most]
        ]
        return JSON({"sessions": sessions})

    async def turns(self, request: Request) -> Response:
        """Return the turns of a session, the oldest first; the list of an unknown session is empty."""
        agent, name = self._agent(request), request.query_params.get("session")
        if not name:
            raise HTTPException(400, "session is needed: the name of the session")
        after = number(request, "after", 0)
        session = await _session(agent, name)
        turns: list[dict[str, Any]] = []
        acting: str = agent.__batonflow_team__.member(None).name
        if session is not None:
            async for turn in session.turns():
                first, acting = acting, turn.agent or acting
                if turn.number > after:
                    turns.append({**turn_as_json(turn), "first_agent": first, "last_agent": acting})
        return JSON({"turns": turns})

    async def fork(self, request: Request) -> Response:
        """Make a session with the first turns of another one."""
        agent, body = self._agent(request), await body_of(request, SessionForkBody)
        session = await _session(agent, body.session)
        if session is None:
            raise HTTPException(404, f"The agent has no session {body.session!r}")
        try:
            await session.fork(body.new_name, body.at_turn)
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        return JSON({"name": body.new_name})


async def _session(agent: Any, name: str) -> Any:
    """Return a session of an agent, or None if the agent does not have it. Other agents' sessions do not count."""
    try:
        session = agent.session(name)
    except (ValueError, StoreError) as error:
        raise HTTPException(400, str(error)) from None
    # The exact name is the first one that begins with it.
    return session if [one.name for one in await agent.sessions(name, 1)] == [name] else None


def turn_as_json(turn: Any) -> dict[str, Any]:
    """Return a turn as JSON data without secrets."""
    usage: dict[str, Any] = turn.usage.model_dump(exclude_defaults=True)
    return {
        "number": turn.number,
        "run_id": turn.run_id,
        "status": turn.status,
        "started_at": _iso(turn.started),
        "ended_at": None if turn.ended is None else _iso(turn.ended),
        "user_msg": None if turn.user_msg is None else _message(turn.user_msg),
        "messages": [_message(one) for one in turn.messages],
        "usage": usage or None,
        "error": redacted(turn.error) if turn.error else None,
    }


def _message(message: Any) -> Any:
    return redacted(message.model_dump(mode="json", exclude_none=True))


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
