"""Fields of events from the words of a command line."""

import json
import re
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, cast

from pydantic import ValidationError

from batonflow.agents.events import START_FIELDS, AgentWorkflowStartEvent
from batonflow.agents.members import check_options, misspelt_options
from batonflow.agents.running import AgentRuns
from batonflow.cli.errors import USAGE, CommandError
from batonflow.values.problems import in_words_with_hints, unknown_fields
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.workflow import Workflow

__all__ = ["fields_of", "json_object", "json_or_text"]

_FIELD = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def fields_of(workflow: Workflow, given: Namespace) -> dict[str, Any]:
    """Return the fields of the start event from ``--input`` and each ``key=value``.

    A value that is valid JSON is parsed unless the field is declared as text. Words without a key are the user's
    message to an agent or the question to an engine, and so are sentences that contain ``=`` behind an unknown key.

    Raises:
        CommandError: A word is not a field, ``--input`` is not a JSON object, or the fields do not fit the event.
    """
    cls = workflow.__batonflow__.steps.start_event_class
    found: dict[str, Any] = {}
    if given.input is not None:
        text = sys.stdin.read() if given.input == "-" else given.input
        found |= json_object(text, "--input")
    is_agent = issubclass(cls, AgentWorkflowStartEvent)
    of_words: str | None = "user_msg" if is_agent else getattr(cls, "field_of_words", None)
    known = START_FIELDS if is_agent else cls.model_fields
    message: list[str] = []
    for word in given.fields:
        match = _FIELD.fullmatch(word)
        if match is not None and not (of_words and match[1] not in known and re.search(r"\s", word)):
            is_text = match[1] == of_words or _is_text(cls, match[1])
            found[match[1]] = match[2] if is_text else json_or_text(match[2])
        elif of_words:
            message.append(word)
        else:
            raise CommandError(f"{word!r} is not a field: write key=value{_known(cls)}", USAGE)
    if message and of_words:
        found[of_words] = " ".join(message)
    try:
        problems = unknown_fields(cls(**found))
    except ValidationError as error:
        problems = f"no {cls.__name__} can be made of this: {in_words_with_hints(error, cls, found)}"
    except ValueError as error:
        problems = str(error)
    if isinstance(workflow, AgentRuns):
        problems = problems or _problem_for_agent(cast("Any", workflow), found, given.object)
    if problems:
        raise CommandError(problems, USAGE)
    return found


def _problem_for_agent(agent: AgentRuns[Any, Any], found: Mapping[str, Any], spec: str) -> str:
    """Return the text for fields with which an agent cannot run, or an empty text.

    Args:
        agent: The agent or team.
        found: The fields of its start event.
        spec: Its name on the command line.
    """
    kind = type(agent).__name__
    try:
        check_options(found.get("max_iterations"), found.get("early_stopping_method"), found.get("budget"))
    except ValueError as error:
        return str(error)
    if problems := list(misspelt_options(found, kind)):
        return "; ".join(problems)
    is_silent = found.get("user_msg") is None and not found.get("chat_history")
    return f'{kind} needs a message: batonflow run {spec} "Hello."' if is_silent else ""


def _is_text(cls: type[Event], name: str) -> bool:
    field = cls.model_fields.get(name)
    return field is not None and field.annotation is str


def _known(cls: type[Event]) -> str:
    return f"; {cls.__name__} has {', '.join(cls.model_fields)}" if cls.model_fields else ""


def json_or_text(text: str) -> Any:
    """Parse JSON, or return the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def json_object(text: str, where: str) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        CommandError: The text is not a JSON object.
    """
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        raise CommandError(f"{where} is not JSON: {error}", USAGE) from error
    if not isinstance(value, dict):
        raise CommandError(f'{where} is not a JSON object, as in \'{{"name": "value"}}\'', USAGE)
    return cast("dict[str, Any]", value)
