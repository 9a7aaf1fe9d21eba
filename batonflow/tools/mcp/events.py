"""What a run tells of MCP calls, and what it asks a person because of them."""

from typing import Any, Literal

from pydantic import Field

from batonflow.workflow_core.events import Event, HumanResponseEvent, InputRequiredEvent

__all__ = [
    "MCPElicitation",
    "MCPElicitationResponse",
    "MCPProgress",
    "MCPToolChanged",
    "MCPToolChangedResponse",
]


class MCPProgress(Event):
    """How far a call has come; on the stream of the run whose step makes the call.

    Attributes:
        tool: The tool's name, with its namespace.
        progress: A number that grows.
        total: The number at the end, None when the server does not know.
        message: What the server says it is doing.
    """

    tool: str
    progress: float
    total: float | None = None
    message: str | None = None


class MCPElicitation(InputRequiredEvent):
    """A server asks a person for something that it needs to go on with a call.

    Attributes:
        id: Names the question within its run; the answer carries it.
        server: Namespace of the server that asks.
        tool: Name of the tool that asks, with its namespace; None when the server does not say which of several it is.
        tools: Names of the tools that may be asking, in the order in which they were called.
        message: The question.
        requested_schema: JSON schema of the answer's content; None for a question that sends the person to an address.
        url: That address. It is the server's: show it, and let the person decide.
        problem: What was wrong with an earlier answer, None otherwise.
    """

    id: str
    server: str
    tool: str | None
    tools: list[str] = Field(default_factory=list[str])
    message: str
    requested_schema: dict[str, Any] | None = None
    url: str | None = None
    problem: str | None = None


class MCPElicitationResponse(HumanResponseEvent):
    """A person's answer to an :class:`MCPElicitation`.

    Attributes:
        id: Of the question.
        action: Accept it, decline to answer, or leave without a decision.
        content: What was asked for, when accepted; checked against the schema, and asked again if it does not fit.
    """

    id: str
    action: Literal["accept", "decline", "cancel"] = "accept"
    content: dict[str, Any] | None = None


class MCPToolChanged(InputRequiredEvent):
    """A call waits for consent, because the tool is not what it was when it was pinned.

    Attributes:
        id: Names the question within its run; the answer carries it.
        server: Namespace of the server.
        tool: The tool's name, with its namespace.
        difference: What changed, line by line.
        digest: Of the new definition; the answer carries it, so that it can be used for no other.
    """

    id: str
    server: str
    tool: str
    difference: str
    digest: str


class MCPToolChangedResponse(HumanResponseEvent):
    """A person's answer to an :class:`MCPToolChanged`.

    Attributes:
        id: Of the question.
        digest: Of the question.
        accepted: Whether the tool may be used as it is now; it is then pinned anew.
    """

    id: str
    digest: str
    accepted: bool
