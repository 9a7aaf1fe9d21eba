"""What traces say of calls of tools: a span with what the tool was given, and an event before and after."""

import asyncio
from collections.abc import Iterator
from inspect import BoundArguments
from typing import Any

import pytest
from pydantic import Base64Bytes, PrivateAttr

from batonflow.instrumentation import BaseEvent, BaseEventHandler, BaseSpan, BaseSpanHandler, get_dispatcher
from batonflow.llms.genai import CAPTURE_CONTENT
from batonflow.tools import AsyncBaseTool, BaseTool, FunctionTool, ToolMetadata, ToolOutput, run_tool, tool
from batonflow.workflow_core.context import Context


class Heard(BaseEventHandler, BaseSpanHandler[BaseSpan]):
    """Writes down events, and of spans what happens to them, with the arguments and whose they are."""

    _events: list[BaseEvent] = PrivateAttr(default_factory=list)
    _spans: list[tuple[str, str, dict[str, Any], Any]] = PrivateAttr(default_factory=list)

    @property
    def events(self) -> list[BaseEvent]:
        return self._events

    @property
    def spans(self) -> list[tuple[str, str, dict[str, Any], Any]]:
        return self._spans

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        self._events.append(event)

    def _note(self, what: str, id_: str, given: BoundArguments, instance: Any) -> None:
        self._spans.append((what, id_.partition("-")[0], dict(given.arguments), instance))

    def new_span(self, id_: str, bound_args: BoundArguments, instance: Any = None, *args: Any, **kwargs: Any):
        self._note("open", id_, bound_args, instance)
        return BaseSpan(id_=id_)

    def prepare_to_exit_span(self, id_: str, bound_args: BoundArguments, instance: Any = None, *a: Any, **kw: Any):
        self._note("close", id_, bound_args, instance)
        return self.open_spans.get(id_)

    def prepare_to_drop_span(self, id_: str, bound_args: BoundArguments, instance: Any = None, *a: Any, **kw: Any):
        self._note("drop", id_, bound_args, instance)
        return self.open_spans.get(id_)


@pytest.fixture
def heard() -> Iterator[Heard]:
    dispatcher, handler = get_dispatcher("batonflow.tools"), Heard()
    dispatcher.add_span_handler(handler)
    dispatcher.add_event_handler(handler)
    yield handler
    dispatcher.span_handlers.remove(handler)
    dispatcher.event_handlers.remove(handler)


@tool
def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


async def test_a_call_is_a_span_with_start_and_end(heard: Heard) -> None:
    await run_tool(add, {"a": "2"})
    assert [event.class_name() for event in heard.events] == ["ToolCallStartEvent", "ToolCallEndEvent"]
    assert heard.events[0].model_dump()["tool_kwargs"] == {"a": 2}
    assert heard.events[1].model_dump()["output"] == "3"
    assert heard.spans == [(what, "FunctionTool.acall", {"kwargs": {"a": 2}}, add) for what in ("open", "close")]


async def test_what_is_filled_in_is_among_the_arguments(heard: Heard) -> None:
    @tool
    def look(ctx: Context, place: str, idempotency_key: str) -> str:
        """Look."""
        return place

    ctx = object()
    await run_tool(look, {"place": "Brest"}, ctx=ctx, idempotency_key="k1")
    [(_, _, given, _), _] = heard.spans
    assert given == {"kwargs": {"place": "Brest", "ctx": ctx, "idempotency_key": "k1"}}


async def test_a_tool_without_arguments_has_none(heard: Heard) -> None:
    await run_tool(FunctionTool.from_defaults(lambda: 1, name="one", description="One."), {})
    assert [given for _, _, given, _ in heard.spans] == [{}, {}]


@pytest.mark.parametrize("name", ["method", "args", "kwargs", "id_"])
async def test_arguments_may_be_called_as_they_like(heard: Heard, name: str) -> None:
    space: dict[str, Any] = {}
    exec(f"def act({name}: int) -> int: return {name}", space)
    output = await run_tool(tool(space["act"]), {name: 1})
    assert output.content == "1"
    assert heard.spans[0][2] == {"kwargs": {name: 1}}


async def test_a_span_has_the_name_of_the_tool_s_class_and_the_parameters_of_its_acall(heard: Heard) -> None:
    class Search(AsyncBaseTool):
        metadata = ToolMetadata("Search.", name="search")

        def call(self, input: Any) -> ToolOutput:  # noqa: A002 - the contract's name
            raise NotImplementedError

        async def acall(self, input: Any) -> ToolOutput:  # noqa: A002 - the contract's name
            return ToolOutput(content=f"found {input}", tool_name="search")

    class Plain(BaseTool):
        metadata = ToolMetadata("Plain.", name="plain")

        def __call__(self, input: Any) -> ToolOutput:  # noqa: A002 - the contract's name
            return ToolOutput(content=f"plain {input}", tool_name="plain")

    search, plain = Search(), Plain()
    await run_tool(search, {"input": "moon"})
    await run_tool(plain, {"input": "sun"})
    opened = [span[1:] for span in heard.spans if span[0] == "open"]
    assert opened == [("Search.acall", {"input": "moon"}, search), ("Plain.acall", {"input": "sun"}, plain)]


async def test_what_ends_a_call_from_outside_drops_its_span_with_the_arguments(heard: Heard) -> None:
    @tool
    async def stop(why: str) -> None:
        """Stop."""
        raise asyncio.CancelledError(why)

    with pytest.raises(asyncio.CancelledError):
        await run_tool(stop, {"why": "x"})
    assert [(what, given) for what, _, given, _ in heard.spans] == [
        ("open", {"kwargs": {"why": "x"}}), ("drop", {"kwargs": {"why": "x"}}),
    ]  # fmt: skip


async def test_bytes_that_are_no_text_do_not_keep_a_tool_from_being_called(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool
    def upload(data: Base64Bytes) -> str:
        """Upload."""
        return f"{len(data)} bytes"

    monkeypatch.setenv(CAPTURE_CONTENT, "true")
    output = await run_tool(upload, {"data": "/////w=="})
    assert (output.content, output.is_error) == ("4 bytes", False)
    assert [what for what, *_ in heard.spans] == ["open", "close"]
