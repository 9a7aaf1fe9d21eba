"""Functions with lazily imported modules, and hints for packages that are not installed."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["at_first_use", "how_to_install"]


def at_first_use(module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports a module at its first call. It calls a function or class of the module.

    Args:
        module: The full name of the module.
        name: The name of the function or class.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(module), name)(*args, **kwargs)

    return call


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of this package into the present installation.

    Args:
        extra: The name of the extra.

    Example:
        >>> how_to_install("otel")
        "pip install 'batonflow[otel]'"
    """
    metadata = import_module("importlib.metadata")
    try:
        told: Any = import_module("json").loads(metadata.distribution("batonflow").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        told = {}
    folder = import_module("urllib.parse").unquote(str(told.get("url", "")).removeprefix("file://"))
    if "dir_info" not in told or not folder.startswith("/"):
        return f"pip install 'batonflow[{extra}]'"
    # An index may lack the package, or hold another version than the installed one.
    return f"pip install {'-e ' if told['dir_info'].get('editable') else ''}'{folder}[{extra}]'"
