"""Ids of runs for requests without a session."""

import hashlib
import re
from typing import Any

__all__ = ["run_id_of_request"]

_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME = 60


def run_id_of_request(agent: Any, request_id: str) -> str:
    """Return the run id for a request of an agent. The same request has the same id in all processes."""
    named = f"{agent.__batonflow__.workflow_name}\n{agent.name}\n{request_id}"
    digest = hashlib.sha256(named.encode(errors="surrogatepass")).hexdigest()[:32]
    return f"request:{_NOT_ALLOWED.sub('-', agent.name)[:_LONGEST_NAME]}:{digest}"
