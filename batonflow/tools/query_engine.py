"""QueryEngineTool and RetrieverTool: what answers questions, and what finds passages for them, as tools."""

from collections.abc import Sequence
from typing import Any, cast

from batonflow.llms._bridge import run_sync
from batonflow.threads import in_thread
from batonflow.tools.base import AsyncBaseTool, ToolMetadata, ToolOutput
from batonflow.tools.errors import ToolDefinitionError
from batonflow.tools.function import text_of
from batonflow.tools.policy import ToolPolicy
from batonflow.tools.retrieval import MetadataMode, NodeWithScore, QueryBundle, TextNode

__all__ = ["QueryEngineTool", "RetrieverTool"]

_ENGINE = ("query_engine_tool", "Answers a question, asked in plain language, from a body of knowledge.")
_RETRIEVER = ("retriever_tool", "Finds the passages of a body of knowledge that bear on a question in plain language.")


class QueryEngineTool(AsyncBaseTool):
    """Answers questions with a query engine: whatever has a method ``query``, ``aquery`` or both.

    Args:
        query_engine: Gets the question as text. Its answer as text is what the model reads.
        metadata: What the model reads of the tool.
        resolve_input_errors: Whether arguments without an ``input`` become the question, all of them as text.
        policy: When it may run.

    Raises:
        ToolDefinitionError: The engine has neither method.

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
        """Make the tool; see the class.

        Args:
            query_engine: Has ``query``, ``aquery`` or both.
            name: ``query_engine_tool`` by default.
            description: What the engine knows; a model with several of them has nothing else to choose by.
            return_direct: Whether its answer ends the run.
            resolve_input_errors: See the class.
            policy: When it may run.
        """
        metadata = ToolMetadata(description or _ENGINE[1], name or _ENGINE[0], return_direct=return_direct)
        return cls(query_engine, metadata, resolve_input_errors, policy)

    @property
    def query_engine(self) -> Any:
        """The engine."""
        return self._query_engine

    @property
    def metadata(self) -> ToolMetadata:
        """What the model reads."""
        return self._metadata

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Ask the question: the first value, or the one called ``input``.

        Raises:
            ValueError: There is none, and ``resolve_input_errors`` is off.
        """
        question = _question(args, kwargs, self._resolve_input_errors)
        return self._output(question, _ask_sync(self._query_engine, "query", question))

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """The same asynchronously; an engine without ``aquery`` is asked in a thread."""
        question = _question(args, kwargs, self._resolve_input_errors)
        return self._output(question, await _ask(self._query_engine, "query", question))

    def _output(self, question: str, answer: Any) -> ToolOutput:
        return ToolOutput(
            content=str(answer),
            tool_name=self._metadata.get_name(),
            raw_input={"input": question},
            raw_output=answer,
        )


class RetrieverTool(AsyncBaseTool):
    """Shows what a retriever finds: whatever has a method ``retrieve``, ``aretrieve`` or both.

    Args:
        retriever: Gets the question as text and gives nodes, or objects with a text.
        metadata: What the model reads of the tool.
        node_postprocessors: Drop, order or change what was found, one after the other.
        policy: When it may run.

    Raises:
        ToolDefinitionError: The retriever has neither method.

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
        """Make the tool; see the class.

        Args:
            retriever: Has ``retrieve``, ``aretrieve`` or both.
            node_postprocessors: See the class.
            name: ``retriever_tool`` by default.
            description: What can be found.
            policy: When it may run.
        """
        metadata = ToolMetadata(description or _RETRIEVER[1], name or _RETRIEVER[0])
        return cls(retriever, metadata, node_postprocessors, policy)

    @property
    def retriever(self) -> Any:
        """The retriever."""
        return self._retriever

    @property
    def metadata(self) -> ToolMetadata:
        """What the model reads."""
        return self._metadata

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Search for the first value, or the one called ``input``; other arguments become the question as text.

        Raises:
            ValueError: There is none.
        """
        question = _question(args, kwargs, True)
        found = _ask_sync(self._retriever, "retrieve", question)
        for each in self._postprocessors:
            found = _ask_sync(each, "postprocess_nodes", found, QueryBundle(question))
        return self._output(question, found)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """The same asynchronously; what has no asynchronous form runs in a thread."""
        question = _question(args, kwargs, True)
        found = await _ask(self._retriever, "retrieve", question)
        for each in self._postprocessors:
            found = await _ask(each, "postprocess_nodes", found, QueryBundle(question))
        return self._output(question, found)

    def _output(self, question: str, found: Sequence[Any]) -> ToolOutput:
        return ToolOutput(
            content="\n\n".join(_passage(one) for one in found) or "Nothing was found.",
            tool_name=self._metadata.get_name(),
            raw_input={"input": question},
            raw_output=found,
        )


def _passage(found: Any) -> str:
    """The text of something found, as a language model should read it."""
    if isinstance(found, NodeWithScore | TextNode):
        return found.get_content(MetadataMode.LLM)
    text = text_of(found)
    return str(getattr(cast("object", found), "text", found)) if text is None else text


def _require(source: Any, method: str, metadata: ToolMetadata) -> None:
    """Refuse a ``source`` that has neither ``method`` nor its asynchronous form."""
    if not callable(getattr(source, method, None)) and not callable(getattr(source, f"a{method}", None)):
        raise ToolDefinitionError(
            f"tool {metadata.name!r}: {type(source).__name__} has neither {method}() nor a{method}(). Write one of them"
        )


def _question(args: tuple[Any, ...], kwargs: dict[str, Any], resolve_input_errors: bool) -> str:
    """The question in the arguments of a call."""
    if args:
        return str(args[0])
    if "input" in kwargs:
        return str(kwargs["input"])
    if kwargs and resolve_input_errors:
        return str(kwargs)
    raise ValueError("There is no question: give it as `input`.")


async def _ask(source: Any, method: str, *args: Any) -> Any:
    """Call ``a<method>`` of ``source``, or ``method`` in a thread if it has only that."""
    asynchronous = getattr(source, f"a{method}", None)
    if asynchronous is not None:
        return await asynchronous(*args)
    return await in_thread(getattr(source, method), *args)


def _ask_sync(source: Any, method: str, *args: Any) -> Any:
    """Call ``method`` of ``source``, or wait for ``a<method>`` if it has only that."""
    synchronous = getattr(source, method, None)
    return run_sync(_ask(source, method, *args)) if synchronous is None else synchronous(*args)
