"""Events of MCP calls: progress, and questions to people."""

from typing import Any, Literal

from pydantic import Field

from batonflow.workflow_core.events import Event, HumanResponseEvent, InputRequiredEvent

__all__ = ["MCPElicitation", "MCPElicitationResponse", "MCPProgress", "MCPToolChanged", "MCPToolChangedResponse"]


class MCPProgress(Event):
    """Progress of a call, on the stream of the run whose step makes it.

    Attributes:
        tool: The tool's name, with its namespace.
        progress: A number that grows.
        total: The final number; None if the server does not know it.
        message: The server's description of its work.
    """

    tool: str
    progress: float
    total: float | None = None
    message: str | None = None


class MCPElicitation(InputRequiredEvent):
    """Question of a server to a person, needed to continue a call.

    Attributes:
        id: Unique within the run; the answer repeats it.
        server: Namespace of the server.
        tool: Name of the asking tool, with its namespace; None if several tools may be asking.
        tools: Names of the tools that may be asking, in the order in which they were called.
        message: The question.
        requested_schema: JSON schema of the answer's content; None for a question with an address.
        url: An address of the server, to be shown: the person decides about visiting it.
        problem: The problem of an earlier answer, or None.
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
    """Answer of a person to an :class:`MCPElicitation`.

    Attributes:
        id: The id of the question.
        action: Accept it, decline to answer, or leave without a decision.
        content: The requested values, if accepted. Values that do not fit the schema are asked for again.
    """

    id: str
    action: Literal["accept", "decline", "cancel"] = "accept"
    content: dict[str, Any] | None = None


class MCPToolChanged(InputRequiredEvent):
    """Request for consent to a tool that differs from its pin.

    Attributes:
        id: Unique within the run; the answer repeats it.
        server: Namespace of the server.
        tool: The tool's name, with its namespace.
        difference: The changes, line by line.
        digest: Digest of the new definition; the answer repeats it, so that it fits no other definition.
    """

    id: str
    server: str
    tool: str
    difference: str
    digest: str


class MCPToolChangedResponse(HumanResponseEvent):
    """Answer of a person to an :class:`MCPToolChanged`.

    Attributes:
        id: The id of the question.
        digest: The digest of the question.
        accepted: True to use the changed tool; its new definition is then pinned.
    """

    id: str
    digest: str
    accepted: bool
