"""Passages with numbers for agents, and the check of the numbers that an agent cites."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from batonflow.nodes import MetadataMode, NodeWithScore
from batonflow.retrieval.citation_marks import Citation, marks_in, support_by_words
from batonflow.retrieval.prompts import marked_passages
from batonflow.tools import RetrieverTool, ToolOutput
from batonflow.workflow_core.engine.state import current_item
from batonflow.workflow_core.events import DictState

__all__ = ["CitedRetrieverTool", "check_citations", "passages_of"]

_FIRST = "first_number"
_SHOWN = "passages_shown"
"""The key of the number of passages so far in the state of a run."""

ASK_FOR_NUMBERS = "The passages have numbers. After each statement from a passage write its number, such as [1]."


class CitedRetrieverTool(RetrieverTool):
    """Tool that shows passages with numbers, which an agent cites as ``[1]``.

    The numbers go on from one call of a run to the next, also among several such tools.

    Example:
        >>> output = await FunctionAgent(llm=llm, tools=[index.as_tool("notes", "Knows the sea.")]).run("Why tides?")
        >>> [one.is_supported for one in check_citations(output)]
    """

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Search; see ``RetrieverTool.call``."""
        output, store = super().call(*args, **kwargs), _store_here()
        if store is None:
            return _numbered(output, 1)
        with store.edit_state_sync() as state:
            return _numbered(output, _next_number(state, len(output.raw_output)))

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Search; see ``RetrieverTool.call``. Searches at once get their numbers in the order of their calls."""
        async with _in_order() as earlier:
            output = await super().acall(*args, **kwargs)
            if earlier is not None:
                await earlier.wait()
            if (store := _store_here()) is None:
                return _numbered(output, 1)
            async with store.edit_state() as state:
                return _numbered(output, _next_number(state, len(output.raw_output)))


_latest: "WeakKeyDictionary[Any, asyncio.Event]" = WeakKeyDictionary()
"""The end of the latest search of each run."""

_searching: ContextVar[bool] = ContextVar("batonflow_cited_search", default=False)


@asynccontextmanager
async def _in_order() -> AsyncGenerator[asyncio.Event | None]:
    """Begin a search, and give the end of the one before in the run, or None."""
    item = current_item.get()
    run = None if item is None else item.run
    if run is None or _searching.get() or run.loop is not asyncio.get_running_loop():
        yield None  # a search inside another one must not wait for it
        return
    earlier, ended = _latest.get(run), asyncio.Event()
    _latest[run] = ended
    token = _searching.set(True)
    try:
        yield earlier
    finally:
        _searching.reset(token)
        ended.set()


def _store_here() -> Any:
    """Return the state of the run around this code, or None."""
    item = current_item.get()
    return None if item is None or item.run is None else item.run.context_for(item).store


def _next_number(state: Any, count: int) -> int:
    """Return the first of so many new numbers. A state with declared fields has no place, so it is 1."""
    if not isinstance(state, DictState):
        return 1
    before = int(state.get(_SHOWN, 0))
    state[_SHOWN] = before + count
    return before + 1


def _numbered(output: ToolOutput, first: int) -> ToolOutput:
    nodes: list[NodeWithScore] = output.raw_output
    if not nodes:
        return output
    texts = marked_passages([one.node.get_content(MetadataMode.LLM) for one in nodes], first)
    raw_input = {**output.raw_input, _FIRST: first}
    return ToolOutput(output.tool_name, "\n".join(texts), raw_input=raw_input, raw_output=nodes)


def passages_of(output: Any) -> dict[int, NodeWithScore]:
    """Return the passages that an agent has seen, by their numbers.

    Args:
        output: The output of a run of an agent with tools of ``index.as_tool()``.
    """
    found: dict[int, NodeWithScore] = {}
    for call in output.tool_calls:
        told: Any = getattr(call, "tool_output", None)
        if told is not None and _FIRST in told.raw_input:
            # A run that was restored has them as data.
            nodes = [one if isinstance(one, NodeWithScore) else NodeWithScore(**one) for one in told.raw_output]
            found.update(enumerate(nodes, told.raw_input[_FIRST]))
    return found


def check_citations(
    answer: Any, passages: Mapping[int, NodeWithScore] | Sequence[NodeWithScore] | None = None
) -> list[Citation]:
    """Return the citations in an answer, each with its check.

    A passage supports a sentence if it has half of the sentence's words. A number without a passage is supported by
    nothing.

    Args:
        answer: The output of an agent, or a text.
        passages: The passages by number, or in order from 1; by default those that the agent has seen.

    Raises:
        TypeError: The answer is a text, and there are no passages.

    Example:
        >>> [one.number for one in check_citations(await agent.run("Why tides?")) if not one.is_supported]
    """
    if passages is None and not hasattr(answer, "tool_calls"):
        raise TypeError("a text needs passages: give them, or the output of the agent")
    known = passages_of(answer) if passages is None else passages
    by_number = dict(known) if isinstance(known, Mapping) else dict(enumerate(known, 1))
    found: list[Citation] = []
    for number, begin, end, statement in marks_in(str(answer)):
        node = by_number[number].node if number in by_number else None
        supported = node is not None and support_by_words(node.get_content(), statement)
        node_id = None if node is None else node.id_
        found.append(Citation(number=number, node_id=node_id, begin=begin, end=end, is_supported=supported))
    return found
