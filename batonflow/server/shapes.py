"""Bodies of requests and answers."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "AnswerBody",
    "CancelAnswer",
    "ChangedCall",
    "ChatsAnswer",
    "EnqueueBody",
    "Envelope",
    "EventsAnswer",
    "FleetAnswer",
    "ForkBody",
    "HandlerData",
    "HandlersAnswer",
    "HealthAnswer",
    "InboxAnswer",
    "InboxRequest",
    "PendingAnswer",
    "PendingRequest",
    "Phase",
    "Problem",
    "QueueData",
    "RepresentationAnswer",
    "RunBody",
    "SchemaAnswer",
    "SendBody",
    "SentAnswer",
    "SessionData",
    "SessionForkBody",
    "SessionsAnswer",
    "StateAnswer",
    "Status",
    "Tokens",
    "TraceAnswer",
    "TurnData",
    "TurnsAnswer",
    "UnreadableRun",
    "WorkerData",
    "WorkflowsAnswer",
]

Status = Literal["running", "completed", "failed", "cancelled"]
Phase = Literal["running", "ready", "waiting", "held", "completed", "failed", "cancelled"]


class _Body(BaseModel):
    # Unknown fields are ignored, so that newer clients can talk to older servers.
    model_config = ConfigDict(extra="ignore", strict=True)


class Envelope(BaseModel):
    """An event in the form for readers.

    Attributes:
        value: Its fields.
        qualified_name: Module and name of its class, with LlamaIndex's path for built-in events; null unless the reader
            requests it.
        type: Name of its class.
        types: Names of the event classes above it, without ``Event``, or null.
        seq: Its place in the stream.
        ts: Wall-clock seconds of its creation.
        step: The step that wrote it, empty for the engine.
        path: The workflow in the tree, empty for the run itself.
        cause: Number of the delivery that wrote it, null for the engine.
        commit: Number of the commit that holds it, null while it is unknown.
        of: For a piece of an answer in its lean form: place of the first piece.
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
    of: int | None = None


class Tokens(BaseModel):
    """Tokens that a run used."""

    input: int
    output: int


class HandlerData(BaseModel):
    """A run. Times are ISO 8601; ``handler_id`` and ``run_id`` are the same.

    Attributes:
        phase: The status, in which ``ready``, ``waiting`` and ``held`` differ from ``running``.
        waiting: A person or another event from outside is awaited.
        live: The run is in the memory of this process.
        owner: The driver: this server, another process, or nobody.
        worker: The name of the worker that drives it.
        held: The reason why the run is not taken up again.
        commits: Number of the last commit.
        forked_from: Run and commit of the fork.
        session: The session of which the run is a turn.
        metadata: The metadata of the run.
        cost: Cost of models: of the result, or so far for an unfinished run.
        tokens: Tokens of models: of the result, or so far for an unfinished run.
        error: Text of its error.
        error_type: Class of its error.
    """

    handler_id: str
    workflow_name: str
    run_id: str | None
    error: str | None
    result: Envelope | None
    result_unreadable: bool = False
    status: Status
    phase: Phase
    started_at: str
    updated_at: str | None
    completed_at: str | None
    waiting: bool
    live: bool
    owner: Literal["this", "other"] | None
    worker: str | None = None
    held: str | None = None
    commits: int
    forked_from: tuple[str, int] | None
    session: str | None = None
    metadata: dict[str, str] = {}
    cost: float | None
    tokens: Tokens | None
    error_type: str | None


class HandlersAnswer(BaseModel):
    """Runs.

    Attributes:
        next: The value of ``after`` for the next page.
        unread: The number of runs that a search could not consider yet, because the index of the store is being made.
    """

    handlers: list[HandlerData]
    next: str | None
    unread: int


class WorkerData(BaseModel):
    """A worker. Times are in wall-clock seconds.

    Attributes:
        workflows: The runs that it takes up: `shop` for all versions, `shop@2` for one, `shop@` for runs without one.
        queues: Its queues; null for all.
        runs: The number of runs that it drives.
        slots: The largest number of runs in its memory.
        since: The time of its first sign of life.
        seen_at: The time of its last sign of life.
    """

    name: str
    host: str
    pid: int
    workflows: list[str]
    queues: list[str] | None
    runs: int
    slots: int
    state: Literal["working", "draining", "silent", "ended"]
    since: float
    seen_at: float


