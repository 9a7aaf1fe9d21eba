"""Starts the small MCP server many times, and imports its packages once.

``python mcp_nursery.py nurse SOCKET`` imports them and forks a server for each ``python mcp_nursery.py serve SOCKET``,
which is what a client starts: it hands over its streams, and ends with the server.
"""

# Most imports stand in functions, as what a client starts shall import as little as it can.

import os
import sys
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("mcp_server.py")


def serve(path: str, arguments: list[str]) -> int:
    """Let the nursery serve on the streams of this process; returns the exit code of the server."""
    import json
    import socket

    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        text = json.dumps({"arguments": arguments, "environment": dict(os.environ)}).encode()
        socket.send_fds(line, [len(text).to_bytes(4, "big")], [0, 1, 2])
        line.sendall(text)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        return int(line.recv(16) or b"1")


def begin(line: Any) -> int | None:
    """Fork a server that uses the streams of a client; return its process, None for a client that has gone."""
    import json
    import runpy
    import socket
    import traceback

    try:
        size, streams, _, _ = socket.recv_fds(line, 4, 3)
    except OSError:
        return None
    try:
        with line.makefile("rb") as reader:
            told = json.loads(reader.read(int.from_bytes(size, "big")))
    except (ValueError, OSError):
        for stream in streams:
            os.close(stream)
        return None
    process = os.fork()
    if process == 0:
        status = 1
        try:
            line.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            os.environ.clear()
            os.environ.update(told["environment"])
            sys.argv = [str(SERVER), *told["arguments"]]
            runpy.run_path(str(SERVER), run_name="__main__")
            status = 0
        except BaseException:  # noqa: BLE001 - nothing of the nursery may go on in the server
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    for stream in streams:
        os.close(stream)
    return process


def nurse(path: str) -> None:
    """Fork servers until the standard input ends."""
    import gc
    import selectors
    import signal
    import socket
    from contextlib import suppress

    gc.disable()
    import mcp.server

    assert mcp.server
    served: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX) as door, selectors.DefaultSelector() as waiting:
        door.bind(path)
        door.listen(50)
        waiting.register(sys.stdin, selectors.EVENT_READ)
        waiting.register(door, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in waiting.select(0.01 if served else None):
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is door:
                    line, _ = door.accept()
                    process = begin(line)
                    if process is None:
                        line.close()
                        continue
                    served[process] = line
                    waiting.register(line, selectors.EVENT_READ, process)
                else:
                    # What the client started is gone.
                    waiting.unregister(key.fileobj)
                    with suppress(ProcessLookupError):
                        os.kill(key.data, signal.SIGKILL)
            while served and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                process, status = ended
                line = served.pop(process)
                with suppress(KeyError):
                    waiting.unregister(line)
                with suppress(OSError), line:
                    line.sendall(b"%d" % (os.waitstatus_to_exitcode(status) % 256))


if __name__ == "__main__":
    if sys.argv[1] == "nurse":
        nurse(sys.argv[2])
    else:
        sys.exit(serve(sys.argv[2], sys.argv[3:]))
