"""``runs``, ``show`` and ``replay``: what a store tells of runs. No class of theirs is needed, nothing is run."""

import asyncio
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json

from batonflow.cli.answering import how_to_answer, question_data
from batonflow.cli.briefly import briefly, field, message_text
from batonflow.cli.errors import DONE, FAILED
from batonflow.cli.output import complain, say, say_json, table
from batonflow.cli.questions import Question, open_questions
from batonflow.cli.stores import opened, store_option, the_run
from batonflow.cli.telling import Teller
from batonflow.cli.text import age, one_line, shown
from batonflow.durable.store_protocol import RunInfo, StoredCommit
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.durable.trace import plain_event, trace_of
from batonflow.instrumentation.logs import fit_to_show
from batonflow.instrumentation.redaction import redacted
from batonflow.lazy import at_first_use

__all__ = ["diff", "replay", "runs", "show"]

# The page belongs to the server, which most who look at runs do not need.
export_run = at_first_use("batonflow.server.page", "export_run")

_PAGE = 500
_LARGEST = 4096

Entry = Mapping[str, Any]


def runs(given: Namespace) -> int:
    """List the runs of a store."""
    return asyncio.run(_runs(given))


def show(given: Namespace) -> int:
    """Tell what a run did."""
    return asyncio.run(_show(given))


def replay(given: Namespace) -> int:
    """Print again what a run streamed."""
    return asyncio.run(_replay(given))


def diff(given: Namespace) -> int:
    """Tell how two runs differ."""
    return asyncio.run(_diff(given))


async def _diff(given: Namespace) -> int:
    async with opened(given) as store:
        for run_id in (given.run, given.other):
            await the_run(store, run_id)
        found = await store.diff(given.run, given.other)
    if given.json:
        pairs = [{"left": redacted(one.left), "right": redacted(one.right)} for one in found.differences]
        say_json({"same": found.same, "differences": pairs})
    else:
        say(fit_to_show(str(found)))
    return DONE if not found.differences else FAILED


# --- runs -------------------------------------------------------------------------------------------------------------


async def _runs(given: Namespace) -> int:
    async with opened(given) as store:
        found = await _found(store, given)
        if given.json:
            say_json([{**_info_data(info), "asks": await _asked(store, info)} for info in found])
            return DONE
        now = time.time()
        rows = [
            (info.run_id, info.workflow, await _standing(store, info), age(now - info.created_at), str(info.seq))
            for info in found
        ]
        table(("RUN", "WORKFLOW", "STATUS", "AGE", "COMMITS"), rows)
    return DONE


async def _found(store: SQLiteStore, given: Namespace) -> list[RunInfo]:
    """The runs that are asked for, the newest first. Those that ask something wait, whatever their process does."""
    limit: int = given.limit
    if given.status != ["waiting"]:
        return await store.list_runs(status=given.status, workflow=given.workflow, limit=limit, newest_first=True)
    found: list[RunInfo] = []
    last: str | None = None
    while len(found) < limit:
        page = await store.list_runs(
            status=["ready", "running", "waiting"], workflow=given.workflow, after=last, limit=_PAGE, newest_first=True
        )
        found += [info for info in page if info.status == "waiting" or await _asked(store, info)]
        if len(page) < _PAGE:
            break
        last = page[-1].run_id
    return found[:limit]


async def _asked(store: SQLiteStore, info: RunInfo) -> int:
    """How many questions of a run stand open."""
    return 0 if info.is_over else len(await open_questions(store, info.run_id))


async def _standing(store: SQLiteStore, info: RunInfo) -> str:
    """Where a run stands, and whether it asks something."""
    asked = await _asked(store, info)
    if asked and not info.unread:
        return f"waiting ({asked} asked)"
    status = "interrupted" if info.status == "running" and not info.owner_alive else info.status
    return f"{status} (answered)" if asked else status


def _info_data(info: RunInfo) -> dict[str, Any]:
    return {
        "run_id": info.run_id,
        "workflow": info.workflow,
        "status": info.status,
        "driven": info.owner is not None and info.owner_alive,
        "commits": info.seq,
        "unread": info.unread,
        "created_at": info.created_at,
        "updated_at": info.updated_at,
        "wake_at": info.wake_at,
        "forked_from": None if info.forked_from is None else list(info.forked_from),
    }


# --- show -------------------------------------------------------------------------------------------------------------


async def _show(given: Namespace) -> int:
    async with opened(given) as store:
        info = await the_run(store, given.run)
        if given.html is not None:
            await _page(store, info, given.html)
            return DONE
        if given.json and not given.follow:
            entries = [entry async for commit in _commits(store, given.run) for entry in trace_of([commit])]
            asked = await open_questions(store, given.run) if not info.is_over else []
            say_json({**_info_data(info), "entries": entries, "waiting": [question_data(one) for one in asked]})
            return DONE
        if not given.json:
            _head(info, await _standing(store, info))
        async for commit in store.subscribe(given.run) if given.follow else _commits(store, given.run):
            for entry in trace_of([commit], largest=None if given.json else _LARGEST):
                if given.json:
                    say_json(entry)
                else:
                    say(_line(entry, info.created_at))
        if not given.json and not given.follow:
            await _tell_open(store, info)
    return DONE


async def _page(store: SQLiteStore, info: RunInfo, file: str) -> None:
    """Write the page of a run into a file."""
    await export_run(store, info.run_id, path=file)
    complain(f"written: {file}")


