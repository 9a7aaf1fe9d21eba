"""The key-value store: its values and files, and its use as a cache and as documents."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from batonflow.retrieval import (
    BaseEmbedding,
    MockEmbedding,
    NodeStoreError,
    SimpleDocumentStore,
    SimpleIndexStore,
    SimpleKVStore,
    StorageContext,
    load_indices_from_storage,
)

FOLDER = Path(__file__).with_name("llama_index_folder")


def test_values_are_stored_by_collection_and_key() -> None:
    store = SimpleKVStore()
    store.put("a", {"n": 1})
    store.put_all([("b", {"n": 2}), ("c", {"n": 3})], collection="more", batch_size=9)
    assert (store.get("a"), store.get("b"), store.get("b", collection="more")) == ({"n": 1}, None, {"n": 2})
    assert (store.get_all(), store.get_all("nothing")) == ({"a": {"n": 1}}, {})
    assert (store.delete("a"), store.delete("a"), store.delete("c", "more")) == (True, False, True)
    assert store.to_dict() == {"data": {}, "more": {"b": {"n": 2}}}
    assert SimpleKVStore.from_dict(store.to_dict()).to_dict() == store.to_dict()


async def test_asynchronous_methods_do_the_same() -> None:
    store = SimpleKVStore()
    await store.aput("a", {"n": 1})
    await store.aput_all([("b", {"n": 2})])
    assert (await store.aget("a"), await store.aget_all()) == ({"n": 1}, {"a": {"n": 1}, "b": {"n": 2}})
    assert (await store.adelete("a"), await store.aget("a")) == (True, None)


def test_a_value_that_a_program_changes_is_not_changed_in_the_store() -> None:
    given = {"n": 1}
    store = SimpleKVStore({"data": {"a": given}})
    for one in (store.get("a"), store.get_all()["a"]):
        assert one is not None
        one["n"] = 2
    store.put("b", given)
    given["n"] = 3
    assert store.to_dict() == {"data": {"a": {"n": 1}, "b": {"n": 1}}}


def test_a_file_holds_the_values(tmp_path: Path) -> None:
    store, path = SimpleKVStore({"data": {"a": {"n": 1}}}), tmp_path / "new" / "values.json"
    store.persist(path)
    store.persist(str(path))
    assert SimpleKVStore.from_persist_path(str(path)).to_dict() == {"data": {"a": {"n": 1}}}
    assert [one.name for one in path.parent.iterdir()] == ["values.json"]
    with pytest.raises(FileNotFoundError):
        SimpleKVStore.from_persist_path(tmp_path / "nowhere")


class Asked(BaseEmbedding):
    asked: list[str] = Field(default_factory=list, exclude=True)

    def _get_text_embedding(self, text: str) -> list[float]:
        self.asked.append(text)
        return [float(len(text))]


async def test_it_is_a_cache_of_vectors(tmp_path: Path) -> None:
    cache = SimpleKVStore()
    first = Asked(embeddings_cache=cache)
    assert first.get_text_embedding_batch(["a", "bb"]) == first.get_text_embedding_batch(["a", "bb"]) == [[1.0], [2.0]]
    cache.persist(tmp_path / "cache.json")
    again = Asked(embeddings_cache=SimpleKVStore.from_persist_path(tmp_path / "cache.json"))
    assert await again.aget_text_embedding_batch(["a", "ccc"]) == [[1.0], [3.0]]
    assert (first.asked, again.asked) == (["a", "bb"], ["ccc"])


def test_documents_and_indexes_of_llama_index_are_taken_from_it() -> None:
    files = [SimpleKVStore.from_persist_path(FOLDER / f"{name}.json") for name in ("docstore", "index_store")]
    values = SimpleKVStore({name: part for one in files for name, part in one.to_dict().items()})
    assert set(SimpleDocumentStore(files[0]).docs) >= {"sea-1", "bread-2", "salt-3"}
    storage = StorageContext.from_defaults(
        docstore=SimpleDocumentStore(simple_kvstore=values), index_store=SimpleIndexStore(simple_kvstore=values)
    )
    listed: Any = next(one for one in load_indices_from_storage(storage) if one.index_type == "list")
    assert [one.node.id_ for one in listed.as_retriever().retrieve("all")] == ["sea-1", "bread-2", "salt-3"]
    with pytest.raises(NodeStoreError, match="this is not a key-value store of LlamaIndex: KeyError"):
        SimpleDocumentStore(SimpleKVStore({"docstore/data": {"a": {"n": 1}}}))


def test_an_empty_one_is_a_new_store() -> None:
    storage = StorageContext.from_defaults(docstore=SimpleDocumentStore(SimpleKVStore(), namespace="n", batch_size=2))
    assert (storage.docstore.docs, storage.index_store.index_structs()) == ({}, [])
    assert MockEmbedding(2, embeddings_cache=SimpleKVStore()).get_query_embedding("a") == [0.5, 0.5]
