"""The executor taken when none is named."""

from batonflow.llms.errors import MissingDependencyError
from batonflow.tools.code.base import Executor, SandboxUnavailableError
from batonflow.tools.code.monty import MontyExecutor

__all__ = ["default_executor"]


def default_executor(key: bytes | None = None) -> Executor:
    """A :class:`MontyExecutor`; there is no other default, and never one without a sandbox.

    Args:
        key: What snapshots are signed with.

    Raises:
        SandboxUnavailableError: pydantic-monty is not installed; the message says what to do.

    Example:
        >>> session = await default_executor().open([add])
    """
    try:
        return MontyExecutor(key)
    except MissingDependencyError as err:
        raise SandboxUnavailableError(
            f"code is run in a sandbox only, and the default one is missing: {err}. "
            "On Linux, BubblewrapExecutor() is another; UnsafeLocalExecutor() runs code without any."
        ) from err
