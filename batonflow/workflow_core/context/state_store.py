"""The key-value state of a run, typed or free, with dotted paths. Edits commit as a whole."""

import asyncio
import copy
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, runtime_checkable

from pydantic import BaseModel

from batonflow import values as forms_of_values
from batonflow.user_warnings import warn_user
from batonflow.values.serializers import BaseSerializer, is_plain
from batonflow.values.state_data import (
    DELETED,
    MISSING,
    UnserializableKeyWarning,
    check_path,
    dump_state,
    dynamic_data,
    is_dynamic,
    no_path,
    read_part,
    segments_of,
    write_into,
    write_part,
)
from batonflow.workflow_core import context as parts
from batonflow.workflow_core.engine.ports import Recorder
from batonflow.workflow_core.engine.state import WorkItem
from batonflow.workflow_core.errors import ContextSerdeError, ContextStateError, StateOutsideContextWarning
from batonflow.workflow_core.events import DictState
from batonflow.workflow_core.routing import StepSpec

__all__ = [
    "IMMUTABLE",
    "DictState",
    "InMemoryStateStore",
    "StateCell",
    "StateStore",
    "UnserializableKeyWarning",
    "draft_of",
    "load_state",
    "named_values",
    "new_state",
]

if TYPE_CHECKING:
    from batonflow.state_lock import StateLock

StateT = TypeVar("StateT", bound=BaseModel)
T = TypeVar("T")

IMMUTABLE = frozenset({str, int, float, bool, type(None), bytes})
"""Types of values that cannot be changed in place."""


@runtime_checkable
class StateStore(Protocol):
    """The interface of the state store for steps and handlers."""

    state_type: type[BaseModel]

    async def get(self, path: str, default: Any = ...) -> Any:
        """Return the value at a dotted path."""
        ...

    async def set(self, path: str, value: Any) -> None:
        """Put a value at a dotted path."""
        ...

    async def get_state(self) -> Any:
        """Return a shallow copy of the whole state."""
        ...

    async def set_state(self, state: Any) -> None:
        """Replace the state."""
        ...

    async def clear(self) -> None:
        """Reset every value to its default."""
        ...


_NO_DEFAULT = "State must have defaults for all fields"


def lacks_default(error: BaseException | None) -> bool:
    """Tell whether an error comes from :func:`new_state`."""
    return isinstance(error, ValueError) and str(error).startswith(_NO_DEFAULT)


def new_state(state_type: type[StateT]) -> StateT:
    """Return a state of this type with its defaults.

    Raises:
        ValueError: A field has no default.
    """
    try:
        return state_type()
    except ValueError as error:
        raise ValueError(f"{_NO_DEFAULT}, {state_type.__name__} has not: {error}") from error


COPIES_LOOKED_AT = 16
"""Number of a step's last copies that are compared with the state at its end."""

_making_lock = Lock()


