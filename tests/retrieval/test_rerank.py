"""LLMRerank and StructuredLLMRerank."""

import json
from typing import Any

import pytest

from batonflow.llms.prompts import PromptTemplate
from batonflow.retrieval.rerank import LLMRerank, StructuredLLMRerank, parse_choices
from tests.retrieval.passages import answering, prompts_to, scored, texts_of


def structured(*pairs: tuple[int, float]) -> str:
    return json.dumps(
        {"documents": [{"document_number": number, "relevance": relevance} for number, relevance in pairs]}
    )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Doc: 2, Relevance: 9\nDoc: 1, Relevance: 4", ([2, 1], [9.0, 4.0])),
        ("Here you are:\n- **Doc 3**: relevance 7.5\n\ndocument 1 - 2/10", ([3, 1], [7.5, 2.0])),
        ("1: 8\n2: 3", ([1, 2], [8.0, 3.0])),
        ("Doc: 2", ([2], [1.0])),
        ("文档: 2, 相关性: 9", ([2], [9.0])),
        ("Doc: 9, Relevance: 9\nDoc: 0, Relevance: 3\nDoc: 1, Relevance: 2\nDoc: 1, Relevance: 7", ([1], [2.0])),
        ("Doc: 9, Relevance: 9", ([], [])),
        ("The 2 passages do not help.", None),
        ("", None),
    ],
)
def test_lines_are_read_leniently_and_unknown_numbers_left_out(answer: str, expected: Any) -> None:
    assert parse_choices(answer, 3) == expected


async def test_the_chosen_nodes_come_by_relevance_and_top_n_are_kept() -> None:
    answer = "Doc: 1, Relevance: 2\nDoc: 3, Relevance: 9\nDoc: 2, Relevance: 4"
    llm = answering(answer, answer)
    made = LLMRerank(llm=llm, top_n=2)
    nodes = scored("a", "b", "c")
    best = await made.apostprocess_nodes(nodes, query_str="q")
    assert [(found.node.get_content(), found.score) for found in best] == [("c", 9.0), ("b", 4.0)]
    assert texts_of(made.postprocess_nodes(nodes, query_str="q")) == ["c", "b"]
    assert "<passage 3>\nc\n</passage 3>" in prompts_to(llm)[0]
    assert nodes[2].score == pytest.approx(0.8)


async def test_each_batch_is_one_request() -> None:
    llm = answering("Doc: 1, Relevance: 3", "Doc: 2, Relevance: 8")
    best = await LLMRerank(llm=llm, choice_batch_size=2).apostprocess_nodes(scored("a", "b", "c", "d"), query_str="q")
    assert texts_of(best) == ["d", "a"]


async def test_an_answer_without_a_line_keeps_the_order() -> None:
    nodes = scored("a", "b", "c")
    assert (
        await LLMRerank(llm=answering("I cannot say."), top_n=2).apostprocess_nodes(nodes, query_str="q") == nodes[:2]
    )
    llm = answering("No idea.", "Doc: 1, Relevance: 1")
    best = await LLMRerank(llm=llm, choice_batch_size=2).apostprocess_nodes(nodes, query_str="q")
    assert texts_of(best) == ["c", "a", "b"]


async def test_prompt_text_and_reading_of_answers_can_be_replaced() -> None:
    llm = answering("second", "second")
    made = LLMRerank(
        llm=llm,
        choice_select_prompt=PromptTemplate("{query_str}|{context_str}"),
        format_node_batch_fn=lambda nodes: "/".join(node.get_content() for node in nodes),
        parse_choice_select_answer_fn=lambda answer, count: ([2], [float(count)]),
    )
    (best,) = await made.apostprocess_nodes(scored("a", "b"), query_str="q")
    assert (best.node.get_content(), best.score) == ("b", 2.0)
    made.update_prompts({"choice_select_prompt": "new|{query_str}"})
    await made.apostprocess_nodes(scored("a", "b"), query_str="q")
    assert prompts_to(llm) == ["q|a/b", "new|q"]


async def test_a_query_is_needed_and_no_nodes_need_no_request() -> None:
    with pytest.raises(ValueError, match="Missing query bundle"):
        await LLMRerank(llm=answering()).apostprocess_nodes(scored("a"))
    assert await LLMRerank(llm=answering()).apostprocess_nodes([], query_str="q") == []


async def test_structured_answers() -> None:
    llm = answering(structured((2, 9), (7, 3), (1, 4)))
    best = await StructuredLLMRerank(llm=llm).apostprocess_nodes(scored("a", "b"), query_str="q")
    assert [(found.node.get_content(), found.score) for found in best] == [("b", 9.0), ("a", 4.0)]


async def test_a_structured_answer_that_does_not_fit_is_raised_or_keeps_the_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nodes = scored("a", "b")
    with pytest.raises(ValueError, match="DocumentRelevanceList"):
        await StructuredLLMRerank(llm=answering(*["no"] * 3)).apostprocess_nodes(nodes, query_str="q")
    made = StructuredLLMRerank(llm=answering(*["no"] * 3), raise_on_structured_prediction_failure=False)
    assert await made.apostprocess_nodes(nodes, query_str="q") == nodes
    assert "keep their order" in caplog.text
