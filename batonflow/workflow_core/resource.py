"""Resources of steps, where programs import them from: the path leads to ``batonflow.resources``."""

from batonflow.resources import *  # noqa: F403 - all public names
