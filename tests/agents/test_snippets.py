"""A snippet that is interrupted goes on where it stood, in another process too, and nothing of it happens twice."""

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonflow.agents import CodeActAgent, ToolCall, ToolCallResult
from batonflow.agents.snippets import STORED, SUSPENDED, _open  # pyright: ignore[reportPrivateUsage]
from batonflow.llms import ScriptedLLM
from batonflow.tools import FunctionTool, tool
from batonflow.tools.code import Executor, MontyExecutor, UnsafeLocalExecutor
from batonflow.workflow_core import Context
from tests.durable.listening import Listener
from tests.sampling import sampled

KEY = b"a key for tests, 32 bytes long.."
ROOT = Path(__file__).resolve().parents[2]


class LaterMonty(MontyExecutor):
    """The same interpreter under the name of another version: it may not read the state of this one."""

    version = property(lambda self: "99.0")  # type: ignore[assignment]


def code(text: str) -> str:
    return f"<execute>\n{text}\n</execute>"


def told(llm: Any) -> list[str]:
    """What the model was shown of its code, snippet by snippet."""
    head = "Result of executing the code given:\n\n"
    messages = [str(one.content) for one in llm.requests[-1].messages]
    return [text.removeprefix(head) for text in messages if text.startswith(head)]


# --- processes that end in the middle ---------------------------------------------------------------------------------

# Ends hard at the n-th place where the snippet stands still (0: at none), or goes on with what was written there.
PROGRAM = """
import asyncio, json, logging, os, sys
from batonflow.agents import CodeActAgent, ToolCall, ToolCallResult
from batonflow.llms import ScriptedLLM
from batonflow.tools import code, tool
from batonflow.workflow_core import Context

logging.getLogger("batonflow").setLevel(logging.ERROR)  # one of the tools is meant to fail
executor, file, log, place = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
snippet = sys.stdin.read()
gates = {name: asyncio.Event() for name in ("note", "slow", "fail")}

async def body(name):
    await gates[name].wait()
    with open(log, "a") as lines:
        lines.write(name + "\\n")

@tool
async def note(values: list[float]) -> list[float]:
    await body("note")
    return values

@tool(requires_approval=True)
async def publish(title: str) -> str:
    with open(log, "a") as lines:
        lines.write("publish\\n")
    return "published " + title

@tool
async def slow(text: str) -> str:
    await body("slow")
    return "slowly " + text

@tool
async def fail(text: str) -> str:
    await body("fail")
    raise LookupError("no " + text)

async def seen(events, kind, names):
    while names:
        event = await anext(events)
        if isinstance(event, kind) and event.tool_name in names:
            names.remove(event.tool_name)

def end_at(number, handler):
    if number == place:
        written = json.dumps(handler.ctx.to_dict())
        with open(file, "w") as lines:
            lines.write(written)
        os._exit(3)

async def main():
    restored = os.path.exists(file)
    turns = [] if restored else ["<execute>\\n" + snippet + "\\n</execute>"]
    llm = ScriptedLLM([*turns, "<execute>\\nprint(results[0], 'again')\\n</execute>", "Done."])
    made = CodeActAgent(
        llm=llm, tools=[note, publish, slow, fail], executor=getattr(code, executor)(key=b"a key for tests, 32 bytes..")
    )
    if restored:
        for gate in gates.values():
            gate.set()
        handler = made.run(ctx=Context.from_dict(made, json.load(open(file))))
    else:
        handler = made.run("Go.")
        events = handler.stream_events()
        await seen(events, ToolCall, ["note"])
        end_at(1, handler)
        gates["note"].set()
        await seen(events, ToolCall, ["publish", "slow", "fail"])
        for number, name in ((2, "fail"), (3, "slow")):
            end_at(number, handler)
            gates[name].set()
            await seen(events, ToolCallResult, [name])
        end_at(4, handler)  # with a result that is written and perhaps not delivered yet
        await asyncio.sleep(0.2)
        end_at(5, handler)
    async for request in handler.approvals():
        request.approve()
    await handler
    head = "Result of executing the code given:\\n\\n"
    messages = [str(one.content) for one in llm.requests[-1].messages]
    print(json.dumps([text for text in messages if text.startswith(head)]))

asyncio.run(main())
"""

