"""Lets failures of the checks show what was compared."""

import pytest

pytest.register_assert_rewrite(
    *(f"tests.llms.matrix.{name}" for name in ("apis", "content", "conversations", "requests", "failures"))
)
