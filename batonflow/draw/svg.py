"""Scenes as SVG: sizes of texts, boxes, arrows, colours for light and dark, and a legend; no scripts."""

from dataclasses import dataclass, field
from unicodedata import east_asian_width

from batonflow.draw.layout import Arrow, Box, Placement, Route, arrange, turned_arrows
from batonflow.draw.scene import KINDS, Item, Line, Scene

__all__ = ["escape", "html_page", "svg"]

MARGIN = 24.0
CHILD_PADDING = 18.0
CHILD_HEADER = 34.0
HEAD_LENGTH = 7.0
LONGEST_LABEL = 64
LONGEST_NOTE = 1_000

HEIGHTS = {
    **dict.fromkeys(("step", "agent", "external", "other"), 38.0),
    **dict.fromkeys(("resource", "resource_config", "tool"), 32.0),
}
EVENT_HEIGHT = 28.0

# Kind -> fill, line and text for a light page, then for a dark one.
COLOURS = {
    "step": ("#dbeafe", "#3b82f6", "#1e3a8a", "#172a54", "#60a5fa", "#dbeafe"),
    "event": ("#dcfce7", "#4ade80", "#14532d", "#0b2e1a", "#22c55e", "#dcfce7"),
    "start": ("#ede9fe", "#8b5cf6", "#4c1d95", "#2a1a5e", "#a78bfa", "#ede9fe"),
    "stop": ("#ffedd5", "#f97316", "#7c2d12", "#43200c", "#fb923c", "#ffedd5"),
    "human": ("#fef9c3", "#eab308", "#713f12", "#3d2c07", "#eab308", "#fef9c3"),
    "failure": ("#fee2e2", "#ef4444", "#7f1d1d", "#450f0f", "#f87171", "#fee2e2"),
    "agent": ("#e0e7ff", "#6366f1", "#312e81", "#1e1b4b", "#818cf8", "#e0e7ff"),
    "tool": ("#cffafe", "#06b6d4", "#164e63", "#083344", "#22d3ee", "#cffafe"),
    "external": ("#f1f5f9", "#64748b", "#334155", "#1e293b", "#94a3b8", "#e2e8f0"),
    "resource": ("#fae8ff", "#d946ef", "#701a75", "#41104a", "#e879f9", "#fae8ff"),
    "resource_config": ("#ccfbf1", "#14b8a6", "#134e4a", "#0a302d", "#2dd4bf", "#ccfbf1"),
    "other": ("#f1f5f9", "#94a3b8", "#334155", "#1e293b", "#64748b", "#e2e8f0"),
}
PAGE = ("#ffffff", "#0f172a", "#64748b", "#94a3b8", "#f8fafc", "#cbd5e1")
DARK_PAGE = ("#0f172a", "#e2e8f0", "#94a3b8", "#64748b", "#152036", "#334155")
FONT = "ui-sans-serif,system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'Noto Sans',sans-serif"

_ESCAPES = str.maketrans(
    {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        '"': "&quot;",
        "'": "&#39;",
        # Characters that XML forbids.
        **{chr(code): "\N{REPLACEMENT CHARACTER}" for code in (*range(9), 11, 12, *range(14, 32), 127, 0xFFFE, 0xFFFF)},
        **{chr(code): "\N{REPLACEMENT CHARACTER}" for code in range(0xD800, 0xE000)},
    }
)


def escape(text: str) -> str:
    """Escape a text for XML and HTML, in and outside of quotes."""
    return text.translate(_ESCAPES)


def svg(scene: Scene, subtitle: str = "") -> str:
    """Return a scene as one ``<svg>`` element.

    Boxes carry their id as ``data-node``, and arrows the ids of their ends as ``data-edge``, with ``->`` between. Ids
    inside a child begin with its name and a slash. The group ``bf-graph`` contains only the graph.

    Args:
        scene: The scene to draw.
        subtitle: A line below the title; the first line of the workflow's docstring by default.
    """
    frame = _frame(scene, [])
    first_line = scene.note.strip().split("\n", 1)[0]
    room = max(frame.width, 420.0)
    head, head_height = _heading(scene.title, subtitle or first_line, room)
    legend, legend_height = _legend(scene, room)
    width = max(room, _text_width(_cut(scene.title), 18.0)) + 2 * MARGIN
    height = head_height + frame.height + legend_height + 2 * MARGIN
    body = [head, _moved(legend, MARGIN, head_height)]
    graph = f'<g class="bf-graph">{_drawn(frame, "")}</g>'
    body.append(_moved(graph, (width - frame.width) / 2, head_height + legend_height + MARGIN))
    marked = " bf-run" if scene.runs is not None else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="bf-flow{marked}" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}" role="img" aria-label="{escape(scene.title)}">'
        f"<style>{_style()}</style>"
        f'<rect class="bf-page" width="{_n(width)}" height="{_n(height)}" rx="10"/>{"".join(body)}</svg>'
    )


