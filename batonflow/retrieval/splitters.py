"""Parsers that split documents into nodes: by sentences, by tokens, and into windows of sentences."""

import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Self

from pydantic import Field

from batonflow.instrumentation.logs import logger_named
from batonflow.llms import Settings
from batonflow.nodes import BaseNode, MetadataMode, Node, NodeRelationship, TextNode, TransformComponent
from batonflow.nodes.schema import document_of
from batonflow.retrieval.words import get_tokenizer
from batonflow.threads import in_thread

__all__ = [
    "MetadataAwareTextSplitter",
    "NodeParser",
    "SentenceSplitter",
    "SentenceWindowNodeParser",
    "SimpleNodeParser",
    "TextSplitter",
    "TokenTextSplitter",
    "split_sentences",
]

logger = logger_named("batonflow.retrieval")

_FEW_TOKENS = 50
_SECONDARY = "[^,.;。？！]+[,.;。？！]?|[,.;。？！]"  # noqa: RUF001 - signs of Chinese texts
# The end of a sentence: a sign with closing quotes before a blank, or a sign of Chinese and Japanese.
_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+[”’」』）]*")  # noqa: RUF001 - signs of Chinese texts
_NO_END = re.compile(r"(?:\b(?:[A-Z]|[Mm]rs?|[Dd]r|[Pp]rof|[Ss]t|vs|etc|e\.g|i\.e|cf|[Nn]o|[Ff]ig|pp?|approx)\.)$")

