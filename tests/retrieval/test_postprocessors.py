"""Postprocessors: drop, order, extend or change nodes."""

from typing import Any

import pytest

from batonflow.nodes import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
from batonflow.retrieval.postprocessors import (
    AutoPrevNextNodePostprocessor,
    EmbeddingRecencyPostprocessor,
    FixedRecencyPostprocessor,
    KeywordNodePostprocessor,
    LongContextReorder,
    MetadataReplacementPostProcessor,
    PrevNextNodePostprocessor,
    SentenceEmbeddingOptimizer,
    SimilarityPostprocessor,
    TimeWeightedPostprocessor,
)
from tests.retrieval.passages import answering, prompts_to, scored, texts_of

HOUR = 3600


class Letters:
    """An embedding model: how often each letter occurs."""

    def get_text_embedding_batch(self, texts: list[str], show_progress: bool = False) -> list[list[float]]:
        return [[float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]

    def get_agg_embedding_from_queries(self, queries: list[str], agg_fn: Any = None) -> list[float]:
        return self.get_text_embedding_batch(queries)[0]

    def similarity(self, one: list[float], other: list[float]) -> float:
        def length(vector: list[float]) -> float:
            return sum(number * number for number in vector) ** 0.5 or 1.0

        return sum(a * b for a, b in zip(one, other, strict=True)) / length(one) / length(other)


class Shelf:
    """A document store of one document, "d", in sentences that know their neighbours."""

    def __init__(self, count: int) -> None:
        names = [f"s{number}" for number in range(count)]
        self.nodes = {name: TextNode(text=name, id_=name, start_char_idx=3 * at) for at, name in enumerate(names)}
        for at, name in enumerate(names):
            links: dict[Any, Any] = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d")}
            for side, near in ((NodeRelationship.PREVIOUS, at - 1), (NodeRelationship.NEXT, at + 1)):
                if 0 <= near < count:
                    links[side] = RelatedNodeInfo(node_id=names[near])
            self.nodes[name].relationships = links

    def get_node(self, node_id: str) -> TextNode:
        return self.nodes[node_id]

    def found(self, *names: str) -> list[NodeWithScore]:
        return [NodeWithScore(node=self.nodes[name], score=0.9) for name in names]


def dated(**texts: Any) -> list[NodeWithScore]:
    return [NodeWithScore(node=TextNode(text=text, metadata={"date": date}), score=0.5) for text, date in texts.items()]


def test_a_query_is_given_once_and_only_asked_for_where_it_is_needed() -> None:
    with pytest.raises(ValueError, match="both"):
        SimilarityPostprocessor().postprocess_nodes([], query_bundle=QueryBundle("q"), query_str="q")
    with pytest.raises(ValueError, match="Missing query bundle"):
        SentenceEmbeddingOptimizer(embed_model=Letters()).postprocess_nodes(scored("text"))


async def test_similarity_drops_low_and_missing_scores() -> None:
    nodes = scored("a", "b", "c", scores=[0.9, 0.4, None])
    assert texts_of(SimilarityPostprocessor(similarity_cutoff=0.4).postprocess_nodes(nodes)) == ["a", "b"]
    assert texts_of(await SimilarityPostprocessor(similarity_cutoff=0.5).apostprocess_nodes(nodes)) == ["a"]
    assert texts_of(SimilarityPostprocessor().postprocess_nodes(nodes)) == ["a", "b"]


@pytest.mark.parametrize(
    ("required", "excluded", "kept"),
    [
        (["sea"], [], ["the sea"]),  # not "seasons": keywords are whole words
        ([], ["sea"], ["the seasons", "潮汐与月亮"]),
        (["sea", "seasons"], [], ["the sea", "the seasons"]),
        (["the"], ["seasons"], ["the sea"]),
        (["月亮"], [], ["潮汐与月亮"]),  # in CJK text, parts
    ],
)
def test_keywords(required: list[str], excluded: list[str], kept: list[str]) -> None:
    made = KeywordNodePostprocessor(required_keywords=required, exclude_keywords=excluded)
    assert texts_of(made.postprocess_nodes(scored("the sea", "the seasons", "潮汐与月亮"))) == kept


@pytest.mark.parametrize(
    ("mode", "count", "found", "result"),
    [
        ("next", 1, "s1", "s1 s2"),
        ("previous", 2, "s3", "s1 s2 s3"),
        ("both", 1, "s3 s1", "s0 s1 s2 s3 s4"),
        ("both", 0, "s3 s1", "s1 s3"),
        ("next", 9, "s4", "s4 s5"),
        ("both", 1, "s1 s2", "s0 s1 s2 s3"),
    ],
)
def test_neighbours_come_once_in_the_order_of_the_document(mode: str, count: int, found: str, result: str) -> None:
    shelf = Shelf(6)
    made = PrevNextNodePostprocessor(docstore=shelf, num_nodes=count, mode=mode)  # type: ignore[arg-type]
    assert texts_of(made.postprocess_nodes(shelf.found(*found.split()))) == result.split()


def test_an_unknown_direction_is_an_error() -> None:
    with pytest.raises(ValueError, match="mode"):
        PrevNextNodePostprocessor(docstore=Shelf(1), mode="up")  # type: ignore[arg-type]


async def test_a_model_says_which_neighbours_are_needed() -> None:
    shelf = Shelf(9)
    answers = ["ANSWER: PREVIOUS", "NEXT", "none needed"]
    llm = answering(*answers, *answers)
    made = AutoPrevNextNodePostprocessor(docstore=shelf, llm=llm)
    nodes = shelf.found("s1", "s4", "s7")
    expected = ["s0", "s1", "s4", "s5", "s7"]
    assert texts_of(await made.apostprocess_nodes(nodes, query_str="q")) == expected
    assert texts_of(made.postprocess_nodes(nodes, query_str="q")) == expected
    assert "<passage 1>\ns1\n</passage 1>" in prompts_to(llm)[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [("2023-01-01", "2024-01-01"), ("2024-01-01T10:00", "2024-01-01T11:00+00:00"), ("May 3, 2023", "3 June 2023")],
)
def test_the_newest_nodes_are_kept(old: str, new: str) -> None:
    nodes = dated(old=old, undated=None, new=new)
    assert texts_of(FixedRecencyPostprocessor().postprocess_nodes(nodes)) == ["new"]
    assert texts_of(FixedRecencyPostprocessor(top_k=3).postprocess_nodes(nodes)) == ["new", "old", "undated"]


def test_a_text_that_is_not_a_date_is_an_error() -> None:
    with pytest.raises(ValueError, match="is not a date: 'soon'"):
        FixedRecencyPostprocessor().postprocess_nodes(dated(a="soon"))


def test_nodes_that_are_similar_to_a_newer_one_are_left_out() -> None:
    nodes = dated(tides="2023-01-01", tidess="2024-01-01", bbb="2022-01-01")
    made = EmbeddingRecencyPostprocessor(embed_model=Letters(), similarity_cutoff=0.7)
    assert texts_of(made.postprocess_nodes(nodes)) == ["tidess", "bbb"]
    assert (
        len(EmbeddingRecencyPostprocessor(embed_model=Letters(), similarity_cutoff=0.99).postprocess_nodes(nodes)) == 3
    )


def test_use_counts_beside_the_score_and_is_noted() -> None:
    now = 100.0 * HOUR
    nodes = scored("old", "fresh", scores=[0.9, 0.5])
    nodes[0].node.metadata["__last_accessed__"] = now - 5 * HOUR
    nodes[1].node.metadata["__last_accessed__"] = now - 1.0
    made = TimeWeightedPostprocessor(now=now, time_access_refresh=False)
    (best,) = made.postprocess_nodes(nodes)
    assert best.node.get_content() == "fresh"
    assert best.score == pytest.approx(0.5 + 0.01 ** (1 / HOUR))
    assert nodes[1].score == 0.5
    TimeWeightedPostprocessor(now=now, top_k=1).postprocess_nodes(nodes)
    assert nodes[1].node.metadata["__last_accessed__"] == now
    assert nodes[0].node.metadata["__last_accessed__"] == now - 5 * HOUR


def test_an_entry_of_the_metadata_replaces_the_text_and_the_node_stays() -> None:
    nodes = scored("sentence", metadata={"window": "before sentence after"})
    made = MetadataReplacementPostProcessor(target_metadata_key="window")
    assert texts_of(made.postprocess_nodes(nodes)) == ["before sentence after"]
    assert texts_of(nodes) == ["sentence"]
    assert texts_of(MetadataReplacementPostProcessor("other").postprocess_nodes(nodes)) == ["sentence"]


def test_the_best_nodes_stand_at_both_ends() -> None:
    nodes = scored("1", "2", "3", "4", "5")
    assert texts_of(LongContextReorder().postprocess_nodes(nodes)) == ["1", "3", "5", "4", "2"]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"percentile_cutoff": 0.25, "context_before": 0, "context_after": 0}, "Xx xx."),
        ({"percentile_cutoff": 0.25, "context_before": 1, "context_after": 0}, "Bb bb. Xx xx."),
        ({"percentile_cutoff": 0.25}, "Bb bb. Xx xx. Cc cc."),
        ({"threshold_cutoff": 0.9, "context_before": 0, "context_after": 1}, "Xx xx. Cc cc."),
        ({}, "Aa aa. Bb bb. Xx xx. Cc cc."),
    ],
)
def test_sentences_that_are_similar_to_the_question_are_kept(options: dict[str, Any], kept: str) -> None:
    nodes = scored("Aa aa. Bb bb. Xx xx. Cc cc.", "Dd dd.")
    made = SentenceEmbeddingOptimizer(embed_model=Letters(), **options)
    assert texts_of(made.postprocess_nodes(nodes, query_str="xxx"))[0] == kept
    assert texts_of(nodes)[0] == "Aa aa. Bb bb. Xx xx. Cc cc."


def test_a_node_without_such_a_sentence_is_left_out() -> None:
    made = SentenceEmbeddingOptimizer(embed_model=Letters(), threshold_cutoff=0.9)
    assert made.postprocess_nodes(scored("Dd dd."), query_str="xxx") == []
