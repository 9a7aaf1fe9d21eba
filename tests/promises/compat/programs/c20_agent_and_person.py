import asyncio
import json
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent, JsonSerializer
from scripts import memory_of, script
from show import title


async def delete(ctx: Context, name: str) -> str:
    """Delete a file, if the person agrees."""
    answer = await ctx.wait_for_event(
        HumanResponseEvent,
        waiter_id=f"delete {name}",
        waiter_event=InputRequiredEvent(prefix=f"Delete {name}?", name=name),
        requirements={"name": name},
    )
    return f"{name} deleted" if answer.response == "yes" else f"{name} kept"

def agent(*turns, **options):
    return FunctionAgent(name="Keeper", description="Keeps files.", tools=[delete], llm=script(*turns), **options)

async def question(handler):
    """Read the stream up to the question."""
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            return event

title("asked and answered")
async def live(answer):
    handler = agent([("delete", {"name": "a.txt"})], lambda messages: "So: " + messages[-1].content).run("Delete a.txt.")
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            print(event.prefix, event.name)
            handler.ctx.send_event(HumanResponseEvent(response="yes", name="another"))
            handler.ctx.send_event(HumanResponseEvent(response=answer, name="a.txt"))
    output = await handler
    print(output, [c.tool_output.content for c in output.tool_calls])
    await memory_of(handler.ctx)
asyncio.run(live("yes"))
asyncio.run(live("no"))

title("saved while it waits, restored, answered")
async def saved():
    turns = [("delete", {"name": "b.txt"})], "Done."
    first = agent(*turns)
    handler = first.run("Delete b.txt.", memory=ChatMemoryBuffer.from_defaults(token_limit=4000))
    print((await question(handler)).prefix)
    data = handler.ctx.to_dict(serializer=JsonSerializer())
    await handler.cancel_run()
    text = json.dumps(data)
    print("b.txt" in text, "delete" in text)

    second = agent("After the restart.")
    ctx = Context.from_dict(second, json.loads(text), serializer=JsonSerializer())
    await ctx.store.set("memory", ChatMemoryBuffer.from_defaults(token_limit=4000))
    handler = second.run(ctx=ctx)
    handler.ctx.send_event(HumanResponseEvent(response="yes", name="b.txt"))
    output = await handler
    print(output, [(c.tool_name, c.tool_kwargs, c.tool_output.content) for c in output.tool_calls])
    print([(m.role.value, m.content) for m in (await (await handler.ctx.store.get("memory")).aget())][-2:])
asyncio.run(saved())

title("two questions at once")
async def two():
    handler = agent([("delete", {"name": "c"}), ("delete", {"name": "d"})], "Done.").run("Delete c and d.")
    asked = set()
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent) and event.name not in asked:
            asked.add(event.name)
            if len(asked) == 2:
                handler.ctx.send_event(HumanResponseEvent(response="no", name="d"))
                handler.ctx.send_event(HumanResponseEvent(response="yes", name="c"))
    output = await handler
    print(sorted(asked), output, sorted(c.tool_output.content for c in output.tool_calls))
asyncio.run(two())

title("a team asks")
async def team():
    helper = FunctionAgent(name="Helper", description="Helps.", llm=script([("handoff", {"to_agent": "Keeper", "reason": "files"})]))
    group = AgentWorkflow(agents=[helper, agent([("delete", {"name": "e"})], "Gone.")], root_agent="Helper")
    handler = group.run("Delete e.")
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            handler.ctx.send_event(HumanResponseEvent(response="yes", name=event.name))
    output = await handler
    print(output, output.current_agent_name, [c.tool_name for c in output.tool_calls])
asyncio.run(team())
