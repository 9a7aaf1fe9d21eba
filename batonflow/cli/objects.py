"""Finding the workflow, agent or server that a command line names."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, cast

from batonflow.cli.errors import FAILED, USAGE, CommandError
from batonflow.workflow_core.workflow import Workflow

__all__ = ["found", "is_server", "workflow_at"]


def workflow_at(spec: str) -> Workflow:
    """The workflow, agent or team that ``OBJ`` names.

    Raises:
        CommandError: There is none.
    """
    value = found(spec)
    if is_server(value):
        raise CommandError(f"{spec} is a server: start it with `batonflow serve {spec}`, or name a workflow", USAGE)
    return value


def is_server(value: Any) -> bool:
    """Whether it is a WorkflowServer, told without loading what servers need."""
    module = sys.modules.get("batonflow.server.app")
    return module is not None and isinstance(value, module.WorkflowServer)


def found(spec: str) -> Any:
    """What ``module:name`` or ``file.py:name`` stands for; the name may be left out when there is only one.

    A class or function is called without arguments.

    Raises:
        CommandError: There is no such module, file or name, or what is there is neither workflow, agent nor server.
    """
    where, _, name = (spec, "", "") if spec.endswith(".py") or ":" not in spec else spec.rpartition(":")
    if not where:
        raise CommandError(f"{spec!r} names no module: write module:name or file.py:name", USAGE)
    module = _module(where)
    value = _named(module, where, name) if name else _only(module, where)
    made = _made(value, spec)
    if not isinstance(made, Workflow) and not is_server(made):
        raise CommandError(
            f"{spec} is a {type(made).__name__}, no workflow, agent, team or server{_candidates(module)}",
            USAGE,
        )
    return made


def _module(where: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)
    path = Path(where)
    try:
        if path.suffix == ".py":
            if not path.is_file():
                raise CommandError(f"there is no file {where}", USAGE)
            return _from_file(path.resolve())
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if where == missing or where.startswith(f"{missing}."):
            hint = f"; for the file {where}.py write {where}.py" if Path(f"{where}.py").exists() else ""
            raise CommandError(f"there is no module {missing!r} here or installed{hint}", USAGE) from error
        raise CommandError(f"{where} needs the module {missing!r}, which is not installed", FAILED) from error
    except CommandError:
        raise
    except Exception as error:  # the module's own code, which may raise anything
        raise CommandError(
            f"{where} cannot be loaded: {type(error).__name__}: {error}{_line(error)}; --debug shows the traceback"
        ) from error


def _from_file(path: Path) -> ModuleType:
    """The module of a file, under the name it has where others import it: records of runs say it."""
    root, names = path.parent, [path.stem]
    while (root / "__init__.py").exists():
        names.insert(0, root.name)
        root = root.parent
    name = ".".join(names)
    if str(root) not in sys.path:
        sys.path.insert(1, str(root))
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) != str(path):
            raise CommandError(f"{path.name} has the name of the module {name!r}: rename the file", USAGE)
        return known
    if len(names) > 1:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _line(error: Exception) -> str:
    """Where in the user's code it happened."""
    if isinstance(error, SyntaxError):
        return ""  # says so itself
    places = [(place.filename, place.lineno) for place in extract_tb(error.__traceback__)]
    own = [(name, line) for name, line in places if not name.startswith("<") and Path(name).is_relative_to(Path.cwd())]
    return f" ({Path(own[-1][0]).name}, line {own[-1][1]})" if own else ""


def _named(module: ModuleType, where: str, name: str) -> Any:
    try:
        return attrgetter(name)(module)
    except AttributeError as error:
        raise CommandError(f"{where} has no {name!r}{_candidates(module)}", USAGE) from error


def _only(module: ModuleType, where: str) -> Any:
    candidates = dict(_offered(module))
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    if not candidates:
        raise CommandError(f"{where} has no workflow, agent or server: name a function that makes one", USAGE)
    raise CommandError(f"{where} has several: name one{_candidates(module)}", USAGE)


def _offered(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The workflows, agents and servers of a module by name, each once; else the classes that it declares itself."""
    seen: set[int] = set()
    public = [(name, value) for name, value in vars(module).items() if not name.startswith("_")]
    for name, value in public:
        if (isinstance(value, Workflow) or is_server(value)) and id(value) not in seen:
            seen.add(id(value))
            yield name, value
    if not seen:
        for name, value in public:
            if isinstance(value, type) and issubclass(value, Workflow) and value.__module__ == module.__name__:
                yield name, value


def _candidates(module: ModuleType) -> str:
    names = [name for name, _ in _offered(module)]
    return f"; there is {', '.join(names)}" if names else ""


def _made(value: Any, spec: str) -> Any:
    """What a class or a function makes; anything else is what it is."""
    if isinstance(value, Workflow) or not (isinstance(value, type) or inspect.isroutine(value)):
        return value
    if isinstance(value, type) and not issubclass(value, Workflow):
        return cast("Any", value)
    try:
        made = value()
    except Exception as error:  # the user's code, which may raise anything
        raise CommandError(
            f"{spec}() cannot be made: {type(error).__name__}: {error}; --debug shows the traceback"
        ) from error
    if inspect.iscoroutine(made):
        made.close()
        raise CommandError(f"{spec} is an async function: name one that returns the workflow at once", USAGE)
    return made