class QueueData(BaseModel):
    """The unfinished runs of one queue, workflow and version.

    Attributes:
        ready: The number of runs that may be taken up.
        later: The number of runs that may be taken up at a later time.
        held: The number of runs that are passed over.
        oldest: The longest time in seconds since which a run is ready.
        workers: The number of workers that take up these runs.
        left: Whether runs are ready that no worker takes up.
    """

    queue: str
    workflow: str
    version: str | None
    ready: int
    later: int
    running: int
    waiting: int
    held: int
    oldest: float | None
    workers: int
    left: bool


class FleetAnswer(BaseModel):
    """The workers of all stores, and the unfinished runs."""

    workers: list[WorkerData]
    queues: list[QueueData]


class HealthAnswer(BaseModel):
    """Health of the server."""

    status: Literal["healthy", "unhealthy"]


class WorkflowsAnswer(BaseModel):
    """Names of the workflows."""

    workflows: list[str]


class SchemaAnswer(BaseModel):
    """JSON schemas of the start and stop events of a workflow."""

    start: dict[str, Any]
    stop: dict[str, Any]


class EventsAnswer(BaseModel):
    """JSON schemas of the events that a workflow knows."""

    events: list[dict[str, Any]]


class RepresentationAnswer(BaseModel):
    """The event graph of a workflow, and its drawing."""

    graph: dict[str, Any]
    svg: str


class RunBody(_Body):
    """Start of a run.

    Attributes:
        start_event: The fields of the start event, or ``{"type": …, "value": {…}}``, or one of these as JSON text.
        kwargs: The fields of the start event, instead of ``start_event``.
        handler_id: Id of the run; generated when left out.
        context: A snapshot to continue from, if the server accepts them.
        session: The session of an agent of which the run is a turn, if the server accepts sessions.
        request_id: The id of the message; a repeated message gets the same run.
        if_busy: The action for a message whose session is busy with another turn.
        metadata: Texts to find the run by, if the server accepts sessions.
    """

    # Extra fields are kept for an error message: they may be misplaced fields of the start event.
    model_config = ConfigDict(extra="allow", strict=True)

    start_event: dict[str, Any] | str | None = None
    kwargs: dict[str, Any] | None = None
    handler_id: str | None = Field(default=None, max_length=200)
    context: dict[str, Any] | None = None
    session: str | None = None
    request_id: str | None = None
    if_busy: Literal["raise", "wait", "cancel"] = "raise"
    metadata: dict[str, str] | None = None


class EnqueueBody(_Body):
    """A run for whichever process takes it up.

    Attributes:
        workflow: The name of the workflow.
        start_event: The fields of the start event, or ``{"type": …, "value": {…}}``, or one of these as JSON text.
        handler_id: Id of the run; generated when left out.
        queue: The queue of the run.
        priority: Ready runs with a larger number are taken up first; from -1000 to 1000.
        not_before: The time before which nobody takes the run up, in ISO 8601.
    """

    workflow: str
    start_event: dict[str, Any] | str | None = None
    handler_id: str | None = Field(default=None, max_length=200)
    queue: str | None = None
    priority: int = 0
    not_before: str | None = None


class SessionForkBody(_Body):
    """A branch of a session.

    Attributes:
        session: The session.
        new_name: The name of the new session.
        at_turn: The number of the last turn of both; by default the last turn that is over.
    """

    session: str
    new_name: str
    at_turn: int | None = Field(default=None, ge=1, le=2**53)


class ChatsAnswer(BaseModel):
    """Names of the agents with sessions that clients may use."""

    chats: list[str]


class SessionData(BaseModel):
    """A session: its name, its number of turns, its times, and the run of the turn under way."""

    name: str
    turns: int
    created_at: str
    updated_at: str
    running: str | None


class SessionsAnswer(BaseModel):
    """The sessions of an agent, the latest first."""

    sessions: list[SessionData]


class TurnData(BaseModel):
    """A turn of a session; one under way has no messages yet, and ``user_msg`` alone.

    Attributes:
        first_agent: The agent that begins it.
        last_agent: The agent that acts at its end; another one if a team has handed over.
    """

    number: int
    run_id: str
    status: Status
    started_at: str
    ended_at: str | None
    user_msg: dict[str, Any] | None
    messages: list[dict[str, Any]]
    usage: dict[str, Any] | None
    error: str | None
    first_agent: str
    last_agent: str


class TurnsAnswer(BaseModel):
    """The turns of a session, the oldest first."""

    turns: list[TurnData]


