"""ReActAgent: an agent that reasons and acts in text, for models that cannot call tools natively.

The form is that of Yao et al., "ReAct: Synergizing Reasoning and Acting in Language Models" (2022): a thought, an
action with its input, an observation, and so on until an answer.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast, overload

from pydantic import Field, model_validator

from batonflow.agents.asking import PAUSED, unpaused, whole, whole_answer, with_reason, without_prompt
from batonflow.agents.base import BaseWorkflowAgent
from batonflow.agents.events import AgentInput, AgentOutput, AgentStream, TextSoFar, ToolCallResult
from batonflow.agents.function import move_into
from batonflow.agents.members import HANDOFF_TOOL
from batonflow.agents.memory import BaseMemory
from batonflow.agents.memory.turns import observation
from batonflow.agents.prompts import REACT_EMPTY, REACT_GIVEN_UP, REACT_THOUGHT_ALOUD, REACT_UNREADABLE
from batonflow.clock import current_source
from batonflow.llms import ChatMessage, ChatResponse, MessageRole
from batonflow.llms._bridge import closed_after
from batonflow.llms.blocks import in_words
from batonflow.llms.prompts import BasePromptTemplate, PromptTemplate
from batonflow.llms.react_text import (
    ActionReasoningStep,
    BaseReasoningStep,
    ObservationReasoningStep,
    ReActChatFormatter,
    ReActOutputParser,
    ResponseReasoningStep,
)
from batonflow.tools import AsyncBaseTool, ToolSelection
from batonflow.workflow_core import Context, WorkflowRuntimeError
from batonflow.workflow_core.typed import AgentDepsT, OutT

if TYPE_CHECKING:
    from typing_extensions import TypeForm, Unpack

    from batonflow.agents.options import BT, DT, ReActAgentOptions, T

__all__ = ["ReActAgent"]

# The labels in all spellings of the parser, also of Chinese texts.
_NUMBER = r"(?:[ \t]\d{1,3})?"
_LISTED = r"(?:(?:[-+\u2022]|\d{1,3}[.)])[ \t]+)?"
_ANSWERS = rf"(?:(?:final[ \t]+)?answer{_NUMBER}|(?:\u6700\u7ec8)?(?:\u7b54\u6848|\u56de\u7b54))"
_THOUGHTS = rf"(?:thought{_NUMBER}|\u601d\u8003|\u60f3\u6cd5)"
_ACTIONS = rf"(?:action{_NUMBER}|\u884c\u52a8|\u52a8\u4f5c|\u64cd\u4f5c)"
_LABEL = re.compile(rf"(?:\A|\n)[ \t]*{_LISTED}[*_#> \t]*{_ANSWERS}[*_ \t]*[:\uff1a][*_ \t]*\s*", re.IGNORECASE)
_LONGEST_LABEL = 40
_THOUGHT = re.compile(rf"(?:(?i:(?:\A|\n)\s*{_LISTED}[\s*_#>`]*{_THOUGHTS})|\bThought)[*_ \t]*[:\uff1a]")
# An action may also be one JSON object, which is not text for users either.
_LABELLED = re.compile(
    rf"(?:(?i:(?:\A|\n)\s*{_LISTED}[\s*_#>`]*(?:{_THOUGHTS}|{_ACTIONS}|{_ANSWERS}))|\b(?:Thought|Action))"
    r"[*_ \t]*[:\uff1a]"
    r"|\A\s*(?:```\w*\s*)?\{\s*[\"'](?:thought|reasoning|action|tool|tool_name|name|function)[\"']\s*:"
)
# Marks of models that think aloud before the text of the form.
_THINKING = re.compile(r"\s*<think(?:ing)?>", re.IGNORECASE)
_LONGEST_TAG = 16
_THOUGHT_OUT = re.compile(r"</think(?:ing)?>\s*", re.IGNORECASE)
# A text in which no label comes for so long is an answer as a whole.
_LONGEST_PREAMBLE = 300

_Ask = Callable[[list[ChatMessage]], Awaitable[ChatResponse]]


class ReActAgent(BaseWorkflowAgent[AgentDepsT, OutT]):
    """An agent that reads thoughts and actions from the text of its model, until that has an answer.

    Thoughts are streamed as ``thinking_delta``, the answer as ``delta``, and only the answer is in the response.

    Args:
        reasoning_key: Where the steps of the current turn are kept until the answer.
        output_parser: Reads the text of the model; has ``parse(text)``.
        formatter: Makes the messages the model is shown.
        max_parse_retries: The number of unreadable answers allowed in a row; the model is told its mistake each time.

    Raises:
        WorkflowRuntimeError: The model does not keep to the form; in a run.

    Example:
        >>> agent = ReActAgent(llm="ollama:qwen3:8b", tools=[add])
        >>> print(agent.run_sync("What is 2 + 40?"))
    """

    reasoning_key: str = "current_reasoning"
    output_parser: Any = Field(default_factory=ReActOutputParser)
    formatter: ReActChatFormatter = Field(default_factory=ReActChatFormatter.from_defaults)
    max_parse_retries: int = 3

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: "ReActAgent[DT, str]",
            *,
            deps_type: type[DT] = object,
            output_type: None = None,
            output_cls: None = None,
            **options: Unpack[ReActAgentOptions[DT]],
        ) -> None: ...
        @overload
        def __init__(
            self: "ReActAgent[DT, BT]",
            *,
            deps_type: type[DT] = object,
            output_type: None = None,
            output_cls: type[BT],
            **options: Unpack[ReActAgentOptions[DT]],
        ) -> None: ...
        @overload
        def __init__(
            self: "ReActAgent[DT, T]",
            *,
            deps_type: type[DT] = object,
            output_type: TypeForm[T],
            output_cls: None = None,
            **options: Unpack[ReActAgentOptions[DT]],
        ) -> None: ...
        @overload
        def __init__(
            self: "ReActAgent[DT, T]",
            *,
            deps_type: type[DT] = object,
            output_type: Callable[..., Awaitable[T]],
            output_cls: None = None,
            **options: Unpack[ReActAgentOptions[DT]],
        ) -> None: ...
        @overload
        def __init__(
            self: "ReActAgent[DT, T]",
            *,
            deps_type: type[DT] = object,
            output_type: Callable[..., T],
            output_cls: None = None,
            **options: Unpack[ReActAgentOptions[DT]],
        ) -> None: ...
        @overload
        def __init__(
            self: "ReActAgent[DT, T]",
            *,
            deps_type: type[DT] = object,
            output_type: Sequence[type[T] | Callable[..., Awaitable[T]] | Callable[..., T]],
            output_cls: None = None,
            **options: Unpack[ReActAgentOptions[DT]],
        ) -> None: ...
        @overload
        def __init__(
            self: "ReActAgent[DT, Any]",
            *,
            deps_type: type[DT] = object,
            output_type: Sequence[Any],
            output_cls: None = None,
            **options: Unpack[ReActAgentOptions[DT]],
        ) -> None: ...
        def __init__(self, **options: Any) -> None: ...

    @model_validator(mode="after")
    def _bf_context_in_header(self) -> Self:
        # The system prompt is shown inside the header; the message that the loop puts first is taken out again.
        if self.system_prompt:
            given = self.formatter.system_header
            context = "\n".join(text for text in (self.formatter.context, self.system_prompt) if text)
            changed = ReActChatFormatter.from_defaults(
                system_header=None if given == ReActChatFormatter().system_header else given,
                context=context,
                observation_role=self.formatter.observation_role,
                values=self.formatter.values,
            )
            # Past the validation of assignments, which would come here again.
            object.__setattr__(self, "formatter", changed)
        return self

    def _get_prompts(self) -> dict[str, BasePromptTemplate]:
        return {"react_header": PromptTemplate(self.formatter.system_header, **self.formatter.values)}

    def _update_prompts(self, prompts_dict: dict[str, BasePromptTemplate]) -> None:
        if "react_header" in prompts_dict:
            header = prompts_dict["react_header"]
            self.formatter.system_header, self.formatter.values = header.get_template(), header.known_values()

    async def take_step(
        self,
        ctx: Context[Any],
        llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        memory: BaseMemory,  # noqa: ARG002 - part of the contract
    ) -> AgentOutput:
        """Ask the model for one message. It is a reasoning step, or an unreadable text that gets a correction."""
        # The header has it. Another system message is that of the memory or the caller, and has no other way there.
        conversation = without_prompt(list(llm_input), self.system_prompt)
        reasoning: list[BaseReasoningStep] = await ctx.store.get(self.reasoning_key, default=[])
        # The correction of an unreadable answer comes last, as it came after these steps.
        failed = bool(reasoning) and await _failures(self, ctx) > 0 and _ends_with_a_correction(conversation)
        before, correction = (conversation[:-2], conversation[-2:]) if failed else (conversation, [])
        shown = self.formatter.format(tools, chat_history=before, current_reasoning=reasoning)
        shown = [*shown, *correction]
        ctx.write_event_to_stream(AgentInput(input=shown, current_agent_name=self.name))
        ask = self._get_streaming_response if self.streams_answer() else self._get_response
        response = await _ask(partial(ask, ctx), shown, self.name)
        text = _behind_thoughts(response.message.content or "")
        try:
            parsed: BaseReasoningStep | None = self.output_parser.parse(text, is_streaming=False) if text else None
        except ValueError as err:
            return await _retry(self, ctx, response, REACT_UNREADABLE.format(error=err))
        if parsed is None:
            return await _retry(self, ctx, response, REACT_EMPTY)
        await ctx.store.set(f"{self.reasoning_key}_failures", 0)
        await ctx.store.set(self.reasoning_key, [*reasoning, parsed])
        calls: list[ToolSelection | ToolCallResult] = []
        if not parsed.is_done:
            step = cast("ActionReasoningStep", parsed)
            call_id = f"call_{current_source().token(12)}"
            calls = [ToolSelection(tool_id=call_id, tool_name=step.action, tool_kwargs=step.action_input)]
        output = AgentOutput(
            response=response.message, tool_calls=calls, raw=response.raw, current_agent_name=self.name
        )
        return with_reason(output, response.stop_reason)

    async def _get_response(
        self,
        ctx: Context[Any],  # noqa: ARG002 - the same signature as the streaming form
        current_llm_input: list[ChatMessage],
    ) -> ChatResponse:
        llm = self.the_llm()
        return await llm.achat(current_llm_input, **whole_answer(llm), **self.request_options())

    async def _get_streaming_response(self, ctx: Context[Any], current_llm_input: list[ChatMessage]) -> ChatResponse:
        chunks = await self.the_llm().astream_chat(current_llm_input, **self.request_options())
        last: ChatResponse | None = None
        splitter, so_far = _Splitter(), TextSoFar()
        pieces: list[str] = []

        def show(last: ChatResponse, thought: str, text: str) -> None:
            new = text, thought or None
            ctx.write_event_to_stream(AgentStream.of(last, self.name, _no_calls, so_far, new))

        async with closed_after(chunks):
            async for last in chunks:
                pieces.append(last.delta or "")
                thought, text = splitter.feed(pieces[-1])
                show(last, thought + (last.additional_kwargs.get("thinking_delta") or ""), text)
        thought, text = splitter.rest()
        if last is not None and (thought or text):
            show(last, thought, text)
        return whole(last, pieces)

    async def answer_now(self, ctx: Context[Any], messages: list[ChatMessage]) -> ChatResponse:
        """Return the model's last answer. A message in the ReAct form keeps only the text after its thought."""
        ask = self._get_streaming_response if self.streams_answer() else self._get_response
        response = await _ask(partial(ask, ctx), messages, self.name)
        response.message = self.as_shown_to_users(response.message)
        return response

    def as_shown_to_users(self, said: ChatMessage) -> ChatMessage:
        """Return the text after the thought; a text in another form loses only the thoughts aloud before it."""
        text = _behind_thoughts(said.content or "")
        shown = text
        with suppress(ValueError):
            parsed: BaseReasoningStep | None = self.output_parser.parse(text, is_streaming=False) if text else None
            if isinstance(parsed, ResponseReasoningStep):
                shown = parsed.response
        if not shown or shown == said.content:
            return said
        answer = ChatMessage(shown, role=MessageRole.ASSISTANT)
        answer.additional_kwargs = said.additional_kwargs
        return answer

    async def handle_tool_call_results(
        self,
        ctx: Context[Any],
        results: list[ToolCallResult],
        memory: BaseMemory,  # noqa: ARG002 - part of the contract
    ) -> None:
        """Keep the result of the action; the output of a direct tool is also the answer."""
        reasoning: list[BaseReasoningStep] = list(await ctx.store.get(self.reasoning_key, default=[]))
        for result in results:
            content = in_words(result.tool_output.blocks)
            direct = result.return_direct and not result.tool_output.is_error
            reasoning.append(ObservationReasoningStep(observation=content, return_direct=direct))
            if direct and result.tool_name != HANDOFF_TOOL:
                reasoning.append(ResponseReasoningStep(thought=content, response=content, is_streaming=False))
                break
        await ctx.store.set(self.reasoning_key, reasoning)

    async def finalize(self, ctx: Context[Any], output: AgentOutput, memory: BaseMemory) -> AgentOutput:
        """Put the steps of this turn into the memory, and leave only the answer in the output.

        A turn with an answer is one message. One that goes on, with another agent or after the last allowed step, is
        kept as the model saw it, with an observation at its end, as models answer the last message.
        """
        await ctx.store.set(f"{self.reasoning_key}_failures", 0)
        reasoning: list[BaseReasoningStep] = await ctx.store.get(self.reasoning_key, default=[])
        if not reasoning:
            return output
        last = reasoning[-1]
        if isinstance(last, ResponseReasoningStep):
            written = "\n".join(one.get_content() for one in reasoning)
            messages = [ChatMessage(written, role=MessageRole.ASSISTANT)]
            answer = ChatMessage(last.response, role=MessageRole.ASSISTANT)
            answer.additional_kwargs = output.response.additional_kwargs
            if not output.tool_calls:
                output.response = answer
            elif not output.response.content:  # a tool's output without a text, which stays as it is
                output.response.blocks = [*answer.blocks, *output.response.blocks]
        else:
            messages = [_as_shown(self, one) for one in reasoning]
        await move_into(memory, messages, ctx, self.reasoning_key)
        return output

    async def take_back(self, ctx: Context[Any]) -> None:
        """Forget the last step."""
        reasoning: list[BaseReasoningStep] = await ctx.store.get(self.reasoning_key, default=[])
        await ctx.store.set(self.reasoning_key, reasoning[:-1])

    async def reword(self, ctx: Context[Any], said: ChatMessage) -> None:
        """Put another answer in the place of the last one, behind the same thought."""
        reasoning: list[BaseReasoningStep] = await ctx.store.get(self.reasoning_key, default=[])
        thought = last.thought if reasoning and isinstance(last := reasoning[-1], ResponseReasoningStep) else ""
        answer = ResponseReasoningStep(thought=thought, response=said.content or "")
        await ctx.store.set(self.reasoning_key, [*reasoning[:-1], answer])

    async def unfinished(self, ctx: Context[Any]) -> list[Any]:
        """Return the steps of this turn; an action without an observation is a call without a result."""
        left: list[Any] = list(await ctx.store.get(self.reasoning_key, default=[]))
        last = left[-1] if left else None
        if isinstance(last, ActionReasoningStep):
            left.append(ToolSelection(tool_id="", tool_name=last.action, tool_kwargs=last.action_input))
        return left

    async def remind(self, ctx: Context[Any], words: str, memory: BaseMemory) -> None:  # noqa: ARG002 - the loop's hook
        """Show ``words`` to the model as its next observation."""
        reasoning: list[BaseReasoningStep] = await ctx.store.get(self.reasoning_key, default=[])
        await ctx.store.set(self.reasoning_key, [*reasoning, ObservationReasoningStep(observation=words)])


