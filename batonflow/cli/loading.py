"""Load the workflow, agent or server that a command line names."""

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
from batonflow.workflow_core.options import is_workflow
from batonflow.workflow_core.workflow import Workflow

__all__ = ["is_server", "load", "load_workflow"]


def load_workflow(spec: str) -> Workflow:
    """Return the workflow, agent or team that ``OBJ`` names.

    Raises:
        CommandError: ``OBJ`` does not name one.
    """
    value = load(spec)
    if is_server(value):
        raise CommandError(f"{spec} is a server: start it with `batonflow serve {spec}`, or name a workflow", USAGE)
    return value


def is_server(value: Any) -> bool:
    """Return True for a WorkflowServer, without loading the packages that servers need."""
    names = (f"{cls.__module__}.{cls.__name__}" for cls in type(value).__mro__)
    return "batonflow.server.app.WorkflowServer" in names


def load(spec: str) -> Any:
    """Return the object that ``module:name`` or ``file.py:name`` names.

    The name may be left out if the module has one object. A class or a function is called without arguments.

    Raises:
        CommandError: The module, the file or the name does not exist, or the object is not a workflow, agent or server.
    """
    where, _, name = (spec, "", "") if spec.endswith(".py") or ":" not in spec else spec.rpartition(":")
    if not where:
        raise CommandError(f"{spec!r} names no module: write module:name or file.py:name", USAGE)
    module = _module(where)
    value = _named(module, where, name) if name else _only(module, where)
    made = _instance(value, spec)
    if not is_workflow(made) and not is_server(made):
        raise CommandError(
            f"{spec} is a {type(made).__name__}, not a workflow, agent, team or server{_candidates(module)}", USAGE
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
            f"{where} cannot be loaded: {type(error).__name__}: {error}{_place(error)}; --debug shows the traceback"
        ) from error


def _from_file(path: Path) -> ModuleType:
    """Import a file under the name that other modules import it by, because records contain that name."""
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


def _place(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return ""  # its text contains the place
    places = [(place.filename, place.lineno) for place in extract_tb(error.__traceback__)]
    here = Path.cwd()
    in_folder = [(name, line) for name, line in places if not name.startswith("<") and Path(name).is_relative_to(here)]
    return f" ({Path(in_folder[-1][0]).name}, line {in_folder[-1][1]})" if in_folder else ""


def _named(module: ModuleType, where: str, name: str) -> Any:
    try:
        return attrgetter(name)(module)
    except AttributeError as error:
        raise CommandError(f"{where} has no {name!r}{_candidates(module)}", USAGE) from error


def _only(module: ModuleType, where: str) -> Any:
    candidates = dict(_objects_of(module))
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    if not candidates:
        raise CommandError(f"{where} has no workflow, agent or server: name a function that makes one", USAGE)
    raise CommandError(f"{where} has several: name one{_candidates(module)}", USAGE)


def _objects_of(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the workflows, agents and servers of a module, or else the classes that it declares."""
    seen: set[int] = set()
    public = [(name, value) for name, value in vars(module).items() if not name.startswith("_")]
    for name, value in public:
        if (is_workflow(value) or is_server(value)) and id(value) not in seen:
            seen.add(id(value))
            yield name, value
    if not seen:
        for name, value in public:
            if isinstance(value, type) and issubclass(value, Workflow) and value.__module__ == module.__name__:
                yield name, value


def _candidates(module: ModuleType) -> str:
    names = [name for name, _ in _objects_of(module)]
    return f"; there is {', '.join(names)}" if names else ""


def _instance(value: Any, spec: str) -> Any:
    if is_workflow(inner := getattr(value, "workflow", None)):  # of a query engine or a chat engine
        return inner
    if is_workflow(value) or not (isinstance(value, type) or inspect.isroutine(value)):
        return value
    if isinstance(value, type) and not issubclass(value, Workflow):
        return cast("Any", value)
    try:
        made = cast("Any", value)()
    except Exception as error:  # the user's code, which may raise anything
        raise CommandError(
            f"{value.__name__}() of {spec} raised {type(error).__name__}: {error}; --debug shows the traceback"
        ) from error
    if inspect.iscoroutine(made):
        made.close()
        raise CommandError(f"{spec} is an async function: name one that returns the workflow at once", USAGE)
    return made
