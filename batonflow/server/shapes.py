"""What goes over the wire: the bodies of requests and answers."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "AnswerBody",
    "CancelAnswer",
    "Envelope",
    "EventsAnswer",
    "ForkBody",
    "HandlerData",
    "HandlersAnswer",
    "HealthAnswer",
    "PendingAnswer",
    "PendingRequest",
    "Problem",
    "RepresentationAnswer",
    "RunBody",
    "SchemaAnswer",
    "SendBody",
    "SentAnswer",
    "StateAnswer",
    "Status",
    "Tokens",
    "TraceAnswer",
    "WorkflowsAnswer",
]

Status = Literal["running", "completed", "failed", "cancelled"]


class _Body(BaseModel):
    # What clients send besides is passed over, so that newer ones can talk to older servers.
    model_config = ConfigDict(extra="ignore", strict=True)


class Envelope(BaseModel):
    """An event as readers get it.

    Attributes:
        value: Its fields.
        qualified_name: Module and name of its class, of built-in events those of LlamaIndex; null when the reader did
            not want it.
        type: Name of its class.
        types: Names of the event classes above it, without ``Event``; null when there are none.
        seq: Its place in the stream.
        ts: When it was written, in wall-clock seconds.
        step: The step that wrote it, empty for the engine.
        path: Which workflow of the tree, empty for the run itself.
        cause: Number of the delivery that wrote it, null for the engine.
        commit: Number of the commit that holds it, null while that is not known.
    """

    value: dict[str, Any]
    qualified_name: str | None
    type: str
    types: list[str] | None
    seq: int | None = None
    ts: float | None = None
    step: str = ""
    path: str = ""
    cause: int | None = None
    commit: int | None = None


class Tokens(BaseModel):
    """Tokens of models that a run used."""

    input: int
    output: int


class HandlerData(BaseModel):
    """A run. Times are ISO 8601; ``handler_id`` and ``run_id`` are the same.

    Attributes:
        waiting: A person or another event from outside is awaited.
        live: The run is in the memory of this process.
        owner: Who drives it: this server, another process, or nobody.
        commits: Number of the last commit.
        forked_from: Run and commit that it branched off from.
        cost: Of the models, as the result tells it; of a run that goes on, so far.
        tokens: Of the models, as the result tells it; of a run that goes on, so far.
        error: Text of what it failed with.
        error_type: Class of that.
    """

    handler_id: str
    workflow_name: str
    run_id: str | None
    error: str | None
    result: Envelope | None
    result_unreadable: bool = False
    status: Status
    started_at: str
    updated_at: str | None
    completed_at: str | None
    waiting: bool
    live: bool
    owner: Literal["this", "other"] | None
    commits: int
    forked_from: tuple[str, int] | None
    cost: float | None
    tokens: Tokens | None
    error_type: str | None


class HandlersAnswer(BaseModel):
    """Runs; ``next`` is to be passed as ``after`` when there are more."""

    handlers: list[HandlerData]
    next: str | None


class HealthAnswer(BaseModel):
    """Whether the server runs workflows."""

    status: Literal["healthy", "unhealthy"]


class WorkflowsAnswer(BaseModel):
    """Names of the workflows."""

    workflows: list[str]


class SchemaAnswer(BaseModel):
    """JSON Schemas of the events that a workflow starts and ends with."""

    start: dict[str, Any]
    stop: dict[str, Any]


class EventsAnswer(BaseModel):
    """JSON Schemas of the events that a workflow knows."""

    events: list[dict[str, Any]]


class RepresentationAnswer(BaseModel):
    """The event graph of a workflow, and a drawing of it."""

    graph: dict[str, Any]
    svg: str


class RunBody(_Body):
    """How a run begins.

    Attributes:
        start_event: The fields of the start event, or ``{"type": …, "value": {…}}``, or either as JSON text.
        kwargs: The fields of the start event, instead of ``start_event``.
        handler_id: Id of the run; one of its own when left out.
        context: A snapshot to go on with, where the server takes such.
    """

    # The others are looked at when there is no start event: they may have been meant for it.
    model_config = ConfigDict(extra="allow", strict=True)

    start_event: dict[str, Any] | str | None = None
    kwargs: dict[str, Any] | None = None
    handler_id: str | None = Field(default=None, max_length=200)
    context: dict[str, Any] | None = None


class SendBody(_Body):
    """An event for a run.

    Attributes:
        event: ``{"type": …, "value": {…}}``, or that as JSON text.
        step: The only step that it goes to.
    """

    event: dict[str, Any] | str
    step: str | None = None


class SentAnswer(BaseModel):
    """The event is safe: the run will have it, also when this process ends."""

    status: Literal["sent"]


class CancelAnswer(BaseModel):
    """What became of the run; one that is ``cancelling`` goes on until whoever drives it hears of it."""

    status: Literal["cancelled", "cancelling", "deleted"]


class TraceAnswer(BaseModel):
    """What a run did, record by record.

    Attributes:
        entries: As ``workflow_core.trace`` tells them.
        next: Number of the commit to pass as ``after``.
        more: Whether there is more already.
        status: Where the run stands.
    """

    entries: list[dict[str, Any]]
    next: int
    more: bool
    status: Status


class StateAnswer(BaseModel):
    """The key-value state of a run after a commit: dotted path -> value; of attached workflows, by their path."""

    commit: int
    state: dict[str, Any]
    children: dict[str, dict[str, Any]]


class PendingRequest(BaseModel):
    """An open question.

    Attributes:
        id: Names it within its run.
        event: The question.
        response_schema: Sent as ``schema``: JSON Schema of the answer's fields that are not filled in.
        response_type: Name of the class of the answer.
        filled: Fields of the answer that are filled in.
        path: Which workflow of the tree asks.
        kind: Whether it asks for leave to do something.
    """

    id: str
    event: Envelope
    response_schema: dict[str, Any] = Field(alias="schema")
    response_type: str
    filled: dict[str, Any]
    path: str
    kind: Literal["input", "approval"]


class PendingAnswer(BaseModel):
    """The open questions of a run."""

    pending: list[PendingRequest]


class AnswerBody(_Body):
    """The answer to a question: its fields, without those that are filled in."""

    response: dict[str, Any]


class ForkBody(_Body):
    """Where and how a run branches off.

    Attributes:
        at: Number of the last commit that both have.
        state: Values to put into the state: dotted path -> value.
        event: Sent to the new run, ``{"type": …, "value": {…}}``.
        new_id: Id of the new run; one of its own when left out.
    """

    at: int = Field(ge=1, le=2**53)
    state: dict[str, Any] | None = None
    event: dict[str, Any] | str | None = None
    new_id: str | None = Field(default=None, max_length=200)


class Problem(BaseModel):
    """What is wrong, as text, or as a list of problems with ``loc`` and ``msg``."""

    detail: str | list[dict[str, Any]]
