"""Run mypy in strict mode on what users write (``examples/`` and these programs) against the installed wheel.

The wheel is installed into an environment of its own and mypy runs outside the checkout, so that what it reads is
what a user's mypy reads: the installed package with its ``py.typed`` mark, not the folders of the source.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import mypy

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    """Build, install and check; return mypy's exit status."""
    programs = [path for folder in ("examples", "tests/typing") for path in sorted((ROOT / folder).rglob("*.py"))]
    with tempfile.TemporaryDirectory() as directory:
        at = Path(directory)
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(at), str(ROOT)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        (wheel,) = at.glob("*.whl")
        venv.create(at / "env", with_pip=False, symlinks=True)
        python = at / "env" / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--no-deps", str(wheel)], check=True)
        (site,) = at.glob("env/lib/python*/site-packages")
        # Dependencies are read where they are installed already.
        (site / "dependencies.pth").write_text(f"{Path(mypy.__file__).parent.parent}\n")
        checker = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
        checker += ["--python-executable", str(python), "--cache-dir", str(ROOT / ".mypy_cache")]
        return subprocess.run([*checker, *map(str, programs)], check=False, cwd=at).returncode


if __name__ == "__main__":
    sys.exit(main())
