"""Approvals: the question to a person before a tool runs, the answer, and the rules for both."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self
from weakref import WeakKeyDictionary

from pydantic import BeforeValidator, PrivateAttr

from batonflow.agents.arguments import as_given, as_sent, digest_of, holds_secret, is_same_data
from batonflow.agents.prompts import APPROVAL_DENIED, APPROVAL_EXPIRED, TOOL_NOT_REPEATED
from batonflow.clock import current_source
from batonflow.tools import AsyncBaseTool, ToolArgumentsError
from batonflow.tools.call import checked_arguments
from batonflow.tools.call import own as copy_containers
from batonflow.workflow_core import Context
from batonflow.workflow_core.errors import BatonflowError
from batonflow.workflow_core.events import HumanResponseEvent, InputRequiredEvent
from batonflow.workflow_core.inputs import open_requests

if TYPE_CHECKING:
    from batonflow.workflow_core.run import Run

__all__ = [
    "OTHER_ARGUMENTS",
    "Agreed",
    "ApprovalRequest",
    "ApprovalRequired",
    "ApprovalResponse",
    "ApprovalUsedError",
    "answer",
    "ask_for_approval",
    "open_approvals",
    "unapproved_calls",
]


Reason = Literal["policy", "unknown_outcome"]
"""The reason for asking a person: the tool's policy, or a call with an unknown outcome."""


class ApprovalUsedError(BatonflowError, RuntimeError):
    """The error for an approval that is not open: it was answered, has expired, or does not exist."""


class ApprovalRequired(InputRequiredEvent):
    """The question to a person whether a tool may run.

    Attributes:
        id: The id of the request within its run.
        tool_name: The tool.
        arguments: The arguments of the call.
        agent: The name of the agent that wants to call it.
        digest: The digest of tool and arguments, which binds an answer to the request.
        expires_at: Wall-clock seconds after which it counts as denied; None for never.
        reason: The reason for the question: the tool's policy, or a call with an unknown outcome.
        problem: The mistake in the arguments of an earlier answer, or None.
        tool_id: The model's id of the call, as in ``ToolCall`` and ``ToolCallResult``.
    """

    id: str
    tool_name: str
    arguments: dict[str, Any]
    agent: str
    digest: str
    expires_at: float | None = None
    reason: Reason = "policy"
    problem: str | None = None
    tool_id: str = ""


class ApprovalResponse(HumanResponseEvent):
    """The answer of a person to an :class:`ApprovalRequired`.

    Attributes:
        id: The id of the request.
        digest: The digest of the request.
        approved: Whether the tool may run.
        arguments: Arguments in place of the shown ones; they are checked again.
        reason: The reason for a denial, for the model.
    """

    id: str
    digest: str
    approved: bool
    arguments: dict[str, Any] | None = None
    reason: Annotated[str, BeforeValidator(lambda given: "" if given is None else given)] = ""
    # The arguments themselves, if no store keeps them as data; snapshots contain the data.
    _given: dict[str, Any] | None = PrivateAttr(default=None)

    def with_objects(self, arguments: dict[str, Any] | None) -> Self:
        """Return a copy with arguments that may be any objects while the response stays in memory."""
        self._given = arguments
        return self

    @property
    def given(self) -> dict[str, Any] | None:
        """The arguments as the person gave them."""
        return self.arguments if self._given is None else self._given


SAME_ARGUMENTS = "A call that was cut off is made again with the same arguments, or not at all."
OTHER_ARGUMENTS = "These are other arguments than those that were approved before: they have changed since."
_NOT_SHOWN = (
    "{name}: what is shown in the place of a secret is not the secret; give it anew, or leave {name} as it was."
)


class Agreed(NamedTuple):
    """The approval of a person.

    Attributes:
        arguments: The checked arguments to call with.
        edited: Whether they differ from the shown ones.
    """

    arguments: dict[str, Any]
    edited: bool = False


