"""Changes of requests in a fork: messages, options and models, and a question before each tool call.

They are in the state of the fork, so a fork of a fork has them too. A later run on the same context begins without
them.
"""

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from batonflow.agents.ledger import REQUEST_CHANGES, request_changes
from batonflow.clock import current_source
from batonflow.instrumentation.redaction import redacted
from batonflow.llms import ChatMessage
from batonflow.llms.stream import AnswerSource, ChatRequest, StreamEvent, answers_from, answers_here
from batonflow.workflow_core import Context

__all__ = ["RequestChanges", "changed_requests", "comparable", "forget_changes"]

_Pair = tuple[ChatMessage, ChatMessage | None] | tuple[ChatMessage, ChatMessage | None, int]

# Parts of a request that are not options.
_OWN = frozenset({"messages", "model", "stream", "tools"})


@dataclass(frozen=True, kw_only=True)
class RequestChanges:
    """Changes of the requests of a fork.

    Attributes:
        messages: Pairs of a message as a model saw it and the message to send in its place, None to leave it out. They
            hold for each request with the message; the memory keeps the message as it was. A third value changes only
            one of several equal messages: its place among them, from 0 on.
        options: Options of the requests for the next steps of agents, such as ``temperature``, under the vendor's
            names. None takes an option out.
        ask_before_tools: Whether a person must approve each tool call of the fork, as if the tool required it. None
            keeps the rule of the run that is forked.

    Example:
        >>> changes = RequestChanges(options={"temperature": 0}, ask_before_tools=True)
        >>> handler = team.fork("tides-1", at=12, changes=changes)
    """

    messages: Sequence[_Pair] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ask_before_tools: bool | None = None

    def __post_init__(self) -> None:
        options, ask, pairs = cast("Any", (self.options, self.ask_before_tools, self.messages))
        if not isinstance(options, Mapping) or not all(name and isinstance(name, str) for name in cast("Any", options)):
            raise TypeError(f"options is a dict of names with their values, not {options!r}")
        if taken := sorted(_OWN.intersection(cast("Mapping[str, Any]", options))):
            raise ValueError(f"options cannot hold {', '.join(taken)}: a request has them already")
        if not isinstance(ask, bool | None):
            raise TypeError(f"ask_before_tools is True, False or None, not {ask!r}")
        if not isinstance(pairs, list | tuple):
            raise TypeError(f"messages is a list of pairs, not {pairs!r}")
        for given in cast("Sequence[Any]", pairs):
            pair: tuple[Any, ...] = cast("Any", given) if isinstance(given, tuple) else ()
            fits = len(pair) in {2, 3} and isinstance(pair[0], ChatMessage) and isinstance(pair[1], ChatMessage | None)
            if not fits or not all(isinstance(place, int) for place in pair[2:]):
                raise TypeError(f"messages are pairs of a ChatMessage and another one, or None, not {given!r}")

    def edits(self, llm: str | None = None) -> dict[str, Any]:
        """Return the changes as edits of a state, which keep the changes of an earlier fork.

        Args:
            llm: The name of the model of the fork.
        """
        fork, found = current_source().token(8), dict[str, Any]()
        if self.options:
            found[f"{REQUEST_CHANGES}.options.{fork}"] = dict(self.options)
        if self.messages:
            pairs = [[comparable(one), other and _data(other), *place] for one, other, *place in self.messages]
            found[f"{REQUEST_CHANGES}.messages.{fork}"] = pairs
        if self.ask_before_tools is not None:
            found[f"{REQUEST_CHANGES}.ask_before_tools"] = self.ask_before_tools
        if llm is not None:
            found[f"{REQUEST_CHANGES}.llm"] = llm
        return found


def _data(message: ChatMessage) -> dict[str, Any]:
    return message.model_dump(mode="json", exclude_none=True)


def comparable(message: ChatMessage) -> Any:
    """Return a message as records have it: as data, without secrets."""
    return redacted(_data(message))


@contextmanager
def changed_requests(run: Any) -> Generator[None, None, None]:
    """Send all requests inside the block with the changes of the fork.

    Only models with a ``_stream`` of their own are reached, which all models of this package have.
    """
    with answers_from(_Changed(request_changes(run), answers_here())):
        yield


class _Changed:
    """Sends requests with changes."""

    def __init__(self, changes: Mapping[str, Any], around: AnswerSource | None) -> None:
        of_forks: Mapping[str, dict[str, Any]] = changes.get("options") or {}
        pairs: Mapping[str, list[list[Any]]] = changes.get("messages") or {}
        self._options: dict[str, Any] = {}
        for options in of_forks.values():
            self._options |= options
        self._forks = list(pairs.values())
        self._around = around
        self.needs_keys = around is None or around.needs_keys

    def __call__(
        self,
        llm: Any,
        request: ChatRequest,
        events: AsyncGenerator[StreamEvent, None],  # noqa: ARG002 - of the request without the changes
    ) -> tuple[Any, ChatRequest, AsyncGenerator[StreamEvent, None]]:
        messages = list(request.messages)
        for pairs in self._forks:
            messages = _with_pairs(messages, pairs)
        options = {name: value for name, value in {**request.options, **self._options}.items() if value is not None}
        changed = request.model_copy(update={"messages": messages, "options": options})
        answer = llm, changed, llm._stream(changed)
        return answer if self._around is None else self._around(*answer)


def _with_pairs(messages: list[ChatMessage], pairs: list[list[Any]]) -> list[ChatMessage]:
    """Return messages with the changes of one fork; each message is changed at most once."""
    found: list[ChatMessage] = []
    seen: list[Any] = []
    for message in messages:
        data = comparable(message)
        place = seen.count(data)
        seen.append(data)
        pair = next((one for one in pairs if one[0] == data and (len(one) == 2 or one[2] == place)), None)
        if pair is None:
            found.append(message)
        elif pair[1] is not None:
            found.append(ChatMessage.model_validate(pair[1]))
    return found


def forget_changes(ctx: Context[Any]) -> None:
    """Drop the changes of an earlier run on a context."""
    if ctx.store.get_sync(REQUEST_CHANGES, None) is not None:
        ctx.store.set_sync(REQUEST_CHANGES, None)
