import asyncio
from llama_index.core.agent.workflow import AgentInput, AgentOutput, AgentWorkflow, FunctionAgent, ToolCallResult
from llama_index.core.workflow import Context
from scripts import script, shown
from show import errors, title


async def search(topic: str) -> str:
    """Look up a topic."""
    return {"tides": "High water comes twice a day."}.get(topic, "nothing")
async def record(ctx: Context, title: str, text: str) -> str:
    """Record a note."""
    state = await ctx.store.get("state")
    state["notes"][title] = text
    await ctx.store.set("state", state)
    return f"{len(state['notes'])} notes"
async def write(ctx: Context, text: str) -> str:
    """Write the report."""
    async with ctx.store.edit_state() as state:
        state["state"]["report"] = text
    return "written"
async def review(ctx: Context, verdict: str) -> str:
    """Judge the report."""
    async with ctx.store.edit_state() as state:
        state["state"]["verdict"] = verdict
    return "noted"

def handoff(to, why="your turn"):
    return [("handoff", {"to_agent": to, "reason": why})]

def members(researcher, writer, reviewer, **options):
    return [
        FunctionAgent(name="Researcher", description="Finds facts.", system_prompt="You research.", tools=[search, record], llm=researcher, can_handoff_to=["Writer"]),
        FunctionAgent(name="Writer", description="Writes reports.", system_prompt="You write.", tools=[write], llm=writer, can_handoff_to=["Reviewer", "Researcher"]),
        FunctionAgent(name="Reviewer", description="Judges reports.", system_prompt="You review.", tools=[review], llm=reviewer, can_handoff_to=["Writer"]),
    ]

title("three agents, a state, and back again")
async def three():
    team = AgentWorkflow(
        agents=members(
            script([("search", {"topic": "tides"})], [("record", {"title": "tides", "text": "twice a day"})], handoff("Writer", "the notes are there")),
            script([("write", {"text": "Tides."})], handoff("Reviewer"), [("write", {"text": "Tides come twice a day."})], handoff("Reviewer", "better now")),
            script([("review", {"verdict": "too short"})], handoff("Writer", "too short"), [("review", {"verdict": "good"})], "The report is good."),
        ),
        root_agent="Researcher",
        initial_state={"notes": {}, "report": "", "verdict": ""},
        handoff_output_prompt="{to_agent} goes on: {reason}.",
    )
    handler = team.run(user_msg="Write about tides.", max_iterations=30)
    output = await shown(handler)
    print(output.current_agent_name, [c.tool_name for c in output.tool_calls])
    store = handler.ctx.store
    print(await store.get("state"))
    print(await store.get("current_agent_name"), await store.get("agents"), await store.get("can_handoff_to"), await store.get("next_agent"))
    memory = await (await store.get("memory")).aget()
    print("first in the memory:", repr(memory[0].content))
    print([(m.role.value, m.content) for m in memory[1:]])
asyncio.run(three())

title("what each agent is shown")
async def seen_by():
    seen = {"Researcher": [], "Writer": []}
    team = AgentWorkflow(
        agents=members(script(handoff("Writer"), seen=seen["Researcher"]), script("Written.", seen=seen["Writer"]), script()),
        root_agent="Researcher",
    )
    print(await team.run("Write."))
    print(seen["Researcher"])
    print([role for role, _ in seen["Writer"][0]], seen["Writer"][0][:3])
    print([word in seen["Writer"][0][3][1] for word in ("Writer", "your turn")])
asyncio.run(seen_by())

title("state in the prompt")
async def state():
    seen = []
    team = AgentWorkflow(
        agents=[FunctionAgent(name="Clerk", description="Clerk.", tools=[search], llm=script("Yes.", seen=seen))],
        initial_state={"open": True},
        state_prompt="State {state} message {msg}",
    )
    print(await team.run("Are you open?"), seen)
asyncio.run(state())

title("the agent that was active goes on in the next run")
async def goes_on():
    team = AgentWorkflow(
        agents=members(script(handoff("Writer")), script("Written.", "Still the writer."), script()), root_agent="Researcher"
    )
    ctx = Context(team)
    first = await team.run("Write.", ctx=ctx)
    second = await team.run("Who are you?", ctx=ctx)
    print(first, first.current_agent_name, second, second.current_agent_name)
asyncio.run(goes_on())

title("nobody of this name, and not permitted")
async def refused():
    team = AgentWorkflow(
        agents=members(script(handoff("Nobody"), handoff("Reviewer"), "I stay."), script(), script()), root_agent="Researcher"
    )
    handler = team.run("Go.")
    events = [event async for event in handler.stream_events()]
    results = [event.tool_output.content for event in events if isinstance(event, ToolCallResult)]
    print("Nobody" in results[0], "Writer" in results[0], "Reviewer" in results[1])
    print(await handler, {e.current_agent_name for e in events if isinstance(e, AgentOutput)})
asyncio.run(refused())

title("a tool and a handoff in one message")
async def both():
    team = AgentWorkflow(
        agents=members(script([("search", {"topic": "tides"}), *handoff("Writer")]), script("Written."), script()), root_agent="Researcher"
    )
    handler = team.run("Go.")
    events = [event async for event in handler.stream_events()]
    output = await handler
    print(output, output.current_agent_name, sorted(c.tool_name for c in output.tool_calls))
    print([e.current_agent_name for e in events if isinstance(e, AgentInput)])
asyncio.run(both())

title("one agent from functions")
async def functions():
    team = AgentWorkflow.from_tools_or_functions([search], llm=script([("search", {"topic": "tides"})], "Twice."), system_prompt="You look up.")
    print([(name, type(agent).__name__) for name, agent in team.agents.items()], team.root_agent)
    print(await team.run("Tides?"))
asyncio.run(functions())

title("prompts")
team = AgentWorkflow(agents=members(script(), script(), script()), root_agent="Researcher")
prompts = team.get_prompts()
print(sorted(name for name in prompts if ":" not in name))
print(["{agent_info}" in prompts["handoff_prompt"].get_template(), "{to_agent}" in prompts["handoff_output_prompt"].get_template(), "{reason}" in prompts["handoff_output_prompt"].get_template()])
async def own_prompts():
    seen = []
    team = AgentWorkflow(
        agents=members(script(handoff("Writer")), script("Written.", seen=seen), script()), root_agent="Researcher",
        handoff_prompt="Hand over to one of {agent_info}.", handoff_output_prompt="Now {to_agent}, because {reason}.",
    )
    await team.run("Go.")
    print(seen[0][-1])
asyncio.run(own_prompts())

title("teams that cannot be")
def one(name="A", **options):
    return FunctionAgent(name=name, description=f"Is {name}.", llm=script(), **options)
errors(lambda: AgentWorkflow(agents=[]), "At least one agent")
errors(lambda: AgentWorkflow(agents=[one("A"), one("B")]), "Exactly one root agent must be provided")
errors(lambda: AgentWorkflow(agents=[one("A"), one("B")], root_agent="C"), "C", "not found")
errors(lambda: AgentWorkflow(agents=[FunctionAgent(llm=script()), FunctionAgent(llm=script())], root_agent="Agent"), "name")
errors(lambda: AgentWorkflow(agents=[one("A", initial_state={"a": 1}), one("B")], root_agent="A"), "not supported")
errors(lambda: AgentWorkflow(agents=[one()], handoff_prompt="nothing"), "{agent_info}")
errors(lambda: AgentWorkflow(agents=[one()], handoff_output_prompt="{to_agent}"), "{reason}")
errors(lambda: AgentWorkflow(agents=[one()], state_prompt="{state}"), "{msg}")
