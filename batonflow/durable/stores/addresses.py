"""Addresses of stores."""

__all__ = ["is_postgres"]


def is_postgres(store: str) -> bool:
    """Tell whether the name of a store is the address of a PostgreSQL database."""
    return store.startswith(("postgresql://", "postgres://"))
