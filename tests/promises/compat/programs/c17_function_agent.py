import asyncio
from llama_index.core.agent.workflow import FunctionAgent, ToolCall, ToolCallResult
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context
from scripts import memory_of, script, shown
from show import fails, title


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b
def divide(a: int, b: int) -> float:
    """Divide two numbers."""
    return a / b
async def remember(ctx: Context, fact: str) -> str:
    """Remember a fact."""
    facts = await ctx.store.get("facts", default=[])
    await ctx.store.set("facts", [*facts, fact])
    return f"{len(facts) + 1} facts"
def final(text: str) -> str:
    """Give the final text."""
    return text.upper()

title("one tool, streamed")
async def one():
    agent = FunctionAgent(tools=[add], llm=script([("add", {"a": 2, "b": 40})], "2 + 40 is 42."))
    output = await shown(agent.run("What is 2 + 40?"))
    print(type(output).__name__, [type(c).__name__ for c in output.tool_calls], [c.tool_output.raw_output for c in output.tool_calls], output.structured_response)
asyncio.run(one())

title("not streamed")
async def whole():
    agent = FunctionAgent(tools=[add], llm=script([("add", {"a": 1, "b": 1})], "Two.", whole=True), streaming=False)
    await shown(agent.run(user_msg="What is 1 + 1?"))
asyncio.run(whole())

title("several tools one after another, one fails, one does not exist")
async def several():
    seen = []
    llm = script([("divide", {"a": 1, "b": 0})], [("root", {"a": 4})], [("divide", {"a": 1, "b": 2})], "It is 0.5.", seen=seen)
    agent = FunctionAgent(tools=[add, divide], llm=llm, system_prompt="You calculate.")
    handler = agent.run("What is 1 / 2?")
    names = []
    async for event in handler.stream_events():
        names.append(type(event).__name__)
        if isinstance(event, ToolCallResult):
            print(event.tool_name, event.tool_output.is_error, event.tool_output.content.split(".")[0].split(":")[0])
    print(*names)
    print(await handler)
    print([role for role, _ in seen[-1]], seen[0])
asyncio.run(several())

title("parallel calls")
async def parallel():
    seen = []
    llm = script([("multiply", {"a": 2, "b": 3}), ("multiply", {"a": 4, "b": 5}), ("remember", {"fact": "six"})], "6 and 20.", seen=seen)
    agent = FunctionAgent(tools=[multiply, remember], llm=llm)
    handler = agent.run("Multiply.")
    events = [event async for event in handler.stream_events()]
    print(sorted(e.tool_id for e in events if isinstance(e, ToolCall)))
    print(sorted((e.tool_id, e.tool_output.content) for e in events if isinstance(e, ToolCallResult)))
    output = await handler
    print(output, sorted(c.tool_id for c in output.tool_calls), await handler.ctx.store.get("facts"))
    print(sorted(seen[-1]))
asyncio.run(parallel())

title("a tool whose output is the answer")
async def direct():
    agent = FunctionAgent(tools=[FunctionTool.from_defaults(final, return_direct=True)], llm=script([("final", {"text": "done"})]))
    handler = agent.run("Say it.")
    output = await shown(handler)
    print(output.response.role.value, output.raw, [c.tool_name for c in output.tool_calls])
    await memory_of(handler.ctx)
asyncio.run(direct())

title("two runs on one context")
async def twice():
    seen = []
    agent = FunctionAgent(tools=[add, remember], llm=script([("remember", {"fact": "I am Ann"})], "Hello Ann.", "You are Ann.", [("remember", {"fact": "it rains"})], "Noted.", seen=seen))
    ctx = Context(agent)
    print(await agent.run("I am Ann.", ctx=ctx))
    await memory_of(ctx)
    print(await agent.run("Who am I?", ctx=ctx))
    memory = await ctx.store.get("memory")
    print("second run sees:", [content for role, content in seen[2] if role == "user"])
    print("second run keeps:", [m.content for m in await memory.aget() if m.role == "user"])
    print(await agent.run("It rains.", ctx=ctx), await ctx.store.get("facts"))
asyncio.run(twice())

title("two runs with one memory")
async def one_memory():
    seen = []
    memory = ChatMemoryBuffer.from_defaults(token_limit=4000)
    agent = FunctionAgent(tools=[add], llm=script([("add", {"a": 1, "b": 2})], "Three.", "I said three.", seen=seen))
    ctx = Context(agent)
    print(await agent.run("1 + 2?", ctx=ctx, memory=memory))
    print(await agent.run("What did you say?", ctx=ctx, memory=memory))
    await memory_of(ctx)
    print(seen[2])
asyncio.run(one_memory())

title("a memory of one's own, and a history")
async def own_memory():
    memory = ChatMemoryBuffer.from_defaults(token_limit=4000)
    agent = FunctionAgent(tools=[add], llm=script("Hello.", "Yes."))
    history = [ChatMessage(role="user", content="Hi."), ChatMessage(role="assistant", content="Hi!")]
    print(await agent.run("Are you there?", chat_history=history, memory=memory))
    print([(m.role.value, m.content) for m in memory.get()])
    print(await agent.run("Still?", memory=memory))
    print([(m.role.value, m.content) for m in memory.get()])
asyncio.run(own_memory())

title("only a history, a message object, and neither")
async def histories():
    seen = []
    agent = FunctionAgent(tools=[add], llm=script("One.", "Two.", seen=seen))
    print(await agent.run(chat_history=[ChatMessage("Say a number.")]))
    print(await agent.run(user_msg=ChatMessage("Another.")))
    print(seen)
    await fails(agent.run(), "Must provide either user_msg or chat_history")
asyncio.run(histories())

title("state in the prompt")
async def state():
    seen = []
    agent = FunctionAgent(tools=[add], llm=script("Ann.", seen=seen), initial_state={"name": "Ann"}, state_prompt="Known: {state}. Asked: {msg}")
    handler = agent.run("Who?")
    print(await handler, seen, await handler.ctx.store.get("state"))
asyncio.run(state())

title("too many steps")
async def too_many():
    agent = FunctionAgent(tools=[add], llm=script(*[[("add", {"a": 1, "b": 1})]] * 5))
    await fails(agent.run("Go on.", max_iterations=3), "Max iterations of 3 reached", "Either something went wrong", "early_stopping_method='generate'")
    agent = FunctionAgent(tools=[add], llm=script(*[[("add", {"a": 1, "b": 1})]] * 3, "Enough."), early_stopping_method="generate")
    output = await agent.run("Go on.", max_iterations=3)
    print(output, [c.tool_output.content for c in output.tool_calls])
asyncio.run(too_many())

title("keys of the store after a run")
async def keys():
    agent = FunctionAgent(tools=[add], llm=script([("add", {"a": 1, "b": 1})], "Two."))
    handler = agent.run("1 + 1?")
    await handler
    for key in ("max_iterations", "early_stopping_method", "num_iterations", "user_msg_str", "num_tool_calls", "current_tool_calls", "scratchpad", "state"):
        print(key, await handler.ctx.store.get(key))
asyncio.run(keys())

title("refusals")
print([type(t).__name__ for t in FunctionAgent(tools=[add, FunctionTool.from_defaults(multiply)], llm=script()).tools])
def handoff(x: int) -> int:
    """No."""
    return x
try:
    FunctionAgent(tools=[handoff], llm=script())
except ValueError as error:
    print("ValueError", "handoff" in str(error), "reserved" in str(error))
