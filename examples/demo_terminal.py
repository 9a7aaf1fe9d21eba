"""The demo's team at the terminal, in one process: `demo_terminal.py RUN_ID [die]`. It asks before it publishes."""

import os
import signal
import sys

try:
    import asyncio

    from demo_team import calls_by_process, make_team, prepare

    from batonflow import ToolCall, ToolCallResult, WorkflowCancelledByUser
    from batonflow.agents import AgentHandler, AgentStream, ApprovalRequired
    from batonflow.llms import ScriptedLLM
except KeyboardInterrupt:  # the imports take about a second
    sys.exit(130)

TASK = "Write two sentences about tides from our notes, and publish them."
WORDS_BEFORE_THE_END = 8
RED, GREEN, YELLOW, CYAN = 91, 92, 93, 96
IS_COLOURED = not os.environ.get("NO_COLOR") and (sys.stdout.isatty() or "FORCE_COLOR" in os.environ)


def tint(colour: int, text: str) -> str:
    """Return a text in a colour of the terminal."""
    return f"\033[{colour}m{text}\033[0m" if IS_COLOURED else text


def ask(question: str) -> str:
    """Read a line from the terminal; EOFError at Ctrl-D, KeyboardInterrupt at Ctrl-C."""
    # asyncio's own handler would keep a Ctrl-C to itself until the line is there.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input(question).strip()
    finally:
        signal.signal(signal.SIGINT, before)


async def decide(handler: AgentHandler, request: ApprovalRequired) -> None:
    """Ask at the terminal whether a tool may run, and tell the run."""
    print(tint(YELLOW, f"\n{request.agent} wants to call {request.tool_name}:"))
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
        while (said := ask("Approve, deny or edit? [y/n/e] ").lower()) not in ("y", "n", "e"):
            pass
        if said == "n":
            handler.deny(request.id, ask("Why not? "))
        elif said == "e":  # Enter keeps a value
            handler.approve(request.id, {name: ask(f"  {name}: ") or kept for name, kept in request.arguments.items()})
        else:
            handler.approve(request.id)
    except EOFError:
        print("\nThe input has ended: denied.")
        handler.deny(request.id, "the input has ended")
    except KeyboardInterrupt:
        await handler.cancel_run()


def die() -> None:
    """Kill this process. Python cannot catch this signal, and nothing is tidied up."""
    print(tint(RED, "\n\n*** kill -9 ***"))
    os.kill(os.getpid(), signal.SIGKILL)


async def show(handler: AgentHandler, is_to_die: bool) -> None:
    """Print the events of a run, ask when it asks, and kill the process while the writer speaks."""
    speaking, pieces = "", 0
    async for event in handler.stream_events():
        match event:
            case AgentStream(current_agent_name=name) if event.delta:
                print("" if speaking == name else tint(CYAN, f"\n{name}: "), event.delta, sep="", end="", flush=True)
                speaking = name
                pieces += name == "writer"
                if is_to_die and pieces == WORDS_BEFORE_THE_END:
                    die()
                continue
            case ToolCall() if is_to_die and pieces:
                die()
            case ToolCall(tool_name=name) if name != "handoff":
                print(f"\n  -> {name}({', '.join(f'{key}={value!r}' for key, value in event.tool_kwargs.items())})")
            case ToolCallResult(tool_name="handoff") if not event.tool_output.is_error:
                print(f"\n  == handed over to {event.tool_kwargs['to_agent']}: {event.tool_kwargs['reason']}")
            case ToolCallResult() if event.tool_output.is_error:
                print(tint(RED, f"  <- failed: {event.tool_output.content}"))
            case ToolCallResult():
                print(tint(GREEN, f"  <- gave: {event.tool_output.content}"))
            case ApprovalRequired():
                await decide(handler, event)
            case _:
                continue
        speaking = ""


async def work(run_id: str, is_to_die: bool) -> None:
    """Begin the run, or carry on with it, and print its answer and its counts."""
    prepare(is_new=is_to_die)
    team = make_team()
    llm = team.agents["writer"].the_llm()
    if is_to_die:
        hint = " (set OPENAI_API_KEY or ANTHROPIC_API_KEY for a real one)" if isinstance(llm, ScriptedLLM) else ""
        print(f"model: {llm.metadata.model_name}{hint}\ntask:  {TASK}")
    handler = team.run(TASK, run_id=run_id)
    await show(handler, is_to_die)
    output = await handler
    calls = [call for call in output.tool_calls if isinstance(call, ToolCallResult) and call.tool_name != "handoff"]
    print(f"\n\nanswer: {output}")
    made = calls_by_process()
    failed, repeated = sum(call.tool_output.is_error for call in calls), max(0, made.total() - len(calls))
    print(f"{len(calls)} tool calls, {failed} failed, {repeated} repeated")
    print(", ".join(f"process {process} made {count}" for process, count in made.items()))
    for name, usage in output.usage_by_agent.items():
        print(f"{name}: {usage.input_tokens} tokens read, {usage.output_tokens} written")


if __name__ == "__main__":
    try:
        asyncio.run(work(sys.argv[1], "die" in sys.argv))
    except (KeyboardInterrupt, WorkflowCancelledByUser):
        print("\nstopped")
        sys.exit(130)
