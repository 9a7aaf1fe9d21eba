"""Code in CPython under bubblewrap: Linux namespaces, an empty file system, and a filter of system calls."""

import contextlib
import json
import os
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from batonflow.tools.code.base import SandboxUnavailableError
from batonflow.tools.code.process import PYTHON_HINTS, WORKER, Launch, ProcessExecutor
from batonflow.tools.code.seccomp import MACHINES, seccomp_filter

__all__ = ["BubblewrapExecutor"]

_DEFAULT_PACKAGES = ("numpy", "pandas")
_TEMPORARY_BYTES = 64 * 1024 * 1024
_NOBODY = "65534"
_INSTALL = "Install bubblewrap 0.8 or newer (Debian and Ubuntu: apt-get install bubblewrap)"
_NAMESPACES = (
    "It needs namespaces for users: inside containers they are often forbidden (Docker: a seccomp profile that allows "
    "unshare), and on Ubuntu 24.04 an AppArmor profile for bwrap is needed"
)
# Enough for programs; other devices allow memory use outside the limit.
_DEVICES = ("null", "zero", "random", "urandom")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class BubblewrapExecutor(ProcessExecutor):
    """Executor of full CPython inside bubblewrap. Linux only.

    The code has read-only access to the system's programs, its libraries and the named packages, and 64 MiB of
    temporary files. It has no network, environment, other processes or /proc, and cannot start processes.

    Args:
        key: The signing key of snapshots, 16 bytes or more.
        packages: Installed distributions that the code can import, with their requirements; by default numpy and
            pandas, if installed.

    Raises:
        SandboxUnavailableError: The system is not Linux, bubblewrap is missing, or the processor has no filter.
        ValueError: One of ``packages`` is not installed.

    Example:
        >>> session = await BubblewrapExecutor().open(limits=Limits(memory_mb=1024))
        >>> await session.start("import numpy; float(numpy.arange(4).mean())")
        Done(output='', value=1.5)
    """

    name = "bubblewrap"

    def __init__(self, key: bytes | None = None, packages: Sequence[str] | None = None) -> None:
        super().__init__(key)
        program = shutil.which("bwrap")
        if sys.platform != "linux":
            raise SandboxUnavailableError("bubblewrap works on Linux only: use MontyExecutor()")
        if program is None:
            raise SandboxUnavailableError(f"the program bwrap is not on PATH. {_INSTALL}, or use MontyExecutor()")
        if platform.machine() not in MACHINES:
            raise SandboxUnavailableError(
                f"bubblewrap has no system call filter for {platform.machine()} (only {', '.join(MACHINES)}): "
                "take MontyExecutor()"
            )
        self._program = program
        self._files_of = _files_of(packages)
        self._packages = [name for name in (packages or _DEFAULT_PACKAGES) if _found(name) is not None]

    @property
    def hints(self) -> str:
        """Abilities and limits of the code, for the prompt."""
        packages = f" and {', '.join(self._packages)}" if self._packages else ""
        return (
            f"The code runs in a sandbox with Python {self.version}: the standard library{packages}. There is no "
            "network, no environment and no starting of processes; files can be written in /tmp only (64 MB) and are "
            f"gone with the session.\n{PYTHON_HINTS}"
        )

    def launch(self) -> Launch:
        """Return the command of bubblewrap; the filter and bubblewrap's report go through pipes."""
        filter_end, filter_start = os.pipe()
        info_end, info_start = os.pipe()
        os.write(filter_start, seccomp_filter(platform.machine()))
        os.close(filter_start)

        def close() -> None:
            for number in (filter_end, info_end, info_start):
                with contextlib.suppress(OSError):
                    os.close(number)

        def started() -> int | None:
            # The report was written before the interpreter started, so it is complete.
            report: dict[str, int] = json.loads(os.read(info_end, 4096))
            return report["child-pid"]

        command = [self._program, *_SHUT, *_system(), *self._mounted_packages(), *_read_only()]
        command += ["--seccomp", str(filter_end), "--info-fd", str(info_start), "--", *_interpreter()]
        return Launch(
            command,
            # On some systems bubblewrap's own process is visible inside: it gets no environment either.
            env={},
            path=["/packages"],
            pass_fds=[filter_end, info_start],
            started=started,
            close=close,
            help=f"{_INSTALL}. {_NAMESPACES}.",
        )

    def _mounted_packages(self) -> list[str]:
        options = ["--dir", "/packages"]
        for entry in self._files_of:
            options += ["--ro-bind", str(entry), f"/packages/{entry.name}"]
        return options


