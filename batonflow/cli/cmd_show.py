"""``show``: print the records of a stored run."""

import asyncio
from argparse import Namespace
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from batonflow.cli.errors import DONE
from batonflow.cli.output import check_folder, complain, say, say_json
from batonflow.cli.questions import Question, how_to_answer, open_questions, question_data
from batonflow.cli.records import run_as_json, status_text, with_worker
from batonflow.cli.stores import KeptStore, opened, store_option, the_run
from batonflow.cli.summary import event_line
from batonflow.cli.text import age, one_line, shown
from batonflow.clock import current_source
from batonflow.durable.history import commits_of
from batonflow.durable.store_protocol import RunInfo
from batonflow.durable.trace import trace_of
from batonflow.server import page

__all__ = ["show"]

_LARGEST = 4096

Entry = Mapping[str, Any]


def show(given: Namespace) -> int:
    """Print the records of a run."""
    return asyncio.run(_show(given))


async def _show(given: Namespace) -> int:
    async with opened(given) as store:
        info = await with_worker(store, await the_run(store, given.run))
        if given.html is not None:
            await _write_page(store, info, given.html)
            return DONE
        if given.json and not given.follow:
            entries = [entry async for commit in commits_of(store, given.run) for entry in trace_of([commit])]
            asked = await open_questions(store, given.run) if not info.is_over else []
            say_json({**run_as_json(info), "entries": entries, "waiting": [question_data(one) for one in asked]})
            return DONE
        if not given.json:
            _head(info, await status_text(store, info))
        async for commit in store.subscribe(given.run) if given.follow else commits_of(store, given.run):
            for entry in trace_of([commit], largest=None if given.json else _LARGEST):
                if given.json:
                    say_json(entry)
                else:
                    say(_line(entry, info.created_at))
        if not given.json and not given.follow:
            await _say_open_questions(store, info)
    return DONE


async def _write_page(store: KeptStore, info: RunInfo, file: str) -> None:
    check_folder(file)
    await page.export_run(store, info.run_id, path=file)
    complain(f"written: {file}")


def _head(info: RunInfo, standing: str) -> None:
    say(f"run       {info.run_id}")
    say(f"workflow  {info.workflow}{'' if info.version is None else f', version {info.version}'}")
    driven = ", driven by a living process" if info.owner is not None and info.owner_alive else ""
    say(f"status    {standing}{driven}")
    if info.held:
        say(f"held      {info.held}; batonflow release {info.run_id} lets it be taken up again")
    say(f"began     {datetime.fromtimestamp(info.created_at, UTC).isoformat(sep=' ', timespec='seconds')}")
    end = info.updated_at if info.is_over else current_source().now()
    say(f"lasted    {age(max(0.0, end - info.created_at))}")
    if info.forked_from is not None:
        say(f"forked    from {info.forked_from[0]} at commit {info.forked_from[1]}")
    say()


async def _say_open_questions(store: KeptStore, info: RunInfo) -> None:
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
    return f"{entry['commit']:>5}  {when:>8}  {one_line(where) or '-':<24} {_description(entry)}"


def _description(entry: Entry) -> str:
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
    asked_models = "".join(f", asked {_call(call)}" for call in entry.get("calls", ()))
    match outcome["kind"]:
        case "returned":
            return f"{took}{attempt}{asked_models} -> {', '.join(made) or 'nothing'}"
        case "failed":
            then: Entry = outcome.get("then") or {}
            next_step = {"retry": ", is retried", "recovered": ", is handled"}.get(then.get("then", ""), "")
            error = one_line(str(outcome["error"])).rpartition(".")[2]
            return f"{took}{attempt} failed{next_step}: {error}: {one_line(str(outcome['message']))}"
        case "waiting":
            awaited = event_line(str(outcome["awaits"]), outcome.get("requirements"))
            asked = [_event(event) for event in events if event["how"] == "asked"]
            return f"{took}{attempt} waits for {awaited}{''.join(f', asked {one}' for one in asked)}"
        case "once":
            return f"{took}{attempt} once {one_line(str(outcome['key']))} = {shown(outcome.get('value'))}"
        case "intent":
            return f"{took}{attempt} is about to: {one_line(str(outcome['key']))}"
        case other:
            return f"{took}{attempt} {one_line(str(other))}"


def _call(call: Entry) -> str:
    """Return a call of a model in words."""
    usage: Entry = call.get("usage", {})
    facts = [f"{usage.get('input_tokens', 0)} -> {usage.get('output_tokens', 0)} tokens"] if usage else []
    facts += [f"${usage['cost']:.3g}"] if usage.get("cost") else []
    facts += [one_line(str(call["error"]))] if "error" in call else []
    return f"{one_line(str(call['model']))} ({', '.join([*facts, age(call['took'])])})"


def _event(event: Entry) -> str:
    return event_line(str(event["qualified_name"]), event.get("value"))