class StateCell:
    """The holder of a run's state; all store objects of the run share it."""

    __slots__ = ("edit_lock", "foreign", "recorder", "state", "state_type")

    state: BaseModel

    def __init__(self, state_type: type[BaseModel], state: BaseModel | None = None) -> None:
        self.state_type = state_type
        if state is not None:
            self.state = state
        # Created at the first edit.
        self.edit_lock: StateLock | None = None
        self.foreign: str | None = None
        # The recorder of changes, if the run is recorded.
        self.recorder: Recorder | None = None

    @property
    def lock(self) -> "StateLock":
        """The lock of ``edit_state``."""
        lock = self.edit_lock
        if lock is None:
            with _making_lock:
                lock = self.edit_lock = self.edit_lock or parts.state_lock.StateLock()
        return lock

    @property
    def is_edited(self) -> bool:
        """Tell whether a block edits the state now."""
        return self.edit_lock is not None and self.edit_lock.editor is not None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Create the state at the first access, because many runs never use it."""
            if name != "state":
                raise AttributeError(name)
            state = new_state(self.state_type)
            with _making_lock:
                try:
                    return object.__getattribute__(self, "state")  # another thread was faster
                except AttributeError:
                    self.state = state
            return state


class InMemoryStateStore(Generic[StateT]):
    """A state store in memory; ``ctx.store`` is one.

    Each asynchronous method has a synchronous form: ``get_sync``, ``set_sync``, ``get_state_sync``, ``set_state_sync``,
    ``clear_sync`` and ``edit_state_sync``. Synchronous steps and tools call these, from any thread.

    Args:
        initial_state: The model to begin with.

    Example:
        >>> await ctx.store.set("user.name", "Ann")
        >>> ctx.store.get_sync("user.name")
        'Ann'
    """

    __slots__ = ("_cell", "_find_run", "_is_detached", "_item", "_thread")

    def __init__(self, initial_state: StateT) -> None:
        self._cell = StateCell(type(initial_state), initial_state)
        self._item: WorkItem | None = None
        self._find_run: Callable[[], Any] | None = None
        self._is_detached = False
        # The thread of the run's event loop, where a running attempt needs no hand-over; otherwise 0.
        self._thread = 0

    @classmethod
    def on(
        cls,
        cell: StateCell,
        item: WorkItem | None,
        find_run: Callable[[], Any] | None = None,
        *,
        is_detached: bool = False,
    ) -> "InMemoryStateStore[Any]":
        """Return the store of a cell, for a running attempt or with ``find_run`` for the handler."""
        if cell.foreign is not None:
            raise _kept_elsewhere(cell.foreign)
        store = cls.__new__(cls)
        store._cell = cell
        store._item = item
        store._find_run = find_run
        store._is_detached = is_detached
        run = None if item is None or is_detached else item.run
        store._thread = 0 if run is None else run.thread_id
        return store

    def detach(self) -> None:
        """Refuse further writes, because the attempt is over although one of its threads may go on."""
        self._is_detached, self._thread = True, 0

    @property
    def state_type(self) -> type[StateT]:
        """The class of the state."""
        return cast("type[StateT]", self._cell.state_type)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, path: str, default: Any = MISSING) -> Any:
        """Return the value at a dotted path of dict keys, list indexes, fields and attributes.

        Raises:
            TypeError: The path is not a string.
            ValueError: There is no value and no default was given, or the path is too deep.
        """
        state, item = self._cell.state, self._item
        if type(state) is DictState and item is not None and item.segment is None:
            values = state.__pydantic_extra__  # fast path, for any thread
            if type(path) is str and "." not in path and values:
                if path in values:
                    return values[path]
                if default is not MISSING:
                    return default
        if get_ident() == self._thread:
            return self._get(path, default)
        return await self._carried(partial(self._get, path, default))

    def get_sync(self, path: str, default: Any = MISSING) -> Any:
        """Return the value at a dotted path; the form of ``get`` for any thread."""
        run = self._elsewhere()
        return self._get(path, default) if run is None else run.on_loop(lambda: self._get(path, default))

    def _get(self, path: str, default: Any) -> Any:
        item = self._item
        recorded = item is not None and item.segment is not None
        found: Any = self._cell.state
        try:
            is_name = "." not in path
        except TypeError:
            raise no_path(path) from None
        if recorded:
            self._note_read(path.partition(".")[0], hands_out=is_name)
        if is_name and type(found) is DictState:  # fast path
            values = found.__pydantic_extra__ or {}
            if path in values:
                return values[path]
            if default is not MISSING:
                return default
        for segment in segments_of(path):
            found = read_part(found, segment)
            if found is MISSING:
                if default is MISSING:
                    raise ValueError(f"Path {path!r} is not in the state: {segment!r} is missing")
                return default
        if recorded and not is_name and type(found) not in IMMUTABLE:
            self._note_read(path.partition(".")[0])
        return found

    async def get_state(self) -> StateT:
        """Return a shallow copy of the state. A step gets a warning if it adds names only to the copy."""
        return await self._carried(self._get_state)

    def get_state_sync(self) -> StateT:
        """Return a shallow copy of the whole state; the form of ``get_state`` for any thread."""
        return self._on_loop(self._get_state)

    def _get_state(self) -> StateT:
        if self._cell.recorder is not None:
            self._note_read(None)
            for name in _names(self._cell.state):  # the values in the copy are those of the state
                self._note_read(name)
        given = self._cell.state.model_copy()
        if self._item is not None and type(given) is DictState:
            written: set[str] = set()
            look = partial(_look_for_lost, self._cell, given, dict(given.to_dict()), self._item.spec, written)
            looks = self._item.at_end = self._item.at_end or []
            looks.append(look)
            del looks[:-COPIES_LOOKED_AT]
        return cast("StateT", given)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def set(self, path: str, value: Any) -> None:
        """Put a value at a dotted path; create missing dicts on the way.

        The containers on the path are copied, so that holders of an older state do not see the change. Objects
        that cannot be copied are changed in place.

        Raises:
            TypeError: The path is not a string.
            ValueError: The path is empty or too deep, or leads through a value without parts.
            RuntimeError: Called inside an ``edit_state`` block of the same task.
        """
        if type(path) is not str or not path:
            check_path(path)
        cell, state, item = self._cell, self._cell.state, self._item
        if get_ident() != self._thread or (cell.edit_lock is not None and cell.edit_lock.editor is not None):
            await self._write(partial(self._set, path, value))
        elif (
            type(state) is DictState
            and "." not in path
            and cell.recorder is None
            and item is not None
            and item.at_end is None
            and (progress := item.progress or item.make_progress()).once_calls is None
        ):
            progress.writes += 1  # fast path
            if progress.writes > progress.skip_writes:
                values = state.__pydantic_extra__
                (state.to_dict() if values is None else values)[path] = value
        else:
            self._set(path, value)

    def set_sync(self, path: str, value: Any) -> None:
        """Put a value at a dotted path; the form of ``set`` for any thread."""
        check_path(path)
        self._write_sync(partial(self._set, path, value))

    def _begin_write(self, names: Iterable[str]) -> None:
        """Note the names that a step writes, for the check of copies of the state.

        Raises:
            ContextStateError: The attempt is over.
        """
        if self._is_detached:
            raise ContextStateError(
                "The state was not written: the attempt of this step is over, for example as its time was up"
            )
        if self._item is not None and self._item.at_end:
            known = list(names)
            for look in self._item.at_end:
                look.args[4].update(known)

    def _set(self, path: str, value: Any) -> None:
        self._begin_write([path.partition(".")[0]])
        if not self._counts():
            return
        cell = self._cell
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
                # The parts can only be read with the type of the whole value.
                path, value = head, read_part(state, head)
            self._note([(path, value)])

    async def set_state(self, state: StateT) -> None:
        """Replace the state; an instance of a parent class replaces only its own fields.

        Raises:
            ValueError: The class of ``state`` is neither the state's class nor a parent of it.
        """
        await self._write(partial(self._set_state, state))

    def set_state_sync(self, state: StateT) -> None:
        """Replace the state; the form of ``set_state`` for any thread."""
        self._write_sync(partial(self._set_state, state))

    def _set_state(self, state: BaseModel) -> None:
        self._begin_write(_names(state))
        if self._counts():
            before = self._cell.state
            self._put(state)
            self._note_all([(name, read_part(state, name)) for name in _names(state)], before)

    def _put(self, state: BaseModel) -> None:
        cell = self._cell
        if isinstance(state, type(cell.state)):
            cell.state = state
        elif issubclass(type(cell.state), type(state)):
            merged = cell.state.model_copy()
            for name in _names(state):
                write_part(merged, name, read_part(state, name))
            cell.state = merged
        else:
            raise ValueError(
                f"State must be of type {type(cell.state).__name__} or a parent of it, got {type(state).__name__}"
            )

    async def clear(self) -> None:
        """Reset every value to its default."""
        await self._write(self._clear)

    def clear_sync(self) -> None:
        """Reset every value to its default; the form of ``clear`` for any thread."""
        self._write_sync(self._clear)

    def _clear(self) -> None:
        self._begin_write(())
        if self._counts():
            before, self._cell.state = self._cell.state, new_state(type(self._cell.state))
            self._note_all([(name, read_part(self._cell.state, name)) for name in _names(self._cell.state)], before)

    @asynccontextmanager
    async def edit_state(self) -> AsyncGenerator[StateT]:
        """Edit a copy of the state exclusively; the copy is committed if the block ends without an exception.

        Reads never wait; they see the committed state, also inside the block. Objects with ``shared_in_drafts = True``
        are not copied: their own methods change them in place, as in memories.

        Raises:
            RuntimeError: Called inside another ``edit_state`` block of the same task.
        """
        lock = self._cell.lock
        _refuse_inside_edit(lock)
        await lock.acquire()
        try:
            lock.hold()
            draft = await self._carried(self._begin_edit)
            yield cast("StateT", draft)
            await self._carried(partial(self._commit, draft))
        finally:
            lock.release()

    @contextmanager
    def edit_state_sync(self) -> Generator[StateT]:
        """Edit a copy of the state alone; the form of ``edit_state`` for any thread.

        Raises:
            RuntimeError: Called inside another such block, or on the event loop of the task that edits the state.

        Example:
            >>> with ctx.store.edit_state_sync() as state:
            ...     state.count += 1
        """
        self._acquire_sync()
        lock = self._cell.lock
        try:
            lock.hold()
            draft = self._on_loop(self._begin_edit)
            yield cast("StateT", draft)
            self._on_loop(partial(self._commit, draft))
        finally:
            lock.release()

    def _begin_edit(self) -> BaseModel:
        state = self._cell.state
        if self._item is not None and self._item.segment is not None:
            self._note_read(None)
            for name in _names(state):
                if _shared_inside(read_part(state, name)):
                    self._note_read(name)
        return draft_of(state)

    def _commit(self, draft: BaseModel) -> None:
        self._begin_write(_names(draft))
        if self._counts():
            before = self._cell.state
            if self._cell.recorder is not None:
                values = [(name, read_part(draft, name)) for name in dict.fromkeys([*_names(draft), *_names(before)])]
                changed = [(name, value) for name, value in values if not _equal(read_part(before, name), value)]
                self._note_all([(name, value) for name, value in changed if value is not MISSING], before, draft)
            self._cell.state = draft

    # --- threads and event loops --------------------------------------------------------------------------------------

    def _elsewhere(self) -> Any:
        """Return the run if its event loop belongs to another thread; otherwise None."""
        item, find = self._item, self._find_run
        run = item.run if item is not None else find() if find is not None else None
        return None if run is None or run.thread_id == get_ident() or not run.loop.is_running() else run

    def _on_loop(self, act: Callable[[], T]) -> T:
        run = self._elsewhere()
        return act() if run is None else run.on_loop(act)

    async def _carried(self, act: Callable[[], T]) -> T:
        """Call a function on the run's event loop, without blocking the loop that is running here."""
        run = self._elsewhere()
        if run is None:
            return act()
        done = run.carry(act)
        while not run.is_carried(done):
            await asyncio.wait({asyncio.wrap_future(done)}, timeout=1)
        return done.result()

    async def _write(self, write: Callable[[], None]) -> None:
        """Write when no block edits the state."""
        lock = self._cell.lock
        while not await self._carried(partial(self._try_write, write)):
            _refuse_inside_edit(lock)
            await lock.acquire()  # the editor has ended; the write holds no lock while it waits for a loop
            lock.release()

    def _write_sync(self, write: Callable[[], None]) -> None:
        while not self._on_loop(partial(self._try_write, write)):
            self._acquire_sync()
            self._cell.lock.release()

    def _try_write(self, write: Callable[[], None]) -> bool:
        """Write unless a block edits the state now; on the thread of the run's loop."""
        if self._cell.is_edited:
            return False
        write()
        return True

    def _acquire_sync(self) -> None:
        """Take the lock; block the thread. It is never the thread of the run's loop, which the editor may need."""
        lock = self._cell.lock
        _refuse_inside_edit(lock)
        run = self._item.run if self._item is not None else self._find_run() if self._find_run is not None else None
        if lock.locked and run is not None and run.thread_id == get_ident() and run.loop.is_running():
            raise RuntimeError(
                "The state is being edited, and this thread runs the event loop that the edit needs: await the "
                "asynchronous method of the store"
            )
        lock.acquire_sync()

    # --- records ------------------------------------------------------------------------------------------------------

    def _counts(self) -> bool:
        """Number a write; tell whether to perform it, as a restored attempt skips earlier writes."""
        item = self._item
        if item is None:
            return True
        progress = item.progress or item.make_progress()
        numbers = progress if progress.once_calls is None else progress.here()
        numbers.writes += 1
        return numbers.writes > numbers.skip_writes

    def _note_read(self, key: str | None, *, hands_out: bool = True) -> None:
        item = self._item
        if item is not None and item.run is not None and item.run.recorder is not None:
            value = None if key is None or not hands_out else read_part(self._cell.state, key)
            item.run.recorder.read(item, key, None if value is MISSING else value)

    def _note(self, changes: list[tuple[str, Any]]) -> None:
        """Record changes, if the run has a recorder."""
        item = self._item
        if item is None:
            if self._cell.recorder is not None:
                self._cell.recorder.edited(changes)
        elif item.segment is not None and item.run is not None and item.run.recorder is not None:
            for path, value in changes:
                item.run.recorder.wrote(item, path, value)

    def _note_all(self, changes: list[tuple[str, Any]], before: BaseModel, after: BaseModel | None = None) -> None:
        """Record changes, and the names that were in the state before and are gone."""
        kept = set(_names(after or self._cell.state))
        self._note([*changes, *((name, DELETED) for name in _names(before) if name not in kept)])

    # --- as data ------------------------------------------------------------------------------------------------------

    def to_dict(self, serializer: BaseSerializer) -> dict[str, Any]:
        """Return the state as JSON data."""
        return dump_state(self._cell.state, serializer)

    @classmethod
    def from_dict(cls, payload: dict[str, Any], serializer: BaseSerializer) -> "InMemoryStateStore[Any]":
        """Create a store from data of ``to_dict``.

        Raises:
            ContextSerdeError: The data is wrong, or only names the durable store of the state.
        """
        kind = payload.get("store_type", "in_memory")
        if kind != "in_memory":
            raise _kept_elsewhere(str(kind))
        return cast("type[InMemoryStateStore[Any]]", cls)(load_state(payload, serializer, DictState))


