"""Retrieval: documents to answers, as workflows.

All public names are here, also those of ``batonflow.nodes``. A module is loaded when one of its names is used.
It needs ``pip install 'batonflow[retrieval]'``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batonflow.lazy import how_to_install

if TYPE_CHECKING:
    # fmt: off
    # isort: off
    from batonflow.llms import Settings
    from batonflow.llms.predict_and_call import AgentChatResponse
    from batonflow.llms.prompts import BasePromptTemplate, ChatPromptTemplate, PromptTemplate, PromptType
    from batonflow.nodes import (
        AsyncStreamingResponse, BaseComponent, BaseNode, BaseNodePostprocessor, BaseQueryEngine, BaseRetriever,
        CustomQueryEngine, Document, ImageDocument, ImageNode, IndexNode, MediaResource, MetadataMode, Node,
        NodeRelationship, NodeWithScore, ObjectType, PydanticResponse, QueryBundle, RelatedNodeInfo, Response,
        StreamingResponse, TextNode, TransformComponent,
    )
    from batonflow.retrieval.auto import MetadataInfo, VectorIndexAutoRetriever, VectorStoreInfo, VectorStoreQuerySpec
    from batonflow.retrieval.chat import (
        BaseChatEngine, ChatMode, CondensePlusContextChatEngine, CondenseQuestionChatEngine, ContextChatEngine,
        SimpleChatEngine, StreamedChatAnswer, StreamingAgentChatResponse,
    )
    from batonflow.retrieval.chat_runs import ChatAnswer
    from batonflow.retrieval.citation_marks import Citation
    from batonflow.retrieval.citations import CitationQueryEngine
    from batonflow.retrieval.citing import CitedRetrieverTool, check_citations, passages_of
    from batonflow.retrieval.embeddings import (
        BaseEmbedding, CallableEmbedding, MockEmbedding, OpenAIEmbedding, SimilarityMode, WordsEmbedding,
        resolve_embed_model,
    )
    from batonflow.retrieval.file_readers import (
        BaseReader, CSVReader, DocxReader, HTMLReader, IPYNBReader, JSONReader, PDFReader, PptxReader, ReaderError,
        TextReader,
    )
    from batonflow.retrieval.filters import (
        ExactMatchFilter, FilterCondition, FilterOperator, MetadataFilter, MetadataFilters,
    )
    from batonflow.retrieval.fusion import QueryFusionRetriever
    from batonflow.retrieval.hierarchy import (
        HierarchicalNodeParser, get_child_nodes, get_deeper_nodes, get_leaf_nodes, get_root_nodes,
    )
    from batonflow.retrieval.index import BaseIndex
    from batonflow.retrieval.indexes import (
        EmptyIndex, KeywordTableIndex, ListIndex, RAKEKeywordTableIndex, SimpleKeywordTableIndex, SummaryIndex,
        VectorStoreIndex,
    )
    from batonflow.retrieval.ingest_flow import IngestProgress, IngestResult, IngestWorkflow, SourceFailure, ingest
    from batonflow.retrieval.keywords import rake_keywords, simple_extract_keywords
    from batonflow.retrieval.kv_store import SimpleKVStore
    from batonflow.retrieval.loader_tools import LoadAndSearchToolSpec, OnDemandLoaderTool
    from batonflow.retrieval.loading import load_index_from_storage, load_indices_from_storage
    from batonflow.retrieval.markdown import MarkdownNodeParser
    from batonflow.retrieval.node_store import NodeStore, NodeStoreError
    from batonflow.retrieval.object_mappings import (
        BaseObjectNodeMapping, FnNodeMapping, SimpleObjectNodeMapping, SimpleQueryToolNodeMapping,
        SimpleToolNodeMapping,
    )
    from batonflow.retrieval.objects import ObjectIndex, ObjectRetriever
    from batonflow.retrieval.postprocessors import (
        AutoPrevNextNodePostprocessor, EmbeddingRecencyPostprocessor, FixedRecencyPostprocessor,
        KeywordNodePostprocessor, LongContextReorder, MetadataReplacementPostProcessor, PrevNextNodePostprocessor,
        SentenceEmbeddingOptimizer, SimilarityPostprocessor, TimeWeightedPostprocessor,
    )
    from batonflow.retrieval.prompt_helper import PromptHelper
    from batonflow.retrieval.query_engine import RetrieverQueryEngine, TransformQueryEngine
    from batonflow.retrieval.query_runs import AnswerDelta, Cited, Postprocessed, QueryPlanned, Retrieved
    from batonflow.retrieval.questions import (
        LLMQuestionGenerator, MultiStepQueryEngine, SubQuestion, SubQuestionQueryEngine,
    )
    from batonflow.retrieval.readers import SimpleDirectoryReader
    from batonflow.retrieval.recursive import AutoMergingRetriever, RecursiveRetriever, TransformRetriever
    from batonflow.retrieval.rerank import LLMRerank, StructuredLLMRerank
    from batonflow.retrieval.retrievers import (
        BM25Retriever, KeywordTableGPTRetriever, KeywordTableRAKERetriever, KeywordTableSimpleRetriever,
        SummaryIndexEmbeddingRetriever, SummaryIndexLLMRetriever, SummaryIndexRetriever, VectorIndexRetriever,
        WordsRetriever,
    )
    from batonflow.retrieval.routing import RouterQueryEngine, RouterRetriever, ToolRetrieverRouterQueryEngine
    from batonflow.retrieval.selectors import (
        BaseSelector, EmbeddingSingleSelector, LLMMultiSelector, LLMSingleSelector, PydanticMultiSelector,
        PydanticSingleSelector, SelectorResult, SingleSelection,
    )
    from batonflow.retrieval.semantic import SemanticSplitterNodeParser
    from batonflow.retrieval.source_readers import CallableReader, SQLReader, StringIterableReader
    from batonflow.retrieval.splitters import (
        MetadataAwareTextSplitter, NodeParser, SentenceSplitter, SentenceWindowNodeParser, SimpleNodeParser,
        TextSplitter, TokenTextSplitter,
    )
    from batonflow.retrieval.storage import SimpleDocumentStore, SimpleIndexStore, SimpleVectorStore, StorageContext
    from batonflow.retrieval.summaries import (
        DocumentSummaryIndex, DocumentSummaryIndexEmbeddingRetriever, DocumentSummaryIndexLLMRetriever,
    )
    from batonflow.retrieval.synthesizers import (
        Accumulate, BaseSynthesizer, CompactAndAccumulate, CompactAndRefine, ContextOnly, Generation, NoText, Refine,
        ResponseMode, SimpleSummarize, StructuredRefineResponse, TreeSummarize, get_response_synthesizer,
    )
    from batonflow.retrieval.transforms import (
        BaseQueryTransform, DecomposeQueryTransform, HyDEQueryTransform, IdentityQueryTransform,
        StepDecomposeQueryTransform,
    )
    from batonflow.retrieval.tree import (
        TreeAllLeafRetriever, TreeIndex, TreeRootRetriever, TreeSelectLeafEmbeddingRetriever, TreeSelectLeafRetriever,
    )
    from batonflow.retrieval.vectors import (
        BasePydanticVectorStore, VectorStoreQuery, VectorStoreQueryMode, VectorStoreQueryResult,
        metadata_dict_to_node, node_to_metadata_dict,
    )
    from batonflow.retrieval.words import get_tokenizer, set_global_tokenizer
    # isort: on
    # fmt: on

__all__ = [
    "Accumulate", "AgentChatResponse", "AnswerDelta", "AsyncStreamingResponse", "AutoMergingRetriever",
    "AutoPrevNextNodePostprocessor", "BM25Retriever", "BaseChatEngine", "BaseComponent", "BaseEmbedding",
    "BaseIndex", "BaseNode", "BaseNodePostprocessor", "BaseObjectNodeMapping", "BasePromptTemplate",
    "BasePydanticVectorStore", "BaseQueryEngine", "BaseQueryTransform", "BaseReader", "BaseRetriever",
    "BaseSelector", "BaseSynthesizer", "CSVReader", "CallableEmbedding", "CallableReader", "ChatAnswer", "ChatMode",
    "ChatPromptTemplate", "Citation", "CitationQueryEngine", "Cited", "CitedRetrieverTool", "CompactAndAccumulate",
    "CompactAndRefine", "CondensePlusContextChatEngine", "CondenseQuestionChatEngine", "ContextChatEngine",
    "ContextOnly", "CustomQueryEngine", "DecomposeQueryTransform", "Document", "DocumentSummaryIndex",
    "DocumentSummaryIndexEmbeddingRetriever", "DocumentSummaryIndexLLMRetriever", "DocxReader",
    "EmbeddingRecencyPostprocessor", "EmbeddingSingleSelector", "EmptyIndex", "ExactMatchFilter", "FilterCondition",
    "FilterOperator", "FixedRecencyPostprocessor", "FnNodeMapping", "Generation", "HTMLReader",
    "HierarchicalNodeParser", "HyDEQueryTransform", "IPYNBReader", "IdentityQueryTransform", "ImageDocument",
    "ImageNode", "IndexNode", "IngestProgress", "IngestResult", "IngestWorkflow", "JSONReader",
    "KeywordNodePostprocessor", "KeywordTableGPTRetriever", "KeywordTableIndex", "KeywordTableRAKERetriever",
    "KeywordTableSimpleRetriever", "LLMMultiSelector", "LLMQuestionGenerator", "LLMRerank", "LLMSingleSelector",
    "ListIndex", "LoadAndSearchToolSpec", "LongContextReorder", "MarkdownNodeParser", "MediaResource",
    "MetadataAwareTextSplitter", "MetadataFilter", "MetadataFilters", "MetadataInfo", "MetadataMode",
    "MetadataReplacementPostProcessor", "MockEmbedding", "MultiStepQueryEngine", "NoText", "Node", "NodeParser",
    "NodeRelationship", "NodeStore", "NodeStoreError", "NodeWithScore", "ObjectIndex", "ObjectRetriever",
    "ObjectType", "OnDemandLoaderTool", "OpenAIEmbedding", "PDFReader", "Postprocessed", "PptxReader",
    "PrevNextNodePostprocessor", "PromptHelper", "PromptTemplate", "PromptType", "PydanticMultiSelector",
    "PydanticResponse", "PydanticSingleSelector", "QueryBundle", "QueryFusionRetriever", "QueryPlanned",
    "RAKEKeywordTableIndex", "ReaderError", "RecursiveRetriever", "Refine", "RelatedNodeInfo", "Response",
    "ResponseMode", "Retrieved", "RetrieverQueryEngine", "RouterQueryEngine", "RouterRetriever", "SQLReader",
    "SelectorResult", "SemanticSplitterNodeParser", "SentenceEmbeddingOptimizer", "SentenceSplitter",
    "SentenceWindowNodeParser", "Settings", "SimilarityMode", "SimilarityPostprocessor", "SimpleChatEngine",
    "SimpleDirectoryReader", "SimpleDocumentStore", "SimpleIndexStore", "SimpleKVStore", "SimpleKeywordTableIndex",
    "SimpleNodeParser", "SimpleObjectNodeMapping", "SimpleQueryToolNodeMapping", "SimpleSummarize",
    "SimpleToolNodeMapping", "SimpleVectorStore", "SingleSelection", "SourceFailure", "StepDecomposeQueryTransform",
    "StorageContext", "StreamedChatAnswer", "StreamingAgentChatResponse", "StreamingResponse",
    "StringIterableReader", "StructuredLLMRerank", "StructuredRefineResponse", "SubQuestion",
    "SubQuestionQueryEngine", "SummaryIndex", "SummaryIndexEmbeddingRetriever", "SummaryIndexLLMRetriever",
    "SummaryIndexRetriever", "TextNode", "TextReader", "TextSplitter", "TimeWeightedPostprocessor",
    "TokenTextSplitter", "ToolRetrieverRouterQueryEngine", "TransformComponent", "TransformQueryEngine",
    "TransformRetriever", "TreeAllLeafRetriever", "TreeIndex", "TreeRootRetriever",
    "TreeSelectLeafEmbeddingRetriever", "TreeSelectLeafRetriever", "TreeSummarize", "VectorIndexAutoRetriever",
    "VectorIndexRetriever", "VectorStoreIndex", "VectorStoreInfo", "VectorStoreQuery", "VectorStoreQueryMode",
    "VectorStoreQueryResult", "VectorStoreQuerySpec", "WordsEmbedding", "WordsRetriever", "check_citations",
    "get_child_nodes", "get_deeper_nodes", "get_leaf_nodes", "get_response_synthesizer", "get_root_nodes",
    "get_tokenizer", "ingest", "load_index_from_storage", "load_indices_from_storage", "metadata_dict_to_node",
    "node_to_metadata_dict", "passages_of", "rake_keywords", "resolve_embed_model", "set_global_tokenizer",
    "simple_extract_keywords",
]  # fmt: skip

_HOMES = {
    name: module
    for module, names in {
        "llms.predict_and_call": ("AgentChatResponse"),
        "llms.prompts": ("BasePromptTemplate ChatPromptTemplate PromptTemplate PromptType"),
        "nodes": (
            "AsyncStreamingResponse BaseComponent BaseNode BaseNodePostprocessor BaseQueryEngine BaseRetriever "
            "CustomQueryEngine Document ImageDocument ImageNode IndexNode MediaResource MetadataMode Node "
            "NodeRelationship NodeWithScore ObjectType PydanticResponse QueryBundle RelatedNodeInfo Response "
            "StreamingResponse TextNode TransformComponent"
        ),
        "retrieval.auto": ("MetadataInfo VectorIndexAutoRetriever VectorStoreInfo VectorStoreQuerySpec"),
        "retrieval.chat": (
            "BaseChatEngine ChatMode CondensePlusContextChatEngine CondenseQuestionChatEngine ContextChatEngine "
            "SimpleChatEngine StreamedChatAnswer StreamingAgentChatResponse"
        ),
        "retrieval.chat_runs": ("ChatAnswer"),
        "retrieval.citation_marks": ("Citation"),
        "retrieval.citations": ("CitationQueryEngine"),
        "retrieval.citing": ("CitedRetrieverTool check_citations passages_of"),
        "retrieval.embeddings": (
            "BaseEmbedding CallableEmbedding MockEmbedding OpenAIEmbedding SimilarityMode WordsEmbedding "
            "resolve_embed_model"
        ),
        "retrieval.file_readers": (
            "BaseReader CSVReader DocxReader HTMLReader IPYNBReader JSONReader PDFReader PptxReader ReaderError "
            "TextReader"
        ),
        "retrieval.filters": ("ExactMatchFilter FilterCondition FilterOperator MetadataFilter MetadataFilters"),
        "retrieval.fusion": ("QueryFusionRetriever"),
        "retrieval.hierarchy": (
            "HierarchicalNodeParser get_child_nodes get_deeper_nodes get_leaf_nodes get_root_nodes"
        ),
        "retrieval.index": ("BaseIndex"),
        "retrieval.indexes": (
            "EmptyIndex KeywordTableIndex ListIndex RAKEKeywordTableIndex SimpleKeywordTableIndex SummaryIndex "
            "VectorStoreIndex"
        ),
        "retrieval.ingest_flow": ("IngestProgress IngestResult IngestWorkflow SourceFailure ingest"),
        "retrieval.keywords": ("rake_keywords simple_extract_keywords"),
        "retrieval.kv_store": ("SimpleKVStore"),
        "retrieval.loader_tools": ("LoadAndSearchToolSpec OnDemandLoaderTool"),
        "retrieval.loading": ("load_index_from_storage load_indices_from_storage"),
        "retrieval.markdown": ("MarkdownNodeParser"),
        "retrieval.node_store": ("NodeStore NodeStoreError"),
        "retrieval.object_mappings": (
            "BaseObjectNodeMapping FnNodeMapping SimpleObjectNodeMapping SimpleQueryToolNodeMapping "
            "SimpleToolNodeMapping"
        ),
        "retrieval.objects": ("ObjectIndex ObjectRetriever"),
        "retrieval.postprocessors": (
            "AutoPrevNextNodePostprocessor EmbeddingRecencyPostprocessor FixedRecencyPostprocessor "
            "KeywordNodePostprocessor LongContextReorder MetadataReplacementPostProcessor PrevNextNodePostprocessor "
            "SentenceEmbeddingOptimizer SimilarityPostprocessor TimeWeightedPostprocessor"
        ),
        "retrieval.prompt_helper": ("PromptHelper"),
        "retrieval.query_engine": ("RetrieverQueryEngine TransformQueryEngine"),
        "retrieval.query_runs": ("AnswerDelta Cited Postprocessed QueryPlanned Retrieved"),
        "retrieval.questions": ("LLMQuestionGenerator MultiStepQueryEngine SubQuestion SubQuestionQueryEngine"),
        "retrieval.readers": ("SimpleDirectoryReader"),
        "retrieval.recursive": ("AutoMergingRetriever RecursiveRetriever TransformRetriever"),
        "retrieval.rerank": ("LLMRerank StructuredLLMRerank"),
        "retrieval.retrievers": (
            "BM25Retriever KeywordTableGPTRetriever KeywordTableRAKERetriever KeywordTableSimpleRetriever "
            "SummaryIndexEmbeddingRetriever SummaryIndexLLMRetriever SummaryIndexRetriever VectorIndexRetriever "
            "WordsRetriever"
        ),
        "retrieval.routing": ("RouterQueryEngine RouterRetriever ToolRetrieverRouterQueryEngine"),
        "retrieval.selectors": (
            "BaseSelector EmbeddingSingleSelector LLMMultiSelector LLMSingleSelector PydanticMultiSelector "
            "PydanticSingleSelector SelectorResult SingleSelection"
        ),
        "retrieval.semantic": ("SemanticSplitterNodeParser"),
        "retrieval.source_readers": ("CallableReader SQLReader StringIterableReader"),
        "retrieval.splitters": (
            "MetadataAwareTextSplitter NodeParser SentenceSplitter SentenceWindowNodeParser SimpleNodeParser "
            "Settings TextSplitter TokenTextSplitter"
        ),
        "retrieval.storage": ("SimpleDocumentStore SimpleIndexStore SimpleVectorStore StorageContext"),
        "retrieval.summaries": (
            "DocumentSummaryIndex DocumentSummaryIndexEmbeddingRetriever DocumentSummaryIndexLLMRetriever"
        ),
        "retrieval.synthesizers": (
            "Accumulate BaseSynthesizer CompactAndAccumulate CompactAndRefine ContextOnly Generation NoText Refine "
            "ResponseMode SimpleSummarize StructuredRefineResponse TreeSummarize get_response_synthesizer"
        ),
        "retrieval.transforms": (
            "BaseQueryTransform DecomposeQueryTransform HyDEQueryTransform IdentityQueryTransform "
            "StepDecomposeQueryTransform"
        ),
        "retrieval.tree": (
            "TreeAllLeafRetriever TreeIndex TreeRootRetriever TreeSelectLeafEmbeddingRetriever TreeSelectLeafRetriever"
        ),
        "retrieval.vectors": (
            "BasePydanticVectorStore VectorStoreQuery VectorStoreQueryMode VectorStoreQueryResult "
            "metadata_dict_to_node node_to_metadata_dict"
        ),
        "retrieval.words": ("get_tokenizer set_global_tokenizer"),
    }.items()
    for name in names.split()
}

_NOT_OFFERED = {
    "KnowledgeGraphIndex": "graphs need a store of graphs",
    "PropertyGraphIndex": "graphs need a store of graphs",
    "ComposableGraph": "use an IndexNode whose object is an index, and ask its retriever",
    "ServiceContext": "set the model and the embedding model in Settings",
    "PandasQueryEngine": "use a CodeActAgent",
    "FLAREInstructQueryEngine": "use an agent with index.as_tool()",
    "NLSQLTableQueryEngine": "give an agent a tool over a read-only connection, with requires_approval",
    "RankGPTRerank": "use LLMRerank",
    "IngestionPipeline": "use ingest(), or the transformations of an index",
    "IngestionCache": "an embedding model has a cache, and ingest() leaves unchanged files alone",
    "DocstoreStrategy": "ingest() leaves unchanged documents alone, and replaces changed ones",
    "TitleExtractor": "write a TransformComponent that adds metadata",
    "KeywordExtractor": "write a TransformComponent that adds metadata",
    "SummaryExtractor": "use a DocumentSummaryIndex",
    "QuestionsAnsweredExtractor": "write a TransformComponent that adds metadata",
    "FaithfulnessEvaluator": "use pydantic-evals over saved cases",
    "RelevancyEvaluator": "use pydantic-evals over saved cases",
    "CorrectnessEvaluator": "use pydantic-evals over saved cases",
    "RetrieverEvaluator": "use pydantic-evals over saved cases",
    "HTMLNodeParser": "use HTMLReader and a SentenceSplitter",
    "JSONNodeParser": "use JSONReader and a SentenceSplitter",
    "CodeSplitter": "use a TokenTextSplitter",
    "RetryQueryEngine": "ask again in a workflow of your own",
    "SentenceTransformerRerank": "write a BaseNodePostprocessor around the model",
    "SimpleGraphStore": "graphs need a store of graphs",
}
_EXTRA = {"numpy", "snowballstemmer"}


def _load(name: str) -> Any:
    if name in _NOT_OFFERED:
        raise ImportError(f"{name} is not offered: {_NOT_OFFERED[name]}", name=f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = globals()[name] = getattr(import_module(f"batonflow.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        remedy = how_to_install("retrieval")
        raise ImportError(f"{name} needs {error.name}, which is not installed: {remedy}") from error
    return found


if not TYPE_CHECKING:  # checkers would take every name
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
