"""Comparisons of two runs: their calls of models and tools, side by side, with totals, state and result.

``store.diff`` compares all records. A comparison shows the behaviour of a run: the requests, the answers and the tools.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple, cast

from pydantic_core import from_json

from batonflow.durable.history import commits_of, no_such_run
from batonflow.durable.spending import spending_of
from batonflow.durable.store_protocol import RunInfo, RunStore
from batonflow.durable.trace import plain_event, trace_of
from batonflow.instrumentation.redaction import redacted
from batonflow.llms.differences import (
    TextDifference,
    answer_difference,
    comparable,
    message_as_text,
    renumbered,
    request_difference,
)

__all__ = ["Action", "ActionPair", "RunComparison", "RunTotals", "compare_runs", "result_difference", "result_of"]

Data = Mapping[str, Any]


class Action(NamedTuple):
    """A call of a model or of a tool in a run.

    Attributes:
        kind: ``"model"`` or ``"tool"``.
        by: The agent; empty outside of agents.
        name: The model or the tool.
        text: The answer of the model, or the result of the tool.
        arguments: The arguments of the tool.
    """

    kind: str
    by: str
    name: str
    text: str
    arguments: dict[str, Any] | None = None


class ActionPair(NamedTuple):
    """An action of each of two runs.

    Attributes:
        left: The action of the first run; None if it has no such action.
        right: The action of the second run.
        same: Whether the actions are equal.
    """

    left: Action | None
    right: Action | None
    same: bool


@dataclass(frozen=True)
class RunTotals:
    """The totals of a run.

    Attributes:
        run_id: The run.
        status: Its status.
        models: The models that answered.
        model_calls: The number of their calls.
        tool_calls: The number of calls of tools.
        input_tokens: The tokens that the models read.
        output_tokens: The tokens that they wrote.
        cost: US dollars; None if no price is known.
        seconds: The time from the start to the last record.
    """

    run_id: str
    status: str
    models: list[str]
    model_calls: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    seconds: float


@dataclass(frozen=True)
class RunComparison:
    """Two runs side by side.

    Attributes:
        left: The totals of the first run.
        right: The totals of the second run.
        first: The first difference in a request, an answer or a tool call; None if all of them are equal.
        pairs: The actions of both runs, in order.
        state: The values of the state at the end that differ, by path.
        result: The difference of the results; None if they are equal.
    """

    left: RunTotals
    right: RunTotals
    first: TextDifference | None
    pairs: list[ActionPair]
    state: dict[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])
    result: TextDifference | None = None

    @property
    def same(self) -> bool:
        """True if the runs did the same and have the same result; totals do not count."""
        return self.first is None and self.result is None and not self.state and all(one.same for one in self.pairs)

    def as_data(self) -> dict[str, Any]:
        """Return the comparison as JSON data."""
        data = asdict(self)
        as_data = [one and one._asdict() for pair in self.pairs for one in (pair.left, pair.right)]
        data["pairs"] = [
            {"left": left, "right": right, "same": pair.same}
            for left, right, pair in zip(as_data[::2], as_data[1::2], self.pairs, strict=True)
        ]
        data["state"] = {path: {"left": left, "right": right} for path, (left, right) in self.state.items()}
        return {"same": self.same, **data}


async def compare_runs(store: RunStore, left: str, right: str) -> RunComparison:
    """Compare two runs of a store, without their code.

    Args:
        store: The store.
        left: The id of the first run.
        right: The id of the second run.

    Raises:
        StoreError: The store does not have one of the runs.

    Example:
        >>> comparison = await compare_runs(store, "tides-1", "tides-2")
        >>> comparison.same, comparison.right.cost
    """
    one, other = await _read(store, left), await _read(store, right)
    return RunComparison(
        left=one.totals(),
        right=other.totals(),
        first=_first_difference(one, other),
        pairs=_paired(one.actions, other.actions),
        state={
            path: (one.state.get(path), other.state.get(path))
            for path in dict.fromkeys([*one.state, *other.state])
            if path not in _TOLD and not _is_equal(one.state.get(path), other.state.get(path))
        },
        result=result_difference(one.result, other.result),
    )


# Values of agents that repeat the conversation or the totals.
_TOLD = frozenset({"memory", "scratchpad", "current_tool_calls", "usage", "ledger", "user_msg_str"})


@dataclass
class _Told:
    """A run, as far as a comparison reads it."""

    info: RunInfo
    calls: list[Data] = field(default_factory=list[Data])
    actions: list[Action] = field(default_factory=list[Action])
    requests: list[dict[str, Any] | None] = field(default_factory=list[dict[str, Any] | None])
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    result: Any = None

    def add(self, entry: Data) -> None:
        for call in entry.get("calls", ()):
            found = comparable(call)
            said = message_as_text(found["answer"]) if found["answer"] else str(call.get("error", ""))
            self.calls.append(call)
            self.actions.append(Action("model", call.get("agent", ""), str(call["model"]), said))
            self.requests.append(found)
        for event in entry.get("events", ()):
            if event["how"] == "returned" and event["type"] == "ToolCallResult":
                value: Data = event["value"]
                output: Data = value.get("tool_output") or {}
                arguments: dict[str, Any] = value.get("tool_kwargs") or {}
                self.actions.append(Action("tool", "", str(value.get("tool_name")), message_as_text(output), arguments))
                self.requests.append(None)
        if not entry["path"]:
            for write in entry.get("writes", ()):
                path = str(write["path"])
                self.state = {
                    known: value
                    for known, value in self.state.items()
                    if known != path and not known.startswith(f"{path}.")
                }
                if not write.get("deleted"):
                    self.state[path] = write["value"]

    def totals(self) -> RunTotals:
        spent = spending_of(self.calls)
        return RunTotals(
            run_id=self.info.run_id,
            status=self.info.status,
            models=list(dict.fromkeys(str(call["model"]) for call in self.calls)),
            model_calls=len(self.calls),
            tool_calls=sum(one.kind == "tool" for one in self.actions),
            input_tokens=spent.input_tokens,
            output_tokens=spent.output_tokens,
            cost=spent.cost,
            seconds=max(0.0, self.info.updated_at - self.info.created_at),
        )


async def _read(store: RunStore, run_id: str) -> _Told:
    info = await store.info(run_id)
    if info is None:
        raise no_such_run(run_id)
    told = _Told(info)
    async for commit in commits_of(store, run_id):
        for entry in trace_of([commit]):
            told.add(entry)
    told.result = None if info.result is None else result_of(from_json(info.result).get("event"))
    return told


def result_of(event: Any) -> Any:
    """Return the result in the recorded last event of a run, as data without ids and totals.

    Args:
        event: The event, as in the record.
    """
    if event is None:
        return None
    name, value = plain_event(event)
    if name.rpartition(".")[2] != "StopEvent":
        return redacted({"event": name.rpartition(".")[2], **value} if isinstance(value, Mapping) else value)
    result: Any = cast("Data", value).get("result") if isinstance(value, Mapping) else value
    if isinstance(result, Mapping) and "current_agent_name" in result and "response" in result:
        agent = cast("dict[str, Any]", result)
        kept = ("response", "structured_response", "current_agent_name", "blocked")
        result = {name: agent[name] for name in kept if agent.get(name) is not None}
    return redacted(renumbered(result, {}))


def result_difference(left: Any, right: Any) -> TextDifference | None:
    """Return the difference of two results, if there is one.

    Args:
        left: The first result, from ``result_of``.
        right: The second result.
    """
    if _is_equal(left, right):
        return None
    texts = [_result_as_text(one) for one in (left, right)]
    if texts[0] == texts[1]:
        texts = [json.dumps(one, indent=2, sort_keys=True, ensure_ascii=False) for one in (left, right)]
    return TextDifference("result", *texts)


def _result_as_text(result: Any) -> str:
    if isinstance(result, str):
        return result
    if isinstance(result, Mapping) and "response" in result:
        answer = cast("Data", result)
        if answer.get("structured_response") is None:
            return message_as_text(answer["response"])
    return json.dumps(result, indent=2, sort_keys=True, ensure_ascii=False)


def _is_equal(left: Any, right: Any) -> bool:
    return bool(left == right)


def _first_difference(left: _Told, right: _Told) -> TextDifference | None:
    """Return the first difference in the order of the actions."""
    calls = 0
    for number, (one, other) in enumerate(zip_longest(left.actions, right.actions)):
        if one is None or other is None or one.kind != other.kind:
            return TextDifference("next call", *("" if action is None else _line(action) for action in (one, other)))
        calls += one.kind == "model"
        if one.kind == "tool":
            if (one.name, one.arguments, one.text) != (other.name, other.arguments, other.text):
                return TextDifference(f"tool {one.name}", _line(one), _line(other))
            continue
        request, asked = left.requests[number], right.requests[number]
        assert request is not None
        assert asked is not None
        found = request_difference(request, asked) or answer_difference(request, asked)
        if found is not None:
            by = f" ({one.by})" if one.by else ""
            return TextDifference(f"call {calls}{by}, {found.where}", found.left, found.right)
    return None


def _line(action: Action) -> str:
    if action.kind == "tool":
        return f"{action.name}({json.dumps(action.arguments, sort_keys=True, ensure_ascii=False)})\n{action.text}"
    return f"{action.by or 'the workflow'} asked {action.name}\n{action.text}"


def _paired(left: Sequence[Action], right: Sequence[Action]) -> list[ActionPair]:
    """Align the actions of two runs; another model with the same answer is the same action."""
    keys = [[json.dumps([*one[:2], one.name * (one.kind == "tool"), *one[3:]]) for one in run] for run in (left, right)]
    pairs: list[ActionPair] = []
    matcher = difflib.SequenceMatcher(None, *keys, autojunk=False)
    for tag, begin, end, first, last in matcher.get_opcodes():
        both = zip_longest(left[begin:end], right[first:last])
        pairs += [ActionPair(one, other, same=tag == "equal") for one, other in both]
    return pairs
