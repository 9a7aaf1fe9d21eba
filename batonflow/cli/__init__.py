"""The command ``batonflow``: run, watch, answer, draw, check and serve workflows and agents from a shell.

``batonflow --help`` loads nothing but the standard library; each command loads what it needs.
"""

from batonflow.cli.program import main

__all__ = ["main"]
