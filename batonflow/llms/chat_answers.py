"""Answers of OpenAI's chat completions, and of the servers that speak the same protocol in their own ways."""

import json
import re
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from batonflow.llms.blocks import ThinkingBlock
from batonflow.llms.openai_sdk import counted
from batonflow.llms.stream import BlockDone, Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta
from batonflow.llms.tool_protocol import ToolSpec, parse_arguments
from batonflow.llms.usage import Usage

__all__ = ["EXTRAS_FROM", "REASONING", "REASONING_FROM", "ChatReader", "failed_tool_use"]

EXTRAS_FROM = "tool_call_extras_from"
"""Among the additional_kwargs of a message: the vendor that wants the extras of its calls back."""

REASONING, REASONING_FROM = "reasoning_details", "reasoning_details_from"
"""Among the additional_kwargs of a message: thoughts in the form that a router wants back, and its name."""

_NOTHING: dict[str, Any] = {}
_REASONS = {"function_call": "tool_calls", "": "stop"}
# With these a server says that it broke off.
_BROKEN_OFF = ("insufficient_system_resource", "error", "network_error")


class _Calls:
    """Which call a piece belongs to: some servers leave out the index, or number every call 0."""

    def __init__(self) -> None:
        self._begun: list[_Begun] = []
        self._slots: dict[int | None, int] = {}

    def __bool__(self) -> bool:
        return bool(self._begun)

    def slot(self, call: Any) -> int:
        """Position of the call that this piece belongs to."""
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
    """A call of which a piece has come."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._id: str | None = None
        self._name: str | None = None

    def add(self, call_id: str | None, name: str | None, text: str | None) -> None:
        """A piece of it. Id and name come with the first as a rule, but with a later one from some servers."""
        self._id = self._id or call_id
        self._name = self._name or name
        self._pieces.append(text or "")

    def named_again(self, call_id: str | None, name: str, index: int | None) -> bool:
        """Tell whether a name under a number in use is this call's, in a server that repeats it with every piece."""
        if self._name and name != self._name:
            return False
        if call_id and self._id:
            return call_id == self._id
        if not self._name:
            return True
        if index is None:
            return False
        # Where neither number nor id tells them apart, a call that is whole has no more pieces. Only what ends like an
        # object can be whole.
        last = next((piece for piece in reversed(self._pieces) if piece.strip()), None)
        if last is None or not last.rstrip().endswith("}"):
            return True
        return parse_arguments("".join(self._pieces)) is None


class ChatReader:
    """Reads the chunks of an answer, one after the other, or an answer in one piece."""

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
        """What ``chunk`` says."""
        self.model = chunk.model or self.model
        if chunk.usage is not None:
            self._count(chunk.usage)
        # After the last choice comes a chunk with token counts and no choice at all. Of several answers to one request
        # only the first is read.
        for choice in [one for one in chunk.choices or () if not one.index][:1]:
            events = [] if choice.delta is None else self._delta(choice.delta, chunk)
            self._note_reason(choice.finish_reason, bool(events))
            return events
        return []

    def _note_reason(self, reason: str | None, has_content: bool) -> None:
        """Note why the answer ends; an empty reason is a mark where pieces before it had none at all."""
        self.reason = reason or self.reason
        self._unmarked = self._unmarked or (reason is None and has_content)
        self._ends_empty = reason == "" and (self._unmarked or not has_content)

    def _count(self, told: Any) -> None:
        if told is not None:
            self.usage = counted(
                told.prompt_tokens, told.completion_tokens, told.prompt_tokens_details, told.completion_tokens_details
            )

    def whole(self, completion: Any) -> list[StreamEvent]:
        """The events that an answer in one piece stands for; without ``Finish`` when the server broke off."""
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
        # Asked of the dict, not of the object: an attribute that is not there costs more than all the rest.
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
        # Nothing else tells later whose thoughts these are, and they may go back to nobody else.
        block = ThinkingBlock(content="".join(self._thoughts), additional_information={"vendor": self._vendor})
        self._thoughts.clear()
        return BlockDone(block=block, raw=chunk)

    def ending(self, chunk: Any, *, done: bool = False) -> list[StreamEvent]:
        """The last events; none when the answer is not whole.

        Args:
            chunk: The last one.
            done: Whether ``[DONE]`` came behind it, which some servers send in place of a reason.
        """
        reason = self.reason
        if reason is None and chunk is not None and (done or self._ends_empty):
            reason = ""
        if reason is None or reason in _BROKEN_OFF:
            return []
        events: list[StreamEvent] = [self._thought(chunk)] if self._thoughts else []
        reason = _REASONS.get(reason, reason)
        if reason == "stop":
            # What servers say about an answer that consists of calls, or of a refusal.
            reason = "tool_calls" if self._calls else "refusal" if self._refused else "stop"
        kept = self._kept
        if self._details:
            kept = {**kept, REASONING: self._details.joined(), REASONING_FROM: self._vendor}
        return [*events, Finish(reason=reason, usage=self.usage, model=self.model, raw=chunk, message_kwargs=kept)]


