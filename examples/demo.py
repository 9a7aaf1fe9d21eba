"""A team at work: one agent finds facts, another writes, and nothing is published before you agree (`make demo`).

Without a key the agents have scripted models, whose answers are written below; everything else is real. With
OPENAI_API_KEY or ANTHROPIC_API_KEY set (and OPENAI_BASE_URL, for servers that speak OpenAI's protocol) they ask that
model instead. Notes, article and the record of each run are kept in `.demo`.
"""

import os
import signal
import sys

try:
    import asyncio
    from pathlib import Path

    from models import model_or

    from batonflow import AgentWorkflow, FunctionAgent, ToolCall, ToolCallResult, WorkflowCancelledByUser, tool
    from batonflow.agents import AgentHandler, AgentStream, ApprovalRequired
    from batonflow.llms import ScriptedLLM, tool_call
    from batonflow.tools import ToolRetry
except KeyboardInterrupt:  # the imports take about a second
    sys.exit(130)

FOLDER = Path(".demo")
SERVE = f"{os.path.relpath(Path(sys.executable).with_name('batonflow'))} serve {os.path.relpath(__file__)}:make_team"
NOTES = {
    "moon": "The moon goes round the earth in 27 days and 8 hours.",
    "tides": "The moon pulls the sea towards it. High water comes twice a day, every 12 hours and 25 minutes.",
}
TASK = "Write two sentences about tides from our notes, and publish them."


def make_team(folder: Path = FOLDER) -> AgentWorkflow:
    """A researcher, who reads the notes of a folder, and a writer, who publishes there."""

    def search(topic: str) -> str:
        """Read the note on a topic."""
        note = folder / "notes" / f"{Path(topic).name}.txt"
        if not note.exists():
            there = ", ".join(sorted(one.stem for one in note.parent.iterdir()))
            raise ToolRetry(f"there is no note on {topic}; there are notes on {there}")
        return note.read_text()

    @tool(requires_approval=True)
    def publish(title: str, body: str) -> str:
        """Publish the article."""
        article = folder / f"{Path(title).name}.md"
        article.write_text(f"# {title}\n\n{body}\n")
        return f"published {article.name}, {article.stat().st_size} bytes"

    facts = model_or(
        ["I will look for notes.", tool_call("search", topic="tide")],
        ["The note has another name.", tool_call("search", topic="tides")],
        tool_call("handoff", to_agent="writer", reason="the facts are there"),
    )
    text = "The moon pulls the sea towards it. So high water comes twice a day."
    words = model_or(
        ["I will publish this.", tool_call("publish", title="Tides", body=text)],
        lambda request: f"This is what came of it: {request.messages[-1].content}",
    )
    researcher = FunctionAgent(
        name="researcher", description="Finds facts.", tools=[search], can_handoff_to=["writer"], llm=facts
    )
    writer = FunctionAgent(name="writer", description="Writes and publishes.", tools=[publish], llm=words)
    return AgentWorkflow(agents=[researcher, writer], root_agent="researcher", store=folder / "runs.db")


def ask(question: str) -> str:
    """A line from the terminal; EOFError at Ctrl-D, KeyboardInterrupt at Ctrl-C."""
    # asyncio's own handler would keep a Ctrl-C to itself until the line is there.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input(question).strip()
    finally:
        signal.signal(signal.SIGINT, before)


async def decide(handler: AgentHandler, request: ApprovalRequired) -> None:
    """Ask at the terminal whether a tool may run, and tell the run."""
    print(f"\n{request.agent} wants to call {request.tool_name}:")
    for name, value in request.arguments.items():
        print(f"  {name}: {value}")
    if request.problem:
        print(f"The answer cannot be used: {request.problem}")
    if sys.stdin is None or not sys.stdin.isatty():
        print("There is no terminal to ask at: approved.")
        handler.approve(request.id)
        return
    await asyncio.sleep(0)  # a Ctrl-C from before the question ends the program here
    try:
        while (answer := ask("Approve, deny or edit? [y/n/e] ").lower()) not in ("y", "n", "e"):
            pass
        if answer == "n":
            handler.deny(request.id, ask("Why not? "))
        elif answer == "e":  # Enter keeps a value
            handler.approve(request.id, {name: ask(f"  {name}: ") or kept for name, kept in request.arguments.items()})
        else:
            handler.approve(request.id)
    except EOFError:
        print("\nNobody answers: denied.")
        handler.deny(request.id, "nobody answered")
    except KeyboardInterrupt:
        await handler.cancel_run()


async def show(handler: AgentHandler) -> None:
    """Print what happens in a run while it does, and ask when it asks."""
    speaking = ""
    async for event in handler.stream_events():
        match event:
            case AgentStream(current_agent_name=name) if event.delta:
                print("" if speaking == name else f"\n{name}: ", event.delta, sep="", end="", flush=True)
                speaking = name
                continue
            case ToolCall(tool_name=name) if name != "handoff":
                print(f"\n  -> {name}({', '.join(f'{key}={value!r}' for key, value in event.tool_kwargs.items())})")
            case ToolCallResult(tool_name="handoff") if not event.tool_output.is_error:
                print(f"\n  == handed over to {event.tool_kwargs['to_agent']}: {event.tool_kwargs['reason']}")
            case ToolCallResult():
                print(f"  <- {'failed' if event.tool_output.is_error else 'gave'}: {event.tool_output.content}")
            case ApprovalRequired():
                await decide(handler, event)
            case _:
                continue
        speaking = ""


async def main(folder: Path) -> None:
    """Write the notes, run the team, and say what it took and where its run can be seen."""
    (folder / "notes").mkdir(parents=True, exist_ok=True)
    for topic, text in NOTES.items():
        (folder / "notes" / f"{topic}.txt").write_text(text)
    team = make_team(folder)
    llm = team.agents["researcher"].the_llm()
    hint = " (set OPENAI_API_KEY or ANTHROPIC_API_KEY for a real one)" if isinstance(llm, ScriptedLLM) else ""
    print(f"model: {llm.metadata.model_name}{hint}\ntask:  {TASK}")
    handler = team.run(TASK)
    await show(handler)
    output = await handler
    calls = [call for call in output.tool_calls if isinstance(call, ToolCallResult)]
    failed = [call.tool_name for call in calls if call.tool_output.exception]
    worked = {call.tool_name for call in calls if not call.tool_output.is_error}
    print(f"\n\nanswer: {output}")
    print(f"{len(calls)} tool calls, {len(failed)} failed, {sum(name in worked for name in failed)} recovered from")
    for name, usage in output.usage_by_agent.items():
        print(f"{name}: {usage.input_tokens} tokens read, {usage.output_tokens} written")
    print("\nTo look at this run in a page, and to start others there:")
    print(f"  {SERVE}")
    print(f"and open http://127.0.0.1:8080/#run={handler.run_id}")


if __name__ == "__main__":
    try:
        asyncio.run(main(FOLDER))
    except (KeyboardInterrupt, WorkflowCancelledByUser):
        print("\nstopped")
        sys.exit(130)
