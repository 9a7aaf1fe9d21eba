"""Models that say what a script tells them to, and how runs of agents are shown."""

from llama_index.core.agent.workflow import AgentOutput, AgentStream, ToolCall, ToolCallResult
from llama_index.core.llms import ChatMessage, ChatResponse, LLMMetadata, MockLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.llms.mock import MockFunctionCallingLLM
from workflows.events import HumanResponseEvent, InputRequiredEvent, StopEvent


def calls(*pairs):
    """A message that calls tools: pairs of a name and arguments, with the ids name-0, name-1 and so on."""
    selections = [ToolSelection(tool_id=f"{name}-{n}", tool_name=name, tool_kwargs=kwargs) for n, (name, kwargs) in enumerate(pairs)]
    return ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": selections})


async def pieces(text):
    """The text as a message that grows word by word."""
    words = text.split(" ")
    for n in range(1, len(words) + 1):
        yield ChatMessage(role="assistant", content=" ".join(words[:n]))


def script(*turns, seen=None, whole=False):
    """A model that calls tools: texts are streamed word by word unless `whole`; `seen` gets the messages it is shown."""
    turns = iter(turns)
    def generate(messages, **kwargs):
        if seen is not None:
            seen.append([(m.role.value, m.content) for m in messages])
        turn = next(turns)
        if callable(turn):
            turn = turn(messages)
        if not isinstance(turn, str):
            return calls(*turn)
        return ChatMessage(role="assistant", content=turn) if whole else pieces(turn)
    return MockFunctionCallingLLM(response_generator=generate)


class TextLLM(MockLLM):
    """A model without tool calls that answers with the next text."""

    def __init__(self, texts, seen=None):
        super().__init__()
        self._texts = iter(texts)
        self._seen = seen

    @property
    def metadata(self):
        return LLMMetadata(is_chat_model=True, is_function_calling_model=False)

    def _next(self, messages):
        if self._seen is not None:
            self._seen.append([(m.role.value, m.content) for m in messages])
        return next(self._texts)

    async def achat(self, messages, **kwargs):
        return ChatResponse(message=ChatMessage(role="assistant", content=self._next(messages)))

    async def astream_chat(self, messages, **kwargs):
        text = self._next(messages)
        async def parts():
            yield ChatResponse(message=ChatMessage(role="assistant", content=text), delta=text)
        return parts()


def line(event):
    """What a user looks at in an event."""
    name = type(event).__name__
    match event:
        case AgentStream():
            return f"{name} {event.current_agent_name}: {event.response!r}"
        case AgentOutput():
            return f"{name} {event.current_agent_name}: {event.response.content!r} calls {[c.tool_name for c in event.tool_calls]}"
        case ToolCallResult():
            return f"{name} {event.tool_name} {event.tool_kwargs}: {event.tool_output.content!r} error={event.tool_output.is_error} direct={event.return_direct}"
        case ToolCall():
            return f"{name} {event.tool_name} {event.tool_kwargs} id={event.tool_id}"
        case InputRequiredEvent():
            return f"{name} {event.get('prefix')}"
        case StopEvent():
            return f"{name}"
    return f"{name} {getattr(event, 'current_agent_name', '')}".rstrip()


async def shown(handler, answer=None, but=()):
    """Print the events of a run as they come; answer questions with the fields that `answer` gives; return the result."""
    async for event in handler.stream_events():
        if type(event).__name__ not in but:
            print(" ", line(event))
        if answer is not None and isinstance(event, InputRequiredEvent):
            handler.ctx.send_event(HumanResponseEvent(**answer(event)))
    result = await handler
    print("result:", result)
    return result


async def memory_of(ctx):
    """Print what the memory of a run holds."""
    memory = await ctx.store.get("memory")
    for message in await memory.aget():
        print("  memory:", message.role.value, repr(message.content))
