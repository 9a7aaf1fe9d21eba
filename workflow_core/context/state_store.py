"""The key-value state of a run: typed or free, with dotted paths and edits that commit as a whole."""

import asyncio
import copy
import warnings
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, runtime_checkable

from pydantic import BaseModel

from batonflow.workflow_core.context.forms import form_of
from batonflow.workflow_core.context.serializers import BaseSerializer, is_plain
from batonflow.workflow_core.context.state_data import DictState, UnserializableKeyWarning, dump_state, load_state
from batonflow.workflow_core.engine.state import WorkItem
from batonflow.workflow_core.errors import ContextSerdeError, StateOutsideContextWarning
from batonflow.workflow_core.events import DictLikeModel

if TYPE_CHECKING:
    from batonflow.workflow_core.journal.recorder import Recorder

__all__ = [
    "DELETED",
    "IMMUTABLE",
    "DictState",
    "InMemoryStateStore",
    "StateCell",
    "StateStore",
    "UnserializableKeyWarning",
    "key_in",
    "named_values",
    "new_state",
    "write_into",
]

StateT = TypeVar("StateT", bound=BaseModel)
_MISSING: Any = object()

DELETED: Any = object()
"""Stands for the value of a key that is no more."""

MAX_DEPTH = 1000

IMMUTABLE = frozenset({str, int, float, bool, type(None), bytes})
"""Values of which nobody who is given one can change anything."""


@runtime_checkable
class StateStore(Protocol):
    """What a state store offers to steps and handlers."""

    state_type: type[BaseModel]

    async def get(self, path: str, default: Any = ...) -> Any:
        """The value at a dotted path."""
        ...

    async def set(self, path: str, value: Any) -> None:
        """Put a value at a dotted path."""
        ...

    async def get_state(self) -> Any:
        """A shallow copy of the whole state."""
        ...

    async def set_state(self, state: Any) -> None:
        """Replace the state."""
        ...

    async def clear(self) -> None:
        """Reset every value to its default."""
        ...


_NO_DEFAULT = "State must have defaults for all fields"


def lacks_default(error: BaseException | None) -> bool:
    """Whether an error is that of :func:`new_state`."""
    return isinstance(error, ValueError) and str(error).startswith(_NO_DEFAULT)


def new_state(state_type: type[StateT]) -> StateT:
    """A state of this type from its defaults.

    Raises:
        ValueError: A field has none.
    """
    try:
        return state_type()
    except ValueError as error:
        raise ValueError(f"{_NO_DEFAULT}, {state_type.__name__} has not: {error}") from error


