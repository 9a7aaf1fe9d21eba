"""The document says what the server does: schemathesis asks whatever it allows and judges the answers by it."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from jsonschema import Draft202012Validator
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from batonflow.server import WorkflowServer
from tests.server.flows import Ask, Count, Fail, Greet, Plain


def server() -> WorkflowServer:
    made = WorkflowServer(idle_timeout=0.05, body_timeout=2)
    for name, workflow in (
        ("greet", Greet()),
        ("ask", Ask(timeout=2)),
        ("fail", Fail()),
        ("plain", Plain()),
        ("count", Count(timeout=2)),
    ):
        made.add_workflow(name, workflow)
    return made


@contextmanager
def in_a_thread(made: WorkflowServer) -> Iterator[str]:
    unicorn = uvicorn.Server(made.uvicorn_config("127.0.0.1", 0, {"lifespan": "on"}))
    thread = threading.Thread(target=unicorn.run)
    thread.start()
    while not unicorn.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{unicorn.servers[0].sockets[0].getsockname()[1]}"
    finally:
        unicorn.should_exit = True
        thread.join()


def test_every_schema_in_the_document_is_one() -> None:
    document = WorkflowServer().openapi_schema()
    assert document["openapi"] == "3.1.0"
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_every_route_is_in_the_document() -> None:
    made = server()
    named = {(path.replace(":path", ""), method) for path, method in _routes(made)}
    told = {
        (path.replace("{handler_id}", "{run_id}"), method.upper())
        for path, methods in made.openapi_schema()["paths"].items()
        for method in methods
    }
    assert named == told


def _routes(made: WorkflowServer) -> Iterator[tuple[str, str]]:
    for route in made.app.routes:
        for method in route.methods - {"HEAD"}:
            yield route.path, method


def test_the_switch_for_older_status_codes_is_in_the_document() -> None:
    run = WorkflowServer(compat_status_codes=True).openapi_schema()["paths"]["/handlers/{handler_id}"]["get"]
    assert {"200", "202", "500"} <= set(run["responses"])
    run = WorkflowServer().openapi_schema()["paths"]["/handlers/{handler_id}"]["get"]
    assert not {"202", "500"} & set(run["responses"])


_FIELDS = [
    {"_data": 1}, {"_data": []}, {"_data": {"_result": 1}}, {"_result": 1}, {"self": 1}, {"cls": 1, "result": 1},
    {"__class__": 1, "__dict__": {}, "model_fields": 3, "_private": 1}, {"": 1}, {"text": "x", "_data": 5},
    {"text": "x", "self": 1}, {"text": "x", "_data": {"text": 1, "self": 1}},
]  # fmt: skip
_EDITS = [
    {"": 1}, {".": 1}, {"a..b": 1}, {"count.x": 1}, {"count": "x"}, {"nope": 1}, {"of": [1]}, {"of.a.b": 1},
    {"__class__": 1}, {"__dict__": {"count": 7}}, {"__pydantic_fields_set__": 1}, {"model_config": {}}, {"_data": 1},
]  # fmt: skip
_HARD = {
    "POST /workflows/{name}/run-nowait": [{"start_event": fields} for fields in _FIELDS],
    "POST /events/{handler_id}": [
        {"event": {"type": kind, "value": fields}}
        for fields in _FIELDS
        for kind in ("Answered", "HumanResponseEvent", "StartEvent")
    ],
    "POST /handlers/{handler_id}/pending/{request_id}": [{"response": fields} for fields in _FIELDS],
    "POST /handlers/{handler_id}/fork": [{"at": 1, "state": state} for state in _EDITS],
}
"""Bodies that the document allows and that are made to break something."""


def test_names_with_a_meaning_in_python_are_names() -> None:
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    with in_a_thread(server()) as url, httpx2.Client(base_url=url, timeout=30) as client:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        asked: set[str] = set()
        for operation in (result.ok() for result in schema.get_all_operations()):
            for body in _HARD.get(operation.label, ()):
                run_id = client.post("/workflows/count/run-nowait", json={}).json()["handler_id"]
                while not (pending := client.get(f"/handlers/{run_id}/pending").json()["pending"]):
                    pass
                places = {"name": "count", "handler_id": run_id, "request_id": pending[0]["id"]}
                wanted = {name: value for name, value in places.items() if f"{{{name}}}" in operation.path}
                case = operation.Case(path_parameters=wanted, body=body, media_type="application/json")
                case.call_and_validate(checks=checks, timeout=10)
                asked.add(operation.label)
        assert asked == set(_HARD)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_whatever_the_document_allows_is_answered_as_it_says(soaks: bool) -> None:
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    limits = settings(
        max_examples=100 if soaks else 10,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with in_a_thread(server()) as url:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        runs = [
            httpx2.post(f"{url}/workflows/{name}/run-nowait", json={"start_event": {"name": "Ann"}}).json()[
                "handler_id"
            ]
            for name in ("greet", "ask", "fail", "count")
        ]
        known = {
            "name": ["greet", "ask", "fail", "plain", "count"],
            "handler_id": runs,
            "request_id": ["no/such question"],
        }
        answered: Counter[int] = Counter()
        for result in schema.get_all_operations():
            operation = result.ok()
            waits_for_end = operation.label.endswith("/run")

            @limits
            @given(case=operation.as_strategy())
            def ask(case: schemathesis.Case) -> None:
                number = answered.total()
                for name in case.path_parameters or {}:
                    if number % 5:  # what there is, mostly
                        values = known[name]
                        if name == "name" and waits_for_end:  # noqa: B023 - called at once
                            values = ["greet", "fail", "plain"]  # the others wait for a person, as long as it takes
                        case.path_parameters[name] = values[number % len(values)]
                answered[case.call_and_validate(checks=checks, timeout=10).status_code] += 1

            ask()
    # Else it was all refused, and shows nothing.
    assert answered[200] > 50
    assert {200, 400, 404, 409} <= set(answered)