def _look_for_lost(
    cell: StateCell, given: DictState, before: dict[str, Any], step: StepSpec, written: set[str]
) -> None:
    """Warn of values that a step has added to a copy but not to the state."""
    after, state = given.to_dict(), cell.state
    changed = [name for name in {**before, **after} if after.get(name, MISSING) is not before.get(name, MISSING)]
    lost = [
        name for name in changed if name not in written and not _equal(after.get(name, MISSING), read_part(state, name))
    ]
    if lost:
        warn_user(
            f"Step {step.name} changed {', '.join(map(repr, lost))} in the copy that ctx.store.get_state() gave, and "
            "the state does not have that: use ctx.store.set, set_state or edit_state",
            StateOutsideContextWarning,
            about=step.func,
        )


def named_values(cell: StateCell) -> list[tuple[str, Any]]:
    """Return the values of a state by top-level name, without values that equal their defaults."""
    fresh = new_state(cell.state_type)
    found = [(name, read_part(cell.state, name)) for name in _names(cell.state)]
    return [(name, value) for name, value in found if not _equal(read_part(fresh, name), value)]


def _kept_elsewhere(kind: str) -> ContextSerdeError:
    return ContextSerdeError(
        f"The snapshot refers to a durable state store ({kind}); its state can only be read through that store"
    )