class OpenApprovals:
    """The open requests of one run."""

    def __init__(self) -> None:
        self.requests: dict[str, ApprovalRequired] = {}
        self._readers: set[asyncio.Event] = set()

    def add(self, request: ApprovalRequired) -> None:
        """Add a request, and notify readers unless they know it from before a release."""
        if self.requests.get(request.id) == request:
            return
        self.requests[request.id] = request
        for reader in self._readers:
            reader.set()

    def take(self, request_id: str) -> ApprovalRequired:
        """Take a request, so that it cannot be answered again.

        Raises:
            ApprovalUsedError: The request is not open.
        """
        request = self.requests.pop(request_id, None)
        if request is None:
            raise ApprovalUsedError(
                f"the approval {request_id!r} is not open: it was answered, has expired, or was never asked for"
            )
        return request

    async def read(self, ended: Awaitable[Any]) -> AsyncGenerator[ApprovalRequired, None]:
        """Yield each open request once, also later ones, until ``ended``."""
        # Compared by identity, because a later request may have the same id.
        news, seen, end = asyncio.Event(), dict[str, ApprovalRequired](), asyncio.ensure_future(ended)
        self._readers.add(news)
        try:
            while not end.done():
                for request in self._unseen(seen):
                    if self.requests.get(request.id) is request:  # still open after the earlier ones were read
                        seen[request.id] = request
                        yield request
                news.clear()
                if self._unseen(seen):
                    continue
                coming = asyncio.ensure_future(news.wait())
                try:
                    await asyncio.wait({coming, end}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    coming.cancel()
        finally:
            self._readers.discard(news)
            end.cancel()

    def _unseen(self, seen: Mapping[str, ApprovalRequired]) -> list[ApprovalRequired]:
        return [one for one in self.requests.values() if seen.get(one.id) is not one]


# By the root run, whose handler people use.
_open: "WeakKeyDictionary[Run, OpenApprovals]" = WeakKeyDictionary()


def open_approvals(run: "Run") -> OpenApprovals:
    """Return the open requests of the tree of a run."""
    return _open.setdefault(run.root, OpenApprovals())


def unapproved_calls(run: "Run") -> list[ApprovalRequired]:
    """Return the open approvals that the policies of tools require; these calls were not made."""
    asked = [waiter.question.event for _, waiter in run.root.waits() if waiter.question is not None]
    return [event for event in asked if isinstance(event, ApprovalRequired) and event.reason == "policy"]


def _named(ctx: Context[Any], call: str) -> str:
    """Return the name of a call in the tree of runs."""
    path = "" if ctx.run is None else ctx.run.path
    return f"{path}/{call}" if path else call


async def ask_for_approval(
    ctx: Context[Any],
    tool: AsyncBaseTool,
    arguments: dict[str, Any],
    *,
    call: str,
    tool_id: str,
    agent: str,
    sent: Mapping[str, Any] | None = None,
    begun: bool = False,
    reason: Reason = "policy",
    problem: str | None = None,
) -> Agreed | str:
    """Ask a person whether a tool may run, and wait for the answer.

    Args:
        ctx: The run's context, inside a step.
        tool: The tool.
        arguments: Its arguments, checked already.
        call: The name of the call within its run; it stays the same after a restore.
        tool_id: The model's id of the call.
        agent: The name of the agent.
        sent: The arguments before the check.
        begun: Whether the call began after an approval, so that it needs no other approval.
        reason: The reason for the question.
        problem: A note for the person.

    Returns:
        The approved arguments, or a text for the model.
    """
    attempt, call, shown = 1, _named(ctx, call), as_sent(arguments)
    seconds: float | None = getattr(getattr(tool, "policy", None), "approval_timeout", None)
    while True:
        request = _request(tool, shown, call if attempt == 1 else f"{call}#{attempt}", agent, problem, reason)
        request.tool_id = tool_id
        if seconds is not None:
            # The question contains the end of the time, which stays the same after a restore.
            request.expires_at = await ctx.once(f"approval {request.id} until", _later, seconds)
        response = await _answered(ctx, request, seconds)
        if response is None:
            return APPROVAL_EXPIRED.format(tool_name=request.tool_name)
        if not response.approved:
            because = f": {response.reason}" if response.reason else ""
            words = APPROVAL_DENIED if reason == "policy" else TOOL_NOT_REPEATED
            return words.format(tool_name=request.tool_name, because=because)
        attempt += 1
        if response.digest != request.digest and not begun:  # an answer from before a restore
            problem = OTHER_ARGUMENTS
        elif response.given is None or is_same_data(response.given, shown):
            return Agreed(arguments)
        elif reason == "unknown_outcome":  # under the same key, which identifies this call
            problem = SAME_ARGUMENTS
        else:
            try:
                return _edited(tool, arguments, shown, sent or {}, response.given)
            except ToolArgumentsError as err:
                # The person is asked again, because the mistake is in the person's answer.
                problem = str(err)


def _edited(
    tool: AsyncBaseTool,
    arguments: dict[str, Any],
    shown: dict[str, Any],
    sent: Mapping[str, Any],
    given: dict[str, Any],
) -> Agreed:
    """Return the arguments with a person's changes; parts that are unchanged keep their values.

    Args:
        tool: The tool.
        arguments: The arguments before the change.
        shown: The arguments as the person saw them.
        sent: The arguments before the check.
        given: The arguments of the person.

    Raises:
        ToolArgumentsError: The arguments do not fit the tool.
    """
    changed = {name for name, value in given.items() if name not in shown or not is_same_data(value, shown[name])}
    for name in sorted(changed & shown.keys()):
        if holds_secret(given[name], shown[name]):
            raise ToolArgumentsError(_NOT_SHOWN.format(name=name))
    checked = checked_arguments(
        tool, {name: value if name in changed else sent.get(name, value) for name, value in given.items()}
    )
    kept = {name: arguments[name] for name in checked if name in arguments and name in given and name not in changed}
    return Agreed({**checked, **kept}, edited=True)


def _later(seconds: float) -> float:
    return current_source().now() + seconds


def _request(
    tool: AsyncBaseTool, shown: dict[str, Any], request_id: str, agent: str, problem: str | None, reason: Reason
) -> ApprovalRequired:
    name = tool.metadata.get_name()
    return ApprovalRequired(
        id=request_id,
        tool_name=name,
        arguments=copy_containers(shown),  # a copy, because the person may change it
        agent=agent,
        digest=digest_of(name, shown),
        problem=problem,
        reason=reason,
    )


async def _answered(ctx: Context[Any], request: ApprovalRequired, seconds: float | None) -> ApprovalResponse | None:
    """Return the answer to ``request``; None if it expires."""
    assert ctx.run is not None
    run, waiting = ctx.run, open_approvals(ctx.run)
    if not _is_on_its_way(run, request):
        waiting.add(request)
    try:
        return await ctx.wait_for_event(
            ApprovalResponse,
            waiter_event=request,
            waiter_id=f"approval {request.id}",
            requirements={"id": request.id, "digest": request.digest},
            timeout=seconds,
        )
    except TimeoutError:
        return None
    finally:
        if not run.root.is_away:  # otherwise it stays open
            waiting.requests.pop(request.id, None)


def _is_on_its_way(run: "Run", request: ApprovalRequired) -> bool:
    """Return whether an answer has arrived for a released run, which is restored for it."""
    sent = (tick.event for on in {run, run.root} for tick in on.undelivered())
    known = (request.id, request.digest)  # an answer to other arguments does not count
    return any(isinstance(event, ApprovalResponse) and (event.id, event.digest) == known for event in sent)


class ApprovalRequest:
    """An open request, which a program approves or denies once.

    Attributes:
        id: The id of the request within the run.
        tool_name: The tool.
        arguments: Its arguments.
        agent: The name of the agent that wants to call it.
        digest: Of tool and arguments.
        expires_at: Wall-clock seconds after which it counts as denied; None for never.
        tool_id: The model's id of the call.

    Example:
        >>> async for request in handler.approvals():
        ...     request.approve() if request.tool_name == "publish" else request.deny("not now")
    """

    def __init__(self, request: ApprovalRequired, ctx: Context[Any]) -> None:
        self.id = request.id
        self.tool_name = request.tool_name
        self.arguments = copy_containers(request.arguments)
        self.agent = request.agent
        self.digest = request.digest
        self.expires_at = request.expires_at
        self.reason = request.reason
        self.problem = request.problem
        self.tool_id = request.tool_id
        self._ctx = ctx

    def __repr__(self) -> str:
        return f"ApprovalRequest({self.agent} wants {self.tool_name}({self.arguments}), id={self.id!r})"

    def approve(self, *, arguments: dict[str, Any] | None = None) -> None:
        """Let the tool run.

        Args:
            arguments: Arguments in place of the shown ones. If they do not fit the tool, the person is asked
                again, with the ``problem``.

        Raises:
            ApprovalUsedError: The request is no longer open.
        """
        answer(self._ctx, self.id, approved=True, arguments=arguments)

    def deny(self, reason: str = "") -> None:
        """Deny the call.

        Args:
            reason: The text for the model.

        Raises:
            ApprovalUsedError: The request is no longer open.
        """
        answer(self._ctx, self.id, approved=False, reason=reason)


def answer(
    ctx: Context[Any], request_id: str, *, approved: bool, arguments: dict[str, Any] | None = None, reason: str = ""
) -> None:
    """Answer a request of the run that ``ctx`` belongs to.

    Raises:
        ApprovalUsedError: The request is no longer open.
        TypeError: ``arguments`` is not a dict of JSON data, or ``reason`` is not a text; the request stays
            open.
    """
    given: Any = arguments
    if given is not None and not isinstance(given, dict):
        raise TypeError(f"arguments is a dict of the tool's arguments by name, not {given!r}")
    because: Any = reason
    if because is not None and not isinstance(because, str):
        raise TypeError(f"reason is a text for the model, not {because!r}")
    run = ctx.run
    if run is None:
        raise ApprovalUsedError(f"the approval {request_id!r} is not open: its run is not under way")
    # Checked before the request is taken.
    data = None if arguments is None else _as_data(run, arguments)
    request = open_approvals(run).take(request_id)
    # The question is also among the run's inputs, where it may have been answered.
    if not run.root.is_away and not run.on_loop(lambda: _is_asked(run, request)):
        raise ApprovalUsedError(f"the approval {request_id!r} is not open: it was answered as an input of the run")
    response = ApprovalResponse(
        id=request.id, digest=request.digest, approved=approved, arguments=data, reason=because or ""
    )
    ctx.send_event(response if run.root.recorder is not None else response.with_objects(arguments))


def _as_data(run: "Run", arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments in a form for records and snapshots.

    Raises:
        TypeError: An argument has no such form, and the run has a store.
    """
    recorder = run.root.recorder
    found = dict(arguments)
    for name, value in arguments.items():
        if recorder is not None and recorder.can_write(value):
            continue
        try:
            found[name] = as_given(value)
        except (ValueError, RecursionError) as err:
            if recorder is not None:
                raise TypeError(
                    f"arguments are data of JSON, as the run's store keeps them, and {name!r} is not: {err}"
                ) from None
    return found


def _is_asked(run: "Run", request: ApprovalRequired) -> bool:
    asked = (one.event for one in open_requests(run))
    return any(isinstance(one, ApprovalRequired) and one.id == request.id for one in asked)