def html_page(title: str, drawing: str) -> str:
    """Return a self-contained page around a drawing, without scripts, files and network."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>body{{margin:0;padding:16px;background:{PAGE[0]};overflow:auto}}"
        "svg{display:block;margin:0 auto}"
        f"@media (prefers-color-scheme:dark){{body{{background:{DARK_PAGE[0]}}}}}</style>\n"
        f"</head>\n<body>\n{drawing}\n</body>\n</html>\n"
    )


# --- sizes ------------------------------------------------------------------------------------------------------------


def _text_width(text: str, size: float) -> float:
    """Estimate the width of a text in a sans-serif font, rather too wide than too narrow."""
    return sum(_letter_width(letter) for letter in text) * size


def _letter_width(letter: str) -> float:
    if letter in "iljtfrI.,:;|!'()[] -":
        return 0.36
    if letter in "mwMW@%":
        return 0.95
    if letter.isupper() or letter == "_":
        return 0.7
    return 1.05 if east_asian_width(letter) in "WF" else 0.59


def _cut(text: str, longest: int = LONGEST_LABEL) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"


def _box_size(item: Item) -> tuple[float, float]:
    width = _text_width(_cut(item.label), 13.0) + (44.0 if item.kind == "resource" else 30.0)
    return max(width, 64.0), HEIGHTS.get(item.kind, EVENT_HEIGHT)


def _line_text(line: Line) -> str:
    if line.count is not None and line.kind != "needs":
        return f"{line.count}\N{MULTIPLICATION SIGN}" if line.count else ""
    return _cut(line.label, 28)


def _n(number: float) -> str:
    return f"{number:.1f}".rstrip("0").rstrip(".")


# --- frames: scenes with places ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Port:
    """Return the point where an arrow crosses the border of a frame."""

    item: str
    enters: bool
    at_top: bool


@dataclass(slots=True)
class _Frame:
    scene: Scene
    placement: Placement
    arrows: list[Arrow]
    ports: list[float]
    children: "dict[str, _Frame]" = field(default_factory=dict[str, "_Frame"])

    @property
    def width(self) -> float:
        return self.placement.width

    @property
    def height(self) -> float:
        return self.placement.height


def _end(item: str, child: str | None) -> str:
    return f"item {item}" if child is None else f"child {child}"


def _frame(scene: Scene, ports: list[_Port]) -> _Frame:
    """Lay out a scene, nested scenes first, because arrows continue inside them."""
    boxes = {_end(item.id, None): Box(_end(item.id, None), *_box_size(item)) for item in scene.items}
    boxes |= {_end("", name): Box(_end("", name), 0.0, 0.0) for name in scene.children}
    lines = [line for line in scene.lines if _ends(line)[0] in boxes and _ends(line)[1] in boxes]
    scene.lines = lines
    turned = turned_arrows(list(boxes), [_ends(line) for line in lines])
    inner_ports: dict[str, list[_Port]] = {name: [] for name in scene.children}
    arrows: list[Arrow] = []
    for index, line in enumerate(lines):
        arrow = Arrow(*_ends(line), _text_width(_line_text(line), 11.0), turned=index in turned)
        arrows.append(arrow)
        if line.target_child is not None:
            inner_ports[line.target_child].append(_Port(line.target, enters=True, at_top=not arrow.turned))
        if line.source_child is not None:
            inner_ports[line.source_child].append(_Port(line.source, enters=False, at_top=arrow.turned))
    children = {name: _frame(child, inner_ports[name]) for name, child in scene.children.items()}
    for name, child in children.items():
        box = boxes[_end("", name)]
        title = _text_width(_child_title(name, scene.children[name]), 12.0)
        box.width = max(child.width, title) + 2 * CHILD_PADDING
        box.height = child.height + CHILD_HEADER + CHILD_PADDING
    _set_ports(lines, arrows, children)
    for number, port in enumerate(ports):
        boxes[f"port {number}"] = Box(f"port {number}", 2.0, 0.0, "first" if port.at_top else "last")
        ends = (f"port {number}", _end(port.item, None)) if port.enters else (_end(port.item, None), f"port {number}")
        arrows.append(Arrow(*ends, turned=port.enters != port.at_top))
    placement = arrange(list(boxes.values()), arrows)
    return _Frame(
        scene, placement, arrows, [placement.boxes[f"port {n}"][0] + 1.0 for n in range(len(ports))], children
    )


def _ends(line: Line) -> tuple[str, str]:
    return _end(line.source, line.source_child), _end(line.target, line.target_child)


def _set_ports(lines: list[Line], arrows: list[Arrow], children: dict[str, _Frame]) -> None:
    used = dict.fromkeys(children, 0)
    for line, arrow in zip(lines, arrows, strict=True):
        for name, is_target in ((line.target_child, True), (line.source_child, False)):
            if name is None:
                continue
            child = children[name]
            port = child.ports[used[name]] - child.width / 2
            used[name] += 1
            if is_target:
                arrow.target_port = port
            else:
                arrow.source_port = port


def _child_title(name: str, child: Scene) -> str:
    times = f" ({child.runs}\N{MULTIPLICATION SIGN})" if child.runs is not None else ""
    return _cut(f"{name}: {child.title}") + times


# --- drawing ----------------------------------------------------------------------------------------------------------


def _moved(content: str, x: float, y: float) -> str:
    return f'<g transform="translate({_n(x)} {_n(y)})">{content}</g>'


def _drawn(frame: _Frame, prefix: str) -> str:
    """Draw a frame: children, arrows, boxes, then labels; ``prefix`` begins the ids."""
    back: list[str] = []
    front: list[str] = []
    labels: list[str] = []
    for name, child in frame.children.items():
        back.append(_drawn_child(frame, name, child, prefix))
    for number, (arrow, route) in enumerate(zip(frame.arrows, frame.placement.routes, strict=True)):
        line = frame.scene.lines[number] if number < len(frame.scene.lines) else _port_line(frame, arrow)
        back.append(_drawn_arrow(arrow, route, line, prefix))
        if route.label is not None:
            labels.append(_backed_text("bf-label", _line_text(line), arrow.label_width, *route.label))
    for item in frame.scene.items:
        x, y = frame.placement.boxes[_end(item.id, None)]
        front.append(_drawn_item(item, x, y, prefix))
    return "".join([*back, *front, *labels])


def _backed_text(css: str, text: str, width: float, x: float, y: float) -> str:
    """Return a text on an opaque background, so that arrows do not cross it out."""
    return (
        f'<g class="{css}" transform="translate({_n(x)} {_n(y)})">'
        f'<rect x="{_n(-width / 2)}" y="-7" width="{_n(width)}" height="14"/><text y="4">{escape(text)}</text></g>'
    )


def _port_line(frame: _Frame, arrow: Arrow) -> Line:
    """Return the style of an arrow between a frame's edge and an inner box. It is the style of that box."""
    item_id = arrow.target if arrow.source.startswith("port ") else arrow.source
    item = next(item for item in frame.scene.items if _end(item.id, None) == item_id)
    return Line(arrow.source, arrow.target, "link", count=item.count)


