"""FunctionAgent: an agent whose model calls tools natively."""

from collections.abc import Sequence
from typing import Any

from batonflow.agents.asking import PAUSED, streamed, streamed_events, unpaused, whole_answer
from batonflow.agents.events import AgentInput, AgentOutput, ToolCallResult, raw_of
from batonflow.agents.members import HANDOFF_TOOL
from batonflow.agents.memory import BaseMemory
from batonflow.agents.memory.turns import is_question
from batonflow.agents.outcomes import with_reason
from batonflow.agents.scratchpad import ScratchpadAgent, tool_message
from batonflow.lazy import at_first_use
from batonflow.llms import ChatMessage, ChatResponse, FunctionCallingLLM, MessageRole
from batonflow.llms.blocks import in_words
from batonflow.tools import AsyncBaseTool, ToolSelection
from batonflow.workflow_core import Context

__all__ = ["FunctionAgent"]

# Most agents answer in words.
_form = at_first_use("batonflow.llms.structured", "Form")


class FunctionAgent(ScratchpadAgent):
    """Shows the model its tools and calls those that it asks for, until it answers.

    Args:
        scratchpad_key: Where the messages of the current turn are kept until the answer.
        initial_tool_choice: The tool that the first answer must call.
        allow_parallel_tool_calls: Whether one answer may call several tools.

    Example:
        >>> agent = FunctionAgent(llm="openai:gpt-5.6", tools=[add])
        >>> print(agent.run_sync("What is 2 + 40?"))
    """

    initial_tool_choice: str | None = None
    allow_parallel_tool_calls: bool = True

    async def take_step(
        self,
        ctx: Context[Any],
        llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        memory: BaseMemory,  # noqa: ARG002 - part of the contract
    ) -> AgentOutput:
        """One answer of the model to the conversation and this turn's messages.

        Vendors whose own tools run for long pause their answer; it is then asked for further.

        Raises:
            ValueError: The model cannot call tools.
            WorkflowRuntimeError: The answer pauses again and again.
        """
        llm, way = self.the_llm(), "astream_chat_with_tools" if self.streaming else "achat_with_tools"
        if not (llm.metadata.is_function_calling_model and hasattr(llm, way)):
            raise ValueError("LLM must be a FunctionCallingLLM: use a ReActAgent with models that cannot call tools")
        scratchpad = await self._bf_scratchpad(ctx)
        shown = [*llm_input, *scratchpad]
        ctx.write_event_to_stream(AgentInput.made(input=shown, current_agent_name=self.name))
        ask = self._get_streaming_response if self.streaming else self._get_response
        response = await ask(ctx, shown, tools)
        if response.stop_reason == PAUSED:
            response = await unpaused(response, lambda said: ask(ctx, [*shown, said], tools), self.name)
        calls = self._bf_calls(response)
        await ctx.store.set(self.scratchpad_key, [*scratchpad, response.message])
        return with_reason(AgentOutput.of(response.message, calls, self.name, raw_of(response)), response.stop_reason)

    def _bf_calls(self, response: ChatResponse) -> list[ToolSelection]:
        llm: Any = self.llm
        return llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)

    def _bf_request(self, shown: list[ChatMessage], tools: Sequence[AsyncBaseTool]) -> dict[str, Any]:
        request: dict[str, Any] = {
            "chat_history": shown,
            "tools": tools,
            "allow_parallel_tool_calls": self.allow_parallel_tool_calls,
        }
        if self.initial_tool_choice is not None and shown and is_question(shown[-1]):
            request["tool_choice"] = self.initial_tool_choice
        # A model that can be held to a form answers in it at once, without being asked a second time.
        if self.output_cls is not None and getattr(self.the_llm(), "native_output_schema", False) is True:
            form = _form(self.output_cls).native
            if form is not None:
                request["output_schema"] = form
        return request

    async def _get_response(
        self,
        ctx: Context[Any],  # noqa: ARG002 - the same signature as the streaming form
        current_llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
    ) -> ChatResponse:
        llm: Any = self.llm
        request = self._bf_request(current_llm_input, tools)
        return await llm.achat_with_tools(**request, **whole_answer(llm, with_tools=True))

    async def _get_streaming_response(
        self, ctx: Context[Any], current_llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool]
    ) -> ChatResponse:
        llm: Any = self.llm
        request = self._bf_request(current_llm_input, tools)
        finds_calls = getattr(llm, "get_tool_calls_from_response", None)
        own = getattr(finds_calls, "__func__", None) is not FunctionCallingLLM.get_tool_calls_from_response
        if not own and issubclass(type(llm), FunctionCallingLLM):
            events = llm.events_with_tools(**request)
            if events is not None:
                return await streamed_events(ctx, events, self.name, llm.class_name(), llm.metadata.model_name)
        chunks = await llm.astream_chat_with_tools(**request)
        return await streamed(ctx, chunks, self.name, self._bf_calls if own else None)

    async def handle_tool_call_results(
        self,
        ctx: Context[Any],
        results: list[ToolCallResult],
        memory: BaseMemory,  # noqa: ARG002 - part of the contract
    ) -> None:
        """Keep one tool message for each call; the output of a direct tool is also the answer."""
        scratchpad = [*await self._bf_scratchpad(ctx), *map(tool_message, results)]
        direct = next((r for r in results if r.return_direct and not r.tool_output.is_error), None)
        if direct is not None and direct.tool_name != HANDOFF_TOOL:
            # In words, as no vendor takes pictures that its model is said to have shown.
            scratchpad.append(ChatMessage(in_words(direct.tool_output.blocks), role=MessageRole.ASSISTANT))
        await ctx.store.set(self.scratchpad_key, scratchpad)
