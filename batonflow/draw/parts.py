"""Data of a layout: boxes and arrows, and their places and links in the layers."""

from dataclasses import dataclass, field

__all__ = ["Arrow", "Box", "Chain", "Link", "Place", "Placement", "Point", "Route", "box_of"]

Point = tuple[float, float]


@dataclass(slots=True)
class Box:
    """A box to place.

    Attributes:
        id: Unique among the boxes.
        width: Width of the box.
        height: Height of the box; 0 for a point on an edge of the drawing.
        pin: ``"first"`` or ``"last"`` puts it into the first or last layer.
    """

    id: str
    width: float
    height: float
    pin: str = ""


@dataclass(slots=True)
class Arrow:
    """An arrow to route.

    Attributes:
        source: Id of a box.
        target: Id of a box.
        label_width: Width of its label, 0 without a label.
        source_port: Offset of its start from the middle of the box; None for any.
        target_port: Offset of its end.
        turned: True if it runs upwards, against the direction of the layers.
    """

    source: str
    target: str
    label_width: float = 0.0
    source_port: float | None = None
    target_port: float | None = None
    turned: bool = False


@dataclass(slots=True)
class Route:
    """Route of an arrow: alternating straight and bent pieces, from the source to the target.

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
        routes: One per arrow, in the order of the arrows.
        width: Total width.
        height: Total height.
    """

    boxes: dict[str, Point]
    routes: list[Route]
    width: float
    height: float


@dataclass(slots=True, eq=False)
class Place:
    """A place in a layer, for a box or for an arrow that crosses the layer."""

    box: Box | None
    width: float
    layer: int
    x: float = 0.0
    order: int = 0
    above: "list[Link]" = field(default_factory=list["Link"])
    below: "list[Link]" = field(default_factory=list["Link"])


@dataclass(slots=True, eq=False)
class Link:
    """A piece of an arrow between two neighbouring layers; ports are offsets from the middles of its ends."""

    upper: Place
    lower: Place
    weight: float
    upper_port: float = 0.0
    lower_port: float = 0.0
    upper_fixed: bool = False
    lower_fixed: bool = False


@dataclass(slots=True, eq=False)
class Chain:
    """An arrow in the layers: its places from top to bottom, and the links between. A loop has no links."""

    arrow: Arrow
    places: list[Place]
    links: list[Link]


def box_of(place: Place) -> Box:
    """Return the box of a place."""
    assert place.box is not None
    return place.box
