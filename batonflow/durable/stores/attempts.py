"""Attempts at a run: the pause after a lost owner, and the words for a held run."""

from zlib import crc32

__all__ = ["SUSPECT_ATTEMPTS", "held_words", "pause_after"]

LONGEST_PAUSE = 300.0
SUSPECT_ATTEMPTS = 2
"""A run with so many attempts may have ended its owners."""


def pause_after(attempts: int, run_id: str) -> float:
    """Return the seconds until a run may be claimed again: 0, then 1, 2, 4 and so on.

    All but the first are up to twice as long, by the id of the run, so that suspects seldom wait for each other.

    Args:
        attempts: The number of owners that have ended or lost their lease since the last commit.
        run_id: The run.
    """
    spread = crc32(f"{run_id} {attempts}".encode()) / 2**32
    return 0.0 if attempts <= 1 else min(LONGEST_PAUSE, 2.0 ** (attempts - 2) * (1 + spread))


def held_words(attempts: int, owner: str | None) -> str:
    """Return the reason for which a run is held.

    Args:
        attempts: The number of owners.
        owner: The last one.
    """
    return f"{attempts} attempts ended without a commit, the last one of {owner or 'an unknown owner'}"
