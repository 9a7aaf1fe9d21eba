"""First half of a layout: break cycles, assign layers, and order them with few crossings."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from batonflow.draw.parts import Arrow, Box, Chain, Link, Place

__all__ = ["chain_of", "layers_of", "ordered", "turned_arrows", "walk_order"]

WEIGHTS = (8.0, 3.0, 1.0)
"""Weight of a straight piece of an arrow, by the number of its ends that are boxes."""

ROUNDS_OF_ORDER = 16


def turned_arrows(ids: Sequence[str], ends: Sequence[tuple[str, str]]) -> set[int]:
    """Return the indexes of arrows to reverse so that no cycle is left, except loops on one box.

    A depth-first search begins at boxes without incoming arrows; arrows back into its path are reversed.
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


# --- layers -----------------------------------------------------------------------------------------------------------


def _downwards(arrow: Arrow) -> tuple[str, str]:
    return (arrow.target, arrow.source) if arrow.turned else (arrow.source, arrow.target)


def layers_of(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> dict[str, int]:
    """Return the layers: every box below its predecessors, as near to its neighbours as possible."""
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
    for box_id in ready:  # the loop below appends to it
        for lower in below[box_id]:
            missing[lower] -= 1
            if not missing[lower]:
                ready.append(lower)
    return ready


def chain_of(arrow: Arrow, places: Mapping[str, Place]) -> Chain:
    """Give an arrow a place in every layer that it crosses."""
    upper, lower = (places[box_id] for box_id in _downwards(arrow))
    if upper is lower:
        return Chain(arrow, [upper], [])
    chain = [upper, *(Place(None, 2.0, number) for number in range(upper.layer + 1, lower.layer)), lower]
    links: list[Link] = []
    for first, second in pairwise(chain):
        ends = (first.box is not None) + (second.box is not None)
        links.append(Link(first, second, WEIGHTS[ends]))
        first.below.append(links[-1])
        second.above.append(links[-1])
    ports = (arrow.target_port, arrow.source_port) if arrow.turned else (arrow.source_port, arrow.target_port)
    if ports[0] is not None:
        links[0].upper_port, links[0].upper_fixed = ports[0], True
    if ports[1] is not None:
        links[-1].lower_port, links[-1].lower_fixed = ports[1], True
    return Chain(arrow, chain, links)


# --- order in the layers ----------------------------------------------------------------------------------------------


def walk_order(places: Iterable[Place]) -> list[Place]:
    """Return all places in the order of a walk along the arrows. It puts related places near each other."""
    found: dict[Place, None] = {}
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


def ordered(layers: list[list[Place]]) -> list[list[Place]]:
    """Return the layers in an order with few crossings, and number the places."""
    best, fewest = [list(layer) for layer in layers], _crossings(layers)
    # Drawings of thousands of places are not read as a whole, so speed matters more than crossings.
    rounds = max(3, min(ROUNDS_OF_ORDER, 12_000 // sum(map(len, layers))))
    for turn in range(rounds):
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


def _number(layers: Iterable[Sequence[Place]]) -> None:
    for layer in layers:
        for order, place in enumerate(layer):
            place.order = order


def _upper_key(link: Link) -> float:
    return link.upper.order + link.upper_port / (link.upper.width + 1.0) * 0.9


def _lower_key(link: Link) -> float:
    return link.lower.order + link.lower_port / (link.lower.width + 1.0) * 0.9


def _sort_by_barycentre(layer: list[Place], *, downwards: bool) -> None:
    keys: dict[Place, float] = {}
    for order, place in enumerate(layer):
        near = [_upper_key(link) for link in place.above] if downwards else [_lower_key(link) for link in place.below]
        keys[place] = sum(near) / len(near) if near else float(order)
    layer.sort(key=keys.__getitem__)
    _number([layer])


def _swap_neighbours(layers: Sequence[list[Place]]) -> None:
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


def _crossings_between(left: Place, right: Place) -> int:
    count = 0
    for key, of_left, of_right in ((_upper_key, left.above, right.above), (_lower_key, left.below, right.below)):
        others = sorted(key(link) for link in of_right)
        count += sum(bisect_left(others, key(link)) for link in of_left)
    return count


def _crossings(layers: Sequence[Sequence[Place]]) -> int:
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