SNIPPET = """
import asyncio, random
print("before")
chance = random.random()
noted = await note([chance])

async def safe(call):
    try:
        return await call
    except LookupError as err:
        return f"caught {err}"

print("between")
results = await asyncio.gather(safe(publish("tides")), safe(slow("x")), safe(fail("y")))
print("after")
[results, noted == [chance]]
"""
# Read again, the clock would give another time, and the call would be another one.
WITH_THE_CLOCK = SNIPPET.replace("import asyncio, random", "import asyncio, random, time").replace(
    "chance = random.random()", "chance = random.random() + time.time()"
)
RESULT = "before\nbetween\nafter\nValue of the last expression: [['published tides', 'slowly x', 'caught no y'], True]"


class TestAProcessThatEndsInTheMiddle:
    def go(self, tmp_path: Path, executor: str, snippet: str, place: int) -> subprocess.CompletedProcess[str]:
        program = tmp_path / "program.py"
        program.write_text(PROGRAM)
        files = [str(tmp_path / "run.json"), str(tmp_path / "log")]
        command = [sys.executable, str(program), executor, *files, str(place)]
        return subprocess.run(command, input=snippet, capture_output=True, text=True, cwd=ROOT, check=False)

    def check(self, tmp_path: Path, executor: str, snippet: str, place: int) -> None:
        if place:
            ended = self.go(tmp_path, executor, snippet, place)
            assert (ended.returncode, ended.stderr) == (3, "")
        done = self.go(tmp_path, executor, snippet, 0)
        assert (done.returncode, done.stderr) == (0, "")
        results = [text.split("\n\n", 1)[1] for text in json.loads(done.stdout)]
        assert results == [RESULT, "published tides again"]
        lines = (tmp_path / "log").read_text().split()
        assert sorted(lines) == ["fail", "note", "publish", "slow"]

    @pytest.mark.parametrize("place", sampled(range(6), every=2))
    def test_monty_goes_on_there(self, tmp_path: Path, place: int) -> None:
        self.check(tmp_path, "MontyExecutor", WITH_THE_CLOCK, place)

    @pytest.mark.external("bubblewrap")
    @pytest.mark.parametrize("place", sampled(range(6), every=2, begin=1))
    def test_bubblewrap_runs_the_snippet_again_with_the_recorded_results(self, tmp_path: Path, place: int) -> None:
        self.check(tmp_path, "BubblewrapExecutor", SNIPPET, place)


# --- one process, two runs --------------------------------------------------------------------------------------------


@dataclass
class Desk:
    """Holds calls of ``ask(n)`` until they are let go; those that were are counted, each in its body."""

    waiting: dict[int, asyncio.Event] = field(default_factory=dict[int, asyncio.Event])
    bodies: list[int] = field(default_factory=list[int])
    all_go: bool = False

    @property
    def tool(self) -> FunctionTool:
        async def ask(n: int) -> int:
            """Ask; threes fail."""
            if not self.all_go:
                await self.waiting.setdefault(n, asyncio.Event()).wait()
            self.bodies.append(n)
            if n % 3 == 0:
                raise LookupError(f"no {n}")
            return 10 * n

        return FunctionTool.from_defaults(ask)

    async def called(self, *numbers: int) -> None:
        await _until(lambda: set(numbers) <= set(self.waiting))

    async def let_go(self, number: int) -> None:
        self.waiting[number].set()
        await _until(lambda: number in self.bodies)


async def _until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - much of what is waited for tells nobody
            await asyncio.sleep(0.001)


def agent(desk: Desk, *turns: str, executor: Executor | None = None, tools: Any = ()) -> CodeActAgent:
    llm = ScriptedLLM([*turns, "Done."])
    return CodeActAgent(llm=llm, tools=[desk.tool, *tools], executor=executor or MontyExecutor(key=KEY))


