"""The tools of the scripts, which count how often their bodies run."""

import asyncio
import re
from collections import Counter

from batonflow.tools import FunctionTool, tool

__all__ = ["Bodies"]


class Bodies:
    """The tools.

    Attributes:
        ran: How often a body ran, by the label it was given.
    """

    def __init__(self) -> None:
        self.ran = Counter[str]()

    def tools(self, patience: float) -> list[FunctionTool]:
        """The tools; a person has ``patience`` seconds where a request for approval expires."""
        ran = self.ran

        @tool
        async def look(label: str, pause: float = 0, times: int = 1) -> str:
            """Look at something."""
            ran[label] += times
            await asyncio.sleep(pause)
            return f"looked at {label}"

        @tool
        def count(label: str) -> str:
            """Count something."""
            ran[label] += 1
            return f"counted {label}"

        @tool
        async def fail(label: str) -> str:
            """Fail."""
            ran[label] += 1
            raise ValueError(f"no {label}")

        @tool
        async def dawdle(label: str, pause: float) -> str:
            """Take too long."""
            ran[label] += 1
            async with asyncio.timeout(pause):
                await asyncio.sleep(3600)
            return f"never {label}"

        @tool(requires_approval=True)
        async def publish(label: str, times: int = 1) -> str:
            """Publish something."""
            ran[label] += 1
            return f"published {label} {times}"

        @tool(requires_approval=True, approval_timeout=patience)
        async def publish_soon(label: str) -> str:
            """Publish something, soon or never."""
            ran[label] += 1
            return f"published {label}"

        @tool(return_direct=True)
        async def conclude(label: str) -> str:
            """Answer the question."""
            ran[label] += 1
            return f"concluded {label}"

        @tool(return_direct=True)
        async def conclude_badly(label: str) -> str:
            """Answer the question, and fail."""
            ran[label] += 1
            raise RuntimeError(f"no conclusion from {label}")

        return [look, count, fail, dawdle, publish, publish_soon, conclude, conclude_badly]

    def execute(self, code: str) -> str:
        """Run code, as far as the scripts write any."""
        said = re.search(r"'(\w+)'", code)
        assert said is not None, code
        self.ran[said[1]] += 1
        if code.startswith("raise"):
            raise ValueError(f"no value from {said[1]}")
        return f"printed {said[1]}"
