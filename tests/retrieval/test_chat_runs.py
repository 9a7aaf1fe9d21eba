"""Chat engines as workflows: their events, memories and records, and their place in other runs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from batonflow import Budget, FunctionAgent, FunctionTool, StartEvent, StopEvent, Workflow, step
from batonflow.agents import BudgetExceededError
from batonflow.draw import get_workflow_representation
from batonflow.llms import ChatMessage, tool_call
from batonflow.nodes import NodeWithScore, TextNode
from batonflow.retrieval import (
    AnswerDelta,
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
    Postprocessed,
    QueryPlanned,
    Retrieved,
    RetrieverQueryEngine,
    SimilarityPostprocessor,
    SimpleChatEngine,
    VectorIndexAutoRetriever,
    VectorStoreIndex,
)
from tests.retrieval.killing import killed_and_run_again
from tests.retrieval.passages import BREAD, SEA, Notes, answering, texts_of
from tests.retrieval.test_auto import INFO, writing
from tests.retrieval.test_chat import told

BEFORE = [ChatMessage("Tell me of the sea.", role="user")]


async def events_of(handler: Any) -> list[Any]:
    return [event async for event in handler.stream_events() if not isinstance(event, StopEvent)]


class TestEvents:
    async def test_a_run_streams_the_question_the_passages_and_the_answer(self) -> None:
        engine = CondensePlusContextChatEngine.from_defaults(
            Notes(),
            answering("What pulls the sea?", "The moon does."),
            chat_history=BEFORE,
            node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.95)],
        )
        handler = engine.run("And what pulls it?")
        planned, found, left, *deltas = await events_of(handler)
        assert (type(planned), planned.plan) == (QueryPlanned, ["What pulls the sea?"])
        assert (type(found), texts_of(found.nodes)) == (Retrieved, [SEA, BREAD])
        assert (type(left), texts_of(left.nodes)) == (Postprocessed, [SEA])
        assert "".join(event.delta for event in deltas if isinstance(event, AnswerDelta)) == "The moon does."
        assert len(deltas) > 1
        answer = await handler
        assert (str(answer), texts_of(answer.source_nodes)) == ("The moon does.", [SEA])
        assert told(engine)[1:] == [("user", "And what pulls it?"), ("assistant", "The moon does.")]

    async def test_a_model_alone_streams_its_answer(self) -> None:
        engine = SimpleChatEngine.from_defaults(answering("Hello there."))
        events = await events_of(engine.run("Hi"))
        assert {type(event) for event in events} == {AnswerDelta}
        assert "".join(event.delta for event in events) == "Hello there."

    async def test_a_query_engine_gives_its_answer_whole(self) -> None:
        llm = answering("What pulls the sea?", "The moon does.")
        engine = CondenseQuestionChatEngine.from_defaults(
            RetrieverQueryEngine.from_args(Notes(), llm), chat_history=BEFORE, llm=llm
        )
        handler = engine.run("And what pulls it?")
        events = await events_of(handler)
        assert [type(event) for event in events] == [QueryPlanned, Retrieved, Postprocessed, AnswerDelta]
        assert (str(await handler), len(told(engine))) == ("The moon does.", 3)

    async def test_an_engine_of_the_program_is_a_workflow_too(self) -> None:
        class Ours(ContextChatEngine):
            async def _messages(self, message: str) -> tuple[list[ChatMessage], list[NodeWithScore]]:
                return [ChatMessage(f"ours: {message}")], [NodeWithScore(node=TextNode(text=BREAD))]

        llm = answering("Yes.")
        answer = await Ours(Notes(), llm).run("Hi")
        assert (texts_of(answer.source_nodes), llm.requests[0].messages[0].content) == ([BREAD], "ours: Hi")

    async def test_facts_about_the_search_are_in_the_metadata(self) -> None:
        retriever = VectorIndexAutoRetriever(VectorStoreIndex([]), INFO, answering(writing()))
        answer = await ContextChatEngine.from_defaults(retriever, answering("Yes.")).achat("Hi")
        assert answer.metadata is not None
        assert [spec["query"] for spec in answer.metadata["retrieval_specs"]] == ["tides"]

    def test_the_workflow_can_be_drawn(self) -> None:
        drawn = get_workflow_representation(SimpleChatEngine.from_defaults(answering()).workflow)
        assert {"prepare", "answer", "remember"} <= {node.label for node in drawn.nodes}

    async def test_a_half_answer_is_not_remembered(self) -> None:
        def fails(_: Any) -> str:
            raise RuntimeError("no answer")

        engine = SimpleChatEngine.from_defaults(answering(fails))
        with pytest.raises(RuntimeError, match="no answer"):
            await engine.run("Hi")
        assert told(engine) == []


class TestMemories:
    """Only runs that come from a method of the engine see its memory."""

    @pytest.mark.parametrize("kind", [SimpleChatEngine, ContextChatEngine, CondensePlusContextChatEngine])
    async def test_a_run_of_the_workflow_knows_no_turns_of_others(self, kind: Any) -> None:
        llm = answering("One.", "Two.", "Three.")
        engine = kind.from_defaults(*([] if kind is SimpleChatEngine else [Notes()]), llm=llm)
        for message in ("My name is Ada.", "What is my name?"):
            await engine.workflow.run(query=message)
        assert not any("Ada" in str(one.content) for one in llm.requests[1].messages)
        assert told(engine) == []
        await engine.run("My name is Bob.")
        assert [text for _, text in told(engine)] == ["My name is Bob.", "Three."]

    async def test_the_memory_of_the_engine_stays_with_the_engine(self) -> None:
        llm = answering("One.", "Two.")
        engine = SimpleChatEngine.from_defaults(llm, chat_history=BEFORE)
        await engine.workflow.run(query="Hi")
        assert [one.content for one in llm.requests[0].messages] == ["Hi"]
        assert len(told(engine)) == 1
        await engine.achat("Hi")
        assert [one.content for one in llm.requests[1].messages] == ["Tell me of the sea.", "Hi"]

    async def test_a_caller_gives_the_conversation_before(self) -> None:
        llm, notes = answering("What pulls the sea?", "The moon does."), Notes()
        engine = CondensePlusContextChatEngine.from_defaults(notes, llm)
        history = [{"role": "user", "content": "Tell me of the sea."}]
        answer = await engine.workflow.run(query="And what pulls it?", chat_history=history)
        assert (str(answer), notes.asked, told(engine)) == ("The moon does.", ["What pulls the sea?"], [])
        assert "Tell me of the sea." in [one.content for one in llm.requests[1].messages]

    async def test_a_store_that_both_use_does_not_join_them(self, tmp_path: Path) -> None:
        llm, store = answering("One.", "Two.", "Three."), tmp_path / "runs.db"
        engine = SimpleChatEngine.from_defaults(llm)
        await engine.run("My name is Ada.", store=store)
        await engine.workflow.with_store(store).run(query="What is my name?")
        await engine.run("And now?", store=store)
        assert [len(request.messages) for request in llm.requests] == [1, 1, 3]

    async def test_runs_at_once_stay_apart(self) -> None:
        def shown(request: Any) -> str:
            return " ".join(str(one.content) for one in request.messages)

        llm = answering(shown, shown)
        engine = SimpleChatEngine.from_defaults(llm)
        told_by = ([ChatMessage("Ada")], [ChatMessage("Bob")])
        answers = await asyncio.gather(*(engine.workflow.run(query="Hi", chat_history=one) for one in told_by))
        assert [str(one) for one in answers] == ["Ada Hi", "Bob Hi"]


class TestRecords:
    async def test_an_answer_from_a_store_has_its_sources(self, tmp_path: Path) -> None:
        engine = ContextChatEngine.from_defaults(Notes(), answering("The moon does."))
        for _ in range(2):
            answer = await engine.run("What pulls?", run_id="one", store=tmp_path / "runs.db")
            [source] = answer.sources
            assert (source.tool_name, source.raw_input) == ("retriever", {"message": "What pulls?"})
            assert texts_of(source.raw_output) == texts_of(answer.source_nodes) == [SEA, BREAD]

    async def test_a_second_call_with_the_id_of_a_run_returns_its_answer(self, tmp_path: Path) -> None:
        llm = answering("The moon does.")
        engine = ContextChatEngine.from_defaults(Notes(), llm)
        first = await engine.run("What pulls?", run_id="one", store=tmp_path / "runs.db")
        again = await engine.run("What pulls?", run_id="one", store=tmp_path / "runs.db")
        assert (str(again), texts_of(again.source_nodes)) == (str(first), texts_of(first.source_nodes))
        assert (len(llm.requests), len(told(engine))) == (1, 2)

    @pytest.mark.parametrize(
        ("hang_at", "form", "log"),
        [
            ("condense", "top", "condense hangs, condense, retrieve What pulls the sea?, answer"),
            ("answer", "top", "condense, retrieve What pulls the sea?, answer hangs, answer"),
            ("answer", "nested", "condense, retrieve What pulls the sea?, answer hangs, answer"),
            ("after", "nested", "condense, retrieve What pulls the sea?, answer, after hangs"),
        ],
    )
    def test_a_killed_run_goes_on_and_asks_nothing_twice(
        self, tmp_path: Path, hang_at: str, form: str, log: str
    ) -> None:
        lines = killed_and_run_again("killed_chat.py", tmp_path, hang_at, form)
        assert lines == [*log.split(", "), "The moon does. from 1, 3 messages"]


class TestInsideAnotherRun:
    async def test_a_message_in_a_step_is_a_child_run(self) -> None:
        class Asking(Workflow):
            @step
            async def ask(self, ev: StartEvent) -> StopEvent:
                return StopEvent(result=str(await engine.achat("What pulls?")))

        engine = ContextChatEngine.from_defaults(Notes(), answering("The moon."))
        handler = Asking().run()
        paths = [(item.path, type(item.event)) async for item in handler.subscribe()]
        assert [path for path, kind in paths if kind is Retrieved] == ["query_1"]
        assert await handler == "The moon."

    async def test_a_message_in_a_tool_counts_for_the_budget_of_the_agent(self) -> None:
        engine = ContextChatEngine.from_defaults(Notes(), answering("The moon."))

        async def colleague(question: str) -> str:
            """Answer a question."""
            return str(await engine.achat(question))

        llm = answering(tool_call("colleague", question="What pulls?"), "The moon.")
        agent = FunctionAgent(llm=llm, tools=[FunctionTool.from_defaults(colleague)])
        with pytest.raises(BudgetExceededError):
            await agent.run("What pulls?", budget=Budget(max_tokens=20))