async def taken_up(made: CodeActAgent, snapshot: dict[str, Any]) -> list[str]:
    """What the model was shown of its code when the run has gone on to its end."""
    await made.run(ctx=Context.from_dict(made, json.loads(json.dumps(snapshot))))
    return told(made.llm)


def stored(snapshot: dict[str, Any], path: str) -> Any:
    """What lies in the state of a snapshot."""
    return json.loads(snapshot["state"]["state_data"]["_data"].get(path, "{}"))


CLOCK = """
import time
began = int(time.time() * 1000000) * 3 + 1
print("so")
x = await ask(began)
y = await ask(2)
[x == 10 * began, y]
"""


class TestGoingOn:
    async def interrupted(self, desk: Desk, text: str, *numbers: int, **options: Any) -> dict[str, Any]:
        """A snapshot of a run whose snippet has made the calls."""
        handler = agent(desk, code(text), **options).run("Go.", run_id="r")
        await desk.called(*numbers)
        snapshot = handler.ctx.to_dict()
        await handler.cancel_run()
        desk.all_go = True
        return snapshot

    async def clock_interrupted(self, desk: Desk, **options: Any) -> dict[str, Any]:
        """One whose snippet has read the clock, told a tool, and waits for the answer to its second call."""
        handler = agent(desk, code(CLOCK), **options).run("Go.", run_id="r")
        await _until(lambda: desk.waiting)
        await desk.let_go(next(iter(desk.waiting)))
        await desk.called(2)
        snapshot = handler.ctx.to_dict()
        await handler.cancel_run()
        desk.all_go = True
        return snapshot

    async def test_what_was_computed_is_not_computed_again(self) -> None:
        desk = Desk()
        snapshot = await self.clock_interrupted(desk)
        assert await taken_up(agent(desk), snapshot) == ["so\nValue of the last expression: [True, 20]"]
        assert len(desk.bodies) == 2

    async def test_it_can_be_interrupted_again_and_again(self) -> None:
        desk = Desk()
        read = "later = int(time.time() * 1000000) * 3 + 1"
        text = f"import time\nawait ask(1)\n{read}\nx = await ask(later)\nx == 10 * later"
        snapshot = await self.interrupted(desk, text, 1)
        desk.all_go = False
        desk.waiting.clear()
        made = agent(desk)
        handler = made.run(ctx=Context.from_dict(made, snapshot))
        await desk.called(1)
        await desk.let_go(1)
        await _until(lambda: len(desk.waiting) == 2)
        snapshot = handler.ctx.to_dict()
        await handler.cancel_run()
        desk.all_go = True
        assert await taken_up(agent(desk), snapshot) == ["Value of the last expression: True"]
        assert desk.bodies == list(desk.waiting)

    async def test_two_calls_that_are_alike_are_two(self) -> None:
        drawn: list[int] = []
        waits = asyncio.Event()

        async def draw() -> int:
            """Draw a number; the second one takes time."""
            if drawn:
                await waits.wait()
            drawn.append(len(drawn) + 7)
            return drawn[-1]

        desk = Desk()
        handler = agent(desk, code("[await draw(), await draw()]"), tools=[draw]).run("Go.")
        await _until(lambda: stored(handler.ctx.to_dict(), SUSPENDED).get("code_act_agent", {}).get("number") == 2)
        snapshot = handler.ctx.to_dict()
        await handler.cancel_run()
        waits.set()
        assert await taken_up(agent(desk, tools=[draw]), snapshot) == ["Value of the last expression: [7, 8]"]

    async def test_another_version_runs_it_again_with_the_recorded_clock_and_results(self) -> None:
        desk = Desk()
        snapshot = await self.clock_interrupted(desk)
        made = agent(desk, executor=LaterMonty(key=KEY))
        assert await taken_up(made, snapshot) == ["so\nValue of the last expression: [True, 20]"]
        assert len(desk.bodies) == 2

    async def test_nothing_of_an_altered_state_is_used(self) -> None:
        desk = Desk()
        snapshot = await self.interrupted(desk, "print('so')\nawait ask(1)", 1)
        state = stored(snapshot, SUSPENDED)
        data = bytearray(base64.b64decode(state["code_act_agent"]["snapshot"]))
        data[-5] ^= 1
        state["code_act_agent"]["snapshot"] = base64.b64encode(data).decode()
        snapshot["state"]["state_data"]["_data"][SUSPENDED] = json.dumps(state)
        executor = MontyExecutor(key=KEY)
        opened = _openings(executor)
        assert await taken_up(agent(desk, executor=executor), snapshot) == ["so\nValue of the last expression: 10"]
        assert [type(one).__name__ for one in opened] == ["SnapshotSignatureError", "_MontySession"]
        assert desk.bodies == [1]

    async def test_nor_the_state_of_another_snippet(self) -> None:
        desk = Desk()
        snapshot = await self.interrupted(desk, "print('so')\nawait ask(1)", 1)
        other = await self.interrupted(Desk(), "print('other')\nawait ask(4)", 4)
        mine, theirs = stored(snapshot, SUSPENDED), stored(other, SUSPENDED)
        mine["code_act_agent"]["snapshot"] = theirs["code_act_agent"]["snapshot"]
        snapshot["state"]["state_data"]["_data"][SUSPENDED] = json.dumps(mine)
        assert await taken_up(agent(desk), snapshot) == ["so\nValue of the last expression: 10"]
        assert desk.bodies == [1]

    async def test_with_another_key_the_snippet_runs_again_with_the_recorded_results(self) -> None:
        desk = Desk()
        handler = agent(desk, code("print('so')\nawait ask(1) + await ask(2)")).run("Go.")
        await desk.called(1)
        await desk.let_go(1)
        await desk.called(2)
        snapshot = handler.ctx.to_dict()
        await handler.cancel_run()
        desk.all_go = True
        made = agent(desk, executor=MontyExecutor(key=b"another key, long enough"))
        assert await taken_up(made, snapshot) == ["so\nValue of the last expression: 30"]
        assert desk.bodies == [1, 2]

    async def test_without_a_tool_that_it_had_it_does_not_go_on(self) -> None:
        @tool
        def other() -> int:
            """Another one."""
            return 0

        desk = Desk()
        snapshot = await self.interrupted(desk, "await ask(1)\nawait other()", 1, tools=[other])
        (shown,) = await taken_up(agent(desk), snapshot)
        assert "Nothing was run" in shown
        assert "other" in shown
        assert desk.bodies == []

    @pytest.mark.parametrize("executor", [MontyExecutor, UnsafeLocalExecutor])
    async def test_every_call_is_on_the_streams_once_and_has_one_result(self, executor: type[Any]) -> None:
        desk = Desk()
        text = "import asyncio\nawait ask(1)\nawait asyncio.gather(ask(2), ask(3))"
        handler = agent(desk, code(text), executor=executor(key=KEY)).run("Go.")
        await desk.called(1)
        await desk.let_go(1)
        await desk.called(2, 3)
        snapshot = handler.ctx.to_dict()
        made = agent(desk, executor=executor(key=KEY))
        first = _shown(handler.stream_events())
        await handler.cancel_run()
        again = made.run(ctx=Context.from_dict(made, json.loads(json.dumps(snapshot))))
        second = _shown(again.stream_events())
        desk.waiting.clear()
        await desk.called(2, 3)
        await desk.let_go(3)
        await again
        assert (await first)[:5] == ["call execute", "call 1", "result 1", "call 2", "call 3"]
        assert await second == ["result 3", "result 2", "result execute"]

    async def test_a_large_state_is_written_where_the_snippet_waits_for_long(self) -> None:
        desk = Desk()
        text = "import random\nbig = [random.random() for _ in range(20000)]\n[await ask(1), await ask(2), len(big)]"
        handler = agent(desk, code(text)).run("Go.")
        await desk.called(1)
        first = handler.ctx.to_dict()
        await desk.let_go(1)
        await desk.called(2)
        at_once = handler.ctx.to_dict()
        numbers = [stored(one, SUSPENDED)["code_act_agent"]["number"] for one in (first, at_once)]
        assert numbers == [1, 1]
        await _until(lambda: stored(handler.ctx.to_dict(), SUSPENDED)["code_act_agent"]["number"] == 2)
        later = handler.ctx.to_dict()
        await handler.cancel_run()
        desk.all_go = True
        for snapshot in (at_once, later):
            assert await taken_up(agent(desk), snapshot) == ["Value of the last expression: [10, 20, 20000]"]
        assert desk.bodies == [1, 2, 2]

    async def test_a_snippet_that_waits_for_long_gives_its_worker_back(self) -> None:
        desk = Desk()
        handler = agent(desk, code("await ask(1)")).run("Go.")
        await desk.called(1)
        run = handler.ctx.run
        assert run is not None
        session: Any = _open[run]["code_act_agent"].session
        assert session._worker is not None
        await _until(lambda: session._worker is None)
        await desk.let_go(1)
        await handler

    @pytest.mark.parametrize("executor", [MontyExecutor, UnsafeLocalExecutor])
    async def test_only_durable_executors_leave_something_in_the_store(self, executor: type[Any]) -> None:
        desk = Desk()
        handler = agent(desk, code("await ask(1)"), executor=executor(key=KEY)).run("Go.")
        await desk.called(1)
        assert (await handler.ctx.store.get(SUSPENDED, default=None) is not None) == executor.durable
        await desk.let_go(1)
        await handler
        assert not await handler.ctx.store.get(SUSPENDED, default=None)
        assert not await handler.ctx.store.get(STORED, default=None)

    async def test_a_journal_has_each_place_before_its_results_and_each_result_before_the_next_place(self) -> None:
        desk = Desk()
        desk.all_go = True
        made = CodeActAgent(
            llm=ScriptedLLM([code("await ask(1) + await ask(2)"), "Done."]),
            tools=[desk.tool],
            executor=MontyExecutor(key=KEY),
            store=(journal := Listener()),
        )
        await made.run("Go.")
        records = journal.records("call_tool")
        once = [
            (one["outcome"][1][0], [path for _, path, _ in one.get("writes", ())])
            for one in records
            if one["outcome"][0] == "once"
        ]
        names = [name.split("-")[0] if "code-" in name and "ended" not in name else name for name, _ in once]
        call = ["tool code", "code"]  # what the tool gave, then what the snippet is given
        assert names == ["code stood still 1", *call, "code stood still 2", *call, "code-1 ended", "tool 1/0"]
        paths = [paths for _, paths in once]
        assert paths == [[SUSPENDED], [], [], [SUSPENDED], [], [], [STORED, SUSPENDED], []]

    async def test_writing_it_down_takes_little(self) -> None:
        desk = Desk()
        handler = agent(desk, code("x = [1, 2, 3]\nawait ask(1)")).run("Go.")
        await desk.called(1)
        assert len(stored(handler.ctx.to_dict(), SUSPENDED)["code_act_agent"]["snapshot"]) < 10_000
        await handler.cancel_run()