def _refuse_inside_edit(lock: "StateLock") -> None:
    if lock.edits_here():
        raise RuntimeError("The store cannot be written inside an edit_state block: change the draft it gives instead")


def load_state(payload: dict[str, Any], serializer: BaseSerializer, state_type: type[BaseModel]) -> BaseModel:
    """Return the state from its part of a snapshot. The form of the data, not a module name, decides how it is read.

    Raises:
        ContextSerdeError: The data have neither form, or do not fit ``state_type``.
    """
    data = payload.get("state_data")
    try:
        if isinstance(data, str):
            return _load_model(data, serializer, state_type)
        keys = cast("dict[str, Any]", data or {}).get("_data", data or {})
        read = {key: serializer.deserialize(value) for key, value in keys.items()}
        return state_type.model_validate(read)
    except (TypeError, ValueError, AttributeError) as error:
        raise ContextSerdeError(f"The state of the snapshot cannot be read: {error}") from error


def _load_model(data: str, serializer: BaseSerializer, state_type: type[BaseModel]) -> BaseModel:
    found = serializer.deserialize(data)
    if isinstance(found, dict):
        read = cast("dict[str, Any]", found)
        if set(read) == {"_data"}:
            read = {key: serializer.deserialize(value) for key, value in read["_data"].items()}
        return state_type.model_validate(read)
    if isinstance(found, BaseModel):
        return found
    raise ContextSerdeError(f"The state of the snapshot is a {type(found).__name__}, not a model")


