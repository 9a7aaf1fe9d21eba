"""Nodes of several sizes, their merging, and texts that are cut where their subject changes."""

import pytest

from batonflow.nodes import BaseNode, BaseRetriever, Document, NodeRelationship, NodeWithScore, QueryBundle
from batonflow.retrieval import (
    AutoMergingRetriever,
    HierarchicalNodeParser,
    SemanticSplitterNodeParser,
    SentenceSplitter,
    StorageContext,
    VectorStoreIndex,
    get_child_nodes,
    get_deeper_nodes,
    get_leaf_nodes,
    get_root_nodes,
)
from tests.retrieval.test_indexes import Letters

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
TEXT = " ".join(f"Sentence {word} of this text." for word in NUMBERS)


def parsed(text: str = TEXT) -> list[BaseNode]:
    parser = HierarchicalNodeParser.from_defaults(chunk_sizes=[40, 14, 7], chunk_overlap=0)
    return parser.get_nodes_from_documents([Document(text=text, id_="d", metadata={})])


class TestHierarchicalNodeParser:
    def test_nodes_of_each_size_are_parents_and_children(self) -> None:
        nodes = parsed()
        roots, leaves = get_root_nodes(nodes), get_leaf_nodes(nodes)
        assert len(leaves) == 10
        assert nodes[: len(roots)] == roots
        below = get_child_nodes(roots[:1], nodes)
        assert [one.parent_node.node_id for one in below if one.parent_node] == [roots[0].id_] * len(below)
        assert [one.node_id for one in roots[0].child_nodes or ()] == [one.id_ for one in below]

    def test_all_belong_to_the_document_with_their_places_in_it(self) -> None:
        for node in parsed():
            assert node.ref_doc_id == "d"
            info = node.get_node_info()  # type: ignore[attr-defined]
            assert TEXT[info["start"] : info["end"]] == node.get_content()

    def test_neighbours_are_related_among_the_children_of_a_parent(self) -> None:
        nodes = parsed()
        first, second = get_child_nodes(get_root_nodes(nodes)[:1], nodes)[:2]
        assert first.next_node
        assert first.next_node.node_id == second.id_
        assert first.prev_node is None

    def test_the_nodes_of_a_level(self) -> None:
        nodes = parsed()
        assert get_deeper_nodes(nodes, 0) == get_root_nodes(nodes)
        assert get_deeper_nodes(nodes, 2) == get_leaf_nodes(nodes)
        with pytest.raises(ValueError, match="Depth cannot be a negative number!"):
            get_deeper_nodes(nodes, -1)
        with pytest.raises(ValueError, match="There is no root nodes in given nodes!"):
            get_deeper_nodes(get_leaf_nodes(nodes), 1)

    def test_the_default_sizes(self) -> None:
        assert HierarchicalNodeParser().chunk_sizes == [2048, 512, 128]
        assert HierarchicalNodeParser.from_defaults().node_parser_ids == [
            "chunk_size_2048",
            "chunk_size_512",
            "chunk_size_128",
        ]

    async def test_parsers_of_the_program(self) -> None:
        parsers = {"large": SentenceSplitter(40, 0), "small": SentenceSplitter(7, 0)}
        parser = HierarchicalNodeParser.from_defaults(node_parser_ids=["large", "small"], node_parser_map=parsers)
        nodes = await parser.aget_nodes_from_documents([Document(text=TEXT)])
        assert len(get_leaf_nodes(nodes)) == 10
        with pytest.raises(ValueError, match="Must specify node_parser_map if using node_parser_ids"):
            HierarchicalNodeParser.from_defaults(node_parser_ids=["large"])
        with pytest.raises(ValueError, match=r"Cannot specify both node_parser_ids and chunk_sizes\."):
            HierarchicalNodeParser.from_defaults([9], node_parser_ids=["large"], node_parser_map=parsers)

    def test_metadata_reach_all_sizes(self) -> None:
        parser = HierarchicalNodeParser.from_defaults(chunk_sizes=[40, 20])
        nodes = parser([Document(text=TEXT, metadata={"page": 3})])
        assert {node.metadata["page"] for node in nodes} == {3}


class Gives(BaseRetriever):
    """Gives nodes with falling scores."""

    def __init__(self, nodes: list[BaseNode]) -> None:
        super().__init__()
        self.nodes = nodes

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=node, score=1.0 - at / 8) for at, node in enumerate(self.nodes)]


