"""The open waits of a run, found by the type of an event and by the delivery they belong to."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from batonflow.workflow_core.events import Event

if TYPE_CHECKING:
    from batonflow.workflow_core.engine.state import Waiter, WorkItem

__all__ = ["Waits"]

K = TypeVar("K")


class Waits:
    """Open waits in the order in which they were opened.

    An event is compared with the waits for its type, and where steps take subclasses, with those for its bases;
    opening and closing a wait costs the same however many there are.
    """

    __slots__ = ("_all", "_by_item", "_exact", "_wide")

    def __init__(self) -> None:
        # The values of the first are places in the order of opening.
        self._all: dict[Waiter, int] = {}
        self._by_item: dict[int, dict[Waiter, None]] = {}
        self._exact: dict[type[Event], dict[Waiter, None]] = {}
        self._wide: dict[type[Event], dict[Waiter, None]] = {}

    def add(self, waiter: "Waiter") -> None:
        """Open a wait."""
        self._all[waiter] = next(reversed(self._all.values()), 0) + 1
        self._by_item.setdefault(waiter.item.id, {})[waiter] = None
        self._of_its_kind(waiter).setdefault(waiter.event_type, {})[waiter] = None

    def remove(self, waiter: "Waiter") -> None:
        """Close a wait."""
        del self._all[waiter]
        _take_out(self._by_item, waiter.item.id, waiter)
        _take_out(self._of_its_kind(waiter), waiter.event_type, waiter)

    def _of_its_kind(self, waiter: "Waiter") -> "dict[type[Event], dict[Waiter, None]]":
        return self._wide if waiter.item.spec.wide else self._exact

    def clear(self) -> None:
        """Close all."""
        for index in (self._all, self._by_item, self._exact, self._wide):
            index.clear()

    def of(self, item: "WorkItem") -> "list[Waiter]":
        """The open waits of a delivery."""
        return list(self._by_item.get(item.id, ()))

    def wanting(self, event: Event) -> "Iterator[Waiter]":
        """The open waits that want an event."""
        cls = type(event)
        found = list(self._exact.get(cls, ()))
        if self._wide:
            found += [waiter for base in cls.__mro__ for waiter in self._wide.get(base, ())]
            found.sort(key=self._all.__getitem__)
        return (waiter for waiter in found if waiter.wants(event))

    def __contains__(self, waiter: object) -> bool:
        return waiter in self._all

    def __iter__(self) -> "Iterator[Waiter]":
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)


def _take_out(index: "dict[K, dict[Waiter, None]]", key: K, waiter: "Waiter") -> None:
    found = index[key]
    del found[waiter]
    if not found:
        del index[key]
