"""Changes of the requests of a fork: other messages, options and models, and a question before each tool call.

They are in the state of the fork, so a fork of a fork has them too. A later run on the same context has not.
"""

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from batonflow.agents.ledger import REQUEST_CHANGES, request_changes
from batonflow.clock import current_source
from batonflow.llms import ChatMessage
from batonflow.llms.stream import AnswerSource, ChatRequest, StreamEvent, answers_from, answers_here
from batonflow.workflow_core import Context

__all__ = ["RequestChanges", "changed_requests", "forget_changes"]


@dataclass(frozen=True, kw_only=True)
class RequestChanges:
    """Changes of the requests of a fork.

    Attributes:
        messages: Pairs of a message as a model saw it and the message to send in its place, None to leave it out. They
            hold for each request with the message; the memory keeps the message as it was.
        options: Options of all requests in the fork, such as ``temperature``, under the vendor's names.
        ask_before_tools: Whether a person must approve each tool call of the fork, as if the tool required it.

    Example:
        >>> changes = RequestChanges(options={"temperature": 0}, ask_before_tools=True)
        >>> handler = team.fork("tides-1", at=12, changes=changes)
    """

    messages: Sequence[tuple[ChatMessage, ChatMessage | None]] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ask_before_tools: bool = False

    def __post_init__(self) -> None:
        for given in cast("Sequence[Any]", self.messages):
            pair = cast("tuple[Any, ...]", given) if isinstance(given, tuple) else ()
            if len(pair) != 2 or not isinstance(pair[0], ChatMessage) or not isinstance(pair[1], ChatMessage | None):
                raise TypeError(f"messages are pairs of a ChatMessage and another one, or None, not {given!r}")

    def edits(self, llm: str | None = None) -> dict[str, Any]:
        """Return the changes as edits of a state, which keep the changes of an earlier fork.

        Args:
            llm: The name of the model of the fork.
        """
        found: dict[str, Any] = {f"{REQUEST_CHANGES}.options.{name}": value for name, value in self.options.items()}
        if self.messages:
            pairs = [[_data(one), None if other is None else _data(other)] for one, other in self.messages]
            found[f"{REQUEST_CHANGES}.messages.{current_source().token(8)}"] = pairs
        if self.ask_before_tools:
            found[f"{REQUEST_CHANGES}.ask_before_tools"] = True
        if llm is not None:
            found[f"{REQUEST_CHANGES}.llm"] = llm
        return found


def _data(message: ChatMessage) -> dict[str, Any]:
    return message.model_dump(mode="json", exclude_none=True)


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
        self._options: Mapping[str, Any] = changes.get("options") or {}
        forks: Mapping[str, Sequence[tuple[dict[str, Any], dict[str, Any] | None]]] = changes.get("messages") or {}
        self._pairs = [
            (before, None if after is None else ChatMessage.model_validate(after))
            for pairs in forks.values()
            for before, after in pairs
        ]
        self._around = around
        self.needs_keys = around is None or around.needs_keys

    def __call__(
        self,
        llm: Any,
        request: ChatRequest,
        events: AsyncGenerator[StreamEvent, None],  # noqa: ARG002 - of the request without the changes
    ) -> tuple[Any, ChatRequest, AsyncGenerator[StreamEvent, None]]:
        messages = list(request.messages)
        for before, after in self._pairs:
            found = [after if _data(one) == before else one for one in messages]
            messages = [one for one in found if one is not None]
        changed = request.model_copy(update={"messages": messages, "options": {**request.options, **self._options}})
        answer = llm, changed, llm._stream(changed)
        return answer if self._around is None else self._around(*answer)


def forget_changes(ctx: Context[Any]) -> None:
    """Drop the changes of an earlier run on a context."""
    if ctx.store.get_sync(REQUEST_CHANGES, None) is not None:
        ctx.store.set_sync(REQUEST_CHANGES, None)
