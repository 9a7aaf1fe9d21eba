"""What attacks are after, and the traces they leave: secrets, a file, listeners, a process."""

import resource
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["World", "world"]

_LIMIT = 50


@dataclass
class World:
    folder: Path
    victim: subprocess.Popen[bytes]
    listeners: list[socket.socket]
    abstract: str
    secrets: dict[str, str]

    @property
    def file(self) -> Path:
        return self.folder / "secret.py"

    @property
    def marker(self) -> Path:
        return self.folder / "marker"

    def code(self, code: str) -> str:
        tcp, udp, _ = self.listeners
        values = {
            "@FILE@": self.file,
            "@MARKER@": self.marker,
            "@FOLDER@": self.folder,
            "@PORT@": tcp.getsockname()[1],
            "@UDP@": udp.getsockname()[1],
            "@ABSTRACT@": self.abstract,
            "@VICTIM@": self.victim.pid,
        }
        for name, value in values.items():
            code = code.replace(name, str(value))
        return code

    def traces(self, said: str) -> list[str]:
        """Everything that shows that an attack got through; ``said`` is all that came out of it."""
        found = [f"the secret of the {name}" for name, secret in self.secrets.items() if secret in said]
        found += ["a way out"] if "way out" in said and "'way out'" not in said and '"way out"' not in said else []
        found += ["changed objects"] if "TAMPERED" in said else []
        found += ["a file made"] if self.marker.exists() else []
        found += [] if self.file.exists() else ["a file removed"]
        found += [f"listener {n} reached" for n, one in enumerate(self.listeners) if _reached(one)]
        if self.victim.poll() is not None:
            found.append("a process killed")
        elif resource.prlimit(self.victim.pid, resource.RLIMIT_NOFILE)[0] != _LIMIT:
            found.append("limits of a process changed")
        return found


def _reached(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_DGRAM:
            return bool(listener.recv(10))
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Secrets in a file, in the environment of a process, and listeners that note who comes."""
    hidden = {name: secrets.token_hex(16) for name in ("file", "environment", "variable", "other process")}
    abstract = f"batonflow-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        listeners = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)),
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
            stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)),
        ]
        listeners[0].bind(("127.0.0.1", 0))
        listeners[1].bind(("127.0.0.1", 0))
        listeners[2].bind(f"\0{abstract}")
        for one in listeners:
            one.setblocking(False)
            if one.type == socket.SOCK_STREAM:
                one.listen(5)
        victim = subprocess.Popen(["/bin/sleep", "600"], env={"CANARY": hidden["other process"]})
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        resource.prlimit(victim.pid, resource.RLIMIT_NOFILE, (_LIMIT, _LIMIT))
        here = World(folder, victim, listeners, abstract, hidden)
        here.file.write_text(f'IN_A_FILE = "{hidden["file"]}"\n')
        here.file.chmod(0o600)
        yield here