async def _retry(agent: ReActAgent[Any, Any], ctx: Context[Any], response: ChatResponse, words: str) -> AgentOutput:
    """Return an output by which the model tries again, with words about its mistake."""
    key = f"{agent.reasoning_key}_failures"
    failures = await _failures(agent, ctx) + 1
    if failures > agent.max_parse_retries:
        # The next run on this context counts anew.
        await ctx.store.set(key, 0)
        raise WorkflowRuntimeError(REACT_GIVEN_UP.format(name=agent.name, failures=failures, words=words))
    await ctx.store.set(key, failures)
    return AgentOutput(
        response=response.message,
        retry_messages=[response.message, ChatMessage(words, role=MessageRole.USER)],
        raw=response.raw,
        current_agent_name=agent.name,
    )


async def _failures(agent: ReActAgent[Any, Any], ctx: Context[Any]) -> int:
    """Return the number of unreadable answers in a row before this one."""
    kept: Any = await ctx.store.get(f"{agent.reasoning_key}_failures", default=0)
    return kept if isinstance(kept, int) else 0


async def _ask(ask: _Ask, shown: list[ChatMessage], agent: str) -> ChatResponse:
    """Ask the model, also for the rest of a paused answer."""
    response = await ask(shown)
    if response.stop_reason == PAUSED:
        response = await unpaused(response, lambda part: ask([*shown, part]), agent)
    return response


