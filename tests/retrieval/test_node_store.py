"""The file of nodes: its content after writes and crashes, with other processes, and the search in it."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonflow.nodes import NodeRelationship, RelatedNodeInfo, TextNode
from batonflow.retrieval import node_file
from batonflow.retrieval.filters import MetadataFilters
from batonflow.retrieval.node_store import NodeStore, NodeStoreError
from batonflow.retrieval.words import words_of
from tests.retrieval.passages import BREAD, SEA

DOC = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d")}


def ids(found: "list[object]") -> list[str]:
    return [one.node.id_ for one in found]  # type: ignore[attr-defined]


def filled(path: "str | Path" = ":memory:") -> NodeStore:
    store = NodeStore(path)
    store.add_nodes(
        [
            TextNode(text=SEA, id_="sea", metadata={"n": 1}, embedding=[1.0, 0.0], relationships=DOC),
            TextNode(text=BREAD, id_="bread", metadata={"n": 2}, embedding=[0.0, 1.0]),
        ],
        model="m",
    )
    return store


def test_nodes_are_read_as_they_were_written_but_for_their_vectors(tmp_path: Path) -> None:
    filled(tmp_path / "notes.db").close()
    store = NodeStore(tmp_path / "notes.db")
    sea, bread = store.nodes()
    assert (sea.id_, sea.get_content(), sea.metadata, sea.ref_doc_id) == ("sea", SEA, {"n": 1}, "d")
    assert store.nodes(["bread", "none"]) == [bread]
    assert store.nodes(doc="d") == [sea]


def test_a_node_that_is_known_is_left_and_a_changed_one_is_replaced() -> None:
    store = filled()
    [sea] = store.numbers_of(["sea"])
    assert store.add_nodes([TextNode(text=SEA, id_="sea", metadata={"n": 1})]) == [sea]
    store.add_nodes([TextNode(text="Waves come from the wind.", id_="sea")])
    assert [node.get_content() for node in store.nodes(["sea"])] == ["Waves come from the wind."]
    assert ids(store.by_words("moon", 5)) == []
    assert ids(store.by_words("waves", 5)) == ["sea"]


def test_words_find_stems_and_vectors_the_nearest() -> None:
    store = filled()
    assert ids(store.by_words("pulling seas", 5)) == ["sea"]
    assert ids(store.by_vector("m", [0.9, 0.1], 1)) == ["sea"]
    assert ids(store.by_both("yeast", "m", [0.9, 0.1], 2)) == ["bread", "sea"]
    assert store.by_vector("other", [1.0], 3) == []


def test_a_search_keeps_to_filters_ids_documents_and_indexes() -> None:
    store = filled()
    number = store.put_index("i", "list", {})
    store.add_members(number, store.numbers_of(["bread"]))
    for allowed in (
        store.mask(filters=MetadataFilters.from_dict({"n": 2})),
        store.mask(ids=["bread"]),
        store.mask(index=number),
    ):
        assert ids(store.by_vector("m", [1.0, 0.0], 5, allowed)) == ["bread"]
        assert ids(store.by_words("moon bread", 5, allowed)) == ["bread"]
    assert ids(store.by_words("moon bread", 5, store.mask(docs=["d"]))) == ["sea"]


def test_deleted_nodes_are_found_no_more() -> None:
    store = filled()
    store.delete_nodes(store.numbers_of(["sea"]))
    assert ids(store.by_words("moon", 5)) == ids(store.by_vector("m", [1.0, 0.0], 1))[:0]
    assert ids(store.by_vector("m", [1.0, 0.0], 5)) == ["bread"]
    store.add_nodes([TextNode(text=SEA, id_="sea")])
    assert ids(store.by_words("moon", 5)) == ["sea"]


def test_vectors_of_one_model_have_one_length() -> None:
    store = filled()
    with pytest.raises(NodeStoreError, match="vectors of m have different lengths: 2, 3"):
        store.add_nodes([TextNode(text="a", embedding=[1.0, 2.0, 3.0])], model="m")
    with pytest.raises(NodeStoreError, match="the query has 3 numbers, and vectors of m have 2"):
        store.by_vector("m", [1.0, 2.0, 3.0], 1)
    assert len(store.nodes()) == 2


def test_another_process_sees_what_is_written(tmp_path: Path) -> None:
    one, other = filled(tmp_path / "notes.db"), NodeStore(tmp_path / "notes.db")
    assert ids(other.by_words("moon", 5)) == ["sea"]
    one.add_nodes([TextNode(text="The moon is far.", id_="far", embedding=[1.0, 0.1])], model="m")
    assert set(ids(other.by_words("moon", 5))) == {"sea", "far"}
    assert ids(other.by_vector("m", [1.0, 0.1], 1)) == ["far"]


def test_a_file_that_another_program_keeps_locked_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_file, "_PATIENCE", 0.2)
    with sqlite3.connect(tmp_path / "notes.db") as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(NodeStoreError, match=r"notes\.db is locked by another program"):
            NodeStore(tmp_path / "notes.db")
    other.close()
    filled(tmp_path / "notes.db")


def test_files_of_others_and_of_newer_versions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, but a text that is long enough to be read as one" * 20)
    with pytest.raises(NodeStoreError, match=r"text\.db is not a file of nodes"):
        NodeStore(tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE t (a)")
    with pytest.raises(NodeStoreError, match="a database of another program"):
        NodeStore(tmp_path / "other.db")
    filled(tmp_path / "notes.db").close()
    with sqlite3.connect(tmp_path / "notes.db") as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(NodeStoreError, match="written by a newer batonflow"):
        NodeStore(tmp_path / "notes.db")


def test_words_are_made_again_when_their_rules_have_changed(tmp_path: Path) -> None:
    filled(tmp_path / "notes.db").close()
    with sqlite3.connect(tmp_path / "notes.db") as older:
        older.execute("UPDATE fact SET value = '0' WHERE name = 'words'")
        older.execute("DELETE FROM posting")
    assert ids(NodeStore(tmp_path / "notes.db").by_words("moon", 5)) == ["sea"]


WRITER = """
import sys
from batonflow.nodes import TextNode
from batonflow.retrieval.node_store import NodeStore
store = NodeStore(sys.argv[1])
for n in range(10**6):
    store.add_nodes([TextNode(text=f"word{n} moon", id_=f"{n}-{part}") for part in range(3)])
    print(n, flush=True)
