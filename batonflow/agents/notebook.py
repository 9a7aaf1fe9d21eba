"""Answers and runs in notebooks: the answer as Markdown, and its cost in small print."""

import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Protocol

from batonflow.agents.approvals import ApprovalRequired
from batonflow.bridge import wait_for_outcome
from batonflow.llms import MessageRole, Usage
from batonflow.workflow_core import WorkflowHandler
from batonflow.workflow_core.events import Event

__all__ = ["Bundle", "bundle", "handler_bundle", "literal", "output_bundle", "session_bundle", "usage_parts"]

Bundle = dict[str, str]
"""Forms of one object by media type; a front end shows the best one that it knows."""


class Answer(Protocol):
    """The output of an agent."""

    current_agent_name: str
    structured_response: Any

    @property
    def usage(self) -> Usage | None: ...


class Conversation(Protocol):
    """A session, whose turns have a message, an answer, a status and the usage of models."""

    name: str

    def turns(self) -> AsyncIterator[Any]: ...


_SHOWN = 500
_TURNS = 10
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")


def bundle(text: str, markdown: str, small: Iterable[str] = ()) -> Bundle:
    """Return the forms of an object.

    Args:
        text: The plain text.
        markdown: The same as Markdown.
        small: The parts of the small print; their characters mean nothing in Markdown and HTML.
    """
    parts = [part for part in small if part]
    printed = f"<sub>{' · '.join(map(literal, parts))}</sub>" if parts else ""
    told = "\n\n".join(part for part in (_closed(markdown), printed) if part)
    plain = "\n".join(part for part in (text, f"[{', '.join(parts)}]" if parts else "") if part)
    return {"text/plain": plain, "text/markdown": told}


def output_bundle(output: Answer, more: Iterable[str] = ()) -> Bundle:
    """Return the forms of an answer.

    Args:
        output: The answer.
        more: Further parts of the small print.
    """
    text = markdown = str(output)
    form = output.structured_response
    if form is not None:
        shown = json.dumps(form, indent=2, ensure_ascii=False, default=str)
        told = "" if _is_json_of(text, form) else text
        text = "\n".join(part for part in (told, shown) if part)
        markdown = "\n\n".join(part for part in (told, _fenced(shown)) if part)
    seconds: float = getattr(output, "_seconds", 0.0)
    took = f"{seconds:.1f} s" if seconds else ""
    return bundle(text, markdown, [output.current_agent_name, *usage_parts(output.usage), took, *more])


def usage_parts(usage: Usage | None) -> list[str]:
    """Return tokens and dollars as parts of small print."""
    if usage is None:
        return []
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    return [tokens] if usage.cost is None else [tokens, f"{usage.cost:.4f} USD"]


def handler_bundle(handler: WorkflowHandler[Any], answer: Answer | None) -> Bundle:
    """Return the forms of a run: its answer, or its status and its open questions.

    Args:
        handler: The handler of the run.
        answer: Its answer, if it has ended with one.
    """
    run = f"run {handler.run_id}"
    if handler.stopped_by is None and answer is not None:
        return output_bundle(answer, [run])
    name, status = str(handler.workflow.name), _status(handler)
    questions = [] if handler.is_done() else [_question(one.id, one.event) for one in handler.open_inputs()]
    text = "\n".join([f"{name} {status}", *(f"- {said} ({how})" for said, how in questions)])
    asked = [f"- {literal(said)}: {_code(how)}" for said, how in questions]
    return bundle(text, "\n".join([f"**{literal(name)}** {literal(status)}", *([""] if asked else []), *asked]), [run])


def _status(handler: WorkflowHandler[Any]) -> str:
    error = handler.stopped_by
    if error is not None:
        return f"ended with {type(error).__name__}: {error}"[:_SHOWN]
    if handler.is_done():
        return "is done"
    if handler.is_released:
        return "waits in its store"
    return "waits" if handler.is_waiting else "is running"


def _question(request_id: str, event: Event) -> tuple[str, str]:
    """Return a question in words, and the expression that answers it."""
    if isinstance(event, ApprovalRequired):
        arguments = ", ".join(f"{name}={value!r}" for name, value in event.arguments.items())
        said = f"{event.agent} wants to call {event.tool_name}({arguments})"
        return said[:_SHOWN], f"handler.approve({event.id!r}) or handler.deny({event.id!r})"
    said = str(event.get("prefix") or repr(event))
    return said[:_SHOWN], f"handler.open_inputs() has {request_id!r}: respond(...)"


# --- sessions ---------------------------------------------------------------------------------------------------------


def session_bundle(session: Conversation) -> Bundle:
    """Return the forms of a session: its last turns, with the tokens and dollars of all turns."""
    turns = wait_for_outcome(_all_turns(session))
    text: list[str] = []
    told: list[str] = []
    for turn in turns[-_TURNS:]:
        asked = "" if turn.user_msg is None else str(turn.user_msg.content or "")
        answer, status = _answer_of(turn), "" if turn.status == "completed" else f"{turn.status} {turn.error}".strip()
        text += [line for line in (f"> {asked}" if asked else "", answer, f"({status})" if status else "") if line]
        told += [f"> {literal(asked)}" if asked else "", _closed(answer), f"*{literal(status)}*" if status else ""]
    usage = sum((turn.usage for turn in turns), Usage())
    number = f"{len(turns)} turn{'' if len(turns) == 1 else 's'}"
    small = [f"session {session.name}", number, *(usage_parts(usage) if usage.total_tokens else [])]
    return bundle("\n".join(text), "\n\n".join(part for part in told if part), small)


async def _all_turns(session: Conversation) -> list[Any]:
    return [turn async for turn in session.turns()]


def _answer_of(turn: Any) -> str:
    said = (message.content for message in reversed(turn.messages) if message.role == MessageRole.ASSISTANT)
    return next((content for content in said if content), "")


# --- Markdown ---------------------------------------------------------------------------------------------------------


def literal(text: str) -> str:
    """Return a text of one line that Markdown, HTML and formulas leave as it is."""
    line = " ".join(text.split())
    return "".join(char if char.isalnum() or char in " ,·" else f"&#{ord(char)};" for char in line)


def _code(text: str) -> str:
    return f"<code>{literal(text)}</code>"


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}json\n{text}\n{fence}"


def _closed(markdown: str) -> str:
    """Return Markdown with its last block of code closed, so that what follows is not part of it."""
    fence = ""
    for line in markdown.splitlines():
        found = _FENCE.match(line)
        if found is None:
            continue
        mark, rest = found.groups()
        if not fence:
            fence = mark
        elif mark.startswith(fence) and not rest.strip():
            fence = ""
    return f"{markdown}\n{fence}" if fence else markdown


def _is_json_of(text: str, form: Mapping[str, Any]) -> bool:
    try:
        return bool(json.loads(text) == form)
    except ValueError:
        return not text.strip()
