"""One step with tools outside a run. A model chooses a tool, and the tool's output is the answer."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from batonflow.llms.errors import NoToolCallError, ToolCallError
from batonflow.llms.messages import ChatMessage, ChatResponse, MessageRole
from batonflow.llms.react_text import ActionReasoningStep, ReActChatFormatter, ReActOutputParser, ResponseReasoningStep
from batonflow.llms.tool_protocol import ToolSelection, tool_specs
from batonflow.threads import in_thread

__all__ = ["AgentChatResponse", "FailedCall", "ToolCallError", "call_tools", "conversation", "react_step", "run_calls"]


@dataclass
class FailedCall:
    """The output of a failed call, in the form of a tool's output.

    Args:
        tool_name: The name of the tool.
        content: The error.
        raw_input: The arguments.
        raw_output: The error.
        is_error: Always True.
        exception: The exception of the tool.
    """

    tool_name: str
    content: str
    raw_input: dict[str, Any]
    raw_output: Any = None
    is_error: bool = True
    exception: Exception | None = None


@dataclass
class AgentChatResponse:
    """The result of a step.

    Args:
        response: The text.
        sources: The outputs of the called tools.
        source_nodes: The source nodes of the outputs, if they have any.
        is_dummy_stream: Whether ``response_gen`` is allowed.
        metadata: Data of the program.

    Example:
        >>> print(llm.predict_and_call([add], "What is 2 + 40?"))
        42
    """

    response: str = ""
    sources: list[Any] = field(default_factory=list[Any])
    source_nodes: list[Any] = field(default_factory=list[Any])
    is_dummy_stream: bool = False
    metadata: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.source_nodes:
            for source in self.sources:
                nodes = getattr(getattr(source, "raw_output", None), "source_nodes", None)
                if isinstance(nodes, list):
                    self.source_nodes.extend(cast("list[Any]", nodes))

    def __str__(self) -> str:
        return self.response

    @property
    def response_gen(self) -> Generator[str, None, None]:
        """Yield the text word by word; ValueError unless ``is_dummy_stream``."""
        return (word for word in self._words())

    async def async_response_gen(self) -> AsyncGenerator[str, None]:
        """Yield the text word by word, asynchronously."""
        for word in self._words():
            yield word

    def _words(self) -> list[str]:
        if not self.is_dummy_stream:
            raise ValueError("the response did not stream: print it, or set is_dummy_stream=True to have its words")
        return [f"{word} " for word in self.response.split(" ")]


def conversation(user_msg: str | ChatMessage | None, chat_history: Sequence[ChatMessage] | None) -> list[ChatMessage]:
    """Return the messages of a step."""
    messages = list(chat_history or ())
    if user_msg is not None:
        messages.append(ChatMessage(user_msg) if isinstance(user_msg, str) else user_msg)
    return messages


async def react_step(
    ask: Callable[[list[ChatMessage]], Awaitable[ChatResponse]],
    tools: Sequence[Any],
    messages: Sequence[ChatMessage],
    formatter: ReActChatFormatter | None = None,
    parser: ReActOutputParser | None = None,
) -> AgentChatResponse:
    """Run a step of a model that reads about its tools in the prompt.

    Args:
        ask: Sends a conversation.
        tools: The tools.
        messages: The conversation.
        formatter: Replaces the default formatter.
        parser: Replaces the default parser.

    Returns:
        The output of the chosen tool, or the model's answer without a tool.

    Raises:
        NoToolCallError: The message is neither an action nor an answer.
    """
    formatter = formatter or ReActChatFormatter()
    messages = list(messages)
    if messages and messages[0].role is MessageRole.SYSTEM:
        # Some models refuse two system messages.
        context = "\n\n".join(text for text in (formatter.context, messages.pop(0).content) if text)
        formatter = formatter.model_copy(update={"context": context})
    response = await ask(formatter.format(tools, messages))
    said = response.message.content or ""
    try:
        step = (parser or ReActOutputParser()).parse(said)
    except ValueError as err:
        raise NoToolCallError(f"the model neither uses a tool nor answers: {said!r}") from err
    if isinstance(step, ActionReasoningStep):
        call = ToolSelection(tool_id="react", tool_name=step.action, tool_kwargs=step.action_input)
        return _answered(await call_tools(tools, [call]))
    return AgentChatResponse(response=step.response if isinstance(step, ResponseReasoningStep) else step.get_content())


async def call_tools(
    tools: Sequence[Any], calls: Sequence[ToolSelection], error_on_tool_error: bool = False
) -> list[Any]:
    """Run the calls concurrently, and return the outputs in the order of the calls.

    Args:
        tools: The tools.
        calls: The calls of the model.
        error_on_tool_error: Whether a failed call raises an error; otherwise its output has the error.

    Raises:
        ToolCallError: A call failed, and ``error_on_tool_error`` is set.
    """
    # A model may use the name under which the tool was sent, which can differ from the tool's own name.
    known: dict[str, Any] = {}
    for tool in tools:
        known[tool_specs([tool])[0].name] = known[tool.metadata.name] = tool
    outputs = await asyncio.gather(*(_call(known, call) for call in calls))
    if error_on_tool_error and any(output.is_error for output in outputs):
        raise ToolCallError("\n\n".join(output.content for output in outputs))
    return outputs


async def _call(known: dict[str, Any], call: ToolSelection) -> Any:
    tool = known.get(call.tool_name)
    if tool is None:
        names = ", ".join(dict.fromkeys(str(one.metadata.name) for one in known.values()))
        return FailedCall(call.tool_name, f"Tool {call.tool_name} not found; there are: {names}", call.tool_kwargs)
    if call.invalid_arguments is not None:
        problem = f"The arguments are not a JSON object: {call.invalid_arguments}"
        return FailedCall(call.tool_name, problem, call.tool_kwargs)
    try:
        if hasattr(tool, "acall"):
            return await tool.acall(**call.tool_kwargs)
        output = await in_thread(getattr(tool, "call", tool), **call.tool_kwargs)
        return await output if inspect.isawaitable(output) else output
    except Exception as err:  # noqa: BLE001 - the boundary of tools
        text = f"Encountered error: {str(err) or type(err).__name__}"
        return FailedCall(call.tool_name, text, call.tool_kwargs, str(err), exception=err)


def _answered(outputs: list[Any]) -> AgentChatResponse:
    return AgentChatResponse(response="\n\n".join(output.content for output in outputs), sources=outputs)


async def run_calls(
    tools: Sequence[Any],
    response: ChatResponse,
    calls: Sequence[ToolSelection],
    allow_parallel_tool_calls: bool,
    error_on_tool_error: bool,
) -> AgentChatResponse:
    """Run the calls of a response; without calls, its text is the answer.

    Raises:
        ToolCallError: Several calls where one is allowed, before any of them runs; or a call failed, and
            ``error_on_tool_error`` is set.
    """
    if not calls:
        return AgentChatResponse(response=response.message.content or "")
    if len(calls) > 1 and not allow_parallel_tool_calls:
        names = ", ".join(call.tool_name for call in calls)
        raise ToolCallError(
            f"the model asks for {len(calls)} calls at once ({names}), but one is allowed, so no call was made: pass "
            "allow_parallel_tool_calls=True"
        )
    return _answered(await call_tools(tools, calls, error_on_tool_error))
