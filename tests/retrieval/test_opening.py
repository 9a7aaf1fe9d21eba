"""Indexes are opened by their ids: nothing that they hold is lost, and the same nodes add nothing."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batonflow.nodes import Document, NodeRelationship, RelatedNodeInfo, TextNode
from batonflow.retrieval import (
    DocumentSummaryIndex,
    EmptyIndex,
    KeywordTableIndex,
    MockEmbedding,
    NodeStoreError,
    RAKEKeywordTableIndex,
    SimpleKeywordTableIndex,
    StorageContext,
    SummaryIndex,
    TreeIndex,
    VectorStoreIndex,
    ingest,
    load_index_from_storage,
)
from tests.retrieval.passages import BREAD, SEA, answering


def storage(folder: Path) -> StorageContext:
    return StorageContext.from_defaults(path=folder / "notes.db")


def node(text: str, key: str) -> TextNode:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc-{key}")}
    return TextNode(text=text, id_=key, relationships=source)


KINDS: list[tuple[type[Any], list[str]]] = [
    (VectorStoreIndex, []),
    (SummaryIndex, []),
    (SimpleKeywordTableIndex, []),
    (RAKEKeywordTableIndex, []),
    (KeywordTableIndex, ["moon", "yeast"]),
    (TreeIndex, []),
    (DocumentSummaryIndex, ["About the sea.", "About bread."]),
]


@pytest.mark.parametrize(("kind", "turns"), KINDS)
def test_an_index_of_each_kind_is_opened_and_gets_the_nodes_that_it_lacks(
    tmp_path: Path, kind: type[Any], turns: list[str]
) -> None:
    llm = answering(*turns)
    options: dict[str, Any] = {} if kind in {VectorStoreIndex, SummaryIndex} else {"llm": llm}
    first = kind([node(SEA, "sea")], storage_context=storage(tmp_path), index_id="n", **options)
    before = first.index_struct.nodes
    opened = kind([], storage_context=storage(tmp_path), index_id="n", **options)
    assert opened.index_struct.nodes == before
    kind([node(SEA, "sea"), node(BREAD, "bread")], storage_context=storage(tmp_path), index_id="n", **options)
    assert len(llm.requests) == len(turns), "a node that the index has is not sent to a model again"
    for index in (first, opened):
        assert [one for one in index.index_struct.nodes if one in {"sea", "bread"}] == ["sea", "bread"]
        assert index.index_struct.nodes[: len(before)] == before
        assert set(index.ref_doc_info) == {"doc-sea", "doc-bread"}


def test_an_empty_index_is_opened(tmp_path: Path) -> None:
    for _ in range(2):
        EmptyIndex(storage_context=storage(tmp_path), index_id="n")
    assert len(storage(tmp_path).store.indexes()) == 1


def test_a_tree_that_is_opened_keeps_its_summaries(tmp_path: Path) -> None:
    llm = answering("About two.", "About one.")
    nodes = [TextNode(text=text, id_=text) for text in "abc"]
    options: dict[str, Any] = {"llm": llm, "num_children": 2, "index_id": "t"}
    TreeIndex(nodes, storage_context=storage(tmp_path), **options)
    index = TreeIndex(nodes, storage_context=storage(tmp_path), **options)
    assert [one.text for one in index.as_retriever("root").retrieve("?")] == ["About two.", "About one."]


def test_a_document_is_added_to_those_before(tmp_path: Path) -> None:
    for text, key in ((SEA, "sea"), (BREAD, "bread"), (SEA, "sea")):
        VectorStoreIndex.from_documents([Document(text=text, id_=key)], storage(tmp_path), index_id="n")
    index = load_index_from_storage(storage(tmp_path), "n")
    assert sorted(one.text for one in index.as_retriever().retrieve("moon yeast")) == sorted([SEA, BREAD])
    assert set(index.ref_doc_info) == {"sea", "bread"}


def test_an_index_tells_its_own_documents_alone(tmp_path: Path) -> None:
    place = storage(tmp_path)
    sea = VectorStoreIndex.from_documents([Document(text=SEA, id_="sea", metadata={"page": 1})], place, index_id="a")
    bread = SummaryIndex.from_documents([Document(text=BREAD, id_="bread")], place, index_id="b")
    assert {doc: info.metadata for doc, info in sea.ref_doc_info.items()} == {"sea": {"page": 1}}
    assert bread.ref_doc_info["bread"].node_ids == bread.index_struct.nodes
    assert set(place.docstore.get_all_ref_doc_info()) == {"sea", "bread"}


def test_a_copy_with_another_id_is_an_index_of_its_own(tmp_path: Path) -> None:
    place = storage(tmp_path)
    for key in ("a", "b"):
        index = VectorStoreIndex.from_documents([Document(text=SEA, id_="sea")], place, index_id=key)
        assert index.index_id == key
    assert [one.id for one in place.store.indexes()] == ["a", "b"]


def test_an_index_of_another_kind_or_model_is_refused(tmp_path: Path) -> None:
    VectorStoreIndex(
        [node(SEA, "sea")], storage_context=storage(tmp_path), index_id="n", embed_model=MockEmbedding(embed_dim=4)
    )
    with pytest.raises(NodeStoreError, match="index n is of the kind vector_store, not list: give another index_id"):
        SummaryIndex([], storage_context=storage(tmp_path), index_id="n")
    with pytest.raises(NodeStoreError, match="give the same embed_model"):
        VectorStoreIndex([], storage_context=storage(tmp_path), index_id="n")
    assert storage(tmp_path).store.members(1) == [1]


def test_a_failure_leaves_an_index_that_existed(tmp_path: Path) -> None:
    index = KeywordTableIndex(
        [node(SEA, "sea")], llm=answering("moon"), storage_context=storage(tmp_path), index_id="n"
    )
    with pytest.raises(Exception, match="The script has 0 turns"):
        KeywordTableIndex([node(BREAD, "bread")], llm=answering(), storage_context=storage(tmp_path), index_id="n")
    assert index.index_struct.nodes == ["sea"]


async def test_a_second_ingest_finds_all_files_unchanged(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name, text in (("sea", SEA), ("bread", BREAD)):
        (tmp_path / "docs" / f"{name}.txt").write_text(text)
    counts: list[tuple[int, int]] = []
    for _ in range(2):
        index = VectorStoreIndex([], storage_context=storage(tmp_path), index_id="n")
        done = await ingest(tmp_path / "docs", index)
        counts.append((done.added, done.unchanged))
    assert counts == [(2, 0), (0, 2)]


def test_the_program_of_the_page_finds_the_same_when_it_runs_again(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    program = (root / "docs" / "how-to" / "ingestion.md").read_text().partition("```python\n")[2].partition("```")[0]
    options: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(root)}}
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, **options)
        for _ in range(2)
    ]
    first, second = (one.stdout.splitlines()[-3:] for one in runs)
    assert first == ["2 new, 1 failed: logo.png", "1 changed, 1 unchanged", "Bread needs salt."]
    assert second == ["2 new, 1 failed: logo.png", "0 changed, 2 unchanged", "Bread needs salt."]
    assert len(storage(tmp_path).store.nodes()) == 2


_OPENING = """
import sys
from batonflow.retrieval import StorageContext, TextNode, VectorStoreIndex
storage = StorageContext.from_defaults(path=sys.argv[1])
for number in range(20):
    VectorStoreIndex([TextNode(text=f"{sys.argv[2]} {number}")], storage_context=storage, index_id="n")
"""


def test_processes_that_create_one_index_at_a_time_share_it(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", _OPENING, str(tmp_path / "notes.db")]
    started = [subprocess.Popen([*arguments, name]) for name in ("sea", "bread")]
    assert [one.wait(timeout=50) for one in started] == [0, 0]
    index = load_index_from_storage(storage(tmp_path), "n")
    assert len(index.index_struct.nodes) == 40
