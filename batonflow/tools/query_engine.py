"""QueryEngineTool and RetrieverTool: query engines and retrievers as tools."""

from collections.abc import Sequence
from typing import Any, cast

from batonflow.llms._bridge import run_sync
from batonflow.nodes import MetadataMode, NodeWithScore, QueryBundle, TextNode
from batonflow.threads import in_thread
from batonflow.tools.base import AsyncBaseTool, ToolMetadata, ToolOutput
from batonflow.tools.function import text_of
from batonflow.tools.policy import ToolPolicy
from batonflow.tools.schema import ToolDefinitionError

__all__ = ["QueryEngineTool", "RetrieverTool"]

_ENGINE = ("query_engine_tool", "Answers a question, asked in plain language, from a body of knowledge.")
_RETRIEVER = ("retriever_tool", "Finds the passages of a body of knowledge that bear on a question in plain language.")


class QueryEngineTool(AsyncBaseTool):
    """Tool that answers questions with a query engine: any object with ``query`` or ``aquery``.

    Args:
        query_engine: Receives the question as text. The model reads the text of its answer.
        metadata: Name, description and schema for the model.
        resolve_input_errors: Use all arguments as the question, as text, if ``input`` is missing.
        policy: Approval, timeout, retries and other limits.

    Raises:
        ToolDefinitionError: The engine has no such method.

    Example:
        >>> QueryEngineTool.from_defaults(engine, name="handbook", description="Knows the company's handbook.")
    """

    def __init__(
        self,
        query_engine: Any,
        metadata: ToolMetadata,
        resolve_input_errors: bool = True,
        policy: ToolPolicy | None = None,
    ) -> None:
        _require(query_engine, "query", metadata)
        self._query_engine = query_engine
        self._metadata = metadata
        self._resolve_input_errors = resolve_input_errors
        self.policy = policy or ToolPolicy()

    @classmethod
    def from_defaults(
        cls,
        query_engine: Any,
        name: str | None = None,
        description: str | None = None,
        return_direct: bool = False,
        resolve_input_errors: bool = True,
        policy: ToolPolicy | None = None,
    ) -> "QueryEngineTool":
        """Create the tool; see the class.

        Args:
            query_engine: Has ``query``, ``aquery`` or both.
            name: ``query_engine_tool`` by default.
            description: The knowledge of the engine; models choose between several engines by this text.
            return_direct: End the run with the answer.
            resolve_input_errors: See the class.
            policy: Approval, timeout, retries and other limits.
        """
        metadata = ToolMetadata(description or _ENGINE[1], name or _ENGINE[0], return_direct=return_direct)
        return cls(query_engine, metadata, resolve_input_errors, policy)

    @property
    def query_engine(self) -> Any:
        """The query engine."""
        return self._query_engine

    @property
    def metadata(self) -> ToolMetadata:
        """The metadata for models."""
        return self._metadata

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Ask the question: the first positional value, or ``input``.

        Raises:
            ValueError: The question is missing, and ``resolve_input_errors`` is off.
        """
        question = _question(args, kwargs, self._resolve_input_errors)
        return self._output(question, _ask_sync(self._query_engine, "query", question))

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Ask the question asynchronously; an engine without ``aquery`` runs in a thread."""
        question = _question(args, kwargs, self._resolve_input_errors)
        return self._output(question, await _ask(self._query_engine, "query", question))

    def _output(self, question: str, answer: Any) -> ToolOutput:
        return ToolOutput(
            content=str(answer), tool_name=self._metadata.get_name(), raw_input={"input": question}, raw_output=answer
        )


