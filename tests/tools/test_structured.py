"""get_function_tool: a model's fields are the parameters, its instance the result."""

import pytest
from pydantic import BaseModel, ConfigDict, Field

from batonflow.tools import ToolArgumentsError, call_tool, get_function_tool, run_tool


class Verse(BaseModel):
    text: str


class Song(BaseModel):
    """A song about the sea."""

    title: str = Field(description="what it is called")
    verses: list[Verse] = []


class Word(BaseModel):
    model_config = ConfigDict(title="one_word")
    word: str


async def test_a_call_makes_the_object() -> None:
    tool = get_function_tool(Song)
    assert (tool.metadata.name, tool.metadata.description) == ("Song", "A song about the sea.")
    assert tool.metadata.fn_schema is Song
    song = Song(title="Ebb", verses=[Verse(text="The sea goes.")])
    output = await run_tool(tool, {"title": "Ebb", "verses": [{"text": "The sea goes."}]})
    assert output.raw_output == song
    assert tool.call(title="Ebb", verses=song.verses).raw_output == song
    assert "title: missing" in (await run_tool(tool, {})).content


def test_title_and_description_of_a_bare_model() -> None:
    metadata = get_function_tool(Word).metadata
    assert (metadata.name, metadata.description) == ("one_word", "Give a Word.")


def test_one_value_is_the_object_as_a_dict_or_its_only_field() -> None:
    assert get_function_tool(Song).call({"title": "Ebb"}).raw_output == Song(title="Ebb")
    assert get_function_tool(Word).call("ebb").raw_output == Word(word="ebb")
    assert get_function_tool(Word).call({"word": "ebb"}).raw_output == Word(word="ebb")
    assert call_tool(get_function_tool(Word), {"word": "ebb"}).raw_output == Word(word="ebb")


def test_several_values_are_refused() -> None:
    with pytest.raises(ToolArgumentsError, match="Song takes its fields by name"):
        get_function_tool(Song).call("Ebb", [])