def _openings(executor: Any) -> list[Any]:
    """The sessions that an executor opens from now on, or why it does not."""
    opened: list[Any] = []
    inner = executor.open

    async def open_(*args: Any, **kwargs: Any) -> Any:
        try:
            opened.append(await inner(*args, **kwargs))
        except Exception as err:
            opened.append(err)
            raise
        return opened[-1]

    executor.open = open_
    return opened


def _shown(events: Any) -> "asyncio.Task[list[str]]":
    """The calls and results on a stream, by the number that was asked for."""

    async def read() -> list[str]:
        shown: list[str] = []
        async for event in events:
            if isinstance(event, ToolCall | ToolCallResult):
                kind = "call" if isinstance(event, ToolCall) else "result"
                shown.append(f"{kind} {event.tool_kwargs.get('n', event.tool_name)}")
        return shown

    return asyncio.create_task(read())


# --- programs made up at random ---------------------------------------------------------------------------------------

START = """
import asyncio, random
chance = [random.random()]
seen = []

async def safe(n):
    try:
        seen.append(await ask(n))
    except LookupError as err:
        seen.append(str(err))
    print("answered", n)
    return seen[-1]
"""


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, list[list[int]]]:
    """A program with at most five calls, and its calls in the order in which they are answered, group by group."""
    lines, groups, number = [START], list[list[int]](), 0
    for size in draw(st.lists(st.integers(0, 3), max_size=4)):
        size = min(size, 5 - number)
        numbers = list(range(number + 1, number + size + 1))
        number += size
        if size == 0:
            lines.append(draw(st.sampled_from(["print('p')", "chance.append(random.random())", "print(len(seen))"])))
        elif size == 1:
            lines.append(f"x = await safe({numbers[0]})\nprint('x', x)")
        else:
            lines.append(f"xs = await asyncio.gather({', '.join(f'safe({one})' for one in numbers)})\nprint(xs)")
        if numbers:
            groups.append(draw(st.permutations(numbers)))
    return "\n".join([*lines, "[len(seen), len(chance), chance[-1] > 0]"]), groups


