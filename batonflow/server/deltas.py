"""Streamed answers as deltas: each text is sent once, and not again with each of its pieces.

A piece of an answer is an event with the texts ``delta`` and ``response``, such as ``AgentStream``. Its lean form has
the new characters of ``response`` as ``text`` and the number of characters before them as ``at``. A reader puts them
together: ``response[:at] + text``. ``text`` is left out when it equals ``delta``.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

__all__ = ["Deltas", "Rebuilding", "Told", "put_together"]

Told = tuple[int, dict[str, Any]]
"""The place of an event in its stream, and the event in the form for readers."""

MOST_ANSWERS = 64
"""The number of answers that a stream follows at a time. The one with the oldest piece is forgotten."""

_THINKING = "thinking_delta"
_REBUILT = ("delta", "response", _THINKING)
# The fields of a piece that are its own, and not those of the answer.
_OWN = ("delta", "text", "at", _THINKING)
_Answer = tuple[int, str, dict[str, Any]]


class Deltas:
    """The answers that one reader of a stream knows so far.

    All pieces of an answer name the place of its first one, ``of``. The first piece has the origin and all fields, the
    others only the fields that changed. A reader that joins in the middle gets the text so far with the first piece.

    Example:
        >>> Deltas().lean(envelope(event, seq=17))
    """

    def __init__(self) -> None:
        # By origin: the place of the first piece, the text so far, and the other fields.
        self._answers: dict[tuple[Any, ...], _Answer] = {}

    def lean(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return an event in its lean form; events other than pieces are returned unchanged.

        Args:
            event: The event in the form for readers.
        """
        value: dict[str, Any] = event["value"]
        delta, response = value.get("delta"), value.get("response")
        if not (isinstance(delta, str) and isinstance(response, str)):
            return event
        key = event["type"], event["path"], event["step"], event["cause"], value.get("current_agent_name")
        first, known, before = self._answers.pop(key, (-1, "", {}))
        begins = first < 0 or not response.startswith(known)
        if begins:
            first, known, before = event["seq"], "", {}
        fields = {name: one for name, one in value.items() if name not in _REBUILT}
        piece: dict[str, Any] = {"delta": delta, "at": len(known)}
        if (text := response[len(known) :]) != delta:
            piece["text"] = text
        if value.get(_THINKING) is not None:
            piece[_THINKING] = value[_THINKING]
        self._answers[key] = first, response, fields
        if len(self._answers) > MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]
        if begins:
            return {**event, "of": first, "value": {**fields, **piece}}
        changed = {name: one for name, one in fields.items() if name not in before or before[name] != one}
        return {"of": first, "value": {**piece, **changed}}


def _joined(first: dict[str, Any], event: dict[str, Any], seq: int) -> dict[str, Any]:
    """Return two consecutive pieces of an answer as one, with the place of the second."""
    one, other = cast("dict[str, Any]", first["value"]), cast("dict[str, Any]", event["value"])
    text = one.get("text", one["delta"]) + other.get("text", other["delta"])
    value = {**one, **other, "delta": one["delta"] + other["delta"], "at": one["at"]}
    value.pop("text", None)
    if text != value["delta"]:
        value["text"] = text
    if thinking := (one.get(_THINKING) or "") + (other.get(_THINKING) or ""):
        value[_THINKING] = thinking
    joined = {**first, "value": value}
    return {**joined, "seq": seq} if "seq" in first else joined


async def put_together(groups: AsyncGenerator[list[Told]], seconds: float) -> AsyncGenerator[list[Told]]:
    """Join the pieces of an answer that arrive within a time.

    Args:
        groups: Events in their lean form, in groups as they arrive.
        seconds: The time from the first of the joined pieces; other events do not wait.
    """
    loop = asyncio.get_running_loop()
    held: Told | None = None
    until = 0.0
    coming: asyncio.Future[list[Told] | None] | None = None
    async with aclosing(groups):
        try:
            while True:
                if held is None and coming is None:
                    # Without a task of its own, so that the last event and the end of the stream come at once.
                    group = await anext(groups, None)
                else:
                    coming = coming or asyncio.ensure_future(anext(groups, None))
                    await asyncio.wait({coming}, timeout=None if held is None else max(0.0, until - loop.time()))
                    if not coming.done():
                        assert held is not None
                        yield [held]
                        held = None
                        continue
                    group, coming = coming.result(), None
                if group is None:
                    break
                if not group and held is None:
                    yield []
                ready: list[Told] = []
                for seq, event in group:
                    if held is not None and event.get("of") == held[1]["of"]:
                        held = seq, _joined(held[1], event, seq)
                        continue
                    if held is not None:
                        ready.append(held)
                        held = None
                    if event.get("of") is not None:
                        held, until = (seq, event), loop.time() + seconds
                    else:
                        ready.append((seq, event))
                if ready:
                    yield ready
            if held is not None:
                yield [held]
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.wait({coming})


class Rebuilding:
    """The answers of one connection, whose pieces get their origin and ``response`` again."""

    def __init__(self) -> None:
        self._answers: dict[int, dict[str, Any]] = {}

    def whole(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return an event whole; events other than lean pieces are returned unchanged."""
        of = event.get("of")
        if of is None:
            return event
        value: dict[str, Any] = event["value"]
        first = self._answers.pop(of, event)
        known: dict[str, Any] = first["value"]
        fields = {name: one for name, one in {**known, **value}.items() if name not in _OWN}
        text = str(known.get("response", ""))[: value["at"]] + value.get("text", value["delta"])
        pieces = {"delta": value["delta"], "response": text, _THINKING: value.get(_THINKING)}
        whole = self._answers[of] = {**first, "value": {**fields, **pieces}}
        if len(self._answers) > MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]
        return whole
