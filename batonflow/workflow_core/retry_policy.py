"""Retry policies, where programs import them from: the path leads to ``batonflow.retry_policies``."""

from batonflow.retry_policies import *  # noqa: F403 - all public names
