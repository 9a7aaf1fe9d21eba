"""``replay``: print the stream of a stored run again, without running it."""

import asyncio
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from batonflow.cli.errors import DONE
from batonflow.cli.output import say, say_json
from batonflow.cli.records import status_text
from batonflow.cli.stores import opened, the_run
from batonflow.cli.stream_lines import StreamPrinter
from batonflow.cli.summary import event_line, field, message_text
from batonflow.durable.history import commits_of
from batonflow.durable.store_protocol import RunInfo
from batonflow.durable.trace import plain_event, trace_of
from batonflow.instrumentation.redaction import redacted

__all__ = ["replay"]

Entry = Mapping[str, Any]


def replay(given: Namespace) -> int:
    """Print the stream of a run again."""
    return asyncio.run(_replay(given))


async def _replay(given: Namespace) -> int:
    async with opened(given) as store:
        info = await the_run(store, given.run)
        streamed: list[Entry] = []
        async for commit in commits_of(store, given.run):
            for entry in trace_of([commit]):
                streamed += [
                    {**event, "step": entry.get("step", ""), "path": entry["path"], "commit": entry["commit"]}
                    for event in entry.get("events", ())
                    if "seq" in event
                ]
        streamed.sort(key=lambda event: event["seq"])
        result = _result(info)
        if given.json:
            result_data = None if result is None else {"qualified_name": result[0], "value": result[1]}
            say_json({"run_id": info.run_id, "status": info.status, "events": streamed, "result": result_data})
            return DONE
        printer = StreamPrinter()
        for event in streamed:
            printer.record(str(event["qualified_name"]), event["value"])
        printer.finish()
        say(f"{info.run_id} is {await status_text(store, info)}{_ending(result, printer.last_speech)}")
    return DONE


def _ending(result: tuple[str, Any] | None, said: str) -> str:
    """Return the end of the run as text, or no text if the stream has shown it."""
    if result is None:
        return ", not over yet"
    answer = field(field(result[1], "result"), "response")
    if said and message_text(answer).strip() == said.strip():
        return ""
    return f": {event_line(*result)}"


def _result(info: RunInfo) -> tuple[str, Any] | None:
    if info.result is None:
        return None
    event: Any = from_json(info.result).get("event")
    if event is None:
        return None
    name, value = plain_event(event)
    return (name, redacted(value)) if name else ("event", {})
