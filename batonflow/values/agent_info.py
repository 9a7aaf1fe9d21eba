"""AgentInfo: the agent that acts in a run, for tools, instructions, toolsets and middleware."""

from typing import NamedTuple, Protocol

__all__ = ["AgentInfo", "UsageSoFar"]


class UsageSoFar(Protocol):
    """The tokens of the requests of a run and their cost, as ``batonflow.llms.Usage``."""

    @property
    def input_tokens(self) -> int:
        """All input tokens."""
        ...

    @property
    def output_tokens(self) -> int:
        """All output tokens."""
        ...

    @property
    def cached_tokens(self) -> int:
        """The input tokens read from the vendor's cache."""
        ...

    @property
    def total_tokens(self) -> int:
        """Input and output tokens."""
        ...

    @property
    def cost(self) -> float | None:
        """US dollars; None when the price of a model is unknown."""
        ...


class AgentInfo(NamedTuple):
    """The agent that acts in a run, as ``ctx.agent``.

    Args:
        name: The name of the agent; in a team, of the member that acts.
        turn: The number of the turn in its session; 1 without a session.
        session: The name of the session; an empty text without one.
        usage: The usage of the run so far, of all agents.
        max_iterations: The number of answers that the models may give in the run.

    Example:
        >>> async def search(ctx: Context, text: str) -> str:
        ...     "Search."
        ...     print(ctx.agent.name, ctx.agent.usage.total_tokens)
    """

    name: str
    turn: int
    session: str
    usage: UsageSoFar
    max_iterations: int
