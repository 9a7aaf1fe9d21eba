"""Responses of OpenAI's chat completions, and of compatible servers with their variations."""

import json
import re
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from batonflow.llms.blocks import ThinkingBlock
from batonflow.llms.openai_sdk import usage_from_counts
from batonflow.llms.stream import BlockDone, Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta
from batonflow.llms.tool_protocol import ToolSpec, parse_arguments
from batonflow.llms.usage import Usage

__all__ = ["EXTRAS_FROM", "REASONING", "REASONING_FROM", "ChatReader", "failed_tool_use"]

EXTRAS_FROM = "tool_call_extras_from"
"""The key in additional_kwargs for the vendor that wants the extra data of its calls back."""

REASONING, REASONING_FROM = "reasoning_details", "reasoning_details_from"
"""The keys in additional_kwargs for thoughts in the form of routers, and for the name of the router."""

_NOTHING: dict[str, Any] = {}
_REASONS = {"function_call": "tool_calls", "": "stop"}
# Stop reasons with which a server reports a broken response.
_BROKEN_OFF = ("insufficient_system_resource", "error", "network_error")


class _Calls:
    """Assignment of deltas to calls; some servers leave out the index, or use index 0 for every call."""

    def __init__(self) -> None:
        self._begun: list[_Begun] = []
        self._slots: dict[int | None, int] = {}

    def __bool__(self) -> bool:
        return bool(self._begun)

    def slot(self, call: Any) -> int:
        """Return the position of the call that a delta belongs to."""
        name, text = (call.function.name, call.function.arguments) if call.function is not None else (None, None)
        known = self._slots.get(call.index)
        if known is not None and name and not self._begun[known].named_again(call.id, name, call.index):
            known = None
        if known is None:
            self._begun.append(_Begun())
            known = self._slots[call.index] = len(self._begun) - 1
        self._begun[known].add(call.id, name, text)
        return known


