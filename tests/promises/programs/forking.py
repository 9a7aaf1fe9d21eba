"""Runs programs in processes that are forked from this one, which has imported what most of them import.

``python forking.py SOCKET`` serves one program after another: a connection sends one line of JSON (``program``,
``folder``, ``environment``, and the files ``output`` and ``errors``) and gets the exit code. It ends when a
connection sends nothing.
"""

import gc
import json
import os
import runpy
import socket
import sys
from pathlib import Path
from typing import Any


def next_program(path: str) -> dict[str, Any] | None:
    """Serve until the end, and return None; in the process of a program, return what to run."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        while True:
            connection, _ = listening.accept()
            with connection, connection.makefile("r") as lines:
                line = lines.readline()
                if not line:
                    return None
                pid = os.fork()
                if pid == 0:
                    return json.loads(line)
                _, status = os.waitpid(pid, 0)
                connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def become(job: dict[str, Any]) -> None:
    """Give this process the folder, the environment and the files of a program."""
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    writes = os.O_WRONLY | os.O_CREAT
    files = ((os.devnull, os.O_RDONLY), (job["output"], writes), (job["errors"], writes))
    for number, (name, flags) in enumerate(files):
        os.dup2(os.open(name, flags), number)
    sys.argv = [job["program"]]
    sys.path.insert(0, str(Path(job["program"]).parent))


if __name__ == "__main__":
    import openai  # noqa: F401

    import batonflow.agents.function
    import batonflow.agents.memory.buffer
    import batonflow.durable.opening
    import batonflow.durable.stores.memory
    import batonflow.durable.stores.sqlite
    import batonflow.llms.openai
    import batonflow.testing
    import batonflow.tools.function
    import batonflow.workflow_core.context.snapshot  # noqa: F401

    gc.freeze()  # otherwise the end of each program would look at all that is imported
    program = next_program(sys.argv[1])
    if program is not None:
        become(program)
        runpy.run_path(program["program"], run_name="__main__")
