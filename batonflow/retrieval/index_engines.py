"""Query engines, chat engines and tools over an index."""

from collections.abc import Mapping
from typing import Any

from batonflow.llms import LLM
from batonflow.nodes import BaseRetriever
from batonflow.retrieval.chat import (
    BaseChatEngine,
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
    SimpleChatEngine,
)
from batonflow.retrieval.citations import CitationQueryEngine
from batonflow.retrieval.citing import ASK_FOR_NUMBERS, CitedRetrieverTool
from batonflow.retrieval.query_engine import RetrieverQueryEngine
from batonflow.tools import QueryEngineTool, RetrieverTool, ToolMetadata

__all__ = ["IndexEngines", "of_mode"]

_OF_ENGINES = {
    "response_synthesizer", "node_postprocessors", "callback_manager", "response_mode", "text_qa_template",
    "refine_template", "summary_template", "simple_template", "prompt_helper", "streaming", "use_async", "output_cls",
    "structured_answer_filtering", "program_factory", "verbose",
}  # fmt: skip

_CHAT_MODES = ("best", "condense_plus_context", "context", "condense_question", "simple")
_OF_CHAT = {
    "memory", "chat_history", "system_prompt", "prefix_messages", "node_postprocessors", "context_template",
    "context_prompt", "skip_condense", "condense_prompt", "condense_question_prompt", "verbose",
}  # fmt: skip


class IndexEngines:
    """The base class of indexes as sources of answers. Subclasses write ``as_retriever``."""

    def as_retriever(self, **kwargs: Any) -> BaseRetriever:
        """Return a retriever of the index."""
        raise NotImplementedError(f"{type(self).__name__} has no as_retriever")

    def as_query_engine(self, llm: LLM | str | None = None, **kwargs: Any) -> RetrieverQueryEngine:
        """Return a query engine over the index.

        Args:
            llm: The model; by default that of ``Settings``.
            kwargs: Arguments of the retriever and of ``RetrieverQueryEngine.from_args``.
        """
        of_engine = {name: kwargs.pop(name) for name in list(kwargs) if name in _OF_ENGINES}
        return RetrieverQueryEngine.from_args(self.as_retriever(**kwargs), llm, **of_engine)

    def as_chat_engine(self, chat_mode: str = "best", llm: LLM | str | None = None, **kwargs: Any) -> BaseChatEngine:
        """Return a chat engine over the index.

        Args:
            chat_mode: ``best`` (= ``condense_plus_context``), ``context``, ``condense_question`` or ``simple``.
            llm: The model; by default that of ``Settings``.
            kwargs: Arguments of the engine, and of the retriever.

        Raises:
            ValueError: The mode is unknown, or stands for an agent.
        """
        if chat_mode in {"react", "openai"}:
            raise ValueError(f"the mode {chat_mode!r} is an agent: use FunctionAgent(tools=[index.as_tool()])")
        if chat_mode not in _CHAT_MODES:
            raise ValueError(f"Unknown chat mode: {chat_mode}; the modes are {', '.join(_CHAT_MODES)}")
        of_engine = {name: kwargs.pop(name) for name in list(kwargs) if name in _OF_CHAT}
        if chat_mode == "simple":
            return SimpleChatEngine.from_defaults(llm, **of_engine)
        if chat_mode == "condense_question":
            return CondenseQuestionChatEngine.from_defaults(self.as_query_engine(llm, **kwargs), llm=llm, **of_engine)
        kind = ContextChatEngine if chat_mode == "context" else CondensePlusContextChatEngine
        return kind.from_defaults(self.as_retriever(**kwargs), llm, **of_engine)

    def as_tool(
        self,
        name: str | None = None,
        description: str | None = None,
        *,
        answers: bool = False,
        similarity_top_k: int = 5,
        citations: bool = True,
    ) -> QueryEngineTool | RetrieverTool:
        """Return the index as a tool for agents.

        Args:
            name: The name of the tool.
            description: The description for the model.
            answers: Whether the tool answers with a model; otherwise it returns passages.
            similarity_top_k: The largest number of passages.
            citations: Whether passages have numbers, which an agent cites; see ``check_citations``. With ``answers``
                the tool's answer has checked citations; see ``CitationQueryEngine``.
        """
        retriever = self.as_retriever(similarity_top_k=similarity_top_k)
        if answers:
            kind = CitationQueryEngine if citations else RetrieverQueryEngine
            return QueryEngineTool.from_defaults(kind(retriever), name=name, description=description)
        if not citations:
            return RetrieverTool.from_defaults(retriever, name=name, description=description)
        plain = RetrieverTool.from_defaults(retriever, name=name, description=description).metadata
        metadata = ToolMetadata(f"{plain.description} {ASK_FOR_NUMBERS}", plain.name)
        return CitedRetrieverTool(retriever, metadata)


def of_mode(modes: Mapping[str, Any], mode: str) -> Any:
    """Return the retriever of a mode.

    Raises:
        ValueError: The mode is unknown.
    """
    if mode not in modes:
        raise ValueError(f"Unknown retriever mode: {mode}; the modes are {', '.join(modes)}")
    return modes[mode]
