"""The methods of a model that take a prompt: text answers, structured answers, and single tool calls."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, Field

from batonflow import llms
from batonflow.instrumentation import events, get_dispatcher
from batonflow.llms._bridge import closed_after, iterate_sync, run_sync
from batonflow.llms.as_data import AsData
from batonflow.llms.messages import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    LLMMetadata,
    MessageRole,
    Model,
    PydanticProgramMode,
    TokenAsyncGen,
    TokenGen,
)
from batonflow.llms.prompts.base import BasePromptTemplate, PromptTemplate
from batonflow.llms.stream import Watch

if TYPE_CHECKING:
    from batonflow.llms.json_text import PartialModel
    from batonflow.llms.predict_and_call import AgentChatResponse
    from batonflow.llms.structured import Outcome

__all__ = ["Predicting", "after_system_prompt"]

_dispatcher = get_dispatcher(__name__)

# These options depend on the way to the structured answer.
_NOT_OPTIONS = ("tools", "tool_choice", "tool_required", "allow_parallel_tool_calls", "output_schema")


class Predicting(AsData, ABC):
    """The part of ``LLM`` that is built on chat and completion.

    Args:
        system_prompt: The first message of every prompt here; agents have a system prompt of their own.
        messages_to_prompt: Turns a conversation into text, for models that complete.
        completion_to_prompt: Formats a prompt for such a model.
        query_wrapper_prompt: A template around the prompt of such a model, with ``{query_str}``.
        output_parser: Its ``format`` and ``parse`` are applied to prompts and text answers.
        pydantic_program_mode: The way to a structured answer (see ``PydanticProgramMode``).
        structured_retries: The number of retries after a structured answer that does not fit.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    system_prompt: str | None = None
    messages_to_prompt: Any = None
    completion_to_prompt: Any = None
    query_wrapper_prompt: Any = None
    output_parser: Any = None
    pydantic_program_mode: Any = PydanticProgramMode.DEFAULT
    structured_retries: int = Field(default=2, ge=0)

    @property
    @abstractmethod
    def metadata(self) -> LLMMetadata:
        """The properties of the model."""

    @property
    @abstractmethod
    def native_output_schema(self) -> bool:
        """Return whether the vendor enforces a JSON schema."""

    @property
    @abstractmethod
    def _watchable_stream(self) -> bool:
        """Return whether ``_watched_chat`` passes the events of the stream."""

    @abstractmethod
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Send a conversation and return the whole response."""

    @abstractmethod
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """Send a conversation and stream the response."""

    @abstractmethod
    def _watched_chat(
        self, messages: Sequence[ChatMessage], kwargs: dict[str, Any], watch: Watch
    ) -> ChatResponseAsyncGen:
        """Stream the response, and call ``watch`` with each event of the stream."""

    @abstractmethod
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Complete a prompt."""

    @abstractmethod
    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        """Complete a prompt and stream the completion."""

    # Text

    @_dispatcher.span
    async def apredict(self, prompt: BasePromptTemplate | str, **prompt_args: Any) -> str:
        """Fill in a prompt, send it and return the answer.

        Args:
            prompt: The template; a text without arguments is sent unchanged.
            **prompt_args: Values for its placeholders.

        Raises:
            LLMError: One of its subclasses.

        Example:
            >>> await llm.apredict(PromptTemplate("Name a {thing}."), thing="tide")
        """
        _announce(prompt, prompt_args)
        if self.metadata.is_chat_model:
            output = (await self.achat(_prompt_messages(self, prompt, prompt_args))).message.content or ""
        else:
            output = (await self.acomplete(_prompt_text(self, prompt, prompt_args), formatted=True)).text
        if self.output_parser is not None:
            output = str(self.output_parser.parse(output))
        if _dispatcher.enabled:
            _dispatcher.event(events.llm.LLMPredictEndEvent(output=output))
        return output

    def predict(self, prompt: BasePromptTemplate | str, **prompt_args: Any) -> str:
        """The synchronous form of :meth:`apredict`."""
        return run_sync(self.apredict(prompt, **prompt_args))

    async def astream(self, prompt: BasePromptTemplate | str, **prompt_args: Any) -> TokenAsyncGen:
        """Fill in a prompt, send it and stream the answer as text. Await the call, then iterate.

        Args:
            prompt: The template; a text without arguments is sent unchanged.
            **prompt_args: Values for its placeholders.

        Raises:
            NotImplementedError: There is an output parser, which needs the whole answer.

        Example:
            >>> async for token in await llm.astream("Tell me of the tides."):
            ...     print(token, end="")
        """
        if self.output_parser is not None or getattr(prompt, "output_parser", None) is not None:
            raise NotImplementedError("an output parser needs the whole answer: use predict, or remove the parser")
        return _tokens(self, prompt, prompt_args)

    def stream(self, prompt: BasePromptTemplate | str, **prompt_args: Any) -> TokenGen:
        """The synchronous form of :meth:`astream`; the call returns the generator at once."""
        return iterate_sync(run_sync(self.astream(prompt, **prompt_args)))

    # Structured answers

    async def astructured_predict(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate | str,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Model:
        """Fill in a prompt, send it and return the answer as an instance of a pydantic model.

        An answer that does not fit is sent back with its errors, up to ``structured_retries`` times.

        Args:
            output_cls: The class of the answer.
            prompt: The template; a text without arguments is sent unchanged.
            llm_kwargs: Options of the call.
            **prompt_args: Values for the prompt's placeholders.

        Raises:
            TypeError: ``output_cls`` is not a pydantic model class.
            StructuredOutputError: The answer does not fit; pydantic's error is the cause. It is a ValueError.
            RefusalError: The model refuses to answer.
            NoToolCallError: The model did not call the required tool. It is a ValueError.
            LLMError: Another of its subclasses.

        Example:
            >>> song = await llm.astructured_predict(Song, PromptTemplate("A song of {topic}"), topic="tides")
        """
        messages = _filled_messages(self, prompt, prompt_args)
        pieces = self._structured_pieces(output_cls, messages, llm_kwargs or {}, template=prompt, args=prompt_args)
        return await llms.structured.last_output(pieces)

    def structured_predict(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate | str,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Model:
        """The synchronous form of :meth:`astructured_predict`."""
        return run_sync(self.astructured_predict(output_cls, prompt, llm_kwargs, **prompt_args))

    async def astream_structured_predict(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate | str,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> "AsyncGenerator[Model | PartialModel, None]":
        """Stream the answer of :meth:`astructured_predict`. Await the call, then iterate.

        Args:
            output_cls: The class of the answer.
            prompt: The template; a text without arguments is sent unchanged.
            llm_kwargs: Options of the call.
            **prompt_args: Values for the prompt's placeholders.

        Returns:
            A generator of partial models, in which missing fields are None, and last of the validated instance. A retry
            starts the partial models again.

        Example:
            >>> async for song in await llm.astream_structured_predict(Song, "A song of the tides"):
            ...     print(song.title)
        """
        llms.structured.Form(output_cls)  # raise TypeError here, not at the first iteration
        messages = _filled_messages(self, prompt, prompt_args)
        return llms.structured.outputs(
            self._structured_pieces(
                output_cls, messages, llm_kwargs or {}, stream=True, template=prompt, args=prompt_args
            )
        )

    def stream_structured_predict(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate | str,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> "Generator[Model | PartialModel, None, None]":
        """The synchronous form of :meth:`astream_structured_predict`."""
        return iterate_sync(run_sync(self.astream_structured_predict(output_cls, prompt, llm_kwargs, **prompt_args)))

    def as_structured_llm(self, output_cls: type[BaseModel], **kwargs: Any) -> "llms.StructuredLLM":
        """Return a model that answers with instances of ``output_cls``.

        Args:
            output_cls: The class of the answers.
            **kwargs: Fields of the new model.

        Raises:
            TypeError: ``output_cls`` is not a pydantic model class.

        Example:
            >>> song = (await llm.as_structured_llm(Song).achat([ChatMessage("A song of the tides")])).raw
        """
        llms.structured.Form(output_cls)
        return llms.StructuredLLM(llm=cast("llms.LLM", self), output_cls=output_cls, **kwargs)

    @_dispatcher.span
    async def _structured_pieces(
        self,
        output_cls: type[Model],
        messages: Sequence[ChatMessage],
        options: dict[str, Any],
        *,
        stream: bool = False,
        template: Any = None,
        args: dict[str, Any] | None = None,
    ) -> "AsyncGenerator[PartialModel | Outcome[Model], None]":
        """Yield partial models if streamed, then the outcome of the structured answer."""
        pieces = llms.structured.stream_pieces(
            self,
            output_cls,
            messages,
            {name: value for name, value in options.items() if name not in _NOT_OPTIONS},
            self._watched_calls,
            stream=stream,
            marks_end=self._watchable_stream,
            template=template,
            args=args,
        )
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    def _watched_calls(
        self,
        messages: list[ChatMessage],  # noqa: ARG002 - for models that take tools
        options: dict[str, Any],  # noqa: ARG002
        watch: Watch,  # noqa: ARG002
    ) -> ChatResponseAsyncGen | None:
        """Stream ``astream_chat_with_tools`` and call ``watch`` with its events; None when this is not possible."""
        return None

    # Tools

    async def apredict_and_call(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        verbose: bool = False,  # noqa: ARG002 - for compatibility
        **kwargs: Any,
    ) -> "AgentChatResponse":
        """Let the model choose a tool, call it, and return its output. The model does not get the output.

        A model that takes no tools reads about them in the prompt (see ``batonflow.llms.react_text``).

        Args:
            tools: The tools.
            user_msg: The next message, after ``chat_history``.
            chat_history: The conversation so far.
            verbose: Ignored.
            **kwargs: ``react_chat_formatter`` and ``output_parser``; for models that take tools
                ``allow_parallel_tool_calls``, ``error_on_no_tool_call`` and ``error_on_tool_error``; and options of
                the call.

        Returns:
            The tool's output, or the model's answer without a tool. The output of a failed tool has the error.

        Raises:
            NoToolCallError: A required call is missing. It is a ValueError.
            ToolCallError: Several calls where one is allowed. It is a ValueError.

        Example:
            >>> print(await llm.apredict_and_call([add], "What is 2 + 40?"))
        """
        formatter, parser = kwargs.pop("react_chat_formatter", None), kwargs.pop("output_parser", None)
        for name in (*_NOT_OPTIONS, "error_on_no_tool_call", "error_on_tool_error"):
            kwargs.pop(name, None)
        ask = partial(self.achat, **kwargs)
        step = llms.predict_and_call
        return await step.react_step(ask, tools, step.conversation(user_msg, chat_history), formatter, parser)

    def predict_and_call(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        verbose: bool = False,
        **kwargs: Any,
    ) -> "AgentChatResponse":
        """The synchronous form of :meth:`apredict_and_call`."""
        return run_sync(self.apredict_and_call(tools, user_msg, chat_history, verbose, **kwargs))


async def _tokens(llm: Predicting, prompt: BasePromptTemplate | str, prompt_args: dict[str, Any]) -> TokenAsyncGen:
    _announce(prompt, prompt_args)
    written: list[str] = []
    text: str | None = None
    if llm.metadata.is_chat_model:
        response: ChatResponse | None = None
        responses = await llm.astream_chat(_prompt_messages(llm, prompt, prompt_args))
        async with closed_after(responses):
            async for response in responses:
                if response.delta:
                    written.append(response.delta)
                    yield response.delta
        text = response and response.message.content
    else:
        completions = await llm.astream_complete(_prompt_text(llm, prompt, prompt_args), formatted=True)
        async with closed_after(completions):
            async for completion in completions:
                text = completion.text
                if completion.delta:
                    written.append(completion.delta)
                    yield completion.delta
    if text and not written:
        # The chunks of this model have no deltas.
        written.append(text)
        yield text
    if _dispatcher.enabled:
        _dispatcher.event(events.llm.LLMPredictEndEvent(output="".join(written)))


def _prompt_messages(
    llm: Predicting, prompt: BasePromptTemplate | str, prompt_args: dict[str, Any]
) -> list[ChatMessage]:
    messages = _filled_messages(llm, prompt, prompt_args)
    return messages if llm.output_parser is None else llm.output_parser.format_messages(messages)


def after_system_prompt(llm: Predicting, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return ``messages`` after the model's system prompt, if it has one."""
    system = [ChatMessage(llm.system_prompt, role=MessageRole.SYSTEM)] if llm.system_prompt else []
    return [*system, *messages]


def _filled_messages(
    llm: Predicting, prompt: BasePromptTemplate | str, prompt_args: dict[str, Any]
) -> list[ChatMessage]:
    if isinstance(prompt, str):
        messages = [ChatMessage(_filled(prompt, prompt_args))]
    else:
        messages = prompt.format_messages(llm=llm, **prompt_args)
    return after_system_prompt(llm, messages)


def _prompt_text(llm: Predicting, prompt: BasePromptTemplate | str, prompt_args: dict[str, Any]) -> str:
    dress, join = llm.completion_to_prompt, llm.messages_to_prompt
    if isinstance(prompt, str):
        text = _filled(prompt, prompt_args)
        text = text if dress is None else dress(text)
    else:
        ways = {"completion_to_prompt": dress, "messages_to_prompt": join}
        ways = {name: way for name, way in ways.items() if way is not None}
        text = prompt.format(llm=llm, **ways, **prompt_args)
    if llm.output_parser is not None:
        text = llm.output_parser.format(text)
    if llm.system_prompt:
        text = f"{llm.system_prompt}\n\n{text}"
    return text if llm.query_wrapper_prompt is None else llm.query_wrapper_prompt.format(query_str=text)


def _announce(prompt: BasePromptTemplate | str, prompt_args: dict[str, Any]) -> None:
    if _dispatcher.enabled:
        _dispatcher.event(events.llm.LLMPredictStartEvent(template=prompt, template_args=prompt_args))


def _filled(text: str, values: dict[str, Any]) -> str:
    # A text without values is not a template, and keeps its double braces.
    return PromptTemplate(text).format(**values) if values else text
