"""Run mypy and pyright in strict mode on what users write (``examples/`` and these programs) against the wheel.

Both are copied away from the checkout first, so that a checker reads what it reads at a user's: the installed package
with its ``py.typed`` mark, not the folders of the source. A line of a program that ends in ``# E`` is an error in both
checkers, and no other line is.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.wheel import ROOT, build_wheel, environment

Line = tuple[str, int]
"""A file and the number of a line."""

MYPY_ERROR = re.compile(r"^(.+?):(\d+): error: (.*)$")


def main() -> int:
    """Build, install and check; return 1 when a checker finds other errors than those that are marked."""
    with tempfile.TemporaryDirectory() as directory:
        at = Path(directory)
        python, _ = environment(at / "env", build_wheel(at / "build"))
        home = at / "programs"
        for folder in ("examples", "tests/typing"):
            shutil.copytree(ROOT / folder, home / folder)
        names = [str(path.relative_to(home)) for path in sorted(home.rglob("*.py")) if is_program(path.name)]
        marked = set(marked_lines(home, names))
        typed = [name for name in names if name.startswith(("tests", "examples/apps"))]
        said = {
            "mypy": (mypy_errors(home, names, python), marked),
            "pyright": (pyright_errors(home, typed, python), marked),
        }
    return max([report(checker, *found) for checker, found in said.items()])


def is_program(name: str) -> bool:
    """Tell whether a file is written as by a user, and is not a test."""
    return name != "check.py" and not name.startswith("test_")


def marked_lines(home: Path, names: Iterable[str]) -> Iterator[Line]:
    """Yield the lines that end in ``# E``."""
    for name in names:
        for number, line in enumerate((home / name).read_text().splitlines(), 1):
            if line.endswith("# E"):
                yield name, number


def mypy_errors(home: Path, names: list[str], python: Path) -> dict[Line, str]:
    """Return the errors that mypy finds, by line."""
    checker = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--python-executable"]
    checker += [str(python), "--cache-dir", str(ROOT / ".mypy_cache"), "--no-error-summary", *names]
    done = subprocess.run(checker, check=False, cwd=home, capture_output=True, text=True)
    found = [match.groups() for line in done.stdout.splitlines() if (match := MYPY_ERROR.match(line))]
    if done.returncode not in (0, 1) or (done.returncode and not found):
        raise SystemExit(done.stdout + done.stderr)
    return {(name, int(line)): text for name, line, text in found}


def pyright_errors(home: Path, names: list[str], python: Path) -> dict[Line, str]:
    """Return the errors that pyright finds, by line."""
    options = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "reportUnusedExpression": False}
    (home / "pyrightconfig.json").write_text(json.dumps({"include": names, **options}))
    checker = [sys.executable, "-m", "pyright", "--pythonpath", str(python), "--outputjson"]
    done = subprocess.run(checker, check=False, cwd=home, capture_output=True, text=True)
    try:
        found = json.loads(done.stdout)["generalDiagnostics"]
    except ValueError:
        raise SystemExit(done.stdout + done.stderr) from None
    return {
        (str(Path(one["file"]).relative_to(home.resolve())), one["range"]["start"]["line"] + 1): one["message"]
        for one in found
        if one["severity"] == "error"
    }


def report(checker: str, found: dict[Line, str], marked: set[Line]) -> int:
    """Print how the errors of a checker differ from the marked lines; return 1 when they do."""
    for (name, line), text in sorted(found.items()):
        if (name, line) not in marked:
            print(f"{checker}: {name}:{line}: {text}")
    for name, line in sorted(marked - found.keys()):
        print(f"{checker}: {name}:{line}: marked as an error, but {checker} finds none")
    print(f"{checker}: {len(found)} errors, {len(marked)} marked")
    return int(found.keys() != marked)


if __name__ == "__main__":
    sys.exit(main())
