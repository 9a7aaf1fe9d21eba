"""Addresses of stores."""

import re

__all__ = ["is_postgres"]

_PARAMETERS = re.compile(r"(?:\w+\s*=\s*\S*\s+)*(?:host|dbname|password)\s*=").match


def is_postgres(store: str) -> bool:
    """Tell whether the name of a store is meant as the address of a PostgreSQL database.

    Parameters such as ``host=db password=...`` are meant so, too, and are refused later; they are not shown as the path
    of a file, nor become one.
    """
    return store.startswith(("postgresql://", "postgres://")) or _PARAMETERS(store) is not None
