"""Builds the wheel as an installer would, and environments that hold it, without touching the checkout."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pydantic

__all__ = ["ROOT", "build_wheel", "environment", "run", "tracked_files"]

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that must succeed and return its standard output; PYTHONPATH does not reach it."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def tracked_files() -> list[str]:
    """The files of the project: those git tracks, and those it would track once added. Links are not among them."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    return [name for name in listed if (ROOT / name).is_file() and not (ROOT / name).is_symlink()]


def build_wheel(to: Path) -> Path:
    """Copy the project below ``to``, build sdist and wheel from the copy, and return the wheel."""
    tree = to / "tree"
    for name in tracked_files():
        copy = tree / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", to / "dist", tree, cwd=to)
    (wheel,) = (to / "dist").glob("*.whl")
    return wheel


def environment(at: Path, *distributions: str | Path) -> tuple[Path, Path]:
    """Make an environment, install ``distributions`` into it, and return its Python and its site-packages.

    Their dependencies are read from the running environment, so that nothing else has to be fetched. Editable
    installs over there stay unseen: they announce themselves in .pth files, which are not followed from here.
    """
    venv.create(at, with_pip=False, symlinks=True)
    python = at / "bin" / "python"
    (site,) = at.glob("lib/python*/site-packages")
    pip = (sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check")
    run(*pip, "install", "--no-deps", *distributions, cwd=at)
    assert pydantic.__file__ is not None
    (site / "dependencies.pth").write_text(f"{Path(pydantic.__file__).parent.parent}\n")
    return python, site