def _drawn_child(frame: _Frame, name: str, child: _Frame, prefix: str) -> str:
    x, y = frame.placement.boxes[_end("", name)]
    title = _child_title(name, child.scene)
    title_width = _text_width(title, 12.0)
    width = max(child.width, title_width) + 2 * CHILD_PADDING
    height = child.height + CHILD_HEADER + CHILD_PADDING
    left = (width - child.width) / 2
    stems: list[str] = []
    for number, port in enumerate(child.ports):
        arrow = child.arrows[len(child.scene.lines) + number]
        line = _port_line(child, arrow)
        top = child.placement.boxes[f"port {number}"][1] < child.height / 2
        ends = (0.0, CHILD_HEADER) if top else (CHILD_HEADER + child.height, height)
        stems.append(
            f'<path class="bf-line bf-{line.kind}{_idle(line.count)}" '
            f'd="M{_n(left + port)} {_n(ends[0])}V{_n(ends[1])}"/>'
        )
    return _moved(
        f'<g class="bf-inside" data-child="{escape(prefix + name)}">'
        f'<rect class="bf-child" width="{_n(width)}" height="{_n(height)}" rx="10"/>{"".join(stems)}'
        f"{_backed_text('bf-child-title', title, title_width, 14.0 + title_width / 2, 17.0)}"
        f"{_moved(_drawn(child, f'{prefix}{name}/'), left, CHILD_HEADER)}</g>",
        x,
        y,
    )


