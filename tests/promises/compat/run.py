"""Run programs written for LlamaIndex there and here, and compare what they print and stream.

    python tests/promises/compat/run.py [--programs DIR] [--only NAME ...] [--upstream PYTHON] [--ours PYTHON]

Every program runs twice on each side, in a folder of its own: once as it is, for its output, and once with a recorder
of its streams (recorder/sitecustomize.py). The two sides differ by the import table alone. Without --upstream and
--ours fresh environments are made under .venv-compat/ (kept, by a hash of their requirements): the pinned packages of
requirements-upstream.txt, and the wheel built from this tree. An interpreter given as --ours that has no batonflow runs
this tree. Marks in the comment that a program begins with:

    # upstream: no      LlamaIndex cannot run it (any more); its last comment block holds the expected output
    # compare: sets     lines and streamed types are compared without their order
    # pieces: ...       a streamed type that counts once however often it comes in a row: how texts are cut is free
    # needs: PART       a part of batonflow; while it cannot be imported, the program waits for it and is not run
"""

import argparse
import ast
import difflib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT))

from tests.promises.compat.import_table import translate  # noqa: E402 - found through the line above

VERBOSE_LINE = re.compile(r"\[[A-Za-z_]\w*(:\S+)?\] ")
# Parts that are not called as the package that has them.
PACKAGES = {"models": "llms", "team": "agents", "server": "workflow_core.server"}
HANDLERS = {"upstream": "workflows.handler", "ours": "batonflow.workflow_core.handler"}
SECONDS = 120.0


@dataclass
class Program:
    """A program and the marks in its first comment."""

    path: Path
    source: str

    @property
    def name(self) -> str:
        return self.path.stem

    def mark(self, word: str) -> str | None:
        """Return what stands behind `# word:` in the comment lines that the program begins with."""
        for line in self.source.splitlines():
            if not line.startswith("#"):
                return None
            found = re.match(rf"#\s*{word}:\s*(.*)", line)
            if found:
                return found[1]
        return None

    @property
    def runs_upstream(self) -> bool:
        return not (self.mark("upstream") or "").startswith("no")

    @property
    def expected(self) -> list[str]:
        """The lines after the last `# expected:`; a remark in brackets behind three or more blanks is left out."""
        lines = self.source.splitlines()
        starts = [number for number, line in enumerate(lines) if line.strip() == "# expected:"]
        return [re.sub(r" {3,}\(.*\)$", "", line.removeprefix("# ")) for line in lines[starts[-1] + 1 :]]


@dataclass
class Outcome:
    """What one side of a program printed and streamed."""

    lines: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    problem: str = ""
    seconds: float = 0.0


@dataclass
class Known:
    """A difference that is meant."""

    program: str
    pattern: str
    item: str
    reason: str
    used: bool = False


def read_known(path: Path = HERE / "known.toml") -> list[Known]:
    """Read the list of differences that are meant."""
    return [Known(**entry) for entry in tomllib.loads(path.read_text()).get("difference", [])]


@dataclass(frozen=True)
class Side:
    """One of the two libraries: an interpreter, and where it looks for modules besides its own."""

    name: str
    python: str
    search: tuple[Path, ...] = ()


