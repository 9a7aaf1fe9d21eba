"""What a process weighs that has run one workflow (`weight.py workflow`) or agent (`weight.py agent`); prints JSON."""

import sys

HEAVY = ("openai", "anthropic", "httpx", "httpx2", "tiktoken", "transformers", "requests", "aiohttp")


def run_workflow() -> None:
    from batonflow import StartEvent, StopEvent, Workflow, step

    class One(Workflow):
        @step
        async def only(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=ev.value)

    assert One().run_sync(value=1) == 1


def run_agent() -> None:
    from batonflow import FunctionAgent, ScriptedLLM

    assert str(FunctionAgent(llm=ScriptedLLM(["done"])).run_sync("go")) == "done"


{"workflow": run_workflow, "agent": run_agent}[sys.argv[1]]()
modules, heavy = len(sys.modules), [name for name in HEAVY if name in sys.modules]

import json  # noqa: E402 - what the measuring needs must not be counted
import resource  # noqa: E402 - the same

mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"modules": modules, "mib": mib, "heavy": heavy}))
