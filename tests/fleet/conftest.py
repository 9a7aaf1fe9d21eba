"""Stores of every kind, as for the tests of stored runs, and databases of their own for processes."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.durable.conftest import store, stores
from tests.postgres import connected, new_schema, server_address

__all__ = ["database", "store", "stores"]


@pytest.fixture
def database() -> Iterator[str]:
    """The address of a new database."""
    address, name = server_address(), new_schema()
    with connected(address) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield urlsplit(address)._replace(path=f"/{name}").geturl()
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
