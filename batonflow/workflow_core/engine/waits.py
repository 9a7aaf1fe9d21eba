"""The open waits of a run, found by the type of an event and by the delivery they belong to.

An answer to one question goes to one place. Its target is an address then: that of the wait that asked, or of the steps
of the run when no wait asked. Addresses are plain text, so records and snapshots hold them like names of steps.
"""

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, TypeVar, cast

from batonflow.workflow_core.events import Event, HumanResponseEvent

if TYPE_CHECKING:
    from batonflow.workflow_core.engine.state import Waiter, WorkItem

__all__ = ["TO_STEPS", "Waits", "address_of", "is_address"]

K = TypeVar("K")

_FEW = 8

TO_STEPS = "@"
"""The address of the steps of a run: no wait takes what is sent there."""


def address_of(waiter: "Waiter") -> str:
    """Return the address of a wait, which no other wait of the run has."""
    return f"@{waiter.item.id}/{waiter.key}"


def _requirements_of(waiter: "Waiter") -> int:
    return len(waiter.requirements)


def is_address(target: str | None) -> bool:
    """Tell an address from the name of a step."""
    return target is not None and target.startswith("@")


class Waits:
    """Open waits in the order in which they were opened.

    An event is compared with the waits for its type, and where steps take subclasses, with those for its bases;
    opening and closing a wait costs the same however many there are.
    """

    __slots__ = ("_index", "all")

    def __init__(self) -> None:
        # The values are places in the order of opening. Looked at for every event, so no method stands before it.
        self.all: dict[Waiter, int] = {}
        # Nearly every run has few open waits, and looking at each takes less room than finding them.
        self._index: _Index | None = None

    def add(self, waiter: "Waiter") -> None:
        """Open a wait."""
        self.all[waiter] = next(reversed(self.all.values()), 0) + 1
        if self._index is not None:
            self._index.add(waiter)
        elif len(self.all) > _FEW:
            self._index = _Index()
            for one in self.all:
                self._index.add(one)

    def remove(self, waiter: "Waiter") -> None:
        """Close a wait."""
        del self.all[waiter]
        if self._index is not None:
            self._index.remove(waiter)

    def clear(self) -> None:
        """Close all."""
        self.all.clear()
        self._index = None

    def of(self, item: "WorkItem") -> "list[Waiter]":
        """The open waits of a delivery."""
        if self._index is None:
            return [waiter for waiter in self.all if waiter.item.id == item.id]
        return list(self._index.by_item.get(item.id, ()))

    def wanting(self, event: Event) -> "Iterator[Waiter]":
        """The open waits that want an event."""
        if self._index is None:
            return (waiter for waiter in list(self.all) if waiter.wants(event))
        found = self._index.of_type(type(event))
        if self._index.wide:
            found.sort(key=self.all.__getitem__)
        return (waiter for waiter in found if waiter.wants(event))

    def takers(self, event: Event, target: str | None = None, besides: "Container[Waiter]" = ()) -> "list[Waiter]":
        """Return the open waits that an event answers.

        Of the waits that ask a person only one gets an answer, as the person who answers has seen one question. It is
        the wait with the most requirements, and of equal ones the oldest.

        Args:
            event: The event.
            target: The only step that it goes to, or an address.
            besides: Waits that are answered already.
        """
        if is_address(target):
            found = self.at(cast("str", target))
            return [found] if found is not None and found not in besides and found.wants(event) else []
        takers: list[Waiter] = []
        asks_person: list[Waiter] = []
        for waiter in self.wanting(event):
            if (target is None or waiter.item.spec.name == target) and waiter not in besides:
                asks = waiter.question is not None or isinstance(event, HumanResponseEvent)
                (asks_person if asks else takers).append(waiter)
        if asks_person:
            several = len(asks_person) > 1
            takers.append(max(asks_person, key=_requirements_of) if several else asks_person[0])
        return takers

    def at(self, address: str) -> "Waiter | None":
        """Return the open wait with an address."""
        item_id, _, key = address.removeprefix("@").partition("/")
        if self._index is None:
            waits = [waiter for waiter in self.all if str(waiter.item.id) == item_id]
        else:
            waits = list(self._index.by_item.get(int(item_id), ())) if item_id.isdecimal() else []
        return next((waiter for waiter in waits if waiter.key == key), None)

    def __contains__(self, waiter: object) -> bool:
        return waiter in self.all

    def __iter__(self) -> "Iterator[Waiter]":
        return iter(list(self.all))

    def __len__(self) -> int:
        return len(self.all)


class _Index:
    """Where the waits of a delivery and those for a type are."""

    __slots__ = ("by_item", "exact", "wide")

    def __init__(self) -> None:
        self.by_item: dict[int, dict[Waiter, None]] = {}
        self.exact: dict[type[Event], dict[Waiter, None]] = {}
        self.wide: dict[type[Event], dict[Waiter, None]] = {}

    def add(self, waiter: "Waiter") -> None:
        self.by_item.setdefault(waiter.item.id, {})[waiter] = None
        self._of_its_kind(waiter).setdefault(waiter.event_type, {})[waiter] = None

    def remove(self, waiter: "Waiter") -> None:
        _take_out(self.by_item, waiter.item.id, waiter)
        _take_out(self._of_its_kind(waiter), waiter.event_type, waiter)

    def of_type(self, cls: type[Event]) -> "list[Waiter]":
        found = list(self.exact.get(cls, ()))
        if self.wide:
            found += [waiter for base in cls.__mro__ for waiter in self.wide.get(base, ())]
        return found

    def _of_its_kind(self, waiter: "Waiter") -> "dict[type[Event], dict[Waiter, None]]":
        return self.wide if waiter.item.spec.wide else self.exact


def _take_out(index: "dict[K, dict[Waiter, None]]", key: K, waiter: "Waiter") -> None:
    found = index[key]
    del found[waiter]
    if not found:
        del index[key]