class StateCell:
    """The one place where a run's state lives; every store object of the run looks at the same cell."""

    __slots__ = ("editor", "foreign", "lock", "recorder", "state", "state_type")

    state: BaseModel

    def __init__(self, state_type: type[BaseModel], state: BaseModel | None = None) -> None:
        self.state_type = state_type
        if state is not None:
            self.state = state
        # The lock of edit_state and who holds it; made at the first edit.
        self.lock: asyncio.Lock | None = None
        self.editor: asyncio.Task[Any] | None = None
        self.foreign: str | None = None
        # Writes down what is changed, when the run is recorded.
        self.recorder: Recorder | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Build the state at the first look, as many runs never use it."""
            if name != "state":
                raise AttributeError(name)
            self.state = new_state(self.state_type)
            return self.state


class InMemoryStateStore(Generic[StateT]):
    """State kept in memory; ``ctx.store`` is one.

    Args:
        initial_state: The model to begin with.

    Example:
        >>> await ctx.store.set("user.name", "Ann")
        >>> await ctx.store.get("user.name")
        'Ann'
    """

    __slots__ = ("_cell", "_item")

    def __init__(self, initial_state: StateT) -> None:
        self._cell = StateCell(type(initial_state), initial_state)
        self._item: WorkItem | None = None

    @classmethod
    def on(cls, cell: StateCell, item: WorkItem | None) -> "InMemoryStateStore[Any]":
        """The store of a cell, as a running attempt (or, with None, the handler) uses it."""
        if cell.foreign is not None:
            raise _elsewhere(cell.foreign)
        store = cls.__new__(cls)
        store._cell = cell
        store._item = item
        return store

    @property
    def state_type(self) -> type[StateT]:
        """The class of the state."""
        return cast("type[StateT]", self._cell.state_type)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, path: str, default: Any = _MISSING) -> Any:
        """The value at a dotted path: dict keys, list indexes, fields and attributes.

        Raises:
            TypeError: The path is no text.
            ValueError: Nothing is there and no default was given, or the path is too deep.
        """
        item = self._item
        recorded = item is not None and item.segment is not None
        found: Any = self._cell.state
        try:
            is_name = "." not in path
        except TypeError:
            raise _no_path(path) from None
        if recorded:
            self._note_read(path.partition(".")[0], hands_out=is_name)
        if is_name and type(found) is DictState:  # by far the most common case
            values = found.__pydantic_extra__ or {}
            if path in values:
                return values[path]
            if default is not _MISSING:
                return default
        for segment in _segments(path):
            found = _read(found, segment)
            if found is _MISSING:
                if default is _MISSING:
                    raise ValueError(f"Path {path!r} is not in the state: nothing at {segment!r}")
                return default
        if recorded and not is_name and type(found) not in IMMUTABLE:
            self._note_read(path.partition(".")[0])
        return found

    async def get_state(self) -> StateT:
        """A shallow copy of the whole state; a step that puts names into the copy alone gets a warning when it ends."""
        if self._cell.recorder is not None:
            self._note_read(None)
            for name in _names(self._cell.state):  # what is in the copy is that of the state
                self._note_read(name)
        given = self._cell.state.model_copy()
        if self._item is not None and type(given) is DictState:
            look = partial(_look_for_lost, self._cell, given, dict(given.to_dict()), self._item.spec.name)
            self._item.at_end = [*(self._item.at_end or ()), look]
        return cast("StateT", given)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def set(self, path: str, value: Any) -> None:
        """Put a value at a dotted path; missing dicts on the way are made.

        Only the containers on the path are made anew, so that who holds an older state does not see the change. Objects
        that cannot be copied are changed themselves.

        Raises:
            TypeError: The path is no text.
            ValueError: The path is empty or too deep, or leads through something that cannot hold it.
            RuntimeError: Called inside an ``edit_state`` block of the same task.
        """
        if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _no_path(path)
        if not path:
            raise ValueError("Path cannot be empty: name the key to write")
        cell = self._cell
        if cell.lock is not None:
            await self._wait_for_editor()
        if not self._counts():
            return
        state = cell.state
        if type(state) is DictState and "." not in path:
            values = state.__pydantic_extra__
            if values is None:
                values = state.to_dict()
            values[path] = value
        else:
            write_into(state, path, value)
        if cell.recorder is not None:
            head = path.partition(".")[0]
            if head != path and head in type(state).model_fields and not is_plain(value):
                # Only the type of the whole tells how to read what is in it.
                path, value = head, _read(state, head)
            self._note([(path, value)])

    async def set_state(self, state: StateT) -> None:
        """Replace the state, or with an instance of a parent class, the fields that it has.

        Raises:
            ValueError: The class of ``state`` has nothing to do with the state's.
        """
        if self._cell.lock is not None:
            await self._wait_for_editor()
        if self._counts():
            before = self._cell.state
            self._put(state)
            self._note_write("", state)
            self._note_deleted(before, self._cell.state)

    def _put(self, state: BaseModel) -> None:
        cell = self._cell
        if isinstance(state, type(cell.state)):
            cell.state = state
        elif issubclass(type(cell.state), type(state)):
            merged = cell.state.model_copy()
            for name in _names(state):
                _write(merged, name, _read(state, name))
            cell.state = merged
        else:
            raise ValueError(
                f"State must be of type {type(cell.state).__name__} or a parent of it, got {type(state).__name__}"
            )

    async def clear(self) -> None:
        """Reset every value to its default."""
        if self._cell.lock is not None:
            await self._wait_for_editor()
        if self._counts():
            before, self._cell.state = self._cell.state, new_state(type(self._cell.state))
            self._note_write("", self._cell.state)
            self._note_deleted(before, self._cell.state)

    @asynccontextmanager
    async def edit_state(self) -> AsyncGenerator[StateT]:
        """Edit a copy of the state alone; it is committed when the block ends without an exception.

        Reads never wait and see the committed state, also inside the block. Objects with ``shared_in_drafts = True``,
        which change in place through methods of their own as memories do, are not copied.

        Raises:
            RuntimeError: Called inside another ``edit_state`` block of the same task.
        """
        cell = self._cell
        if cell.lock is None:
            cell.lock = asyncio.Lock()
        await self._wait_for_editor()
        async with cell.lock:
            cell.editor = asyncio.current_task()
            if self._item is not None and self._item.segment is not None:
                self._note_read(None)
                for name in _names(cell.state):
                    if _shared_inside(_read(cell.state, name)):
                        self._note_read(name)
            try:
                draft = _draft(cell.state)
                yield cast("StateT", draft)
                if self._counts():
                    self._note_edit(cell.state, draft)
                    cell.state = draft
            finally:
                cell.editor = None

    async def _wait_for_editor(self) -> None:
        cell = self._cell
        if cell.editor is not None and cell.editor is asyncio.current_task():
            raise RuntimeError(
                "The store cannot be written inside an edit_state block: change the draft it gives instead"
            )
        if cell.lock is not None and cell.lock.locked():
            async with cell.lock:
                pass

    # --- what the run must know ---------------------------------------------------------------------------------------

    def _counts(self) -> bool:
        """Number the write; tells whether it is to be done, as a restored attempt passes over those already done."""
        item = self._item
        if item is None:
            return True
        progress = item.progress or item.done()
        numbers = progress if progress.once_calls is None else progress.here()
        numbers.writes += 1
        return numbers.writes > numbers.skip_writes

    def _note_read(self, key: str | None, *, hands_out: bool = True) -> None:
        item = self._item
        if item is not None and item.run is not None and item.run.recorder is not None:
            value = None if key is None or not hands_out else _read(self._cell.state, key)
            item.run.recorder.read(item, key, None if value is _MISSING else value)

    def _note_write(self, path: str, value: Any) -> None:
        changes = [(path, value)] if path else [(name, _read(value, name)) for name in _names(value)]
        self._note(changes)

    def _note(self, changes: list[tuple[str, Any]]) -> None:
        """Tell the journal, if one listens, what was changed."""
        item = self._item
        if item is None:
            if self._cell.recorder is not None:
                self._cell.recorder.edited(changes)
        elif item.segment is not None and item.run is not None and item.run.recorder is not None:
            for path, value in changes:
                item.run.recorder.wrote(item, path, value)

    def _note_deleted(self, before: BaseModel, after: BaseModel) -> None:
        kept = set(_names(after))
        self._note([(name, DELETED) for name in _names(before) if name not in kept])

    def _note_edit(self, before: BaseModel, after: BaseModel) -> None:
        if self._cell.recorder is None:
            return
        self._note(
            [
                (name, _read(after, name))
                for name in dict.fromkeys([*_names(after), *_names(before)])
                if not _equal(_read(before, name), _read(after, name)) and _read(after, name) is not _MISSING
            ]
        )
        self._note_deleted(before, after)

    # --- as data ------------------------------------------------------------------------------------------------------

    def to_dict(self, serializer: BaseSerializer) -> dict[str, Any]:
        """The state as JSON-able data."""
        return dump_state(self._cell.state, serializer)

    @classmethod
    def from_dict(cls, payload: dict[str, Any], serializer: BaseSerializer) -> "InMemoryStateStore[Any]":
        """A store from the data that ``to_dict`` gave.

        Raises:
            ContextSerdeError: They are not that, or only say in which durable store the state is.
        """
        kind = payload.get("store_type", "in_memory")
        if kind != "in_memory":
            raise _elsewhere(str(kind))
        return cast("type[InMemoryStateStore[Any]]", cls)(load_state(payload, serializer, DictState))


def _look_for_lost(cell: StateCell, given: DictState, before: dict[str, Any], step: str) -> None:
    """Warn of values that a step has put into a copy of the state, and that the state has not."""
    after, state = given.to_dict(), cell.state
    changed = [name for name in {**before, **after} if after.get(name, _MISSING) is not before.get(name, _MISSING)]
    lost = [name for name in changed if not _equal(after.get(name, _MISSING), _read(state, name))]
    if lost:
        warnings.warn(
            f"Step {step} changed {', '.join(map(repr, lost))} in the copy that ctx.store.get_state() gave, and the "
            "state does not have that: use ctx.store.set, set_state or edit_state",
            StateOutsideContextWarning,
            stacklevel=2,
        )


def write_into(state: BaseModel, path: str, value: Any) -> None:
    """Put a value at a dotted path of a state, or with ``DELETED`` take a key out.

    Raises:
        ValueError: The path is too deep, or leads through something that cannot hold the value.
    """
    head, *inner = _segments(path)
    if value is not DELETED:
        _write(state, head, _rebuilt(_read(state, head), inner, value, path) if inner else value)
    elif isinstance(state, DictLikeModel):
        state.to_dict().pop(head, None)


def named_values(cell: StateCell) -> list[tuple[str, Any]]:
    """What a state holds, by top-level name; only what is not as it begins."""
    fresh = new_state(cell.state_type)
    found = [(name, _read(cell.state, name)) for name in _names(cell.state)]
    return [(name, value) for name, value in found if not _equal(_read(fresh, name), value)]


def _elsewhere(kind: str) -> ContextSerdeError:
    return ContextSerdeError(
        f"The snapshot refers to a durable state store ({kind}); its state can only be read through that store"
    )


def _no_path(path: object) -> TypeError:
    return TypeError(f"A path in the state is a text such as 'user.name', got {path!r}")


def key_in(container: Mapping[Any, Any], key: str) -> Any:
    """Under which key a dict holds what a part of a path means: under a number, when it has that and not the text."""
    if key not in container and key.removeprefix("-").isdecimal() and str(int(key)) == key and int(key) in container:
        return int(key)
    return key


def _segments(path: str) -> list[str]:
    if "." not in path:
        return [path]
    segments = path.split(".")
    if len(segments) > MAX_DEPTH:
        raise ValueError(f"Path has {len(segments)} segments, the most is {MAX_DEPTH}")
    return segments


def _read(container: Any, key: str) -> Any:
    """One step down a path, or the mark for nothing there."""
    if isinstance(container, dict):
        found = cast("dict[Any, Any]", container)
        return found.get(key_in(found, key), _MISSING)
    if isinstance(container, BaseModel):
        if key in type(container).model_fields:
            return getattr(container, key)
        if isinstance(container, DictLikeModel):
            return container.to_dict().get(key, _MISSING)
        return getattr(container, key, _MISSING)
    if isinstance(container, list | tuple):
        try:
            return cast("list[Any]", container)[int(key)]
        except (ValueError, IndexError):
            return _MISSING
    return getattr(container, key, _MISSING)


def _write(container: Any, key: str, value: Any) -> None:
    if isinstance(container, dict):
        found = cast("dict[Any, Any]", container)
        found[key_in(found, key)] = value
    elif isinstance(container, list):
        cast("list[Any]", container)[int(key)] = value
    elif isinstance(container, DictLikeModel) and key not in type(container).model_fields:
        container.to_dict()[key] = value
    else:
        setattr(container, key, value)


def _rebuilt(container: Any, segments: list[str], value: Any, path: str) -> Any:
    """A copy of a container in which the value stands at the end of the segments; what is not on the way is shared."""
    top = current = _fresh(container)
    segment = segments[0]
    try:
        for following in segments[1:]:
            inner = _fresh(_read(current, segment))
            _write(current, segment, inner)
            current, segment = inner, following
        _write(current, segment, value)
    except (ValueError, IndexError, AttributeError, TypeError) as error:
        raise ValueError(
            f"Path {path!r} cannot be written: {type(current).__name__} does not hold {segment!r}"
        ) from error
    return top


def _fresh(container: Any) -> Any:
    if container is _MISSING or container is None:
        return {}
    try:
        return copy.copy(container)
    except Exception:  # noqa: BLE001 - user objects may refuse to be copied in any way
        return container  # a connection, for instance, of which there is one


def _names(state: BaseModel) -> Iterator[str]:
    """Every top-level name of a state: declared, also of private attributes that are not as they begin, and dynamic."""
    cls = type(state)
    yield from cls.model_fields
    if cls.__private_attributes__ and (form := form_of(cls)) is not None:
        yield from form.private_of(state)
    if isinstance(state, DictLikeModel):
        yield from list(state.to_dict())


def _draft(state: BaseModel) -> BaseModel:
    """A deep copy; what is excluded from dumps, cannot be copied or says that it is shared stays the same object."""
    draft = state.model_copy()
    memo: dict[int, Any] = {}
    for value in (_read(state, name) for name in _names(state)):
        memo |= {id(one): one for one in _shared_inside(value)}
    fields = type(state).model_fields
    for name in _names(state):
        if name in type(state).__private_attributes__ or (name in fields and fields[name].exclude):
            continue
        value = _read(state, name)
        try:
            copied = copy.deepcopy(value, memo)
        except Exception:  # noqa: BLE001, S112 - user objects may refuse to be copied in any way
            continue
        if name in fields:
            vars(draft)[name] = copied
        else:
            _write(draft, name, copied)
    return draft


def _shared_inside(value: Any) -> list[Any]:
    """A value, or what a dict holds, as far as drafts do not copy it."""
    found: list[Any] = [value, *cast("dict[Any, Any]", value).values()] if isinstance(value, dict) else [value]
    return [one for one in found if getattr(one, "shared_in_drafts", False) is True]


def _equal(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:  # noqa: BLE001 - == of user values may raise anything
        return False