class SendBody(_Body):
    """An event for a run.

    Attributes:
        event: ``{"type": …, "value": {…}}``, or the same as JSON text.
        step: The only step that receives it.
    """

    event: dict[str, Any] | str
    step: str | None = None


class SentAnswer(BaseModel):
    """The event is stored: the run will receive it, even if this process ends."""

    status: Literal["sent"]


class CancelAnswer(BaseModel):
    """The status of the run; ``cancelling`` until the process that drives it reacts."""

    status: Literal["cancelled", "cancelling", "deleted"]


class TraceAnswer(BaseModel):
    """Records of a run.

    Attributes:
        entries: Entries of ``durable.trace``.
        next: Number of the commit to pass as ``after``.
        more: True if more entries exist already.
        status: The status of the run.
        parts: Messages and tools of the calls, if the request asks for them; the calls hold their indexes.
    """

    entries: list[dict[str, Any]]
    next: int
    more: bool
    status: Status
    parts: list[Any] | None = None


class StateAnswer(BaseModel):
    """The state of a run after a commit: dotted path -> value; attached workflows have their own paths."""

    commit: int
    state: dict[str, Any]
    children: dict[str, dict[str, Any]]


class PendingRequest(BaseModel):
    """An open question.

    Attributes:
        id: Unique within its run.
        event: The question.
        response_schema: Sent as ``schema``: JSON Schema of the answer's fields that are not filled in.
        response_type: Name of the class of the answer.
        filled: Fields of the answer that are filled in.
        path: The asking workflow in the tree.
        kind: ``"approval"`` for the approval of a tool call, otherwise ``"input"``.
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


class InboxRequest(PendingRequest):
    """An open question with its run; ``started_at`` is ISO 8601."""

    handler_id: str
    workflow_name: str
    started_at: str
    session: str | None
    metadata: dict[str, str]


class UnreadableRun(BaseModel):
    """A run whose questions cannot be read, with the reason."""

    handler_id: str
    detail: str


class InboxAnswer(BaseModel):
    """The open questions of all runs, newest run first. ``more`` tells of runs that were not looked at.

    ``unserved`` counts the waiting runs of workflows that the server does not have.
    """

    pending: list[InboxRequest]
    unreadable: list[UnreadableRun]
    unserved: dict[str, int]
    more: bool


class AnswerBody(_Body):
    """The answer to a question: its fields, without the ones that are filled in."""

    response: dict[str, Any]


class ChangedCall(_Body):
    """A call of an agent's model that a fork makes again, with changes of its request.

    Attributes:
        record: The ``id`` of the entry of the trace with the call.
        index: The place among the calls of the entry.
        messages: Other texts for messages by their places in the call, from 0 on; null leaves a message out.
        llm: The name of the model of the fork, such as ``"openai:gpt-5.6"``.
        options: Options of the requests for the next steps of agents, such as ``temperature``, under the vendor's
            names; null takes one out.
        ask_before_tools: Whether a person must approve each tool call of the fork.
    """

    model_config = ConfigDict(extra="forbid", strict=True)  # a mistyped name would ask a model without its change

    record: int = Field(ge=1, le=2**53)
    index: int = Field(default=0, ge=0, le=2**53)
    messages: dict[Annotated[int, Field(ge=0, strict=False)], str | None] = Field(default_factory=dict[int, str | None])
    llm: str | None = Field(default=None, max_length=200)
    options: dict[str, Any] = Field(default_factory=dict)
    ask_before_tools: bool = True


class ForkBody(_Body):
    """A fork of a run.

    Attributes:
        at: Number of the last shared commit; left out with ``call``.
        state: Values for the state: dotted path -> value.
        event: Sent to the new run, ``{"type": …, "value": {…}}``.
        new_id: Id of the new run; generated when left out.
        call: A call of a model to make again, with changes; the fork begins with the last commit before it.
    """

    at: int | None = Field(default=None, ge=1, le=2**53)
    state: dict[str, Any] | None = None
    event: dict[str, Any] | str | None = None
    new_id: str | None = Field(default=None, max_length=200)
    call: ChangedCall | None = None

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        if (self.at is None) == (self.call is None):
            raise ValueError("give either at, the number of a commit, or call, a call of a model")
        return self


class Problem(BaseModel):
    """The problem, as text, or as a list of problems with ``loc`` and ``msg``."""

    detail: str | list[dict[str, Any]]
