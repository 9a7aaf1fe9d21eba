"""Where a script is played: it gives the models' answers, judges every request, and keeps what happened."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import PrivateAttr

from batonflow.agents import (
    AgentHandler,
    AgentOutput,
    AgentWorkflow,
    ApprovalUsedError,
    BaseWorkflowAgent,
    CodeActAgent,
    FunctionAgent,
    ReActAgent,
)
from batonflow.agents.memory import ChatMemoryBuffer
from batonflow.llms import LLM, FunctionCallingLLM, LLMMetadata, LLMServerError
from batonflow.llms.stream import ChatRequest, StreamEvent
from batonflow.workflow_core import Context, Event, WorkflowCancelledByUser
from tests.agents.scripts.answers import Answer, answer
from tests.agents.scripts.script import Agent, RunPlan, Script, Turn
from tests.agents.scripts.tools import Bodies
from tests.agents.scripts.transcript import Entry, bodies, entries
from tests.llms.rules import BrokenRule, check

__all__ = ["CLASSES", "Asked", "Classes", "Played", "ScriptModel", "Stage"]

Classes = Mapping[str, Callable[..., BaseWorkflowAgent]]
CLASSES: Classes = {"function": FunctionAgent, "react": ReActAgent, "codeact": CodeActAgent}
_PATIENCE = 0.02


@dataclass
class Asked:
    """A request, and its answer."""

    agent: Agent
    shown: list[Entry]
    answer: Answer


@dataclass
class Played:
    """A run that has ended.

    Args:
        plan: What was to happen.
        asked: What models were asked.
        events: What was streamed.
        output: The result; None when there is none.
        error: Why there is none.
    """

    plan: RunPlan
    asked: list[Asked] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    output: AgentOutput | None = None
    error: BaseException | None = None

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled before its end."""
        return isinstance(self.error, WorkflowCancelledByUser)


