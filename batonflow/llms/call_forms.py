"""Calls of tools in the form of OpenAI's chat completions, in which programs of LlamaIndex ask for them."""

import json
from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence
from typing import Any

from pydantic import BaseModel

from batonflow.llms.blocks import ToolCallBlock
from batonflow.llms.sendable import json_data

__all__ = ["CALLS", "KwargsWithCalls", "OlderFunction", "OlderToolCall", "arguments_text"]

CALLS = "tool_calls"
"""Where the ``additional_kwargs`` of a message have its calls."""


def arguments_text(block: ToolCallBlock) -> str:
    """The arguments of a call as JSON text, written as models write it.

    Text that is no JSON object goes back as the model wrote it, or it could not see its mistake.
    """
    given = block.tool_kwargs
    if isinstance(given, str):
        return given
    try:
        return _as_models_write(given)
    except ValueError:
        # A number that was too large for a float, or a word that Python takes for one.
        return _as_models_write(json_data(given))


def _as_models_write(given: dict[str, Any]) -> str:
    return json.dumps(given, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class OlderFunction(BaseModel):
    """Name and arguments of a call in the form of OpenAI's chat completions."""

    name: str
    arguments: str


class OlderToolCall(BaseModel):
    """A call in the form of OpenAI's chat completions."""

    id: str
    type: str = "function"
    function: OlderFunction


class KwargsWithCalls(dict[str, Any]):
    """The ``additional_kwargs`` of an answer that calls tools.

    Programs of LlamaIndex that go on by themselves ask there for ``"tool_calls"``, as its OpenAI models put them there
    beside the blocks. Here they are made when somebody asks: by that name, or for all keys, as ``{**kwargs}`` does.
    The blocks tell of them already, so no dump, no comparison, no size and no request knows of them.

    Args:
        kept: What is in them beside.
        calls: Of the answer; those that have only begun as what makes them. None when they were taken out.
    """

    __slots__ = ("_calls",)

    def __init__(
        self, kept: dict[str, Any], calls: Sequence[ToolCallBlock | Callable[[], ToolCallBlock]] | None
    ) -> None:
        super().__init__(kept)
        self._calls = calls

    def entries(self) -> dict[str, Any]:
        """What is in them beside the calls."""
        return dict(super().items())

    def beside(self, blocks: Iterable[Any]) -> dict[str, Any]:
        """What a message of ``blocks`` keeps of them: without a block that calls, calls are not what it says."""
        return self.copy() if any(isinstance(block, ToolCallBlock) for block in blocks) else self.entries()

    def _blocks(self) -> list[ToolCallBlock]:
        return [call if isinstance(call, ToolCallBlock) else call() for call in self._calls or ()]

    def _has_more(self) -> bool:
        """Whether there are calls that nobody has put there."""
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

    # Python asks for these two where a class has an __iter__ of its own: dict(kwargs) and {**kwargs} have the calls.

    def __iter__(self) -> Iterator[str]:
        yield from super().__iter__()
        if self._has_more():
            yield CALLS

    def keys(self) -> Any:
        """As of every dict."""
        return KeysView(self)

    def get(self, key: str, default: Any = None) -> Any:
        """As of every dict."""
        return self[key] if key in self else default  # noqa: SIM401 - this is what get does here

    def __setitem__(self, key: str, value: Any) -> None:
        if key == CALLS:
            self._calls = None
        super().__setitem__(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """As of every dict."""
        return self[key] if key in self else super().setdefault(key, default)

    def __delitem__(self, key: str) -> None:
        more = key == CALLS and self._has_more()
        if key == CALLS:
            self._calls = None
        if not more:
            super().__delitem__(key)

    def pop(self, key: str, *default: Any) -> Any:
        """As of every dict."""
        if key not in self:
            return super().pop(key, *default)
        value = self[key]
        del self[key]
        return value

    def clear(self) -> None:
        """As of every dict."""
        self._calls = None
        super().clear()

    def copy(self) -> "KwargsWithCalls":
        """As of every dict."""
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
