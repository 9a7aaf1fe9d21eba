"""Code without a sandbox, for code one would run oneself."""

import os
import sys
import threading

from batonflow.tools.code.process import PYTHON_HINTS, WORKER, Launch, ProcessExecutor

__all__ = ["UnsafeLocalExecutor"]


class UnsafeLocalExecutor(ProcessExecutor):
    """Runs code in a Python of its own **with all rights of this process**: files, network, environment, commands.

    Nothing takes it by default. The code still cannot reach objects of this process, and time, memory and output are
    bounded against mistakes; against ill will they are not.

    Args:
        key: What snapshots are signed with, 16 bytes or more.

    Example:
        >>> session = await UnsafeLocalExecutor().open()
    """

    name = "unsafe_local"

    @property
    def hints(self) -> str:
        """What the code can and cannot do, for the prompt."""
        return f"The code runs in Python {self.version} with everything that is installed.\n{PYTHON_HINTS}"

    def launch(self) -> Launch:
        """This process's own interpreter, with this process's environment."""
        # Sets have the same order when snippets are run again.
        env = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-P", "-B", "-u", str(WORKER)]
        # Linux looks at the thread that starts it, and only the main one is there for as long as the process.
        in_main = threading.current_thread() is threading.main_thread()
        return Launch(command, env, dies_with_host=sys.platform == "linux" and in_main)
