"""``compare``: show two stored runs side by side."""

import asyncio
from argparse import Namespace
from collections.abc import Iterator

from batonflow.cli.errors import DONE
from batonflow.cli.output import say, say_json
from batonflow.cli.stores import opened, the_run
from batonflow.cli.text import age, call, one_line, shown
from batonflow.durable.comparison import Action, RunComparison, RunTotals, compare_runs
from batonflow.llms.differences import TextDifference

__all__ = ["compare", "comparison_lines"]

_LONGEST = 100


def compare(given: Namespace) -> int:
    """Print two runs side by side."""
    return asyncio.run(_compare(given))


async def _compare(given: Namespace) -> int:
    async with opened(given) as store:
        for run_id in (given.run, given.other):
            await the_run(store, run_id)
        comparison = await compare_runs(store, given.run, given.other)
    if given.json:
        say_json(comparison.as_data())
    else:
        say("\n".join(comparison_lines(comparison)))
    return DONE


def comparison_lines(comparison: RunComparison) -> Iterator[str]:
    """Yield a comparison as lines for people."""
    left, right = comparison.left.run_id, comparison.right.run_id
    yield from _totals(comparison.left, comparison.right)
    if comparison.same:
        yield "\nthe runs did the same, with the same result"
        return
    if comparison.first is not None:
        yield f"\nthe runs part at {comparison.first.where}"
        yield from _lines(comparison.first, left, right)
    yield "\ncalls"
    for pair in comparison.pairs:
        if pair.same and pair.left is not None:
            yield f"    {_action(pair.left)}"
        else:
            yield from (f"  {mark} {_action(one)}" for mark, one in (("-", pair.left), ("+", pair.right)) if one)
    if comparison.state:
        yield "\nstate"
    for path, values in comparison.state.items():
        yield from (f"  {mark} {one_line(path)} = {shown(one)}" for mark, one in zip("-+", values, strict=True))
    if comparison.result is not None:
        yield "\nthe results differ"
        yield from _lines(comparison.result, left, right)


def _totals(left: RunTotals, right: RunTotals) -> Iterator[str]:
    rows = [("", left.run_id, right.run_id), ("status", left.status, right.status)]
    rows += [("model", *(", ".join(one.models) or "-" for one in (left, right)))]
    rows += [("calls", *(f"{one.model_calls} of models, {one.tool_calls} of tools" for one in (left, right)))]
    rows += [("tokens", *(f"{one.input_tokens} -> {one.output_tokens}" for one in (left, right)))]
    rows += [("cost", *("-" if one.cost is None else f"${one.cost:.3g}" for one in (left, right)))]
    rows += [("time", *(age(one.seconds) for one in (left, right)))]
    width = max(len(row[1]) for row in rows)
    for name, one, other in rows:
        yield f"{name:<8}{one_line(one):<{width}}  {one_line(other)}"


def _lines(found: TextDifference, left: str, right: str) -> Iterator[str]:
    return (f"  {line}" for line in found.lines(left, right))


def _action(action: Action) -> str:
    asked = call(action.name, action.arguments or {}) if action.kind == "tool" else action.by or one_line(action.name)
    return f"{asked}: {_cut(action.text)}"


def _cut(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