class Stage:
    """One playing of a script.

    Args:
        script: What to play.
        classes: The classes of the agents, by kind.
        sandbox: Whether code runs in a sandbox, in which it calls the tools; in virtual time it would be too slow.

    Attributes:
        bodies: The tools.
        runs: What happened.
        problems: What must not be and was; the first one says most.
    """

    def __init__(self, script: Script, classes: Classes = CLASSES, *, sandbox: bool = False) -> None:
        self.script = script
        self.sandbox = sandbox
        self.classes = classes
        self.bodies = Bodies()
        self.runs: list[Played] = []
        self.problems: list[str] = []

    # --- what the models say ------------------------------------------------------------------------------------------

    def ask(self, name: str, sent: Mapping[str, Mapping[str, Any]]) -> Answer:
        """Judge a request of an agent, given as bodies by path, and answer it.

        Raises:
            BrokenRule: A vendor would refuse the request. That is kept as a problem too.
        """
        run, number = self.runs[-1], len(self.runs[-1].asked) + 1
        agent = next(one for one in self.script.agents if one.name == name)
        given = answer(agent.kind, self._turn(run), self.sandbox)
        run.asked.append(Asked(agent, entries(next(iter(sent.values()))), given))
        for path, body in sent.items():
            try:
                check(path, body)
            except BrokenRule as error:
                shown = json.dumps(body.get("messages", body.get("input")), indent=1, ensure_ascii=False)
                self.problem(f"run {len(self.runs)}, request {number}, by {name}, to {path}: {error}\n{shown}")
                raise
        return given

    def problem(self, text: str) -> None:
        """Keep what must not be."""
        self.problems.append(text)

    def _turn(self, run: Played) -> Turn:
        number, plan = len(run.asked), run.plan
        if number >= len(plan.turns) or number >= plan.max_iterations:
            # Whoever has used up all its steps is asked for a last answer.
            label = f"end{len(self.runs)}x{number}"
            return Turn(label, f"The answer is {label}.")
        return plan.turns[number]

    # --- the runs -----------------------------------------------------------------------------------------------------

    async def play(self, model: Callable[[Agent], LLM]) -> None:
        """Play all runs, on one context."""
        flow = self._flow(model)
        ctx: Context[Any] | None = None
        for number, plan in enumerate(self.script.runs, 1):
            if ctx is not None and plan.reload:
                ctx = Context.from_dict(flow, json.loads(json.dumps(ctx.to_dict())))
            options: dict[str, Any] = {}
            if ctx is None and self.script.token_limit is not None:
                options["memory"] = ChatMemoryBuffer.from_defaults(token_limit=self.script.token_limit)
            self.runs.append(Played(plan))
            handler = flow.run(
                f"Question {number}?",
                ctx=ctx,
                max_iterations=plan.max_iterations,
                early_stopping_method=plan.early_stopping,
                **options,
            )
            await self._to_its_end(handler, self.runs[-1])
            ctx = handler.ctx

    def _flow(self, model: Callable[[Agent], LLM]) -> Any:
        members: list[BaseWorkflowAgent] = []
        for agent in self.script.agents:
            options: dict[str, Any] = {}
            if agent.kind == "codeact" and not self.sandbox:
                options["code_execute_fn"] = self.bodies.execute
            made = self.classes[agent.kind](
                name=agent.name,
                description=f"The agent {agent.name}.",
                llm=model(agent),
                tools=self.bodies.tools(_PATIENCE),
                can_handoff_to=None if agent.can_handoff_to is None else list(agent.can_handoff_to),
                streaming=agent.streaming,
                system_prompt=self.script.system_prompt,
                **options,
            )
            members.append(made)
        return members[0] if len(members) == 1 else AgentWorkflow(agents=members, root_agent=members[0].name)

    async def _to_its_end(self, handler: AgentHandler, run: Played) -> None:
        helpers = [asyncio.create_task(self._decide(handler))]
        if run.plan.cancel is not None:
            helpers.append(asyncio.create_task(_cancel(handler, *run.plan.cancel)))
        try:
            run.output = await handler
        except asyncio.CancelledError:
            await handler.cancel_run()
            raise
        except Exception as error:  # noqa: BLE001 - what ends a run is judged later
            run.error = error
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
        run.events = [item.event async for item in handler.subscribe()]

    async def _decide(self, handler: AgentHandler) -> None:
        """Answer what people are asked."""
        async for request in handler.approvals():
            label = request.arguments["label"]
            act = self.script.decisions[label]
            if act.kind == "expires":
                continue
            await asyncio.sleep(act.pause)
            with suppress(ApprovalUsedError):  # the run may have ended meanwhile
                if act.kind == "denied" or (act.kind == "edited badly" and request.problem is not None):
                    request.deny(f"not {label}")
                elif act.kind == "edited":
                    request.approve(arguments={"label": f"{label} edited", "times": "2"})
                elif act.kind == "edited badly":
                    request.approve(arguments={"label": label, "times": "often"})
                elif act.kind == "approved":
                    request.approve()
                else:
                    self.problem(f"a person was asked about {label}, which is to be {act.kind!r}")
                    request.deny()


async def _cancel(handler: AgentHandler, events: int, turns: int) -> None:
    async for _ in handler.subscribe():
        events -= 1
        if not events:
            break
    for _ in range(turns):
        await asyncio.sleep(0)
    await handler.cancel_run()


class ScriptModel(FunctionCallingLLM):
    """The model of an agent, asked directly: what it is sent goes through the three adapters' making of bodies."""

    _agent: Agent = PrivateAttr()
    _stage: Stage = PrivateAttr()

    @classmethod
    def on(cls, stage: Stage) -> Callable[[Agent], "ScriptModel"]:
        """Makes the models of the agents on a stage."""

        def make(agent: Agent) -> ScriptModel:
            made = cls()
            made._agent, made._stage = agent, stage
            return made

        return make

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(
            model_name=self._agent.name, context_window=128_000, is_chat_model=True, is_function_calling_model=True
        )

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        given = self._stage.ask(self._agent.name, self.sent(request))
        await asyncio.sleep(0)
        if given.turn.fails:
            raise LLMServerError("the script says so", status_code=500, vendor="script", model=self._agent.name)
        async for event in given.events():
            await asyncio.sleep(0)
            yield event

    def sent(self, request: ChatRequest) -> dict[str, dict[str, Any]]:
        """The bodies that would be sent."""
        return bodies(request.messages)
