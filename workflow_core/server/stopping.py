"""Finds the uvicorn that serves an application: when it stops it waits for open streams, and tells nobody."""

import signal

import uvicorn

__all__ = ["uvicorn_here"]


def uvicorn_here() -> uvicorn.Server | None:
    """The uvicorn that listens to the signals of this process; None when there is none."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return server if isinstance(server, uvicorn.Server) else None
