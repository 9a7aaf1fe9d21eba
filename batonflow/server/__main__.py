"""Serve the WorkflowServer of a file: ``python -m batonflow.server app.py``.

BATONFLOW_SERVER_HOST and BATONFLOW_SERVER_PORT set the address (127.0.0.1 and 8080).
``batonflow serve`` has more options.
"""

import asyncio
import os
import runpy
import sys
from pathlib import Path

from batonflow.server.app import WorkflowServer
from batonflow.workflow_core.errors import ServerConfigurationError

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Serve until the process is told to stop, and return the exit code.

    Args:
        arguments: A list with the file.
    """
    if len(arguments) != 1 or not Path(arguments[0]).is_file():
        sys.stderr.write("usage: python -m batonflow.server FILE\n")
        return 2
    file = Path(arguments[0]).resolve()
    sys.path.insert(0, str(file.parent))
    names = runpy.run_path(str(file), run_name=file.stem)
    server = next((value for value in names.values() if isinstance(value, WorkflowServer)), None)
    if server is None:
        sys.stderr.write(f"{file} has no WorkflowServer: create one, server = WorkflowServer()\n")
        return 2
    port = os.environ.get("BATONFLOW_SERVER_PORT", "8080")
    if not port.isdigit():
        sys.stderr.write(f"BATONFLOW_SERVER_PORT={port!r} is not a number\n")
        return 2
    try:
        asyncio.run(server.serve(os.environ.get("BATONFLOW_SERVER_HOST", "127.0.0.1"), int(port)))
    except ServerConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
