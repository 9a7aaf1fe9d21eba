"""What every executor does: one specification for all of them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from batonflow.tools.code import Calls, Done, Executor, ExecutorStateError, Failed, HostCall, Limits, Session, Waiting
from tests.tools.code.sessions import EXECUTORS, KEY, TOOLS, children, opened, replied, run, turns

SHORT = Limits(seconds=0.5, memory_mb=64, output_bytes=1000, calls=5)


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Executor:
    return request.param(key=KEY)


@pytest.fixture
async def session(executor: Executor) -> AsyncIterator[Session]:
    async with opened(executor, run_id="r") as one:
        yield one


def test_it_says_what_it_is(executor: Executor) -> None:
    assert isinstance(executor, Executor)
    assert executor.parallel
    assert "await" in executor.hints
    assert executor.durable != executor.full_python


class TestValues:
    async def test_the_last_expression_is_the_value(self, session: Session) -> None:
        assert await session.start("x = 20\nx + 1") == Done(output="", value=21)

    async def test_a_snippet_that_ends_in_a_statement_has_none(self, session: Session) -> None:
        assert await session.start("x = 1") == Done(output="", value=None)

    async def test_what_is_printed_is_output(self, session: Session) -> None:
        assert await session.start("print('a', 1)\nprint('é')") == Done(output="a 1\né\n", value=None)

    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("[1, 2.5, 'é', None, True, {'a': [1]}]", [1, 2.5, "é", None, True, {"a": [1]}]),
            ("(1, (2, 3))", [1, [2, 3]]),
            ("{3, 1, 2}", [1, 2, 3]),
            ("{2: 'a', None: 'b', True: 'c'}", {"2": "a", "null": "b", "true": "c"}),
            ("b'abc'", "abc"),
            ("b'\\xff'", "/w=="),
            ("float('nan')", "nan"),
            ("2 ** 100", 2**100),
            ("__import__('datetime').date(2026, 1, 2)", "2026-01-02"),
            ("__import__('datetime').timedelta(seconds=90)", 90.0),
            ("__import__('decimal').Decimal('1.50')", "1.50"),
        ],
    )
    async def test_values_come_out_as_json_holds_them(self, session: Session, expression: str, value: object) -> None:
        if "__import__" in expression:
            module = expression.split("'")[1]
            expression = f"import {module}\n" + expression.replace(f"__import__('{module}')", module)
        assert await session.start(expression) == Done(output="", value=value)

    async def test_anything_else_comes_out_as_its_text(self, session: Session) -> None:
        turn = await session.start("lambda: 1")
        assert isinstance(turn, Done)
        assert "lambda" in turn.value

    async def test_a_value_that_goes_out_and_in_is_the_same(self, session: Session) -> None:
        code = "v = {'a': [1, 2.5, None, True, 'é'], 'b': {}}\nawait echo(v) == v"
        assert await run(session, code) == Done(output="", value=True)

    async def test_results_that_are_no_json_come_in_as_json(self, session: Session) -> None:
        turn = await session.start("await echo(1)")
        assert isinstance(turn, Calls)
        assert await session.answer({turn.calls[0].id: (1, {2}, TOOLS[0].metadata.fn_schema)}) == Done(
            output="", value=[1, [2], "<class 'batonflow.tools.schema.add'>"]
        )

    async def test_a_result_that_is_too_large_is_an_error_in_the_code(self, session: Session) -> None:
        turn = await session.start("try:\n    await echo(1)\nexcept ValueError as err:\n    print(err)")
        assert isinstance(turn, Calls)
        done = await session.answer({turn.calls[0].id: "x" * 5_000_000})
        assert isinstance(done, Done)
        assert done.output.startswith("result of 5000002 bytes; at most 4194304 can pass")

    async def test_arguments_that_are_too_large_are_an_error_in_the_code(self, session: Session) -> None:
        turn = await run(session, "try:\n    await echo('x' * 5000000)\nexcept ValueError as err:\n    print(err)")
        assert isinstance(turn, Done)
        assert turn.output.startswith("arguments of echo() of 5000")

    async def test_a_value_that_is_too_large_says_so(self, session: Session) -> None:
        turn = await session.start("'x' * 5000000")
        assert isinstance(turn, Done)
        assert "at most 4194304 can pass" in turn.value


class TestErrors:
    async def test_a_traceback_names_snippet_and_line(self, session: Session) -> None:
        await session.start("def half(x):\n    return 1 / x")
        turn = await session.start("print('before')\n\nhalf(0)")
        assert isinstance(turn, Failed)
        assert (turn.kind, turn.session_lost, turn.output) == ("runtime", False, "before\n")
        assert turn.text.startswith('Traceback (most recent call last):\n  File "<snippet 2>", line 3, in <module>\n')
        assert 'File "<snippet 1>", line 2, in half\n    return 1 / x\n' in turn.text
        assert turn.text.endswith("ZeroDivisionError: division by zero")

    async def test_nothing_runs_of_a_snippet_that_is_no_python(self, session: Session) -> None:
        turn = await session.start("print(1)\nx = (2")
        assert isinstance(turn, Failed)
        assert (turn.kind, turn.output) == ("syntax", "")
        assert "line 2" in turn.text
        assert "SyntaxError" in turn.text

    async def test_what_was_done_before_the_error_remains(self, session: Session) -> None:
        assert isinstance(await session.start("x = 5\nraise ValueError('no')"), Failed)
        assert await session.start("x") == Done(output="", value=5)

    async def test_a_name_that_is_not_there(self, session: Session) -> None:
        turn = await session.start("\nawait no_such_tool(1)")
        assert isinstance(turn, Failed)
        assert "NameError: name 'no_such_tool' is not defined" in turn.text
        assert "line 2" in turn.text

    async def test_a_very_long_error_is_cut(self, session: Session) -> None:
        turn = await session.start("raise ValueError('x' * 100000)")
        assert isinstance(turn, Failed)
        assert len(turn.text) < 10_000

    async def test_leaving_the_interpreter_is_an_error_like_others(self, session: Session) -> None:
        turn = await session.start("raise SystemExit('out')")
        assert isinstance(turn, Failed)
        assert "SystemExit" in turn.text
        assert await session.start("1") == Done(output="", value=1)


class TestState:
    async def test_variables_functions_and_imports_stay(self, session: Session) -> None:
        await session.start("import math\nxs = [1]\ndef grow(n):\n    xs.append(n)\n    return xs")
        await session.start("grow(2)")
        assert await session.start("grow(math.floor(3.9))") == Done(output="", value=[1, 2, 3])

    async def test_a_function_may_call_tools(self, session: Session) -> None:
        await session.start("async def twice(n):\n    return await add(await add(n, n), 0)")
        assert await run(session, "await twice(4)") == Done(output="", value=8)

    async def test_sessions_do_not_see_each_other(self, executor: Executor) -> None:
        async with opened(executor) as one, opened(executor) as other:
            await one.start("x = 1")
            turn = await other.start("x")
            assert isinstance(turn, Failed)
            assert "NameError" in turn.text


class TestCalls:
    async def test_one_after_the_other(self, session: Session) -> None:
        made = await turns(session, "a = await add(1, 2)\nb = await add(a)\nawait add(b, b=a)")
        assert made == [
            Calls((HostCall("r/1/1", "add", {"a": 1, "b": 2}),)),
            Calls((HostCall("r/1/2", "add", {"a": 3}),)),
            Calls((HostCall("r/1/3", "add", {"a": 4, "b": 3}),)),
            Done(output="", value=7),
        ]

    async def test_numbers_of_calls_begin_anew_with_each_snippet(self, session: Session) -> None:
        await run(session, "await add(1)")
        assert await session.start("await add(2)") == Calls((HostCall("r/2/1", "add", {"a": 2}),))

    async def test_gathered_calls_are_one_batch(self, session: Session) -> None:
        made = await turns(session, "import asyncio\nawait asyncio.gather(*[add(n) for n in range(3)])")
        assert [type(one) for one in made] == [Calls, Done]
        assert [call.arguments["a"] for call in made[0].calls] == [0, 1, 2]
        assert made[1].value == [1, 2, 3]

    async def test_answers_may_come_in_any_order(self, session: Session) -> None:
        code = """
