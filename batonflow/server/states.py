"""The key-value state of a run, read from its records without its code."""

from typing import Any, cast

from batonflow.durable.parts.references import whole_commits
from batonflow.durable.replay import records_of
from batonflow.durable.store_protocol import Loaded
from batonflow.durable.trace import plain_value
from batonflow.instrumentation.redaction import redacted
from batonflow.values.serializers import read_json

__all__ = ["states_in"]


def states_in(loaded: Loaded) -> dict[str, dict[str, Any]]:
    """Return the states of a run and of its child runs: dotted path -> value, without secrets.

    Args:
        loaded: The run, up to the requested commit.
    """
    states: dict[str, dict[str, Any]] = {"": {}}
    if loaded.snapshot is not None:
        _unfold(states, "", read_json(loaded.snapshot[1]))
    for record in records_of(whole_commits(loaded)):
        if record["kind"] == "restored":
            _unfold(states, record["path"], record["snapshot"])
            continue
        state = states.setdefault(record["path"], {})
        for path, value in [*record.get("state", ()), *((path, value) for _, path, value in record.get("writes", ()))]:
            _write(state, path, None if value is None else plain_value(value), deletes=value is None)
    return {path: cast("dict[str, Any]", redacted(state)) for path, state in states.items()}


def _unfold(states: dict[str, dict[str, Any]], path: str, payload: dict[str, Any]) -> None:
    state = states[path] = _fields(payload.get("state"))
    for written, text in payload.get("writes") or ():
        _write(state, written, None if text is None else plain_value(text), deletes=text is None)
    children: dict[str, Any] = payload.get("children") or {}
    for child in children.get("runs") or ():
        _unfold(states, child["path"], child["payload"])


def _fields(saved: Any) -> dict[str, Any]:
    data = cast("dict[str, Any]", saved) if isinstance(saved, dict) else {}
    inner: Any = data.get("state_data", data)
    if isinstance(inner, str):  # of a declared class
        told: Any = plain_value(inner)
        if not isinstance(told, dict):
            return {}
        model = cast("dict[str, Any]", told)
        return {**model, **model.pop("_data", {})}
    values: dict[str, Any] = inner.get("_data", inner)
    return {name: plain_value(value) if isinstance(value, str) else value for name, value in values.items()}


def _write(state: dict[str, Any], path: str, value: Any, *, deletes: bool) -> None:
    for known in [known for known in state if known == path or known.startswith(f"{path}.")]:
        del state[known]
    # Into the state of the enclosing workflow if that exists, else under its own path.
    above = next((known for known in state if path.startswith(f"{known}.")), None)
    holder: Any = state if above is None else state[above]
    *way, name = [path] if above is None else path[len(above) + 1 :].split(".")
    for part in way:
        holder = holder.setdefault(part, {}) if isinstance(holder, dict) else holder  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(holder, dict):
        if deletes:
            cast("dict[str, Any]", holder).pop(name, None)
        else:
            holder[name] = value
