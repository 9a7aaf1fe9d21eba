"""What a model says, in no vendor's words: the common ground of the wire formats and of what reads them."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Literal, TypeAlias

__all__ = [
    "SAMPLES",
    "Citation",
    "Part",
    "RedactedThinking",
    "Refusal",
    "Said",
    "Stop",
    "Text",
    "Thinking",
    "ToolCall",
    "Usage",
    "WebSearch",
    "canonical",
    "deltas",
]

Stop: TypeAlias = Literal[
    "stop", "tool_calls", "length", "content_filter", "refusal", "stop_sequence", "pause", "context_window"
]
"""Why a model stopped. Each API's module has ``STOPS``, the words of that API for these."""


@dataclass(frozen=True)
class Citation:
    """Where a text has something from."""

    url: str
    title: str
    cited_text: str = ""


@dataclass(frozen=True)
class Text:
    """Words for the user."""

    text: str
    citations: tuple[Citation, ...] = ()


@dataclass(frozen=True)
class Thinking:
    """Thoughts before an answer.

    Args:
        text: The thoughts themselves.
        summary: A summary of them, in parts.
        signature: What has to go back to the vendor unchanged: the signature, the encrypted content.
    """

    text: str = ""
    summary: tuple[str, ...] = ()
    signature: str | None = None

    @property
    def whole(self) -> str:
        """The thoughts, or else their summary, as one text."""
        return self.text or "\n\n".join(self.summary)


@dataclass(frozen=True)
class RedactedThinking:
    """Thoughts that the vendor gives out encrypted only."""

    data: str


@dataclass(frozen=True)
class ToolCall:
    """A call of one of the caller's tools; ``arguments`` is JSON text, or what the model takes for it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class WebSearch:
    """A search that the vendor makes itself, with the (url, title) of what it found."""

    id: str
    query: str
    results: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Refusal:
    """The model declines, in words of its own."""

    text: str


Part: TypeAlias = Text | Thinking | RedactedThinking | ToolCall | WebSearch | Refusal


@dataclass(frozen=True)
class Usage:
    """Tokens. ``input`` holds ``cached`` and ``cache_write``; ``output`` holds ``reasoning``."""

    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Said:
    """What a model answers.

    Args:
        parts: In the order in which the model makes them.
        usage: None where the server does not say.
        stop: Left out, it follows from the parts.
        model: The name the server gives itself.
    """

    parts: tuple[Part, ...]
    usage: Usage | None = Usage(input=30, cached=8, cache_write=2, output=20, reasoning=4)
    stop: Stop | None = None
    model: str = "test-model-2026"

    @property
    def stopped(self) -> Stop:
        """Why the model stopped."""
        if self.stop is not None:
            return self.stop
        return "tool_calls" if self.calls else "stop"

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls among the parts."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def text(self) -> str:
        """The words for the user, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def broken(self) -> bool:
        """Whether the arguments of a call are not JSON."""
        return any(not _is_json(call.arguments or "{}") for call in self.calls)

    def carried(self, part: Callable[[Part], Part | None], stop: Stop, usage: Usage | None) -> "Said":
        """What is left of this where ``part`` is what is left of each part."""
        left = tuple(kept for kept in map(part, self.parts) if kept is not None)
        return replace(self, parts=left, stop=stop, usage=usage)


def deltas(text: str, sizes: tuple[int, ...] = (3, 1, 7, 2, 5)) -> list[str]:
    """``text`` in several pieces, as models write it: of whole characters, but without regard to what they mean."""
    result: list[str] = []
    start = 0
    for size in cycle(sizes):
        if start >= len(text):
            return result
        result.append(text[start : start + size])
        start += size
    raise AssertionError


def canonical(arguments: str) -> str:
    """JSON text in one form, for an API that does not hand on the model's own; broken JSON stays as it is."""
    given = arguments or "{}"
    return json.dumps(json.loads(given), ensure_ascii=False) if _is_json(given) else arguments


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# Umlauts, four-byte characters, a joined emoji, and two characters that only careless readers take for line ends.
_WORDS = "Zwölf Gezeiten 🌊 für dich, 👩\u200d🚀!\nÄußerst\u2028schön\x85 · 東京\r\n\ndata: [DONE]\n\n"
_ARGUMENTS = '{"where": "Köln \\ud83c\\udf0a 🌊", "days": [1, 2], "note": "say \\"hé\\"\\n"}'

SAMPLES: dict[str, Said] = {
    "text": Said((Text(_WORDS),)),
    "no usage": Said((Text("short"),), usage=None),
    "nothing": Said((), usage=Usage(input=3)),
    "thoughts, then text": Said(
        (Thinking(text="Erst übe ich 🤔, then I answer.", signature="c2lnbmF0dXJlLTE="), Text("Zweiundvierzig: 42 ✅"))
    ),
    "a summary of thoughts, then a call": Said(
        (
            Thinking(summary=("**Prüfen** 🔍\n\nLook first.", "**Rufen**\n\nThen call."), signature="Z0FBQUFBL3M="),
            ToolCall("call_sum_1", "weather", _ARGUMENTS),
        )
    ),
    "redacted thoughts between others": Said(
        (
            Thinking(text="one", signature="c2ln"),
            RedactedThinking("cmVkYWN0ZWQ="),
            Text("Ich rufe gleich auf. 🌦"),
            ToolCall("call_red_1", "weather", _ARGUMENTS),
        )
    ),
    "calls in parallel": Said(
        (
            ToolCall("call_par_1", "weather", _ARGUMENTS),
            ToolCall("call_par_2", "weather", '{"where": "Zürich"}'),
            ToolCall("call_par_3", "now", "{}"),
        )
    ),
    "a call without arguments": Said((Text("Einen Moment …"), ToolCall("call_none_1", "now", ""))),
    "cut off in a text": Said((Text("Es war einmal ein Bä"),), stop="length"),
    "cut off in a call": Said((ToolCall("call_cut_1", "weather", '{"where": "Mün'),), stop="length"),
    "filtered": Said((Text("Zuerst mischt man "),), stop="content_filter"),
    "refused": Said((Refusal("Dabei kann ich nicht helfen. 🙅"),)),
    "searched and cited": Said(
        (
            WebSearch("srv_1", "Gezeiten Büsum 🌊", (("https://tides.test/büsum", "Tides · Büsum"),)),
            Text(
                "Hochwasser um 12:04 Uhr.", (Citation("https://tides.test/büsum", "Tides · Büsum", "Hochwasser 12:04"),)
            ),
        )
    ),
}
"""Answers of every kind, by name."""