_SHUT = [
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"),
    *("--uid", _NOBODY, "--gid", _NOBODY, "--hostname", "sandbox", "--clearenv"),
]


def _system() -> list[str]:
    """Return the mounts of the machine: /usr, the usual links to libraries, and the interpreter, without /proc.

    A process of root without capabilities can still write to /proc/sys, which bubblewrap does not cover.
    """
    options = ["--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib64", "lib32"):
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    cache = Path("/etc/ld.so.cache")
    if cache.exists():
        options += ["--ro-bind", str(cache), str(cache)]
    for name in _DEVICES:
        options += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    if not _in_usr():
        # A neutral path that reveals nothing of the machine. Packages beside the interpreter stay outside.
        options += ["--ro-bind", sys.base_prefix, "/python"]
        packages = Path(sysconfig.get_path("purelib", vars={"base": sys.base_prefix, "platbase": sys.base_prefix}))
        if packages.is_dir():
            options += ["--tmpfs", f"/python/{packages.relative_to(sys.base_prefix)}"]
            options += ["--remount-ro", f"/python/{packages.relative_to(sys.base_prefix)}"]
        options += ["--setenv", "PYTHONHOME", "/python", "--setenv", "LD_LIBRARY_PATH", "/python/lib"]
    return [*options, "--ro-bind", str(WORKER), "/worker.py"]


def _read_only() -> list[str]:
    variables = {
        "HOME": "/tmp",  # noqa: S108 - inside the sandbox
        "LANG": "C.UTF-8",
        "OPENBLAS_NUM_THREADS": "1",
        # Sets must have the same order when snippets run again.
        "PYTHONHASHSEED": "0",
        "TZ": "UTC",
    }
    options = ["--size", str(_TEMPORARY_BYTES), "--tmpfs", "/tmp", "--chdir", "/tmp"]  # noqa: S108
    for name, value in variables.items():
        options += ["--setenv", name, value]
    # The root is also a temporary file system, without a size limit.
    return [*options, "--remount-ro", "/"]


def _in_usr() -> bool:
    return Path(sys.base_prefix).is_relative_to("/usr")


def _interpreter() -> list[str]:
    program = Path(sys.executable).resolve()
    if not _in_usr():
        program = "/python" / program.relative_to(Path(sys.base_prefix).resolve())
    return [str(program), "-P", "-s", "-S", "-B", "-u", "/worker.py"]


def _found(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _files_of(packages: Sequence[str] | None) -> list[Path]:
    missing = [name for name in packages or () if _found(name) is None]
    if missing:
        raise ValueError(f"packages={missing!r}: not installed here: pip install {' '.join(missing)}")
    waiting = list(_DEFAULT_PACKAGES if packages is None else packages)
    seen: set[str] = set()
    entries: dict[str, Path] = {}
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        found = None if name in seen else _found(name)
        seen.add(name)
        if found is None:
            continue
        for file in found.files or ():
            top = file.parts[0]
            if top not in {"..", "__pycache__"} and not top.endswith(".pth"):
                entries[top] = Path(str(found.locate_file(top)))
        for requirement in found.requires or ():
            match = _REQUIREMENT.match(requirement)
            if match is not None and "extra ==" not in requirement:
                waiting.append(match[0])
    return [path for _, path in sorted(entries.items()) if path.exists()]
