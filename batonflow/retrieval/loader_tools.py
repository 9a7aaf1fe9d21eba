"""Tools that load texts when an agent asks for them, and search in them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, cast

from pydantic import BaseModel, Field, create_model

from batonflow.llms._bridge import run_sync
from batonflow.nodes import BaseNode, Document
from batonflow.nodes.schema import document_of
from batonflow.retrieval.index import BaseIndex
from batonflow.retrieval.indexes import VectorStoreIndex
from batonflow.threads import in_thread
from batonflow.tools import AsyncBaseTool, BaseToolSpec, FunctionTool, ToolMetadata, ToolOutput
from batonflow.tools.policy import ToolPolicy
from batonflow.tools.spec import SpecFunction

__all__ = ["LoadAndSearchToolSpec", "OnDemandLoaderTool"]

_LOAD = "Loads data, which can be read with {reader} then. {description}"
_READ = "Answers a question in plain language from the data that {loader} has loaded."


class OnDemandLoaderTool(AsyncBaseTool):
    """Loads texts with a function, and answers a question from an index of them, in one call.

    Args:
        loader: A function or a tool that returns documents or texts.
        index_cls: The class of the index.
        index_kwargs: Arguments of the index.
        metadata: Name, description and schema for the model.
        use_query_str_in_loader: Whether the function gets the question, too.
        query_str_kwargs_key: The name of the argument with the question.
        query_kwargs: Arguments of ``as_query_engine``, such as ``llm``.

    Example:
        >>> tool = OnDemandLoaderTool.from_tool(FunctionTool.from_defaults(read_page), name="page")
        >>> FunctionAgent(llm=llm, tools=[tool])
    """

    def __init__(
        self,
        loader: Callable[..., Any] | FunctionTool,
        index_cls: type[BaseIndex],
        index_kwargs: Mapping[str, Any],
        metadata: ToolMetadata,
        use_query_str_in_loader: bool = False,
        query_str_kwargs_key: str = "query_str",
        query_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._loader = loader if isinstance(loader, FunctionTool) else FunctionTool.from_defaults(loader)
        self._index_cls, self._index_kwargs = index_cls, dict(index_kwargs)
        self._metadata, self._passes_question, self._key = metadata, use_query_str_in_loader, query_str_kwargs_key
        self._query_kwargs = dict(query_kwargs or {})
        self.policy = ToolPolicy()

    @classmethod
    def from_defaults(
        cls,
        reader: Any,
        index_cls: type[BaseIndex] | None = None,
        index_kwargs: Mapping[str, Any] | None = None,
        use_query_str_in_loader: bool = False,
        query_str_kwargs_key: str = "query_str",
        name: str | None = None,
        description: str | None = None,
        fn_schema: type[BaseModel] | None = None,
        return_direct: bool = False,
        query_kwargs: Mapping[str, Any] | None = None,
    ) -> Self:
        """Create the tool; see the class.

        Args:
            reader: A function, or an object with ``load_data``.
            index_cls: By default ``VectorStoreIndex``.
            index_kwargs: See the class.
            use_query_str_in_loader: See the class.
            query_str_kwargs_key: See the class.
            name: By default that of the function, or of the reader's class.
            description: The texts that it loads.
            fn_schema: The model of the arguments; by default those of the function and the question.
            return_direct: End the run with the answer.
            query_kwargs: See the class.
        """
        named: str = name or (getattr(reader, "__name__", None) or type(reader).__name__)
        loader: Any = getattr(reader, "load_data", reader)
        if not isinstance(loader, FunctionTool):
            loader = FunctionTool.from_defaults(loader, name=named)
        question: Any = (str, Field(description="the question to answer from the texts"))
        schema = fn_schema or create_model(
            named, __base__=loader.metadata.fn_schema, **{query_str_kwargs_key: question}
        )
        told = description or f"Loads texts with {named}, and answers a question from them."
        metadata = ToolMetadata(told, named, schema, return_direct=return_direct)
        passes, key = use_query_str_in_loader, query_str_kwargs_key
        return cls(loader, index_cls or VectorStoreIndex, index_kwargs or {}, metadata, passes, key, query_kwargs)

    @classmethod
    def from_tool(cls, tool: FunctionTool, **options: Any) -> Self:
        """Create the tool from another one, which loads; see ``from_defaults``."""
        options.setdefault("name", tool.metadata.name)
        options.setdefault("description", tool.metadata.description)
        return cls.from_defaults(tool, **options)

    @property
    def metadata(self) -> ToolMetadata:
        """The metadata for models."""
        return self._metadata

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Load and answer.

        Raises:
            ValueError: The question is missing.
        """
        return run_sync(self.acall(*args, **kwargs))

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Load and answer; see ``call``."""
        if self._key not in kwargs:
            raise ValueError(f"Missing query_str in kwargs with parameter name: {self._key}")
        question = str(kwargs[self._key] if self._passes_question else kwargs.pop(self._key))
        loaded = (await self._loader.acall(*args, **kwargs)).raw_output
        index = await in_thread(lambda: self._index_cls.from_documents(_documents(loaded), **self._index_kwargs))
        answer = await index.as_query_engine(**self._query_kwargs).aquery(question)
        name = self._metadata.get_name()
        return ToolOutput(content=str(answer), tool_name=name, raw_input={"query": question}, raw_output=answer)


class LoadAndSearchToolSpec(BaseToolSpec):
    """Two tools in place of one that returns long texts.

    The first puts the texts into an index, and ``read_NAME`` answers from it.

    Args:
        tool: Returns documents or texts.
        index_cls: The class of the index.
        index_kwargs: Arguments of the index.
        metadata: Name, description and schema of the tool that loads.
        index: An index that has texts already.
        query_kwargs: Arguments of ``as_query_engine``, such as ``llm``.

    Example:
        >>> tools = LoadAndSearchToolSpec.from_defaults(FunctionTool.from_defaults(read_page)).to_tool_list()
    """

    def __init__(
        self,
        tool: FunctionTool,
        index_cls: type[BaseIndex],
        index_kwargs: Mapping[str, Any],
        metadata: ToolMetadata,
        index: BaseIndex | None = None,
        query_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._loader, self._index_cls, self._index_kwargs = tool, index_cls, dict(index_kwargs)
        self._index, self._query_kwargs, self.metadata = index, dict(query_kwargs or {}), metadata

    @classmethod
    def from_defaults(
        cls,
        tool: FunctionTool,
        index_cls: type[BaseIndex] | None = None,
        index_kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        description: str | None = None,
        fn_schema: type[BaseModel] | None = None,
        query_kwargs: Mapping[str, Any] | None = None,
    ) -> Self:
        """Create the tools; name, description and schema are by default those of the tool."""
        known = tool.metadata
        schema = fn_schema or known.fn_schema
        metadata = ToolMetadata(description or known.description, name or known.get_name(), schema)
        kind = index_cls or VectorStoreIndex
        return cls(tool, kind, index_kwargs or {}, metadata, query_kwargs=query_kwargs)

    def to_tool_list(
        self,
        spec_functions: Sequence[SpecFunction] | None = None,
        func_to_metadata_mapping: Mapping[str, ToolMetadata] | None = None,
    ) -> list[FunctionTool]:
        """Return the tool that loads and the tool that reads."""
        del spec_functions, func_to_metadata_mapping  # the tools are always these two
        name = self.metadata.get_name()
        told = _LOAD.format(reader=f"read_{name}", description=self.metadata.description)
        load = FunctionTool.from_defaults(
            self.load, async_fn=self.aload, name=name, description=told, fn_schema=self.metadata.fn_schema
        )
        told = _READ.format(loader=name)
        read = FunctionTool.from_defaults(self.read, async_fn=self.aread, name=f"read_{name}", description=told)
        return [load, read]

    def load(self, *args: Any, **kwargs: Any) -> str:
        """Call the tool and put its texts into the index."""
        return run_sync(self.aload(*args, **kwargs))

    async def aload(self, *args: Any, **kwargs: Any) -> str:
        """Call the tool and put its texts into the index."""
        documents = _documents((await self._loader.acall(*args, **kwargs)).raw_output)
        if (index := self._index) is None:
            self._index = await in_thread(lambda: self._index_cls.from_documents(documents, **self._index_kwargs))
        else:
            for one in documents:
                await index.ainsert(one)
        return f"{len(documents)} loaded. Ask read_{self.metadata.get_name()} about them."

    def read(self, query: str) -> str:
        """Answer a question from the index."""
        return run_sync(self.aread(query))

    async def aread(self, query: str) -> str:
        """Answer a question from the index."""
        if self._index is None:
            return f"Error: there is no data yet. Call {self.metadata.get_name()} first."
        return str(await self._index.as_query_engine(**self._query_kwargs).aquery(query))


def _documents(loaded: Any) -> list[BaseNode]:
    """Return the result of a tool as documents."""
    items = cast("list[Any]", loaded) if isinstance(loaded, list) else [loaded]
    known = (BaseNode, Mapping)
    return [
        document_of(one) if isinstance(one, known) or hasattr(one, "page_content") else Document(text=str(one))
        for one in items
    ]
