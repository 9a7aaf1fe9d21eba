"""What has to be installed for what."""

import subprocess
import sys

from batonflow.lazy import how_to_install
from tests.promises.programs.running import ROOT

WITHOUT = """
import sys
for name in ("starlette", "uvicorn"):
    sys.modules[name] = None
"""


def ran(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_files_of_runs_need_no_server():
    assert ran(f"{WITHOUT}\nfrom batonflow.server.page import export_run\nprint('there')") == "there\n"


IMPORTED = """
try:
    from batonflow.server import WorkflowServer
except ImportError as error:
    print(error)
"""


def test_the_server_says_what_it_needs():
    assert f"A server needs starlette, which is not installed: {how_to_install('server')}" in ran(WITHOUT + IMPORTED)
