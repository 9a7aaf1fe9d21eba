"""A call of a model in a fork, with changes of its request."""

from typing import Any

from starlette.exceptions import HTTPException

from batonflow.agents.request_changes import RequestChanges, comparable
from batonflow.durable.history import commits_of
from batonflow.durable.replay import records_of
from batonflow.durable.trace import plain_value
from batonflow.instrumentation.redaction import REDACTED
from batonflow.llms import ChatMessage, LLMConfigurationError, MessageRole, TextBlock, ToolCallBlock, llm_from
from batonflow.server.runs import Place
from batonflow.server.shapes import ChangedCall

__all__ = ["before_call"]


async def before_call(place: Place, changed: ChangedCall) -> tuple[int, dict[str, Any]]:
    """Return the last commit before a call, and the state edits that change its request in a fork.

    Args:
        place: The run.
        changed: The call and its changes.

    Raises:
        HTTPException: The run does not have the call, or a change does not fit.
    """
    run_id = place.info.run_id
    records = records_of([commit async for commit in commits_of(place.store, run_id)])
    record = next((one for one in records if one["id"] == changed.record), None)
    calls: list[dict[str, Any]] = [] if record is None else record.get("calls", [])
    if record is None or changed.index >= len(calls):
        raise HTTPException(404, f"Run {run_id} has no call {changed.record}:{changed.index} of a model")
    call = calls[changed.index]
    if not call.get("agent"):
        raise HTTPException(400, "Only calls of agents can be changed; this one was made by a step of a workflow")
    if call.get("purpose") != "turn":
        raise HTTPException(
            400, "Only calls for the next step of an agent can be changed, not calls for other purposes"
        )
    if record["commit"] == 1:
        raise HTTPException(
            409, "The call is in the first commit of the run, before which there is nothing to share: start a new run"
        )
    sent = [ChatMessage.model_validate(one) for one in plain_value(call.get("messages", [[]]))]
    pairs: list[tuple[ChatMessage, ChatMessage | None, int]] = []
    for number, text in changed.messages.items():
        if number >= len(sent):
            raise HTTPException(400, f"messages: the call has no message {number}; it has {len(sent)}, from 0 on")
        if text is not None and REDACTED in text:
            raise HTTPException(400, f"messages: {REDACTED} stands for a secret in message {number}: write it again")
        message = sent[number]
        if text is None and (message.role == MessageRole.TOOL or _has_calls(message)):
            raise HTTPException(400, f"messages: message {number} belongs to a tool call, and cannot be left out alone")
        which = sum(comparable(one) == comparable(message) for one in sent[:number])
        pairs.append((message, None if text is None else _with_text(message, text), which))
    if changed.llm is not None:
        try:
            await llm_from(changed.llm).aclose()
        except LLMConfigurationError as error:
            raise HTTPException(400, f"llm: {error}") from None
    if len(sent) == sum(text is None for text in changed.messages.values()) and sent:
        raise HTTPException(400, "messages: the request would have no message left")
    try:
        changes = RequestChanges(messages=pairs, options=changed.options, ask_before_tools=changed.ask_before_tools)
    except (TypeError, ValueError) as error:
        raise HTTPException(400, str(error)) from None
    return record["commit"] - 1, changes.edits(changed.llm)


def _with_text(message: ChatMessage, text: str) -> ChatMessage:
    """Return a message with another text, in the place of its first one; its other blocks stay."""
    texts = [place for place, block in enumerate(message.blocks) if isinstance(block, TextBlock)]
    kept = [block for block in message.blocks if not isinstance(block, TextBlock)]
    at = texts[0] if texts else 0
    return message.model_copy(update={"blocks": [*kept[:at], TextBlock(text=text), *kept[at:]]})


def _has_calls(message: ChatMessage) -> bool:
    return any(isinstance(block, ToolCallBlock) for block in message.blocks)