def run_program(program: Program, side: Side, folder: Path, *, record: bool) -> Outcome:
    """Run one side of a program in a folder of its own; with `record`, for its streams, else for its output."""
    folder.mkdir(parents=True)
    for path in program.path.parent.glob("*.py"):
        source = path.read_text()
        (folder / path.name).write_text(translate(source) if side.name == "ours" else source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COMPAT_"))}
    environment |= {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    streams = folder / "streams.txt"
    search = [*side.search]
    if record:
        search.insert(0, HERE / "recorder")
        environment |= {"COMPAT_RECORD": str(streams), "COMPAT_HANDLER": HANDLERS[side.name]}
    if search:
        environment["PYTHONPATH"] = os.pathsep.join(map(str, search))
    started = time.monotonic()
    try:
        done = subprocess.run(
            [side.python, program.path.name],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(problem=f"still running after {SECONDS:.0f} s")
    outcome = Outcome(
        lines=[line for line in done.stdout.splitlines() if not VERBOSE_LINE.match(line)],
        seconds=time.monotonic() - started,
    )
    if record:
        recorded = streams.read_text().splitlines() if streams.exists() else []
        outcome.streams = [f"stream {number}: {types}" for number, types in enumerate(recorded, 1)]
    if done.returncode:
        outcome.problem = f"exit code {done.returncode}\n" + "\n".join(done.stderr.splitlines()[-12:])
    return outcome


def both_runs(program: Program, side: Side, folder: Path) -> Outcome:
    """Run one side for its output and again for its streams."""
    outcome = run_program(program, side, folder / f"{program.name}-{side.name}", record=False)
    recorded = run_program(program, side, folder / f"{program.name}-{side.name}-recorded", record=True)
    outcome.streams = recorded.streams
    outcome.problem = outcome.problem or (recorded.problem and f"with the recorder: {recorded.problem}")
    return outcome


def missing_part(program: Program, side: Side) -> str | None:
    """Return the part of batonflow that a program needs and that this side does not have."""
    part = (program.mark("needs") or "").strip()
    if not part:
        return None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, side.search))
    asked = [side.python, "-c", f"import batonflow.{PACKAGES.get(part, part)}"]
    found = subprocess.run(asked, env=environment, cwd=program.path.parent, capture_output=True, check=False)
    return part if found.returncode else None


def comparable(lines: list[str], *, as_sets: bool, dicts_sorted: bool = False, pieces: str | None = None) -> list[str]:
    """Bring lines into the form in which they are compared."""
    if pieces:
        repeated = re.compile(rf"\b({re.escape(pieces)})( \1)+\b")
        lines = [repeated.sub(r"\1", line) if line.startswith("stream ") else line for line in lines]
    if dicts_sorted:
        lines = [_sorted_dict(line) for line in lines]
    if not as_sets:
        return lines
    return sorted(
        " ".join([*line.split()[:2], *sorted(line.split()[2:])]) if line.startswith("stream ") else line
        for line in lines
    )


def _sorted_dict(line: str) -> str:
    try:
        value = ast.literal_eval(line)
    except (ValueError, SyntaxError):
        return line
    return repr(dict(sorted(value.items()))) if isinstance(value, dict) else line


def differences(name: str, theirs: list[str], ours: list[str], known: list[Known]) -> list[str]:
    """Return the lines that differ and that no known difference of this program covers."""
    left: list[str] = []
    for line in difflib.ndiff(theirs, ours):
        sign, text = line[:2], line[2:]
        if sign not in ("- ", "+ "):
            continue
        covering = [entry for entry in known if entry.program == name and re.search(entry.pattern, text)]
        for entry in covering:
            entry.used = True
        if not covering:
            left.append(f"    {'upstream' if sign == '- ' else 'ours':>8}: {text}")
    return left


def compare(
    program: Program, upstream: Side, here: Side, known: list[Known], folder: Path
) -> tuple[list[str], list[str]]:
    """Run a program on both sides; return the problems and the row of the table."""
    as_sets = program.mark("compare") == "sets"
    part = missing_part(program, here)
    if part is not None:
        return [], [program.name, "-", "-", "-", "-", f"waits for {part}"]
    ours = both_runs(program, here, folder)
    if program.runs_upstream:
        theirs = both_runs(program, upstream, folder)
    else:
        theirs = Outcome(lines=program.expected, streams=ours.streams)
    problems = [f"    {side}: {one.problem}" for side, one in (("upstream", theirs), ("ours", ours)) if one.problem]
    if not theirs.problem:
        sides = [
            comparable(
                [*one.lines, *one.streams],
                as_sets=as_sets,
                dicts_sorted=not program.runs_upstream,
                pieces=program.mark("pieces"),
            )
            for one in (theirs, ours)
        ]
        problems += differences(program.name, *sides, known)
    seconds = [f"{one.seconds:.1f}" if one.seconds else "-" for one in (theirs, ours)]
    row = [program.name, str(len(ours.lines)), str(len(ours.streams)), *seconds, "differs" if problems else "equal"]
    if not program.runs_upstream:
        row[-1] += " (to the recorded output)"
    return problems, row


def make_environment(name: str, requirements: Path, *, hashed: bool) -> str:
    """Return the Python of an environment with these requirements; made when there is none of their hash."""
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = ROOT / ".venv-compat" / f"{name}-{digest}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print(f"making the environment {folder.relative_to(ROOT)}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, *(["--require-hashes"] if hashed else []), "-r", str(requirements)], check=True)
        (folder / "complete").touch()
    return str(python)


