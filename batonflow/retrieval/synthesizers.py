"""Synthesizers: answers to a question from the text of nodes, in nine modes."""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar, cast

from pydantic import BaseModel, Field

from batonflow.instrumentation import get_dispatcher
from batonflow.instrumentation.events.synthesis import (
    GetResponseEndEvent,
    GetResponseStartEvent,
    SynthesizeEndEvent,
    SynthesizeStartEvent,
)
from batonflow.llms import LLM
from batonflow.llms._bridge import iterate_in_thread, iterate_sync, run_sync
from batonflow.llms.prompts import BasePromptTemplate, PromptMixin
from batonflow.nodes import (
    AsyncStreamingResponse,
    MetadataMode,
    NodeWithScore,
    PydanticResponse,
    QueryBundle,
    Response,
    StreamingResponse,
)
from batonflow.retrieval.prompt_helper import PromptHelper, helper_for
from batonflow.retrieval.prompts import (
    ANSWER_QUESTION,
    REFINE_ANSWER,
    SEND_QUESTION,
    SUMMARIZE_FOR_QUESTION,
    marked_passages,
)
from batonflow.retrieval.requests import all_of, given_llm, predict, required_llm, stream, structured
from batonflow.threads import in_thread

__all__ = [
    "Accumulate", "BaseSynthesizer", "CompactAndAccumulate", "CompactAndRefine", "ContextOnly", "Generation", "NoText",
    "Refine", "ResponseMode", "SimpleSummarize", "StructuredRefineResponse", "TreeSummarize",
    "get_response_synthesizer",
]  # fmt: skip

ResponseText = str | BaseModel | Iterator[str] | AsyncIterator[str]
AnyResponse = Response | PydanticResponse | StreamingResponse | AsyncStreamingResponse

_dispatcher = get_dispatcher(__name__)

_LINE = "\n---------------------\n"


class ResponseMode(StrEnum):
    """The ways to make an answer from several texts."""

    REFINE = "refine"
    COMPACT = "compact"
    SIMPLE_SUMMARIZE = "simple_summarize"
    TREE_SUMMARIZE = "tree_summarize"
    GENERATION = "generation"
    NO_TEXT = "no_text"
    CONTEXT_ONLY = "context_only"
    ACCUMULATE = "accumulate"
    COMPACT_ACCUMULATE = "compact_accumulate"


class StructuredRefineResponse(BaseModel):
    """An answer, and the model's verdict about it."""

    answer: str = Field(description="The answer to the question from the passages")
    query_satisfied: bool = Field(description="True if the passages hold enough to answer the question")


