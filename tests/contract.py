"""The ``@contract`` mark: which items of ``tests/contract.toml`` a test shows to hold."""

import tomllib
from pathlib import Path

import pytest

__all__ = ["contract", "items"]

_LIST = Path(__file__).with_name("contract.toml")


def items() -> dict[str, str]:
    """Return every item of the contract: id to a line that says what is promised."""
    return tomllib.loads(_LIST.read_text())["items"]


def contract(*ids: str) -> pytest.MarkDecorator:
    """Mark a test (or a class of tests) as showing the contract items ``ids``.

    Example::

        @contract("5.1.3")
        async def test_set_state_of_a_parent_class_merges_its_fields() -> None: ...
    """
    return pytest.mark.contract(*ids)
