"""Models that take tools."""

import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import SerializeAsAny

from batonflow import llms
from batonflow.llms.base import LLM, is_same_method
from batonflow.llms.call_tracing import dispatcher as _dispatcher
from batonflow.llms.errors import NoToolCallError
from batonflow.llms.messages import ChatMessage, ChatResponse, ChatResponseAsyncGen, ChatResponseGen, LLMMetadata
from batonflow.llms.stream import StreamEvent, Watch, current_gates, generated
from batonflow.llms.tool_protocol import ToolSelection, tool_selections
from batonflow.user_warnings import warn_user

if TYPE_CHECKING:
    from batonflow.llms.predict_and_call import AgentChatResponse

__all__ = ["FunctionCallingLLM", "WrappedLLM", "label"]


@lru_cache(maxsize=256)
def _way_of_tool_required(function: Callable[..., Any]) -> str:
    """How a ``_prepare_chat_with_tools`` takes ``tool_required``: ``always``, ``when asked`` or ``never``."""
    parameters = inspect.signature(function).parameters
    named = parameters.get("tool_required")
    if named is not None and named.default is named.empty:
        return "always"
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return "when asked" if named is not None or takes_all else "never"


class FunctionCallingLLM(LLM):
    """A model that takes tools and answers with calls of them.

    Adapters need nothing beyond ``_stream``: ``request.tools`` and ``request.tool_choice`` are there. A subclass that
    wants to send tools its own way overrides ``_prepare_chat_with_tools``.
    """

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        verbose: bool = False,  # noqa: ARG002 - part of the contract; adapters have nothing to print
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The keyword arguments with which ``chat`` is to be called for a request with tools."""
        messages = list(chat_history or ())
        if user_msg is not None:
            messages.append(ChatMessage(user_msg) if isinstance(user_msg, str) else user_msg)
        prepared: dict[str, Any] = {**kwargs, "messages": messages}
        if tools:
            prepared["tools"] = list(tools)
            prepared["parallel_tool_calls"] = allow_parallel_tool_calls
            if tool_required:
                prepared.setdefault("tool_choice", "required")
        else:
            # Vendors refuse a choice among no tools.
            prepared.pop("tool_choice", None)
        return prepared

    def _prepare(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None,
        chat_history: Sequence[ChatMessage] | None,
        verbose: bool,
        allow_parallel_tool_calls: bool,
        tool_required: bool,
        kwargs: dict[str, Any],
    ) -> dict[str, Any]:
        """Call ``_prepare_chat_with_tools``, also one written before ``tool_required`` existed."""
        if type(self)._prepare_chat_with_tools is _PREPARE:
            return self._prepare_chat_with_tools(
                tools, user_msg, chat_history, verbose, allow_parallel_tool_calls, tool_required, **kwargs
            )
        arguments: dict[str, Any] = {
            "user_msg": user_msg,
            "chat_history": chat_history,
            "verbose": verbose,
            "allow_parallel_tool_calls": allow_parallel_tool_calls,
            **kwargs,
        }
        function: Any = getattr(self._prepare_chat_with_tools, "__func__", self._prepare_chat_with_tools)
        way = _way_of_tool_required(function)
        # Among the options of one that takes all of them, it would go on to its vendor.
        if way == "always" or (way == "when asked" and tool_required):
            arguments["tool_required"] = tool_required
        elif tool_required:
            warn_user(
                f"{type(self).__name__}._prepare_chat_with_tools has no parameter tool_required: the model may answer "
                "without calling a tool"
            )
        return self._prepare_chat_with_tools(tools, **arguments)

    async def achat_with_tools(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> ChatResponse:
        """Send a conversation with tools and wait for the whole answer.

        Args:
            tools: What the model may call.
            user_msg: The next message, after ``chat_history``.
            chat_history: The conversation so far.
            verbose: Kept for the contract.
            allow_parallel_tool_calls: Whether several calls may come at once.
            tool_required: Whether the answer must be a call.
            **kwargs: ``tool_choice`` and the vendor's own options.

        Raises:
            LLMError: One of its subclasses.

        Example:
            >>> response = await llm.achat_with_tools([add], user_msg="What is 2 + 40?")
            >>> calls = llm.get_tool_calls_from_response(response)
        """
        prepared = self._prepare(
            tools, user_msg, chat_history, verbose, allow_parallel_tool_calls, tool_required, kwargs
        )
        response = await self.achat(**prepared)
        return self._validate_chat_with_tools_response(response, tools, allow_parallel_tool_calls, **kwargs)

    async def astream_chat_with_tools(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> ChatResponseAsyncGen:
        """The same in pieces. Await the call, then iterate; a tool call shows as soon as its arguments are whole."""
        prepared = self._prepare(
            tools, user_msg, chat_history, verbose, allow_parallel_tool_calls, tool_required, kwargs
        )
        return await self.astream_chat(**prepared)

    def events_with_tools(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> AsyncGenerator[StreamEvent, None] | None:
        """What :meth:`astream_chat_with_tools` makes its responses of, for who can do without most of them.

        Returns:
            The events of the stream; None when something stands between them and the responses, as a method of a
            subclass, a trace or a limit does.
        """
        if _dispatcher.enabled or current_gates() or not self._takes_stream_with_tools:
            return None
        prepared = dict(
            self._prepare(tools, user_msg, chat_history, verbose, allow_parallel_tool_calls, tool_required, kwargs)
        )
        return generated(self._stream(self._request(prepared.pop("messages"), prepared)), type(self).__name__)

    @property
    def takes_stream_option_with_tools(self) -> bool:
        """Tell whether ``stream=False`` may be among the options of ``achat_with_tools``."""
        own = (
            is_same_method(self.achat_with_tools, _ACHAT_WITH_TOOLS) and type(self)._prepare_chat_with_tools is _PREPARE
        )
        return own and self.takes_stream_option

    @property
    def _takes_stream_with_tools(self) -> bool:
        return self._watchable_stream and is_same_method(self.astream_chat_with_tools, _WITH_TOOLS)

    def _watched_calls(
        self, messages: list[ChatMessage], options: dict[str, Any], watch: Watch
    ) -> ChatResponseAsyncGen | None:
        if not self._takes_stream_with_tools:
            return None
        others = {name: value for name, value in options.items() if name not in {"tools", "tool_required"}}
        prepared = self._prepare(options["tools"], None, messages, False, False, options["tool_required"], others)
        return self._watched_chat(prepared.pop("messages"), prepared, watch)

    def chat_with_tools(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> ChatResponse:
        """The same as :meth:`achat_with_tools` for synchronous code."""
        prepared = self._prepare(
            tools, user_msg, chat_history, verbose, allow_parallel_tool_calls, tool_required, kwargs
        )
        response = self.chat(**prepared)
        return self._validate_chat_with_tools_response(response, tools, allow_parallel_tool_calls, **kwargs)

    def stream_chat_with_tools(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> ChatResponseGen:
        """The same as :meth:`astream_chat_with_tools` for synchronous code."""
        prepared = self._prepare(
            tools, user_msg, chat_history, verbose, allow_parallel_tool_calls, tool_required, kwargs
        )
        return self.stream_chat(**prepared)

    def _validate_chat_with_tools_response(
        self,
        response: ChatResponse,
        tools: Sequence[Any],  # noqa: ARG002 - for subclasses
        allow_parallel_tool_calls: bool = False,  # noqa: ARG002 - for subclasses
        **kwargs: Any,  # noqa: ARG002 - for subclasses
    ) -> ChatResponse:
        """What is made of a whole answer to a request with tools; subclasses may leave calls out."""
        return response

    def get_tool_calls_from_response(
        self,
        response: ChatResponse,
        error_on_no_tool_call: bool = True,
        **kwargs: Any,  # noqa: ARG002 - part of the contract
    ) -> list[ToolSelection]:
        """The calls an answer asks for.

        Args:
            response: The answer.
            error_on_no_tool_call: Whether it is an error if there are none.
            **kwargs: Kept for the contract.

        Raises:
            NoToolCallError: There are none; the message holds what the model said instead.
        """
        selections = tool_selections(response.message)
        if not selections and error_on_no_tool_call:
            raise NoToolCallError(
                f"a tool call was expected, and the model answered: {response.message.content!r}",
                model=self.metadata.model_name,
            )
        return selections

    async def apredict_and_call(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        verbose: bool = False,
        **kwargs: Any,
    ) -> "AgentChatResponse":
        """Let the model choose a tool, call it, and give back its output; see ``LLM.apredict_and_call``."""
        if not self.metadata.is_function_calling_model:
            return await super().apredict_and_call(tools, user_msg, chat_history, verbose, **kwargs)
        parallel = kwargs.pop("allow_parallel_tool_calls", False)
        needs_call = kwargs.pop("error_on_no_tool_call", True)
        needs_success = kwargs.pop("error_on_tool_error", False)
        response = await self.achat_with_tools(
            tools,
            user_msg=user_msg,
            chat_history=None if chat_history is None else list(chat_history),
            verbose=verbose,
            allow_parallel_tool_calls=parallel,
            **kwargs,
        )
        calls = self.get_tool_calls_from_response(response, error_on_no_tool_call=needs_call)
        return await llms.predict_and_call.called(tools, response, calls, parallel, needs_success)


_PREPARE = FunctionCallingLLM._prepare_chat_with_tools  # pyright: ignore[reportPrivateUsage]
_ACHAT_WITH_TOOLS = FunctionCallingLLM.achat_with_tools
_WITH_TOOLS = FunctionCallingLLM.astream_chat_with_tools


def label(llm: LLM) -> str:
    """How a model is called where several are told apart: its kind and its name."""
    return f"{llm.class_name()} {llm.metadata.model_name}"


class WrappedLLM(FunctionCallingLLM):
    """A model in front of another one. Subclasses write ``_stream`` and ask ``self.llm._stream``.

    Args:
        llm: The model behind.
    """

    llm: SerializeAsAny[LLM]

    def __init__(self, llm: LLM, **data: Any) -> None:
        data["llm"] = llm
        super().__init__(**data)

    @property
    def metadata(self) -> LLMMetadata:
        """Of the model behind."""
        return self.llm.metadata

    @property
    def native_output_schema(self) -> bool:
        """Of the model behind."""
        return self.llm.native_output_schema

    async def aclose(self) -> None:
        """Close the model behind."""
        await self.llm.aclose()
