"""Any sequence of what people do with runs, and of processes that end at any moment, against a plain model."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from batonflow.agents import AgentHandler, FunctionAgent
from batonflow.clock import use_source
from batonflow.durable.stores.memory import MemoryStore
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.llms.stream import ChatRequest
from batonflow.testing.virtual_time import VirtualSource
from batonflow.tools import tool
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowHandler,
    step,
)
from batonflow.workflow_core.errors import StoreError, WorkflowCancelledByUser
from tests.promises.crash.world import Moment, MortalLoop, MortalStore, ProcessEnd, bury, run_now

TURNS = 3
ENDS = ("completed", "failed", "cancelled")


class Turn(Event):
    n: int


class Note(HumanResponseEvent):
    text: str


class Question(InputRequiredEvent):
    n: int


class Answer(HumanResponseEvent):
    n: int
    text: str


class Asks(Workflow):
    """Asks some questions, one after the other, and takes notes meanwhile."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Turn:
        await ctx.store.set("answers", [])
        await ctx.store.set("notes", [])
        return Turn(n=0)

    @step
    async def ask(self, ctx: Context, ev: Turn) -> Turn | StopEvent:
        answer = await ctx.wait_for_event(Answer, waiter_event=Question(n=ev.n), requirements={"n": ev.n})
        answers = [*await ctx.store.get("answers"), await ctx.once("heard", str, answer.text)]
        await ctx.store.set("answers", answers)
        if len(answers) == TURNS:
            return StopEvent(result=[answers, await ctx.store.get("notes")])
        return Turn(n=ev.n + 1)

    @step
    async def note(self, ctx: Context, ev: Note) -> None:
        await ctx.store.set("notes", [*await ctx.store.get("notes"), ev.text])


def writes(request: ChatRequest) -> Any:
    if request.messages[-1].role == "user":
        return tool_call("publish", title="Tides")
    return str(request.messages[-1].content).partition(" ")[0]


@dataclass
class Model:
    """What a run should be.

    Attributes:
        agent: Whether it is one of the agent; else it asks questions.
        answers: That were accepted.
        notes: That it has for certain, and that it may have or not, as it perhaps was over before.
        unsure: An answer that was given when the process ended.
        arrived: One that had come in and was not taken when the run ended; a branch takes it.
        cancels: Whether a cancellation is on its way.
        status: Where it stands; None while it goes on.
        result: What it gave.
        asked_again: How often somebody agreed to a call of unknown outcome.
    """

    agent: bool = False
    answers: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    perhaps: list[str] = field(default_factory=list)
    unsure: str | None = None
    arrived: list[str] = field(default_factory=list)
    cancels: bool = False
    status: str | None = None
    result: Any = None
    asked_again: int = 0


class RunMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = MortalStore(Moment())
        self.models: dict[str, Model] = {}
        self.published: Counter[str] = Counter()
        self.numbers = iter(range(10_000))
        self.alive = False
        self.lives = 0

    # --- processes ----------------------------------------------------------------------------------------------------

    @initialize()
    def begin_to_live(self) -> None:
        self.lives += 1
        self.store = MortalStore(Moment(), self.store)
        self.loop = MortalLoop(self.lives, self.store.moment)
        self.loop.killed_at = math.inf
        self.source = VirtualSource(self.loop, self.lives)
        self.handlers: dict[str, WorkflowHandler] = {}
        self.asks = Asks(store=self.store, timeout=None)
        self.writer = self.make_writer()
        self.alive = True

    def make_writer(self) -> FunctionAgent:
        @tool(requires_approval=True)
        async def publish(ctx: Context, title: str) -> str:
            """Publish an article."""
            self.published[ctx.run_id] += 1
            await asyncio.sleep(0.01)
            return "published"

        options: dict[str, Any] = {"store": self.store, "timeout": None, "on_abandon": "continue"}
        return FunctionAgent(tools=[publish], llm=ScriptedLLM([writes] * 1000), **options)

    def do(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do something in the process, and let it come to rest; it may end meanwhile."""

        async def and_rest() -> Any:
            try:
                return await work()
            finally:
                await asyncio.sleep(1)

        try:
            with use_source(self.source):
                asyncio.set_event_loop(self.loop)
                return self.loop.run_until_complete(and_rest())
        except ProcessEnd:
            self.die()
            return None
        finally:
            asyncio.set_event_loop(None)
            self.store.moment.turn = 0

    def do_beside(self, work: Awaitable[Any]) -> bool:
        """Do something in another process while none drives the runs; whether the run was not over yet."""
        try:
            run_now(work)
        except StoreError as error:
            if "is over" not in str(error):
                raise
            return False
        return True

    def die(self) -> None:
        self.alive = False
        self.handlers.clear()
        self.store.dead = True
        bury(self.loop)
        with use_source(self.source):
            run_now(self.store.aclose())

    def teardown(self) -> None:
        if self.alive:
            self.die()

    # --- what the model knows -----------------------------------------------------------------------------------------

    def going_on(self, *, agent: bool) -> list[str]:
        return [
            run_id
            for run_id, model in self.models.items()
            if model.agent == agent and model.status is None and not model.cancels
        ]

    def look(self) -> None:
        """Compare everything with the model, when the process is at rest."""
        if not self.alive:
            return
        for run_id, model in self.models.items():
            info = run_now(self.store.info(run_id))
            self.settle_doubts(run_id, model, info.status)
            assert self.published[run_id] <= 1 + model.asked_again
            if model.status is not None:
                assert info.status == model.status
                continue
            assert info.status == "running"
            assert not model.cancels
            questions = [request.event for request in self.handlers[run_id].open_inputs()]
            assert len(questions) == 1
            if not model.agent:
                assert questions[0].n == len(model.answers)
            model.notes, model.perhaps = [*model.notes, *model.perhaps], []

    def settle_doubts(self, run_id: str, model: Model, status: str) -> None:
        if model.unsure is not None:
            # What was written counts, whatever became of the process then.
            records = run_now(self.store.replay(run_id)).records
            if sum(record["kind"] == "answered" for record in records) > len(model.answers):
                model.answers.append(model.unsure)
            elif status in ENDS:
                model.arrived = [model.unsure]
            model.unsure = None
        if model.status is not None or status not in ENDS:
            return
        model.status = status
        if status == "cancelled":
            assert model.cancels
            return
        assert status == "completed"
        model.result = run_now(self.store.replay(run_id)).result
        if model.agent:
            model.result = str(model.result)
            return
        answers, notes = model.result
        assert answers == model.answers
        assert len(answers) == TURNS
        assert len(notes) == len(set(notes))
        assert set(model.notes) <= set(notes) <= {*model.notes, *model.perhaps}

    # --- what people do -----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.alive and len(self.models) < 5)
    @rule(agent=st.booleans())
    def start(self, agent: bool) -> None:
        run_id = f"r{next(self.numbers)}"
        self.models[run_id] = Model(agent)
        self.do(lambda: self.keep(run_id, again=True))
        self.look()

    async def keep(self, run_id: str, *, again: bool) -> None:
        """Begin a run or go on with it, in one of the ways."""
        agent = self.models[run_id].agent
        workflow = self.writer if agent else self.asks
        if not again:
            self.handlers[run_id] = workflow.resume(run_id)
        elif agent:
            self.handlers[run_id] = self.writer.run("Write.", run_id=run_id)
        else:
            self.handlers[run_id] = self.asks.run(run_id=run_id)

    @precondition(lambda self: self.going_on(agent=False))
    @rule(data=st.data(), directly=st.booleans(), stale=st.booleans())
    def answer(self, data: st.DataObject, directly: bool, stale: bool) -> None:
        run_id = data.draw(st.sampled_from(self.going_on(agent=False)))
        model = self.models[run_id]
        if len(model.answers) == TURNS or model.unsure is not None:
            return
        stale = stale and bool(model.answers)
        answer = Answer(n=len(model.answers) - stale, text=f"a{next(self.numbers)}")
        taken = True
        if not self.alive:
            taken = self.do_beside(self.asks_beside().send_to_run(run_id, answer))
        elif directly:
            self.do(lambda: self.handlers[run_id].send_event(answer))
        else:
            self.do(lambda: self.asks.send_to_run(run_id, answer))
        if taken and not stale:
            model.answers.append(answer.text)
        self.look()

    @precondition(lambda self: self.alive and self.going_on(agent=False))
    @rule(data=st.data(), turns=st.integers(0, 20))
    def answer_and_die(self, data: st.DataObject, turns: int) -> None:
        run_id = data.draw(st.sampled_from(self.going_on(agent=False)))
        model = self.models[run_id]
        model.unsure = f"a{next(self.numbers)}"
        answer = Answer(n=len(model.answers), text=model.unsure)
        self.store.moment.turn = self.loop.turns + 1 + turns
        self.do(lambda: self.handlers[run_id].send_event(answer))
        self.look()

    def asks_beside(self) -> Workflow:
        """The workflow in another process, which drives nothing."""
        return Asks(store=MortalStore(Moment(), self.store), timeout=None)

    @precondition(lambda self: self.going_on(agent=False))
    @rule(data=st.data(), twice=st.booleans())
    def send(self, data: st.DataObject, twice: bool) -> None:
        run_id = data.draw(st.sampled_from(self.going_on(agent=False)))
        text = f"n{next(self.numbers)}"
        for _ in range(1 + twice):
            if self.alive:
                self.do(lambda: self.asks.send_to_run(run_id, Note(text=text), key=text))
            else:
                self.do_beside(self.asks_beside().send_to_run(run_id, Note(text=text), key=text))
        self.models[run_id].perhaps.append(text)
        self.look()

    @precondition(lambda self: self.alive and self.going_on(agent=True))
    @rule(data=st.data(), yes=st.booleans(), turns=st.one_of(st.none(), st.integers(0, 30)))
    def approve(self, data: st.DataObject, yes: bool, turns: int | None) -> None:
        run_id = data.draw(st.sampled_from(self.going_on(agent=True)))
        handler, model = self.handlers[run_id], self.models[run_id]
        assert isinstance(handler, AgentHandler)
        (request,) = handler.open_inputs()
        again = request.event.reason == "unknown_outcome"
        model.asked_again += again and yes

        async def say() -> None:
            (handler.approve if yes else handler.deny)(request.event.id)

        if turns is not None:
            self.store.moment.turn = self.loop.turns + 1 + turns
        self.do(say)
        self.look()
        if self.alive and turns is None:
            assert model.status == "completed"
            assert (model.result == "published") == yes
            assert self.published[run_id] >= yes

    @precondition(lambda self: self.going_on(agent=False) or self.going_on(agent=True))
    @rule(data=st.data(), directly=st.booleans())
    def cancel(self, data: st.DataObject, directly: bool) -> None:
        run_id = data.draw(st.sampled_from(self.going_on(agent=False) + self.going_on(agent=True)))
        self.models[run_id].cancels = True
        if not self.alive:
            self.models[run_id].cancels = self.do_beside(self.asks_beside().cancel_run(run_id))
        elif directly:
            self.do(lambda: self.handlers[run_id].cancel_run())
        else:
            self.do(lambda: self.asks.cancel_run(run_id))
        self.look()

    @precondition(lambda self: self.alive and len(self.models) > 1)
    @rule()
    def kill(self) -> None:
        self.die()

    @precondition(lambda self: not self.alive)
    @rule(how=st.sampled_from(["recover", "resume", "run"]))
    def take_up(self, how: str) -> None:
        self.begin_to_live()

        async def take_up_all() -> None:
            if how == "recover":
                for workflow in (self.asks, self.writer):
                    for handler in await workflow.recover():
                        self.handlers[handler.run_id] = handler
            for run_id, model in self.models.items():
                if run_id not in self.handlers and (how != "recover" or model.status is None):
                    await self.keep(run_id, again=how == "run")

        self.do(take_up_all)
        self.look()

    @precondition(lambda self: self.alive and any(model.status for model in self.models.values()))
    @rule(data=st.data(), again=st.booleans())
    def ask_for_the_result(self, data: st.DataObject, again: bool) -> None:
        run_id = data.draw(st.sampled_from([run_id for run_id, model in self.models.items() if model.status]))
        model = self.models[run_id]
        before = run_now(self.store.read(run_id))

        async def result() -> Any:
            await self.keep(run_id, again=again)
            try:
                return await self.handlers[run_id]
            except WorkflowCancelledByUser:
                return WorkflowCancelledByUser

        given = self.do(result)
        if model.status == "cancelled":
            assert given is WorkflowCancelledByUser
        else:
            assert (str(given) if model.agent else given) == model.result
        assert run_now(self.store.read(run_id)) == before

    @precondition(lambda self: self.alive and self.models and len(self.models) < 5)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        source_id = data.draw(st.sampled_from(sorted(self.models)))
        source = self.models[source_id]
        before = run_now(self.store.read(source_id))
        at = data.draw(st.integers(1, len(before)))
        fork_id = f"f{next(self.numbers)}"

        async def begin() -> str | None:
            handler = (self.writer if source.agent else self.asks).fork(source_id, at, new_id=fork_id)
            waiting = asyncio.create_task(handler.stop_event_result())
            await asyncio.sleep(1)
            self.handlers[fork_id] = handler
            if not waiting.done():
                waiting.cancel()
                return None
            try:
                await waiting
            except StoreError as error:
                return str(error)
            return None

        refused = self.do(begin)
        assert run_now(self.store.read(source_id)) == before
        if refused is not None:
            assert "is over at commit" in refused
            assert source.status is not None
            assert at == len(before)
            return
        shared = [commit.body for commit in run_now(self.store.read(fork_id))][:at]
        assert shared == [commit.body for commit in before[:at]]
        fork = self.models[fork_id] = Model(source.agent, perhaps=[*source.notes, *source.perhaps])
        self.published[fork_id] = 0
        if source.agent:
            fork.asked_again = 1  # what happened outside is not undone, and may be asked about
        else:
            open_now = [request.event.n for request in self.handlers[fork_id].open_inputs()]
            known = [*source.answers, *source.arrived]
            fork.answers = known[: open_now[0] if open_now else TURNS]
        notes = run_now(self.store.replay(fork_id)).state_at(10**9).get("notes", [])
        fork.notes, fork.perhaps = list(notes), []
        self.look()


@pytest.mark.timeout(240)
def test_whatever_is_done_with_runs_they_are_as_they_should_be(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="batonflow")
    run_state_machine_as_test(
        RunMachine,
        settings=settings(
            settings.get_profile("batonflow"),
            max_examples=60,
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )


async def test_a_branch_of_a_cancelled_run_goes_on_with_what_was_cancelled() -> None:
    store = MemoryStore()
    workflow = Asks(store=store, timeout=None)
    handler = workflow.run(run_id="r")
    questions = handler.inputs()
    (await anext(questions)).respond(text="a")
    await asyncio.wait_for(anext(questions), 30)
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    end = (await store.info("r")).seq
    for at in range(1, end):
        branch = workflow.fork("r", at, new_id=f"r{at}")
        async for request in branch.inputs():
            request.respond(text=f"b{request.event.n}")
        answers, _ = await branch
        assert answers in (["b0", "b1", "b2"], ["a", "b1", "b2"]), f"at {at}"