def _idle(count: int | None) -> str:
    return " bf-idle" if count == 0 else ""


def _drawn_arrow(arrow: Arrow, route: Route, line: Line, prefix: str) -> str:
    points = list(route.points)
    end = points[-1]
    # A loop comes back from the right, all others end vertically.
    across, along = (-1.0, 0.0) if arrow.source == arrow.target else (0.0, -1.0 if arrow.turned else 1.0)
    css = f"bf-{line.kind}{_idle(line.count)}"
    head = ""
    if not arrow.target.startswith(("port ", "child ")):
        tail = (end[0] - across * HEAD_LENGTH, end[1] - along * HEAD_LENGTH)
        points[-1] = tail
        if abs(points[-2][1] - end[1]) < HEAD_LENGTH and not across:
            points[-2] = (points[-2][0], tail[1])
        wide = 3.6
        corners = ((tail[0] - along * wide, tail[1] - across * wide), (tail[0] + along * wide, tail[1] + across * wide))
        shape = "L".join(f"{_n(x)} {_n(y)}" for x, y in (end, *corners))
        head = f'<path class="bf-head {css}" d="M{shape}Z"/>'
    edge = "" if line.source.startswith("port ") or line.target.startswith("port ") else _edge_id(line, prefix)
    return f'<path class="bf-line {css}"{edge} d="{_path(points)}"/>{head}'


def _edge_id(line: Line, prefix: str) -> str:
    ends = ((line.source_child, line.source), (line.target_child, line.target))
    source, target = (prefix + (f"{child}/{item}" if child is not None else item) for child, item in ends)
    return f' data-edge="{escape(source)}-&gt;{escape(target)}"'


def _path(points: list[tuple[float, float]]) -> str:
    pieces = [f"M{_n(points[0][0])} {_n(points[0][1])}"]
    for index, (x, y) in enumerate(points[1:], 1):
        if index % 2:
            pieces.append(f"L{_n(x)} {_n(y)}")
        else:
            before_x, before_y = points[index - 1]
            middle = _n((before_y + y) / 2)
            pieces.append(f"C{_n(before_x)} {middle} {_n(x)} {middle} {_n(x)} {_n(y)}")
    return "".join(pieces)


def _drawn_item(item: Item, x: float, y: float, prefix: str) -> str:
    width, height = _box_size(item)
    note = f"<title>{escape(item.note[:LONGEST_NOTE])}</title>" if item.note else ""
    text = f'<text x="{_n(width / 2)}" y="{_n(height / 2 + 4.5)}">{escape(_cut(item.label))}</text>'
    badge = ""
    if item.kind == "step" and item.count:
        number = f"{item.count}\N{MULTIPLICATION SIGN}"
        size = _text_width(number, 10.0) + 9.0
        badge = (
            f'<g class="bf-badge"><rect x="{_n(width - size + 7)}" y="-8" width="{_n(size)}" height="16" rx="8"/>'
            f'<text x="{_n(width - size / 2 + 7)}" y="3.6">{number}</text></g>'
        )
    css = f"bf-box bf-{item.kind}{_idle(item.count)}"
    shape = _shape(item.kind, width, height)
    node = f'data-node="{escape(prefix + item.id)}"'
    return f'<g class="{css}" {node} transform="translate({_n(x)} {_n(y)})">{note}{shape}{text}{badge}</g>'


def _shape(kind: str, width: float, height: float) -> str:
    w, h = _n(width), _n(height)
    if kind == "resource":
        half, inner = _n(height / 2), _n(width - 10)
        return f'<path class="bf-shape" d="M10 0H{inner}L{w} {half}L{inner} {h}H10L0 {half}Z"/>'
    if kind == "resource_config":
        fold = _n(width - 10)
        return f'<path class="bf-shape" d="M0 0H{fold}L{w} 10V{h}H0Z"/><path class="bf-shape" d="M{fold} 0V10H{w}"/>'
    radius = "7" if kind in HEIGHTS else _n(height / 2)
    return f'<rect class="bf-shape" width="{w}" height="{h}" rx="{radius}"/>'


def _heading(title: str, subtitle: str, room: float) -> tuple[str, float]:
    parts = [f'<text class="bf-title" x="{_n(MARGIN)}" y="{_n(MARGIN + 15)}">{escape(_cut(title))}</text>']
    y = MARGIN + 18.0
    for line in _wrapped(subtitle, room):
        y += 17.0
        parts.append(f'<text class="bf-subtitle" x="{_n(MARGIN)}" y="{_n(y)}">{escape(line)}</text>')
    return "".join(parts), y + 15.0


