"""Nodes, a retriever and a model for tests of the parts that make answers."""

from collections.abc import Callable
from typing import Any

from batonflow import ScriptedLLM
from batonflow.nodes import BaseRetriever, NodeWithScore, QueryBundle, TextNode

SEA, BREAD = "The moon pulls the sea.", "Bread needs yeast."


def scored(*texts: str, scores: list[float | None] | None = None, **fields: Any) -> list[NodeWithScore]:
    """Nodes with the ids n1, n2, ... and falling scores."""
    given = scores if scores is not None else [1.0 - number / 10 for number in range(len(texts))]
    return [
        NodeWithScore(node=TextNode(text=text, id_=f"n{number}", **fields), score=score)
        for number, (text, score) in enumerate(zip(texts, given, strict=True), 1)
    ]


def texts_of(nodes: list[NodeWithScore]) -> list[str]:
    return [found.node.get_content() for found in nodes]


class Notes(BaseRetriever):
    """Gives the same nodes for every question, and counts the questions."""

    def __init__(self, *texts: str) -> None:
        super().__init__()
        self.texts = texts or (SEA, BREAD)
        self.asked: list[str] = []

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.asked.append(query_bundle.query_str)
        return scored(*self.texts)


def answering(*turns: Any, window: int = 128_000) -> ScriptedLLM:
    return ScriptedLLM(turns, context_window=window)


def numbering(answer: Callable[[int], str] = str, turns: int = 40, window: int = 128_000) -> ScriptedLLM:
    """A model that answers its n-th request with ``answer(n)``."""
    return ScriptedLLM([answer(number) for number in range(1, turns + 1)], context_window=window)


def prompts_to(llm: ScriptedLLM) -> list[str]:
    return [str(request.messages[-1].content) for request in llm.requests]
