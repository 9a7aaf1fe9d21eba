"""References in records, and their resolution.

``{"$": 17}`` stands for part 17. ``{"$": [17, [9, 0, 40]]}`` stands for a list: part 17, and then the items 0 to 39 of
the list that part 9 stands for. ``{"$": {"of": name, "items": [...]}}`` is such a list of models, each of which is
marked with the name of its class. ``{"$": {"data": x}}`` stands for the dict ``x``, which itself has ``$`` as its only
name; with ``"redacted": 17`` beside it, it is part 17 without secrets. Parts may contain references to earlier parts.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from batonflow.durable.store_protocol import Loaded, StoredCommit
from batonflow.values.names import IS_PYDANTIC, REFERENCE
from batonflow.values.serializers import as_json, read_json
from batonflow.workflow_core.errors import StoreError

__all__ = [
    "DATA", "ITEMS", "OF", "REDACTED", "Item", "PartReader", "change_values", "escaped",
    "has_references", "occurrences", "whole_commits", "whole_data", "whole_result", "with_count", "without_references",
]  # fmt: skip

DATA = "data"
ITEMS = "items"
OF = "of"
REDACTED = "redacted"

Item = int | list[int]
"""An item of a list. It is the number of a part, or a list part with the begin and the end of a range."""

_KEPT_TYPES = frozenset({str, int, float, bool, type(None)})


class PartReader:
    """The parts of a run, as JSON data.

    Args:
        bodies: The parts as they are stored, from number 0 on.
    """

    def __init__(self, bodies: Sequence[bytes]) -> None:
        self._bodies = bodies
        self._values: dict[int, Any] = {}
        self._lists: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._bodies)

    def stored(self, number: int) -> bytes:
        """Return a part as it is stored.

        Raises:
            StoreError: There is no such part.
        """
        if not 0 <= number < len(self._bodies):
            raise StoreError(f"A record refers to part {number}, and the run has {len(self._bodies)} parts")
        return self._bodies[number]

    def items_of(self, number: int) -> list[Item] | None:
        """Return the items of a list part; None for another part."""
        body = self.stored(number)
        return read_json(body)[REFERENCE] if body.startswith(_LIST) else None

    def redacts(self, number: int) -> int | None:
        """Return the number of the part that a part shows without secrets; None for another part."""
        body = self.stored(number)
        return read_json(body)[REFERENCE][REDACTED] if body.startswith(_REDACTED) else None

    def value(self, number: int) -> Any:
        """Return a part as data without references; it is shared by those that ask for it."""
        if number not in self._values:
            self._values[number] = self.new_value(number)
        return self._values[number]

    def new_value(self, number: int) -> Any:
        """Return a part as new data without references."""
        body = self.stored(number)
        if _REFERENCE not in body:
            return read_json(body)
        if _NESTED.search(body):
            return self.expanded(read_json(body))
        # Text in the place of text: the marks cannot stand inside a text of JSON, whose quotes are escaped.
        return read_json(_SINGLE.sub(lambda found: self.stored(int(found[1])), body))

    def numbers(self, items: Sequence[Item]) -> list[int]:
        """Return the numbers of the parts that are the items of a list."""
        found: list[int] = []
        for item in items:
            if isinstance(item, int):
                found.append(item)
            else:
                number, begin, end = item
                found += self.list_part(number)[begin:end]
        return found

    def list_part(self, number: int) -> list[int]:
        """Return the numbers of the parts in the list that a part stands for."""
        # Not recursive, because most lists continue an earlier one, in a long chain.
        chain: list[tuple[int, list[Item]]] = []
        wanted = number
        while number not in self._lists:
            items = self.items_of(number) or []
            chain.append((number, items))
            if not items or isinstance(items[0], int):
                break
            number = items[0][0]
        for number, items in reversed(chain):
            self._lists[number] = self.numbers(items)
        for number, _ in chain[1:]:
            del self._lists[number]
        return self._lists[wanted]

    def expanded(self, data: Any) -> Any:
        """Return data with the parts in the place of references."""
        if type(data) is dict:
            found = cast("dict[str, Any]", data)
            if len(found) == 1 and REFERENCE in found:
                return self._referred(found[REFERENCE])
            return {name: one if type(one) in _KEPT_TYPES else self.expanded(one) for name, one in found.items()}
        if type(data) is list:
            return [one if type(one) in _KEPT_TYPES else self.expanded(one) for one in cast("list[Any]", data)]
        return data

    def _referred(self, reference: Any) -> Any:
        if isinstance(reference, int):
            return self.value(reference)
        if isinstance(reference, list):
            return [self.value(number) for number in self.numbers(cast("list[Item]", reference))]
        if ITEMS in reference:
            name, values = reference[OF], self._referred(reference[ITEMS])
            return [{IS_PYDANTIC: True, "value": value, "qualified_name": name} for value in values]
        return {name: self.expanded(one) for name, one in reference[DATA].items()}


def occurrences(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield numbers with how often each came before."""
    seen: Counter[int] = Counter()
    for number in numbers:
        yield number, seen[number]
        seen[number] += 1


