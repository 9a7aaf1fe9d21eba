"""`batonflow serve`: a server that is asked over HTTP."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from batonflow.lazy import how_to_install
from tests.cli.conftest import Cli
from tests.cli.projects import cli, start
from tests.sampling import sampled


@pytest.fixture
def serving(folder: Path) -> Iterator[Callable[..., tuple["subprocess.Popen[str]", str]]]:
    """Begins to serve, and gives the process and the address that it prints."""
    begun: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> tuple["subprocess.Popen[str]", str]:
        process = start(folder, "serve", *arguments, "--port", "0")
        begun.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+/", line)
        assert found, (line, process.stderr.read() if process.stderr and not line else "")
        return process, found.group()

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def asked(url: str, body: object = None, **headers: str) -> object:
    """What the server answers."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data=data, headers={"Content-Type": "application/json", **headers})
    with urlopen(request, timeout=40) as answer:
        return json.load(answer)


def test_a_workflow_is_served_until_ctrl_c(serving: Callable[..., tuple["subprocess.Popen[str]", str]]) -> None:
    process, url = serving("flows.py:greet", "--store", "runs.db")
    answer = asked(f"{url}workflows/greet/run", {"start_event": {"name": "Ann"}})
    assert isinstance(answer, dict)
    assert answer["status"] == "completed"
    assert "hello Ann" in json.dumps(answer["result"])
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=40)
    assert (process.returncode, errors) == (130, "")


def test_a_token_is_wanted_from_clients(serving: Callable[..., tuple["subprocess.Popen[str]", str]]) -> None:
    _, url = serving("team.py:team", "--token", "open-sesame", "--store", "runs.db")
    with pytest.raises(HTTPError) as refused:
        asked(f"{url}workflows")
    refused.value.close()
    assert refused.value.code == 401
    assert "team" in json.dumps(asked(f"{url}workflows", Authorization="Bearer open-sesame"))


def test_a_server_on_all_addresses_prints_them_and_a_usable_one(
    folder: Path, serving: Callable[..., tuple["subprocess.Popen[str]", str]]
) -> None:
    process = start(folder, "serve", "flows.py:greet", "--host", "0.0.0.0", "--token", "x", "--port", "0")
    try:
        assert process.stdout is not None
        found = re.fullmatch(
            r"serving greet on 0\.0\.0\.0, port (\d+): (http://[\d.]+:\1/) \(Ctrl-C stops\)\n",
            process.stdout.readline(),
        )
        assert found is not None
        for url in (found[2], f"http://127.0.0.1:{found[1]}/"):
            assert asked(f"{url}workflows", Authorization="Bearer x") == {"workflows": ["greet"]}
    finally:
        process.kill()
        process.communicate()


def test_a_server_serves_what_it_has(
    folder: Path, serving: Callable[..., tuple["subprocess.Popen[str]", str]], here: Cli
) -> None:
    (folder / "served.py").write_text(
        "from batonflow.server import WorkflowServer\n"
        "from flows import ask, greet\n"
        "server = WorkflowServer(store='runs.db')\n"
        "server.add_workflow('one', greet)\n"
        "server.add_workflow('other', ask)\n"
    )
    _, url = serving("served.py:server")
    assert asked(f"{url}workflows") == {"workflows": ["one", "other"]}
    code, _, errors = here("serve", "served.py:server", "--token", "x")
    assert code == 2
    assert "is a server with its own store and token" in errors
    code, _, errors = here("run", "served.py:server")
    assert code == 2
    assert "is a server: start it with `batonflow serve served.py:server`" in errors


def test_other_machines_are_refused_without_a_token(here: Cli) -> None:
    code, output, errors = here("serve", "flows.py:greet", "--host", "0.0.0.0", "--port", "0", "--store", "runs.db")
    assert (code, output) == (1, "")
    assert "set a token" in errors


