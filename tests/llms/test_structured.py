"""Answers in a form: how it is reached, what happens when it is missed, and what shows while it arrives."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import date
from enum import Enum
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, field_validator

from batonflow.instrumentation import BaseEvent, BaseEventHandler, SimpleSpanHandler, get_dispatcher
from batonflow.llms import (
    LLM,
    Anthropic,
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    CompletionResponse,
    CustomLLM,
    FunctionCallingLLM,
    LLMConfigurationError,
    LLMMetadata,
    MockFunctionCallingLLM,
    NoToolCallError,
    OpenAI,
    OpenAIResponses,
    PartialModel,
    RefusalError,
    ScriptedLLM,
    StructuredLLM,
    StructuredOutputError,
    ToolCallBlock,
    ToolSelection,
    Usage,
    tool_call,
)
from batonflow.llms.messages import PydanticProgramMode
from batonflow.llms.prompts import ChatPromptTemplate, PromptTemplate
from batonflow.llms.stream import ChatRequest, Finish, StreamEvent, TextDelta, ToolCallDelta
from batonflow.llms.structured_llm import generate_structured_response, messages_to_xml_format
from tests.llms.loopback import Answer, Loopback, loopback
from tests.llms.wire import anthropic, chat, responses
from tests.llms.wire.content import Refusal, Said, Text, ToolCall
from tests.llms.wire.content import Usage as Tokens

PROMPT = PromptTemplate("Write a song of {topic}.")


class Verse(BaseModel):
    text: str
    lines: int = 1


class Song(BaseModel):
    """A song."""

    title: str
    bars: int
    verses: list[Verse] = []


EBB = {"title": "Ebb", "bars": 12, "verses": [{"text": "low", "lines": 2}]}
SONG = Song(title="Ebb", bars=12, verses=[Verse(text="low", lines=2)])


class Words(LLM):
    """A chat model without tools that answers with texts, one after the other."""

    def __init__(self, *texts: str, **data: Any) -> None:
        super().__init__(**data)
        self._texts = list(texts)
        self._asked: list[list[ChatMessage]] = []

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="words", is_chat_model=True)

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        self._asked.append(list(request.messages))
        text = self._texts.pop(0)
        for start in range(0, len(text), 5):
            yield TextDelta(text=text[start : start + 5])
        yield Finish(usage=Usage(input_tokens=10, output_tokens=2))


class Stopping(FunctionCallingLLM):
    """A model that says one thing and stops for one reason."""

    said: list[Any] = Field(default_factory=list[Any])
    reason: str = "stop"

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="stopping", is_function_calling_model=True)

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        for event in self.said:
            yield event
        yield Finish(reason=self.reason)


def fitting(kind: type[LLM]) -> LLM:
    return ScriptedLLM([tool_call("Song", **EBB)]) if kind is ScriptedLLM else Words(json.dumps(EBB))


class TestForms:
    @pytest.mark.parametrize("kind", [ScriptedLLM, Words])
    async def test_the_answer_is_an_instance(self, kind: type[LLM]) -> None:
        assert await fitting(kind).astructured_predict(Song, PROMPT, topic="tides") == SONG

    @pytest.mark.parametrize("kind", [ScriptedLLM, Words])
    def test_the_same_for_synchronous_code(self, kind: type[LLM]) -> None:
        assert fitting(kind).structured_predict(Song, PROMPT, topic="tides") == SONG
        assert list(fitting(kind).stream_structured_predict(Song, PROMPT, topic="tides"))[-1] == SONG

    async def test_synchronously_under_a_running_loop(self) -> None:
        assert fitting(ScriptedLLM).structured_predict(Song, PROMPT, topic="tides") == SONG

    @pytest.mark.parametrize("wrong", [dict, list[Song], "Song", SONG, None])
    async def test_what_is_no_model_class_is_refused(self, wrong: Any) -> None:
        llm = ScriptedLLM()
        with pytest.raises(TypeError, match="must be a subclass of pydantic's BaseModel"):
            await llm.astructured_predict(wrong, "A song")
        with pytest.raises(TypeError, match=r"RootModel\[\.\.\.\]"):
            await llm.astream_structured_predict(wrong, "A song")
        with pytest.raises(TypeError, match="BaseModel"):
            llm.as_structured_llm(wrong)

    @pytest.mark.parametrize("mode", ["function", "llm"])
    async def test_lists_and_values_are_put_into_an_object(self, mode: str) -> None:
        class Songs(RootModel[list[Song]]):
            pass

        turn: Any = tool_call("Songs", root=[EBB]) if mode == "function" else json.dumps({"root": [EBB]})
        llm = ScriptedLLM([turn], pydantic_program_mode=mode)
        pieces = [piece async for piece in await llm.astream_structured_predict(Songs, "Songs")]
        assert pieces[-1] == Songs([SONG])
        assert [verse.text for verse in pieces[-2].root[0].verses] == ["low"]

    async def test_a_model_that_holds_itself(self) -> None:
        class Branch(BaseModel):
            name: str
            branches: list["Branch"] = []

        llm = ScriptedLLM([tool_call("Branch", name="a", branches=[{"name": "b"}])])
        assert (await llm.astructured_predict(Branch, "A tree")).branches[0].name == "b"
        [tool] = llm.requests[0].tools
        assert tool.parameters["type"] == "object"
        assert tool.parameters["properties"]["branches"]["items"] == {"$ref": "#/$defs/Branch"}

    async def test_answers_are_validated_as_json(self) -> None:
        class Mood(Enum):
            CALM = "calm"

        class Day(BaseModel):
            model_config = ConfigDict(strict=True)
            day: date = Field(alias="on")
            mood: Mood

        llm = ScriptedLLM([tool_call("Day", on="2026-02-03", mood="calm")])
        assert await llm.astructured_predict(Day, "A day") == Day(on=date(2026, 2, 3), mood=Mood.CALM)


class TestTheToolWay:
    async def test_the_form_is_a_tool_that_must_be_called(self) -> None:
        llm = ScriptedLLM([tool_call("Song", **EBB)])
        await llm.astructured_predict(Song, PROMPT, llm_kwargs={"top_k": 3, "tool_choice": "none"}, topic="tides")
        [request] = llm.requests
        assert [message.content for message in request.messages] == ["Write a song of tides."]
        [tool] = request.tools
        assert (tool.name, tool.description) == ("Song", "A song.")
        assert tool.parameters == Song.model_json_schema()
        assert (request.tool_choice, request.parallel_tool_calls) == ("required", False)
        assert request.options == {"top_k": 3}

    async def test_a_title_becomes_a_name_that_vendors_take(self) -> None:
        class Page(BaseModel):
            model_config = ConfigDict(title="A page: " + "long " * 20)
            number: int

        llm = ScriptedLLM([tool_call("whatever", number=1)])
        assert (await llm.astructured_predict(Page, "A page")).number == 1
        assert llm.requests[0].tools[0].name == ("A_page__" + "long_" * 20)[:64]

    async def test_of_several_calls_the_first_of_the_form_counts(self) -> None:
        llm = ScriptedLLM([[tool_call("think", about="it"), tool_call("Song", **EBB), tool_call("Song", **EBB)]])
        assert await llm.astructured_predict(Song, "A song") == SONG

    async def test_after_an_answer_in_words_the_call_is_asked_for_again(self) -> None:
        llm = ScriptedLLM(["I would rather dance.", tool_call("Song", **EBB)])
        assert await llm.astructured_predict(Song, "A song") == SONG
        *_, said, asked = llm.requests[1].messages
        assert (said.role, said.content) == ("assistant", "I would rather dance.")
        assert (asked.role, asked.content) == ("user", "This is no answer here: call Song with it.")

    @pytest.mark.parametrize("retries", [0, 2])
    async def test_answers_in_words_alone_are_an_error_that_holds_the_last(self, retries: int) -> None:
        llm = ScriptedLLM([*["Well."] * retries, "I would rather dance."], structured_retries=retries)
        with pytest.raises(NoToolCallError, match="I would rather dance") as raised:
            await llm.astructured_predict(Song, "A song")
        assert isinstance(raised.value, ValueError)
        assert len(llm.requests) == retries + 1

    async def test_but_words_that_hold_the_object_are_taken(self) -> None:
        llm = ScriptedLLM([f"Here it is: {json.dumps(EBB)}"])
        assert await llm.astructured_predict(Song, "A song") == SONG

    async def test_and_an_object_in_words_that_does_not_fit_goes_back_with_what_is_wrong(self) -> None:
        llm = ScriptedLLM(['{"title": "Ebb"}', tool_call("Song", **EBB)])
        assert await llm.astructured_predict(Song, "A song") == SONG
        *_, said, wrong = llm.requests[1].messages
        assert said.content == '{"title": "Ebb"}'
        assert wrong.role == "user"
        assert "bars" in (wrong.content or "")
        assert "Call Song with all of it, corrected." in (wrong.content or "")

    async def test_arguments_that_are_nearly_json(self) -> None:
        call = ToolCallDelta(index=0, id="1", name="Song", arguments="{'title': 'Ebb', 'bars': 12,}")
        assert (await Stopping(said=[call]).astructured_predict(Song, "A song")).bars == 12

    async def test_what_is_wrong_goes_back_as_the_answer_to_the_call(self) -> None:
        llm = ScriptedLLM(
            [
                [tool_call("Song", title="Ebb", bars="many", verses=[{"lines": 1}]), tool_call("Song", **EBB)],
                tool_call("Song", **EBB),
            ]
        )
        assert await llm.astructured_predict(Song, "A song") == SONG
        question, answer, *tools = llm.requests[1].messages
        assert question.content == "A song"
        calls = [block for block in answer.blocks if isinstance(block, ToolCallBlock)]
        assert [tool.role.value for tool in tools] == ["tool", "tool"]
        assert [tool.additional_kwargs["tool_call_id"] for tool in tools] == [call.tool_call_id for call in calls]
        assert all(tool.additional_kwargs["is_error"] for tool in tools)
        told = tools[0].content or ""
        assert "- bars: Input should be a valid integer" in told
        assert "(given: 'many')" in told
        assert "- verses[0].text: Field required" in told
        assert "Not looked at" in (tools[1].content or "")

    async def test_it_is_asked_again_so_often_and_then_it_is_an_error(self) -> None:
        llm = ScriptedLLM([tool_call("Song", title="Ebb", bars=number * "x") for number in range(9)])
        with pytest.raises(StructuredOutputError) as raised:
            await llm.astructured_predict(Song, "A song")
        assert len(llm.requests) == 3
        assert [message.role.value for message in llm.requests[2].messages] == [
            "user", "assistant", "tool", "assistant", "tool",
        ]  # fmt: skip
        text = str(raised.value)
        assert "does not fit Song after 3 attempts" in text
        assert "- bars: Input should be a valid integer" in text
        assert '{"title":"Ebb","bars":"xx"}' in text
        assert isinstance(raised.value, ValueError)
        assert isinstance(raised.value.__cause__, ValidationError)
        assert raised.value.model == "scripted"

    @pytest.mark.parametrize("retries", [0, 1, 4])
    async def test_how_often_is_a_field_of_the_model(self, retries: int) -> None:
        llm = ScriptedLLM([tool_call("Song") for _ in range(9)], structured_retries=retries)
        with pytest.raises(StructuredOutputError, match=f"after {retries + 1} attempt"):
            await llm.astructured_predict(Song, "A song")
        assert len(llm.requests) == retries + 1

    async def test_validators_of_one_s_own_are_heard(self) -> None:
        class Short(BaseModel):
            text: str

            @field_validator("text")
            @classmethod
            def no_shouting(cls, value: str) -> str:
                if value.isupper():
                    raise ValueError("do not shout")
                return value

        llm = ScriptedLLM([tool_call("Short", text="EBB"), tool_call("Short", text="ebb")])
        assert (await llm.astructured_predict(Short, "A word")).text == "ebb"
        assert "- text: Value error, do not shout (given: 'EBB')" in (llm.requests[1].messages[-1].content or "")

    async def test_the_mock_of_older_suites(self) -> None:
        asked: list[dict[str, Any]] = []

        def generate(messages: Sequence[ChatMessage], **kwargs: Any) -> ChatMessage:
            asked.append(kwargs)
            call = ToolSelection(tool_id="1", tool_name="Song", tool_kwargs={"title": "Ebb", "bars": 12})
            return ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call]})

        llm = MockFunctionCallingLLM(response_generator=generate)
        assert await llm.astructured_predict(Song, PROMPT, topic="tides") == Song(title="Ebb", bars=12)
        [tool] = asked[0]["tools"]
        assert tool.metadata.fn_schema is Song
        assert tool.metadata.to_openai_tool()["function"]["name"] == tool.metadata.get_name() == "Song"
        streamed = [song async for song in await llm.astream_structured_predict(Song, PROMPT, topic="tides")]
        # An answer that comes at once has no parts.
        assert streamed == [Song(title="Ebb", bars=12)]

    async def test_a_plain_model_with_the_methods_will_do(self) -> None:
        class Plain(LLM):
            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata(is_function_calling_model=True)

            async def achat_with_tools(self, tools: Any, chat_history: Any, **kwargs: Any) -> ChatResponse:
                block = ToolCallBlock(tool_call_id="1", tool_name="Song", tool_kwargs=dict(EBB))
                return ChatResponse(message=ChatMessage(role="assistant", blocks=[block]))

            async def astream_chat_with_tools(self, tools: Any, chat_history: Any, **kwargs: Any) -> Any:
                async def pieces() -> ChatResponseAsyncGen:
                    for given in ({"title": "E"}, {"title": "Ebb"}, EBB):
                        block = ToolCallBlock(tool_call_id="1", tool_name="Song", tool_kwargs=dict(given))
                        yield ChatResponse(message=ChatMessage(role="assistant", blocks=[block]))

                return pieces()

        assert await Plain().astructured_predict(Song, "A song") == SONG
        pieces: list[Any] = [piece async for piece in await Plain().astream_structured_predict(Song, "A song")]
        assert [piece.title for piece in pieces] == ["E", "Ebb", "Ebb"]
        assert pieces[-1] == SONG


class TestThePromptWay:
    async def test_the_schema_is_in_the_prompt(self) -> None:
        llm = Words(json.dumps(EBB))
        prompt = ChatPromptTemplate.from_messages([("system", "Be brief."), ("user", "A song of {topic}")])
        await llm.astructured_predict(Song, prompt, topic="tides")
        system, user = llm._asked[0]
        assert system.content == "Be brief."
        assert (user.content or "").startswith("A song of tides\n")
        assert json.dumps(Song.model_json_schema()) in (user.content or "")
        assert len(prompt.message_templates[1].blocks) == 1

    @pytest.mark.parametrize(
        "text",
        [
            "```json\n%s\n```",
            "Of course! A {song} for you:\n\n%s\n\nI hope that {it} helps.",
            'The schema is {"type": "object", "properties": {"title": {}}}. So:\n%s',
            "%s",
        ],
    )
    async def test_the_object_is_found_among_words(self, text: str) -> None:
        assert await Words(text % json.dumps(EBB, indent=1)).astructured_predict(Song, "A song") == SONG

    @pytest.mark.parametrize("text", ["No.", '{"title": "Ebb", "bars": ', '{"bars": 12}'])
    async def test_what_does_not_fit_goes_back(self, text: str) -> None:
        llm = Words(text, json.dumps(EBB))
        assert await llm.astructured_predict(Song, "A song") == SONG
        question, answer, told = llm._asked[1]
        assert (question.role, answer.role, told.role) == ("user", "assistant", "user")
        assert answer.content == text
        assert "does not fit the schema" in (told.content or "")

    async def test_a_model_that_says_nothing(self) -> None:
        llm = Words("", "", "")
        with pytest.raises(StructuredOutputError, match="there is no JSON object in it"):
            await llm.astructured_predict(Song, "A song")
        # Vendors refuse a message that is empty.
        assert [message.role.value for message in llm._asked[1]] == ["user", "user"]

    async def test_a_model_that_only_completes(self) -> None:
        class Completing(CustomLLM):
            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata()

            def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
                assert "A song" in prompt
                return CompletionResponse(text=json.dumps(EBB))

            def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
                text = ""
                for character in json.dumps(EBB):
                    text += character
                    yield CompletionResponse(text=text, delta=character)

        assert Completing().structured_predict(Song, "A song") == SONG
        pieces: list[Any] = list(Completing().stream_structured_predict(Song, "A song"))
        assert [piece.title for piece in pieces[:3]] == ["", "E", "Eb"]
        assert pieces[-1] == SONG


class TestWhichWay:
    @pytest.mark.parametrize("mode", ["llm", PydanticProgramMode.LLM])
    async def test_the_prompt_way_can_be_forced(self, mode: Any) -> None:
        llm = ScriptedLLM([json.dumps(EBB)], pydantic_program_mode=mode)
        assert await llm.astructured_predict(Song, "A song") == SONG
        assert llm.requests[0].tools == []

    @pytest.mark.parametrize("mode", ["default", "function", "openai", PydanticProgramMode.OPENAI, None])
    async def test_the_tool_way_can_be_forced(self, mode: Any) -> None:
        llm = ScriptedLLM([tool_call("Song", **EBB)], pydantic_program_mode=mode)
        assert await llm.astructured_predict(Song, "A song") == SONG

    @pytest.mark.parametrize(
        ("mode", "reason"),
        [
            ("function", "the model does not take tools"),
            ("native", "the vendor cannot enforce a schema"),
            ("guidance", "this mode is not supported"),
            ("lm-format-enforcer", "this mode is not supported"),
            ("nonsense", "this mode is not supported"),
        ],
    )
    async def test_a_way_that_is_not_there_is_an_error(self, mode: str, reason: str) -> None:
        with pytest.raises(LLMConfigurationError, match=f"'{mode}', but {reason}; .* native, function, llm"):
            await Words(pydantic_program_mode=mode).astructured_predict(Song, "A song")


class TestAnswersThatAreNone:
    @pytest.mark.parametrize("reason", ["refusal", "content_filter"])
    @pytest.mark.parametrize("mode", ["function", "llm"])
    async def test_a_refusal_is_not_asked_about_again(self, reason: str, mode: str) -> None:
        llm = Stopping(said=[TextDelta(text="I cannot sing.")], reason=reason, pydantic_program_mode=mode)
        with pytest.raises(RefusalError, match="I cannot sing"):
            await llm.astructured_predict(Song, "A song")

    @pytest.mark.parametrize("mode", ["function", "llm"])
    async def test_a_cut_answer_says_what_to_do(self, mode: str) -> None:
        half = '{"title": "Ebb", "ba'
        said: Any = (
            TextDelta(text=half) if mode == "llm" else ToolCallDelta(index=0, id="1", name="Song", arguments=half)
        )
        llm = Stopping(said=[said], reason="length", pydantic_program_mode=mode)
        with pytest.raises(StructuredOutputError, match="raise max_tokens"):
            await llm.astructured_predict(Song, "A song")

    async def test_nothing_is_made_up_for_what_a_cut_call_lacks(self) -> None:
        class Guest(BaseModel):
            name: str = "nobody"

        llm = Stopping(said=[ToolCallDelta(index=0, id="1", name="Guest", arguments="")], reason="length")
        with pytest.raises(StructuredOutputError, match="raise max_tokens"):
            await llm.astructured_predict(Guest, "A guest")

    async def test_thoughts_that_use_up_the_limit_are_a_cut_answer_too(self) -> None:
        with pytest.raises(StructuredOutputError, match="raise max_tokens"):
            await Stopping(reason="length").astructured_predict(Song, "A song")

    async def test_an_answer_that_is_whole_nevertheless_is_taken(self) -> None:
        llm = Stopping(said=[TextDelta(text=f"{json.dumps(EBB)} And now I expl")], reason="length")
        assert await llm.astructured_predict(Song, "A song") == SONG


class TestStreams:
    @pytest.mark.parametrize("kind", [ScriptedLLM, Words])
    async def test_parts_show_as_they_arrive_and_the_instance_comes_last(self, kind: type[LLM]) -> None:
        pieces: list[Any] = [piece async for piece in await fitting(kind).astream_structured_predict(Song, "A song")]
        *parts, last = pieces
        assert last == SONG
        assert len(parts) >= 4
        assert all(isinstance(part, PartialModel) and not isinstance(part, Song) for part in parts)
        assert (parts[0].bars, parts[0].verses) == (None, None)
        assert parts[-1].verses[0].lines == 2
        sizes = [len(part.model_dump_json(exclude_unset=True)) for part in parts]
        assert sizes == sorted(sizes)

    async def test_a_second_attempt_begins_anew(self) -> None:
        llm = ScriptedLLM([tool_call("Song", title="Flood", bars="x"), tool_call("Song", **EBB)])
        pieces: list[Any] = [piece async for piece in await llm.astream_structured_predict(Song, "A song")]
        titles = [piece.title for piece in pieces]
        assert "Flood" in titles
        assert titles[-1] == "Ebb"
        assert pieces[-1] == SONG

    async def test_errors_come_while_iterating(self) -> None:
        llm = ScriptedLLM(["No."], structured_retries=0)
        stream = await llm.astream_structured_predict(Song, "A song")
        with pytest.raises(NoToolCallError, match="No"):
            async for _ in stream:
                pass

    async def test_leaving_a_stream_ends_the_request(self) -> None:
        ended: list[str] = []

        class Endless(FunctionCallingLLM):
            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata(is_function_calling_model=True)

            async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
                try:
                    yield ToolCallDelta(index=0, id="1", name="Song", arguments='{"title": "')
                    while True:
                        yield ToolCallDelta(index=0, arguments="la ")
                finally:
                    ended.append("model")

        stream: Any = await Endless().astream_structured_predict(Song, "A song")
        assert (await anext(stream)).title == ""
        assert (await anext(stream)).title == "la "
        await stream.aclose()
        assert ended == ["model"]

    async def test_a_stream_of_one_s_own_is_respected(self) -> None:
        asked: list[str] = []

        class Logging(ScriptedLLM):
            async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
                asked.append(str(messages[-1].content))
                return await super().astream_chat(messages, **kwargs)

        llm = Logging([tool_call("Song", **EBB)])
        assert [piece async for piece in await llm.astream_structured_predict(Song, "A song")][-1] == SONG
        assert asked == ["A song"]


class TestStructuredLLM:
    async def test_text_is_the_json_and_raw_the_instance(self) -> None:
        response = await StructuredLLM(llm=fitting(ScriptedLLM), output_cls=Song).achat([ChatMessage("A song")])
        assert response.raw == SONG
        assert response.message.role == "assistant"
        assert Song.model_validate_json(response.message.content or "") == SONG
        assert (response.delta, response.stop_reason) == (None, "stop")

    async def test_it_does_all_that_a_model_does(self) -> None:
        def structured() -> StructuredLLM:
            return fitting(ScriptedLLM).as_structured_llm(Song)

        text = SONG.model_dump_json()
        ask = [ChatMessage("A song")]
        assert structured().metadata.model_name == "scripted"
        assert structured().chat(ask).raw == SONG
        assert (await structured().acomplete("A song")).text == text
        assert structured().complete("A song").raw == SONG
        assert [one.raw for one in structured().stream_chat(ask)][-1] == SONG
        assert [one.text async for one in await structured().astream_complete("A song")][-1] == text
        assert [one.text for one in structured().stream_complete("A song")][-1] == text
        assert await structured().apredict("A song") == text
        assert "output_cls" not in structured().model_dump()

    async def test_a_stream_is_of_partial_models_and_their_json(self) -> None:
        answers = await fitting(ScriptedLLM).as_structured_llm(Song).astream_chat([ChatMessage("A song")])
        seen = [(json.loads(one.message.content or ""), one.raw) async for one in answers]
        assert seen[0][0].keys() == {"title"}
        assert isinstance(seen[0][1], PartialModel)
        assert seen[-1] == (SONG.model_dump(), SONG)

    async def test_usage_is_that_of_all_attempts(self) -> None:
        llm = Words("No.", "No.", json.dumps(EBB)).as_structured_llm(Song)
        response = await llm.achat([ChatMessage("A song")])
        assert response.usage == Usage(input_tokens=30, output_tokens=6)

    async def test_messages_are_sent_as_they_are_after_the_system_prompt(self) -> None:
        inner = ScriptedLLM([tool_call("Song", **EBB)], system_prompt="Sing.")
        await inner.as_structured_llm(Song).achat([ChatMessage("{{topic}} {of} braces")], top_k=3)
        [request] = inner.requests
        assert [message.content for message in request.messages] == ["Sing.", "{{topic}} {of} braces"]
        assert request.options == {"top_k": 3}

    async def test_a_model_s_own_way_is_used(self) -> None:
        class Own(ScriptedLLM):
            async def astructured_predict(
                self, output_cls: Any, prompt: Any, llm_kwargs: Any = None, **kwargs: Any
            ) -> Any:
                return Song(title=prompt.format_messages()[-1].content, bars=llm_kwargs["bars"])

        structured = Own().as_structured_llm(Song)
        ask = [ChatMessage("{{braces}}")]
        assert (await structured.achat(ask, bars=1)).raw == Song(title="{{braces}}", bars=1)
        assert structured.chat(ask, bars=2).raw == Song(title="{{braces}}", bars=2)
        assert Own().structured_predict(Song, PROMPT, {"bars": 3}).bars == 3

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_also_a_synchronous_one_even_if_it_is_not(self, asynchronous: bool) -> None:
        class Own(ScriptedLLM):
            def structured_predict(self, output_cls: Any, prompt: Any, **kwargs: Any) -> Any:
                async def later() -> Song:
                    return SONG

                return later() if asynchronous else SONG

        assert Own().as_structured_llm(Song).chat([ChatMessage("A song")]).raw == SONG

    async def test_a_stream_of_one_s_own(self) -> None:
        class Own(ScriptedLLM):
            async def astream_structured_predict(self, output_cls: Any, prompt: Any, **kwargs: Any) -> Any:
                async def songs() -> AsyncGenerator[Song, None]:
                    yield SONG

                return songs()

        answers = await Own().as_structured_llm(Song).astream_chat([ChatMessage("A song")])
        assert [one.raw async for one in answers] == [SONG]

    async def test_an_own_way_must_give_a_model(self) -> None:
        class Own(ScriptedLLM):
            async def astructured_predict(self, *args: Any, **kwargs: Any) -> Any:
                return "a song"

        with pytest.raises(TypeError, match="Own must return an instance of Song; it returned 'a song'"):
            await Own().as_structured_llm(Song).achat([ChatMessage("A song")])


class TestInstrumentation:
    async def test_begin_parts_and_end_are_reported_inside_a_span(self) -> None:
        heard: list[BaseEvent] = []

        class Listener(BaseEventHandler):
            def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
                heard.append(event)

        dispatcher = get_dispatcher("batonflow.llms")
        spans, listener = SimpleSpanHandler(), Listener()
        dispatcher.add_span_handler(spans)
        dispatcher.add_event_handler(listener)
        try:
            pieces = list(fitting(ScriptedLLM).stream_structured_predict(Song, PROMPT, topic="tides"))
            await fitting(ScriptedLLM).astructured_predict(Song, PROMPT, topic="tides")
        finally:
            dispatcher.span_handlers.remove(spans)
            dispatcher.event_handlers.remove(listener)
        names = [type(event).__name__ for event in heard if "Structured" in type(event).__name__]
        start, part, end = (f"LLMStructuredPredict{one}Event" for one in ("Start", "InProgress", "End"))
        assert names == [start, *[part] * (len(pieces) - 1), end, start, end]
        assert not spans.open_spans


class TestConversations:
    def test_a_conversation_laid_out_to_be_answered_in_a_form(self) -> None:
        messages = [
            ChatMessage("Be brief.", role="system"),
            ChatMessage("What is 2 + 40?"),
            ChatMessage(role="assistant", blocks=[tool_call("add", a=2)]),
            ChatMessage("42", role="tool"),
        ]
        system, laid_out = messages_to_xml_format(messages)
        assert system is messages[0]
        lines = (laid_out.content or "").split("\n")
        assert lines[0] == "<current_conversation>"
        assert "\t<user>" in lines
        assert "\t\t<message>What is 2 + 40?</message>" in lines
        assert '\t\t<tool_call>add {"a":2}</tool_call>' in lines
        assert "according to the provided schema" in lines[-1]

    async def test_its_outcome_as_data(self) -> None:
        llm = fitting(ScriptedLLM)
        assert await generate_structured_response([ChatMessage("A song")], llm, Song) == EBB


@pytest.fixture
async def server() -> AsyncIterator[Loopback]:
    async with loopback() as running:
        yield running


APIS: dict[str, tuple[ModuleType, Any]] = {
    "chat": (chat, lambda url: OpenAI("gpt-test", api_key="k", base_url=f"{url}/v1", json_schema=True)),
    "responses": (responses, lambda url: OpenAIResponses("gpt-test", api_key="k", base_url=f"{url}/v1")),
    "anthropic": (anthropic, lambda url: Anthropic("claude-test", api_key="k", base_url=url)),
}


def held_to(body: dict[str, Any], api: str) -> dict[str, Any]:
    """The JSON schema in a request, wherever the API has it."""
    match api:
        case "chat":
            assert body["response_format"]["type"] == "json_schema"
            named = body["response_format"]["json_schema"]
            assert (named["name"], named["strict"]) == ("Song", True)
            return named["schema"]
        case "responses":
            assert body["text"]["format"]["type"] == "json_schema"
            assert (body["text"]["format"]["name"], body["text"]["format"]["strict"]) == ("Song", True)
            return body["text"]["format"]["schema"]
        case _:
            assert body["output_config"]["format"]["type"] == "json_schema"
            return body["output_config"]["format"]["schema"]


@pytest.mark.parametrize("api", APIS)
class TestTheNativeWay:
    async def ask(self, server: Loopback, api: str, *said: Said, output_cls: Any = Song) -> ChatResponse:
        wire, make = APIS[api]
        server.answers = [Answer([wire.stream(one)]) for one in said]
        llm: LLM = make(server.url)
        try:
            return await llm.as_structured_llm(output_cls).achat([ChatMessage("A song")])
        finally:
            await llm.aclose()

    async def test_the_vendor_holds_the_answer_to_the_schema(self, server: Loopback, api: str) -> None:
        response = await self.ask(server, api, Said((Text(json.dumps(EBB)),), usage=Tokens(input=7, output=3)))
        assert response.raw == SONG
        assert response.usage is not None
        assert response.usage.total_tokens == 10
        [request] = server.received
        assert "tools" not in request.body
        schema = held_to(request.body, api)
        assert schema["required"] == ["title", "bars", "verses"]
        assert schema["additionalProperties"] is False
        assert schema["$defs"]["Verse"]["additionalProperties"] is False

    async def test_what_the_schema_cannot_say_is_checked_here(self, server: Loopback, api: str) -> None:
        class Named(Song):
            model_config = ConfigDict(title="Song")
            title: str = Field(min_length=3)

        short = Said((Text(json.dumps({**EBB, "title": "E"})),), usage=Tokens(input=7, output=3))
        whole = Said((Text(json.dumps(EBB)),), usage=Tokens(input=9, output=3))
        response = await self.ask(server, api, short, whole, output_cls=Named)
        assert response.raw.title == "Ebb"
        assert response.usage is not None
        assert response.usage.total_tokens == 22
        again = server.received[1].body
        assert "at least 3 characters" in json.dumps(again.get("messages") or again.get("input"))
        held_to(again, api)

    async def test_a_refusal(self, server: Loopback, api: str) -> None:
        with pytest.raises(RefusalError):
            await self.ask(server, api, Said((Refusal("I cannot sing."),), stop="refusal"))

    async def test_a_cut_answer(self, server: Loopback, api: str) -> None:
        with pytest.raises(StructuredOutputError, match="max_tokens"):
            await self.ask(server, api, Said((Text('{"title": "Eb'),), stop="length"))

    async def test_parts_show_as_they_arrive(self, server: Loopback, api: str) -> None:
        wire, make = APIS[api]
        server.answers = [Answer([wire.stream(Said((Text(json.dumps(EBB)),)))])]
        llm: LLM = make(server.url)
        pieces: list[Any] = [piece async for piece in await llm.astream_structured_predict(Song, "A song")]
        await llm.aclose()
        assert isinstance(pieces[0], PartialModel)
        assert pieces[0].verses is None
        assert pieces[-1] == SONG

    async def test_a_form_without_a_strict_schema_is_reached_by_a_tool(self, server: Loopback, api: str) -> None:
        class Free(BaseModel):
            counts: dict[str, int]

        wire, make = APIS[api]
        server.answers = [Answer([wire.stream(Said((ToolCall("call_1", "Free", '{"counts": {"a": 1}}'),)))])]
        llm: LLM = make(server.url)
        assert (await llm.astructured_predict(Free, "Count")).counts == {"a": 1}
        await llm.aclose()
        assert server.received[0].body["tools"]
        forced = llm.model_copy(update={"pydantic_program_mode": "native"})
        with pytest.raises(LLMConfigurationError, match="the schema of Free has no strict form"):
            await forced.astructured_predict(Free, "Count")