def install_wheel(python: str) -> None:
    """Build the wheel from a copy of this tree and install it."""
    with tempfile.TemporaryDirectory() as scratch:
        leave_out = shutil.ignore_patterns(".git", ".venv*", "__pycache__", "build", "*.egg-info", ".*_cache", "tests")
        copy = Path(scratch) / "tree"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=leave_out)
        pip = [python, "-m", "pip"]
        quiet = ["--quiet", "--no-deps"]
        subprocess.run([*pip, "wheel", *quiet, "--no-build-isolation", "-w", scratch, str(copy)], check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        subprocess.run([*pip, "install", *quiet, "--force-reinstall", str(wheel)], check=True)


def our_side(python: str) -> Side:
    """Our side under this interpreter: the batonflow installed there, or this tree when there is none."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    # Isolated, so that the folder this runs in does not count as installed.
    asked = subprocess.run([python, "-I", "-c", "import batonflow"], env=environment, capture_output=True, check=False)
    return Side("ours", python, () if asked.returncode == 0 else (ROOT,))


def find_programs(folders: list[Path], only: list[str]) -> list[Program]:
    """Return the programs to run; helpers without a number are left out."""
    found: list[Program] = []
    for folder in folders:
        for path in sorted(folder.glob("[a-z][0-9][0-9]_*.py")):
            program = Program(path, path.read_text())
            if not only or program.name in only:
                found.append(program)
    return found


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Compare batonflow with LlamaIndex on the same programs.")
    default = os.environ.get("COMPAT_PROGRAMS", str(ROOT / ".." / "shared" / "programs"))
    parser.add_argument(
        "--programs", type=Path, default=Path(default), help="more programs than tests/promises/compat/programs"
    )
    parser.add_argument("--only", nargs="*", default=[], help="names of programs, such as c01_events")
    parser.add_argument("--upstream", help="a Python that has the packages of requirements-upstream.txt")
    parser.add_argument("--ours", help="a Python that has batonflow, or what batonflow needs")
    parser.add_argument("--jobs", type=int, default=2, help="programs at the same time")
    return parser.parse_args()


def main() -> int:
    """Run and compare everything; 0 when nothing differs but what is known."""
    options = arguments()
    folders = [HERE / "programs"]
    if options.programs.is_dir():
        folders.append(options.programs.resolve())
    else:
        print(f"no folder {options.programs}: only the programs of tests/promises/compat/programs are run")
    programs = find_programs(folders, options.only)
    if not programs:
        print("no such program")
        return 1
    upstream = Side(
        "upstream", options.upstream or make_environment("upstream", HERE / "requirements-upstream.txt", hashed=False)
    )
    if not options.ours:
        options.ours = make_environment("ours", ROOT / "requirements" / "test.txt", hashed=True)
        install_wheel(options.ours)
    here = our_side(options.ours)
    known = read_known()
    rows: list[list[str]] = []
    failed = False
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(options.jobs) as pool:
        for program, (problems, row) in zip(
            programs, pool.map(lambda one: compare(one, upstream, here, known, Path(scratch)), programs), strict=True
        ):
            print(f"{program.name}: {row[-1]}", flush=True)
            print("\n".join(problems), end="\n" if problems else "", flush=True)
            failed = failed or bool(problems)
            rows.append(row)
    unused = [] if options.only else [entry for entry in known if not entry.used]
    for entry in unused:
        print(f"known.toml: nothing differs as {entry.program} {entry.pattern!r} says: take the entry out")
    heads = ["program", "lines", "runs", "upstream s", "ours s", "result"]
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    print()
    for row in [heads, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 1 if failed or unused else 0


if __name__ == "__main__":
    sys.exit(main())
