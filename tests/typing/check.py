"""Run mypy in strict mode on what users write (``examples/`` and these programs) against the installed wheel.

Both are copied away from the checkout first, so that mypy reads what a user's mypy reads: the installed package with
its ``py.typed`` mark, not the folders of the source.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.wheel import ROOT, build_wheel, environment


def main() -> int:
    """Build, install and check; return mypy's exit status."""
    with tempfile.TemporaryDirectory() as directory:
        at = Path(directory)
        python, _ = environment(at / "env", build_wheel(at / "build"))
        for folder in ("examples", "tests/typing"):
            shutil.copytree(ROOT / folder, at / "programs" / folder)
        programs = sorted((at / "programs").rglob("*.py"))
        checker = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
        checker += ["--python-executable", str(python), "--cache-dir", str(ROOT / ".mypy_cache")]
        own = (at / "programs" / "tests" / "typing" / Path(__file__).name,)
        names = [str(path.relative_to(at / "programs")) for path in programs if path not in own]
        return subprocess.run([*checker, *names], check=False, cwd=at / "programs").returncode


if __name__ == "__main__":
    sys.exit(main())