Split = Callable[[str], list[str]]


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences; together they are the text.

    Example:
        >>> split_sentences("Dr. Ann came. It rained.")
        ['Dr. Ann came. ', 'It rained.']
    """
    found: list[str] = []
    begin = 0
    for end in _END.finditer(text):
        if _NO_END.search(text, begin, end.end()) and text[end.end() : end.end() + 1].isspace():
            continue
        after = end.end()
        while after < len(text) and text[after].isspace():
            after += 1
        found.append(text[begin:after])
        begin = after
    return [*found, text[begin:]] if begin < len(text) else found


class NodeParser(TransformComponent):
    """The base class of parsers of documents. Subclasses write ``_parse_nodes``.

    Args:
        include_metadata: Whether nodes get the metadata of their documents.
        include_prev_next_rel: Whether neighbours are related.
        id_func: Returns the id of a node, from its number and its document.
    """

    include_metadata: bool = True
    include_prev_next_rel: bool = True
    id_func: Any = Field(default=None, exclude=True)

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any) -> list[BaseNode]:
        raise NotImplementedError(f"{type(self).__name__} has no _parse_nodes")

    async def _aparse_nodes(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        return await in_thread(lambda: self._parse_nodes(nodes, show_progress, **kwargs))

    def get_nodes_from_documents(
        self, documents: Sequence[Any], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        """Return the nodes of documents."""
        given = {one.id_: one for one in map(document_of, documents)}
        return self._related(self._parse_nodes(list(given.values()), show_progress, **kwargs), given)

    async def aget_nodes_from_documents(
        self, documents: Sequence[Any], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        """Return the nodes of documents."""
        given = {one.id_: one for one in map(document_of, documents)}
        return self._related(await self._aparse_nodes(list(given.values()), show_progress, **kwargs), given)

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Return the nodes of documents."""
        return self.get_nodes_from_documents(nodes, **kwargs)

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Return the nodes of documents."""
        return await self.aget_nodes_from_documents(nodes, **kwargs)

    def _related(self, nodes: list[BaseNode], parents: dict[str, BaseNode]) -> list[BaseNode]:
        """Add places in documents, metadata, and relationships to new nodes."""
        places: dict[str, int] = {}
        for node in nodes:
            parent = parents.get(node.ref_doc_id or "")
            if parent is None:
                continue
            if isinstance(node, TextNode):
                text = node.get_content()
                begin = parent.get_content().find(text, places.get(parent.id_, 0))
                if begin >= 0:
                    node.start_char_idx, node.end_char_idx = begin, begin + len(text)
                    places[parent.id_] = begin + 1
            if self.include_metadata:
                node.metadata = {**parent.metadata, **node.metadata}
            if parent.source_node is not None:
                node.relationships = {**node.relationships, NodeRelationship.SOURCE: parent.source_node}
        if self.include_prev_next_rel:
            _relate_neighbours(nodes)
        return nodes

    def _nodes_of(self, texts: Iterable[str], parent: BaseNode) -> list[BaseNode]:
        """Return a node for each text, with the settings of a document."""
        source = {NodeRelationship.SOURCE: parent.as_related_node_info()}
        fields: dict[str, Any] = {
            name: getattr(parent, name)
            for name in (
                "embedding",
                "excluded_embed_metadata_keys",
                "excluded_llm_metadata_keys",
                "metadata_separator",
                "metadata_template",
            )
        }
        if isinstance(parent, Node | TextNode):
            fields["text_template"] = parent.text_template
        make_id: Callable[[int, BaseNode], str] = self.id_func or _new_id
        return [
            TextNode(text=text, id_=make_id(number, parent), relationships=source, **fields)
            for number, text in enumerate(texts)
        ]


def _new_id(_number: int, _document: BaseNode) -> str:
    return str(uuid.uuid4())


def _relate_neighbours(nodes: Sequence[BaseNode]) -> None:
    for one, other in pairwise(nodes):
        if one.ref_doc_id is not None and one.ref_doc_id == other.ref_doc_id:
            one.relationships = {**one.relationships, NodeRelationship.NEXT: other.as_related_node_info()}
            other.relationships = {**other.relationships, NodeRelationship.PREVIOUS: one.as_related_node_info()}


class TextSplitter(NodeParser):
    """The base class of parsers that split texts. Subclasses write ``split_text``; an object may get another one."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in {"split_text", "split_text_metadata_aware"}:
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def split_text(self, text: str) -> list[str]:
        """Split a text."""
        raise NotImplementedError(f"{type(self).__name__} has no split_text")

    def split_texts(self, texts: list[str]) -> list[str]:
        """Split several texts."""
        return [piece for text in texts for piece in self.split_text(text)]

    def _pieces_of(self, node: BaseNode) -> list[str]:
        return self.split_text(node.get_content())

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **_: Any) -> list[BaseNode]:
        del show_progress  # a text is split in no time
        return [made for node in nodes for made in self._nodes_of(self._pieces_of(node), node)]


class MetadataAwareTextSplitter(TextSplitter):
    """The base class of parsers that leave room for the metadata in each piece.

    Subclasses write ``split_text_metadata_aware``, too.
    """

    def split_text_metadata_aware(self, text: str, metadata_str: str) -> list[str]:
        """Split a text so that each piece and the metadata fit into a chunk."""
        raise NotImplementedError(f"{type(self).__name__} has no split_text_metadata_aware")

    def _pieces_of(self, node: BaseNode) -> list[str]:
        if not self.include_metadata:
            return self.split_text(node.get_content())
        shown = [node.get_metadata_str(mode) for mode in (MetadataMode.EMBED, MetadataMode.LLM)]
        return self.split_text_metadata_aware(node.get_content(), max(shown, key=len))


