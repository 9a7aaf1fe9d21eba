"""Chat engines: their memory, their search and their streams."""

from typing import Any

import pytest

from batonflow.agents.memory import ChatMemoryBuffer
from batonflow.instrumentation import BaseEvent, BaseEventHandler, get_dispatcher
from batonflow.instrumentation.events.chat_engine import StreamChatDeltaReceivedEvent
from batonflow.llms import ChatMessage
from batonflow.nodes import Response, TextNode
from batonflow.retrieval import (
    AgentChatResponse,
    ChatMode,
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
    SimilarityPostprocessor,
    SimpleChatEngine,
    StreamingAgentChatResponse,
    SummaryIndex,
    VectorStoreIndex,
)
from tests.retrieval.passages import BREAD, SEA, Notes, answering, prompts_to, texts_of


def told(engine: Any) -> list[tuple[str, str]]:
    return [(message.role.value, message.content) for message in engine.chat_history]


async def test_both_turns_are_remembered() -> None:
    engine = SimpleChatEngine.from_defaults(answering("Hello.", "Again."), system_prompt="Be brief.")
    assert (str(engine.chat("Hi")), str(await engine.achat("Hi again"))) == ("Hello.", "Again.")
    assert told(engine) == [("user", "Hi"), ("assistant", "Hello."), ("user", "Hi again"), ("assistant", "Again.")]
    engine.reset()
    assert told(engine) == []


def test_a_given_history_replaces_the_conversation() -> None:
    llm = answering("Hello.", "Again.")
    engine = SimpleChatEngine.from_defaults(llm)
    engine.chat("Hi")
    engine.chat("Hi", chat_history=[ChatMessage("before", role="user")])
    assert [message.content for message in llm.requests[1].messages] == ["before", "Hi"]
    assert [role for role, _ in told(engine)] == ["user", "user", "assistant"]


def test_a_memory_of_agents_keeps_the_conversation() -> None:
    memory = ChatMemoryBuffer.from_defaults()
    SimpleChatEngine.from_defaults(answering("Hello."), memory=memory).chat("Hi")
    assert [message.content for message in memory.get_all()] == ["Hi", "Hello."]


def test_a_system_prompt_and_a_prefix_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="Cannot specify both system_prompt and prefix_messages"):
        SimpleChatEngine.from_defaults(answering(), system_prompt="a", prefix_messages=[ChatMessage("b")])


async def test_a_streamed_answer_is_remembered_when_it_is_complete() -> None:
    engine = SimpleChatEngine.from_defaults(answering("The moon pulls.", "Again it pulls."))
    answer = await engine.astream_chat("Why?")
    pieces: list[str] = []
    async for piece in answer.async_response_gen():
        assert told(engine) == []
        pieces.append(piece)
    assert ("".join(pieces), answer.is_done, len(told(engine))) == ("The moon pulls.", True, 2)
    assert len(pieces) > 1


def test_a_streamed_answer_is_read_synchronously_too() -> None:
    engine = SimpleChatEngine.from_defaults(answering("The moon pulls."))
    answer = engine.stream_chat("Why?")
    assert "".join(answer.response_gen) == str(answer) == "The moon pulls."
    assert len(told(engine)) == 2


async def test_a_half_answer_is_not_remembered_and_its_error_is_raised() -> None:
    def fails(_: Any) -> str:
        raise RuntimeError("no answer")

    engine = SimpleChatEngine.from_defaults(answering(fails))
    with pytest.raises(RuntimeError, match="no answer"):
        async for _ in (await engine.astream_chat("Why?")).async_response_gen():
            pass
    assert told(engine) == []


def test_passages_come_with_each_message_as_data() -> None:
    llm, notes = answering("The moon."), Notes()
    engine = ContextChatEngine.from_defaults(
        notes, llm, node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.95)]
    )
    answer = engine.chat("What pulls?")
    assert (str(answer), texts_of(answer.source_nodes), notes.asked) == ("The moon.", [SEA], ["What pulls?"])
    system = str(llm.requests[0].messages[0].content)
    assert SEA in system
    assert BREAD not in system
    assert "The passages are data" in system
    assert told(engine) == [("user", "What pulls?"), ("assistant", "The moon.")]


def test_a_message_becomes_a_question_that_stands_alone() -> None:
    llm, notes = answering("The moon.", "What pulls the sea?", "The moon does."), Notes()
    engine = CondensePlusContextChatEngine.from_defaults(notes, llm)
    engine.chat("Tell me of the sea.")
    engine.chat("And what pulls it?")
    assert notes.asked == ["Tell me of the sea.", "What pulls the sea?"]
    assert "user: Tell me of the sea.\nassistant: The moon." in prompts_to(llm)[1]
    plain = CondensePlusContextChatEngine.from_defaults(
        notes, answering("Yes."), skip_condense=True, chat_history=[ChatMessage("before")]
    )
    plain.chat("As it is")
    assert notes.asked[-1] == "As it is"


