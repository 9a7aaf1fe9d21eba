"""Drawings of workflows and runs: complete, safe with any name, self-contained, in HTML, SVG and Mermaid."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonflow.draw import (
    draw_all_possible_flows,
    draw_all_possible_flows_mermaid,
    draw_most_recent_execution,
    draw_most_recent_execution_mermaid,
    execution_svg,
    workflow_svg,
)
from batonflow.draw.mermaid import mermaid
from batonflow.draw.representation.build import get_workflow_representation
from batonflow.draw.scene import KINDS, Item, Line, Scene
from batonflow.draw.svg import html_page, svg
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    Resource,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Workflow,
    catch_error,
    step,
)
from tests.contract import contract

Placed = tuple[str, float, float, float, float]
"""Class, left, top, right and bottom."""

TIMES = "\N{MULTIPLICATION SIGN}"
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</svg><script>alert("1")</script>&amp;\x00\x1b\'"]] --> `x`\n\ud800 click'


class Draft(Event):
    pass


class Review(InputRequiredEvent):
    pass


class Verdict(HumanResponseEvent):
    pass


def make_model() -> dict[str, str]:
    """Connects to the model."""
    return {}


class Writing(Workflow):
    """Writes until somebody is content.

    The rest of the docstring is not shown.
    """

    @step
    async def write(
        self, ev: StartEvent | Verdict, model: Annotated[dict[str, str], Resource(make_model)]
    ) -> Draft | StopEvent:
        """Writes a draft."""
        return Draft() if isinstance(ev, StartEvent) else StopEvent(result="done")

    @step
    async def show(self, ev: Draft) -> Review:
        return Review()

    @catch_error
    async def rescue(self, ev: StepFailedEvent) -> StopEvent:
        return StopEvent()


class Order(Event):
    pass


class Receipt(Event):
    pass


class Station(Workflow, entry=[Order]):
    @step
    async def trade(self, ctx: Context, ev: Order) -> Receipt | StopEvent:
        ctx.send_event(Receipt())
        return StopEvent()


class Clerk(Workflow):
    @step
    async def file(self, ev: StartEvent) -> StopEvent:
        return StopEvent()


class Shop(Workflow):
    def __init__(self) -> None:
        super().__init__(timeout=5)
        self.receipts = 0
        self.add_workflows(station=Station(), clerk=Clerk())

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Order | None:
        for _ in range(3):
            ctx.send_event(Order())

    @step
    async def received(self, ev: Receipt, clerk: Clerk) -> StopEvent | None:
        await clerk.run()
        self.receipts += 1
        return StopEvent() if self.receipts == 3 else None


# --- reading a drawing ------------------------------------------------------------------------------------------------


def parsed(drawing: str) -> ET.Element:
    return ET.fromstring(drawing)


def texts(drawing: str) -> list[str]:
    return ["".join(node.itertext()) for node in parsed(drawing).iter(f"{SVG}text")]


def labels(drawing: str) -> dict[str, list[str]]:
    """Text of each box -> its classes."""
    found: dict[str, list[str]] = {}
    for node in parsed(drawing).iter(f"{SVG}g"):
        text = node.find(f"{SVG}text")
        classes = node.get("class", "").split()
        if text is not None and "bf-box" in classes:
            found["".join(text.itertext())] = classes
    return found


def boxes(node: ET.Element, x: float = 0.0, y: float = 0.0) -> Iterator[Placed]:
    """Class, left, top, right and bottom of every box and every nested drawing, in the coordinates of the whole."""
    moved = re.match(r"translate\((\S+) (\S+)\)", node.get("transform", ""))
    if moved:
        x, y = x + float(moved[1]), y + float(moved[2])
    for child in node:
        if child.get("class") in ("bf-shape", "bf-child") and "bf-swatch" not in node.get("class", ""):
            if child.tag == f"{SVG}rect":
                width, height = float(child.get("width", "0")), float(child.get("height", "0"))
            else:
                numbers = [float(number) for number in re.findall(r"-?[\d.]+", child.get("d", ""))]
                if child.get("d", "").startswith("M0 0") or child.get("d", "").startswith("M10 0"):
                    width, height = max(numbers), max(n for n in numbers if n <= 40)
                else:
                    continue
            yield child.get("class", ""), x, y, x + width, y + height
        else:
            yield from boxes(child, x, y)


def lines_of(node: ET.Element, x: float = 0.0, y: float = 0.0) -> Iterator[list[tuple[float, float]]]:
    """Points along each line, in the coordinates of the whole."""
    moved = re.match(r"translate\((\S+) (\S+)\)", node.get("transform", ""))
    if moved:
        x, y = x + float(moved[1]), y + float(moved[2])
    for child in node:
        if child.get("class", "").startswith("bf-line"):
            yield [(x + across, y + down) for across, down in points_of(child.get("d", ""))]
        else:
            yield from lines_of(child, x, y)


def points_of(path: str) -> Iterator[tuple[float, float]]:
    here = (0.0, 0.0)
    for command, rest in re.findall(r"([MLCV])([^MLCV]*)", path):
        numbers = [float(number) for number in rest.split()]
        if command == "V":
            numbers = [here[0], *numbers]
        stops = [here, *zip(numbers[::2], numbers[1::2], strict=True)] if command != "M" else [(numbers[0], numbers[1])]
        for t in (part / 12 for part in range(13)):
            between = stops
            while len(between) > 1:
                between = [(a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t) for a, b in pairwise(between)]
            yield between[0]
        here = stops[-1]


# --- what runs can do -------------------------------------------------------------------------------------------------


@contract("17.t8")
def test_every_step_event_and_resource_is_in_the_picture_with_its_kind() -> None:
    found = labels(workflow_svg(Writing))
    kinds = {text: classes[1].removeprefix("bf-") for text, classes in found.items()}
    assert kinds == {
        "StartEvent": "start",
        "Verdict": "human",
        "write": "step",
        "dict": "resource",
        "Draft": "event",
        "StopEvent": "stop",
        "show": "step",
        "Review": "human",
        "external_step": "external",
        "rescue": "step",
        "StepFailedEvent": "failure",
    }


def test_the_picture_has_title_first_line_of_the_docstring_legend_and_notes() -> None:
    drawing = workflow_svg(Writing())
    assert {"Writing", "Writes until somebody is content.", "Question or answer", "Resource"} <= set(texts(drawing))
    assert "Configuration" not in texts(drawing)
    assert "<title>Writes a draft.</title>" in drawing
    assert "not shown" not in drawing


def test_every_arrow_is_drawn_with_its_head() -> None:
    drawing = parsed(workflow_svg(Writing))
    heads = [node for node in drawing.iter(f"{SVG}path") if "bf-head" in node.get("class", "")]
    lines = [node for node in drawing.iter(f"{SVG}path") if "bf-line" in node.get("class", "")]
    assert len(lines) == len(heads) == 11


def test_attached_workflows_are_boxes_inside_with_their_own_content() -> None:
    drawing = workflow_svg(Shop())
    assert {"station: Station", "clerk: Clerk"} <= set(texts(drawing))
    found = list(boxes(parsed(drawing)))
    inside = [box for box in found if box[0] == "bf-child"]
    assert len(inside) == 2
    for _, left, top, right, bottom in inside:
        held = [
            b for b in found if b[0] == "bf-shape" and left < b[1] and b[3] < right and top < b[2] and b[4] < bottom
        ]
        assert len(held) in (3, 4)


def test_boxes_and_arrows_carry_the_ids_of_the_graph() -> None:
    drawing = parsed(workflow_svg(Shop()))
    graph = get_workflow_representation(Shop())
    nodes = {node.get("data-node") for node in drawing.iter() if node.get("data-node")}
    edges = {node.get("data-edge") for node in drawing.iter() if node.get("data-edge")}
    named = [("", graph), *((f"{name}/", child) for name, child in graph.children.items())]
    assert nodes == {prefix + node.id for prefix, part in named for node in part.nodes}
    inside = {f"{prefix}{edge.source}->{prefix}{edge.target}" for prefix, part in named for edge in part.edges}
    assert edges == inside | {f"{link.source}->{link.target}" for link in graph.links}
    assert {node.get("data-child") for node in drawing.iter() if node.get("data-child")} == set(graph.children)


def test_a_workflow_shows_itself_in_a_notebook() -> None:
    workflow: Any = Writing()
    assert workflow._repr_html_() == workflow_svg(workflow)


@contract("17.t8")
def test_a_page_is_one_file_without_script_and_without_any_address(tmp_path: Path) -> None:
    file = tmp_path / "flow.html"
    assert draw_all_possible_flows(Writing, filename=file) is None
    page = file.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "<title>Writing</title>" in page
    assert "prefers-color-scheme:dark" in page
    rest = page.replace("http://www.w3.org/2000/svg", "").lower()
    for forbidden in ("http", "//", "<script", "href", "src=", "@import", "url(", "<iframe", "<object", "onload"):
        assert forbidden not in rest


@contract("17.t8")
def test_the_file_has_the_name_that_llamaindex_gives_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw_all_possible_flows(Writing)
    draw_all_possible_flows_mermaid(Writing)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["workflow_all_flows.html", "workflow_all_flows.mermaid"]


def test_a_file_named_svg_is_the_picture_alone(tmp_path: Path) -> None:
    file = tmp_path / "flow.svg"
    shown: Any = draw_all_possible_flows(Writing, filename=str(file), notebook=True)
    assert file.read_text(encoding="utf-8") == workflow_svg(Writing) == shown.svg == shown._repr_svg_()
    assert shown.svg in shown._repr_html_()


def test_names_can_be_cut(tmp_path: Path) -> None:
    file = tmp_path / "flow.svg"
    draw_all_possible_flows(Writing, filename=file, max_label_length=6)
    assert "StepF*" in labels(file.read_text(encoding="utf-8"))
    assert "StepF*" in draw_all_possible_flows_mermaid(Writing, filename=None, max_label_length=6)


def test_attached_workflows_can_be_left_out(tmp_path: Path) -> None:
    file = tmp_path / "flow.svg"
    draw_all_possible_flows(Shop(), filename=file, include_child_workflows=False)
    assert "trade" not in labels(file.read_text(encoding="utf-8"))
    assert "trade" not in draw_all_possible_flows_mermaid(Shop(), filename=None, include_child_workflows=False)


# --- what a run did ---------------------------------------------------------------------------------------------------


@contract("17.t8")
async def test_an_execution_shows_how_often_and_what_did_not_happen(tmp_path: Path) -> None:
    handler = Shop().run()
    await handler
    drawing = execution_svg(handler)
    assert {
        "station: Station (3\N{MULTIPLICATION SIGN})",
        "3\N{MULTIPLICATION SIGN}",
        "1\N{MULTIPLICATION SIGN}",
    } <= set(texts(drawing))
    assert "bf-idle" not in labels(drawing)["trade"]
    assert handler.run_id in drawing

    file = tmp_path / "run.svg"
    draw_most_recent_execution(handler, filename=file)
    assert file.read_text(encoding="utf-8") == drawing


async def test_what_did_not_take_place_is_pale() -> None:
    class Choosing(Workflow):
        @step
        async def choose(self, ev: StartEvent) -> Draft | Order:
            return Draft()

        @step
        async def drafted(self, ev: Draft) -> StopEvent:
            return StopEvent()

        @step
        async def ordered(self, ev: Order) -> StopEvent:
            return StopEvent()

    workflow = Choosing()
    await workflow.run()
    found = labels(execution_svg(workflow))
    assert {text for text, classes in found.items() if "bf-idle" in classes} == {"Order", "ordered"}
    text = draw_most_recent_execution_mermaid(workflow, filename=None)
    assert 'n_Draft -->|"1\N{MULTIPLICATION SIGN}"| n_drafted' in text
    assert "n_Order -.-> n_ordered" in text


async def test_events_that_a_step_did_not_declare_are_drawn_when_they_occurred() -> None:
    class Surprising(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.send_event(Receipt())
            return StopEvent()

    handler = Surprising().run()
    await handler
    assert labels(execution_svg(handler))["Receipt"][1] == "bf-event"


async def test_joins_show_all_events_that_went_into_them() -> None:
    class Joining(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> list[Draft]:
            return [Draft() for _ in range(5)]

        @step
        async def work(self, ev: Draft) -> Receipt:
            return Receipt()

        @step
        async def gather(self, receipts: list[Receipt]) -> Order:
            return Order()

        @step
        async def other(self, ev: StartEvent) -> Verdict:
            return Verdict()

        @step
        async def both(self, order: Order, verdict: Verdict) -> StopEvent:
            return StopEvent()

    handler = Joining().run()
    await handler
    text = draw_most_recent_execution_mermaid(handler, filename=None)
    for arrow in (
        f'n_begin -->|"5{TIMES}"| n_Draft',
        f'n_Receipt -->|"5{TIMES}"| n_gather',
        f'n_gather -->|"1{TIMES}"| n_Order',
        f'n_Order -->|"1{TIMES}"| n_both',
        f'n_Verdict -->|"1{TIMES}"| n_both',
    ):
        assert arrow in text


async def test_a_run_can_be_drawn_while_it_goes_on_and_shows_itself_in_a_notebook() -> None:
    handler = Writing().run()
    async for event in handler.stream_events():
        if isinstance(event, Review):
            drawing = execution_svg(handler)
            assert "bf-idle" in labels(drawing)["StopEvent"]
            assert "bf-idle" not in labels(drawing)["Review"]
            assert "bf-idle" not in labels(drawing)["external_step"]
            await handler.send_event(Verdict())
    shown: Any = handler
    assert shown._repr_html_() == execution_svg(handler)
    assert "bf-idle" not in labels(shown._repr_html_())["StopEvent"]


def test_a_workflow_that_has_not_run_has_no_execution() -> None:
    with pytest.raises(ValueError, match=r"Writing has not run yet: draw its execution after workflow.run"):
        execution_svg(Writing())


def test_an_execution_goes_to_the_files_of_llamaindex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    workflow = Clerk()
    workflow.run_sync()
    draw_most_recent_execution(workflow)
    draw_most_recent_execution_mermaid(workflow)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["workflow_recent_execution.html", "workflow_recent_execution.mermaid"]


# --- Mermaid ----------------------------------------------------------------------------------------------------------


@contract("17.t8")
def test_mermaid_text_has_nodes_arrows_and_subgraphs() -> None:
    text = draw_all_possible_flows_mermaid(Shop(), filename=None)
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "flowchart TD"
    for line in (
        'n_begin["begin"]:::stepStyle',
        'n_StartEvent(["StartEvent"]):::startStyle',
        'subgraph n_station_["station: Station"]',
        "n_StartEvent --> n_begin",
        "n_station_Order --> n_station_trade",
        "n_Order --> n_station_Order",
        "n_station_Receipt --> n_Receipt",
        'n_received -.->|"clerk"| n_clerk_StartEvent',
    ):
        assert line in lines
    assert lines.count("end") == 2
    assert any(line.startswith("classDef stepStyle ") for line in lines)


def test_mermaid_keeps_nodes_apart_whose_names_differ_only_in_signs() -> None:
    items = [
        Item("a b", "step", "a b"),
        Item("a_b", "step", "a_b"),
        Item("名", "event", "名"),
        Item("字", "event", "字"),
    ]
    text = mermaid(Scene("Flow", items=items, lines=[Line("a b", "a_b"), Line("名", "字")]))
    assert "n_a_b --> n_a_b_2" in text
    assert "n__ --> n___2" in text


# --- any names, any shape ---------------------------------------------------------------------------------------------


@contract("17.t8")
def test_hostile_names_are_shown_as_text_and_do_nothing() -> None:
    items = [Item(HOSTILE, kind, HOSTILE, note=HOSTILE) for kind in ("step",)] + [Item("x", "event", "x")]
    inner = Scene(HOSTILE, items=[Item("in", "event", "in")])
    lines = [Line(HOSTILE, "x", label=HOSTILE), Line("x", "in", "link", target_child=HOSTILE)]
    scene = Scene(HOSTILE, HOSTILE, items, lines, {HOSTILE: inner})
    page = html_page(HOSTILE, svg(scene, HOSTILE))
    assert "<script" not in page
    assert "\x00" not in page
    assert "\x1b" not in page
    page.encode("utf-8")
    parsed(svg(scene, HOSTILE))
    text = mermaid(scene)
    body = [line for line in text.splitlines() if "classDef" not in line]
    assert not any(re.search(r"<script|`|\]\]|&(?!#)", line) for line in body)


def holds(outer: Placed, inner: Placed) -> bool:
    inside = outer[1] <= inner[1] and inner[3] <= outer[3] and outer[2] <= inner[2] and inner[4] <= outer[4]
    return outer[0] == "bf-child" and inside


@st.composite
def scenes(draw: st.DrawFn, depth: int = 2) -> Scene:
    kinds = st.sampled_from(list(KINDS))
    names = draw(st.lists(st.text(max_size=30), min_size=1, max_size=6, unique=True))
    items = [Item(name, draw(kinds), name, count=draw(st.sampled_from([None, 0, 3]))) for name in names]
    children = {}
    if depth:
        for name in draw(st.lists(st.text(max_size=6), max_size=2, unique=True)):
            children[name] = draw(scenes(depth - 1))
    places: list[tuple[str | None, str]] = [(None, name) for name in names]
    places += [(name, item.id) for name, child in children.items() for item in child.items]
    lines: list[Line] = []
    for _ in range(draw(st.integers(0, 8))):
        (source_child, source), (target_child, target) = draw(st.sampled_from(places)), draw(st.sampled_from(places))
        if source_child is None or target_child is None:
            label = draw(st.sampled_from(["", "name"]))
            lines.append(Line(source, target, "flow", label, None, source_child, target_child))
    return Scene("Flow", items=items, lines=lines, children=children)


@given(scenes())
@settings(max_examples=60)
def test_in_any_scene_no_boxes_overlap_and_nested_ones_lie_inside_theirs(scene: Scene) -> None:
    drawing = svg(scene)
    whole = parsed(drawing)
    found = list(boxes(whole))
    items = [item for part in scene.everything() for item in part.items]
    assert len([box for box in found if box[0] == "bf-shape"]) == len(items)
    width, height = float(whole.get("width", "0")), float(whole.get("height", "0"))
    for _, left, top, right, bottom in found:
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    for a, b in combinations(found, 2):
        apart = a[3] <= b[1] or b[3] <= a[1] or a[4] <= b[2] or b[4] <= a[2]
        assert apart or holds(a, b) or holds(b, a)


@given(scenes())
@settings(max_examples=60)
def test_in_any_scene_no_arrow_crosses_a_box(scene: Scene) -> None:
    whole = parsed(svg(scene))
    areas = [box[1:] for box in boxes(whole) if box[0] == "bf-shape"]
    for line in lines_of(whole):
        for x, y in line:
            for left, top, right, bottom in areas:
                assert not (left + 1 < x < right - 1 and top + 1 < y < bottom - 1)


@given(scenes())
@settings(max_examples=60)
def test_in_any_scene_every_line_ends_at_a_box_or_goes_on_in_another_line(scene: Scene) -> None:
    whole = parsed(svg(scene))
    areas = [box[1:] for box in boxes(whole) if box[0] == "bf-shape"]
    lines = list(lines_of(whole))
    for line in lines:
        others = [end for other in lines if other is not line for end in (other[0], other[-1])]
        for x, y in (line[0], line[-1]):
            # A line ends where the head of its arrow begins, 7 before the box.
            at_box = any(a - 8 <= x <= c + 8 and b - 8 <= y <= d + 8 for a, b, c, d in areas)
            assert at_box or any(abs(x - across) < 0.4 and abs(y - down) < 0.4 for across, down in others)


@given(scenes())
@settings(max_examples=60)
def test_any_scene_is_drawn_whole_and_the_same_every_time(scene: Scene) -> None:
    drawing = svg(scene)
    assert drawing == svg(scene)
    lines = [node for node in parsed(drawing).iter(f"{SVG}path") if "bf-head" in node.get("class", "")]
    assert len(lines) == sum(len(part.lines) for part in scene.everything())
    assert mermaid(scene) == mermaid(scene)
