"""What every model can do with a prompt: answer it in words, answer it in a form, or call a tool for it."""

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

# Decided by the way in which the form is reached.
_NOT_OPTIONS = ("tools", "tool_choice", "tool_required", "allow_parallel_tool_calls", "output_schema")


class Predicting(AsData, ABC):
    """The part of ``LLM`` that is made of chat and completion.

    Args:
        system_prompt: Stands before every prompt here; agents have a system prompt of their own.
        messages_to_prompt: How a conversation becomes one text, for models that only complete.
        completion_to_prompt: How a prompt is dressed for such a model.
        query_wrapper_prompt: For models that only complete: a template around the prompt, with ``{query_str}``.
        output_parser: Its ``format`` and ``parse`` are applied to prompts and answers in words.
        pydantic_program_mode: How the form of a structured answer is reached (see ``PydanticProgramMode``).
        structured_retries: How often a model whose structured answer does not fit is told so and asked again.
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
        """What is known of the model."""

    @property
    @abstractmethod
    def native_output_schema(self) -> bool:
        """Whether the vendor can hold an answer to a JSON schema."""

    @property
    @abstractmethod
    def _watchable_stream(self) -> bool:
        """Whether ``_watched_chat`` shows the events of the stream."""

    @abstractmethod
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Send a conversation and wait for the whole answer."""

    @abstractmethod
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """Send a conversation; the answer comes in pieces."""

    @abstractmethod
    def _watched_chat(
        self, messages: Sequence[ChatMessage], kwargs: dict[str, Any], watch: Watch
    ) -> ChatResponseAsyncGen:
        """The same, each event of the stream being shown to ``watch``."""

    @abstractmethod
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Complete a prompt."""

    @abstractmethod
    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        """Complete a prompt in pieces."""

    # Words

    @_dispatcher.span
    async def apredict(self, prompt: BasePromptTemplate | str, **prompt_args: Any) -> str:
        """Fill in a prompt and wait for the answer.

        Args:
            prompt: The template; a text without arguments is taken as it is.
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
        """The same as :meth:`apredict` for synchronous code."""
        return run_sync(self.apredict(prompt, **prompt_args))

    async def astream(self, prompt: BasePromptTemplate | str, **prompt_args: Any) -> TokenAsyncGen:
        """Fill in a prompt; the answer comes in pieces of text. Await the call, then iterate.

        Args:
            prompt: The template; a text without arguments is taken as it is.
            **prompt_args: Values for its placeholders.

        Raises:
            NotImplementedError: There is an output parser, which wants the whole answer.

        Example:
            >>> async for token in await llm.astream("Tell me of the tides."):
            ...     print(token, end="")
        """
        if self.output_parser is not None or getattr(prompt, "output_parser", None) is not None:
            raise NotImplementedError("an output parser wants the whole answer: use predict, or take the parser out")
        return _tokens(self, prompt, prompt_args)

    def stream(self, prompt: BasePromptTemplate | str, **prompt_args: Any) -> TokenGen:
        """The same as :meth:`astream` for synchronous code; the call returns the generator at once."""
        return iterate_sync(run_sync(self.astream(prompt, **prompt_args)))

    # Forms

    async def astructured_predict(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate | str,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Model:
        """Fill in a prompt and have it answered as an instance of a pydantic model.

        An answer that does not fit goes back to the model with what is wrong, ``structured_retries`` times.

        Args:
            output_cls: What the answer is to be an instance of.
            prompt: The template; a text without arguments is taken as it is.
            llm_kwargs: Options of the call.
            **prompt_args: Values for the prompt's placeholders.

        Raises:
            TypeError: ``output_cls`` is no pydantic model class.
            StructuredOutputError: The answer does not fit; pydantic's error is the cause. It is a ValueError.
            RefusalError: The model declines.
            NoToolCallError: The model was to call a tool and did not. It is a ValueError.
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
        """The same as :meth:`astructured_predict` for synchronous code."""
        return run_sync(self.astructured_predict(output_cls, prompt, llm_kwargs, **prompt_args))

    async def astream_structured_predict(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate | str,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> "AsyncGenerator[Model | PartialModel, None]":
        """The same in pieces. Await the call, then iterate.

        Args:
            output_cls: What the answer is to be an instance of.
            prompt: The template; a text without arguments is taken as it is.
            llm_kwargs: Options of the call.
            **prompt_args: Values for the prompt's placeholders.

        Returns:
            A generator of partial models, whose fields are None until they have arrived, and last of the validated
            instance. When an answer did not fit and the model is asked again, the partial models begin anew.

        Example:
            >>> async for song in await llm.astream_structured_predict(Song, "A song of the tides"):
            ...     print(song.title)
        """
        llms.structured.Form(output_cls)  # refuses what is no model class now, not when the first piece is asked for
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
        """The same as :meth:`astream_structured_predict` for synchronous code."""
        return iterate_sync(run_sync(self.astream_structured_predict(output_cls, prompt, llm_kwargs, **prompt_args)))

    def as_structured_llm(self, output_cls: type[BaseModel], **kwargs: Any) -> "llms.StructuredLLM":
        """A model that gives every answer as an instance of ``output_cls``.

        Args:
            output_cls: What answers are to be instances of.
            **kwargs: Fields of the new model.

        Raises:
            TypeError: ``output_cls`` is no pydantic model class.

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
        """The answer to ``messages`` in the form of ``output_cls``: partial models if streamed, then the outcome."""
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
        """``astream_chat_with_tools``, ``watch`` being shown the stream's events; None when they cannot be seen."""
        return None

    # Tools

    async def apredict_and_call(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        verbose: bool = False,  # noqa: ARG002 - part of the contract; there is nothing to print
        **kwargs: Any,
    ) -> "AgentChatResponse":
        """Let the model choose a tool, call it, and give back its output; one step, without the model seeing it.

        A model that takes no tools is told of them in words (see ``batonflow.llms.react_text``).

        Args:
            tools: What it may use.
            user_msg: The next message, after ``chat_history``.
            chat_history: The conversation so far.
            verbose: Kept for the contract.
            **kwargs: ``react_chat_formatter`` and ``output_parser``; for models that take tools
                ``allow_parallel_tool_calls``, ``error_on_no_tool_call`` and ``error_on_tool_error``; and options of
                the call.

        Returns:
            The tool's output, or the model's answer if it needed none. A tool that fails gives an output that says so.

        Raises:
            NoToolCallError: A call was demanded and none came. It is a ValueError.
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
        """The same as :meth:`apredict_and_call` for synchronous code."""
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
        # A model that does not say what is new in a piece.
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
    """``messages`` after the model's system prompt, if it has one."""
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
    # Without values a text is no template, and its double braces are double braces.
    return PromptTemplate(text).format(**values) if values else text