class BaseSynthesizer(PromptMixin):
    """The base class of synthesizers. Subclasses write ``get_response`` or ``aget_response``.

    Args:
        llm: A model or its name; by default ``Settings.llm``. Modes without requests do not need it.
        callback_manager: Accepted and kept; use instrumentation instead.
        prompt_helper: Fits texts into prompts; by default one for the model.
        streaming: Stream the last request.
        output_cls: The pydantic model of the answer, which is then not streamed.
        empty_response: The answer if there are no nodes.
        use_async: Accepted; requests that do not depend on each other are always sent at once.
        verbose: Kept for subclasses.
        **templates: The prompts of the class by name, as in ``get_prompts``.

    Raises:
        TypeError: The class has no prompt of a given name, or writes neither method.

    Example:
        >>> TreeSummarize(llm=llm).synthesize("What moves the sea?", nodes)
    """

    prompt_defaults: ClassVar[dict[str, BasePromptTemplate]] = {}
    _needs_nodes: ClassVar[bool] = True

    def __init__(
        self,
        llm: LLM | str | None = None,
        callback_manager: Any = None,
        prompt_helper: PromptHelper | None = None,
        *,
        streaming: bool = False,
        output_cls: type[BaseModel] | None = None,
        empty_response: str = "Empty Response",
        use_async: bool = False,  # noqa: ARG002 - for compatibility
        verbose: bool = False,
        **templates: BasePromptTemplate | None,
    ) -> None:
        cls = type(self)
        if cls.get_response is BaseSynthesizer.get_response and cls.aget_response is BaseSynthesizer.aget_response:
            raise TypeError(f"{cls.__name__} has no implementation: write get_response or aget_response")
        if unknown := templates.keys() - self.prompt_defaults.keys():
            known = ", ".join(self.prompt_defaults) or "no prompts"
            raise TypeError(f"{cls.__name__} has {known}, and no option {', '.join(sorted(unknown))}")
        self.callback_manager = callback_manager
        self._llm = given_llm(llm)
        self._prompt_helper = helper_for(self._llm, prompt_helper)
        self._streaming = streaming
        self._output_cls = output_cls
        self._empty_response = empty_response
        self._verbose = verbose
        self._templates = {**self.prompt_defaults, **{name: one for name, one in templates.items() if one is not None}}

    @property
    def llm(self) -> LLM:
        """The model; a LLMConfigurationError is raised without one."""
        return required_llm(self._llm, self)

    @property
    def is_streaming(self) -> bool:
        """True if the last request is streamed."""
        return self._streaming

    def _get_prompts(self) -> dict[str, BasePromptTemplate]:
        return dict(self._templates)

    def _update_prompts(self, prompts_dict: dict[str, BasePromptTemplate]) -> None:
        self._templates.update(prompts_dict)

    def get_response(self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any) -> ResponseText:
        """Answer a question from texts; the result is text, a stream of text, or an object of ``output_cls``."""
        answer = run_sync(self.aget_response(query_str, text_chunks, **response_kwargs))
        return iterate_sync(answer) if isinstance(answer, AsyncIterator) else answer

    async def aget_response(self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any) -> ResponseText:
        """Answer asynchronously; a synchronous implementation runs in a thread."""
        answer = await in_thread(self.get_response, query_str, text_chunks, **response_kwargs)
        return iterate_in_thread(answer) if isinstance(answer, Iterator) else answer

    @_dispatcher.span
    def synthesize(
        self,
        query: str | QueryBundle,
        nodes: Sequence[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> AnyResponse:
        """Answer a question from nodes.

        Args:
            query: The question.
            nodes: The nodes; models read their content for ``MetadataMode.LLM``.
            additional_source_nodes: Further sources of the response, which models do not read.
            **response_kwargs: Further values for the prompts.
        """
        text, chunks = _begun(query, nodes)
        answer: ResponseText = iter([self._empty_response]) if self._streaming else self._empty_response
        if nodes or not self._needs_nodes:
            answer = self.get_response(text, chunks, **response_kwargs)
        return self._ended(query, _as_response(answer, [*nodes, *(additional_source_nodes or ())]))

    @_dispatcher.span
    async def asynthesize(
        self,
        query: str | QueryBundle,
        nodes: Sequence[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> AnyResponse:
        """Answer asynchronously; see ``synthesize``."""
        text, chunks = _begun(query, nodes)
        answer: ResponseText = _once(self._empty_response) if self._streaming else self._empty_response
        if nodes or not self._needs_nodes:
            kinds = type(self).__mro__
            first = next(kind for kind in kinds if {"get_response", "aget_response"} & vars(kind).keys())
            # A subclass may replace only the synchronous method of a class that has the asynchronous one.
            ask = self.aget_response if "aget_response" in vars(first) else partial(BaseSynthesizer.aget_response, self)
            answer = await ask(text, chunks, **response_kwargs)
        return self._ended(query, _as_response(answer, [*nodes, *(additional_source_nodes or ())]))

    def _ended(self, query: str | QueryBundle, response: AnyResponse) -> AnyResponse:
        _dispatcher.event(SynthesizeEndEvent(query=query, response=response))
        return response


def _begun(query: str | QueryBundle, nodes: Sequence[NodeWithScore]) -> tuple[str, list[str]]:
    _dispatcher.event(SynthesizeStartEvent(query=query))
    text = query if isinstance(query, str) else query.query_str
    return text, [found.node.get_content(metadata_mode=MetadataMode.LLM) for found in nodes]


async def _once(text: str) -> AsyncGenerator[str]:
    yield text


def _as_response(answer: ResponseText, sources: list[NodeWithScore]) -> AnyResponse:
    metadata = {found.node.node_id: found.node.metadata for found in sources}
    if isinstance(answer, BaseModel):
        return PydanticResponse(answer, source_nodes=sources, metadata=metadata)
    if isinstance(answer, AsyncIterator):
        return AsyncStreamingResponse(cast("AsyncGenerator[str]", answer), source_nodes=sources, metadata=metadata)
    if isinstance(answer, Iterator):
        return StreamingResponse(cast("Generator[str]", answer), source_nodes=sources, metadata=metadata)
    return Response(answer, source_nodes=sources, metadata=metadata)


class _Asking(BaseSynthesizer):
    """A synthesizer that sends requests. Texts reach the model between marks with their numbers."""

    async def aget_response(self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any) -> ResponseText:
        """Answer a question from texts."""
        _dispatcher.event(GetResponseStartEvent(query_str=query_str, text_chunks=list(text_chunks)))
        answer = await self._answer(query_str, marked_passages(text_chunks), response_kwargs)
        _dispatcher.event(GetResponseEndEvent())
        return answer

    async def _answer(self, query: str, chunks: list[str], values: dict[str, Any]) -> ResponseText:
        raise NotImplementedError

    def _template(self, name: str, query: str) -> BasePromptTemplate:
        return self._templates[name].partial_format(query_str=query)

    async def _ask(self, prompt: BasePromptTemplate, *, streams: bool = False, **values: Any) -> ResponseText:
        if self._output_cls is not None:
            return await structured(self.llm, self._output_cls, prompt, **values)
        return await (stream if streams and self._streaming else predict)(self.llm, prompt, **values)


class Refine(_Asking):
    """Answer from the first text, then improve the answer with each further one.

    Args:
        structured_answer_filtering: Ask for ``StructuredRefineResponse``, and skip texts that do not satisfy the
            question.
        program_factory: Makes the program of such a request from its prompt: an object with ``acall``, or a function.
        **options: The arguments of ``BaseSynthesizer``, ``text_qa_template`` and ``refine_template``.

    Raises:
        ValueError: ``program_factory`` is given without ``structured_answer_filtering``.
    """

    prompt_defaults: ClassVar[dict[str, BasePromptTemplate]] = {
        "text_qa_template": ANSWER_QUESTION,
        "refine_template": REFINE_ANSWER,
    }

    def __init__(
        self,
        *args: Any,
        structured_answer_filtering: bool = False,
        program_factory: Callable[[BasePromptTemplate], Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        if program_factory is not None and not structured_answer_filtering:
            raise ValueError("Program factory not supported without structured answer filtering: set both")
        self._filters = structured_answer_filtering
        self._program_factory = program_factory

    async def _answer(self, query: str, chunks: list[str], values: dict[str, Any]) -> ResponseText:
        left = deque(chunks)
        question, refine = self._template("text_qa_template", query), self._template("refine_template", query)
        answer: ResponseText | None = None
        while left:
            known = answer.model_dump_json() if isinstance(answer, BaseModel) else answer
            prompt = question if answer is None else refine.partial_format(existing_answer=known)
            text, *rest = self._prompt_helper.repack(prompt, [left.popleft()]) or [""]
            left.extendleft(reversed(rest))
            named = {"context_str" if answer is None else "context_msg": text, **values}
            if self._filters:
                judged = await self._judged(prompt, named)
                answer = judged.answer if judged.query_satisfied else answer
            else:
                answer = await self._ask(prompt, streams=not left, **named)
        answer = self._empty_response if answer is None else answer
        return _once(answer) if self._filters and self._streaming and isinstance(answer, str) else answer

    async def _judged(self, prompt: BasePromptTemplate, values: dict[str, Any]) -> StructuredRefineResponse:
        if self._program_factory is None:
            return await structured(self.llm, StructuredRefineResponse, prompt, **values)
        program = self._program_factory(prompt)
        found = await (program.acall(**values) if hasattr(program, "acall") else in_thread(program, **values))
        return StructuredRefineResponse.model_validate(found, from_attributes=True)


class CompactAndRefine(Refine):
    """Refine, with as many texts in one request as fit."""

    async def _answer(self, query: str, chunks: list[str], values: dict[str, Any]) -> ResponseText:
        helper = self._prompt_helper
        longest = max(
            (self._template(name, query) for name in self._templates), key=lambda one: helper.count(one.format())
        )
        return await super()._answer(query, helper.repack(longest, chunks), values)


class SimpleSummarize(_Asking):
    """One request with all texts, each cut so that they fit."""

    prompt_defaults: ClassVar[dict[str, BasePromptTemplate]] = {"text_qa_template": ANSWER_QUESTION}

    async def _answer(self, query: str, chunks: list[str], values: dict[str, Any]) -> ResponseText:
        prompt = self._template("text_qa_template", query)
        texts = self._prompt_helper.truncate(prompt, chunks)
        return await self._ask(prompt, streams=True, context_str="\n".join(texts), **values)


class TreeSummarize(_Asking):
    """Answer from as many texts as fit, then from the answers, until one is left."""

    prompt_defaults: ClassVar[dict[str, BasePromptTemplate]] = {"summary_template": SUMMARIZE_FOR_QUESTION}

    async def _answer(self, query: str, chunks: list[str], values: dict[str, Any]) -> ResponseText:
        prompt, helper = self._template("summary_template", query), self._prompt_helper
        packed = helper.repack(prompt, chunks) or [""]
        while len(packed) > 1:
            answers = await all_of(self._ask(prompt, context_str=text, **values) for text in packed)
            texts = marked_passages(
                [one.model_dump_json() if isinstance(one, BaseModel) else str(one) for one in answers]
            )
            shorter = helper.repack(prompt, texts)
            # Answers as long as their texts would never come to an end.
            packed = shorter if len(shorter) < len(packed) else ["\n\n".join(helper.truncate(prompt, texts))]
        return await self._ask(prompt, streams=True, context_str=packed[0], **values)


class Accumulate(_Asking):
    """One request for each text; the answers stand one below the other.

    Raises:
        ValueError: ``streaming`` is set.
    """

    prompt_defaults: ClassVar[dict[str, BasePromptTemplate]] = {"text_qa_template": ANSWER_QUESTION}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self._streaming:
            raise ValueError(f"Unable to stream in {type(self).__name__} response mode: leave streaming out")

    async def _answer(self, query: str, chunks: list[str], values: dict[str, Any]) -> ResponseText:
        prompt = self._template("text_qa_template", query)
        separator: str = values.pop("separator", _LINE)
        texts = self._texts(prompt, chunks)
        answers = await all_of(self._ask(prompt, context_str=text, **values) for text in texts)
        shown = (one.model_dump_json() if isinstance(one, BaseModel) else one for one in answers)
        return separator.join(f"Response {number}: {one}" for number, one in enumerate(shown, 1))

    def _texts(self, prompt: BasePromptTemplate, chunks: list[str]) -> list[str]:
        return [piece for text in chunks for piece in self._prompt_helper.repack(prompt, [text])]


class CompactAndAccumulate(Accumulate):
    """Accumulate, with as many texts in one request as fit."""

    def _texts(self, prompt: BasePromptTemplate, chunks: list[str]) -> list[str]:
        return self._prompt_helper.repack(prompt, chunks)


class Generation(_Asking):
    """The question alone; nodes are sources and not read."""

    prompt_defaults: ClassVar[dict[str, BasePromptTemplate]] = {"simple_template": SEND_QUESTION}
    _needs_nodes: ClassVar[bool] = False

    async def _answer(self, query: str, chunks: list[str], values: dict[str, Any]) -> ResponseText:  # noqa: ARG002
        return await self._ask(self._templates["simple_template"], streams=True, query_str=query, **values)


class NoText(BaseSynthesizer):
    """The sources without an answer."""

    def get_response(self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any) -> ResponseText:  # noqa: ARG002
        """Return an empty text."""
        return ""


class ContextOnly(BaseSynthesizer):
    """The texts themselves as the answer."""

    def get_response(self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any) -> ResponseText:  # noqa: ARG002
        """Return the texts, joined with blank lines."""
        return "\n\n".join(text_chunks)


_CLASSES: dict[str, type[BaseSynthesizer]] = {
    "refine": Refine, "compact": CompactAndRefine, "simple_summarize": SimpleSummarize,
    "tree_summarize": TreeSummarize, "generation": Generation, "no_text": NoText, "context_only": ContextOnly,
    "accumulate": Accumulate, "compact_accumulate": CompactAndAccumulate,
}  # fmt: skip


def get_response_synthesizer(
    llm: LLM | str | None = None,
    prompt_helper: PromptHelper | None = None,
    text_qa_template: BasePromptTemplate | None = None,
    refine_template: BasePromptTemplate | None = None,
    summary_template: BasePromptTemplate | None = None,
    simple_template: BasePromptTemplate | None = None,
    response_mode: ResponseMode | str = ResponseMode.COMPACT,
    callback_manager: Any = None,
    use_async: bool = False,
    streaming: bool = False,
    structured_answer_filtering: bool = False,
    output_cls: type[BaseModel] | None = None,
    program_factory: Callable[[BasePromptTemplate], Any] | None = None,
    verbose: bool = False,
) -> BaseSynthesizer:
    """Return the synthesizer of a mode. Prompts that the mode does not use are ignored.

    Raises:
        ValueError: The mode is unknown, or an option does not go with it.

    Example:
        >>> get_response_synthesizer(llm=llm, response_mode="tree_summarize")
    """
    if (cls := _CLASSES.get(response_mode)) is None:
        raise ValueError(f"Unknown mode: {response_mode}; the modes are {', '.join(_CLASSES)}")
    templates = {
        "text_qa_template": text_qa_template,
        "refine_template": refine_template,
        "summary_template": summary_template,
        "simple_template": simple_template,
    }
    options: dict[str, Any] = {name: one for name, one in templates.items() if name in cls.prompt_defaults}
    if issubclass(cls, Refine):
        options.update(structured_answer_filtering=structured_answer_filtering, program_factory=program_factory)
    elif program_factory is not None and not structured_answer_filtering:
        raise ValueError("Program factory not supported without structured answer filtering: set both")
    return cls(
        llm,
        callback_manager,
        prompt_helper,
        streaming=streaming,
        output_cls=output_cls,
        use_async=use_async,
        verbose=verbose,
        **options,
    )
