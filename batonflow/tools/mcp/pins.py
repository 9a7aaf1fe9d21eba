"""Pins: the first seen definitions of tools, so that a server cannot change them unnoticed."""

import contextlib
import difflib
import json
import os
import secrets
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from batonflow.tools.mcp.definitions import ToolDefinition, digest_of

__all__ = ["Pins", "ToolChange"]


@dataclass(frozen=True)
class ToolChange:
    """A tool that differs from its pin.

    Args:
        name: The server's own name for it.
        before: The pinned ``name``, ``description`` and ``schema``.
        after: The server's present definition.
    """

    name: str
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of the present definition."""
        return digest_of(self.after)

    @property
    def difference(self) -> str:
        """The changes, line by line, in the form of ``diff -u``."""
        lines = difflib.unified_diff(
            _lines(self.before), _lines(self.after), f"{self.name} (pinned)", f"{self.name} (now)", lineterm=""
        )
        return "\n".join(lines)


def _lines(shown: dict[str, Any]) -> list[str]:
    schema = json.dumps(shown.get("schema"), indent=2, sort_keys=True, ensure_ascii=False)
    return [*str(shown.get("description", "")).splitlines(), *schema.splitlines()]


class Pins:
    """The pinned tools of one server.

    Args:
        place: A JSON file, created with mode 0600, or a dict. Several servers may share it.
        server: The key of the server's entries.

    Raises:
        ValueError: The file or the dict does not hold pins.
    """

    def __init__(self, place: str | os.PathLike[str] | MutableMapping[str, Any], server: str) -> None:
        self._path = None if isinstance(place, MutableMapping) else Path(place)
        self._dict: MutableMapping[str, Any] = place if isinstance(place, MutableMapping) else {}
        self._server = server

    def changes(self, tools: Iterable[ToolDefinition]) -> list[ToolChange]:
        """Return differences from the pins; pin a tool that is seen for the first time."""
        pinned = self._read().get(self._server, {})
        new = {tool.name: tool for tool in tools if tool.name not in pinned}
        if new:
            self.pin(new.values())
        return [
            ToolChange(tool.name, pinned[tool.name], tool.shown)
            for tool in tools
            if tool.name in pinned and digest_of(pinned[tool.name]) != tool.digest
        ]

    def pinned(self, name: str) -> dict[str, Any] | None:
        """Return the pinned definition of a tool."""
        return cast("dict[str, Any] | None", self._read().get(self._server, {}).get(name))

    def pin(self, tools: Iterable[ToolDefinition]) -> None:
        """Pin the present definitions of these tools."""
        everything = self._read()  # read again: another process may have pinned tools of other servers meanwhile
        everything.setdefault(self._server, {}).update({tool.name: tool.shown for tool in tools})
        if self._path is None:
            self._dict.update(everything)
        else:
            _write(self._path, everything)

    def _read(self) -> dict[str, dict[str, Any]]:
        if self._path is None:
            return _checked(dict(self._dict), "the pins")
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        try:
            return _checked(json.loads(text), str(self._path))
        except json.JSONDecodeError as err:
            raise ValueError(_broken(str(self._path))) from err


def _checked(data: Any, place: str) -> dict[str, dict[str, Any]]:
    servers: list[Any] = list(cast("dict[str, Any]", data).values()) if isinstance(data, dict) else [None]
    tools = [tool for one in servers if isinstance(one, dict) for tool in cast("dict[str, Any]", one).values()]
    if not all(isinstance(one, dict) for one in [*servers, *tools]):
        raise ValueError(_broken(place))
    return cast("dict[str, dict[str, Any]]", data)


def _broken(place: str) -> str:
    return (
        f"{place} is not a record of pinned MCP tools, so it is not used: restore it, or remove it and review "
        "the tools before they are pinned again"
    )


def _write(path: Path, data: dict[str, Any]) -> None:
    # Written aside and moved into place: a reader sees the old pins or the new ones, never half.
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=2, sort_keys=True, ensure_ascii=False)
            file.write("\n")
        aside.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()