_COUNT = b'{"p":'
_REFERENCE = b'{"$":'
_SINGLE = re.compile(rb'\{"\$":(\d+)\}')
_NESTED = re.compile(rb'\{"\$":[^\d]')
_LIST = b'{"$":['
_REDACTED = b'{"$":{"redacted":'


def with_count(body: bytes, count: int) -> bytes:
    """Mark the body of a commit with references to the first ``count`` parts and with escaped data."""
    return b"%b%d,%b" % (_COUNT, count, body[1:])


def has_references(body: bytes) -> bool:
    """Tell whether the body of a commit may refer to parts."""
    return body.startswith(_COUNT)


def without_references(commits: list[StoredCommit], parts: Callable[[], Sequence[bytes]]) -> list[StoredCommit]:
    """Return commits with the parts in the place of references.

    Args:
        commits: The commits of a run.
        parts: Returns the parts of the run; called only if a commit may have references.
    """
    reader: PartReader | None = None
    found: list[StoredCommit] = []
    for commit in commits:
        if not has_references(commit.body):
            found.append(commit)
            continue
        if _REFERENCE not in commit.body:
            found.append(commit._replace(body=b"{" + commit.body.partition(b",")[2]))
            continue
        reader = reader or PartReader(parts())
        data = _without_count(commit.body)
        for record in data["r"]:
            change_values(record, reader.expanded)
        found.append(commit._replace(body=as_json(data)))
    return found


def whole_result(result: bytes, parts: Callable[[], Sequence[bytes]]) -> bytes:
    """Return the result of a run, which is its last record, without references."""
    if not has_references(result):
        return result
    record = _without_count(result)
    change_values(record, PartReader(parts()).expanded)
    return as_json(record)


def whole_data(body: bytes, parts: Callable[[], Sequence[bytes]]) -> bytes:
    """Return data of a turn without references, which may stand anywhere in them."""
    return as_json(PartReader(parts()).expanded(_without_count(body))) if has_references(body) else body


def _without_count(body: bytes) -> dict[str, Any]:
    data: dict[str, Any] = read_json(body)
    del data["p"]
    return data


def whole_commits(loaded: Loaded) -> list[StoredCommit]:
    """Return the commits of a loaded run without references."""
    return without_references(loaded.commits, lambda: loaded.parts)


def escaped(data: Any) -> Any:
    """Return data in which nothing is taken for a reference."""
    if type(data) is dict:
        found = {name: escaped(one) for name, one in cast("dict[str, Any]", data).items()}
        return {REFERENCE: {DATA: found}} if len(found) == 1 and REFERENCE in found else found
    if type(data) is list:
        return [escaped(one) for one in cast("list[Any]", data)]
    return data


def change_values(record: dict[str, Any], change: Callable[[Any], Any]) -> None:
    """Change the events and values of a record in place. Names, numbers and errors in it are not values."""
    if "event" in record:
        record["event"] = change(record["event"])
    for name, place in _PLACES.items():
        for entry in record.get(name, ()):
            entry[place] = change(entry[place])
    for call in record.get("calls", ()):
        call.update({name: change(call[name]) for name in _OF_CALLS if name in call})
    kind, *details = record.get("outcome", ("",))
    if kind == "returned" and details:
        details[0][:] = map(change, details[0])
    elif kind == "once":
        details[0][1] = change(details[0][1])
    elif kind == "waiting":
        waiter = details[0]
        waiter.update({name: change(waiter[name]) for name in ("requirements", "question")})
    elif kind == "failed" and len(details) > 1 and "event" in details[1]:
        details[1]["event"] = change(details[1]["event"])


# The place of the value in the entries of a record.
_OF_CALLS = ("messages", "answer", "tool_specs")
_PLACES = {"state": 1, "writes": 2, "sends": 1, "streamed": 1, "collects": 2}