class TokenTextSplitter(MetadataAwareTextSplitter):
    """Splits at separators, into pieces of a number of tokens.

    Args:
        chunk_size: The largest number of tokens of a piece.
        chunk_overlap: The largest number of tokens that a piece repeats of the one before.
        separator: The text at which is split first.
        backup_separators: Texts at which is split next.
        keep_whitespaces: Whether pieces keep blanks at their ends.
        tokenizer: A function from text to tokens; by default that of ``Settings``.

    Raises:
        ValueError: The overlap is larger than the size, or the metadata do not fit.

    Example:
        >>> TokenTextSplitter(chunk_size=100, chunk_overlap=0).split_text(text)
    """

    _class_name: ClassVar[str] = "TokenTextSplitter"
    chunk_size: int = Field(default=1024, gt=0)
    chunk_overlap: int = Field(default=20, ge=0)
    separator: str = " "
    backup_separators: list[str] = Field(default_factory=lambda: ["\n"])
    keep_whitespaces: bool = False
    tokenizer: Any = Field(default=None, exclude=True)

    def __init__(self, chunk_size: int | None = None, chunk_overlap: int | None = None, **data: Any) -> None:
        defaults: dict[str, Any] = {"chunk_size": chunk_size, "chunk_overlap": chunk_overlap}
        super().__init__(**{name: value for name, value in defaults.items() if value is not None}, **data)
        if self.chunk_overlap > self.chunk_size:
            raise ValueError(
                f"Got a larger chunk overlap ({self.chunk_overlap}) than chunk size ({self.chunk_size}), "
                "should be smaller."
            )

    @classmethod
    def from_defaults(cls, **kwargs: Any) -> Self:
        """Return a splitter; the arguments are those of the class."""
        return cls(**kwargs)

    def split_text(self, text: str) -> list[str]:
        """Split a text into pieces of at most ``chunk_size`` tokens."""
        return self._split(text, self.chunk_size)

    def split_text_metadata_aware(self, text: str, metadata_str: str) -> list[str]:
        """Split a text so that each piece and the metadata fit into a chunk.

        Raises:
            ValueError: The metadata are as long as a chunk.
        """
        used = self._count(metadata_str)
        left = self.chunk_size - used
        if metadata_str and left <= 0:
            raise ValueError(
                f"Metadata length ({used}) is longer than chunk size ({self.chunk_size}). Consider increasing the "
                "chunk size or decreasing the size of your metadata to avoid this."
            )
        if metadata_str and left < _FEW_TOKENS:
            logger.warning("the metadata take %d of the %d tokens of a chunk", used, self.chunk_size)
        return self._split(text, left)

    def _count(self, text: str) -> int:
        return len((self.tokenizer or get_tokenizer())(text))

    def _ways(self) -> list[Split]:
        """Return the ways to split a text, from the coarsest to the finest."""
        return [*(_at(one) for one in (self.separator, *self.backup_separators)), list]

    def _split(self, text: str, size: int) -> list[str]:
        if not text.strip():
            return [] if not text else [text] if self.keep_whitespaces else []
        pieces = self._packed(self._pieces(text, size, self._ways()), size)
        return (
            [one for one in pieces if one] if self.keep_whitespaces else [one.strip() for one in pieces if one.strip()]
        )

    def _pieces(self, text: str, size: int, ways: Sequence[Split]) -> list[tuple[str, int]]:
        """Return pieces that fit, with their tokens."""
        count = self._count(text)
        if count <= size:
            return [(text, count)]
        for at, split in enumerate(ways):
            parts = split(text)
            if len(parts) > 1:
                # A part that is still too large is split at the same place in the order, or finer.
                return [piece for part in parts for piece in self._pieces(part, size, ways[at:])]
        raise ValueError(f"Single token exceeded chunk size: {text!r} has {count} tokens, and {size} fit")

    def _packed(self, pieces: Sequence[tuple[str, int]], size: int) -> list[str]:
        """Put pieces together while they fit, and repeat whole pieces of the chunk before."""
        chunks: list[str] = []
        chunk: list[tuple[str, int]] = []
        tokens, news = 0, 0
        for text, count in pieces:
            if news and tokens + count > size:
                chunks.append("".join(one for one, _ in chunk))
                chunk, tokens = self._overlap(chunk, size - count)
                news = 0
            chunk.append((text, count))
            tokens += count
            news += 1
        return [*chunks, "".join(one for one, _ in chunk)] if news else chunks

    def _overlap(self, chunk: Sequence[tuple[str, int]], room: int) -> tuple[list[tuple[str, int]], int]:
        kept: list[tuple[str, int]] = []
        tokens = 0
        for text, count in reversed(chunk):
            if tokens + count > min(self.chunk_overlap, room):
                break
            kept.insert(0, (text, count))
            tokens += count
        return kept, tokens


