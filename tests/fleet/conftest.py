"""Stores of every kind, as for the tests of stored runs."""

from tests.durable.conftest import store, stores

__all__ = ["store", "stores"]
