"""What a turn of a script is in the mouth of each kind of agent's model."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from batonflow.llms.stream import Finish, StreamEvent, TextDelta, ToolCallDelta
from tests.agents.scripts.script import Act, AgentKind, Turn
from tests.llms.wire.content import Part, Said, Text, ToolCall

__all__ = ["Answer", "answer"]

_TOOLS: dict[str, str] = {
    "good async": "look", "good sync": "count", "unknown tool": "tools.lok", "bad arguments": "look", "no json": "look",
    "raises": "fail", "times out": "dawdle", "denied": "publish", "approved": "publish", "edited": "publish",
    "edited badly": "publish", "expires": "publish_soon", "bad arguments to approve": "publish", "direct": "conclude",
    "direct fails": "conclude_badly", "handoff": "handoff",
}  # fmt: skip

# The others are refused before the code runs: it would not work.
_IN_CODE = {
    "good async", "good sync", "raises", "times out", "denied", "approved", "edited", "edited badly", "expires",
    "direct", "direct fails",
}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """An answer.

    Args:
        text: Its text.
        calls: What it calls natively, as ``(id, name, arguments)``.
        acts: For each call of the agent's, native or in text, the act; None for code.
        turn: The turn that it is.
        readable: For text that acts: whether it keeps the form.
        inside: What is called in code.
    """

    text: str
    calls: tuple[tuple[str | None, str, str], ...]
    acts: tuple[Act | None, ...]
    turn: Turn
    readable: bool = True
    inside: tuple[Act, ...] = ()

    def said(self, nameless: bool) -> Said:
        """The answer for a wire; ``nameless`` where calls may be without an id."""
        parts: list[Part] = [Text(self.text)] if self.text else []
        for number, (call_id, name, arguments) in enumerate(self.calls):
            named = "" if nameless else f"call_{self.turn.label}_{number}"
            parts.append(ToolCall(call_id or named, name, arguments))
        return Said(tuple(parts))

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """The answer as an adapter streams it."""
        for start in range(0, len(self.text), 20):
            yield TextDelta(text=self.text[start : start + 20])
        for number, (call_id, name, arguments) in enumerate(self.calls):
            yield ToolCallDelta(index=number, id=call_id, name=name)
            yield ToolCallDelta(index=number, arguments=arguments)
        yield Finish(reason="tool_calls" if self.calls else "stop")


def answer(kind: AgentKind, turn: Turn, sandbox: bool = False) -> Answer:
    """What the model of an agent says in a turn; its code calls tools if it runs in a ``sandbox``."""
    if kind == "react":
        return _reasoned(turn)
    if kind == "codeact":
        return _coded(turn, sandbox)
    return Answer(turn.text, tuple(map(_call, turn.acts)), turn.acts, turn)


def _arguments(act: Act) -> dict[str, Any]:
    match act.kind:
        case "handoff":
            return {"to_agent": act.to, "reason": act.label}
        case "bad arguments" | "bad arguments to approve":
            return {"label": act.label, "times": "often"}
        case "good async" | "times out":
            return {"label": act.label, "pause": act.pause}
        case _:
            return {"label": act.label}


def _call(act: Act) -> tuple[str | None, str, str]:
    text = json.dumps(_arguments(act))
    return act.id, _TOOLS[act.kind], text[:-1] if act.kind == "no json" else text


def _reasoned(turn: Turn) -> Answer:
    """One action at a time, in words."""
    if not turn.acts:
        text = f"Thought: I know {turn.label}.\nAnswer: {turn.text}" if turn.text else ""
        return Answer(text, (), (), turn, readable=bool(text))
    act = turn.acts[0]
    _, name, arguments = _call(act)
    readable = act.kind != "no json"
    text = f"Thought: I try {act.label}.\nAction: {name}\nAction Input: {arguments}"
    return Answer(text, (), (act,) if readable else (), turn, readable)


def _coded(turn: Turn, sandbox: bool) -> Answer:
    """Code for everything but handing over."""
    native = tuple(act for act in turn.acts if turn.stray or act.kind == "handoff")
    calls = tuple(map(_call, native))
    if len(native) == len(turn.acts):
        return Answer(turn.text, calls, native, turn)
    inside = tuple(act for act in turn.acts if sandbox and act not in native and act.kind in _IN_CODE)
    body = "\n".join((_print(turn), *map(_statement, inside), *([_raise(turn)] if turn.snippet_fails else ())))
    if not sandbox and turn.snippet_fails:
        body = _raise(turn)
    return Answer(f"{turn.text}\n<execute>\n{body}\n</execute>".strip(), calls, (None, *native), turn, inside=inside)


def _print(turn: Turn) -> str:
    return f"print('{turn.label}')"


def _raise(turn: Turn) -> str:
    return f"raise ValueError('{turn.label}')"


def _statement(act: Act) -> str:
    """A call in code, which goes on whatever comes of it."""
    pause = f", pause={act.pause}" if act.kind in ("good async", "times out") else ""
    call = f"await {_TOOLS[act.kind]}(label='{act.label}'{pause})"
    return f"try:\n    print({call})\nexcept Exception:\n    print('failed {act.label}')"