async def _commits(store: SQLiteStore, run_id: str) -> AsyncIterator[StoredCommit]:
    last = 0
    while found := await store.read(run_id, last, _PAGE):
        for commit in found:
            yield commit
        last = found[-1].seq


def _head(info: RunInfo, standing: str) -> None:
    say(f"run       {info.run_id}")
    say(f"workflow  {info.workflow}{'' if info.version is None else f', version {info.version}'}")
    driven = ", driven by a living process" if info.owner is not None and info.owner_alive else ""
    say(f"status    {standing}{driven}")
    say(f"began     {datetime.fromtimestamp(info.created_at, UTC).isoformat(sep=' ', timespec='seconds')}")
    say(f"lasted    {age(info.updated_at - info.created_at)}")
    if info.forked_from is not None:
        say(f"forked    from {info.forked_from[0]} at commit {info.forked_from[1]}")
    say()


async def _tell_open(store: SQLiteStore, info: RunInfo) -> None:
    if info.is_over:
        return
    questions: list[Question] = await open_questions(store, info.run_id)
    if questions:
        say("\nwaits for a person" + (", and an answer is on its way" if info.unread else ""))
    for question in questions:
        say(f"  {question.name}: {question.in_words}")
    if not info.unread:
        for line in how_to_answer(info.run_id, questions, store_option(store)):
            say(f"  {line}")


def _line(entry: Entry, begin: float) -> str:
    where = "/".join(part for part in (entry["path"], str(entry.get("step", ""))) if part)
    when = f"+{age(entry['at'] - begin)}"
    return f"{entry['commit']:>5}  {when:>8}  {one_line(where) or '-':<24} {_what(entry)}"


def _what(entry: Entry) -> str:
    """What a record says, in a line."""
    events: list[Entry] = entry.get("events", [])
    came = [_event(event) for event in events if event["how"] == "came"]
    kind = entry["kind"]
    if kind == "segment":
        return _segment(entry, events)
    words = {
        "started": "started with",
        "input": "was sent",
        "answered": "was answered with",
        "ended": "ended with",
        "dropped": "nothing took",
        "restored": "restored",
        "edited": "state was edited:",
    }
    written = ", ".join(one_line(str(write["path"])) for write in entry.get("writes", ())) if kind == "edited" else ""
    return " ".join(part for part in (words.get(kind, kind), ", ".join(came), written) if part)


def _segment(entry: Entry, events: list[Entry]) -> str:
    outcome: Entry = entry["outcome"]
    took = age(max(0.0, entry["at"] - entry["began"])) if "began" in entry else ""
    attempt = f" (attempt {entry['attempt'] + 1})" if entry.get("attempt") else ""
    made = [_event(event) for event in events if event["how"] in {"returned", "sent"}]
    match outcome["kind"]:
        case "returned":
            return f"{took}{attempt} -> {', '.join(made) or 'nothing'}"
        case "failed":
            then: Entry = outcome.get("then") or {}
            next_step = {"retry": ", is retried", "recovered": ", is handled"}.get(then.get("then", ""), "")
            error = one_line(str(outcome["error"])).rpartition(".")[2]
            return f"{took}{attempt} failed{next_step}: {error}: {one_line(str(outcome['message']))}"
        case "waiting":
            awaited = briefly(str(outcome["awaits"]), outcome.get("requirements"))
            asked = [_event(event) for event in events if event["how"] == "asked"]
            return f"{took}{attempt} waits for {awaited}{''.join(f', asked {one}' for one in asked)}"
        case "once":
            return f"{took}{attempt} once {one_line(str(outcome['key']))} = {shown(outcome.get('value'))}"
        case "intent":
            return f"{took}{attempt} is about to: {one_line(str(outcome['key']))}"
        case other:
            return f"{took}{attempt} {one_line(str(other))}"


def _event(event: Entry) -> str:
    return briefly(str(event["qualified_name"]), event.get("value"))


# --- replay -----------------------------------------------------------------------------------------------------------


async def _replay(given: Namespace) -> int:
    async with opened(given) as store:
        info = await the_run(store, given.run)
        streamed: list[Entry] = []
        async for commit in _commits(store, given.run):
            for entry in trace_of([commit]):
                streamed += [
                    {**event, "step": entry.get("step", ""), "path": entry["path"], "commit": entry["commit"]}
                    for event in entry.get("events", ())
                    if "seq" in event
                ]
        streamed.sort(key=lambda event: event["seq"])
        result = _result(info)
        if given.json:
            told = None if result is None else {"qualified_name": result[0], "value": result[1]}
            say_json({"run_id": info.run_id, "status": info.status, "events": streamed, "result": told})
            return DONE
        teller = Teller()
        for event in streamed:
            teller.record(str(event["qualified_name"]), event["value"])
        teller.finish()
        say(f"{info.run_id} is {await _standing(store, info)}{_with(result, teller.last_speech)}")
    return DONE


def _with(result: tuple[str, Any] | None, said: str) -> str:
    """How it ended, unless that has been said."""
    if result is None:
        return ", not over yet"
    answer = field(field(result[1], "result"), "response")
    if said and message_text(answer).strip() == said.strip():
        return ""
    return f": {briefly(*result)}"


def _result(info: RunInfo) -> tuple[str, Any] | None:
    """Class and fields of the event that ended a run."""
    if info.result is None:
        return None
    event: Any = from_json(info.result).get("event")
    if event is None:
        return None
    name, value = plain_event(event)
    return (name, redacted(value)) if name else ("event", {})