import asyncio
async def step(n):
    got = await echo(n)
    print(n, got)
    return got
await asyncio.gather(step(1), step(2), step(3))
"""
        turn = await session.start(code)
        assert isinstance(turn, Calls)
        first, second, third = (call.id for call in turn.calls)
        assert await session.answer({third: "c"}) == Waiting((first, second))
        assert [call.id for call in session.pending] == [first, second]
        assert await session.answer({first: "a"}) == Waiting((second,))
        assert await session.answer({second: "b"}) == Done(output="3 c\n1 a\n2 b\n", value=["a", "b", "c"])

    async def test_an_answer_may_lead_to_new_calls_while_others_are_open(self, session: Session) -> None:
        code = """
import asyncio
async def chain(n):
    return await add(await add(n, 0), 10)
await asyncio.gather(chain(1), chain(2))
"""
        turn = await session.start(code)
        assert isinstance(turn, Calls)
        one, two = turn.calls
        again = await session.answer({two.id: 2})
        assert again == Calls((HostCall("r/1/3", "add", {"a": 2, "b": 10}),))
        assert [call.id for call in session.pending] == [one.id, "r/1/3"]
        assert isinstance(await session.answer(replied(session)), Calls)
        assert await session.answer(replied(session)) == Done(output="", value=[11, 12])

    async def test_an_error_is_raised_where_the_call_is_awaited(self, session: Session) -> None:
        code = """
