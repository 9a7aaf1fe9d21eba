"""A team whose process is killed at work, and that carries on in another process (`make demo`).

The team of `demo_team.py` runs in a process of its own, `demo_terminal.py`, which kills itself with SIGKILL while the
writer speaks. Another process carries on with the same run id. Nothing is published before you agree.

Without a key the agents have a scripted model; everything else is real. With OPENAI_API_KEY or ANTHROPIC_API_KEY set
(and OPENAI_BASE_URL, for servers that speak OpenAI's protocol) they ask that model instead.

    make demo                  the team at the terminal
    make demo ARGS=--page      the same, then the page
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

TERMINAL = str(Path(__file__).with_name("demo_terminal.py"))
COMMAND = os.path.relpath(Path(sys.executable).with_name("batonflow"))
SERVE = ["serve", f"{os.path.relpath(Path(__file__).with_name('demo_team.py'))}:make_team"]


def run_process(*arguments: str) -> int:
    """Run a process with this terminal, and return its exit code. A Ctrl-C reaches that process as well."""
    with subprocess.Popen([sys.executable, "-u", *arguments]) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue


def main(options: list[str]) -> int:
    """Run the team until a process lives to the end of the run, and lead to the page."""
    if options and options[0] != "--page":
        sys.exit(f"{options[0]}: the demo takes --page, and behind it the options of `batonflow serve`")
    run_id = uuid4().hex[:12]
    code = run_process(TERMINAL, run_id, "die")
    if code == -signal.SIGKILL:
        print("The process is gone. Another one carries on with the same run id.", flush=True)
        code = run_process(TERMINAL, run_id)
    if code:
        return code
    print("\nTo look at this run on a page, and to start others there:")
    print(f"  {COMMAND} {' '.join(SERVE)}")
    print(f"and open http://127.0.0.1:8080/#run={run_id}", flush=True)
    return run_process("-m", "batonflow", *SERVE, "--open", *options[1:]) if options else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