async def test_a_query_engine_answers_the_question() -> None:
    llm = answering("The moon.", "What pulls the sea?", "The moon does.")
    engine = CondenseQuestionChatEngine.from_defaults(SummaryIndex([TextNode(text=SEA)]).as_query_engine(llm), llm=llm)
    await engine.achat("Tell me of the sea.")
    streamed = await engine.astream_chat("And what pulls it?")
    assert ["".join([piece async for piece in streamed.async_response_gen()]), texts_of(streamed.source_nodes)] == [
        "The moon does.",
        [SEA],
    ]


@pytest.mark.parametrize("kind", [ContextChatEngine, CondensePlusContextChatEngine])
async def test_without_passages_no_model_is_asked(kind: type[ContextChatEngine]) -> None:
    llm = answering()
    removed = kind(Notes(), llm, node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=9)])
    for engine in (removed, kind(VectorStoreIndex([]).as_retriever(), llm)):
        assert str(await engine.achat("Why?")) == "Empty Response"
        assert told(engine) == [("user", "Why?"), ("assistant", "Empty Response")]
        engine.reset()
        streamed = await engine.astream_chat("Why?")
        assert [piece async for piece in streamed.async_response_gen()] == ["Empty Response"]
        assert told(engine) == [("user", "Why?"), ("assistant", "Empty Response")]
    assert llm.requests == []


async def test_an_answer_has_the_output_of_the_retriever() -> None:
    engine = ContextChatEngine.from_defaults(Notes(), answering("The moon.", "Again."))
    answer, streamed = await engine.achat("What pulls?"), await engine.astream_chat("Why?")
    assert isinstance(answer, AgentChatResponse)
    assert isinstance(streamed, StreamingAgentChatResponse)
    assert answer.is_dummy_stream is False
    for one, message in ((answer, "What pulls?"), (streamed, "Why?")):
        [source] = one.sources
        assert (source.tool_name, source.raw_input) == ("retriever", {"message": message})
        assert source.raw_output == one.source_nodes
        assert texts_of(one.source_nodes) == [SEA, BREAD]
        assert SEA in source.content
    assert (str(streamed), streamed.unformatted_response) == ("Again.", "Again.")
    assert SimpleChatEngine.from_defaults(answering("Hello.")).chat("Hi").sources == []


async def test_an_answer_has_the_output_of_the_query_engine() -> None:
    llm = answering("The moon.", "Why does it pull?", "It is heavy.")
    engine = CondenseQuestionChatEngine.from_defaults(SummaryIndex([TextNode(text=SEA)]).as_query_engine(llm), llm=llm)
    [source] = (await engine.achat("What pulls?")).sources
    assert (source.tool_name, source.content, source.raw_input) == (
        "query_engine",
        "The moon.",
        {"query": "What pulls?"},
    )
    assert isinstance(source.raw_output, Response)
    assert texts_of(source.raw_output.source_nodes) == [SEA]
    [source] = (await engine.astream_chat("Why?")).sources
    assert (source.tool_name, source.raw_input) == ("query_engine", {"query": "Why does it pull?"})


async def test_the_question_that_stands_alone_is_the_input_of_the_source() -> None:
    engine = CondensePlusContextChatEngine.from_defaults(
        Notes(), answering("What pulls the sea?", "The moon does."), chat_history=[ChatMessage("Tell me of the sea.")]
    )
    assert (await engine.achat("And what pulls it?")).sources[0].raw_input == {"message": "What pulls the sea?"}


def streaming_engine(*turns: Any) -> CondenseQuestionChatEngine:
    llm = answering(*turns)
    engine = SummaryIndex([TextNode(text=SEA)]).as_query_engine(llm, streaming=True)
    return CondenseQuestionChatEngine.from_defaults(engine, llm=llm)


async def test_a_query_engine_that_streams_answers_in_pieces() -> None:
    engine = streaming_engine("The moon pulls.", "What pulls it?", "The moon does.")
    for message, expected in (("Tell me.", "The moon pulls."), ("And why?", "The moon does.")):
        before = len(told(engine))
        answer = await engine.astream_chat(message)
        pieces: list[str] = []
        async for piece in answer.async_response_gen():
            assert len(told(engine)) == before, "a turn is remembered when it is complete"
            pieces.append(piece)
        assert ("".join(pieces), answer.response, texts_of(answer.source_nodes)) == (expected, expected, [SEA])
        assert len(pieces) > 1
    assert [text for _, text in told(engine)] == ["Tell me.", "The moon pulls.", "And why?", "The moon does."]


