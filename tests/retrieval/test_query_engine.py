"""Query engines, which are workflows."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from batonflow import Budget, Context, FunctionAgent, StartEvent, StopEvent, Workflow, step
from batonflow.agents import BudgetExceededError
from batonflow.llms import tool_call
from batonflow.llms.prompts import PromptTemplate
from batonflow.nodes import AsyncStreamingResponse, NodeWithScore, QueryBundle, Response, StreamingResponse
from batonflow.retrieval.postprocessors import SimilarityPostprocessor
from batonflow.retrieval.query_engine import RetrieverQueryEngine, TransformQueryEngine
from batonflow.retrieval.query_runs import AnswerDelta, Postprocessed, Retrieved
from batonflow.retrieval.rerank import LLMRerank
from batonflow.retrieval.synthesizers import NoText
from batonflow.tools import QueryEngineTool
from tests.retrieval.killing import killed_and_run_again
from tests.retrieval.passages import BREAD, SEA, Notes, answering, numbering, prompts_to, scored, texts_of


def engine_of(*turns: Any, **options: Any) -> RetrieverQueryEngine:
    return RetrieverQueryEngine.from_args(Notes(), answering(*turns), **options)


async def test_a_query_gives_the_answer_with_its_sources() -> None:
    engine = engine_of("The moon.", "The moon.")
    for response in (await engine.aquery("What moves the sea?"), await asyncio.to_thread(engine.query, "What moves?")):
        assert isinstance(response, Response)
        assert str(response) == "The moon."
        assert texts_of(response.source_nodes) == [SEA, BREAD]
        assert response.metadata == {"n1": {}, "n2": {}}


async def test_a_bundle_reaches_retriever_and_postprocessors_whole() -> None:
    asked: list[Any] = []

    class Watching(SimilarityPostprocessor):
        def _postprocess_nodes(
            self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
        ) -> list[NodeWithScore]:
            asked.append(query_bundle)
            return super()._postprocess_nodes(nodes, query_bundle)

    engine = engine_of("ok", "ok", node_postprocessors=[Watching(similarity_cutoff=0.95), SimilarityPostprocessor()])
    bundle = QueryBundle("q", custom_embedding_strs=["other words"], embedding=[0.5])
    assert texts_of((await engine.aquery(bundle)).source_nodes) == [SEA]
    assert texts_of((await asyncio.to_thread(engine.query, bundle)).source_nodes) == [SEA]
    assert asked == [bundle, bundle]


async def test_retrieve_and_synthesize_are_the_two_halves() -> None:
    engine = engine_of("ok", "ok", node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.95)])
    nodes = await engine.aretrieve(QueryBundle("q"))
    assert texts_of(nodes) == texts_of(await asyncio.to_thread(engine.retrieve, QueryBundle("q"))) == [SEA]
    response = await engine.asynthesize(QueryBundle("q"), nodes, additional_source_nodes=scored(BREAD))
    assert texts_of(response.source_nodes) == [SEA, BREAD]
    assert str(await asyncio.to_thread(engine.synthesize, QueryBundle("q"), nodes)) == "ok"


async def test_arguments_reach_the_synthesizer_and_its_prompts_have_names() -> None:
    llm = numbering()
    template = PromptTemplate("mine|{query_str}")
    engine = RetrieverQueryEngine.from_args(Notes(), llm, response_mode="tree_summarize", summary_template=template)
    assert set(engine.get_prompts()) == {"response_synthesizer:summary_template"}
    await engine.aquery("q")
    engine.update_prompts({"response_synthesizer:summary_template": "yours|{query_str}"})
    await engine.aquery("q")
    assert prompts_to(llm) == ["mine|q", "yours|q"]


async def test_another_retriever_in_the_same_engine() -> None:
    engine = engine_of("ok")
    other = engine.with_retriever(Notes(BREAD))
    assert engine.retriever is not other.retriever
    assert texts_of((await other.aquery("q")).source_nodes) == [BREAD]


async def test_a_streaming_engine_answers_with_a_stream() -> None:
    engine = engine_of("The moon.", "The moon.", streaming=True)
    response = await engine.aquery("q")
    assert isinstance(response, AsyncStreamingResponse)
    assert [piece async for piece in response.async_response_gen()] == ["The", " moon."]
    plain = await asyncio.to_thread(engine.query, "q")
    assert isinstance(plain, StreamingResponse)
    assert await asyncio.to_thread(str, plain) == "The moon."


class TestTransform:
    async def test_the_question_is_changed_before_the_engine_answers(self) -> None:
        class Louder:
            def run(self, query: QueryBundle, metadata: dict[str, Any] | None = None) -> QueryBundle:
                return QueryBundle(f"{query.query_str}{(metadata or {}).get('end', '?')}")

        class Later(Louder):
            async def arun(self, query: QueryBundle, metadata: dict[str, Any] | None = None) -> QueryBundle:
                return self.run(query, metadata)

        notes = Notes()
        engine = RetrieverQueryEngine(notes, NoText())
        await TransformQueryEngine(engine, Louder()).aquery("q")
        await TransformQueryEngine(engine, Later(), transform_metadata={"end": "!"}).aquery("q")
        await asyncio.to_thread(TransformQueryEngine(engine, Later()).query, "q")
        assert notes.asked == ["q?", "q!", "q?"]


class TestWorkflow:
    async def test_the_steps_are_streamed(self) -> None:
        engine = engine_of(
            "The moon.", streaming=True, node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.95)]
        )
        handler = engine.run("q")
        events = [event async for event in handler.stream_events()]
        assert [type(event) for event in events] == [Retrieved, Postprocessed, AnswerDelta, AnswerDelta, StopEvent]
        assert [texts_of(event.nodes) for event in events[:2]] == [[SEA, BREAD], [SEA]]
        response = await handler
        assert isinstance(response, Response)
        assert str(response) == "The moon."

    def test_it_is_drawn_like_any_workflow(self) -> None:
        workflow = engine_of().workflow
        assert not workflow.validate()
        assert "synthesize" in workflow._repr_html_()
        assert list(workflow.step_table.steps) == ["retrieve", "postprocess", "synthesize"]

    async def test_its_workflow_runs_by_itself(self) -> None:
        assert str(await engine_of("The moon.").workflow.run(query="What moves the sea?")) == "The moon."

    async def test_the_same_run_id_gives_the_recorded_result(self, tmp_path: Path) -> None:
        engine = engine_of("The moon.")
        for _ in range(2):
            response = await engine.run("q", run_id="sea-1", store=tmp_path / "runs.db")
            assert isinstance(response, Response)
            assert (str(response), texts_of(response.source_nodes)) == ("The moon.", [SEA, BREAD])

    @pytest.mark.parametrize("overridden", ["_query", "_aquery", "_retrieve", "synthesizer"])
    async def test_an_override_is_honoured_in_both_forms(self, overridden: str) -> None:
        class Query(RetrieverQueryEngine):
            def _query(self, query_bundle: QueryBundle) -> Response:
                return Response(f"mine: {super()._query(query_bundle)}")

        class AsyncQuery(RetrieverQueryEngine):
            async def _aquery(self, query_bundle: QueryBundle) -> Response:
                return Response(f"mine: {await super()._aquery(query_bundle)}")

        class Mine(Notes):
            def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
                return scored("mine")

        class Joined(NoText):
            def get_response(self, query_str: str, text_chunks: Any, **response_kwargs: Any) -> str:
                return f"mine {' '.join(text_chunks)}"

        engine = {
            "_query": lambda: Query.from_args(Notes(), answering("a", "b", "c")),
            "_aquery": lambda: AsyncQuery.from_args(Notes(), answering("a", "b", "c")),
            "_retrieve": lambda: RetrieverQueryEngine.from_args(Mine(), response_mode="context_only"),
            "synthesizer": lambda: RetrieverQueryEngine(Notes(), Joined()),
        }[overridden]()
        for response in (await engine.run("q"), await engine.aquery("q")):
            assert str(response).count("mine") == 1

    async def test_its_form_costs_at_most_a_millisecond(self) -> None:
        engine = RetrieverQueryEngine(Notes(), NoText())

        async def best(ask: Any) -> float:
            times: list[float] = []
            for _ in range(30):
                began = time.perf_counter()
                await ask(QueryBundle("q"))
                times.append(time.perf_counter() - began)
            return min(times)

        async def plainly(bundle: QueryBundle) -> Any:
            return await engine.asynthesize(bundle, await engine.aretrieve(bundle))

        assert await best(engine.aquery) - await best(plainly) < 0.001


class TestKilled:
    """A process is killed with SIGKILL during a query, and another one asks again with the same run_id."""

    @pytest.mark.parametrize(
        ("hang_at", "form", "log"),
        [
            ("rerank", "", "retrieve, rerank hangs, rerank, answer, refine"),
            ("answer", "", "retrieve, rerank, answer hangs, answer, refine"),
            ("refine", "", "retrieve, rerank, answer, refine hangs, refine"),
            ("refine", "streaming", "retrieve, rerank, answer, refine hangs, refine"),
            ("refine", "nested", "retrieve, rerank, answer, refine hangs, refine"),
        ],
    )
    def test_it_goes_on_with_what_it_had_and_repeats_no_recorded_request(
        self, tmp_path: Path, hang_at: str, form: str, log: str
    ) -> None:
        lines = killed_and_run_again("killed_query.py", tmp_path, hang_at, form)
        assert lines == [*log.split(", "), "text of refine from n2 n1"]


class Asking(Workflow):
    """Asks twice in a step."""

    def __init__(self, engine: RetrieverQueryEngine, **options: Any) -> None:
        super().__init__(**options)
        self.engine = engine

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        first = await self.engine.aquery("one")
        return StopEvent(result=f"{first} {await self.engine.aquery('two')}")


class TestInsideAnotherRun:
    async def test_a_query_in_a_step_is_a_child_run(self) -> None:
        handler = Asking(engine_of("1", "2")).run()
        paths = [(item.path, type(item.event)) async for item in handler.subscribe()]
        assert [path for path, kind in paths if kind is Retrieved] == ["query_1", "query_1#2"]
        assert await handler == "1 2"

    async def test_a_query_in_a_tool_is_a_child_run_and_its_usage_counts(self) -> None:
        tool = QueryEngineTool.from_defaults(engine_of("The moon."), name="notes")
        agent = FunctionAgent(llm=answering(tool_call("notes", input="q"), "done"), tools=[tool])
        handler = agent.run("hi")
        paths = {item.path async for item in handler.subscribe() if isinstance(item.event, Retrieved)}
        output = await handler
        assert paths == {"query_1"}
        alone = await FunctionAgent(llm=answering(tool_call("other", input="q"), "done"), tools=[]).run("hi")
        assert output.usage.input_tokens > alone.usage.input_tokens + 20

    async def test_its_requests_are_under_the_budget_of_the_caller(self) -> None:
        tool = QueryEngineTool.from_defaults(engine_of("The moon."), name="notes")
        agent = FunctionAgent(llm=answering(tool_call("notes", input="q"), "done"), tools=[tool])
        with pytest.raises(BudgetExceededError):
            await agent.run("hi", budget=Budget(max_tokens=20))

    async def test_a_cancel_of_the_caller_cancels_it(self) -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def slow(request: Any) -> str:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return "late"

        handler = Asking(engine_of(slow)).run()
        await begun.wait()
        await handler.cancel_run()
        assert cancelled.is_set()

    async def test_a_cancel_of_the_only_reader_stops_a_query(self) -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def slow(request: Any) -> str:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return "late"

        task = asyncio.ensure_future(engine_of(slow).aquery("q"))
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        await asyncio.wait_for(cancelled.wait(), 5)


async def test_identical_requests_to_a_model_are_sent_once_in_a_query() -> None:
    llm, other = numbering(), numbering()
    other.model = "another"
    ranks = [LLMRerank(llm=one, parse_choice_select_answer_fn=lambda *_: ([1], [1.0])) for one in (llm, llm, other)]
    await RetrieverQueryEngine(Notes(SEA), NoText(), ranks).aquery("q")
    assert (len(llm.requests), len(other.requests)) == (1, 1)