"""


def test_a_writer_that_is_killed_leaves_whole_writes(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    while int(writer.stdout.readline()) < 80:
        pass
    os.kill(writer.pid, signal.SIGKILL)
    writer.communicate()
    store = NodeStore(path)
    kept = len(store.nodes())
    assert (kept % 3, kept >= 240) == (0, True)
    assert len(store.by_words("moon", 10**6)) == kept


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["moon", "tide", "bread", "yeast", "salt"]), min_size=1, max_size=6), max_size=90
    ),
    st.data(),
)
def test_words_are_found_whatever_the_order_of_writes_and_deletions(
    texts: list[list[str]], data: st.DataObject
) -> None:
    store, left = NodeStore(), dict[str, list[str]]()
    for n, words in enumerate(texts):
        store.add_nodes([TextNode(text=" ".join(words), id_=str(n))])
        left[str(n)] = words
    for one in data.draw(st.lists(st.sampled_from(sorted(left)), unique=True)) if left else []:
        store.delete_nodes(store.numbers_of([one]))
        del left[one]
    for word in ("moon", "bread"):
        assert set(ids(store.by_words(word, 1000))) == {one for one, words in left.items() if word in words}
    assert words_of("moon")
    store.close()


def test_equal_scores_keep_the_order_of_insertion() -> None:
    store = NodeStore()
    store.add_nodes([TextNode(text="a", id_=str(n), embedding=[1.0, 0.0]) for n in range(20)], model="m")
    assert ids(store.by_vector("m", [1.0, 0.0], 5)) == ["0", "1", "2", "3", "4"]
    assert np.allclose([one.score for one in store.by_vector("m", [2.0, 0.0], 5)], 1.0)


def test_a_question_of_one_character_finds_the_texts_with_it() -> None:
    texts = {"begin": "海は青い", "end": "青い海", "middle": "青海原", "alone": "海!", "other": "月と水"}
    store = NodeStore()
    for name, text in texts.items():  # blocks of their own
        store.add_nodes([TextNode(text=text, id_=name)])
    assert sorted(ids(store.by_words("海", 9))) == ["alone", "begin", "end", "middle"]
    assert ids(store.by_words("月", 9)) == ids(store.by_words("水", 9)) == ["other"]
    assert ids(store.by_words("青い海", 1)) == ["end"]
    assert ids(store.by_words("한", 9)) == []
    assert sorted(ids(store.by_words("月 原", 9))) == ["middle", "other"]
    assert ids(store.by_words("月 moon", 9)) == [], "beside other words a lone character is a word of its own"
    store.delete_nodes(store.numbers_of(["begin", "end"]))
    assert sorted(ids(store.by_words("海", 9))) == ["alone", "middle"]
