"""What a server says of its tools, and the names under which models know them."""

import fnmatch
import hashlib
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from batonflow.tools.errors import ToolDefinitionError

__all__ = ["ToolDefinition", "check_patterns", "digest_of", "namespace_of", "selected", "tool_name"]

LONGEST_NAME = 64
_LONGEST_NAMESPACE = 24
_LAUNCHERS = {
    "uvx", "uv", "run", "tool", "pipx", "npx", "npm", "exec", "pnpm", "dlx", "yarn", "bunx", "bun", "x", "node", "deno",
    "docker", "podman", "env",
}  # fmt: skip
_PYTHON = re.compile(r"(python|pypy)[\d.]*(w|\.exe)?$")
_DECORATION = re.compile(r"^(mcp[-_])?(server[-_])|^mcp[-_]|[-_]mcp([-_]server)?$|[-_]server$|\.(py|js|mjs|ts)$")


@dataclass(frozen=True)
class ToolDefinition:
    """A tool as its server describes it.

    Args:
        name: The server's own name for it.
        description: What the model reads.
        schema: JSON schema of its arguments.
        annotations: What the server claims of it: ``read_only_hint``, ``destructive_hint`` and so on. Claims only.
    """

    name: str
    description: str
    schema: dict[str, Any]
    annotations: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def shown(self) -> dict[str, Any]:
        """What a model is shown, and what is therefore pinned."""
        return {"name": self.name, "description": self.description, "schema": self.schema}

    @property
    def digest(self) -> str:
        """SHA-256 of what a model is shown."""
        return digest_of(self.shown)


def digest_of(shown: Mapping[str, Any]) -> str:
    """SHA-256 of JSON-able data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(shown, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def namespace_of(command: Sequence[str], url: str | None) -> str:
    """The namespace for a server that was given none: what its command or address is called, without decoration.

    A name that the server gives itself is not used: it could take that of another.
    """
    if url is not None:
        return _host_name(urlsplit(url).hostname or "")
    for part in command:
        if part in {"-c", "-e"}:
            break  # a program as text
        name = PurePath(part).name.partition("@")[0]  # without its version
        if part.startswith("-") or name in _LAUNCHERS or _PYTHON.match(name):
            continue
        return _namespace(_undecorated(name))
    return "mcp"


def _host_name(host: str) -> str:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        labels = [label for label in host.split(".") if label not in {"www", "mcp", "api"}]
        return _namespace(labels[-2] if len(labels) > 1 else "".join(labels))
    return "mcp"


def _undecorated(name: str) -> str:
    while (shorter := _DECORATION.sub("", name, count=1)) not in {name, ""}:
        name = shorter
    return name


def _plain(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)


def _namespace(name: str) -> str:
    return re.sub(r"_+", "_", _plain(name)).strip("_")[:_LONGEST_NAMESPACE].strip("_") or "mcp"


def tool_name(namespace: str, name: str) -> str:
    """The name that models use: namespaced, and valid for every vendor.

    A name that had to be changed or shortened for that ends with a hash of the server's own name, so that no two
    become one, and so that none depends on which others there are beside it.

    Args:
        namespace: Put before the name; empty for none.
        name: The server's name.
    """
    prefix = f"{namespace}__" if namespace else ""
    made = prefix + _plain(name)
    if made == prefix + name and 0 < len(made) <= LONGEST_NAME:
        return made
    return f"{made[: LONGEST_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def selected(names: Iterable[str], allow: Sequence[str] | None, deny: Sequence[str]) -> list[str]:
    """The names that match ``allow`` (all when None) and nothing in ``deny``."""
    return [
        name
        for name in names
        if (allow is None or any(fnmatch.fnmatchcase(name, one) for one in allow))
        and not any(fnmatch.fnmatchcase(name, one) for one in deny)
    ]


def check_patterns(server: str, patterns: Iterable[str], names: Sequence[str]) -> None:
    """Refuse a name that no tool has: one in ``deny`` that is misspelt would leave the tool open.

    Raises:
        ToolDefinitionError: A pattern without a wildcard names no tool; the message lists those there are.
    """
    for one in patterns:
        if not any(fnmatch.fnmatchcase(name, one) for name in names) and not set(one) & set("*?["):
            raise ToolDefinitionError(
                f"MCP server {server!r} has no tool {one!r}, which allow, deny or requires_approval names. "
                f"It has: {', '.join(names) or 'none'}"
            )