def _as_shown(agent: ReActAgent[Any, Any], step: BaseReasoningStep) -> ChatMessage:
    """Return a step as the model has seen it."""
    if isinstance(step, ObservationReasoningStep):
        return observation(step.get_content(), agent.formatter.observation_role)
    return ChatMessage(step.get_content(), role=MessageRole.ASSISTANT)


def _ends_with_a_correction(conversation: Sequence[ChatMessage]) -> bool:
    """Return whether the last messages are an unreadable answer and its correction."""
    return [message.role for message in conversation[-2:]] == [MessageRole.ASSISTANT, MessageRole.USER]


def _behind_thoughts(text: str) -> str:
    """Return the text of a model after its thoughts aloud; empty when they have no end."""
    if not _THINKING.match(text):
        return text
    end = _THOUGHT_OUT.search(text)
    said = "" if end is None else text[end.end() :]
    # A model that has thought aloud need not write down a thought once more.
    return f"Thought: {REACT_THOUGHT_ALOUD}\n{said}" if _LABEL.match(said) else said


def _no_calls(_: ChatResponse) -> Sequence[ToolSelection]:
    """Return no calls, as calls in text are whole only at its end."""
    return ()


class _Splitter:
    """A splitter of arriving text into thoughts and answer."""

    def __init__(self) -> None:
        self._held = ""
        self._answering: bool | None = None
        self._aloud = False
        # The end of the thought's label in the held text; the parser takes only an answer with a thought.
        self._thought: int | None = None
        # Whether it was thought aloud, and nothing has come since.
        self._has_thought = False

    def feed(self, delta: str) -> tuple[str, str]:
        """Return thought and text of the new pieces that are certain by now."""
        self._held += delta
        aloud = self._begun()
        if self._answering:
            return aloud, self._take(len(self._held))
        if self._answering is None:
            return aloud, ""
        found = self._answer()
        if found is None or found.end() == len(self._held):
            # The end may be the beginning of the label, or of the space behind it.
            kept = len(self._held) - (found.start() if found else 0) if found else _LONGEST_LABEL
            return aloud + self._take(max(0, len(self._held) - kept)), ""
        thought = self._take(found.start())
        self._take(found.end() - found.start())
        self._answering = True
        return aloud + thought, self._take(len(self._held))

    def rest(self) -> tuple[str, str]:
        """Return the rest after the end of the text."""
        if self._aloud:
            return self._take(len(self._held)), ""
        if self._answering is not False:
            return "", self._take(len(self._held))
        found = self._answer()
        if found is None:
            return self._take(len(self._held)), ""
        thought = self._take(found.start())
        self._take(found.end() - found.start())
        return thought, self._take(len(self._held))

    def _begun(self) -> str:
        """Decide whether the text has the form; return the thoughts aloud before it."""
        if self._answering is not None:
            return ""
        aloud = ""
        if self._aloud or _THINKING.match(self._held):
            end = _THOUGHT_OUT.search(self._held)
            self._aloud = end is None
            if end is None:
                return self._take(max(0, len(self._held) - _LONGEST_TAG))
            aloud = self._take(end.end())
            self._has_thought = True
        if _LABELLED.search(self._held):
            self._answering = False
        elif len(self._held) >= _LONGEST_PREAMBLE:
            self._answering = True
        return aloud

    def _answer(self) -> re.Match[str] | None:
        if self._thought is None:
            if self._has_thought and (found := _LABEL.match(self._held)):
                return found
            thought = _THOUGHT.search(self._held)
            if thought is None:
                return None
            self._thought = thought.end()
        return _LABEL.search(self._held, self._thought)

    def _take(self, length: int) -> str:
        taken, self._held = self._held[:length], self._held[length:]
        self._has_thought = self._has_thought and not taken
        if self._thought is not None:
            self._thought = max(0, self._thought - length)
        return taken