try:
    await find("nobody")
except LookupError as err:
    print("caught", err)
"""
        assert await run(session, code) == Done(output="caught there is no nobody\n", value=None)

    @pytest.mark.parametrize(
        ("error", "name"),
        [
            (PermissionError("no"), "PermissionError"),
            (TimeoutError("no"), "TimeoutError"),
            (type("Own", (KeyError,), {})("no"), "KeyError"),
            (type("Own", (Exception,), {})("no"), "RuntimeError"),
            (StopIteration("no"), "RuntimeError"),
            (KeyboardInterrupt("no"), "RuntimeError"),
        ],
    )
    async def test_errors_have_the_nearest_builtin_type(
        self, session: Session, error: BaseException, name: str
    ) -> None:
        await session.start(
            "try:\n    await add(1)\nexcept Exception as err:\n    print(type(err).__name__, 'no' in str(err))"
        )
        assert await session.answer({"r/1/1": error}) == Done(output=f"{name} True\n", value=None)

    @pytest.mark.parametrize(
        "error",
        [
            UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
            ExceptionGroup("several", [ValueError("a")]),
            ValueError("cannot read caf\udce9"),
        ],
        ids=["more than a text", "a group", "half of a character"],
    )
    async def test_errors_of_every_make_can_be_caught_and_cost_nothing(
        self, session: Session, error: Exception
    ) -> None:
        await session.start("x = 41")
        turn = await session.start(
            "try:\n    await echo(1)\nexcept Exception as err:\n    print('caught', str(err) != '')"
        )
        assert isinstance(turn, Calls)
        assert await session.answer({turn.calls[0].id: error}) == Done(output="caught True\n", value=None)
        assert await session.start("x + 1") == Done(output="", value=42)

    async def test_an_error_that_nobody_catches_fails_the_snippet(self, session: Session) -> None:
        turn = await run(session, "\nawait find('nobody')")
        assert isinstance(turn, Failed)
        assert (turn.kind, turn.session_lost) == ("runtime", False)
        assert turn.text.endswith("LookupError: there is no nobody")
        assert "line 2" in turn.text

    async def test_one_of_several_may_fail(self, session: Session) -> None:
        code = """
import asyncio
async def safe(name):
    try:
        return (await find(name))["name"]
    except LookupError:
        return None
