"""The dispatchers by name."""

from typing import Literal, TypeAlias, get_args

from batonflow.durable.store_protocol import RunStore
from batonflow.fleet.dispatcher_dbos import DBOSDispatcher
from batonflow.fleet.dispatcher_procrastinate import ProcrastinateDispatcher
from batonflow.fleet.dispatcher_protocol import Dispatcher

__all__ = ["DISPATCHERS", "DispatcherName", "open_dispatcher"]

DispatcherName: TypeAlias = Literal["none", "procrastinate", "dbos"]
DISPATCHERS: tuple[DispatcherName, ...] = get_args(DispatcherName)


def open_dispatcher(name: DispatcherName, store: RunStore) -> Dispatcher | None:
    """Return a dispatcher in the database of a store; None for ``"none"``.

    The database is reached at first use. Close the dispatcher at the end.

    Args:
        name: The name of the engine.
        store: A store in PostgreSQL.

    Raises:
        ImportError: The engine is not installed.
        ValueError: There is not a dispatcher of this name, or the store is not in PostgreSQL.

    Example:
        >>> async with aclosing(open_dispatcher("procrastinate", store)) as bell:
        ...     await flow.enqueue(topic="tides", dispatcher=bell)
    """
    if name not in DISPATCHERS:
        raise ValueError(f"dispatcher={name!r}: there are {', '.join(DISPATCHERS)}")
    if name == "none":
        return None
    dsn = getattr(store, "direct_dsn", None)
    if dsn is None:
        raise ValueError(f'dispatcher={name!r} needs a store in PostgreSQL, such as store="postgresql://app@db/prod"')
    return ProcrastinateDispatcher(dsn) if name == "procrastinate" else DBOSDispatcher(dsn)