async def _played(
    text: str, groups: list[list[int]], executor: Executor, end_at: int | None
) -> tuple[list[list[str]], list[int]]:
    """The lines that the model is shown, and the bodies that ran, with an interruption before one of the answers."""
    desk = Desk()
    made = agent(desk, code(text), executor=executor)
    handler = made.run("Go.")
    results: list[Any] = []
    readers = [asyncio.create_task(_read_results(handler, results))]
    left = [(group, number) for group in groups for number in group]
    for position, (group, number) in enumerate(left):
        await desk.called(*(one for one in group if one not in desk.bodies))
        # What has run and is not written down may run again; that is not what is looked at here.
        await _until(lambda: len(results) == position)  # noqa: B023 - used at once
        if position == end_at:
            snapshot = json.loads(json.dumps(handler.ctx.to_dict()))
            await handler.cancel_run()
            made, desk.waiting = agent(desk, executor=executor), {}
            handler = made.run(ctx=Context.from_dict(made, snapshot))
            readers.append(asyncio.create_task(_read_results(handler, results)))
            await desk.called(*(one for one in group if one not in desk.bodies))
        await desk.let_go(number)
    await handler
    await asyncio.gather(*readers, return_exceptions=True)
    # Answers that come together reach the code in any order.
    return [sorted(line for text in told(made.llm) for line in text.splitlines())], desk.bodies


