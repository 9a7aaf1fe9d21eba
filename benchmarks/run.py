"""Measure batonflow against the floor and, when it is installed somewhere, LlamaIndex Workflows: `make bench`.

Every sample is the CPU time of one unit, taken in a process of its own, the engines by turns; the best samples of each
are compared. Figures of one run belong together: other runs, other machines and other hours give other microseconds,
but about the same ratios.

    python benchmarks/run.py                       ours and the floor, bounds checked, table printed
    python benchmarks/run.py --peer                also LlamaIndex Workflows, in a virtual environment made for it
    python benchmarks/run.py --write docs/evidence/performance.md

The exit code is 1 when a bound does not hold. A tree with uncommitted changes is refused, as its figures would belong
to no commit; --allow-dirty measures it all the same and says so.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PEER_REQUIREMENTS = HERE / "requirements-peer.txt"
MARKS = ("<!-- figures begin -->", "<!-- figures end -->")


@dataclass
class Row:
    """A program with how much of it to run and what must hold.

    Attributes:
        name: As in programs.py or agents.py.
        units: Units in one sample.
        peer_units: The same for the peer, which needs longer for each.
        floor: The most that ours may cost, in floors.
        peer: The same, in parts of the peer.
        kib: The most KiB.
        seconds: The most seconds; only for the time a loop may be held up.
        home: The module that has it.
        has_floor: Whether the floor has it too.
    """

    name: str
    units: int
    peer_units: int = 0
    floor: float | None = None
    peer: float | None = None
    kib: float | None = None
    seconds: float | None = None
    home: str = "programs"
    has_floor: bool = True
    found: dict[str, dict[str, float]] = field(default_factory=dict)


ROWS = [
    Row("hop", 3000, 400, floor=1.2, peer=0.025),
    Row("hop, memory journal", 3000, floor=1.7),
    Row("three-step run", 300, 60, floor=2.1, peer=0.05),
    Row("concurrent run", 400, 100, peer=0.10),
    Row("fan-out item", 1000, 150, peer=0.03),
    Row("list fan-out item", 1000, 150, peer=0.03, has_floor=False),
    Row("streamed event", 5000, 3000, peer=0.3),
    Row("set and get of a state key", 3000, 1000, peer=0.10),
    Row("dump and load of a state key", 1000, 500, peer=0.6),
    Row("paused run", 2000, 1000, peer=0.08, kib=8.9),
    Row("memory over hops", 100_000, kib=4096.0, has_floor=False),
    Row("longest turn beside hops", 20_000, seconds=0.002, has_floor=False),
]

AGENTS = [
    Row("tool turn", 50, 20, home="agents", peer=0.06),
    Row("tool turn, three empty middlewares", 50, home="agents", has_floor=False),
    Row("tool turn, three passing middlewares", 50, home="agents", has_floor=False),
    Row("tool turn after 1,000 messages", 20, 10, home="agents", peer=0.01),
    Row("tool called in parallel", 100, 50, home="agents", peer=0.06),
    Row("two-turn run", 60, 20, home="agents", peer=0.07),
    Row("streamed piece of an answer", 5000, 2000, home="agents", peer=0.2),
    Row("handoff", 10, 10, home="agents", peer=0.08),
]

GROWTH = [
    ("fan-out item", "programs", (100, 1000, 10_000), 1.5, (1, 2)),
    ("list fan-out item", "programs", (100, 1000, 10_000), 1.5, (1, 2)),
    ("snapshot after hops", "programs", (100, 1000, 5000), 1.5, (0, 2)),
    ("tool turn behind messages", "agents", (10, 100, 1000), 1.5, (0, 2)),
]
"""Program, its module, sizes, how much more a unit may cost at the larger of two sizes, and which two are compared."""


def sample(python: str, engine: str, name: str, units: int, samples: int, home: str = "programs") -> dict[str, float]:
    """The best of some samples, measured in a fresh process."""
    command = [python, "-B", str(HERE / "worker.py"), engine, home, name, str(units), str(samples)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT) if engine != "llama-index" else ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE, check=False)
    if done.returncode:
        raise SystemExit(f"{engine}, {name}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def better(one: dict[str, float] | None, other: dict[str, float]) -> dict[str, float]:
    """The best time of two samples, and the worst weight."""
    if one is None:
        return other
    return {key: (max if key == "kib" else min)(one[key], other[key]) for key in one}


def peer_python() -> str:
    """A virtual environment with the peer, made once for each version of its requirements."""
    stamp = hashlib.sha256(PEER_REQUIREMENTS.read_bytes()).hexdigest()[:12]
    home = ROOT / f".venv-peer-{stamp}"
    python = home / "bin" / "python"
    if not python.exists():
        print(f"making {home.name} for the peer", flush=True)
        venv.create(home, with_pip=True)
        install = [str(python), "-m", "pip", "install", "-q", "-r", str(PEER_REQUIREMENTS)]
        subprocess.run(install, check=True)
    return str(python)


def measure(rows: list[Row], repeats: int, peer: str | None) -> None:
    """Fill the rows, the engines by turns so that a busy moment meets all of them."""
    for turn in range(repeats):
        for row in rows:
            engines = [("batonflow", sys.executable, row.units), ("floor", sys.executable, row.units)]
            if peer is not None and row.peer_units:
                engines.append(("llama-index", peer, row.peer_units))
            for engine, python, units in engines:
                if engine == "floor" and not row.has_floor:
                    continue
                row.found[engine] = better(row.found.get(engine), sample(python, engine, row.name, units, 3, row.home))
        print(f"round {turn + 1} of {repeats} done", flush=True)


def micro(seconds: float) -> str:
    return f"{seconds * 1e6:,.3g}"


def table(rows: list[Row], problems: list[str]) -> list[str]:
    """The figures as Markdown; bounds that do not hold are added to the problems."""
    lines = [
        "| program | floor, µs | ours, µs | LlamaIndex, µs | ours / floor | ours / LlamaIndex |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        ours, floor, peer = (row.found.get(engine) for engine in ("batonflow", "floor", "llama-index"))
        assert ours is not None
        to_floor = ours["seconds"] / floor["seconds"] if floor else None
        to_peer = ours["seconds"] / peer["seconds"] if peer else None
        for bound, ratio, what in ((row.floor, to_floor, "floors"), (row.peer, to_peer, "of LlamaIndex")):
            if bound is not None and ratio is not None and ratio > bound:
                problems.append(f"{row.name}: {ratio:.3f} {what}, the most is {bound}")
        if row.kib is not None and ours["kib"] > row.kib:
            problems.append(f"{row.name}: {ours['kib']:.1f} KiB, the most is {row.kib}")
        if row.seconds is not None and ours["seconds"] > row.seconds:
            problems.append(f"{row.name}: {ours['seconds'] * 1e3:.2f} ms, the most is {row.seconds * 1e3:.0f} ms")
        cells = [
            micro(floor["seconds"]) if floor else "",
            micro(ours["seconds"]) if ours["seconds"] else "",
            micro(peer["seconds"]) if peer else "",
            f"{to_floor:.2f}" if to_floor is not None else "",
            f"{to_peer:.3f}" if to_peer is not None else "",
        ]
        weight = f" ({ours['kib']:.1f} KiB)" if "kib" in ours else ""
        lines.append(f"| {row.name}{weight} | {' | '.join(cells)} |")
    return lines


def growth(problems: list[str], repeats: int) -> list[str]:
    """What a unit costs at three sizes, as Markdown."""
    lines = ["| program | small | middle | large | large / compared |", "|---|---:|---:|---:|---:|"]
    for name, home, sizes, bound, (low, high) in GROWTH:
        best: list[dict[str, float]] = []
        for size in sizes:
            found = None
            for _ in range(repeats):
                found = better(found, sample(sys.executable, "batonflow", name, size, 3, home))
            assert found is not None
            best.append(found)
        ratio = best[high]["seconds"] / best[low]["seconds"]
        if ratio > bound:
            problems.append(
                f"{name}: a unit at {sizes[high]:,} costs {ratio:.2f} times that at {sizes[low]:,}, the most is {bound}"
            )
        cells = [f"{size:,}: {micro(each['seconds'])} µs" for size, each in zip(sizes, best, strict=True)]
        lines.append(f"| {name} | {' | '.join(cells)} | {ratio:.2f} |")
    return lines


def weights(problems: list[str]) -> list[str]:
    """Modules and memory of a process that ran one workflow, and of one that ran an agent, as Markdown."""
    lines = ["| process | modules | peak MiB |", "|---|---:|---:|"]
    for name, most_modules, most_mib in (("workflow", 330, 42.0), ("agent", 410, None)):
        command = [sys.executable, "-B", str(HERE / "weight.py"), name]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)
        if found["modules"] > most_modules or (most_mib is not None and found["mib"] > most_mib) or found["heavy"]:
            problems.append(f"one {name}: {found}, the most is {most_modules} modules and {most_mib} MiB")
        lines.append(f"| one-step {name} run | {found['modules']} | {found['mib']:.1f} |")
    return lines


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def heading(peer: str | None, dirty: bool, peers: Sequence[str] = ("llama-index-workflows",)) -> str:
    versions = ["pydantic"] if peer is None else ["pydantic", *peers]
    code = "import importlib.metadata as m, sys; print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
    named = subprocess.run([peer or sys.executable, "-c", code, *versions], capture_output=True, text=True, check=True)
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    commit = git("rev-parse", "--short", "HEAD") + (" with uncommitted changes" if dirty else "")
    python = platform.python_version()
    return f"Commit {commit}, Python {python}, {named.stdout.strip()}, {os.cpu_count()} cores, load {load}."


def write(path: Path, text: str, marks: tuple[str, str] = MARKS) -> None:
    """Put the figures between the marks of a page."""
    page = path.read_text()
    before, _, rest = page.partition(marks[0])
    _, _, after = rest.partition(marks[1])
    path.write_text(f"{before}{marks[0]}\n{text}\n{marks[1]}{after}")


def main() -> int:
    """Measure, print, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="store_true", help="measure LlamaIndex Workflows too")
    parser.add_argument("--peer-python", help="an interpreter that has it")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", type=Path, help="put the figures into this page")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    dirty = bool(git("status", "--porcelain"))
    if dirty and not options.allow_dirty:
        print("The tree has uncommitted changes: commit them first, or pass --allow-dirty.", file=sys.stderr)
        return 2
    peer = options.peer_python or (peer_python() if options.peer else None)
    title = heading(peer, dirty)
    problems: list[str] = []
    measure([*ROWS, *AGENTS], options.repeats, peer)
    parts = [table(ROWS, problems), table(AGENTS, problems), growth(problems, options.repeats), weights(problems)]
    text = "\n\n".join(["\n".join(part) for part in ([title], *parts)])
    print(f"\n{text}\n")
    if options.write:
        write(options.write, text)
    for problem in problems:
        print(f"does not hold: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