class RetrieverTool(AsyncBaseTool):
    """Tool that shows the results of a retriever: any object with ``retrieve`` or ``aretrieve``.

    Args:
        retriever: Receives the question as text and returns nodes, or objects with a text.
        metadata: Name, description and schema for the model.
        node_postprocessors: Drop, order or change the results, one after the other.
        policy: Approval, timeout, retries and other limits.

    Raises:
        ToolDefinitionError: The retriever has no such method.

    Example:
        >>> RetrieverTool.from_defaults(notes, name="notes", description="Finds notes of past meetings.")
    """

    def __init__(
        self,
        retriever: Any,
        metadata: ToolMetadata,
        node_postprocessors: Sequence[Any] | None = None,
        policy: ToolPolicy | None = None,
    ) -> None:
        _require(retriever, "retrieve", metadata)
        self._retriever = retriever
        self._metadata = metadata
        self._postprocessors = list(node_postprocessors or ())
        self.policy = policy or ToolPolicy()

    @classmethod
    def from_defaults(
        cls,
        retriever: Any,
        node_postprocessors: Sequence[Any] | None = None,
        name: str | None = None,
        description: str | None = None,
        policy: ToolPolicy | None = None,
    ) -> "RetrieverTool":
        """Create the tool; see the class.

        Args:
            retriever: Has ``retrieve``, ``aretrieve`` or both.
            node_postprocessors: See the class.
            name: ``retriever_tool`` by default.
            description: The content that can be found.
            policy: Approval, timeout, retries and other limits.
        """
        metadata = ToolMetadata(description or _RETRIEVER[1], name or _RETRIEVER[0])
        return cls(retriever, metadata, node_postprocessors, policy)

    @property
    def retriever(self) -> Any:
        """The retriever."""
        return self._retriever

    @property
    def metadata(self) -> ToolMetadata:
        """The metadata for models."""
        return self._metadata

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Search for the first positional value, or ``input``; other arguments become the question as text.

        Raises:
            ValueError: The question is missing.
        """
        question = _question(args, kwargs, True)
        found = _ask_sync(self._retriever, "retrieve", question)
        for each in self._postprocessors:
            found = _ask_sync(each, "postprocess_nodes", found, QueryBundle(question))
        return self._output(question, found)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Search asynchronously; retrievers and postprocessors without an asynchronous form run in a thread."""
        question = _question(args, kwargs, True)
        found = await _ask(self._retriever, "retrieve", question)
        for each in self._postprocessors:
            found = await _ask(each, "postprocess_nodes", found, QueryBundle(question))
        return self._output(question, found)

    def _output(self, question: str, found: Sequence[Any]) -> ToolOutput:
        return ToolOutput(
            content="\n\n".join(_text_for_models(one) for one in found) or "Nothing was found.",
            tool_name=self._metadata.get_name(),
            raw_input={"input": question},
            raw_output=found,
        )


def _text_for_models(found: Any) -> str:
    if isinstance(found, NodeWithScore | TextNode):
        return found.get_content(MetadataMode.LLM)
    text = text_of(found)
    return str(getattr(cast("object", found), "text", found)) if text is None else text


def _require(source: Any, method: str, metadata: ToolMetadata) -> None:
    """Refuse a ``source`` without ``method`` and without its asynchronous form."""
    if not callable(getattr(source, method, None)) and not callable(getattr(source, f"a{method}", None)):
        raise ToolDefinitionError(
            f"tool {metadata.name!r}: {type(source).__name__} has neither {method}() nor a{method}(). Write one of them"
        )


def _question(args: tuple[Any, ...], kwargs: dict[str, Any], resolve_input_errors: bool) -> str:
    if args:
        return str(args[0])
    if "input" in kwargs:
        return str(kwargs["input"])
    if kwargs and resolve_input_errors:
        return str(kwargs)
    raise ValueError("The question is missing: give it as `input`.")


async def _ask(source: Any, method: str, *args: Any) -> Any:
    """Call ``a<method>`` of ``source``, or ``method`` in a thread if it has only that."""
    asynchronous = getattr(source, f"a{method}", None)
    if asynchronous is not None:
        return await asynchronous(*args)
    return await in_thread(getattr(source, method), *args)


def _ask_sync(source: Any, method: str, *args: Any) -> Any:
    """Call ``method`` of ``source``, or run ``a<method>`` to its end if it has only that."""
    synchronous = getattr(source, method, None)
    return run_sync(_ask(source, method, *args)) if synchronous is None else synchronous(*args)
