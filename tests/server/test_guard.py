"""Who may ask a server; each test is named after what it guards against."""

import asyncio
import os
import socket
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import httpx2
import pytest
from starlette.responses import PlainTextResponse

from batonflow.server import WorkflowServer
from batonflow.server.guard import is_loopback
from batonflow.workflow_core.errors import ServerConfigurationError
from tests.server.conftest import Serving
from tests.server.flows import Ask, Greet, Plain
from tests.serving import serving as serving_in_a_thread

TOKEN = "correct-horse-battery-staple"


def every_route(server: WorkflowServer) -> list[tuple[str, str]]:
    """Method and path of every route that the document names, and of what is mounted."""
    found = [
        (method.upper(), path.replace("{name}", "plain").replace("{handler_id}", "x").replace("{request_id}", "y"))
        for path, methods in server.openapi_schema()["paths"].items()
        for method in methods
    ]
    return [*found, ("GET", "/more/inside"), ("GET", "/nowhere"), ("POST", "/nowhere"), ("OPTIONS", "/workflows")]


def server_with(**options: object) -> WorkflowServer:
    server = WorkflowServer(**options)
    server.add_workflow("plain", Plain())
    server.mount("/more", PlainTextResponse("inside"))
    return server


def asking(
    server: WorkflowServer, client: tuple[str, int] | None = ("127.0.0.1", 5), host: str = "localhost"
) -> httpx2.AsyncClient:
    """A client that comes from where it says, without a socket."""
    transport = httpx2.ASGITransport(app=server.app, client=client)
    return httpx2.AsyncClient(transport=transport, base_url=f"http://{host}")


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("::ffff:10.0.0.1", False),
        ("example.org", False),
        ("", False),
        ("testclient", False),
    ],
)
def test_which_addresses_only_this_machine_can_reach(host: str, local: bool) -> None:
    assert is_loopback(host) is local


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", ""])
async def test_serving_to_other_machines_without_a_token_is_refused_at_once(host: str) -> None:
    with pytest.raises(ServerConfigurationError, match="BATONFLOW_TOKEN"):
        await WorkflowServer().serve(host=host, port=0)


