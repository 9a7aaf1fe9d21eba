"""``ask``: answer a question from a file of passages, or print the passages."""

import asyncio
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batonflow.cli.errors import DONE, FAILED, USAGE, CommandError
from batonflow.cli.output import complain, say, say_json
from batonflow.cli.passages import index_id_of, opened_index, opened_passages, place_of, shown_place
from batonflow.cli.text import plain
from batonflow.llms.errors import LLMConfigurationError
from batonflow.nodes import BaseRetriever, NodeWithScore
from batonflow.retrieval import CitationQueryEngine, StorageContext, WordsRetriever
from batonflow.retrieval.requests import given_llm

__all__ = ["ask"]

_LONGEST_PASSAGE = 600


def ask(given: Namespace) -> int:
    """Answer a question from a file of passages."""
    if not given.question.strip():
        raise CommandError("the question is empty", USAGE)
    if not Path(given.file).is_file():
        raise CommandError(f"there is no file {given.file}: `batonflow ingest FOLDER {given.file}` makes it", USAGE)
    try:
        llm = given_llm(given.llm)
    except LLMConfigurationError as error:
        raise CommandError(str(error), USAGE) from error
    retriever = _retriever(opened_passages(given.file), given)
    if llm is None:
        return _told("", retriever.retrieve(given.question), [], given)
    engine = CitationQueryEngine(retriever, llm)
    response: Any = asyncio.run(_answered(engine, given.question))
    metadata: dict[str, Any] = response.metadata or {}
    return _told(str(response), response.source_nodes, metadata.get("citations", []), given)


def _retriever(storage: StorageContext, given: Namespace) -> BaseRetriever:
    known = index_id_of(storage.store, given)
    if given.index is not None and known is None:
        ids = ", ".join(one.id for one in storage.store.indexes())
        raise CommandError(f"{given.file} has no index {given.index}; it has {ids or 'no index'}", USAGE)
    if given.embed_model is not None and known is not None:
        index = opened_index(storage, given)
        return index.as_retriever(similarity_top_k=given.top_k, vector_store_query_mode="hybrid")
    number = next((one.number for one in storage.store.indexes() if one.id == known), None)
    return WordsRetriever(storage, given.top_k, number)


async def _answered(engine: CitationQueryEngine, question: str) -> Any:
    return await engine.aquery(question)


def _told(answer: str, found: Sequence[NodeWithScore], citations: Sequence[Any], given: Namespace) -> int:
    if given.json:
        say_json({"answer": answer or None, "citations": citations, "sources": _sources(found)})
    elif not found:
        complain("the file has no passage with words of the question")
    elif answer:
        say(f"{answer}\n")
        cited = {one.number for one in citations}
        for number, one in enumerate(found, 1):
            if number in cited or not cited.intersection(range(1, len(found) + 1)):
                say(shown_place(number, one.node))
        for number in sorted({one.number for one in citations if not one.is_supported}):
            complain(f"no passage supports [{number}]: check it")
    else:
        for number, one in enumerate(found, 1):
            text = plain(one.node.get_content()).strip()
            cut = "..." if len(text) > _LONGEST_PASSAGE else ""
            say(f"{shown_place(number, one.node)}\n{text[:_LONGEST_PASSAGE]}{cut}\n")
    return DONE if found else FAILED


def _sources(found: Sequence[NodeWithScore]) -> list[dict[str, Any]]:
    numbered = [(number, one, *place_of(one.node)) for number, one in enumerate(found, 1)]
    return [
        {"number": number, "source": source, "page": page, "score": one.score, "text": one.node.get_content()}
        for number, one, source, page in numbered
    ]
