"""Code without a sandbox, for trusted code only."""

import os
import sys
import threading

from batonflow.tools.code.process import PYTHON_HINTS, WORKER, Launch, ProcessExecutor

__all__ = ["UnsafeLocalExecutor"]


class UnsafeLocalExecutor(ProcessExecutor):
    """Executor in a separate Python **with all rights of this process**: files, network, environment, commands.

    It is never the default. The code cannot reach objects of this process. Limits of time, memory and output protect
    against mistakes, not against malicious code.

    Args:
        key: The signing key of snapshots, 16 bytes or more.

    Example:
        >>> session = await UnsafeLocalExecutor().open()
    """

    name = "unsafe_local"

    @property
    def hints(self) -> str:
        """Abilities and limits of the code, for the prompt."""
        return f"The code runs in Python {self.version} with everything that is installed.\n{PYTHON_HINTS}"

    def launch(self) -> Launch:
        """Return the command of this interpreter, with this process's environment."""
        # A fixed hash seed, so that sets have the same order when snippets run again.
        env = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-P", "-B", "-u", str(WORKER)]
        # Linux ends the child with the thread that started it, so this is possible only from the main thread.
        in_main = threading.current_thread() is threading.main_thread()
        return Launch(command, env, dies_with_host=sys.platform == "linux" and in_main)