def _names(state: BaseModel) -> Iterator[str]:
    """Return all top-level names of a state: fields, changed private attributes, and dynamic names."""
    cls = type(state)
    yield from cls.model_fields
    if cls.__private_attributes__ and (form := forms_of_values.form_of(cls)) is not None:
        yield from form.private_of(state)
    if is_dynamic(state):
        yield from list(dynamic_data(state))


def draft_of(state: BaseModel) -> BaseModel:
    """Copy deeply, except objects that are excluded from dumps, cannot be copied, or are declared as shared."""
    draft = state.model_copy()
    memo: dict[int, Any] = {}
    for value in (read_part(state, name) for name in _names(state)):
        memo |= {id(one): one for one in _shared_inside(value)}
    fields = type(state).model_fields
    for name in _names(state):
        if name in type(state).__private_attributes__ or (name in fields and fields[name].exclude):
            continue
        value = read_part(state, name)
        try:
            copied = copy.deepcopy(value, memo)
        except Exception:  # noqa: BLE001, S112 - user objects may refuse to be copied in any way
            continue
        if name in fields:
            vars(draft)[name] = copied
        else:
            write_part(draft, name, copied)
    return draft


def _shared_inside(value: Any) -> list[Any]:
    """Return the value, or the values of a dict, that drafts do not copy."""
    found: list[Any] = [value, *cast("dict[Any, Any]", value).values()] if isinstance(value, dict) else [value]
    return [one for one in found if getattr(one, "shared_in_drafts", False) is True]


def _equal(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:  # noqa: BLE001 - == of user values may raise anything
        return False
