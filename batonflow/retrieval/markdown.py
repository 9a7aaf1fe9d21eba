"""A parser that splits Markdown at its headings."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from batonflow.nodes import BaseNode
from batonflow.retrieval.splitters import NodeParser

__all__ = ["MarkdownNodeParser"]

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")


class MarkdownNodeParser(NodeParser):
    r"""Makes a node of each section of a Markdown text, with the headings above it in its metadata.

    Args:
        header_path_separator: The text between headings in the metadata ``header_path``.

    Example:
        >>> MarkdownNodeParser().get_nodes_from_documents([Document(text="# Tides\n\nThey follow the moon.")])
    """

    _class_name: ClassVar[str] = "MarkdownNodeParser"
    header_path_separator: str = "/"

    @classmethod
    def from_defaults(cls, **kwargs: Any) -> Self:
        """Return a parser; the arguments are those of the class."""
        return cls(**kwargs)

    def get_nodes_from_node(self, node: BaseNode) -> list[BaseNode]:
        """Return the nodes of one document."""
        sections = list(_sections(node.get_content()))
        made = self._nodes_of((text for _, text in sections), node)
        separator = self.header_path_separator
        for one, (above, _) in zip(made, sections, strict=True):
            path = separator.join(above)
            one.metadata = {"header_path": f"{separator}{path}{separator}" if path else separator}
        return made

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **_: Any) -> list[BaseNode]:
        del show_progress  # a text is split in no time
        return [made for node in nodes for made in self.get_nodes_from_node(node)]


def _sections(text: str) -> list[tuple[list[str], str]]:
    """Return the sections of a text that are not empty, with the headings above each."""
    found: list[tuple[list[str], str]] = []
    headings: list[tuple[int, str]] = []
    above: list[str] = []
    lines: list[str] = []
    fence = ""

    def end() -> None:
        if section := "\n".join(lines).strip():
            found.append((above, section))

    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = ""
        heading = None if fence or mark else _HEADING.match(line)
        if heading is not None:
            end()
            level = len(heading[1])
            headings = [one for one in headings if one[0] < level]
            above, lines = [title for _, title in headings], []
            headings.append((level, heading[2]))
        lines.append(line)
    end()
    return found