class SentenceSplitter(TokenTextSplitter):
    """Splits at paragraphs and sentences, into pieces of a number of tokens.

    Args:
        chunk_size: The largest number of tokens of a piece.
        chunk_overlap: The largest number of tokens that a piece repeats of the one before.
        separator: The text at which is split between words.
        paragraph_separator: The text between paragraphs.
        secondary_chunking_regex: Finds parts of sentences.
        chunking_tokenizer_fn: Splits a text into sentences.
        tokenizer: A function from text to tokens; by default that of ``Settings``.

    Example:
        >>> SentenceSplitter(chunk_size=512).get_nodes_from_documents([Document(text=text)])
    """

    _class_name: ClassVar[str] = "SentenceSplitter"
    paragraph_separator: str = "\n\n\n"
    secondary_chunking_regex: str | None = _SECONDARY
    chunking_tokenizer_fn: Any = Field(default=None, exclude=True)

    def __init__(self, chunk_size: int | None = None, chunk_overlap: int | None = None, **data: Any) -> None:
        super().__init__(
            1024 if chunk_size is None else chunk_size, 200 if chunk_overlap is None else chunk_overlap, **data
        )

    def _ways(self) -> list[Split]:
        sentences: Split = self.chunking_tokenizer_fn or split_sentences
        ways = [_at(self.paragraph_separator), sentences]
        if self.secondary_chunking_regex:
            ways.append(re.compile(self.secondary_chunking_regex).findall)
        return [*ways, _at(self.separator), list]


SimpleNodeParser = SentenceSplitter


class SentenceWindowNodeParser(NodeParser):
    """Makes a node of each sentence, which keeps the sentences around it in its metadata.

    Args:
        window_size: The number of sentences before and after.
        window_metadata_key: The key of the sentences around.
        original_text_metadata_key: The key of the sentence.
        sentence_splitter: Splits a text into sentences.

    Example:
        >>> SentenceWindowNodeParser(window_size=3).get_nodes_from_documents(documents)
    """

    _class_name: ClassVar[str] = "SentenceWindowNodeParser"
    sentence_splitter: Any = Field(default=split_sentences, exclude=True)
    window_size: int = Field(default=3, gt=0)
    window_metadata_key: str = "window"
    original_text_metadata_key: str = "original_text"

    @classmethod
    def from_defaults(cls, **kwargs: Any) -> Self:
        """Return a parser; the arguments are those of the class."""
        return cls(**kwargs)

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **_: Any) -> list[BaseNode]:
        del show_progress  # a text is split in no time
        hidden = [self.window_metadata_key, self.original_text_metadata_key]
        found: list[BaseNode] = []
        for parent in nodes:
            sentences = self.sentence_splitter(parent.get_content())
            for number, node in enumerate(self._nodes_of(sentences, parent)):
                around = sentences[max(0, number - self.window_size) : number + self.window_size + 1]
                window = " ".join(one.strip() for one in around)
                node.metadata = dict(zip(hidden, (window, sentences[number]), strict=True))
                node.excluded_embed_metadata_keys = [*node.excluded_embed_metadata_keys, *hidden]
                node.excluded_llm_metadata_keys = [*node.excluded_llm_metadata_keys, *hidden]
                found.append(node)
        return found


def _at(separator: str) -> Split:
    """Return a function that splits behind a separator; the pieces are together the text."""

    def split(text: str) -> list[str]:
        if not separator:
            return [text]
        first, *others = text.split(separator)
        return [one for one in (first, *(separator + other for other in others)) if one]

    return split


type(Settings).default_parser = SentenceSplitter
