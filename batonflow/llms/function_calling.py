"""Models that take tools, and models that wrap another model."""

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
from batonflow.llms.stream import StreamEvent, Watch, checked_stream, current_gates, recorded_call
from batonflow.llms.tool_protocol import ToolSelection, tool_selections
from batonflow.llms.usage import Usage
from batonflow.user_warnings import warn_user

if TYPE_CHECKING:
    from batonflow.llms.predict_and_call import AgentChatResponse

__all__ = ["FunctionCallingLLM", "WrappedLLM", "label"]


@lru_cache(maxsize=256)
def _way_of_tool_required(function: Callable[..., Any]) -> str:
    """Return whether ``_prepare_chat_with_tools`` takes ``tool_required``: ``always``, ``when asked`` or ``never``."""
    parameters = inspect.signature(function).parameters
    named = parameters.get("tool_required")
    if named is not None and named.default is named.empty:
        return "always"
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return "when asked" if named is not None or takes_all else "never"


class FunctionCallingLLM(LLM):
    """A model that takes tools and answers with tool calls.

    Adapters implement ``_stream`` only and read ``request.tools`` and ``request.tool_choice``. A subclass that sends
    tools in another form overrides ``_prepare_chat_with_tools``.
    """

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        verbose: bool = False,  # noqa: ARG002 - for compatibility
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the keyword arguments of ``chat`` for a request with tools."""
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
            # Vendors refuse a tool choice without tools.
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
        """Call ``_prepare_chat_with_tools``, with or without its parameter ``tool_required``."""
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
        # An override with **kwargs would pass it on to its vendor.
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
        """Send a conversation with tools and return the whole response.

        Args:
            tools: The tools.
            user_msg: The next message, after ``chat_history``.
            chat_history: The conversation so far.
            verbose: Ignored.
            allow_parallel_tool_calls: Whether the response may have several calls.
            tool_required: Whether the response must be a call.
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
        """Stream the response of :meth:`achat_with_tools`. A tool call appears when its arguments are complete."""
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
        """Return the events behind :meth:`astream_chat_with_tools`, for callers that need few responses.

        Returns:
            The events of the stream; None when a subclass, a trace or a limit has to see the responses.
        """
        if _dispatcher.enabled or current_gates() or not self._takes_stream_with_tools:
            return None
        prepared = dict(
            self._prepare(tools, user_msg, chat_history, verbose, allow_parallel_tool_calls, tool_required, kwargs)
        )
        request = self._request(prepared.pop("messages"), prepared)
        return recorded_call(checked_stream(self._stream(request), type(self).__name__), self, request)

    @property
    def takes_stream_option_with_tools(self) -> bool:
        """Return whether ``achat_with_tools`` accepts ``stream=False``."""
        is_unchanged = (
            is_same_method(self.achat_with_tools, _ACHAT_WITH_TOOLS) and type(self)._prepare_chat_with_tools is _PREPARE
        )
        return is_unchanged and self.takes_stream_option

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
        """The synchronous form of :meth:`achat_with_tools`."""
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
        """The synchronous form of :meth:`astream_chat_with_tools`."""
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
        """Return the response to a request with tools; subclasses may remove calls."""
        return response

    def get_tool_calls_from_response(
        self,
        response: ChatResponse,
        error_on_no_tool_call: bool = True,
        **kwargs: Any,  # noqa: ARG002 - part of the contract
    ) -> list[ToolSelection]:
        """Return the tool calls of a response.

        Args:
            response: The response.
            error_on_no_tool_call: Whether to raise an error when there are no calls.
            **kwargs: Ignored.

        Raises:
            NoToolCallError: There are no calls; the message has the text of the response.
        """
        selections = tool_selections(response.message)
        if not selections and error_on_no_tool_call:
            raise NoToolCallError(
                f"a tool call was expected, and the model answered: {response.message.content!r}. "
                "Pass error_on_no_tool_call=False where an answer without calls is fine",
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
        """Let the model choose a tool, call it, and return its output; see ``LLM.apredict_and_call``."""
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
        return await llms.predict_and_call.run_calls(tools, response, calls, parallel, needs_success)


_PREPARE = FunctionCallingLLM._prepare_chat_with_tools  # pyright: ignore[reportPrivateUsage]
_ACHAT_WITH_TOOLS = FunctionCallingLLM.achat_with_tools
_WITH_TOOLS = FunctionCallingLLM.astream_chat_with_tools


def label(llm: LLM) -> str:
    """Return the class and the name of a model, to tell several models apart."""
    return f"{llm.class_name()} {llm.metadata.model_name}"


class WrappedLLM(FunctionCallingLLM):
    """A wrapper around a model. Subclasses implement ``_stream`` and use ``self.llm._stream``.

    Args:
        llm: The wrapped model.
    """

    llm: SerializeAsAny[LLM]

    def __init__(self, llm: LLM, **data: Any) -> None:
        data["llm"] = llm
        super().__init__(**data)

    @property
    def metadata(self) -> LLMMetadata:
        """The metadata of the wrapped model."""
        return self.llm.metadata

    @property
    def native_output_schema(self) -> bool:
        """Return whether the wrapped model enforces a JSON schema."""
        return self.llm.native_output_schema

    def cost_of(self, usage: Usage) -> float | None:
        """Return the cost of a request, by the price of this model or of the wrapped one."""
        return self.llm.cost_of(usage) if self.price is None else super().cost_of(usage)

    async def aclose(self) -> None:
        """Close the wrapped model."""
        await self.llm.aclose()
