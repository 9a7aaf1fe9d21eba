"""How an answer travels: as events, cut into pieces in several ways, and with faults."""

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from tests.llms.loopback import Answer, Received

__all__ = [
    "CHUNKINGS",
    "as_asked",
    "as_json",
    "cut_off",
    "encoded",
    "ending_early",
    "events_of",
    "failing",
    "hanging",
    "html_page",
    "no_completion",
    "slow",
    "streamed",
]


def encoded(body: Any) -> bytes:
    """JSON as the vendors write it: without spaces, in UTF-8 and not in escapes."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The data of the events in a stream of server-sent events, without the ``[DONE]`` of chat completions."""
    lines = (line.removeprefix(b"data: ") for line in stream.split(b"\n") if line.startswith(b"data: "))
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def _whole(data: bytes) -> list[bytes]:
    return [data]


def _single_bytes(data: bytes) -> list[bytes]:
    return [data[place : place + 1] for place in range(len(data))]


def _cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    bounds = [0, *places, len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


def _inside_characters(data: bytes) -> list[bytes]:
    return _cut(data, (place for place, byte in enumerate(data) if byte & 0b1100_0000 == 0b1000_0000))


def _crlf(data: bytes) -> list[bytes]:
    ended = data.replace(b"\n", b"\r\n")
    return _cut(ended, (place for place, byte in enumerate(ended) if byte == ord("\n")))


CHUNKINGS: Mapping[str, Callable[[bytes], list[bytes]]] = {
    "whole": _whole,
    "single bytes": _single_bytes,
    "inside characters": _inside_characters,
    "crlf": _crlf,
}
"""Ways of cutting bytes: in one piece; byte by byte; before every byte but the first of each character that has
several; with the line ends as ``\\r\\n``, cut between the two."""


def streamed(stream: bytes, chunking: str = "whole", **more: Any) -> Answer:
    """A stream of events, cut in one of the ``CHUNKINGS``; ``more`` goes to the `Answer`."""
    return Answer(CHUNKINGS[chunking](stream), **more)


def as_json(body: Any, chunking: str = "whole", **more: Any) -> Answer:
    """An answer of one JSON value."""
    return Answer(CHUNKINGS[chunking](encoded(body)), content_type="application/json", **more)


def failing(status: int, body: Any, **headers: str) -> Answer:
    """An answer with an error's status and body; underscores in the names of headers stand for hyphens."""
    return as_json(body, status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def as_asked(stream: bytes, body: Any, chunking: str = "whole") -> Callable[[Received], Answer]:
    """For ``Loopback.answers``: the stream to who asks for a stream, the body to everybody else."""

    def answer(request: Received) -> Answer:
        return streamed(stream, chunking) if request.body.get("stream") else as_json(body, chunking)

    return answer


def cut_off(stream: bytes, after: int, chunking: str = "whole", *, reset: bool = False) -> Answer:
    """A connection that breaks ``after`` that many bytes of the body; with ``reset`` by force."""
    return streamed(stream[:after], chunking, breaks=not reset, resets=reset)


def ending_early(stream: bytes, after: int, chunking: str = "whole") -> Answer:
    """An answer that ends in proper form ``after`` that many bytes, though there should be more."""
    return streamed(stream[:after], chunking)


def hanging(stream: bytes, after: int | None = None, chunking: str = "whole") -> Answer:
    """A stream from which nothing comes any more ``after`` that many bytes; all of them when left out."""
    return streamed(stream[:after], chunking, hangs=True)


def slow(stream: bytes, pause: float) -> Answer:
    """A stream with ``pause`` seconds between its events."""
    return Answer([event + b"\n\n" for event in stream.split(b"\n\n") if event], pause=pause)


def html_page(status: int = 200) -> Answer:
    """What a proxy has to say."""
    page = "<!doctype html><html><body><h1>Gateway für alle 🌐</h1></body></html>"
    return Answer([page.encode()], status=status, content_type="text/html; charset=utf-8")


def no_completion() -> Answer:
    """JSON with which nobody can do anything."""
    return as_json({"status": "ok", "version": [1, 2]})
