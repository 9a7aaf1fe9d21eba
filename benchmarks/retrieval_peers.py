"""Measure the search of other libraries over the passages of ``retrieval.py``, in a process of each library and size.

``retrieval.py --peer-python PYTHON`` runs it with a Python that has llama-index-core, langchain-core and bm25s.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from retrieval_data import DIMENSIONS, QUERIES, TOP_K, memory, passages, timed


def simple_vector_store(count: int) -> dict[str, float]:
    from llama_index.core.schema import TextNode
    from llama_index.core.vector_stores import SimpleVectorStore, VectorStoreQuery

    texts, _, vectors = passages(count)
    before, store = memory(), SimpleVectorStore()
    store.add([TextNode(text=texts[at], id_=str(at), embedding=vectors[at].tolist()) for at in range(count)])
    queries = [VectorStoreQuery(query_embedding=one, similarity_top_k=TOP_K) for one in asked()]
    return vector_figures(store.query, queries, before)


def in_memory_vector_store(count: int) -> dict[str, float]:
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import InMemoryVectorStore

    class Given(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return vectors[: len(texts)].tolist()

        def embed_query(self, text: str) -> list[float]:
            raise NotImplementedError

    texts, _, vectors = passages(count)
    before, store = memory(), InMemoryVectorStore(Given())
    store.add_texts(texts)
    return vector_figures(lambda one: store.similarity_search_by_vector(one, k=TOP_K), asked(), before)


def bm25s(count: int) -> dict[str, float]:
    import bm25s as library

    texts, questions, _ = passages(count)
    before, index = memory(), library.BM25()
    index.index(library.tokenize(texts, show_progress=False), show_progress=False)

    def find(question: str) -> Any:
        asked = library.tokenize(question, show_progress=False)
        return index.retrieve(asked, k=TOP_K, show_progress=False)

    cold, words = timed(find, questions)
    return {"cold": cold, "words": words, "MiB": memory() - before}


def asked() -> list[list[float]]:
    return np.random.default_rng(1).standard_normal((QUERIES, DIMENSIONS)).tolist()


def vector_figures(search: Callable[[Any], object], queries: list[Any], before: float) -> dict[str, float]:
    few = queries if len(queries) < 10 else queries[:10]  # some of them take seconds
    first, near = timed(search, few)
    return {"first": first, "near": near, "MiB": memory() - before}


if __name__ == "__main__":
    measure: Callable[[int], dict[str, float]] = globals()[sys.argv[1]]
    print(json.dumps(measure(int(sys.argv[2]))))
