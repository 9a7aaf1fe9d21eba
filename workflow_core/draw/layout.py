"""Places boxes in layers and leads the arrows around them: cycles, layers, order, coordinates, curves.

The scheme is Sugiyama's. Arrows that would close a circle are turned around for the time of the layout; every box gets
a layer below those that point to it; an arrow that crosses layers gets a place in each of them; barycentres order the
places so that few arrows cross; and a least-squares fit per layer moves everything as near to its neighbours as the
order allows. Curves bend only in the gaps between layers and run straight down inside them, where their place is kept
free, so that no arrow can touch a box.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["Arrow", "Box", "Placement", "Route", "arrange", "turned_arrows"]

GAP_BETWEEN_BOXES = 28.0
GAP_BESIDE_ARROW = 18.0
GAP_BETWEEN_ARROWS = 14.0
SMALLEST_LAYER_GAP = 38.0
LARGEST_LAYER_GAP = 120.0
PORT_DISTANCE = 13.0
LABEL_HEIGHT = 13.0
WEIGHTS = (8.0, 3.0, 1.0)
"""How much a piece of an arrow wants to be straight, by how many of its ends are boxes."""
ROUNDS_OF_ORDER = 16
ROUNDS_OF_PLACING = 40

Point = tuple[float, float]


@dataclass(slots=True)
class Box:
    """Something to place: its size, and where its ends of arrows may have to be.

    Attributes:
        id: Unique among the boxes.
        width: Of the box.
        height: Of the box; 0 makes a mere point on an edge of the drawing.
        pin: ``"first"`` or ``"last"`` puts it into the first or last layer.
    """

    id: str
    width: float
    height: float
    pin: str = ""


@dataclass(slots=True)
class Arrow:
    """An arrow to lead.

    Attributes:
        source: Id of a box.
        target: Id of a box.
        label_width: Room that its label needs, 0 without a label.
        source_port: Where it leaves, measured from the middle of the box; None for anywhere.
        target_port: Where it arrives.
        turned: Whether it is led upwards, against the direction of the layers.
    """

    source: str
    target: str
    label_width: float = 0.0
    source_port: float | None = None
    target_port: float | None = None
    turned: bool = False


@dataclass(slots=True)
class Route:
    """Where an arrow runs: straight and bent pieces in turn, from the source to the target.

    Attributes:
        points: The ends of the pieces; from point 0 to 1 it is straight, from 1 to 2 bent, from 2 to 3 straight ...
        label: The middle of its label.
    """

    points: list[Point]
    label: Point | None = None


@dataclass(slots=True)
class Placement:
    """A finished layout.

    Attributes:
        boxes: Id -> left and top.
        routes: One per arrow, in their order.
        width: Of everything.
        height: Of everything.
    """

    boxes: dict[str, Point]
    routes: list[Route]
    width: float
    height: float


@dataclass(slots=True, eq=False)
class _Place:
    """A place in a layer: that of a box, or of an arrow passing through."""

    box: Box | None
    width: float
    layer: int
    x: float = 0.0
    order: int = 0
    above: "list[_Link]" = field(default_factory=list["_Link"])
    below: "list[_Link]" = field(default_factory=list["_Link"])


@dataclass(slots=True, eq=False)
class _Link:
    """A piece of an arrow between two neighbouring layers; ports are offsets from the middles of its ends."""

    upper: _Place
    lower: _Place
    weight: float
    upper_port: float = 0.0
    lower_port: float = 0.0
    upper_fixed: bool = False
    lower_fixed: bool = False


@dataclass(slots=True, eq=False)
class _Chain:
    """An arrow in the layers: its places from top to bottom, and the links between; no links for a loop on one box."""

    arrow: Arrow
    places: list[_Place]
    links: list[_Link]


def turned_arrows(ids: Sequence[str], ends: Sequence[tuple[str, str]]) -> set[int]:
    """Return the indexes of arrows that must be turned around so that no circle is left, loops on one box left out.

    A search begins at boxes that nothing points to, in the order given; arrows that lead back into it are turned.
    """
    after: dict[str, list[tuple[int, str]]] = {box_id: [] for box_id in ids}
    pointed_at: set[str] = set()
    for index, (source, target) in enumerate(ends):
        if source != target:
            after[source].append((index, target))
            pointed_at.add(target)
    turned: set[int] = set()
    done: set[str] = set()
    for root in sorted(ids, key=lambda box_id: box_id in pointed_at):
        if root in done:
            continue
        path = {root}
        stack = [(root, iter(after[root]))]
        while stack:
            box_id, waiting = stack[-1]
            for index, target in waiting:
                if target in path:
                    turned.add(index)
                elif target not in done:
                    path.add(target)
                    stack.append((target, iter(after[target])))
                    break
            else:
                stack.pop()
                path.discard(box_id)
                done.add(box_id)
    return turned


def arrange(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> Placement:
    """Place boxes and lead arrows. The same input gives the same drawing.

    Args:
        boxes: In the order in which they should stand when nothing else says so.
        arrows: ``turned`` must be set as ``turned_arrows`` says; an arrow from a box to itself is drawn beside it.
    """
    if not boxes:
        return Placement({}, [], 0.0, 0.0)
    looped = {arrow.source for arrow in arrows if arrow.source == arrow.target}
    layer_of = _layers(boxes, arrows)
    places = {box.id: _Place(box, box.width + (48.0 if box.id in looped else 0.0), layer_of[box.id]) for box in boxes}
    chains = [_chain(arrow, places) for arrow in arrows]
    layers: list[list[_Place]] = [[] for _ in range(max(layer_of.values()) + 1)]
    for place in _walk_order(places.values()):
        layers[place.layer].append(place)
    layers = _ordered(layers)
    _place_across(layers)
    _spread_ports(places)
    left = min(place.x - place.width / 2 for layer in layers for place in layer)
    for layer in layers:
        for place in layer:
            place.x -= left
    width = max(place.x + place.width / 2 for layer in layers for place in layer)
    bands = _bands(layers, chains)
    corners: dict[str, Point] = {}
    for box_id, place in places.items():
        top, bottom = bands[place.layer]
        box = _box_of(place)
        corners[box_id] = (place.x - box.width / 2, (top + bottom - box.height) / 2)
    routes = [_route(chain, bands, corners) for chain in chains]
    _place_labels(arrows, routes, width)
    return Placement(corners, routes, width, bands[-1][1])


def _box_of(place: _Place) -> Box:
    assert place.box is not None
    return place.box


# --- layers -----------------------------------------------------------------------------------------------------------


def _downwards(arrow: Arrow) -> tuple[str, str]:
    return (arrow.target, arrow.source) if arrow.turned else (arrow.source, arrow.target)


def _layers(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> dict[str, int]:
    """Every box one layer or more below those that point to it, as near to its neighbours as that allows."""
    above: dict[str, list[str]] = {box.id: [] for box in boxes}
    below: dict[str, list[str]] = {box.id: [] for box in boxes}
    for arrow in arrows:
        upper, lower = _downwards(arrow)
        if upper != lower:
            above[lower].append(upper)
            below[upper].append(lower)
    order = _topological([box.id for box in boxes], above, below)
    layer: dict[str, int] = {}
    for box_id in order:
        layer[box_id] = max((layer[upper] + 1 for upper in above[box_id]), default=0)
    for _ in range(4):
        for box_id in [*reversed(order), *order]:
            highest = max((layer[upper] + 1 for upper in above[box_id]), default=None)
            lowest = min((layer[lower] - 1 for lower in below[box_id]), default=None)
            if lowest is not None and len(below[box_id]) > len(above[box_id]):
                layer[box_id] = lowest
            elif highest is not None and len(below[box_id]) <= len(above[box_id]):
                layer[box_id] = highest
    inner = [layer[box.id] for box in boxes if not box.pin] or [0]
    for box in boxes:
        if box.pin:
            layer[box.id] = min(inner) - 1 if box.pin == "first" else max(inner) + 1
    used = sorted(set(layer.values()))
    return {box_id: bisect_left(used, number) for box_id, number in layer.items()}


def _topological(ids: Sequence[str], above: Mapping[str, list[str]], below: Mapping[str, list[str]]) -> list[str]:
    missing = {box_id: len(above[box_id]) for box_id in ids}
    ready = [box_id for box_id in ids if not missing[box_id]]
    for box_id in ready:  # grows while it is walked
        for lower in below[box_id]:
            missing[lower] -= 1
            if not missing[lower]:
                ready.append(lower)
    return ready


def _chain(arrow: Arrow, places: Mapping[str, _Place]) -> _Chain:
    """Give an arrow a place in every layer that it passes."""
    upper, lower = (places[box_id] for box_id in _downwards(arrow))
    if upper is lower:
        return _Chain(arrow, [upper], [])
    chain = [upper, *(_Place(None, 2.0, number) for number in range(upper.layer + 1, lower.layer)), lower]
    links: list[_Link] = []
    for first, second in pairwise(chain):
        ends = (first.box is not None) + (second.box is not None)
        links.append(_Link(first, second, WEIGHTS[ends]))
        first.below.append(links[-1])
        second.above.append(links[-1])
    ports = (arrow.target_port, arrow.source_port) if arrow.turned else (arrow.source_port, arrow.target_port)
    if ports[0] is not None:
        links[0].upper_port, links[0].upper_fixed = ports[0], True
    if ports[1] is not None:
        links[-1].lower_port, links[-1].lower_fixed = ports[1], True
    return _Chain(arrow, chain, links)


# --- order in the layers ----------------------------------------------------------------------------------------------


def _walk_order(places: Iterable[_Place]) -> list[_Place]:
    """All places as a walk along the arrows meets them, so that what belongs together begins together."""
    found: dict[_Place, None] = {}
    for root in sorted(places, key=lambda place: place.layer):
        stack = [root]
        while stack:
            place = stack.pop()
            if place in found:
                continue
            found[place] = None
            near = [link.lower for link in place.below] + [link.upper for link in place.above]
            stack.extend(other for other in reversed(near) if other not in found)
    return list(found)


def _ordered(layers: list[list[_Place]]) -> list[list[_Place]]:
    best, fewest = [list(layer) for layer in layers], _crossings(layers)
    for turn in range(ROUNDS_OF_ORDER):
        if not fewest:
            break
        downwards = turn % 2 == 0
        for layer in layers[1:] if downwards else reversed(layers[:-1]):
            _sort_by_barycentre(layer, downwards=downwards)
        _swap_neighbours(layers)
        crossings = _crossings(layers)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    _number(best)
    return best


def _number(layers: Iterable[Sequence[_Place]]) -> None:
    for layer in layers:
        for order, place in enumerate(layer):
            place.order = order


def _upper_key(link: _Link) -> float:
    return link.upper.order + link.upper_port / (link.upper.width + 1.0) * 0.9


def _lower_key(link: _Link) -> float:
    return link.lower.order + link.lower_port / (link.lower.width + 1.0) * 0.9


def _sort_by_barycentre(layer: list[_Place], *, downwards: bool) -> None:
    keys: dict[_Place, float] = {}
    for order, place in enumerate(layer):
        near = [_upper_key(link) for link in place.above] if downwards else [_lower_key(link) for link in place.below]
        keys[place] = sum(near) / len(near) if near else float(order)
    layer.sort(key=keys.__getitem__)
    _number([layer])


def _swap_neighbours(layers: Sequence[list[_Place]]) -> None:
    """Exchange neighbours as long as that saves crossings."""
    for layer in layers:
        for _ in range(3):
            swapped = False
            for index in range(len(layer) - 1):
                first, second = layer[index], layer[index + 1]
                if _crossings_between(first, second) > _crossings_between(second, first):
                    layer[index], layer[index + 1] = second, first
                    second.order, first.order = index, index + 1
                    swapped = True
            if not swapped:
                break


def _crossings_between(left: _Place, right: _Place) -> int:
    """How many arrows of two neighbours cross when they stand in this order."""
    count = 0
    for key, of_left, of_right in ((_upper_key, left.above, right.above), (_lower_key, left.below, right.below)):
        others = sorted(key(link) for link in of_right)
        count += sum(bisect_left(others, key(link)) for link in of_left)
    return count


def _crossings(layers: Sequence[Sequence[_Place]]) -> int:
    _number(layers)
    count = 0
    for layer in layers:
        seen: list[float] = []
        for place in layer:
            keys = [_lower_key(link) for link in place.below]
            count += sum(len(seen) - bisect_left(seen, key + 1e-9) for key in keys)
            for key in keys:
                insort(seen, key)
    return count


# --- coordinates ------------------------------------------------------------------------------------------------------


def _distance(left: _Place, right: _Place) -> float:
    passing = (left.box is None) + (right.box is None)
    gap = (GAP_BETWEEN_BOXES, GAP_BESIDE_ARROW, GAP_BETWEEN_ARROWS)[passing]
    return (left.width + right.width) / 2 + gap


def _place_across(layers: Sequence[Sequence[_Place]]) -> None:
    for layer in layers:
        x = 0.0
        for index, place in enumerate(layer):
            x += _distance(layer[index - 1], place) if index else 0.0
            place.x = x
        for place in layer:
            place.x -= x / 2
    for turn in range(ROUNDS_OF_PLACING):
        look = ("above", "below", "both")[turn % 3] if turn < ROUNDS_OF_PLACING - 6 else "both"
        for layer in layers if turn % 2 == 0 else reversed(layers):
            _fit(layer, look)


def _fit(layer: Sequence[_Place], look: str) -> None:
    """Move a layer's places as near as possible to what their neighbours wish, keeping order and distances."""
    wishes: list[float] = []
    weights: list[float] = []
    shift = 0.0
    for index, place in enumerate(layer):
        shift += _distance(layer[index - 1], place) if index else 0.0
        total = weight = 0.0
        if look != "below":
            for link in place.above:
                total += link.weight * (link.upper.x + link.upper_port - link.lower_port)
                weight += link.weight
        if look != "above":
            for link in place.below:
                total += link.weight * (link.lower.x + link.lower_port - link.upper_port)
                weight += link.weight
        wishes.append((total / weight if weight else place.x) - shift)
        weights.append(weight or 0.1)
    shift = 0.0
    for index, (place, x) in enumerate(zip(layer, _rising_fit(wishes, weights), strict=True)):
        shift += _distance(layer[index - 1], place) if index else 0.0
        place.x = x + shift


