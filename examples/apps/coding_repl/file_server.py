"""An MCP server over stdio with the files of one folder: ``python file_server.py FOLDER``."""

import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

LARGEST = 100_000

server = MCPServer("files", log_level="ERROR")
root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()


def inside(name: str) -> Path:
    """Return the path of a file below the folder; links that lead out of it are refused."""
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise ToolError(f"{name} lies outside of the folder; name a file below it")
    return path


@server.tool()
def list_files() -> list[str]:
    """List the files of the folder."""
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if not any(part.startswith(".") for part in path.parts))


@server.tool()
def read_file(name: str) -> str:
    """Read a text file of the folder."""
    path = inside(name)
    if not path.is_file():
        raise ToolError(f"there is no file {name}; list_files names them")
    if path.stat().st_size > LARGEST:
        raise ToolError(f"{name} has more than {LARGEST} bytes")
    return path.read_text()


@server.tool()
def write_file(name: str, text: str) -> str:
    """Write a text file of the folder, in place of what it held."""
    path = inside(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return f"{len(text)} characters written to {name}"


if __name__ == "__main__":
    server.run("stdio")
