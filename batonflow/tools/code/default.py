"""The default executor."""

from batonflow.lazy import how_to_install
from batonflow.llms.errors import MissingDependencyError
from batonflow.tools.code.base import Executor, SandboxUnavailableError
from batonflow.tools.code.monty import MontyExecutor

__all__ = ["default_executor"]


def default_executor(key: bytes | None = None) -> Executor:
    """Return a :class:`MontyExecutor`; the default is never an executor without a sandbox.

    Args:
        key: The signing key of snapshots.

    Raises:
        SandboxUnavailableError: pydantic-monty is not installed; the message names the command that installs it.

    Example:
        >>> session = await default_executor().open([add])
    """
    try:
        return MontyExecutor(key)
    except MissingDependencyError as err:
        raise SandboxUnavailableError(
            f"Code runs only in a sandbox, and the default one is not installed. Run {how_to_install('code')}, or use "
            "BubblewrapExecutor() on Linux. UnsafeLocalExecutor() runs code without a sandbox."
        ) from err
