# pieces: AgentStream
import asyncio
from llama_index.core.agent.workflow import AgentStream, ReActAgent, ToolCallResult
from llama_index.core.agent import ReActChatFormatter, ReActOutputParser
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context
from scripts import TextLLM, memory_of, shown
from show import fails, title


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
async def note(ctx: Context, text: str) -> str:
    """Note a text."""
    await ctx.store.set("noted", text)
    return "noted"

ADD = 'Thought: I need a tool.\nAction: add\nAction Input: {"a": 2, "b": 40}'
ANSWER = "Thought: I can answer without using any more tools.\nAnswer: 42"

title("a tool and an answer")
async def one():
    seen = []
    agent = ReActAgent(tools=[add], llm=TextLLM([ADD, ANSWER], seen))
    handler = agent.run("What is 2 + 40?")
    events = [event async for event in handler.stream_events()]
    print(*(type(e).__name__ for e in events if not isinstance(e, AgentStream)))
    print([(e.tool_name, e.tool_kwargs, e.tool_output.content) for e in events if isinstance(e, ToolCallResult)])
    output = await handler
    print(repr(str(output)), [c.tool_name for c in output.tool_calls], output.current_agent_name)
    await memory_of(handler.ctx)
    print([role for role, _ in seen[0]], seen[0][1:])
    print([role for role, _ in seen[1]], seen[1][1:])
    print(await handler.ctx.store.get("current_reasoning"))
asyncio.run(one())

title("the prompt names the tools, the system prompt is its context")
async def prompts():
    seen = []
    agent = ReActAgent(tools=[add, note], llm=TextLLM([ANSWER], seen), system_prompt="You are a careful clerk.")
    print(await agent.run("Hello?"))
    role, text = seen[0][0]
    print(role, [word in text for word in ("add", "note", "Add two numbers.", "You are a careful clerk.", "Thought:", "Action:", "Action Input:", "Answer:", "{tool_desc}", "ctx")])
    print(len(seen[0]), seen[0][1])
    print(list(agent.get_prompts()))
    agent.update_prompts({"react_header": "Tools: {tool_desc} About: {context} Names: {tool_names}"})
    agent.llm = TextLLM([ANSWER], seen)
    print(await agent.run("Hello?"), seen[1][0][1].startswith("Tools: "), seen[1][0][1].endswith("Names: add, note"))
asyncio.run(prompts())

title("an answer without the form")
async def free():
    agent = ReActAgent(tools=[add], llm=TextLLM(["It is 42."]))
    handler = agent.run("What is 2 + 40?")
    print(repr(str(await handler)))
asyncio.run(free())

title("unreadable answers are told to the model")
async def unreadable():
    seen = []
    agent = ReActAgent(tools=[add], llm=TextLLM(["Thought: hm", "", ADD, ANSWER], seen))
    handler = agent.run("What is 2 + 40?")
    events = [event async for event in handler.stream_events()]
    print(await handler, len(seen))
    print([role for role, _ in seen[1]][-2:], seen[1][-2][1], seen[1][-1][1].startswith("Error while parsing the output"))
    print([role for role, _ in seen[2]][-2:], seen[2][-1][1].startswith("FAILURE: Your previous response was empty"))
    print([type(e).__name__ for e in events if not isinstance(e, AgentStream)])
asyncio.run(unreadable())

title("failing and unknown tools are observations")
async def failing():
    def root(a: float) -> float:
        """The root."""
        raise ValueError("no roots today")
    seen = []
    texts = ['Thought: root\nAction: root\nAction Input: {"a": 4}', "Thought: sine\nAction: sine\nAction Input: {}", ANSWER]
    agent = ReActAgent(tools=[root], llm=TextLLM(texts, seen))
    print(await agent.run("?"))
    print(seen[1][-2:], seen[2][-1][0], "sine" in seen[2][-1][1], "not found" in seen[2][-1][1])
asyncio.run(failing())

title("a tool with a context, and one whose output is the answer")
async def direct():
    def final(text: str) -> str:
        """Give the final text."""
        return text.upper()
    texts = ['Thought: note\nAction: note\nAction Input: {"text": "rain"}', 'Thought: end\nAction: final\nAction Input: {"text": "done"}']
    agent = ReActAgent(tools=[note, FunctionTool.from_defaults(final, return_direct=True)], llm=TextLLM(texts))
    handler = agent.run("Note it.")
    output = await handler
    print(output, await handler.ctx.store.get("noted"), [c.tool_name for c in output.tool_calls])
asyncio.run(direct())

title("not streamed")
async def whole():
    agent = ReActAgent(tools=[add], llm=TextLLM([ADD, ANSWER]), streaming=False)
    await shown(agent.run("What is 2 + 40?"), but=("AgentOutput", "ToolCall"))
asyncio.run(whole())

title("too many steps")
async def too_many():
    await fails(ReActAgent(tools=[add], llm=TextLLM([ADD] * 5)).run("?", max_iterations=2), "Max iterations of 2 reached")
asyncio.run(too_many())

title("parser and formatter")
parser = ReActOutputParser()
for text in (ADD, ANSWER, "Just so.", "Thought: a\nAction: add\nAction Input: {'a': 1, 'b': 2}", "Thought: t\nAnswer: Action: none"):
    step = parser.parse(text)
    print(type(step).__name__, step.is_done, repr(step.get_content()))
for text in ("Thought: nothing more", "Action: add"):
    try:
        print(parser.parse(text))
    except ValueError as error:
        print("ValueError", str(error)[:40])
formatter = ReActChatFormatter.from_defaults(system_header="T {tool_desc} N {tool_names} C {context}", context="ctx")
messages = formatter.format([FunctionTool.from_defaults(add)], [ChatMessage("hi")], [parser.parse(ADD)])
print([(m.role.value, m.content) for m in messages][1:], messages[0].content.endswith("N add C ctx"))
