"""Tool calls in the form of OpenAI's chat completions, which programs for LlamaIndex read."""

import json
from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence
from typing import Any

from pydantic import BaseModel

from batonflow.llms.blocks import ToolCallBlock
from batonflow.llms.sendable import json_data

__all__ = ["CALLS", "KwargsWithCalls", "OlderFunction", "OlderToolCall", "arguments_text"]

CALLS = "tool_calls"
"""The key of the calls in the ``additional_kwargs`` of a message."""


def arguments_text(block: ToolCallBlock) -> str:
    """Return the arguments of a call as JSON text, formatted as models write it.

    Text that is not a JSON object is returned unchanged, so that the model can see its mistake.
    """
    given = block.tool_kwargs
    if isinstance(given, str):
        return given
    try:
        return _as_models_write(given)
    except ValueError:
        # A number too large for a float, or a name that only Python reads as a number.
        return _as_models_write(json_data(given))


def _as_models_write(given: dict[str, Any]) -> str:
    return json.dumps(given, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class OlderFunction(BaseModel):
    """The name and arguments of a call in the form of OpenAI's chat completions."""

    name: str
    arguments: str


class OlderToolCall(BaseModel):
    """A call in the form of OpenAI's chat completions."""

    id: str
    type: str = "function"
    function: OlderFunction


class KwargsWithCalls(dict[str, Any]):
    """The ``additional_kwargs`` of a response with tool calls.

    LlamaIndex's OpenAI models put the calls there under ``"tool_calls"``, besides the blocks, and programs read them.
    Here they are made on demand: by this key, or for all keys, as in ``{**kwargs}``. Dumps, comparisons, sizes and
    requests leave them out, because the blocks contain them.

    Args:
        kept: The other entries.
        calls: The calls of the response, or a function that makes them. None after they were removed.
    """

    __slots__ = ("_calls",)

    def __init__(
        self, kept: dict[str, Any], calls: Sequence[ToolCallBlock | Callable[[], ToolCallBlock]] | None
    ) -> None:
        super().__init__(kept)
        self._calls = calls

    def entries(self) -> dict[str, Any]:
        """The entries besides the calls."""
        return dict(super().items())

    def beside(self, blocks: Iterable[Any]) -> dict[str, Any]:
        """Return the entries for a message of ``blocks``; calls are dropped when no block is a call."""
        return self.copy() if any(isinstance(block, ToolCallBlock) for block in blocks) else self.entries()

    def _blocks(self) -> list[ToolCallBlock]:
        return [call if isinstance(call, ToolCallBlock) else call() for call in self._calls or ()]

    def _has_more(self) -> bool:
        """Return whether there are calls that are not set as an entry."""
        return self._calls is not None and not super().__contains__(CALLS)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (key == CALLS and self._calls is not None)

    def __missing__(self, key: str) -> Any:
        if key != CALLS or self._calls is None:
            raise KeyError(key)
        return [
            OlderToolCall(
                id=call.tool_call_id or "",
                function=OlderFunction(name=call.tool_name, arguments=arguments_text(call)),
            )
            for call in self._blocks()
        ]

    # dict(kwargs) and {**kwargs} use these two methods when a class defines __iter__.

    def __iter__(self) -> Iterator[str]:
        yield from super().__iter__()
        if self._has_more():
            yield CALLS

    def keys(self) -> Any:
        """As in a dict."""
        return KeysView(self)

    def get(self, key: str, default: Any = None) -> Any:
        """As in a dict."""
        return self[key] if key in self else default  # noqa: SIM401 - SIM401 would call this method again

    def __setitem__(self, key: str, value: Any) -> None:
        if key == CALLS:
            self._calls = None
        super().__setitem__(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """As in a dict."""
        return self[key] if key in self else super().setdefault(key, default)

    def __delitem__(self, key: str) -> None:
        more = key == CALLS and self._has_more()
        if key == CALLS:
            self._calls = None
        if not more:
            super().__delitem__(key)

    def pop(self, key: str, *default: Any) -> Any:
        """As in a dict."""
        if key not in self:
            return super().pop(key, *default)
        value = self[key]
        del self[key]
        return value

    def clear(self) -> None:
        """As in a dict."""
        self._calls = None
        super().clear()

    def copy(self) -> "KwargsWithCalls":
        """As in a dict."""
        return KwargsWithCalls(self.entries(), self._calls)

    def __or__(self, other: Any) -> Any:
        if isinstance(other, KwargsWithCalls):
            return other.__ror__(self.entries())
        return KwargsWithCalls({**self.entries(), **other}, self._calls)

    def __ror__(self, other: Any) -> Any:
        merged = {**other, **self.entries()}
        if self._has_more():
            merged.pop(CALLS, None)
        return KwargsWithCalls(merged, self._calls)

    def __reduce__(self) -> tuple[Any, ...]:
        return KwargsWithCalls, (self.entries(), None if self._calls is None else self._blocks())