await asyncio.gather(safe("a"), safe("nobody"), safe("b"))
"""
        assert await run(session, code) == Done(output="", value=["a", None, "b"])

    async def test_a_call_with_too_many_arguments_fails_without_being_made(self, session: Session) -> None:
        code = "try:\n    await find('a', 'b')\nexcept TypeError as err:\n    print(err)"
        assert await session.start(code) == Done(output="find() takes 1 arguments but 2 were given\n", value=None)

    async def test_an_argument_given_twice_fails_without_being_made(self, session: Session) -> None:
        code = "try:\n    await add(1, a=2)\nexcept TypeError as err:\n    print(err)"
        assert await session.start(code) == Done(output="add() got multiple values for argument 'a'\n", value=None)

    async def test_a_tool_may_be_passed_on_by_name(self, session: Session) -> None:
        assert await run(session, "f = add\ng = [f, find][0]\nawait g(1)") == Done(output="", value=2)

    async def test_a_call_that_is_never_awaited_does_not_keep_the_snippet_from_ending(self, session: Session) -> None:
        turn = await session.start("c = add(1)\n5")
        assert isinstance(turn, Done)
        assert turn.value == 5
        assert session.pending == ()


class TestMisuse:
    async def test_a_snippet_cannot_start_while_another_waits(self, session: Session) -> None:
        await session.start("await add(1)")
        with pytest.raises(ExecutorStateError, match=r"snippet 1 of run 'r' waits for r/1/1: answer or interrupt"):
            await session.start("1")

    async def test_only_pending_calls_can_be_answered(self, session: Session) -> None:
        await session.start("await add(1)")
        with pytest.raises(ExecutorStateError, match=r"r/1/7.*pending calls \(r/1/1\)"):
            await session.answer({"r/1/7": 1})
        with pytest.raises(ExecutorStateError, match="nothing"):
            await session.answer({})
        assert await session.answer({"r/1/1": 3}) == Done(output="", value=3)

    async def test_two_turns_cannot_be_awaited_at_once(self, executor: Executor) -> None:
        async with opened(executor, SHORT) as session:
            first = asyncio.create_task(session.start("while True: pass"))
            await asyncio.sleep(0)
            with pytest.raises(ExecutorStateError, match="is running"):
                await session.start("1")
            with pytest.raises(ExecutorStateError, match="is running"):
                await session.snapshot()
            assert isinstance(await first, Failed)

    async def test_a_closed_session_says_so(self, executor: Executor) -> None:
        session = await executor.open(run_id="r")
        await session.aclose()
        await session.aclose()
        with pytest.raises(ExecutorStateError, match="'r' is closed"):
            await session.start("1")


class TestLimits:
    @pytest.mark.parametrize(
        "code", ["while True: pass", "import asyncio\nawait asyncio.sleep(60)", "import time\ntime.sleep(60)"]
    )
    async def test_seconds(self, executor: Executor, code: str) -> None:
        async with opened(executor, SHORT) as session:
            await session.start("kept = 1")
            turn = await session.start(code)
            assert isinstance(turn, Failed)
            assert (turn.kind, turn.session_lost) == ("limit", False)
            assert turn.text.startswith("TimeoutError: the snippet ran for more than 0.5 seconds")
            assert await session.start("kept") == Done(output="", value=1)

    async def test_the_time_a_call_takes_does_not_count(self, executor: Executor) -> None:
        async with opened(executor, SHORT) as session:
            turn = await session.start("await add(1)")
            assert isinstance(turn, Calls)
            await asyncio.sleep(0.8)
            assert await session.answer({turn.calls[0].id: 2}) == Done(output="", value=2)

    async def test_memory(self, executor: Executor) -> None:
        async with opened(executor, SHORT) as session:
            await session.start("kept = 1")
            turn = await session.start("x = [0] * 10 ** 9")
            assert isinstance(turn, Failed)
            assert (turn.kind, turn.session_lost) == ("limit", False)
            assert "MemoryError" in turn.text
            assert await session.start("kept") == Done(output="", value=1)

    async def test_output_is_cut_and_the_snippet_goes_on(self, executor: Executor) -> None:
        async with opened(executor, SHORT) as session:
            turn = await session.start("for n in range(3000): print('é' * 10)\n7")
            assert isinstance(turn, Done)
            assert turn.value == 7
            kept, note = turn.output.rsplit("\n", 1)
            assert note == "[output cut at 1000 bytes]"
            assert 990 <= len(kept.encode()) <= 1000
            assert await session.start("print(1)") == Done(output="1\n", value=None)

    async def test_calls(self, executor: Executor) -> None:
        async with opened(executor, SHORT) as session:
            made = await turns(session, "for n in range(100):\n    await add(n)")
            assert [type(one) for one in made] == [Calls] * 5 + [Failed]
            assert made[-1].kind == "limit"
            assert made[-1].text.startswith("the snippet made more than 5 tool calls")
            assert isinstance(await run(session, "await add(1)"), Done)

    async def test_calls_that_are_caught_count_too(self, executor: Executor) -> None:
        code = "while True:\n    try:\n        await find('nobody')\n    except LookupError:\n        pass"
        async with opened(executor, SHORT) as session:
            turn = await run(session, code)
            assert isinstance(turn, Failed)
            assert turn.kind == "limit"

    @pytest.mark.parametrize("name", ["seconds", "memory_mb", "output_bytes", "calls"])
    def test_a_limit_is_more_than_nothing(self, name: str) -> None:
        with pytest.raises(ValueError, match=rf"Limits\({name}=0\): must be more than 0"):
            Limits(**{name: 0})


class TestInterrupt:
    async def test_during_an_endless_loop(self, session: Session) -> None:
        await session.start("kept = 1")
        running = asyncio.create_task(session.start("print('in')\nwhile True: pass"))
        await asyncio.sleep(0.1)
        session.interrupt()
        turn = await running
        assert isinstance(turn, Failed)
        assert (turn.kind, turn.session_lost) == ("interrupted", False)
        assert await session.start("kept") == Done(output="", value=1)

    async def test_while_calls_are_open(self, session: Session) -> None:
        await session.start("kept = 1")
        turn = await session.start("await add(1)\nkept = 2")
        assert isinstance(turn, Calls)
        session.interrupt()
        ended = await session.answer({turn.calls[0].id: 5})
        assert isinstance(ended, Failed)
        assert ended.kind == "interrupted"
        assert session.pending == ()
        assert await session.start("kept") == Done(output="", value=1)

    async def test_the_next_snippet_may_be_looked_at_at_once(self, session: Session) -> None:
        await session.start("x = 41")
        await session.start("await echo(1)")
        session.interrupt()
        assert await session.check("x + 1") == []
        assert await session.start("x + 1") == Done(output="", value=42)

    async def test_the_next_snippet_may_start_at_once(self, session: Session) -> None:
        await session.start("await add(1)")
        session.interrupt()
        assert await session.start("3") == Done(output="", value=3)

    async def test_between_snippets_it_does_nothing(self, session: Session) -> None:
        session.interrupt()
        assert await session.start("1") == Done(output="", value=1)

    async def test_code_that_catches_everything_is_stopped_all_the_same(self, session: Session) -> None:
        code = """
