"""The routes as an OpenAPI 3.1 document."""

from collections.abc import Iterable
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from batonflow.server import shapes

__all__ = ["openapi_document"]


class _Path(NamedTuple):
    method: str
    path: str
    about: str
    answer: type[BaseModel] | str
    problems: tuple[int, ...] = ()
    body: type[BaseModel] | None = None
    query: tuple[str, ...] = ()
    status: int = 200


_PROBLEMS = {
    400: "The request is invalid; the text gives the reason",
    401: "The token is missing or wrong",
    403: "The client, or the page that sends the request, is not allowed",
    404: "The name is unknown",
    405: "The path has other methods",
    408: "The body did not arrive in time",
    409: "The run, or the id, is not in a state for this",
    413: "The body is too large",
    421: "The name in the Host header is not allowed",
    422: "The fields do not fit",
    503: "The server does not run, or its store fails",
}
_EVERYWHERE = (401, 403, 405, 408, 413, 421, 503)

_QUERY: dict[str, tuple[dict[str, Any], str]] = {
    "status": (
        {"type": "array", "items": {"enum": [*get_args(shapes.Phase)]}},
        "Only runs with this status or phase; may be repeated; `running` includes all unfinished runs",
    ),
    "workflow_name": ({"type": "array", "items": {"type": "string"}}, "Only runs of these workflows; may be repeated"),
    "metadata": (
        {"type": "array", "items": {"type": "string"}},
        "Only runs with this metadata, as name=value; may be repeated",
    ),
    "text": ({"type": "string"}, "Only runs with these words, or words that begin so, in their contents"),
    "model": ({"type": "string"}, "Only runs for which a model with this in its name has answered"),
    "error": ({"type": "string"}, "Only runs with an error that has this in its text"),
    "since": ({"type": "string", "format": "date-time"}, "Only runs that were created at or after this time"),
    "until": ({"type": "string", "format": "date-time"}, "Only runs that were created before this time"),
    "min_cost": ({"type": "number"}, "Only runs that cost so many US dollars or more"),
    "max_cost": ({"type": "number"}, "Only runs that cost so many US dollars or less"),
    "after_run": ({"type": "string"}, "Only runs after this one"),
    "limit_runs": ({"type": "integer", "minimum": 1, "maximum": 1000}, "Largest number of runs"),
    "prefix": ({"type": "string"}, "Only sessions whose names begin so"),
    "limit_sessions": (
        {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
        "Largest number of sessions",
    ),
    "session": ({"type": "string"}, "The name of the session"),
    "after_turn": ({"type": "integer", "minimum": 0, "maximum": 2**53}, "Only turns after this one"),
    "order": ({"enum": ["asc", "desc"]}, "In the order of creation, or newest first"),
    "after": ({"type": "integer", "minimum": 0, "maximum": 2**53}, "Only commits after this one"),
    "limit": ({"type": "integer", "minimum": 1, "maximum": 5000}, "Largest number of commits"),
    "full": ({"type": "boolean"}, "Do not cut large values"),
    "parts": ({"type": "boolean"}, "Give each message and tool of the calls once, in `parts`; calls hold indexes"),
    "commit": ({"type": "integer", "minimum": 1, "maximum": 2**53}, "The state after this commit"),
    "sse": ({"type": "boolean", "default": True}, "Server-sent events; else a line of JSON for each event"),
    "include_internal": ({"type": "boolean", "default": False}, "Include the engine's internal events"),
    "include_qualified_name": ({"type": "boolean", "default": True}, "Include module and name of classes"),
    "after_sequence": (
        {"anyOf": [{"type": "integer", "minimum": -1, "maximum": 2**53}, {"const": "now"}], "default": -1},
        "Begin after this place in the stream, or with new events only; the header Last-Event-ID has precedence",
    ),
    "deltas": ({"type": "boolean", "default": False}, "Send each text of an answer once, as pieces with their place"),
    "pieces": (
        {"type": "string", "pattern": "^[0-9]{1,4}ms$", "default": "0ms"},
        "Put pieces of an answer together that arrive within this time; needs deltas",
    ),
    "include_results": ({"type": "boolean", "default": False}, "Include the events that ended the runs"),
    "enqueue": ({"type": "boolean", "default": False}, "Has to be true"),
    "purge": ({"type": "boolean", "default": False}, "Delete the run too"),
}
_SEARCH = ("text", "model", "error", "since", "until", "min_cost", "max_cost")
_QUERY_NAMES = {"after_run": "after", "limit_runs": "limit", "limit_sessions": "limit", "after_turn": "after"}

_RUN = "/handlers/{handler_id}"
_PATHS = (
    _Path("get", "/", "The page", "text/html", (404,)),
    _Path("get", "/health", "Health of the server", shapes.HealthAnswer),
    _Path("get", "/openapi.json", "This document", "application/json"),
    _Path("get", "/workflows", "The names of the workflows", shapes.WorkflowsAnswer),
    _Path("get", "/workflows/{name}/schema", "Schemas of its start and stop events", shapes.SchemaAnswer, (404,)),
    _Path("get", "/workflows/{name}/events", "The events it knows", shapes.EventsAnswer, (404,)),
    _Path("get", "/workflows/{name}/representation", "Its event graph", shapes.RepresentationAnswer, (404,)),
    _Path("post", "/workflows/{name}/run", "Run to the end", shapes.HandlerData, (400, 404, 409), body=shapes.RunBody),
    _Path(
        "post", "/workflows/{name}/run-nowait", "Start a run", shapes.HandlerData, (400, 404, 409), body=shapes.RunBody
    ),
    _Path(
        "post",
        "/handlers",
        "Store a run for whichever process takes it up",
        shapes.HandlerData,
        (400, 404, 409),
        body=shapes.EnqueueBody,
        query=("enqueue",),
        status=202,
    ),
    _Path("get", "/chats", "The names of the agents with sessions that clients may use", shapes.ChatsAnswer),
    _Path(
        "get",
        "/workflows/{name}/sessions",
        "Its sessions",
        shapes.SessionsAnswer,
        (400, 404),
        query=("prefix", "limit_sessions"),
    ),
    _Path(
        "post",
        "/workflows/{name}/sessions",
        "Branch off from a session",
        "application/json",
        (400, 404),
        body=shapes.SessionForkBody,
    ),
    _Path(
        "get",
        "/workflows/{name}/turns",
        "The turns of a session",
        shapes.TurnsAnswer,
        (400, 404),
        query=("session", "after_turn"),
    ),
    _Path(
        "get",
        "/handlers",
        "Runs",
        shapes.HandlersAnswer,
        (400,),
        query=(*_SEARCH, "status", "workflow_name", "metadata", "after_run", "limit_runs", "order", "include_results"),
    ),
    _Path("get", "/pending", "The open questions of all runs", shapes.InboxAnswer, (), query=("workflow_name",)),
    _Path("get", "/fleet", "The workers, and the runs in their queues", shapes.FleetAnswer),
    _Path("get", _RUN, "A run", shapes.HandlerData, (404,)),
    _Path(
        "get", f"{_RUN}/trace", "Its records", shapes.TraceAnswer, (400, 404), query=("after", "limit", "full", "parts")
    ),
    _Path("get", f"{_RUN}/state", "Its key-value state", shapes.StateAnswer, (400, 404), query=("commit",)),
    _Path("get", f"{_RUN}/pending", "Its open questions", shapes.PendingAnswer, (404, 409)),
    _Path(
        "post",
        f"{_RUN}/pending/{{request_id}}",
        "Answer a question",
        shapes.SentAnswer,
        (400, 404, 409, 422),
        body=shapes.AnswerBody,
    ),
    _Path("post", f"{_RUN}/fork", "Branch off", shapes.HandlerData, (400, 404, 409), body=shapes.ForkBody),
    _Path("post", f"{_RUN}/cancel", "Cancel it", shapes.CancelAnswer, (400, 404, 409), query=("purge",)),
    _Path("post", f"{_RUN}/release", "Let it be taken up again, if it is held", shapes.HandlerData, (404, 409)),
    _Path("get", "/results/{handler_id}", "A run with its bare result", "application/json", (404,)),
    _Path(
        "get",
        "/events/{handler_id}",
        "Its stream",
        "text/event-stream",
        (400, 404),
        query=("sse", "include_internal", "after_sequence", "include_qualified_name", "deltas", "pieces"),
    ),
    _Path("post", "/events/{handler_id}", "Send an event", shapes.SentAnswer, (400, 404, 409), body=shapes.SendBody),
)


def openapi_document(*, compat: bool) -> dict[str, Any]:
    """Return the document.

    Args:
        compat: Document 500 for failed runs and 202 for unfinished ones.
    """
    models = {model for path in _PATHS for model in (path.answer, path.body) if isinstance(model, type)}
    ordered = sorted({*models, shapes.Problem}, key=lambda model: model.__name__)
    _, schemas = models_json_schema(
        [(model, "validation") for model in ordered], ref_template="#/components/schemas/{model}", by_alias=True
    )
    paths: dict[str, dict[str, Any]] = {}
    for path in _PATHS:
        paths.setdefault(path.path, {})[path.method] = _operation(path, compat=compat)
    return {
        "openapi": "3.1.0",
        "info": {"title": "batonflow workflow server", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas["$defs"], "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _operation(path: _Path, *, compat: bool) -> dict[str, Any]:
    answers = dict(_answers(path, compat=compat))
    body = {} if path.body is None else {"requestBody": {"required": True, "content": _json(path.body)}}
    return {
        "summary": path.about,
        "operationId": "_".join([path.method, *_words(path.path)]),
        "parameters": [*_in_path(path.path), *map(_in_query, path.query)],
        **body,
        "responses": {str(code): answer for code, answer in sorted(answers.items())},
    }


def _words(path: str) -> Iterable[str]:
    return [word.strip("{}").replace("-", "_").replace(".", "_") for word in path.split("/") if word] or ["page"]


def _in_path(path: str) -> list[dict[str, Any]]:
    names = [word.strip("{}") for word in path.split("/") if word.startswith("{")]
    schema = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in names]


def _in_query(key: str) -> dict[str, Any]:
    schema, about = _QUERY[key]
    return {"name": _QUERY_NAMES.get(key, key), "in": "query", "schema": schema, "description": about}


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}


def _answers(path: _Path, *, compat: bool) -> Iterable[tuple[int, dict[str, Any]]]:
    for code in {*path.problems, *_EVERYWHERE}:
        yield code, {"description": _PROBLEMS[code], "content": _json(shapes.Problem)}
    if path.path == "/health":
        yield 503, {"description": "It does not", "content": _json(shapes.HealthAnswer)}
    content: dict[str, Any] = _json(path.answer) if isinstance(path.answer, type) else {path.answer: {}}
    if path.answer == "text/event-stream":
        content["application/x-ndjson"] = {}
        yield 204, {"description": "The run is over, and its stream has no more events"}
    yield path.status, {"description": path.about, "content": content}
    if path.answer is shapes.CancelAnswer:
        yield 202, {"description": "The run was told to end, and has not ended yet", "content": content}
    if compat and path.answer is shapes.HandlerData and path.path in (_RUN, "/workflows/{name}/run"):
        yield 202, {"description": "The run has not ended", "content": content}
        yield 500, {"description": "The run failed or was cancelled", "content": content}