def test_a_program_that_serves_to_other_machines_without_a_token_exits_with_an_error(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import asyncio
        from batonflow.server import WorkflowServer
        asyncio.run(WorkflowServer().serve(host="0.0.0.0", port=0))
    """)
    environment = {name: value for name, value in os.environ.items() if name != "BATONFLOW_TOKEN"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    assert "set a token" in done.stderr


async def test_a_client_of_another_machine_is_refused_on_every_route_whoever_serves_the_app() -> None:
    server = server_with()
    async with server.contextmanager():
        for client in (("192.168.1.5", 5), ("::ffff:10.0.0.1", 5), ("testclient", 5), None):
            async with asking(server, client) as http:
                for method, path in every_route(server):
                    answer = await http.request(method, path)
                    assert answer.status_code == 403, (client, method, path)
                    assert "token" in answer.json()["detail"]


async def test_a_client_of_another_machine_is_let_in_with_the_token() -> None:
    server = server_with(token=TOKEN)
    async with server.contextmanager(), asking(server, ("192.168.1.5", 5)) as http:
        assert (await http.get("/workflows")).status_code == 401
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert (await http.get("/workflows", headers=headers)).status_code == 200


async def test_every_route_needs_the_token_but_health_and_the_page() -> None:
    server = server_with(token=TOKEN)
    async with server.contextmanager(), asking(server) as http:
        for method, path in every_route(server):
            answer = await http.request(method, path)
            if path in ("/health", "/") and method == "GET":
                assert answer.status_code in (200, 404)
            else:
                assert answer.status_code == 401, (method, path)
                assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", "Bearer wrong")],
        [("Authorization", f"Bearer {TOKEN}x")],
        [("Authorization", f"Bearer {TOKEN[:-1]}")],
        [("Authorization", f"Basic {TOKEN}")],
        [("Authorization", TOKEN)],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer ünknown")],
        [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer wrong")],
        [("Cookie", f"token={TOKEN}")],
        [("X-Token", TOKEN)],
    ],
)
async def test_the_token_counts_only_in_its_header_and_only_whole(headers: list[tuple[str, str]]) -> None:
    server = server_with(token=TOKEN)
    raw = [(name.encode(), value.encode()) for name, value in headers]
    async with server.contextmanager(), asking(server) as http:
        assert (await http.get(f"/workflows?token={TOKEN}&access_token={TOKEN}", headers=raw)).status_code == 401


async def test_the_token_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATONFLOW_TOKEN", TOKEN)
    server = server_with()
    async with server.contextmanager(), asking(server) as http:
        assert (await http.get("/workflows")).status_code == 401
        assert (await http.get("/workflows", headers={"Authorization": f"bearer {TOKEN}"})).status_code == 200


@pytest.mark.parametrize("token", ["", " ", "a b\n", "ünknown", " lead"])
def test_a_token_that_no_header_can_carry_is_refused(token: str) -> None:
    with pytest.raises(ServerConfigurationError, match="token"):
        WorkflowServer(token=token)


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:80", "localhost.evil.test", "localhost@evil.test", "", "[::1"]
)
async def test_dns_rebinding_a_foreign_host_header_is_refused_on_every_route(host: str, token: str | None) -> None:
    server = server_with(token=token)
    headers = {"Host": host, "Authorization": f"Bearer {TOKEN}"}
    async with server.contextmanager(), asking(server) as http:
        for method, path in every_route(server):
            answer = await http.request(method, path, headers=headers)
            assert answer.status_code == 421, (method, path)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9", "127.0.0.1:8080", "[::1]:8080", "192.168.1.5", "my.box:1"]
)
async def test_own_names_and_addresses_are_known(host: str) -> None:
    server = server_with(allowed_hosts=["my.box"])
    async with server.contextmanager(), asking(server) as http:
        assert (await http.get("/workflows", headers={"Host": host})).status_code == 200


async def test_a_star_allows_every_name() -> None:
    server = server_with(allowed_hosts=["*"])
    async with server.contextmanager(), asking(server) as http:
        assert (await http.get("/workflows", headers={"Host": "anything.test"})).status_code == 200


def test_a_text_for_a_list_of_names_is_refused() -> None:
    with pytest.raises(ServerConfigurationError, match="allowed_hosts"):
        WorkflowServer(allowed_hosts="my.box")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.test"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://localhost.evil.test"},
        {"Origin": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost"},
    ],
)
@pytest.mark.parametrize("token", [None, TOKEN])
async def test_pages_of_other_sites_cannot_change_anything(headers: dict[str, str], token: str | None) -> None:
    server = server_with(token=token)
    headers = {**headers, "Authorization": f"Bearer {TOKEN}"}
    async with server.contextmanager(), asking(server) as http:
        for method, path in every_route(server):
            if method == "POST":
                assert (await http.request(method, path, headers=headers, json={})).status_code == 403, path
        assert (await http.get("/handlers", headers=headers)).json()["handlers"] == []


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({"Host": "localhost:PORT", "Origin": "http://localhost:PORT"}, True),
        ({"Host": "localhost:PORT", "Origin": "https://localhost:PORT"}, False),
        ({"Host": "localhost", "Origin": "https://localhost"}, True),  # of a proxy that does not tell
        ({"Host": "localhost", "Origin": "http://localhost"}, True),
        ({"Host": "localhost", "Origin": "https://localhost", "X-Forwarded-Proto": "https"}, True),
        ({"Host": "localhost", "Origin": "http://localhost", "X-Forwarded-Proto": "https"}, False),
        ({"Host": "localhost", "Origin": "https://localhost", "X-Forwarded-Proto": "http"}, False),
        ({"Host": "localhost:x", "Origin": "http://localhost:x"}, True),
    ],
)
async def test_a_page_under_the_same_name_with_another_scheme_is_another_site(
    serving: Serving, headers: dict[str, str], own: bool
) -> None:
    async with serving(server_with()) as running:
        sent = {name: value.replace("PORT", str(running.port)) for name, value in headers.items()}
        answer = await running.http.post("/workflows/plain/run", json={}, headers=sent)
        assert answer.status_code == (200 if own else 403)


async def test_the_own_page_can_change_things() -> None:
    server = server_with()
    headers = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    async with server.contextmanager(), asking(server) as http:
        assert (await http.post("/workflows/plain/run", json={}, headers=headers)).status_code == 200


async def test_no_answer_has_cors_headers() -> None:
    server = server_with()
    asks = {"Origin": "http://evil.test", "Access-Control-Request-Method": "POST"}
    async with server.contextmanager(), asking(server) as http:
        for method, path in [*every_route(server), ("OPTIONS", "/workflows/plain/run")]:
            answer = await http.request(method, path, headers=asks)
            assert not [name for name in answer.headers if name.startswith("access-control")], (method, path)


async def test_every_answer_tells_browsers_to_do_nothing_with_it() -> None:
    server = server_with()
    async with server.contextmanager(), asking(server) as http:
        for method, path in every_route(server):
            headers = (await http.request(method, path)).headers
            assert headers["x-content-type-options"] == "nosniff", (method, path)
            assert headers["x-frame-options"] == "DENY"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert "unsafe" not in headers["content-security-policy"]


async def test_a_websocket_is_turned_away_like_any_other_client() -> None:
    server = server_with(token=TOKEN)
    sent: list[dict] = []

    async def receive() -> dict:
        return {"type": "websocket.connect"}

    async def send(message: dict) -> None:
        sent.append(message)

    scope = {
        "type": "websocket", "path": "/more/inside", "client": ("127.0.0.1", 5), "headers": [(b"host", b"localhost")],
    }  # fmt: skip
    await server.app(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


@pytest.mark.parametrize(
    "path", ["/..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/%00", "/page/page.html", "/static/x"]
)
async def test_no_path_leads_to_a_file(serving: Serving, path: str) -> None:
    async with serving(server_with()) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 404")


async def test_a_run_is_not_found_by_another_id(serving: Serving) -> None:
    async with serving(WorkflowServer(), ask=Ask(timeout=None)) as running:
        run_id = await running.start("ask")
        for guess in (run_id[:-1], run_id + "x", run_id.swapcase(), "*", "%", "' OR 1=1 --", "%25"):
            assert (await running.http.get(f"/handlers/{guess}")).status_code == 404


# --- two lengths ------------------------------------------------------------------------------------------------------

_SECOND = b"GET /workflows HTTP/1.1\r\nHost: localhost\r\n\r\n"


def everything_from(url: str, sent: bytes) -> bytes:
    """What comes until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=20) as one:
        one.sendall(sent)
        return b"".join(iter(partial(one.recv, 65536), b""))


@pytest.mark.parametrize("path", [b"/workflows/greet/run", b"/health", b"/nothing"])
@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n",
        b"transfer-encoding: Chunked\r\ncontent-length: 0\r\n",
    ],
)
def test_a_request_with_two_lengths_ends_the_connection(path: bytes, headers: bytes) -> None:
    """Behind a proxy that goes by the other length, what is behind the body would be a request of somebody else."""
    server = WorkflowServer()
    server.add_workflow("greet", Greet())
    with serving_in_a_thread(server.app) as url:
        answer = everything_from(
            url, b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n0\r\n\r\n" + _SECOND
        )
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"connection: close" in answer.lower()
    assert b"Content-Length and Transfer-Encoding are both given" in answer
