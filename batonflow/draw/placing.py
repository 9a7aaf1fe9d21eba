"""Second half of a layout: horizontal positions, for given layers and their order."""

from collections.abc import Mapping, Sequence
from math import inf

from batonflow.draw.parts import Place, box_of

__all__ = ["align", "blocks_of", "distance", "place_across", "spread_ports"]

GAP_BETWEEN_BOXES = 28.0
GAP_BESIDE_ARROW = 18.0
GAP_BETWEEN_ARROWS = 14.0
PORT_DISTANCE = 13.0
ROUNDS_OF_PLACING = 40
ROUNDS_OF_STRAIGHTENING = 30
ROUNDS_OF_ALIGNING = 24


def distance(left: Place, right: Place) -> float:
    """Return the smallest distance between the middles of two neighbours in a layer."""
    passing = (left.box is None) + (right.box is None)
    gap = (GAP_BETWEEN_BOXES, GAP_BESIDE_ARROW, GAP_BETWEEN_ARROWS)[passing]
    return (left.width + right.width) / 2 + gap


def place_across(layers: Sequence[Sequence[Place]]) -> None:
    """Compute horizontal positions: near to the neighbours above and below, with most arrows vertical."""
    for layer in layers:
        x = 0.0
        for index, place in enumerate(layer):
            x += distance(layer[index - 1], place) if index else 0.0
            place.x = x
        for place in layer:
            place.x -= x / 2
    for turn in range(ROUNDS_OF_PLACING):
        look = ("above", "below", "both")[turn % 3]
        for layer in layers if turn % 2 == 0 else reversed(layers):
            _fit(layer, look, straighten=False)
    for turn in range(ROUNDS_OF_STRAIGHTENING):
        for layer in layers if turn % 2 == 0 else reversed(layers):
            _fit(layer, "both", straighten=True)


def _fit(layer: Sequence[Place], look: str, *, straighten: bool) -> None:
    """Move the places of a layer towards their neighbours' positions, with the same order and distances.

    Arrows that bend less have more weight: most arrows become vertical, instead of all nearly vertical.
    """
    wishes: list[float] = []
    weights: list[float] = []
    shift = 0.0
    for index, place in enumerate(layer):
        shift += distance(layer[index - 1], place) if index else 0.0
        total = weight = 0.0
        spots = [(link.weight, link.upper.x + link.upper_port - link.lower_port) for link in place.above]
        if look == "below":
            spots = []
        if look != "above":
            spots += [(link.weight, link.lower.x + link.lower_port - link.upper_port) for link in place.below]
        for pull, spot in spots:
            counted = pull / max(abs(spot - place.x), 1.0) if straighten else pull
            total += counted * spot
            weight += counted
        wishes.append((total / weight if weight else place.x) - shift)
        weights.append(weight or 0.1)
    shift = 0.0
    for index, (place, x) in enumerate(zip(layer, _rising_fit(wishes, weights), strict=True)):
        shift += distance(layer[index - 1], place) if index else 0.0
        place.x = x + shift


def _rising_fit(wishes: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the ascending sequence nearest to the wishes by weighted least squares (pool adjacent violators)."""
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


def blocks_of(layers: Sequence[Sequence[Place]]) -> list[list[Place]]:
    """Return groups of places to align vertically: an arrow's places, and boxes joined by a single arrow."""
    below: dict[Place, Place] = {}
    for layer in layers:
        for place in layer:
            for link in place.below:
                sole = place.box is None or len(place.below) == 1
                if sole and (link.lower.box is None or len(link.lower.above) == 1):
                    below[place] = link.lower
    lower = set(below.values())
    blocks: list[list[Place]] = []
    for layer in layers:
        for place in layer:
            if place in lower:
                continue
            block = [place]
            while block[-1] in below:
                block.append(below[block[-1]])
            blocks.append(block)
    return blocks


def align(layers: Sequence[Sequence[Place]], blocks: Sequence[list[Place]]) -> None:
    """Move each block to the median of its neighbours' wishes, as far as there is room."""
    for turn in range(ROUNDS_OF_ALIGNING):
        for block in blocks if turn % 2 == 0 else reversed(blocks):
            offsets = [0.0]
            for place in block[:-1]:
                link = next(link for link in place.below if link.lower is block[len(offsets)])
                offsets.append(offsets[-1] + link.upper_port - link.lower_port)
            leftmost, rightmost = -inf, inf
            for place, offset in zip(block, offsets, strict=True):
                layer = layers[place.layer]
                if place.order > 0:
                    before = layer[place.order - 1]
                    leftmost = max(leftmost, before.x + distance(before, place) - offset)
                if place.order < len(layer) - 1:
                    after = layer[place.order + 1]
                    rightmost = min(rightmost, after.x - distance(place, after) - offset)
            if leftmost > rightmost + 1e-6:
                continue
            x = min(max(_wished(block, offsets), leftmost), max(rightmost, leftmost))
            for place, offset in zip(block, offsets, strict=True):
                place.x = x + offset


def _wished(block: Sequence[Place], offsets: Sequence[float]) -> float:
    """Return the weighted median of the positions that make a block's outer arrows vertical."""
    first, last = block[0], block[-1]
    wishes = [(link.upper.x + link.upper_port - link.lower_port, link.weight) for link in first.above]
    wishes += [(link.lower.x + link.lower_port - link.upper_port - offsets[-1], link.weight) for link in last.below]
    if not wishes:
        return sum(place.x - offset for place, offset in zip(block, offsets, strict=True)) / len(block)
    wishes.sort()
    half, total = sum(weight for _, weight in wishes) / 2, 0.0
    for number, (wish, weight) in enumerate(wishes):
        total += weight
        if total > half + 1e-9:
            return wish
        if total > half - 1e-9:  # two middle values
            return (wish + wishes[min(number + 1, len(wishes) - 1)][0]) / 2
    return wishes[-1][0]


def spread_ports(places: Mapping[str, Place]) -> None:
    """Distribute the arrows along a side of a box, in the order of their other ends."""
    for place in places.values():
        width = box_of(place).width * 0.55
        below = sorted((link for link in place.below if not link.upper_fixed), key=lambda link: link.lower.x)
        for link, port in zip(below, _ports(len(below), width), strict=True):
            link.upper_port = port
        above = sorted((link for link in place.above if not link.lower_fixed), key=lambda link: link.upper.x)
        for link, port in zip(above, _ports(len(above), width), strict=True):
            link.lower_port = port


def _ports(count: int, width: float) -> list[float]:
    step = min(PORT_DISTANCE, width / max(count, 1))
    return [(index - (count - 1) / 2) * step for index in range(count)]