class _ReasoningDetails:
    """Thoughts in the form of routers, whose pieces are joined as they arrive; signed ones are kept as they are."""

    _TEXTS = ("text", "summary")

    def __init__(self) -> None:
        self._items: list[dict[str, Any]] = []
        self._pieces: list[list[str]] = []

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, details: Any) -> str:
        """Take the details of a piece; gives the text that they show."""
        shown: list[str] = []
        for detail in cast("list[Any]", details) if isinstance(details, list) else []:
            if not isinstance(detail, dict):
                continue
            item = cast("dict[str, Any]", detail)
            name = next((one for one in self._TEXTS if isinstance(item.get(one), str)), None)
            text = "" if name is None else item[name]
            shown.append(text)
            last = self._items[-1] if self._items else None
            if last is not None and name is not None and _same_thought(last, item):
                self._pieces[-1].append(text)
                last.update({key: value for key, value in item.items() if value is not None and key != name})
            elif last is not None and "data" not in item and name is None and _same_thought(last, item):
                # The signature of a thought comes behind its text.
                last.update({key: value for key, value in item.items() if value is not None})
            else:
                self._items.append({**item})
                self._pieces.append([text])
        return "".join(shown)

    def joined(self) -> list[dict[str, Any]]:
        """All of them, texts in one piece."""
        made: list[dict[str, Any]] = []
        for item, pieces in zip(self._items, self._pieces, strict=True):
            name = next((one for one in self._TEXTS if isinstance(item.get(one), str)), None)
            made.append(item if name is None else {**item, name: "".join(pieces)})
        return made


def _same_thought(last: dict[str, Any], item: dict[str, Any]) -> bool:
    """Tell whether two details are pieces of one."""
    if last.get("type") != item.get("type") or "data" in last:
        return False
    # A signature ends a thought; a number or an id tells thoughts apart where there is one.
    ids = last.get("id"), item.get("id")
    told_apart = None not in ids and ids[0] != ids[1]
    return last.get("index") == item.get("index") and not told_apart


def _parts_of(content: Sequence[Any]) -> tuple[str, str]:
    """Thought and text of content that comes as a list of parts, as Mistral sends it."""
    thought, text = list[str](), list[str]()
    for part in content:
        told = cast("dict[str, Any]", part) if isinstance(part, dict) else _NOTHING
        inner = told.get("thinking")
        if told.get("type") == "thinking" and inner is not None:
            thought.append(inner if isinstance(inner, str) else _parts_of(inner)[1])
        elif isinstance(told.get("text"), str):
            text.append(told["text"])
        elif not told:
            raise TypeError("a part of an answer's content is not an object")
    return "".join(thought), "".join(text)


def _in_older_form(function: Any) -> Sequence[Any]:
    """The pieces of a call from servers that know only one for an answer, without number and id."""
    if not (function.name or function.arguments):
        return ()
    return (SimpleNamespace(index=0, id=None, function=function, model_extra=None),)


def _extra(call: Any) -> dict[str, Any] | None:
    """What a server adds to a call and wants back with it."""
    extra = (call.model_extra or _NOTHING).get("extra_content")
    return None if extra is None else {"extra_content": extra}


# --- calls that a server could not read -------------------------------------------------------------------------------

_NAMED = re.compile(r"<function[=(]\s*\"?(?P<name>[\w.-]+)\"?\)?\s*>?(?P<arguments>.*?)(?:</function>|\Z)", re.DOTALL)
_TAGS = re.compile(r"</?tool_call>|```\w*")
# Where a call stands that no list of calls can have so many before.
_BEHIND_ALL = 10_000


def failed_tool_use(body: Any, tools: Sequence[ToolSpec]) -> Sequence[StreamEvent]:
    """The call that a server could not read in its model's words, as Groq's ``tool_use_failed`` tells it.

    An agent answers the call, so that the model sees its mistake. Text in which no call can be found is text.

    Args:
        body: The error's body.
        tools: The tools that were offered.

    Returns:
        The events, ``Finish`` last; nothing for other errors.
    """
    told = cast("dict[str, Any]", body) if isinstance(body, dict) else _NOTHING
    inner = told.get("error")
    told = cast("dict[str, Any]", inner) if isinstance(inner, dict) else told
    written = told.get("failed_generation")
    if told.get("code") != "tool_use_failed" or not isinstance(written, str) or not written.strip():
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
    """Name and arguments of the calls that a model wrote as text."""
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
