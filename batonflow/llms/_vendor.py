"""The one place where modules are imported late.

Vendors' SDKs take a second or two of processor time to import; a program that uses one vendor must not pay for the
others, and a program that uses none must not need any.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

from batonflow.lazy import how_to_install
from batonflow.llms.errors import MissingDependencyError
from batonflow.threads import in_thread

__all__ = ["aload", "load"]


def load(name: str, extra: str = "") -> Any:
    """Import module ``name``.

    Args:
        name: Dotted name.
        extra: The extra of this package that brings it.

    Raises:
        MissingDependencyError: It is not installed; the message says what to do.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as err:
        if err.name is not None and err.name.partition(".")[0] != name.partition(".")[0]:
            raise
        remedy = how_to_install(extra) if extra else f"pip install {name}"
        raise MissingDependencyError(f"the package {name!r} is needed here: {remedy}", vendor=extra or None) from err


async def aload(name: str, extra: str = "") -> Any:
    """The same without stopping the event loop while the import runs."""
    module: ModuleType | None = sys.modules.get(name)
    # A module being imported by another thread is in sys.modules too, but not ready for use.
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        return module
    return await in_thread(load, name, extra)
