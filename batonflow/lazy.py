"""Functions whose module is loaded at the first call, and hints for packages that are not installed."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["at_first_use", "how_to_install"]


def at_first_use(module: str, name: str) -> Callable[..., Any]:
    """A stand-in for a function or class of a module that is not loaded yet.

    Args:
        module: The module, by its full name.
        name: What to call in it.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(module), name)(*args, **kwargs)

    return call


def how_to_install(extra: str) -> str:
    """The command that installs an extra of this package, as it is installed here.

    Args:
        extra: Its name.

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
    # No index need have the package, and one that has it would bring another version.
    return f"pip install {'-e ' if told['dir_info'].get('editable') else ''}'{folder}[{extra}]'"
