"""Nodes: their content for each reader, their relationships, and their data."""

import copy
import json
import pickle
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import PrivateAttr

from batonflow.nodes import (
    BaseComponent,
    Document,
    ImageNode,
    IndexNode,
    MediaResource,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    ObjectType,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)


class Part(BaseComponent):
    n: int = 0
    _lock: Any = PrivateAttr(default_factory=Lock)

    @classmethod
    def class_name(cls) -> str:
        return "Part"


def test_a_component_names_its_class_in_its_data_and_is_read_again() -> None:
    part = Part(n=3)
    assert part.to_dict() == part.dict() == {"n": 3, "class_name": "Part"}
    assert json.loads(part.to_json()) == json.loads(part.json()) == {"n": 3, "class_name": "Part"}
    assert Part.from_dict(part.to_dict(), n=4).n == 4
    assert Part.from_json(part.to_json()).n == 3


def test_parts_that_cannot_be_pickled_are_left_out_of_copies() -> None:
    assert pickle.loads(pickle.dumps(Part(n=3))).n == 3
    assert copy.deepcopy(Part(n=3)).n == 3


@pytest.mark.parametrize(
    ("mode", "content"),
    [
        (MetadataMode.NONE, "Tides."),
        (MetadataMode.ALL, "page: 3\nauthor: Ann\n\nTides."),
        (MetadataMode.LLM, "page: 3\n\nTides."),
        (MetadataMode.EMBED, "author: Ann\n\nTides."),
    ],
)
@pytest.mark.parametrize("cls", [TextNode, Document])
def test_each_reader_gets_the_metadata_that_are_not_hidden_from_it(cls: Any, mode: MetadataMode, content: str) -> None:
    node = cls(
        text="Tides.",
        metadata={"page": 3, "author": "Ann"},
        excluded_llm_metadata_keys=["author"],
        excluded_embed_metadata_keys=["page"],
    )
    assert node.get_content(mode) == content


def test_texts_may_be_given_by_position_and_metadata_by_their_old_name() -> None:
    assert TextNode("a", extra_info={"n": 1}).metadata == {"n": 1}
    assert Document("a", doc_id="d").doc_id == "d"
    assert TextNode(text="a", metadata_seperator="; ").metadata_separator == "; "


def test_the_hash_is_of_content_and_metadata_and_not_of_the_id() -> None:
    assert TextNode(text="a").hash == TextNode(text="a").hash != TextNode(text="a", metadata={"n": 1}).hash
    assert Document(text="a").hash == Document(text="a").hash != Document(text="b").hash


def test_related_nodes_are_found_by_kind() -> None:
    one, many = RelatedNodeInfo(node_id="n"), [RelatedNodeInfo(node_id="c")]
    node = TextNode(
        text="",
        relationships={
            NodeRelationship.SOURCE: one,
            NodeRelationship.PREVIOUS: one,
            NodeRelationship.PARENT: one,
            NodeRelationship.CHILD: many,
        },
    )
    assert (node.source_node, node.prev_node, node.next_node, node.parent_node) == (one, one, None, one)
    assert (node.child_nodes, node.ref_doc_id) == (many, "n")
    with pytest.raises(ValueError, match="must be one node"):
        _ = TextNode(text="", relationships={NodeRelationship.NEXT: many}).next_node
    with pytest.raises(ValueError, match="must be a list"):
        _ = TextNode(text="", relationships={NodeRelationship.CHILD: one}).child_nodes


def test_a_node_describes_itself_for_others() -> None:
    node = Document(text="a", metadata={"n": 1})
    told = node.as_related_node_info()
    assert (told.node_id, told.node_type, told.metadata, told.hash) == (
        node.id_,
        ObjectType.DOCUMENT,
        {"n": 1},
        node.hash,
    )
    assert told.model_dump(mode="json")["node_type"] == "4"


@pytest.mark.parametrize(
    "node",
    [
        TextNode(text="a", embedding=[0.5], relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d")}),
        Document(text="a", metadata={"n": [1, 2]}),
        Node(text_resource=MediaResource(text="a"), image_resource=MediaResource(url="https://example.com/a.png")),
        IndexNode(text="a", index_id="i", obj=TextNode(text="b")),
        ImageNode(text="a", image_url="https://example.com/a.png"),
    ],
)
def test_a_search_result_is_written_and_read_again(node: Any) -> None:
    found = NodeWithScore(node=node, score=0.5)
    again = NodeWithScore.model_validate(json.loads(found.model_dump_json()))
    assert type(again.node) is type(node)
    assert again == found


def test_objects_of_index_nodes_that_are_not_nodes_are_left_out_of_their_data() -> None:
    assert IndexNode(text="a", index_id="i", obj=object()).model_dump(mode="json")["obj"] is None
    assert IndexNode.from_text_node(TextNode(text="a", id_="n"), "i").id_ == "n"


def test_a_search_result_speaks_for_its_node() -> None:
    one = NodeWithScore(node=TextNode(text="Tides.", id_="n", embedding=[0.5]), score=None)
    assert (one.id_, one.text, one.get_text(), one.get_embedding()) == ("n", "Tides.", "Tides.", [0.5])
    assert one.get_score() == 0.0
    with pytest.raises(ValueError, match="Score not set"):
        one.get_score(raise_error=True)


def test_a_document_of_langchain_is_taken_in_the_place_of_ours() -> None:
    theirs = SimpleNamespace(page_content="Tides.", metadata={"page": 3})
    ours = Document.from_langchain_format(theirs)
    assert (ours.text, ours.get_doc_id()) == ("Tides.", ours.id_)
    assert NodeWithScore(node=theirs).node.metadata == {"page": 3}  # type: ignore[arg-type]


def test_nodes_are_shown_with_their_ids_and_the_beginning_of_their_texts() -> None:
    assert str(TextNode(text="Tides.", id_="n")) == "Node ID: n\nText: Tides."
    assert str(Document(text="word " * 100, id_="d")).startswith("Doc ID: d\nText: word")
    assert len(str(Document(text="word " * 100, id_="d"))) < 400


def test_a_question_is_embedded_as_itself_unless_there_are_other_texts() -> None:
    assert QueryBundle("a").embedding_strs == ["a"]
    assert QueryBundle("a", custom_embedding_strs=["b"]).embedding_strs == ["b"]
    assert QueryBundle("").embedding_strs == []
