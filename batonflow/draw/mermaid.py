"""Scenes as Mermaid text, for pages that render it."""

from batonflow.draw.scene import Item, Line, Scene

__all__ = ["mermaid"]

_SHAPES = {
    "step": ("[", "]"),
    "agent": ("(", ")"),
    "tool": ("[[", "]]"),
    "external": ("[", "]"),
    "resource": ("{{", "}}"),
    "resource_config": ("[/", "/]"),
    "other": ("[", "]"),
}
_EVENT_SHAPE = ("([", "])")

_STYLES = {
    "step": "fill:#dbeafe,stroke:#3b82f6,color:#1e3a8a",
    "event": "fill:#dcfce7,stroke:#4ade80,color:#14532d",
    "start": "fill:#ede9fe,stroke:#8b5cf6,color:#4c1d95",
    "stop": "fill:#ffedd5,stroke:#f97316,color:#7c2d12",
    "human": "fill:#fef9c3,stroke:#eab308,color:#713f12",
    "failure": "fill:#fee2e2,stroke:#ef4444,color:#7f1d1d",
    "agent": "fill:#e0e7ff,stroke:#6366f1,color:#312e81",
    "tool": "fill:#cffafe,stroke:#06b6d4,color:#164e63",
    "external": "fill:#f1f5f9,stroke:#64748b,color:#334155,stroke-dasharray:5 3",
    "resource": "fill:#fae8ff,stroke:#d946ef,color:#701a75",
    "resource_config": "fill:#ccfbf1,stroke:#14b8a6,color:#134e4a",
    "other": "fill:#f1f5f9,stroke:#94a3b8,color:#334155",
}

_ESCAPES = str.maketrans({letter: f"#{ord(letter)};" for letter in '"#&<>`\\|[]{}'})


def mermaid(scene: Scene) -> str:
    """Return a scene as a Mermaid flowchart; attached workflows are subgraphs."""
    ids = _Ids()
    lines = ["flowchart TD", *_body(scene, ids, (), "    ")]
    present = {item.kind for part in scene.everything() for item in part.items}
    lines += [f"    classDef {_css(kind)} {style}" for kind, style in _STYLES.items() if kind in present]
    return "\n".join(lines) + "\n"


class _Ids:
    """Unique and readable node names that Mermaid accepts."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, ...], str] = {}
        self._taken: set[str] = set()

    def of(self, *path: str) -> str:
        if path not in self._of:
            words = "_".join(path)
            # The prefix separates names from Mermaid's keywords.
            plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in words)[:60]
            name, count = f"n_{plain}", 1
            while name in self._taken:
                count += 1
                name = f"n_{plain}_{count}"
            self._taken.add(name)
            self._of[path] = name
        return self._of[path]


def _text(text: str) -> str:
    return " ".join(text.split()).translate(_ESCAPES) or "_"


def _css(kind: str) -> str:
    return f"{kind.replace('_', '')}Style"


def _body(scene: Scene, ids: _Ids, path: tuple[str, ...], indent: str) -> list[str]:
    lines = [_node(item, ids.of(*path, item.id), indent) for item in scene.items]
    for name, child in scene.children.items():
        times = "" if child.runs is None else f" ({child.runs}\N{MULTIPLICATION SIGN})"
        lines.append(f'{indent}subgraph {ids.of(*path, name, "")}["{_text(f"{name}: {child.title}{times}")}"]')
        lines += _body(child, ids, (*path, name), f"{indent}    ")
        lines.append(f"{indent}end")
    for line in scene.lines:
        source = ids.of(*path, *([line.source_child] if line.source_child is not None else []), line.source)
        target = ids.of(*path, *([line.target_child] if line.target_child is not None else []), line.target)
        lines.append(f"{indent}{source} {_arrow(line)} {target}")
    return lines


def _node(item: Item, name: str, indent: str) -> str:
    left, right = _SHAPES.get(item.kind, _EVENT_SHAPE)
    times = f" ({item.count}\N{MULTIPLICATION SIGN})" if item.kind == "step" and item.count else ""
    return f'{indent}{name}{left}"{_text(item.label + times)}"{right}:::{_css(item.kind)}'


def _arrow(line: Line) -> str:
    if line.count is None:
        dashed = line.kind in ("needs", "call")
        arrow, label = "-.->" if dashed else "-->", line.label
    else:
        arrow, label = ("-->", f"{line.count}\N{MULTIPLICATION SIGN}") if line.count else ("-.->", "")
        label = line.label if line.kind == "needs" else label
    return f'{arrow}|"{_text(label)}"|' if label else arrow
