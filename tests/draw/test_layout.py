"""The layout, for any graph: nothing overlaps, no arrow touches a box that is not its own, everything is drawn."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from batonflow.draw.layout import Arrow, Box, Placement, Point, Route, arrange, turned_arrows

Graph = tuple[list[Box], list[Arrow]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    sizes = draw(st.lists(st.tuples(st.integers(20, 260), st.integers(16, 140)), min_size=1, max_size=9))
    boxes = [Box(f"b{number}", float(width), float(height)) for number, (width, height) in enumerate(sizes)]
    ids = st.sampled_from([box.id for box in boxes])
    ends = draw(st.lists(st.tuples(ids, ids), max_size=18))
    return boxes, arrows_between(boxes, ends, draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends))))


def arrows_between(boxes: list[Box], ends: list[tuple[str, str]], labelled: list[bool] | None = None) -> list[Arrow]:
    turned = turned_arrows([box.id for box in boxes], ends)
    labels = labelled or [False] * len(ends)
    return [
        Arrow(*pair, label_width=30.0 if label else 0.0, turned=index in turned)
        for index, (pair, label) in enumerate(zip(ends, labels, strict=True))
    ]


def chain(*ends: str) -> Graph:
    names = sorted({name for pair in ends for name in pair})
    boxes = [Box(name, 80, 30) for name in names]
    return boxes, arrows_between(boxes, [(pair[0], pair[1]) for pair in ends])


def rectangles(boxes: list[Box], placed: Placement) -> dict[str, tuple[float, float, float, float]]:
    corners = {box.id: placed.boxes[box.id] for box in boxes}
    return {
        box.id: (*corners[box.id], corners[box.id][0] + box.width, corners[box.id][1] + box.height) for box in boxes
    }


def points_on(route: Route) -> list[Point]:
    """Points all along a route: straight and bent pieces in turn."""
    found: list[Point] = []
    for number, (start, end) in enumerate(zip(route.points, route.points[1:], strict=False)):
        for step in range(21):
            t = step / 20
            bend = 3 * t * t * (1 - t) + t**3 if number % 2 else t
            middle = (start[1] + end[1]) / 2
            y = (1 - t) ** 3 * start[1] + 3 * t * (1 - t) * middle + t**3 * end[1]
            found.append(
                (start[0] + (end[0] - start[0]) * bend, y if number % 2 else start[1] + (end[1] - start[1]) * t)
            )
    return found


@given(graphs())
def test_no_two_boxes_overlap(graph: Graph) -> None:
    boxes, arrows = graph
    placed = rectangles(boxes, arrange(boxes, arrows))
    for (_, a), (_, b) in combinations(placed.items(), 2):
        assert a[2] + 10 <= b[0] or b[2] + 10 <= a[0] or a[3] + 10 <= b[1] or b[3] + 10 <= a[1]


@given(graphs())
def test_everything_lies_inside_the_drawing(graph: Graph) -> None:
    boxes, arrows = graph
    placed = arrange(boxes, arrows)
    corners = [
        (x, y)
        for left, top, right, bottom in rectangles(boxes, placed).values()
        for x, y in ((left, top), (right, bottom))
    ]
    points = [point for route in placed.routes for point in points_on(route)]
    for x, y in [*corners, *points]:
        assert -0.01 <= x <= placed.width + 0.01
        assert -0.01 <= y <= placed.height + 0.01


@given(graphs())
def test_every_arrow_runs_from_its_source_to_its_target_and_touches_no_box_on_the_way(graph: Graph) -> None:
    boxes, arrows = graph
    placed = arrange(boxes, arrows)
    areas = rectangles(boxes, placed)
    assert len(placed.routes) == len(arrows)
    for arrow, route in zip(arrows, placed.routes, strict=True):
        for end, point in ((arrow.source, route.points[0]), (arrow.target, route.points[-1])):
            left, top, right, bottom = areas[end]
            assert left <= point[0] <= right
            assert top - 0.01 <= point[1] <= bottom + 0.01
            assert min(abs(point[1] - top), abs(point[1] - bottom), abs(point[0] - right)) < 0.01
        for x, y in points_on(route):
            for left, top, right, bottom in areas.values():
                assert not (left + 0.1 < x < right - 0.1 and top + 0.1 < y < bottom - 0.1)


@given(graphs())
def test_labels_stand_on_their_arrows_and_on_no_box(graph: Graph) -> None:
    boxes, arrows = graph
    placed = arrange(boxes, arrows)
    for arrow, route in zip(arrows, placed.routes, strict=True):
        assert (route.label is not None) is bool(arrow.label_width)
        if route.label is None:
            continue
        x, y = route.label
        if arrow.source == arrow.target:
            continue
        assert any(abs(y - other_y) < 12 for _, other_y in points_on(route))
        for left, top, right, bottom in rectangles(boxes, placed).values():
            assert x + 15 <= left or right <= x - 15 or y + 6 <= top or bottom <= y - 6


@given(graphs())
@settings(max_examples=30)
def test_the_same_graph_gives_the_same_drawing(graph: Graph) -> None:
    assert arrange(*graph) == arrange(*graph)


@given(graphs())
def test_without_the_turned_arrows_there_is_no_circle(graph: Graph) -> None:
    boxes, arrows = graph
    left = {box.id for box in boxes}
    kept = [arrow for arrow in arrows if not arrow.turned and arrow.source != arrow.target]
    while left:
        free = {box_id for box_id in left if not any(a.target == box_id and a.source in left for a in kept)}
        assert free, f"a circle is left among {left}"
        left -= free


def test_arrows_lead_downwards_except_those_that_close_a_circle() -> None:
    boxes, arrows = chain("ab", "bc", "ca")
    placed = arrange(boxes, arrows)
    tops = {name: top for name, (_, top) in placed.boxes.items()}
    assert tops["a"] < tops["b"] < tops["c"]
    assert [arrow.turned for arrow in arrows] == [False, False, True]


def test_a_chain_is_a_straight_line() -> None:
    placed = arrange(*chain("ab", "bc", "cd"))
    assert len({round(x, 3) for x, _ in placed.boxes.values()}) == 1


def test_branches_that_do_not_meet_cross_as_little_as_they_can() -> None:
    boxes = [Box(name, 40, 20) for name in ("top", "a", "b", "c", "c2", "a2", "b2")]
    ends = [("top", "a"), ("top", "b"), ("top", "c"), ("a", "a2"), ("b", "b2"), ("c", "c2")]
    placed = arrange(boxes, arrows_between(boxes, ends))
    order = {name: x for name, (x, _) in placed.boxes.items()}
    assert sorted("abc", key=order.__getitem__) == [
        name[0] for name in sorted(("a2", "b2", "c2"), key=order.__getitem__)
    ]
    assert order["top"] + 20 == sorted(order[name] + 20 for name in "abc")[1]


def test_a_box_can_be_pinned_to_the_first_or_last_layer() -> None:
    boxes = [Box("in", 2, 0, "first"), Box("a", 40, 20), Box("b", 40, 20), Box("out", 2, 0, "last")]
    placed = arrange(boxes, arrows_between(boxes, [("b", "out"), ("in", "b"), ("a", "b")]))
    tops = {name: top for name, (_, top) in placed.boxes.items()}
    assert tops["in"] == 0 < tops["a"] < tops["b"] < tops["out"] == placed.height


def test_an_arrow_can_be_told_where_to_arrive() -> None:
    boxes = [Box("a", 40, 20), Box("wide", 300, 100)]
    placed = arrange(boxes, [Arrow("a", "wide", target_port=-120.0)])
    left, top = placed.boxes["wide"]
    assert placed.routes[0].points[-1] == (left + 30.0, top)


def test_nothing_at_all_has_no_size() -> None:
    assert arrange([], []) == Placement({}, [], 0.0, 0.0)