def step():
    return 1
while True:
    try:
        while True:
            step()
    except BaseException:
        caught = True
"""
        running = asyncio.create_task(session.start(code))
        await asyncio.sleep(0.1)
        session.interrupt()
        turn = await running
        assert isinstance(turn, Failed)
        assert turn.kind == "interrupted"
        assert await session.start("1 + 1") == Done(output="", value=2)

    async def test_cancelling_whoever_awaits_stops_the_code(self, session: Session) -> None:
        running = asyncio.create_task(session.start("while True: pass"))
        await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await session.start("1 + 1") == Done(output="", value=2)


class TestEnd:
    async def test_no_process_stays_for_a_closed_session(self, executor: Executor) -> None:
        async def one(code: str) -> None:
            session = await executor.open(TOOLS, SHORT)
            await session.start(code)
            await session.aclose()

        await one("await add(1)")
        before = children()
        for code in ("1", "await add(1)", "while True: pass", "x = [0] * 10 ** 9", "raise ValueError"):
            await one(code)
        assert len(children()) <= len(before)

    async def test_closing_stops_what_runs(self, executor: Executor) -> None:
        session = await executor.open(TOOLS)
        running = asyncio.create_task(session.start("while True: pass"))
        await asyncio.sleep(0.1)
        await session.aclose()
        turn = await running
        assert isinstance(turn, Failed)
        assert turn.kind == "interrupted"


class TestCheck:
    async def test_code_without_problems(self, session: Session) -> None:
        assert await session.check("x = await add(1, 2)\nprint(x)") == []

    async def test_what_is_no_python_is_told_with_its_line(self, session: Session) -> None:
        (problem,) = await session.check("x = 1\ny = (x")
        assert problem.line == 2
        assert str(problem).startswith("line 2: ")

    async def test_nothing_runs(self, session: Session) -> None:
        await session.check("checked = 1")
        turn = await session.start("checked")
        assert isinstance(turn, Failed)
        assert "checked" in turn.text

    async def test_code_of_absurd_length_is_not_even_looked_at(self, session: Session) -> None:
        long = "x = 1\n" * 200_000
        (problem,) = await session.check(long)
        assert "1200000 characters" in problem.text
        turn = await session.start(long)
        assert isinstance(turn, Failed)
        assert turn.kind == "syntax"