async def _read_results(handler: Any, results: list[Any]) -> None:
    async for event in handler.stream_events():
        if isinstance(event, ToolCallResult) and event.tool_name == "ask":
            results.append(event)  # noqa: PERF401 - looked at meanwhile


class TestAnyProgram:
    async def _check(self, executor: Executor, program: tuple[str, list[list[int]]], data: st.DataObject) -> None:
        text, groups = program
        answers = [number for group in groups for number in group]
        whole = await _played(text, groups, executor, None)
        assert whole[1] == answers
        if answers:
            end_at = data.draw(st.integers(0, len(answers) - 1), label="interrupted before answer")
            assert await _played(text, groups, executor, end_at) == whole

    @given(programs(), st.data())
    @settings(max_examples=15, deadline=None)
    async def test_it_ends_as_if_it_had_not_been_interrupted(
        self, program: tuple[str, list[list[int]]], data: st.DataObject
    ) -> None:
        await self._check(MontyExecutor(key=KEY), program, data)

    @given(programs(), st.data())
    @settings(max_examples=5, deadline=None)
    async def test_also_when_it_runs_again_under_another_version(
        self, program: tuple[str, list[list[int]]], data: st.DataObject
    ) -> None:
        await self._check(_Upgraded(key=KEY), program, data)


class _Upgraded(MontyExecutor):
    """Another version each time it is asked."""

    _count = 0

    @property
    def version(self) -> str:
        type(self)._count += 1
        return f"99.{self._count}"