class TestAutoMergingRetriever:
    def merged(self, nodes: list[BaseNode], chosen: list[BaseNode], threshold: float = 0.5) -> list[NodeWithScore]:
        storage = StorageContext.from_defaults()
        storage.docstore.add_documents(nodes)
        return AutoMergingRetriever(Gives(chosen), storage, simple_ratio_thresh=threshold).retrieve("q")

    def test_children_become_their_parent_with_the_mean_of_their_scores(self) -> None:
        nodes = parsed()
        [parent, *_] = get_deeper_nodes(nodes, 1)
        children = get_child_nodes([parent], nodes)
        [found] = self.merged(nodes, children)
        assert found.node.id_ == parent.id_
        assert found.score == sum(1.0 - at / 8 for at in range(len(children))) / len(children)

    def test_half_of_the_children_are_not_more_than_half(self) -> None:
        nodes = parsed()
        [parent, *_] = get_deeper_nodes(nodes, 1)
        children = get_child_nodes([parent], nodes)
        assert len(children) == 2
        assert [one.node.id_ for one in self.merged(nodes, children[:1])] == [children[0].id_]
        assert [one.node.id_ for one in self.merged(nodes, children[:1], 0.4)] == [parent.id_]

    def test_merging_goes_on_up_to_the_root(self) -> None:
        nodes = parsed()
        found = self.merged(nodes, get_leaf_nodes(nodes))
        assert {one.node.id_ for one in found} == {one.id_ for one in get_root_nodes(nodes)}

    def test_a_gap_of_one_node_is_filled(self) -> None:
        splitter = SentenceSplitter(7, 0)
        nodes = splitter.get_nodes_from_documents([Document(text=TEXT)])
        found = self.merged(nodes, [nodes[2], nodes[4], nodes[8]])
        assert [one.node.id_ for one in found] == [nodes[at].id_ for at in (2, 3, 4, 8)]
        assert found[1].score == (1.0 + 0.875) / 2

    def test_it_works_over_an_index_of_leaves(self) -> None:
        nodes, storage = parsed(), StorageContext.from_defaults()
        storage.docstore.add_documents(nodes)
        index = VectorStoreIndex(get_leaf_nodes(nodes), storage_context=storage)
        found = AutoMergingRetriever(index.as_retriever(similarity_top_k=1), storage).retrieve("seven")
        assert [one.node.get_content() for one in found] == ["Sentence seven of this text."]

    def test_a_parent_that_is_not_stored_is_an_error_that_says_the_way(self) -> None:
        nodes = parsed()
        with pytest.raises(ValueError, match=r"add all nodes with docstore.add_documents\(nodes\)"):
            self.merged(get_leaf_nodes(nodes), get_leaf_nodes(nodes))


class TestSemanticSplitterNodeParser:
    def test_the_cut_is_where_neighbours_differ_most(self) -> None:
        text = "aaa aa a. aa aaa a. a aa. zzz zz z. zz z zz. z zz zzz."
        parser = SemanticSplitterNodeParser(embed_model=Letters(), breakpoint_percentile_threshold=80)
        nodes = parser.get_nodes_from_documents([Document(text=text, id_="d")])
        assert [node.get_content() for node in nodes] == ["aaa aa a. aa aaa a. a aa. ", "zzz zz z. zz z zz. z zz zzz."]
        assert {node.ref_doc_id for node in nodes} == {"d"}
        assert NodeRelationship.NEXT in nodes[0].relationships

    async def test_it_works_asynchronously_and_the_model_sees_sentences_with_their_neighbours(self) -> None:
        seen: list[str] = []

        class Watching(Letters):
            async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
                seen.extend(texts)
                return [self._get_query_embedding(text) for text in texts]

        parser = SemanticSplitterNodeParser(embed_model=Watching(), buffer_size=1)
        nodes = await parser.acall([Document(text="One. Two. Three.")])
        assert seen == ["One. Two. ", "One. Two. Three.", "Two. Three."]
        assert "".join(node.get_content() for node in nodes) == "One. Two. Three."

    @pytest.mark.parametrize(("text", "count"), [("", 0), ("  \n", 0), ("One sentence.", 1)])
    def test_an_empty_document_gives_no_node(self, text: str, count: int) -> None:
        parser = SemanticSplitterNodeParser.from_defaults(Letters())
        assert len(parser.get_nodes_from_documents([Document(text=text)])) == count

    def test_the_model_is_required(self) -> None:
        with pytest.raises(ValueError, match="embed_model"):
            SemanticSplitterNodeParser()  # type: ignore[call-arg]
