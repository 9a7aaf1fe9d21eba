"""The writing side of parts: it finds the parts that are written already, and numbers new ones."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

from batonflow.durable.parts.references import DATA, ITEMS, OF, REDACTED, Item, PartReader, occurrences
from batonflow.instrumentation.redaction import known_secrets, redacted
from batonflow.values.names import REFERENCE
from batonflow.values.serializers import as_json

if TYPE_CHECKING:
    from batonflow.llms.watched import Watch

__all__ = ["LONG_LIST", "LONG_TEXT", "ListReference", "PartWriter", "ShownParts"]

LONG_TEXT = 200
"""Characters from which on a text is a part."""

LONG_LIST = 8
"""Number of items from which a list of a state is a part. New items at its end are also parts."""

_MOST_LISTS = 32
_SPARE_OBJECTS = 1000

_SMALL = frozenset({int, float, bool, type(None)})
_kind: Callable[[Any], Any] = type

Encode = Callable[[Any], Any]
"""Returns an item of a list as data; None if it cannot be a part."""


def _is_short(values: Iterable[Any]) -> bool:
    """Tell whether values stand in records as they are: numbers, short texts and None."""
    for value in values:
        kind = _kind(value)
        if kind not in _SMALL and (kind is not str or len(value) >= LONG_TEXT):
            return False
    return True


class _KnownList:
    """A list that is written as parts, such as the messages of a memory; it only grows.

    Attributes:
        objects: The items; None for those that this process has not seen, or that have changed.
        numbers: The numbers of their parts.
        parts: The list parts, with their lengths.
        is_watched: Whether changes of its items are noticed, so that the same objects are the same items.
    """

    __slots__ = ("is_watched", "numbers", "objects", "parts")

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.numbers: list[int] = []
        self.parts: list[tuple[int, int]] = []
        self.is_watched = True

    def reference(self, begin: int, end: int) -> Item:
        """Return the reference to a range. It is the same at any time, so that data with it can be compared."""
        low, high = 0, len(self.parts) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.parts[middle][1] < end else (low, middle)
        return [self.parts[low][0], begin, end]


@dataclass(slots=True)
class _Range:
    """A range of a known list."""

    known: _KnownList
    begin: int
    end: int

    @property
    def reaches_end(self) -> bool:
        """Tell whether the list ends with the range."""
        return self.end == len(self.known.numbers)


class _Way(NamedTuple):
    """The way of writing the items of a list; see ``PartWriter.keep``."""

    encode: Encode
    marked: bool
    shown: bool


class ListReference:
    """A list in a record whose items are parts.

    Args:
        pieces: Ranges of known lists, and numbers of parts.
        redacted: The numbers of parts without secrets, by the numbers of parts with secrets.
        name: The name of the class that marks the items; empty if they are not marked.
    """

    __slots__ = ("_name", "_pieces", "_redacted")

    def __init__(self, pieces: list[_Range | int], redacted: dict[int, int], name: str) -> None:
        self._pieces = pieces
        self._redacted = redacted
        self._name = name

    def as_data(self) -> dict[str, Any]:
        """Return the reference as it stands in records."""
        items = _items(self._pieces)
        return {REFERENCE: {OF: self._name, ITEMS: items} if self._name else items}

    def without_secrets(self) -> "ListReference":
        """Return the list with parts without secrets, for readers of a stream."""
        if not self._redacted:
            return self
        return ListReference([one for piece in self._pieces for one in self._shown(piece)], {}, self._name)

    def _shown(self, piece: _Range | int) -> Iterator[_Range | int]:
        if isinstance(piece, int):
            yield self._redacted.get(piece, piece)
            return
        known, begin = piece.known, piece.begin
        for at in range(begin, piece.end):
            shown = self._redacted.get(known.numbers[at])
            if shown is not None:
                if begin < at:
                    yield _Range(known, begin, at)
                yield shown
                begin = at + 1
        if begin < piece.end:
            yield _Range(known, begin, piece.end)


class PartWriter:
    """The parts of a conversation. They belong to its state, and go with it from run to run.

    Args:
        stored: The parts that a store has already.

    Attributes:
        count: The number of parts.
        stored: The number of parts that a store has.
        place: The store, and the number of the log there; None before the first run has begun.
        owner: The lease of the run that writes the parts now. A run that is over writes no more of them.
    """

    def __init__(self, stored: PartReader | None = None) -> None:
        self.count = 0
        self.stored = 0
        self.place: tuple[Any, int] | None = None
        self.owner: Any = None
        self._new: list[bytes] = []
        self._contents: dict[bytes, int] = {}
        # Watched messages with their watch and part, by id.
        self._objects: dict[int, tuple[Any, Watch, int]] = {}
        self._lists: list[_KnownList] = []
        self._places: dict[int, tuple[_KnownList, int]] = {}
        # The parts without secrets of parts with secrets.
        self._redacted: dict[int, int] = {}
        self._secrets = known_secrets() if stored is None else -1
        self._changes = 0
        self._watch: Watch | None = None
        if stored is not None:
            self._load(stored)

    def _load(self, stored: PartReader) -> None:
        by_part: dict[int, _KnownList] = {}
        for number in range(len(stored)):
            self._contents[_digest(stored.stored(number))] = number
            items = stored.items_of(number)
            if items is None:
                if (secret := stored.redacts(number)) is not None:
                    self._redacted[secret] = number
                continue
            first = items[0]
            known = None if isinstance(first, int) or first[1] else by_part.get(first[0])
            if known is None or isinstance(first, int) or first[2] != len(known.numbers):
                known, more = self._new_list(), stored.list_part(number)
            else:
                more = stored.numbers(items[1:])
            by_part[number] = known
            self._lengthen(known, [None] * len(more), more, number)
        self.count = self.stored = len(stored)

    def adopt(self, objects: Mapping[tuple[int, int], Any]) -> None:
        """Take over the messages that ``PartObjects`` has made."""
        for (number, _), value in objects.items():
            self._watch_object(value, number)
        for known in self._lists:
            known.objects = list(map(objects.get, occurrences(known.numbers)))
            known.is_watched = self._are_watched(known.objects)

    @property
    def is_whole(self) -> bool:
        """Tell whether the store has all parts except those that ``take_new`` returns."""
        return self.stored + len(self._new) == self.count

    # --- parts --------------------------------------------------------------------------------------------------------

    def take_new(self) -> list[bytes]:
        """Return the parts since the last call."""
        new, self._new = self._new, []
        return new

    def part(self, data: Any) -> int:
        """Return the number of the part with this content; there may be references in it."""
        body = as_json(data)
        digest = _digest(body)
        number = self._contents.get(digest)
        if number is None:
            number = self._contents[digest] = self.count
            self.count += 1
            self._new.append(body)
        return number

    def lean(self, data: Any) -> Any:
        """Return data with references in the place of long texts, and of the lists that ``keep`` has returned."""
        kind = _kind(data)
        if kind is str:
            return data if len(data) < LONG_TEXT else {REFERENCE: self.part(data)}
        if kind is dict:
            fields: dict[str, Any] = data
            if REFERENCE not in fields and _is_short(fields.values()):
                return fields.copy()
            found = {
                name: one
                if (kind := _kind(one)) in _SMALL or (kind is str and len(one) < LONG_TEXT)
                else self.lean(one)
                for name, one in fields.items()
            }
            return {REFERENCE: {DATA: found}} if len(found) == 1 and REFERENCE in found else found
        if kind is list or kind is tuple:
            items: Sequence[Any] = data
            return [
                one if (kind := _kind(one)) in _SMALL or (kind is str and len(one) < LONG_TEXT) else self.lean(one)
                for one in items
            ]
        return data.as_data() if kind is ListReference else data

    # --- lists --------------------------------------------------------------------------------------------------------

    def keep(
        self,
        values: Sequence[Any],
        encode: Encode,
        *,
        grows: bool,
        name: str = "",
        marked: bool = False,
        shown: bool = False,
    ) -> ListReference | None:
        """Return the reference to a list of messages or results; None if it has to be written whole.

        Args:
            values: The items.
            encode: Returns an item as data.
            grows: Whether the list belongs to a state, so that further items will be added to it.
            name: The name of the class that marks the items; empty to leave them as ``encode`` returns them.
            marked: Whether ``encode`` returns data with marks, which are compared instead of the objects.
            shown: Whether the list is only for readers, so that new items are written without their secrets.
        """
        self._look_for_changes()
        if self._secrets != known_secrets():
            self._look_for_secrets(encode)
        way = _Way(partial(_without_secrets, encode) if shown else encode, marked, shown)
        pieces = self._pieces(values, way)
        if grows and pieces is not None and self._grow(pieces, values, way):
            pieces = self._pieces(values, way)
        return None if pieces is None else ListReference(pieces, self._redacted, name)

    def _pieces(self, values: Sequence[Any], way: _Way) -> list[_Range | int] | None:
        """Return a list as ranges of known lists and single parts. None means that an item cannot be a part."""
        pieces: list[_Range | int] = []
        at = 0
        while at < len(values):
            number = self._number(values[at], way)
            if number is None:
                return None
            place = self._places.get(number)
            if place is None:
                pieces.append(number)
                at += 1
                continue
            known, begin = place
            size = self._in_common(known, begin, values, at, way)
            pieces.append(_Range(known, begin, begin + size))
            at += size
        return pieces

    def _number(self, value: Any, way: _Way) -> int | None:
        known = None if way.marked else self._objects.get(id(value))
        if known is not None:
            return known[2]
        data = way.encode(value)
        if data is None:
            return None
        number = self.part(self.lean(data))
        if not way.shown:
            self._note_secrets(number, data)
        if not (way.marked or way.shown):
            self._watch_object(value, number)
        return number

    def _note_secrets(self, number: int, data: Any) -> None:
        """Write a part without its secrets, for streams."""
        if (shown := redacted(data)) != data:
            self._redacted[number] = self.part({REFERENCE: {REDACTED: number, DATA: self.lean(shown)}})

    def _look_for_secrets(self, encode: Encode) -> None:
        """Look for secrets again in the messages so far, because more secrets are known now."""
        self._secrets = known_secrets()
        for value, _, number in list(self._objects.values()):
            if (data := encode(value)) is not None:
                self._note_secrets(number, data)

    def _watch_object(self, value: Any, number: int) -> None:
        """Note the part of a message for as long as the message does not change."""
        watch = value.__batonflow_watch__() if hasattr(value, "__batonflow_watch__") else None
        if watch is None:
            return
        if self._watch is None:
            self._watch, self._changes = watch, watch.changes
        if len(self._objects) > 2 * len(self._places) + _SPARE_OBJECTS:
            alive = {id(one) for known in self._lists for one in known.objects}
            self._objects = {key: entry for key, entry in self._objects.items() if key in alive}
        self._objects[id(value)] = value, watch, number

    def _in_common(self, known: _KnownList, begin: int, values: Sequence[Any], at: int, way: _Way) -> int:
        """Return how many values from ``at`` on are the items of a known list from ``begin`` on."""
        most = min(len(known.objects) - begin, len(values) - at)
        ours, others = known.objects[begin : begin + most], values[at : at + most]
        if known.is_watched and all(map(is_, ours, others)):
            return most
        for size, (one, other) in enumerate(zip(ours, others, strict=True)):
            if one is other and known.is_watched:
                continue
            if self._number(other, way) != known.numbers[begin + size]:
                return size
            if not way.shown:
                known.objects[begin + size] = other
                known.is_watched = known.is_watched and id(other) in self._objects
        if begin == 0 and most == len(known.objects) and not way.shown:
            known.is_watched = not way.marked and self._are_watched(known.objects)
        return most

    def _are_watched(self, values: Sequence[Any]) -> bool:
        return all(id(one) in self._objects for one in values)

    def _grow(self, pieces: list[_Range | int], values: Sequence[Any], way: _Way) -> bool:
        """Lengthen a known list by the items behind it, or make a list of many pieces. Return whether it was done."""
        ends = [at for at, piece in enumerate(pieces) if isinstance(piece, _Range) and piece.reaches_end]
        last = max(ends, key=lambda at: _size(pieces[at]), default=-1)
        behind = pieces[last + 1 :]
        numbers = [number for piece in behind for number in _numbers(piece)]
        if len(numbers) < LONG_LIST:
            return False
        before = pieces[last] if last >= 0 else None
        known = before.known if isinstance(before, _Range) else self._new_list()
        added, items = values[-len(numbers) :], _items(behind)
        if known.parts:
            items = [[known.parts[-1][0], 0, known.parts[-1][1]], *items]
        known.is_watched = known.is_watched and not way.marked and self._are_watched(added)
        self._lengthen(known, added, numbers, self.part({REFERENCE: items}))
        return True

    def _new_list(self) -> _KnownList:
        if len(self._lists) >= _MOST_LISTS:
            oldest = self._lists.pop(0)
            self._places = {number: place for number, place in self._places.items() if place[0] is not oldest}
        known = _KnownList()
        self._lists.append(known)
        return known

    def _lengthen(self, known: _KnownList, values: Sequence[Any], numbers: Sequence[int], part: int) -> None:
        length = len(known.numbers)
        known.objects += values
        known.numbers += numbers
        known.parts.append((part, len(known.numbers)))
        for at, number in enumerate(numbers, length):
            place = self._places.get(number)
            if place is None or place[0] is not known:  # the first of equal items, so that references stay the same
                self._places[number] = known, at

    def _look_for_changes(self) -> None:
        """Forget the messages that were changed in place."""
        if self._watch is None or (now := self._watch.changes) == self._changes:
            return
        self._changes = now
        changed = {key for key, (value, watch, _) in self._objects.items() if not watch.is_kept_by(value)}
        for key in changed:
            del self._objects[key]
        for known in self._lists if changed else ():
            known.objects = [None if id(one) in changed else one for one in known.objects]


class ShownParts:
    """The parts for events that are only streamed: new items are written without their secrets.

    Args:
        parts: The parts.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: PartWriter) -> None:
        self._parts = parts

    def keep(
        self, values: Sequence[Any], encode: Encode, *, grows: bool, name: str = "", marked: bool = False
    ) -> ListReference | None:
        """See ``PartWriter.keep``. Lists of a stream do not grow."""
        del grows
        return self._parts.keep(values, encode, grows=False, name=name, marked=marked, shown=True)


def _without_secrets(encode: Encode, value: Any) -> Any:
    data = encode(value)
    return None if data is None else redacted(data)


def _numbers(piece: _Range | int) -> list[int]:
    return [piece] if isinstance(piece, int) else piece.known.numbers[piece.begin : piece.end]


def _size(piece: _Range | int) -> int:
    return 1 if isinstance(piece, int) else piece.end - piece.begin


def _items(pieces: Sequence[_Range | int]) -> list[Item]:
    return [piece if isinstance(piece, int) else piece.known.reference(piece.begin, piece.end) for piece in pieces]


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()
