"""Answers of query engines: whole, streamed, and as objects."""

from collections.abc import AsyncIterator

from pydantic import BaseModel

from batonflow.nodes import (
    AsyncStreamingResponse,
    NodeWithScore,
    PydanticResponse,
    Response,
    StreamingResponse,
    TextNode,
)

SOURCES = [NodeWithScore(node=TextNode(text="word " * 40, id_="n"))]


class Port(BaseModel):
    name: str


def test_an_answer_is_its_text_and_shows_its_sources() -> None:
    assert (str(Response("Yes.")), str(Response(None))) == ("Yes.", "None")
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
