"""Engines that choose and divide: selectors, the router, sub-questions, steps, transformations and fusion."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from batonflow.llms import ScriptedLLM
from batonflow.nodes import BaseRetriever, NodeWithScore, QueryBundle, Response, TextNode
from batonflow.retrieval import (
    CustomQueryEngine,
    DecomposeQueryTransform,
    EmbeddingSingleSelector,
    HyDEQueryTransform,
    IdentityQueryTransform,
    LLMMultiSelector,
    LLMQuestionGenerator,
    LLMSingleSelector,
    MultiStepQueryEngine,
    PydanticMultiSelector,
    PydanticSingleSelector,
    QueryFusionRetriever,
    QueryPlanned,
    RouterQueryEngine,
    StepDecomposeQueryTransform,
    SubQuestionQueryEngine,
    get_response_synthesizer,
)
from batonflow.tools import QueryEngineTool
from tests.retrieval.passages import answering, prompts_to, scored, texts_of
from tests.retrieval.test_indexes import Letters

CHOICES = ["about the sea", "about bread"]


class Knows(CustomQueryEngine):
    """Answers with its name and the question, and has one source."""

    name: str
    asked: list[str] = []

    async def acustom_query(self, query_str: str) -> Response:
        self.asked.append(query_str)
        if "fails" in query_str:
            raise ValueError("no answer")
        return Response(f"{self.name}: {query_str}", [NodeWithScore(node=TextNode(text=self.name))])


def tool(name: str) -> QueryEngineTool:
    return QueryEngineTool.from_defaults(Knows(name=name, asked=[]), name=name, description=f"about {name}")


TOOLS = ("sea", "bread")


class TestSelectors:
    @pytest.mark.parametrize(
        ("answer", "ind", "reason"),
        [
            ('[{"choice": 2, "reason": "yeast"}]', 1, "yeast"),
            ('```json\n{"choice": 1, "reason": "tides"}\n```', 0, "tides"),
            ("2, as it is about yeast", 1, "2, as it is about yeast"),
        ],
    )
    def test_an_answer_in_json_or_words_is_read(self, answer: str, ind: int, reason: str) -> None:
        result = LLMSingleSelector.from_defaults(answering(answer)).select(CHOICES, "What?")
        assert (result.ind, result.reason, result.inds, result.reasons) == (ind, reason, [ind], [reason])

    async def test_several_are_chosen_and_the_prompt_lists_them(self) -> None:
        llm = answering('[{"choice": 2, "reason": "a"}, {"choice": 1, "reason": "b"}, {"choice": 9, "reason": "c"}]')
        result = await LLMMultiSelector.from_defaults(llm).aselect([tool(name).metadata for name in TOOLS], "What?")
        assert result.inds == [1, 0]
        with pytest.raises(ValueError, match=r"There are 2 selections, please use \.inds"):
            _ = result.ind
        assert "(1) about sea\n\n(2) about bread" in prompts_to(llm)[0]

    def test_an_answer_without_a_choice_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="names no choice from 1 to 2"):
            LLMSingleSelector(answering("I cannot say.")).select(CHOICES, "What?")

    def test_models_may_choose_with_objects(self) -> None:
        one = ScriptedLLM(['{"number": 2, "reason": "yeast"}'])
        assert PydanticSingleSelector(one).select(CHOICES, "What?").ind == 1
        several = ScriptedLLM(['{"choices": [{"number": 2}, {"number": 1}]}'])
        assert PydanticMultiSelector(several).select(CHOICES, "What?").inds == [1, 0]

    def test_vectors_may_choose(self) -> None:
        assert EmbeddingSingleSelector.from_defaults(Letters()).select(CHOICES, "bread about").ind == 1


class TestRouter:
    def test_one_engine_answers_as_it_is(self) -> None:
        engine = RouterQueryEngine(LLMSingleSelector(answering("2")), [tool(name) for name in TOOLS])
        answer = engine.query("What does it need?")
        assert str(answer) == "bread: What does it need?"
        assert answer.metadata is not None
        assert answer.metadata["selector_result"].ind == 1

    async def test_answers_of_several_are_joined_and_the_plan_is_streamed(self) -> None:
        llm = answering("Both.")
        engine = RouterQueryEngine(LLMMultiSelector(answering("2 and 1")), [tool(name) for name in TOOLS], llm=llm)
        handler = engine.run("What?")
        plans = [event.plan async for event in handler.stream_events() if isinstance(event, QueryPlanned)]
        answer = await handler
        assert (plans, str(answer)) == ([["bread", "sea"]], "Both.")
        assert texts_of(answer.source_nodes) == ["bread", "sea"]
        assert "sea: What?" in prompts_to(llm)[0]

    def test_the_selector_fits_the_model(self) -> None:
        engine = RouterQueryEngine.from_defaults([tool(name) for name in TOOLS], ScriptedLLM(['{"number": 1}']))
        assert str(engine.query("Why?")) == "sea: Why?"

    async def test_a_stored_query_asks_no_recorded_request_again(self, tmp_path: Path) -> None:
        llm = answering("2")
        engine = RouterQueryEngine(LLMSingleSelector(llm), [tool(name) for name in TOOLS])
        options: dict[str, Any] = {"run_id": "r", "store": tmp_path / "runs.db"}
        first = await engine.run("What?", **options)
        assert str(await engine.run("What?", **options)) == str(first) == "bread: What?"
        assert len(llm.requests) == 1


ITEMS = (
    '```json\n{{"items": [{{"sub_question": "{}", "tool_name": "sea"}}, '
    '{{"sub_question": "B", "tool_name": "{}"}}]}}\n```'
)


class TestSubQuestions:
    @pytest.mark.parametrize("use_async", [False, True])
    def test_the_parts_are_asked_and_joined(self, *, use_async: bool) -> None:
        llm = answering(ITEMS.format("A", "bread"), "Joined.")
        engine = SubQuestionQueryEngine.from_defaults([tool(name) for name in TOOLS], llm, use_async=use_async)
        answer = engine.query("Compare.")
        assert str(answer) == "Joined."
        assert answer.metadata is not None
        assert answer.metadata["sub_qa"] == [("A", "sea: A"), ("B", "bread: B")]
        assert "Sub question: A\nResponse: sea: A" in prompts_to(llm)[1]
        assert texts_of(answer.source_nodes)[2:] == ["sea", "bread"]

    def test_unknown_tools_and_failures_are_left_out(self, caplog: pytest.LogCaptureFixture) -> None:
        llm = answering(ITEMS.format("fails", "other"), "Nothing.")
        answer = SubQuestionQueryEngine.from_defaults([tool(name) for name in TOOLS], llm).query("Compare.")
        assert answer.metadata is not None
        assert answer.metadata["sub_qa"] == []
        assert "there is no tool 'other'" in caplog.text
        assert "has no answer: no answer" in caplog.text

    def test_an_answer_that_is_not_json_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="is not JSON of sub-questions"):
            LLMQuestionGenerator.from_defaults(answering("What?")).generate([], QueryBundle("What?"))


class TestMultiStep:
    def engine(self, *turns: str, **options: Any) -> tuple[MultiStepQueryEngine, Knows, ScriptedLLM]:
        llm, inner = answering(*turns), Knows(name="sea", asked=[])
        transform = StepDecomposeQueryTransform(llm)
        made = MultiStepQueryEngine(inner, transform, get_response_synthesizer(llm), **options)
        return made, inner, llm

    def test_questions_follow_from_the_answers_until_none_is_needed(self) -> None:
        engine, inner, llm = self.engine("First?", "Second?", "None", "Joined.", index_summary="the sea")
        answer = engine.query("Why?")
        assert (str(answer), inner.asked) == ("Joined.", ["First?", "Second?"])
        assert answer.metadata is not None
        assert answer.metadata["sub_qa"] == [("First?", "sea: First?"), ("Second?", "sea: Second?")]
        assert "the sea" in prompts_to(llm)[0]
        assert "- First?\n- sea: First?" in prompts_to(llm)[1]

    def test_the_steps_have_a_bound(self) -> None:
        engine, inner, _ = self.engine("First?", "Joined.", num_steps=1)
        assert (str(engine.query("Why?")), inner.asked) == ("Joined.", ["First?"])

    def test_early_stopping_may_be_switched_off(self) -> None:
        engine, inner, _ = self.engine("None", "Joined.", num_steps=1, early_stopping=False)
        assert (str(engine.query("Why?")), inner.asked) == ("Joined.", ["None"])


class TestTransforms:
    def test_an_invented_answer_is_searched_for(self) -> None:
        llm = answering("The moon pulls.", "The moon pulls.")
        assert HyDEQueryTransform(llm).run("Why?").custom_embedding_strs == ["The moon pulls.", "Why?"]
        alone = HyDEQueryTransform(llm, include_original=False)(QueryBundle("Why?"))
        assert (alone.query_str, alone.embedding_strs) == ("Why?", ["The moon pulls."])

    def test_questions_are_made_simpler_or_left(self) -> None:
        transform = DecomposeQueryTransform(answering("Simpler?"))
        assert transform.run("Hard?", {"index_summary": "the sea"}).query_str == "Simpler?"
        assert IdentityQueryTransform().run("Hard?").query_str == "Hard?"
        assert "decompose_query_prompt" in transform.get_prompts()


class Gives(BaseRetriever):
    def __init__(self, *nodes: NodeWithScore) -> None:
        super().__init__()
        self.nodes, self.asked = list(nodes), list[str]()

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.asked.append(query_bundle.query_str)
        return self.nodes


class TestFusion:
    @pytest.mark.parametrize(
        ("mode", "texts", "scores"),
        [
            ("simple", ["b", "a", "c"], [0.9, 0.8, 0.4]),
            ("reciprocal_rerank", ["b", "a", "c"], [1 / 61 + 1 / 60, 1 / 60, 1 / 61]),
            ("relative_score", ["b", "a", "c"], [0.5, 0.5, 0.0]),
            ("dist_based_score", ["a", "b", "c"], [0.3333, 0.5, 0.1667]),
        ],
    )
    def test_lists_are_joined_by_score_or_rank(self, mode: str, texts: list[str], scores: list[float]) -> None:
        one, other = Gives(*scored("a", "b", scores=[0.8, 0.3])), Gives(*scored("b", "c", scores=[0.9, 0.4]))
        fused = QueryFusionRetriever([one, other], num_queries=1, mode=mode, similarity_top_k=3).retrieve("q")
        found = dict(zip(texts_of(fused), [node.score for node in fused], strict=True))
        assert set(found) == set(texts)
        if mode != "dist_based_score":
            assert sorted(found.values(), reverse=True) == pytest.approx(scores, abs=1e-4)
        assert one.nodes[1].score == 0.3  # the scores of shared nodes stay

    def test_a_model_writes_further_questions(self) -> None:
        retriever = Gives(*scored("a"))
        QueryFusionRetriever([retriever], answering("q2\nq3\nq4"), num_queries=3).retrieve("q1")
        assert sorted(retriever.asked) == ["q1", "q2", "q3"]

    def test_weights_favour_a_retriever(self) -> None:
        one, other = Gives(*scored("a", "b", scores=[1.0, 0.1])), Gives(*scored("b", "a", scores=[1.0, 0.1]))
        options: dict[str, Any] = {"num_queries": 1, "mode": "relative_score", "similarity_top_k": 1}
        assert texts_of(QueryFusionRetriever([one, other], retriever_weights=[1, 3], **options).retrieve("q")) == ["b"]

    async def test_it_is_asked_asynchronously_too(self) -> None:
        fused = QueryFusionRetriever([Gives(*scored("a"))], num_queries=1)
        assert texts_of(await fused.aretrieve("q")) == ["a"]
        assert asyncio.get_running_loop() is not None
