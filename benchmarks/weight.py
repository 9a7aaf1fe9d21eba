"""What a process weighs after it has run one workflow (`weight.py workflow`) or one agent (`weight.py agent`); prints JSON."""

import json
import resource
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
mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"modules": len(sys.modules), "mib": mib, "heavy": [name for name in HEAVY if name in sys.modules]}))