class _Begun:
    """A call that has started."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._id: str | None = None
        self._name: str | None = None

    def add(self, call_id: str | None, name: str | None, text: str | None) -> None:
        """Add a delta. Id and name usually come with the first delta, but some servers send them later."""
        self._id = self._id or call_id
        self._name = self._name or name
        self._pieces.append(text or "")

    def named_again(self, call_id: str | None, name: str, index: int | None) -> bool:
        """Return whether a name at a used index repeats the name of the same call."""
        if self._name and name != self._name:
            return False
        if call_id and self._id:
            return call_id == self._id
        if not self._name:
            return True
        if index is None:
            return False
        # When neither index nor id tells calls apart, a complete call receives no more deltas. Only arguments that end
        # like an object can be complete.
        last = next((piece for piece in reversed(self._pieces) if piece.strip()), None)
        if last is None or not last.rstrip().endswith("}"):
            return True
        return parse_arguments("".join(self._pieces)) is None


class ChatReader:
    """Reader of the chunks of a stream, in order, or of a whole response."""

    def __init__(self, vendor: str) -> None:
        self._vendor = vendor
        self.reason: str | None = None
        self.usage: Usage | None = None
        self.model: str | None = None
        self._thoughts: list[str] = []
        self._calls = _Calls()
        self._refused = False
        self._kept: dict[str, Any] = {}
        self._details = _ReasoningDetails()
        self._unmarked = self._ends_empty = False

    def events(self, chunk: Any) -> list[StreamEvent]:
        """Return the events of a chunk."""
        self.model = chunk.model or self.model
        if chunk.usage is not None:
            self._count(chunk.usage)
        # A chunk with token counts and without choices follows the last choice. Of several choices only the first is
        # read.
        for choice in [one for one in chunk.choices or () if not one.index][:1]:
            events = [] if choice.delta is None else self._delta(choice.delta, chunk)
            self._note_reason(choice.finish_reason, bool(events))
            return events
        return []

    def _note_reason(self, reason: str | None, has_content: bool) -> None:
        """Store the stop reason; an empty reason counts when the chunks before had no reason field."""
        self.reason = reason or self.reason
        self._unmarked = self._unmarked or (reason is None and has_content)
        self._ends_empty = reason == "" and (self._unmarked or not has_content)

    def _count(self, usage: Any) -> None:
        if usage is not None:
            self.usage = usage_from_counts(
                usage.prompt_tokens,
                usage.completion_tokens,
                usage.prompt_tokens_details,
                usage.completion_tokens_details,
            )

    def whole(self, completion: Any) -> list[StreamEvent]:
        """Return the events of a whole response; without ``Finish`` when the server broke off."""
        self.model = completion.model
        self._count(completion.usage)
        choice = next((one for one in completion.choices or () if not one.index), None)
        if choice is None or choice.message is None:
            raise TypeError("it has no choices, or a choice without a message")
        calls = [
            SimpleNamespace(index=number, id=one.id, function=one.function, model_extra=one.model_extra)
            for number, one in enumerate(choice.message.tool_calls or ())
            if getattr(one, "function", None) is not None
        ]
        events = self._delta(choice.message, completion, calls)
        self.reason = choice.finish_reason or "stop"
        return [*events, *self.ending(completion)]

    def _delta(self, delta: Any, chunk: Any, calls: Sequence[Any] | None = None) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        # Looked up in the dict, because a missing attribute of the object costs more than all the rest.
        more, whole = delta.model_extra or _NOTHING, calls is not None
        thought, content = more.get("reasoning_content") or more.get("reasoning"), delta.content
        if content.__class__ is list:
            in_content, content = _parts_of(content)
            thought, whole = thought or in_content, whole or bool(content)
        if REASONING in more:
            in_details = self._details.add(more[REASONING])
            thought = thought or in_details
        if thought:
            self._thoughts.append(thought)
            events.append(ThinkingDelta(text=thought, raw=chunk))
        calls = calls or ([] if whole else delta.tool_calls)
        if self._thoughts and (content or calls) and (whole or not thought):
            events.append(self._thought(chunk))
        if content:
            events.append(TextDelta(text=content, raw=chunk))
        if delta.refusal:
            self._refused = True
            events.append(TextDelta(text=delta.refusal, raw=chunk))
        if not calls and delta.function_call is not None:
            calls = _in_older_form(delta.function_call)
        for call in calls or ():
            function, extra = call.function, _extra(call)
            if extra is not None:
                self._kept = {EXTRAS_FROM: self._vendor}
            events.append(
                ToolCallDelta(
                    index=self._calls.slot(call),
                    id=call.id or None,
                    name=(function.name if function is not None else None) or None,
                    arguments=(function.arguments if function is not None else None) or "",
                    extra=extra,
                    raw=chunk,
                )
            )
        return events

    def _thought(self, chunk: Any) -> BlockDone:
        # The vendor is stored with the thoughts, because they may be sent back to this vendor only.
        block = ThinkingBlock(content="".join(self._thoughts), additional_information={"vendor": self._vendor})
        self._thoughts.clear()
        return BlockDone(block=block, raw=chunk)

    def ending(self, chunk: Any, *, done: bool = False) -> list[StreamEvent]:
        """Return the last events; empty when the response is incomplete.

        Args:
            chunk: The last chunk.
            done: Whether ``[DONE]`` followed, which some servers send instead of a stop reason.
        """
        reason = self.reason
        if reason is None and chunk is not None and (done or self._ends_empty):
            reason = ""
        if reason is None or reason in _BROKEN_OFF:
            return []
        events: list[StreamEvent] = [self._thought(chunk)] if self._thoughts else []
        reason = _REASONS.get(reason, reason)
        if reason == "stop":
            # The reasons that servers send for responses with calls or with a refusal.
            reason = "tool_calls" if self._calls else "refusal" if self._refused else "stop"
        kept = self._kept
        if self._details:
            kept = {**kept, REASONING: self._details.joined(), REASONING_FROM: self._vendor}
        return [*events, Finish(reason=reason, usage=self.usage, model=self.model, raw=chunk, message_kwargs=kept)]


class _ReasoningDetails:
    """Thoughts in the form of routers: deltas are joined, signed thoughts are kept unchanged."""

    _TEXTS = ("text", "summary")

    def __init__(self) -> None:
        self._items: list[dict[str, Any]] = []
        self._pieces: list[list[str]] = []

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, details: Any) -> str:
        """Add the details of a chunk; return their visible text."""
        texts: list[str] = []
        for detail in cast("list[Any]", details) if isinstance(details, list) else []:
            if not isinstance(detail, dict):
                continue
            item = cast("dict[str, Any]", detail)
            name = next((one for one in self._TEXTS if isinstance(item.get(one), str)), None)
            text = "" if name is None else item[name]
            texts.append(text)
            last = self._items[-1] if self._items else None
            if last is not None and name is not None and _same_thought(last, item):
                self._pieces[-1].append(text)
                last.update({key: value for key, value in item.items() if value is not None and key != name})
            elif last is not None and "data" not in item and name is None and _same_thought(last, item):
                # The signature of a thought follows its text.
                last.update({key: value for key, value in item.items() if value is not None})
            else:
                self._items.append({**item})
                self._pieces.append([text])
        return "".join(texts)

    def joined(self) -> list[dict[str, Any]]:
        """Return all details, with joined texts."""
        made: list[dict[str, Any]] = []
        for item, pieces in zip(self._items, self._pieces, strict=True):
            name = next((one for one in self._TEXTS if isinstance(item.get(one), str)), None)
            made.append(item if name is None else {**item, name: "".join(pieces)})
        return made


def _same_thought(last: dict[str, Any], item: dict[str, Any]) -> bool:
    """Return whether two details are deltas of one thought."""
    if last.get("type") != item.get("type") or "data" in last:
        return False
    # A signature ends a thought; otherwise an index or an id tells thoughts apart.
    ids = last.get("id"), item.get("id")
    told_apart = None not in ids and ids[0] != ids[1]
    return last.get("index") == item.get("index") and not told_apart


def _parts_of(content: Sequence[Any]) -> tuple[str, str]:
    """Return thought and text of content that is a list of parts, as Mistral sends it."""
    thought: list[str] = []
    text: list[str] = []
    for part in content:
        fields = cast("dict[str, Any]", part) if isinstance(part, dict) else _NOTHING
        inner = fields.get("thinking")
        if fields.get("type") == "thinking" and inner is not None:
            thought.append(inner if isinstance(inner, str) else _parts_of(inner)[1])
        elif isinstance(fields.get("text"), str):
            text.append(fields["text"])
        elif not fields:
            raise TypeError("a part of an answer's content is not an object")
    return "".join(thought), "".join(text)


def _in_older_form(function: Any) -> Sequence[Any]:
    """Return the call of a server that sends one call without index and id."""
    if not (function.name or function.arguments):
        return ()
    return (SimpleNamespace(index=0, id=None, function=function, model_extra=None),)


def _extra(call: Any) -> dict[str, Any] | None:
    """Return the extra data of a call that the server wants back."""
    extra = (call.model_extra or _NOTHING).get("extra_content")
    return None if extra is None else {"extra_content": extra}


# --- calls that a server could not parse ------------------------------------------------------------------------------

_NAMED = re.compile(r"<function[=(]\s*\"?(?P<name>[\w.-]+)\"?\)?\s*>?(?P<arguments>.*?)(?:</function>|\Z)", re.DOTALL)
_TAGS = re.compile(r"</?tool_call>|```\w*")
# An index above that of any real call.
_BEHIND_ALL = 10_000


def failed_tool_use(body: Any, tools: Sequence[ToolSpec]) -> Sequence[StreamEvent]:
    """Return the events for a call that the server could not parse, as in Groq's ``tool_use_failed``.

    An agent answers the call with an error, so that the model sees its mistake. Text without a call stays text.

    Args:
        body: The error body.
        tools: The tools of the request.

    Returns:
        The events, ``Finish`` last; empty for other errors.
    """
    error = cast("dict[str, Any]", body) if isinstance(body, dict) else _NOTHING
    inner = error.get("error")
    error = cast("dict[str, Any]", inner) if isinstance(inner, dict) else error
    written = error.get("failed_generation")
    if error.get("code") != "tool_use_failed" or not isinstance(written, str) or not written.strip():
        return ()
    calls = list(_calls_in(written, tools))
    if not calls:
        return TextDelta(text=written), Finish(reason="stop")
    deltas = [
        ToolCallDelta(index=_BEHIND_ALL + number, name=name, arguments=arguments)
        for number, (name, arguments) in enumerate(calls)
    ]
    return *deltas, Finish(reason="tool_calls")


def _calls_in(written: str, tools: Sequence[ToolSpec]) -> Iterable[tuple[str, str]]:
    """Return name and arguments of the calls that a model wrote as text."""
    named = [(found["name"], found["arguments"].strip()) for found in _NAMED.finditer(written)]
    if named:
        return named
    try:
        given: Any = json.loads(_TAGS.sub("", written))
    except ValueError:
        given = None
    listed: Any = cast("dict[str, Any]", given).get("tool_calls", given) if isinstance(given, dict) else given
    found = [_as_call(one) for one in cast("list[Any]", listed if isinstance(listed, list) else [listed])]
    if found and None not in found:
        return [one for one in found if one is not None]
    mentioned = next((tool.name for tool in tools if tool.name in written), None)
    return [] if mentioned is None else [(mentioned, written)]


def _as_call(given: Any) -> tuple[str, str] | None:
    if not isinstance(given, dict):
        return None
    call = cast("dict[str, Any]", given)
    if isinstance(call.get("function"), dict):
        call = cast("dict[str, Any]", call["function"])
    name = call.get("name")
    arguments: Any = call.get("arguments", call.get("parameters"))
    if not isinstance(name, str) or not name:
        return None
    return name, arguments if isinstance(arguments, str) else json.dumps({} if arguments is None else arguments)