def _rising_fit(wishes: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The rising sequence nearest to the wishes by weighted least squares: neighbours out of order are put together."""
    blocks: list[tuple[float, float, int]] = []
    for wish, weight in zip(wishes, weights, strict=True):
        value, total, count = wish, weight, 1
        while blocks and blocks[-1][0] > value:
            other, other_total, other_count = blocks.pop()
            value = (value * total + other * other_total) / (total + other_total)
            total += other_total
            count += other_count
        blocks.append((value, total, count))
    return [value for value, _, count in blocks for _ in range(count)]


def _spread_ports(places: Mapping[str, _Place]) -> None:
    """Let the arrows of a side leave next to one another, in the order of where they go."""
    for place in places.values():
        width = _box_of(place).width * 0.55
        below = sorted((link for link in place.below if not link.upper_fixed), key=lambda link: link.lower.x)
        for link, port in zip(below, _ports(len(below), width), strict=True):
            link.upper_port = port
        above = sorted((link for link in place.above if not link.lower_fixed), key=lambda link: link.upper.x)
        for link, port in zip(above, _ports(len(above), width), strict=True):
            link.lower_port = port


def _ports(count: int, width: float) -> list[float]:
    step = min(PORT_DISTANCE, width / max(count, 1))
    return [(index - (count - 1) / 2) * step for index in range(count)]


def _bands(layers: Sequence[Sequence[_Place]], chains: Sequence[_Chain]) -> list[Point]:
    """Top and bottom of each layer; the gaps between are wider where arrows run far sideways or carry labels."""
    labelled = {place.layer for chain in chains if chain.arrow.label_width for place in chain.places[:-1]}
    bands: list[Point] = []
    y = 0.0
    for number, layer in enumerate(layers):
        height = max((place.box.height for place in layer if place.box is not None), default=0.0)
        bands.append((y, y + height))
        far = max((abs(link.upper.x - link.lower.x) for place in layer for link in place.below), default=0.0)
        gap = min(SMALLEST_LAYER_GAP + far * 0.07, LARGEST_LAYER_GAP) + (14.0 if number in labelled else 0.0)
        y += height + gap
    return bands


# --- curves and labels ------------------------------------------------------------------------------------------------


def _route(chain: _Chain, bands: Sequence[Point], corners: Mapping[str, Point]) -> Route:
    first, last = chain.places[0], chain.places[-1]
    if not chain.links:
        return _loop(_box_of(first), corners[_box_of(first).id])
    start, end = first.x + chain.links[0].upper_port, last.x + chain.links[-1].lower_port
    first_bottom = corners[_box_of(first).id][1] + _box_of(first).height
    points = [(start, first_bottom), (start, bands[first.layer][1])]
    for place in chain.places[1:-1]:
        top, bottom = bands[place.layer]
        points += [(place.x, top), (place.x, bottom)]
    points += [(end, bands[last.layer][0]), (end, corners[_box_of(last).id][1])]
    return Route(points[::-1] if chain.arrow.turned else points)


def _loop(box: Box, corner: Point) -> Route:
    """Out of the right side of a box and in again."""
    right, middle = corner[0] + box.width, corner[1] + box.height / 2
    reach, half = right + 20.0, min(8.0, box.height / 4)
    return Route([(right, middle - half), (reach, middle - half), (reach, middle + half), (right, middle + half)])


def _on_curve(start: Point, end: Point, t: float) -> Point:
    """A point of the bent piece between two points, whose tangents there are upright."""
    smooth = t * t * (3 - 2 * t)
    middle = (start[1] + end[1]) / 2
    y = (1 - t) ** 3 * start[1] + 3 * t * (1 - t) * middle + t**3 * end[1]
    return (start[0] + (end[0] - start[0]) * smooth, y)


def _place_labels(arrows: Sequence[Arrow], routes: Sequence[Route], width: float) -> None:
    """Put every label on a bend of its arrow, in the middle if it can be, and not over another label."""
    taken: list[tuple[float, float, float]] = []
    for arrow, route in zip(arrows, routes, strict=True):
        if not arrow.label_width:
            continue
        half = arrow.label_width / 2
        bends = list(zip(route.points[1::2], route.points[2::2], strict=False))
        spots = [_on_curve(*bend, t) for t in (0.5, 0.4, 0.6, 0.32, 0.68) for bend in bends]
        inside = [(min(max(x, half), max(width - half, half)), y) for x, y in spots]
        free = (spot for spot in inside if not any(_too_near(spot, half, other) for other in taken))
        route.label = next(free, inside[0])
        taken.append((*route.label, half))


def _too_near(spot: Point, half: float, other: tuple[float, float, float]) -> bool:
    return abs(spot[1] - other[1]) < LABEL_HEIGHT and abs(spot[0] - other[0]) < half + other[2] + 2.0
