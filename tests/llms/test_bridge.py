"""The bridge from synchronous to asynchronous code, where its generators are forgotten."""

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Generator

from batonflow.llms._bridge import iterate_sync, run_sync


class Counting:
    """Numbers without end; tells when it is closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    async def numbers(self) -> AsyncIterator[int]:
        number = 0
        try:
            while True:
                yield number
                number += 1
                await asyncio.sleep(0)
        finally:
            self.closed.set()


def test_leaving_the_loop_closes_what_is_iterated() -> None:
    counting = Counting()
    for number in iterate_sync(counting.numbers()):
        if number == 3:
            break
    assert counting.closed.wait(30)


def test_a_program_ends_while_a_generator_is_still_open() -> None:
    program = """
        from batonflow.llms import ChatMessage, ScriptedLLM

        pieces = ScriptedLLM(["one two three"]).stream_chat([ChatMessage("Count.")])
        print(next(pieces).delta)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=True
    )
    assert (ended.stdout, ended.stderr) == ("one\n", "")


class _Cycle:
    def __init__(self, numbers: Generator[int, None, None]) -> None:
        self.numbers = numbers
        self.me = self


def test_a_generator_that_is_collected_on_the_bridge_is_closed_too() -> None:
    counting = Counting()
    numbers = iterate_sync(counting.numbers())
    next(numbers)

    async def collect() -> None:
        gc.collect()

    gc.disable()
    try:
        forgotten = _Cycle(numbers)
        del numbers, forgotten
        run_sync(collect())
    finally:
        gc.enable()
    assert counting.closed.wait(30)
