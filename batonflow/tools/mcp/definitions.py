"""Definitions of a server's tools, and their names for models."""

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

from batonflow.tools.schema import ToolDefinitionError

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
        description: The description for the model.
        schema: JSON schema of its arguments.
        annotations: Unverified claims of the server: ``read_only_hint``, ``destructive_hint`` and so on.
    """

    name: str
    description: str
    schema: dict[str, Any]
    annotations: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def shown(self) -> dict[str, Any]:
        """The part of the definition that models read, and that is therefore pinned."""
        return {"name": self.name, "description": self.description, "schema": self.schema}

    @property
    def digest(self) -> str:
        """SHA-256 of the pinned part."""
        return digest_of(self.shown)


def digest_of(shown: Mapping[str, Any]) -> str:
    """Return the SHA-256 of JSON data, independent of the order of keys."""
    return hashlib.sha256(json.dumps(shown, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def namespace_of(command: Sequence[str], url: str | None) -> str:
    """Return the default namespace of a server: the plain name of its command or address.

    The server's own name is not used, because it could imitate another server.
    """
    if url is not None:
        return _host_name(urlsplit(url).hostname or "")
    for part in command:
        if part in {"-c", "-e"}:
            break  # a program in one text
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
    """Return the name for models: namespaced, and valid for every vendor.

    A name that had to be changed or shortened ends with a hash of the server's own name. Names are thus unique and
    independent of other tools.

    Args:
        namespace: Prefix of the name; empty for no prefix.
        name: The server's name.
    """
    prefix = f"{namespace}__" if namespace else ""
    made = prefix + _plain(name)
    if made == prefix + name and 0 < len(made) <= LONGEST_NAME:
        return made
    return f"{made[: LONGEST_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def selected(names: Iterable[str], allow: Sequence[str] | None, deny: Sequence[str]) -> list[str]:
    """Return the names that match ``allow`` (all if None) and do not match ``deny``."""
    return [
        name
        for name in names
        if (allow is None or any(fnmatch.fnmatchcase(name, one) for one in allow))
        and not any(fnmatch.fnmatchcase(name, one) for one in deny)
    ]


def check_patterns(server: str, patterns: Iterable[str], names: Sequence[str]) -> None:
    """Refuse an unknown tool name: a misspelt entry in ``deny`` would leave the tool open.

    Raises:
        ToolDefinitionError: A pattern without a wildcard names an unknown tool; the message lists the tools.
    """
    for one in patterns:
        if not any(fnmatch.fnmatchcase(name, one) for name in names) and not set(one) & set("*?["):
            raise ToolDefinitionError(
                f"MCP server {server!r} has no tool {one!r}, which allow, deny or requires_approval names. "
                f"It has: {', '.join(names) or 'no tools'}"
            )