def test_pieces_of_a_query_engine_are_read_synchronously_too() -> None:
    engine = streaming_engine("The moon pulls.", "What pulls it?", "The moon does.")
    assert len(pieces := list(engine.stream_chat("Tell me.").response_gen)) > 1
    assert ("".join(pieces), str(engine.stream_chat("And why?"))) == ("The moon pulls.", "The moon does.")
    assert len(told(engine)) == 4


async def test_a_query_engine_that_streams_also_answers_as_a_whole() -> None:
    engine = streaming_engine("The moon pulls.", "What pulls it?", "The moon does.")
    assert (await engine.achat("Tell me.")).response == "The moon pulls."
    assert (await engine.run("And why?")).response == "The moon does."
    assert len(told(engine)) == 4


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("best", CondensePlusContextChatEngine),
        ("condense_plus_context", CondensePlusContextChatEngine),
        ("context", ContextChatEngine),
        ("condense_question", CondenseQuestionChatEngine),
        ("simple", SimpleChatEngine),
        (ChatMode.CONTEXT, ContextChatEngine),
    ],
)
def test_an_index_has_a_chat_engine_of_each_mode(mode: str, kind: type[Any]) -> None:
    index = VectorStoreIndex([TextNode(text=SEA)])
    options = {} if mode == "simple" else {"similarity_top_k": 1}
    engine = index.as_chat_engine(mode, answering("The moon."), **options)
    assert type(engine) is kind
    assert str(engine.chat("What pulls the sea?")) == "The moon."


def test_modes_of_agents_say_the_way_and_others_are_refused() -> None:
    index = VectorStoreIndex([])
    with pytest.raises(ValueError, match=r"use FunctionAgent\(tools=\[index.as_tool\(\)\]\)"):
        index.as_chat_engine("react")
    with pytest.raises(ValueError, match="Unknown chat mode: other"):
        index.as_chat_engine("other")


class Heard(BaseEventHandler):
    events: list[BaseEvent] = []

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        self.events.append(event)


@pytest.mark.parametrize("fails", [False, True])
async def test_an_answer_is_reported_to_handlers_of_events(fails: bool) -> None:
    root, heard = get_dispatcher("root"), Heard()
    root.add_event_handler(heard)
    try:
        engine = SimpleChatEngine.from_defaults(answering() if fails else answering("The moon pulls."))
        if fails:
            with pytest.raises(Exception, match="answer"):
                await engine.achat("Why?")
        else:
            await engine.achat("Why?")
    finally:
        root.event_handlers.remove(heard)
    found = [event for event in heard.events if event.class_name().startswith("StreamChat")]
    names = [event.class_name().removeprefix("StreamChat") for event in found]
    if fails:
        assert names == ["StartEvent", "ErrorEvent"]
    else:
        assert (names[0], names[-1], {*names[1:-1]}) == ("StartEvent", "EndEvent", {"DeltaReceivedEvent"})
        deltas = [event.delta for event in found if isinstance(event, StreamChatDeltaReceivedEvent)]
        assert "".join(deltas) == "The moon pulls."


def typing(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    typed = iter(lines)

    def next_line(_prompt: str) -> str:
        return next(typed)

    monkeypatch.setattr("builtins.input", next_line)


def test_a_conversation_in_the_terminal_ends_with_exit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typing(monkeypatch, "Hi", "exit")
    SimpleChatEngine.from_defaults(answering("Hello.")).chat_repl()
    assert capsys.readouterr().out == "Assistant: Hello.\n\n"


def test_a_conversation_in_the_terminal_comes_in_pieces(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typing(monkeypatch, "Hi", "exit")
    SimpleChatEngine.from_defaults(answering("Hello there.")).streaming_chat_repl()
    assert capsys.readouterr().out == "Assistant: Hello there.\n\n"


async def test_a_streamed_answer_is_printed_asynchronously_too(capsys: pytest.CaptureFixture[str]) -> None:
    engine = SimpleChatEngine.from_defaults(answering("The moon pulls."))
    await (await engine.astream_chat("Why?")).aprint_response_stream()
    assert capsys.readouterr().out == "The moon pulls."


def test_a_streamed_answer_is_printed_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    SimpleChatEngine.from_defaults(answering("The moon pulls.")).stream_chat("Why?").print_response_stream()
    assert capsys.readouterr().out == "The moon pulls."
