"""A retriever whose query a model writes."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from batonflow import ScriptedLLM, StartEvent, StopEvent, Workflow, step
from batonflow.nodes import QueryBundle, TextNode
from batonflow.retrieval import (
    FilterCondition,
    MetadataFilter,
    MetadataFilters,
    MetadataInfo,
    Retrieved,
    RetrieverQueryEngine,
    VectorIndexAutoRetriever,
    VectorStoreIndex,
    VectorStoreInfo,
    VectorStoreQuerySpec,
)
from tests.retrieval.passages import answering, prompts_to, texts_of
from tests.retrieval.test_indexes import Letters

INFO = VectorStoreInfo(
    content_info="Reports about the sea.",
    metadata_info=[MetadataInfo(name="year", type="int", description="The year of the report.")],
)
NODES = [TextNode(text=f"Tides of {year}.", metadata={"year": year, "secret": year}) for year in (2019, 2020, 2021)]


def writing(query: str = "tides", filters: list[tuple[str, Any, str]] | None = None, **fields: Any) -> str:
    told = [{"key": key, "value": value, "operator": operator} for key, value, operator in filters or []]
    return json.dumps({"query": query, "filters": told, **fields})


def auto(*turns: Any, embed_model: Any = None, **options: Any) -> tuple[VectorIndexAutoRetriever, ScriptedLLM]:
    llm = answering(*turns)
    index = VectorStoreIndex([node.model_copy() for node in NODES], embed_model=embed_model)
    return VectorIndexAutoRetriever(index, INFO, llm=llm, **options), llm


def test_the_model_sees_the_content_and_writes_the_filters() -> None:
    retriever, llm = auto(writing(filters=[("year", 2020, ">=")]), similarity_top_k=5)
    assert texts_of(retriever.retrieve("What did they say since 2020?")) == ["Tides of 2020.", "Tides of 2021."]
    for part in ("Reports about the sea.", "The year of the report.", "What did they say since 2020?"):
        assert part in prompts_to(llm)[0]


async def test_filters_on_keys_that_are_not_named_are_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    retriever, _ = auto(writing(filters=[("secret", 2020, "=="), ("year", 2021, "==")]))
    with caplog.at_level(logging.WARNING, "batonflow.retrieval"):
        assert texts_of(await retriever.aretrieve("q")) == ["Tides of 2021."]
    assert "the filter secret == 2020 is left out" in caplog.text


@pytest.mark.parametrize(("asked", "most", "found"), [(None, 10, 2), (1, 10, 1), (9, 10, 2), (2, 1, 1)])
def test_the_number_of_nodes_stays_below_both_bounds(asked: int | None, most: int, found: int) -> None:
    retriever, _ = auto(writing(top_k=asked), max_top_k=most)
    assert len(retriever.retrieve("q")) == found


@pytest.mark.parametrize("embed_model", [None, Letters()])
def test_filters_without_words_find_the_first_nodes_that_meet_them(embed_model: Any) -> None:
    retriever, _ = auto(writing("", [("year", 2019, ">")]), embed_model=embed_model)
    assert texts_of(retriever.retrieve("q")) == ["Tides of 2020.", "Tides of 2021."]
    retriever, _ = auto(writing(""), writing(""), embed_model=embed_model, empty_query_top_k=None)
    assert len(retriever.retrieve("q")) == 2


def test_a_vector_may_stand_for_missing_words() -> None:
    vector = Letters().get_query_embedding("tides of")
    retriever, _ = auto(writing(""), embed_model=Letters(), default_empty_query_vector=vector)
    assert [one.score is not None for one in retriever.retrieve("q")] == [True] * 3


@pytest.mark.parametrize("condition", ["and", "or"])
def test_conditions_of_the_program_always_hold(condition: str) -> None:
    both = [MetadataFilter(key="secret", value=year) for year in ((2021, 2021) if condition == "and" else (2021, 2019))]
    extra = MetadataFilters(filters=both, condition=FilterCondition(condition))
    retriever, _ = auto(writing(filters=[("year", 2019, ">")]), extra_filters=extra)
    assert texts_of(retriever.retrieve("q")) == ["Tides of 2021."]


def test_the_question_is_used_if_the_model_writes_no_query(caplog: pytest.LogCaptureFixture) -> None:
    retriever, _ = auto(*["I cannot."] * 9)
    assert texts_of(retriever.retrieve("tides of 2021"))[0] == "Tides of 2021."
    assert "the model wrote no valid query" in caplog.text


async def test_the_prompt_can_be_replaced() -> None:
    retriever, llm = auto(writing(), writing(), prompt_template_str="mine {query_str}")
    spec = await retriever.agenerate_retrieval_spec(QueryBundle("q"))
    assert spec == VectorStoreQuerySpec(query="tides")
    assert set(retriever.get_prompts()) == {"prompt"}
    retriever.update_prompts({"prompt": "yours {query_str}"})
    retriever.generate_retrieval_spec(QueryBundle("q"))
    assert [prompt.split("\n")[0] for prompt in prompts_to(llm)] == ["mine q", "yours q"]


class TestAnswers:
    CHOSEN = {"query": "tides", "filters": [{"key": "year", "value": 2020, "operator": "=="}], "top_k": None}

    def engine(self, **options: Any) -> RetrieverQueryEngine:
        retriever, _ = auto(writing(filters=[("year", 2020, "==")]))
        return RetrieverQueryEngine.from_args(retriever, answering("They rose."), **options)

    @pytest.mark.parametrize("streaming", [False, True])
    async def test_the_chosen_query_is_in_the_metadata(self, streaming: bool) -> None:
        answers = [self.engine(streaming=streaming).query("q"), await self.engine(streaming=streaming).aquery("q")]
        assert [answer.metadata["retrieval_specs"] for answer in answers if answer.metadata] == [[self.CHOSEN]] * 2

    async def test_a_run_streams_and_records_it(self, tmp_path: Path) -> None:
        engine = self.engine()
        handler = engine.run("q", run_id="one", store=tmp_path / "runs.db")
        [found] = [event async for event in handler.stream_events() if isinstance(event, Retrieved)]
        assert found.facts == {"retrieval_specs": [self.CHOSEN]}
        assert (await handler).metadata["retrieval_specs"] == [self.CHOSEN]
        again = await engine.run("q", run_id="one", store=tmp_path / "runs.db")
        assert again.metadata["retrieval_specs"] == [self.CHOSEN]

    async def test_a_query_in_a_step_has_it_too(self, tmp_path: Path) -> None:
        class Outer(Workflow):
            @step
            async def ask(self, ev: StartEvent) -> StopEvent:
                answer = await engine.aquery("q")
                return StopEvent(result=answer.metadata)

        engine = self.engine()
        found = await Outer(store=tmp_path / "runs.db").run(run_id="one")
        assert found["retrieval_specs"] == [self.CHOSEN]

    def test_it_is_there_without_any_node(self) -> None:
        retriever, _ = auto(writing(filters=[("year", 1900, "==")]))
        answer = RetrieverQueryEngine.from_args(retriever, answering()).query("q")
        assert (str(answer), list(answer.metadata or {})) == ("Empty Response", ["retrieval_specs"])
