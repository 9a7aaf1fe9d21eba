"""A server of the older protocol that may keep its list of tools to itself: ``python mcp_lister.py MOOD``.

The file MOOD says how it takes the question for its tools: it is ``silent``, it ``ends`` (once), or it answers. Every
call of its one tool changes the list, as far as the server says.
"""

import json
import sys
from pathlib import Path
from typing import Any

TOOL = {"name": "greet", "description": "Greet.", "inputSchema": {"type": "object"}}


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(method: str, params: dict[str, Any], mood: Path) -> dict[str, Any] | None:
    match method:
        case "initialize":
            about = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "lister", "version": "1"}}
            return {"protocolVersion": params["protocolVersion"], **about}
        case "tools/list":
            if mood.read_text() == "ends":
                mood.write_text("talkative")
                sys.exit("no list today")
            return None if mood.read_text() == "silent" else {"tools": [TOOL]}
        case _:
            say(method="notifications/tools/list_changed")
            return {"content": [{"type": "text", "text": "hello"}]}


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = answer(message["method"], message.get("params", {}), Path(sys.argv[1]))
            if result is not None:
                say(id=message["id"], result=result)
