"""Answers of query engines: whole, streamed, and as objects."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from batonflow.nodes import (
    AsyncStreamingResponse,
    NodeWithScore,
    PydanticResponse,
    Response,
    StreamingResponse,
    TextNode,
)
from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step

SOURCES = [NodeWithScore(node=TextNode(text="word " * 40, id_="n"))]


class Port(BaseModel):
    name: str


def test_an_answer_is_its_text_and_shows_its_sources() -> None:
    assert (str(Response("Yes.")), str(Response(None))) == ("Yes.", "None")
    assert Response("Yes.", None).get_formatted_sources() == ""  # type: ignore[arg-type]
    shown = Response("Yes.", SOURCES).get_formatted_sources(20)
    assert shown == "> Source (Doc id: n): word word word wo..."


def test_an_answer_as_an_object_has_its_attributes() -> None:
    answer = PydanticResponse(Port(name="Leith"), SOURCES)
    assert (answer.name, str(answer), answer.get_response().response) == ("Leith", '{"name":"Leith"}', str(answer))


def test_a_streamed_answer_is_read_once_and_known_afterwards() -> None:
    answer = StreamingResponse(iter(["The ", "moon."]), SOURCES)
    assert next(answer.response_gen or iter([])) == "The "
    assert str(answer) == "The moon."
    assert answer.get_response().response == "The moon."


async def test_an_asynchronous_answer_gives_its_text_after_its_end() -> None:
    async def pieces() -> AsyncIterator[str]:
        yield "The "
        yield "moon."

    answer = AsyncStreamingResponse(pieces(), SOURCES)
    assert [piece async for piece in answer.async_response_gen()] == ["The ", "moon."]
    assert [piece async for piece in answer.async_response_gen()] == ["The moon."]
    assert (await answer.aget_response()).response == "The moon."
    assert str(answer) == "The moon."


async def test_streamed_answers_are_printed_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    async def pieces() -> AsyncIterator[str]:
        yield "The "
        yield "sea."

    answer = StreamingResponse(iter(["The ", "moon."]))
    answer.print_response_stream()
    answer.print_response_stream()
    await AsyncStreamingResponse(pieces()).aprint_response_stream()
    assert capsys.readouterr().out == "The moon.The moon.\nThe sea."


@pytest.mark.parametrize("kind", ["stream", "async", "object"])
async def test_a_stored_run_returns_a_response_that_has_been_read(kind: str, tmp_path: Path) -> None:
    async def pieces() -> AsyncIterator[str]:
        yield "high"

    class Answering(Workflow[Any]):
        @step
        async def answer(self, ev: StartEvent) -> StopEvent:
            if kind == "object":
                return StopEvent(result=PydanticResponse(TextNode(text="high")))
            made = StreamingResponse(iter(["high"])) if kind == "stream" else AsyncStreamingResponse(pieces())
            await made._adrain() if isinstance(made, AsyncStreamingResponse) else made.get_response()
            return StopEvent(result=made)

    for _ in range(2):
        found = await Answering(store=tmp_path / "runs.db").run(run_id="one")
        assert "high" in str(found)


def test_a_stream_that_has_not_been_read_is_not_recorded() -> None:
    with pytest.raises(ValueError, match="read it to its end"):
        StreamingResponse(iter(["high"])).to_dict()
