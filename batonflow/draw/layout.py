"""Layout of boxes in layers with arrows between them: cycles, layers, order, coordinates, curves.

The scheme is Sugiyama's. Arrows that would close a cycle are reversed during the layout. Every box gets a layer below
its predecessors. An arrow across layers gets a place in each of them. Barycentres order the places, so that few arrows
cross. A least-squares fit per layer moves all places as near to their neighbours as the order allows. Curves bend only
in the gaps between layers and are straight inside the layers, in their own places, so that arrows never touch boxes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from batonflow.draw.order import chain_of, layers_of, ordered, turned_arrows, walk_order
from batonflow.draw.parts import Arrow, Box, Chain, Place, Placement, Point, Route, box_of
from batonflow.draw.placing import align, blocks_of, place_across, spread_ports

__all__ = ["Arrow", "Box", "Placement", "Point", "Route", "arrange", "turned_arrows"]

SMALLEST_LAYER_GAP = 38.0
GAP_TO_EDGE = 16.0
LARGEST_LAYER_GAP = 120.0
LABEL_HEIGHT = 13.0


def arrange(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> Placement:
    """Place boxes and route arrows. The same input gives the same drawing.

    Args:
        boxes: The boxes, in their default order.
        arrows: ``turned`` must be set by ``turned_arrows``; an arrow from a box to itself is drawn beside it.
    """
    if not boxes:
        return Placement({}, [], 0.0, 0.0)
    looped = {arrow.source for arrow in arrows if arrow.source == arrow.target}
    layer_of = layers_of(boxes, arrows)
    places = {box.id: Place(box, box.width + (48.0 if box.id in looped else 0.0), layer_of[box.id]) for box in boxes}
    chains = [chain_of(arrow, places) for arrow in arrows]
    layers: list[list[Place]] = [[] for _ in range(max(layer_of.values()) + 1)]
    for place in walk_order(places.values()):
        layers[place.layer].append(place)
    layers = ordered(layers)
    place_across(layers)
    blocks = blocks_of(layers)
    align(layers, blocks)
    spread_ports(places)
    align(layers, [block for block in blocks if all(place.box is None for place in block)])
    left = min(place.x - place.width / 2 for layer in layers for place in layer)
    for layer in layers:
        for place in layer:
            place.x -= left
    width = max(place.x + place.width / 2 for layer in layers for place in layer)
    bands = _bands(layers, chains)
    corners: dict[str, Point] = {}
    for box_id, place in places.items():
        top, bottom = bands[place.layer]
        box = box_of(place)
        # Small boxes beside a tall one stay near the arrows from above.
        corners[box_id] = (place.x - box.width / 2, top + min((bottom - top - box.height) / 2, 20.0))
    routes = [_route(chain, bands, corners) for chain in chains]
    _place_labels(arrows, routes, width)
    return Placement(corners, routes, width, bands[-1][1])


def _bands(layers: Sequence[Sequence[Place]], chains: Sequence[Chain]) -> list[Point]:
    """Return top and bottom of each layer; gaps are wider for arrows with long sideways runs or labels."""
    labelled = {place.layer for chain in chains if chain.arrow.label_width for place in chain.places[:-1]}
    bands: list[Point] = []
    y = 0.0
    for number, layer in enumerate(layers):
        height = max((place.box.height for place in layer if place.box is not None), default=0.0)
        bands.append((y, y + height))
        far = max((abs(link.upper.x - link.lower.x) for place in layer for link in place.below), default=0.0)
        smallest = SMALLEST_LAYER_GAP if height and not _is_edge(layers, number + 1) else GAP_TO_EDGE
        gap = min(smallest + far * 0.07, LARGEST_LAYER_GAP) + (14.0 if number in labelled else 0.0)
        y += height + gap
    return bands


def _is_edge(layers: Sequence[Sequence[Place]], number: int) -> bool:
    return number < len(layers) and not any(place.box is not None and place.box.height for place in layers[number])


# --- curves and labels ------------------------------------------------------------------------------------------------


def _route(chain: Chain, bands: Sequence[Point], corners: Mapping[str, Point]) -> Route:
    first, last = chain.places[0], chain.places[-1]
    if not chain.links:
        return _loop(box_of(first), corners[box_of(first).id])
    start, end = first.x + chain.links[0].upper_port, last.x + chain.links[-1].lower_port
    first_bottom = corners[box_of(first).id][1] + box_of(first).height
    points = [(start, first_bottom), (start, bands[first.layer][1])]
    for place in chain.places[1:-1]:
        top, bottom = bands[place.layer]
        points += [(place.x, top), (place.x, bottom)]
    points += [(end, bands[last.layer][0]), (end, corners[box_of(last).id][1])]
    return Route(points[::-1] if chain.arrow.turned else points)


def _loop(box: Box, corner: Point) -> Route:
    right, middle = corner[0] + box.width, corner[1] + box.height / 2
    reach, half = right + 20.0, min(8.0, box.height / 4)
    return Route([(right, middle - half), (reach, middle - half), (reach, middle + half), (right, middle + half)])


def _on_curve(start: Point, end: Point, t: float) -> Point:
    smooth = t * t * (3 - 2 * t)
    middle = (start[1] + end[1]) / 2
    y = (1 - t) ** 3 * start[1] + 3 * t * (1 - t) * middle + t**3 * end[1]
    return (start[0] + (end[0] - start[0]) * smooth, y)


def _place_labels(arrows: Sequence[Arrow], routes: Sequence[Route], width: float) -> None:
    """Put each label on a bend of its arrow, without overlaps, and away from ends with many arrows."""
    leaving, arriving = Counter(arrow.source for arrow in arrows), Counter(arrow.target for arrow in arrows)
    taken: list[tuple[float, float, float]] = []
    for arrow, route in zip(arrows, routes, strict=True):
        if not arrow.label_width:
            continue
        half = arrow.label_width / 2
        bends = list(zip(route.points[1::2], route.points[2::2], strict=False))
        crowd = leaving[arrow.source] - arriving[arrow.target]
        spots = [_on_curve(*bend, t) for t in _along(crowd) for bend in (bends if crowd <= 0 else reversed(bends))]
        inside = [(min(max(x, half), max(width - half, half)), y) for x, y in spots]
        free = (spot for spot in inside if not any(_too_near(spot, half, other) for other in taken))
        route.label = next(free, inside[0])
        taken.append((*route.label, half))


def _along(crowd: int) -> tuple[float, ...]:
    """Return places to try for a label on a bend. At its start, ``crowd`` more arrows meet than at its end."""
    if crowd > 1:
        return (0.72, 0.6, 0.5, 0.4)
    return (0.28, 0.4, 0.5, 0.6) if crowd < -1 else (0.5, 0.4, 0.6, 0.3, 0.7)


def _too_near(spot: Point, half: float, other: tuple[float, float, float]) -> bool:
    return abs(spot[1] - other[1]) < LABEL_HEIGHT and abs(spot[0] - other[0]) < half + other[2] + 2.0