def _wrapped(text: str, room: float) -> list[str]:
    lines = [""]
    for word in _cut(text, 240).split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and _text_width(longer, 12.0) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return [_cut(line, int(room / 6)) for line in lines[:3] if line]


def _legend(scene: Scene, room: float) -> tuple[str, float]:
    present = {item.kind for part in scene.everything() for item in part.items}
    x = y = 0.0
    parts: list[str] = []
    for kind, name in KINDS.items():
        if kind not in present:
            continue
        width = _text_width(name, 11.0) + 40.0
        if x and x + width > room:
            x, y = 0.0, y + 20.0
        swatch = f'<g class="bf-box bf-{kind}"><g class="bf-swatch">{_shape(kind, 22.0, 12.0)}</g></g>'
        parts.append(_moved(f'{swatch}<text class="bf-legend" x="28" y="10">{name}</text>', x, y))
        x += width
    return "".join(parts), y + 14.0


def _style() -> str:
    rules = [f".bf-flow{{font-family:{FONT};font-size:13px}}", *_colour_rules(PAGE, 0)]
    rules += [
        ".bf-flow .bf-box text{text-anchor:middle}.bf-flow .bf-step text,.bf-flow .bf-agent text{font-weight:600}",
        ".bf-flow .bf-shape{stroke-width:1.4}.bf-flow .bf-external .bf-shape{stroke-dasharray:5 3}",
        ".bf-flow .bf-line{fill:none;stroke-width:1.5}.bf-flow .bf-needs,.bf-flow .bf-call{stroke-dasharray:4 3}",
        ".bf-flow .bf-head{stroke:none}.bf-flow .bf-child{stroke-width:1.2;stroke-dasharray:6 4}",
        ".bf-flow .bf-label text{font-size:11px;text-anchor:middle}",
        ".bf-flow .bf-title{font-size:18px;font-weight:700}.bf-flow .bf-subtitle{font-size:12px}",
        ".bf-flow .bf-child-title text{font-size:12px;font-weight:600;text-anchor:middle}",
        ".bf-flow .bf-legend{font-size:11px}.bf-flow .bf-badge text{font-size:10px;font-weight:700}",
        ".bf-run .bf-line{stroke-width:2}.bf-run .bf-line.bf-idle{stroke-width:1.2;stroke-dasharray:3 4}",
        ".bf-run .bf-idle{opacity:.42}",
        f"@media (prefers-color-scheme:dark){{{''.join(_colour_rules(DARK_PAGE, 3))}}}",
    ]
    return "".join(rules)


def _colour_rules(page: tuple[str, ...], offset: int) -> list[str]:
    background, text, muted, line, child, child_line = page
    accent = COLOURS["step"][offset + 1]
    needs = COLOURS["resource"][offset + 1]
    rules = [
        f".bf-flow .bf-page{{fill:{background}}}.bf-flow text{{fill:{text}}}",
        f".bf-flow .bf-subtitle,.bf-flow .bf-legend{{fill:{muted}}}",
        f".bf-flow .bf-line{{stroke:{line}}}.bf-flow .bf-head{{fill:{line}}}",
        f".bf-flow .bf-line.bf-link,.bf-flow .bf-line.bf-call{{stroke:{accent}}}",
        f".bf-flow .bf-head.bf-link,.bf-flow .bf-head.bf-call{{fill:{accent}}}",
        f".bf-flow .bf-line.bf-needs{{stroke:{needs}}}.bf-flow .bf-head.bf-needs{{fill:{needs}}}",
        f".bf-flow .bf-child{{fill:{child};stroke:{child_line}}}",
        f".bf-flow .bf-label text{{fill:{muted}}}.bf-flow .bf-label rect{{fill:{background}}}",
        f".bf-flow .bf-inside .bf-label rect,.bf-flow .bf-child-title rect{{fill:{child}}}",
        f".bf-flow .bf-badge rect{{fill:{accent}}}.bf-flow .bf-badge text{{fill:{background}}}",
    ]
    for kind, colours in COLOURS.items():
        fill, stroke, ink = colours[offset : offset + 3]
        rules.append(
            f".bf-flow .bf-{kind} .bf-shape{{fill:{fill};stroke:{stroke}}}.bf-flow .bf-{kind}>text{{fill:{ink}}}"
        )
    return rules
