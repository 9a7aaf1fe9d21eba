"""Parsers of documents: pieces that fit, their places, metadata and neighbours."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonflow.llms.settings import LLMSettings
from batonflow.nodes import Document, NodeRelationship, TextNode
from batonflow.retrieval import (
    MarkdownNodeParser,
    NodeParser,
    SentenceSplitter,
    SentenceWindowNodeParser,
    SimpleNodeParser,
    TokenTextSplitter,
)
from batonflow.retrieval.splitters import split_sentences
from batonflow.retrieval.words import get_tokenizer


def by_words(text: str) -> list[str]:
    return text.split()


def texts(nodes: Any) -> list[str]:
    return [node.get_content() for node in nodes]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One. ", "Two! ", "Three?"]),
        ('He said "Go." Then he went.', ['He said "Go." ', "Then he went."]),
        ("Dr. Ann and J. Doe met at No. 5. They ate.", ["Dr. Ann and J. Doe met at No. 5. ", "They ate."]),
        ("月が出た。海が動く！", ["月が出た。", "海が動く！"]),  # noqa: RUF001 - signs of Japanese
        ("Version 1.5 is out", ["Version 1.5 is out"]),
        ("", []),
    ],
)
def test_sentences_end_at_signs_and_not_at_abbreviations(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@given(st.text())
def test_sentences_are_together_the_text(text: str) -> None:
    assert "".join(split_sentences(text)) == text


TEXTS = st.lists(st.sampled_from(["moon", "tide.", "sea,", "salt!", "\n\n\n", "bread;", "yeast"]), max_size=60).map(
    " ".join
)


@settings(deadline=None)
@given(TEXTS, st.integers(1, 12), st.integers(0, 12), st.sampled_from([SentenceSplitter, TokenTextSplitter]))
def test_no_piece_is_too_large_and_no_word_is_lost(text: str, size: int, overlap: int, kind: Any) -> None:
    splitter = kind(chunk_size=size, chunk_overlap=min(size, overlap), tokenizer=by_words)
    pieces = splitter.split_text(text)
    assert splitter.split_texts([text, text]) == [*pieces, *pieces]
    assert all(0 < len(by_words(piece)) <= size for piece in pieces)
    words, at = by_words(text), 0
    for piece in pieces:  # a piece begins in the text so far, or at its end
        found = by_words(piece)
        begin = next(back for back in range(at, -1, -1) if words[back : back + len(found)] == found)
        assert at - begin <= overlap
        at = max(at, begin + len(found))
    assert at == len(words)


@settings(deadline=None)
@given(st.text(max_size=300), st.integers(2, 40))
def test_any_text_is_split_with_the_default_tokenizer(text: str, size: int) -> None:
    pieces = SentenceSplitter(chunk_size=size, chunk_overlap=0).split_text(text)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(len(get_tokenizer()(piece)) <= size for piece in pieces)


def test_an_overlap_is_whole_pieces_of_the_chunk_before() -> None:
    splitter = SentenceSplitter(chunk_size=6, chunk_overlap=3, tokenizer=by_words)
    assert splitter.split_text("One two three. Four five six. Seven eight nine.") == [
        "One two three. Four five six.",
        "Four five six. Seven eight nine.",
    ]


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"larger chunk overlap \(5\) than chunk size \(4\)"):
        SentenceSplitter(chunk_size=4, chunk_overlap=5)
    with pytest.raises(ValueError, match="Single token exceeded chunk size"):
        TokenTextSplitter(chunk_size=1, chunk_overlap=0, tokenizer=lambda text: [text] * 2).split_text("a")


def test_defaults_are_those_that_programs_know() -> None:
    assert SimpleNodeParser is SentenceSplitter
    sentences, tokens = SentenceSplitter.from_defaults(), TokenTextSplitter()
    assert (sentences.chunk_size, sentences.chunk_overlap, sentences.paragraph_separator) == (1024, 200, "\n\n\n")
    assert (tokens.chunk_size, tokens.chunk_overlap, tokens.backup_separators) == (1024, 20, ["\n"])


def test_blanks_are_kept_on_request() -> None:
    assert TokenTextSplitter(chunk_size=1, chunk_overlap=0, keep_whitespaces=True, tokenizer=by_words).split_text(
        "a b"
    ) == ["a", " b"]


class TestNodes:
    def parsed(self, document: Document, **options: Any) -> list[Any]:
        options = {"chunk_size": 3, "chunk_overlap": 0, "tokenizer": by_words, "include_metadata": False, **options}
        return SentenceSplitter(**options).get_nodes_from_documents([document])

    def test_nodes_have_their_places_neighbours_and_settings(self) -> None:
        document = Document(text="One two three. One two three.", id_="d", excluded_llm_metadata_keys=["n"])
        one, other = self.parsed(document)
        assert [(node.start_char_idx, node.end_char_idx) for node in (one, other)] == [(0, 14), (15, 29)]
        assert (one.next_node.node_id, other.prev_node.node_id) == (other.id_, one.id_)
        assert (one.prev_node, other.next_node, one.ref_doc_id) == (None, None, "d")
        assert one.excluded_llm_metadata_keys == ["n"]
        alone, _ = self.parsed(document, include_prev_next_rel=False)
        assert alone.next_node is None

    def test_metadata_are_below_those_of_the_node_and_may_be_left_out(self) -> None:
        document = Document(text="One two three.", metadata={"n": 1})
        [node] = self.parsed(document, chunk_size=10, include_metadata=True)
        assert node.metadata == {"n": 1}
        [node] = self.parsed(document)
        assert node.metadata == {}

    def test_the_source_of_a_node_is_that_of_its_document(self) -> None:
        source = TextNode(text="", id_="whole").as_related_node_info()
        document = Document(text="One.", relationships={NodeRelationship.SOURCE: source})
        [node] = self.parsed(document)
        assert node.ref_doc_id == "whole"

    def test_ids_are_made_by_a_function(self) -> None:
        nodes = self.parsed(
            Document(text="One two three. Four five six.", id_="d"), id_func=lambda n, doc: f"{doc.id_}-{n}"
        )
        assert [node.id_ for node in nodes] == ["d-0", "d-1"]

    async def test_a_parser_is_a_transformation_and_has_an_asynchronous_twin(self) -> None:
        splitter, document = SentenceSplitter(), Document(text="One.")
        assert texts(splitter([document])) == texts(await splitter.acall([document])) == ["One."]
        assert texts(await splitter.aget_nodes_from_documents([document])) == ["One."]

    def test_metadata_take_room_in_each_chunk(self, caplog: pytest.LogCaptureFixture) -> None:
        document = Document(text="one two three four", metadata={"n": 1})
        nodes = self.parsed(document, chunk_size=4, include_metadata=True)
        assert texts(nodes) == ["one two", "three four"]
        assert "the metadata take 2 of the 4 tokens" in caplog.text
        with pytest.raises(ValueError, match=r"Metadata length \(2\) is longer than chunk size \(2\)"):
            self.parsed(document, chunk_size=2, include_metadata=True)

    def test_the_functions_that_split_may_be_replaced(self) -> None:
        splitter = SentenceSplitter(include_metadata=False)
        splitter.split_text = lambda text: text.split("|")  # type: ignore[method-assign]
        assert texts(splitter.get_nodes_from_documents([Document(text="a|b")])) == ["a", "b"]

    def test_a_parser_of_a_program_writes_one_method(self) -> None:
        class Lines(NodeParser):
            def _parse_nodes(self, nodes: Any, show_progress: bool = False, **_: Any) -> list[Any]:
                return [TextNode(text=line) for node in nodes for line in node.get_content().split("\n")]

        assert texts(Lines().get_nodes_from_documents([Document(text="a\nb")])) == ["a", "b"]


def test_windows_keep_the_sentences_around() -> None:
    parser = SentenceWindowNodeParser(window_size=1)
    nodes = parser.get_nodes_from_documents([Document(text="One. Two. Three.", metadata={"n": 1})])
    assert [node.metadata["window"] for node in nodes] == ["One. Two.", "One. Two. Three.", "Two. Three."]
    assert nodes[1].metadata["original_text"] == "Two. "
    assert nodes[1].get_content("llm") == "n: 1\n\nTwo."


MARKDOWN = """Before.

# A

Text of A.

## B

```
# not a heading
```

# C
"""


def test_markdown_is_split_at_its_headings() -> None:
    nodes = MarkdownNodeParser().get_nodes_from_documents([Document(text=MARKDOWN)])
    assert [(node.metadata["header_path"], node.get_content().split("\n")[0]) for node in nodes] == [
        ("/", "Before."),
        ("/", "# A"),
        ("/A/", "## B"),
        ("/", "# C"),
    ]
    [deep] = [
        node
        for node in MarkdownNodeParser(header_path_separator=" > ").get_nodes_from_documents([Document(text=MARKDOWN)])
        if "## B" in node.get_content()
    ]
    assert deep.metadata["header_path"] == " > A > "
    assert "# not a heading" in deep.get_content()


def test_the_default_parser_of_a_program_has_the_sizes_of_its_settings() -> None:
    own = LLMSettings()
    own.chunk_size = 40
    parser = own.node_parser
    assert isinstance(parser, SentenceSplitter)
    assert (parser.chunk_size, parser.chunk_overlap) == (40, 8)
    assert [type(one) for one in own.transformations or ()] == [SentenceSplitter]