def test_a_port_that_is_taken(here: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, output, errors = here("serve", "flows.py:greet", "--port", port, "--store", "runs.db")
    assert (code, output) == (1, "")
    told = f"port {port} of 127.0.0.1 is in use by another program: end it, or choose another port with --port"
    assert errors == f"batonflow serve: {told}\n"


def test_an_address_of_another_machine(here: Cli) -> None:
    code, output, errors = here("serve", "flows.py:greet", "--host", "192.0.2.1", "--token", "x", "--port", "0")
    assert (code, output) == (1, "")
    told = "cannot listen on 192.0.2.1, port 0: Cannot assign requested address. Choose others with --host and --port"
    assert told in errors


GIVES_RIGHTS_UP = """
import os
from batonflow.server import WorkflowServer
from flows import greet

server = WorkflowServer(store="runs.db")
server.add_workflow("greet", greet)
os.setuid(65534)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give rights up")
@pytest.mark.parametrize(
    ("served", "mode", "told"),
    sampled(
        [
            ("greet", 0o444, "cannot be written (attempt to write a readonly database)"),
            ("greet", 0, "cannot be read"),
            ("server", 0o444, "cannot be written (attempt to write a readonly database)"),
            ("server", 0, "cannot be read"),
        ],
        every=3,
    ),
)
def test_a_store_that_cannot_be_written_is_refused(folder: Path, served: str, mode: int, told: str) -> None:
    # A directory of its own below /tmp: those above pytest's are closed to other users.
    public = Path("/tmp") / f"batonflow-{os.getpid()}-{folder.name}"
    public.mkdir()
    try:
        for one in folder.iterdir():
            (public / one.name).write_text(one.read_text())
        (public / "served.py").write_text(GIVES_RIGHTS_UP)
        assert cli(public, "run", "flows.py:greet", "--store", "runs.db")[0] == 0
        (public / "runs.db").chmod(mode)
        public.chmod(0o777)
        options = ["--store", "runs.db"] if served == "greet" else []
        code, output, errors = cli(public, "serve", f"served.py:{served}", "--port", "0", *options)
    finally:
        shutil.rmtree(public)
    assert (code, output) == (1, "")
    assert errors.startswith(f"batonflow serve: The database {public / 'runs.db'} {told}")
    assert len(errors.splitlines()) == 1


def test_without_what_it_stands_on_it_says_what_to_install(here: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    # First, because it loads the module if no other test has done so.
    monkeypatch.delattr("batonflow.cli.cmd_serve", raising=False)
    for name in [one for one in sys.modules if one.startswith("batonflow.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "batonflow.cli.cmd_serve", raising=False)
    monkeypatch.setitem(sys.modules, "starlette", None)
    code, _, errors = here("serve", "flows.py:greet")
    assert code == 1
    assert how_to_install("server") in errors


def test_a_workflow_is_served_under_its_own_name(
    serving: Callable[..., tuple["subprocess.Popen[str]", str]], folder: Path
) -> None:
    (folder / "made.py").write_text(
        "from flows import Greet\ndef make_greet():\n    return Greet(workflow_name='greeter')\n"
    )
    _, url = serving("made.py:make_greet", "--store", "runs.db")
    assert asked(f"{url}workflows") == {"workflows": ["greeter"]}


def write_browser(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a browser that notes the address in the file ``opened``."""
    browser = folder / "browser"
    browser.write_text(f"#!{sys.executable}\nimport sys\nopen({str(folder / 'opened')!r}, 'w').write(sys.argv[1])\n")
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", str(browser))


def test_the_page_is_opened_in_a_browser(
    serving: Callable[..., tuple["subprocess.Popen[str]", str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_browser(folder, monkeypatch)
    process, url = serving("flows.py:greet", "--store", "runs.db", "--open")
    until((folder / "opened").exists)
    until(lambda: (folder / "opened").read_text() == url)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=40)


def test_an_agent_is_opened_with_its_conversations(
    serving: Callable[..., tuple["subprocess.Popen[str]", str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_browser(folder, monkeypatch)
    (folder / "talks.py").write_text(
        "from batonflow import FunctionAgent, ScriptedLLM\n"
        "def make():\n    return FunctionAgent(name='helper', llm=ScriptedLLM(['Hello.']))\n"
        "def known():\n    return FunctionAgent(name='known', llm=ScriptedLLM([]), deps_for=lambda info: 5)\n"
    )
    process, url = serving("talks.py:make", "--store", "runs.db", "--open")
    until((folder / "opened").exists)
    until(lambda: (folder / "opened").read_text() == f"{url}#chat=make")
    assert asked(f"{url}chats") == {"chats": ["make"]}
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=40)
    _, url = serving("talks.py:known", "--store", "runs.db")
    assert asked(f"{url}chats") == {"chats": []}, "clients do not choose whose dependencies they get"


def test_a_change_of_the_code_is_served_at_once(
    serving: Callable[..., tuple["subprocess.Popen[str]", str]], folder: Path
) -> None:
    process, _ = serving("flows.py:greet", "--store", "runs.db", "--reload")
    assert process.stdout is not None
    assert process.stderr is not None
    before = (folder / "flows.py").read_text()
    (folder / "flows.py").write_text(f"{before}\nraise RuntimeError('half a thought')\n")
    assert process.stderr.readline() == "the code has changed: starting again\n"
    assert "half a thought" in process.stderr.readline()
    assert process.stderr.readline() == "the server has ended; it starts again with the next change\n"
    (folder / "flows.py").write_text(before.replace('"hello"', '"goodbye"'))
    found = re.search(r"http://\S+/", process.stdout.readline())
    assert found
    answer = asked(f"{found.group()}workflows/greet/run", {"start_event": {"name": "Ann"}})
    assert "goodbye Ann" in json.dumps(answer)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=40)
    assert process.returncode == 130
    with pytest.raises(URLError):
        asked(f"{found.group()}health")


def until(fits: Callable[[], bool]) -> None:
    while not fits():
        time.sleep(0.01)
