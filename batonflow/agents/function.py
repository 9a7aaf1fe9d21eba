"""FunctionAgent: an agent with native tool calls, and a scratchpad for the messages of a turn."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, overload

from pydantic import Field, model_validator

from batonflow.agents import layers
from batonflow.agents.asking import (
    NOT_WHOLE,
    PAUSED,
    streamed,
    streamed_events,
    turn_shown,
    unpaused,
    whole_answer,
    with_reason,
)
from batonflow.agents.base import BaseWorkflowAgent
from batonflow.agents.events import AgentInput, AgentOutput, ToolCallResult, raw_of
from batonflow.agents.ledger import has_options
from batonflow.agents.members import HANDOFF_TOOL
from batonflow.agents.memory import BaseMemory
from batonflow.agents.memory.turns import is_question, observation
from batonflow.agents.tool_calls import output_here
from batonflow.llms import ChatMessage, ChatResponse, FunctionCallingLLM, MessageRole
from batonflow.llms.blocks import in_words
from batonflow.llms.lazy_fields import assembled
from batonflow.llms.tool_protocol import tool_selections, wire_name
from batonflow.tools import AsyncBaseTool, ToolSelection
from batonflow.tools.schema import context_for
from batonflow.workflow_core import Context
from batonflow.workflow_core.typed import AgentDepsT, OutT

if TYPE_CHECKING:
    from typing_extensions import TypeForm, Unpack

    from batonflow.agents.options import BT, DT, FunctionAgentOptions, T

__all__ = ["FunctionAgent", "ScratchpadAgent", "messages_of_turn", "move_into", "tool_message"]


_CHOICES = ("auto", "required", "none")


def tool_message(result: ToolCallResult) -> ChatMessage:
    """Return the message for the result of a native call, marked as an error if the call failed."""
    output = result.tool_output
    about: dict[str, Any] = {"tool_call_id": result.tool_id}
    if output.is_error:
        about["is_error"] = True
    return assembled(ChatMessage, {"role": MessageRole.TOOL, "additional_kwargs": about, "blocks": list(output.blocks)})


async def move_into(memory: BaseMemory, messages: list[ChatMessage], ctx: Context[Any], key: str) -> None:
    """Move the messages of a turn from the run's state into the memory.

    Args:
        memory: The memory.
        messages: The messages.
        ctx: The run's context.
        key: The key of the messages in the state store.
    """
    try:
        await memory.aput_messages(messages)
    except asyncio.CancelledError:
        # A thread may already have added them.
        last = (await memory.aget_all())[-len(messages) :] if messages else []
        if messages and [*map(_summary, last)] == [*map(_summary, messages)]:
            await ctx.store.set(key, [])
        raise
    await ctx.store.set(key, [])


def _summary(message: ChatMessage) -> tuple[str, str | None, Any]:
    return message.role.value, message.content, message.additional_kwargs.get("tool_call_id")


class ScratchpadAgent(BaseWorkflowAgent[AgentDepsT, OutT]):
    """An agent that keeps the messages of a turn in the run's state until there is an answer.

    Args:
        scratchpad_key: The key of the state store for the messages of the current turn.
    """

    scratchpad_key: str = "scratchpad"

    async def finalize(self, ctx: Context[Any], output: AgentOutput, memory: BaseMemory) -> AgentOutput:
        """Move the messages of this turn into the memory."""
        await move_into(memory, await messages_of_turn(self, ctx), ctx, self.scratchpad_key)
        return output

    async def take_back(self, ctx: Context[Any]) -> None:
        """Forget the last answer."""
        await ctx.store.set(self.scratchpad_key, (await messages_of_turn(self, ctx))[:-1])

    async def reword(self, ctx: Context[Any], said: ChatMessage) -> None:
        """Put another answer in the place of the last one."""
        await ctx.store.set(self.scratchpad_key, [*(await messages_of_turn(self, ctx))[:-1], said])

    async def unfinished(self, ctx: Context[Any]) -> list[Any]:
        """Return the messages of this turn."""
        return await messages_of_turn(self, ctx)

    async def remind(self, ctx: Context[Any], words: str, memory: BaseMemory) -> None:  # noqa: ARG002 - the loop's hook
        """Show ``words`` to the model after its last answer."""
        await ctx.store.set(self.scratchpad_key, [*await messages_of_turn(self, ctx), observation(words)])


async def messages_of_turn(agent: ScratchpadAgent[Any, Any], ctx: Context[Any]) -> list[ChatMessage]:
    """Return the messages of the current turn."""
    return list(await ctx.store.get(agent.scratchpad_key, default=[]))


class FunctionAgent(ScratchpadAgent[AgentDepsT, OutT]):
    """An agent that shows its tools to the model and makes its calls, until a final answer.

    Args:
        scratchpad_key: The key of the state store for the messages of the current turn.
        initial_tool_choice: The tool that the first answer must call.
        tool_choice: ``"auto"``, ``"required"``, ``"none"`` or the name of a tool, for the first answer of a turn; or a
            function of ``(ctx)`` that returns one of these or None, asked before each answer.
        allow_parallel_tool_calls: Whether one answer may call several tools.

    Example:
        >>> agent = FunctionAgent(llm="openai:gpt-5.6", tools=[add])
        >>> print(agent.run_sync("What is 2 + 40?"))
    """

    initial_tool_choice: str | None = None
    tool_choice: Any = Field(default=None, exclude=True)
    allow_parallel_tool_calls: bool = True

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: "FunctionAgent[DT, str]",
            *,
            deps_type: type[DT] = object,
            output_type: None = None,
            output_cls: None = None,
            **options: Unpack[FunctionAgentOptions[DT]],
        ) -> None: ...
        @overload
        def __init__(
            self: "FunctionAgent[DT, BT]",
            *,
            deps_type: type[DT] = object,
            output_type: None = None,
            output_cls: type[BT],
            **options: Unpack[FunctionAgentOptions[DT]],
        ) -> None: ...
        @overload
        def __init__(
            self: "FunctionAgent[DT, T]",
            *,
            deps_type: type[DT] = object,
            output_type: TypeForm[T],
            output_cls: None = None,
            **options: Unpack[FunctionAgentOptions[DT]],
        ) -> None: ...
        @overload
        def __init__(
            self: "FunctionAgent[DT, T]",
            *,
            deps_type: type[DT] = object,
            output_type: Callable[..., Awaitable[T]],
            output_cls: None = None,
            **options: Unpack[FunctionAgentOptions[DT]],
        ) -> None: ...
        @overload
        def __init__(
            self: "FunctionAgent[DT, T]",
            *,
            deps_type: type[DT] = object,
            output_type: Callable[..., T],
            output_cls: None = None,
            **options: Unpack[FunctionAgentOptions[DT]],
        ) -> None: ...
        @overload
        def __init__(
            self: "FunctionAgent[DT, T]",
            *,
            deps_type: type[DT] = object,
            output_type: Sequence[type[T] | Callable[..., Awaitable[T]] | Callable[..., T]],
            output_cls: None = None,
            **options: Unpack[FunctionAgentOptions[DT]],
        ) -> None: ...
        @overload
        def __init__(
            self: "FunctionAgent[DT, Any]",
            *,
            deps_type: type[DT] = object,
            output_type: Sequence[Any],
            output_cls: None = None,
            **options: Unpack[FunctionAgentOptions[DT]],
        ) -> None: ...
        def __init__(self, **options: Any) -> None: ...

    @model_validator(mode="after")
    def _bf_chooses_once(self) -> Self:
        if self.tool_choice is not None and self.initial_tool_choice is not None:
            raise ValueError("tool_choice and initial_tool_choice say the same: give one of them")
        if self.tool_choice is not None and not isinstance(self.tool_choice, str) and not callable(self.tool_choice):
            raise ValueError(
                f"tool_choice is 'auto', 'required', 'none', the name of a tool or a function, not {self.tool_choice!r}"
            )
        return self

    @property
    def ends_by_tool(self) -> bool:
        """Tell whether the model gives an output by a native tool call or schema: always."""
        return True

    async def take_step(
        self,
        ctx: Context[Any],
        llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        memory: BaseMemory,  # noqa: ARG002 - part of the contract
    ) -> AgentOutput:
        """Return one answer of the model to the conversation and this turn's messages.

        Vendors with slow tools of their own pause an answer; the agent then requests the rest.

        Raises:
            ValueError: The model cannot call tools.
            WorkflowRuntimeError: The answer pauses too often.
        """
        llm, streams = self.the_llm(), self.streams_answer()
        way = "astream_chat_with_tools" if streams else "achat_with_tools"
        if not (llm.metadata.is_function_calling_model and hasattr(llm, way)):
            raise ValueError("LLM must be a FunctionCallingLLM: use a ReActAgent with models that cannot call tools")
        scratchpad = await messages_of_turn(self, ctx)
        shown = [*llm_input, *turn_shown(scratchpad)]
        ctx.write_event_to_stream(AgentInput.made(input=shown, current_agent_name=self.name))
        ask, own = self._get_streaming_response if streams else self._get_response, _own_search(llm)
        response = await ask(ctx, shown, tools)
        if response.stop_reason == PAUSED:
            response = await unpaused(response, lambda said: ask(ctx, [*shown, said], tools), self.name)
        calls = tool_selections(response.message) if own is None else own(response, error_on_no_tool_call=False)
        await ctx.store.set(self.scratchpad_key, [*scratchpad, response.message])
        output = AgentOutput.of(response.message, calls, self.name, raw_of(response))
        return with_reason(output, response.stop_reason) if response.stop_reason in NOT_WHOLE else output

    async def _get_response(
        self, ctx: Context[Any], current_llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool]
    ) -> ChatResponse:
        llm: Any = self.the_llm()
        request = await _request(self, ctx, current_llm_input, tools)
        return await llm.achat_with_tools(**request, **whole_answer(llm, with_tools=True))

    async def _get_streaming_response(
        self, ctx: Context[Any], current_llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool]
    ) -> ChatResponse:
        llm: Any = self.the_llm()
        request = await _request(self, ctx, current_llm_input, tools)
        own = _own_search(llm)
        if own is None and issubclass(type(llm), FunctionCallingLLM):
            events = llm.events_with_tools(**request)
            if events is not None:
                return await streamed_events(ctx, events, self.name, llm)
        chunks = await llm.astream_chat_with_tools(**request)
        return await streamed(ctx, chunks, self.name, own and partial(own, error_on_no_tool_call=False))

    async def handle_tool_call_results(
        self,
        ctx: Context[Any],
        results: list[ToolCallResult],
        memory: BaseMemory,  # noqa: ARG002 - part of the contract
    ) -> None:
        """Keep one tool message for each call; the output of a direct tool is also the answer."""
        scratchpad = [*await messages_of_turn(self, ctx), *map(tool_message, results)]
        direct = next((r for r in results if r.return_direct and not r.tool_output.is_error), None)
        if direct is not None and direct.tool_name != HANDOFF_TOOL:
            # As text, because vendors do not accept pictures in a model's message.
            scratchpad.append(ChatMessage(in_words(direct.tool_output.blocks), role=MessageRole.ASSISTANT))
        await ctx.store.set(self.scratchpad_key, scratchpad)


async def _request(
    agent: FunctionAgent[Any, Any], ctx: Context[Any], shown: list[ChatMessage], tools: Sequence[AsyncBaseTool]
) -> dict[str, Any]:
    """Return the options of a request to the model."""
    request: dict[str, Any] = {
        "chat_history": shown,
        "tools": tools,
        "allow_parallel_tool_calls": agent.allow_parallel_tool_calls,
    }
    choice = agent.initial_tool_choice if agent.tool_choice is None else agent.tool_choice
    run = getattr(ctx, "run", None)
    if run is not None and has_options(run):
        choice = layers.choice_of_run(run, choice)
    if choice is not None:
        if callable(choice):
            choice = await _chosen(choice, ctx)
        elif not (shown and is_question(shown[-1])):
            choice = None
    if choice is not None:
        if choice not in _CHOICES and choice != agent.initial_tool_choice:
            _check_name(agent, choice, tools)
        request["tool_choice"] = choice
    # A model with structured answers uses the form at once, without a second request.
    if agent.output_cls is not None and getattr(agent.the_llm(), "native_output_schema", False) is True:
        form = layers.native_form(agent.output_cls)
        if form is not None:
            request["output_schema"] = form
    elif (typed := output_here(ctx, agent)) is not None and (schema := layers.native_output(agent, typed)) is not None:
        request["output_schema"] = schema
    return {**request, **options} if (options := agent.request_options()) else request


def _check_name(agent: FunctionAgent[Any, Any], choice: str, tools: Sequence[AsyncBaseTool]) -> None:
    names = [tool.metadata.get_name() for tool in tools]
    if choice not in names and choice not in map(wire_name, names):
        raise ValueError(
            f"tool_choice of agent {agent.name} is 'auto', 'required', 'none' or the name of a tool of the request, "
            f"not {choice!r}; there {'is' if len(names) == 1 else 'are'} {', '.join(names) or 'no tools'}"
        )


async def _chosen(function: Callable[[Context[Any]], Any], ctx: Context[Any]) -> str | None:
    """Ask a function of the user for the choice of tools."""
    try:
        choice = function(context_for(function, ctx))
        if inspect.isawaitable(choice):
            choice = await choice
        if choice is not None and not isinstance(choice, str):
            raise TypeError(f"tool_choice returns a text or None, not {type(choice).__name__}")
    except Exception as error:
        error.add_note(f"in tool_choice {getattr(function, '__qualname__', function)}")
        raise
    return choice


def _own_search(llm: Any) -> Callable[..., list[ToolSelection]] | None:
    """Return the model's own method that finds the calls of an answer, or None without one."""
    own = getattr(llm, "get_tool_calls_from_response", None)
    return None if getattr(own, "__func__", None) is FunctionCallingLLM.get_tool_calls_from_response else own
