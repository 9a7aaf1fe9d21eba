"""Puts one-line faults into the engine, one at a time; the tests must find each. The script behind ``make mutants``.

The faults stand in ``mutants.toml``: which text of which file becomes what, and which tests should notice. They are put
into copies of the tree, never into the tree itself. A fault that no test notices, or whose text does not stand there
exactly once any more, makes the exit status 1.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[3]
LIST = Path(__file__).with_name("mutants.toml")
EVERYTHING = ("tests/promises/interleavings", "tests/promises/properties", "tests/workflow_core")
WORKERS = 2
MOST_SECONDS = 300
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis", "build", "dist", "docs"
)
OPTIONS = (
    *("-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--timeout", "20", "--no-header", "--tb", "no"),
    *("--hypothesis-profile", "without-shrinking"),
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault.

    Attributes:
        name: What the fault breaks.
        file: Path of the file within ``batonflow``.
        old: The text to replace, there exactly once.
        new: What to put in its place.
        tests: The tests that should notice; everything is tried when they do not.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def options(self) -> tuple[str, ...]:
        """Further options of pytest: tests on PostgreSQL run only if they are asked for."""
        return ("--require-external",) if "postgres" in self.file else ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a fault: ``"found"``, ``"found late"`` (by other tests than those named), ``"survived"``."""

    mutant: Mutant
    verdict: str
    by: str
    seconds: float


def read_list() -> list[Mutant]:
    """The faults of ``mutants.toml``."""
    data = tomllib.loads(LIST.read_text())
    groups: dict[str, list[str]] = data["tests"]
    mutants: list[Mutant] = []
    for entry in data["mutant"]:
        named = entry.get("tests", ["all"])
        paths = [path for name in named for path in groups.get(name, [name])]
        mutants.append(Mutant(entry["name"], entry["file"], entry["old"], entry["new"], tuple(paths)))
    return mutants


def misplaced(mutants: Sequence[Mutant]) -> dict[str, str]:
    """The faults that cannot be put in, or looked for: name -> how often the text is there, or which tests are not."""
    wrong: dict[str, str] = {}
    for mutant in mutants:
        file = ROOT / "batonflow" / mutant.file
        count = file.read_text().count(mutant.old) if file.exists() else 0
        if count != 1:
            wrong[mutant.name] = f"its text stands {count} times in {mutant.file}: {mutant.old!r}"
        gone = [path for path in mutant.tests if not (ROOT / path).exists()]
        if gone:
            wrong[mutant.name] = f"there are no tests {', '.join(gone)}"
    return wrong


def _run_tests(tree: Path, tests: Sequence[str], options: Sequence[str] = ()) -> tuple[bool, str]:
    """Whether the tests pass in a tree, and the first one that does not."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", *OPTIONS, *options, *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return False, f"no end within {MOST_SECONDS} s"
    if done.returncode == 0:
        return True, ""
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return False, lines[0].split(" - ")[0] if lines else (done.stdout + done.stderr).strip().splitlines()[-1]


@contextmanager
def _fault_in(tree: Path, mutant: Mutant) -> Iterator[None]:
    file = tree / "batonflow" / mutant.file
    sound = file.read_text()
    file.write_text(sound.replace(mutant.old, mutant.new))
    try:
        yield
    finally:
        file.write_text(sound)


def _try(mutant: Mutant, trees: "SimpleQueue[Path]") -> Outcome:
    tree = trees.get()
    started = time.monotonic()
    try:
        with _fault_in(tree, mutant):
            passed, by = _run_tests(tree, mutant.tests, mutant.options)
            verdict = "found"
            if passed:
                passed, by = _run_tests(tree, EVERYTHING)
                verdict = "survived" if passed else "found late"
    finally:
        trees.put(tree)
    return Outcome(mutant, verdict, by, time.monotonic() - started)


def _copies(folder: Path) -> "SimpleQueue[Path]":
    trees: SimpleQueue[Path] = SimpleQueue()
    for number in range(WORKERS):
        tree = folder / f"tree{number}"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=LEFT_OUT)
        trees.put(tree)
    return trees


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the faults; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="faults whose name or file contains this text")
    parser.add_argument("--known", type=Path, help="an earlier output; faults found there are left out")
    parser.add_argument("--check", action="store_true", help="only look whether every fault can still be put in")
    options = parser.parse_args(arguments)
    mutants = read_list()
    wrong = misplaced(mutants)
    for name, problem in wrong.items():
        print(f"MISPLACED  {name}: {problem}")
    if options.check:
        return 1 if wrong else 0
    earlier = options.known.read_text().splitlines() if options.known else []
    known = "\n".join(line for line in earlier if "  found " in line)
    mutants = [
        mutant
        for mutant in mutants
        if (options.only in mutant.name or options.only in mutant.file)
        and mutant.name not in wrong
        and f": {mutant.name}  [" not in known
    ]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees = _copies(Path(folder))
        passed, by = _run_tests(Path(folder) / "tree0", EVERYTHING)
        if not passed:
            print(f"The tests fail without any fault: {by}", file=sys.stderr)
            return 1
        print(f"{len(mutants)} faults; without one the tests pass in {time.monotonic() - started:.0f} s", flush=True)
        outcomes: list[Outcome] = []
        with ThreadPoolExecutor(WORKERS) as pool:
            for future in as_completed([pool.submit(_try, mutant, trees) for mutant in mutants]):
                outcome = future.result()
                outcomes.append(outcome)
                print(
                    f"{len(outcomes):3}/{len(mutants)}  {outcome.verdict:10} {outcome.seconds:5.1f} s  "
                    f"{outcome.mutant.file}: {outcome.mutant.name}  [{outcome.by}]",
                    flush=True,
                )
    status = _summary(outcomes, time.monotonic() - started)
    for name, problem in wrong.items():
        print(f"MISPLACED  {name}: {problem}")
    return 1 if wrong else status


def _summary(outcomes: Sequence[Outcome], seconds: float) -> int:
    files = sorted({outcome.mutant.file for outcome in outcomes})
    print(f"\n{'file':28} {'faults':>6} {'found':>6} {'survived':>8}")
    for file in files:
        verdicts = [outcome.verdict for outcome in outcomes if outcome.mutant.file == file]
        survived = verdicts.count("survived")
        print(f"{file:28} {len(verdicts):6} {len(verdicts) - survived:6} {survived:8}")
    survivors = [outcome.mutant for outcome in outcomes if outcome.verdict == "survived"]
    print(f"{len(outcomes)} faults, {len(survivors)} survived, {seconds:.0f} s")
    for mutant in survivors:
        print(f"SURVIVED  {mutant.file}: {mutant.name}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
