"""The runtime of runs, where programs import it from: the path leads to ``batonflow.runtime``."""

from batonflow.runtime import *  # noqa: F403 - all public names
