"""Snippets that use up time, memory or something else, without end or far beyond any limit.

Those that take a certain amount end with saying "took it". ``shown`` is how that is shown against bare ``exec``:
``time`` (it is still running after a while), ``memory`` (it took more than any test allows), ``output`` (it
wrote so much), ``says``.
``unproven`` says why it is not.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["BOMBS", "Bomb"]


@dataclass(frozen=True)
class Bomb:
    name: str
    code: str
    shown: Literal["time", "memory", "output", "says", ""]
    unproven: str = ""


BOMBS = [
    Bomb("loop", "while True: pass", "time"),
    Bomb(
        "loop_that_catches_everything",
        """
def step():
    return 1
while True:
    try:
        while True:
            step()
    except BaseException:
        caught = True
""",
        "time",
    ),
    Bomb("sleep", "import time\ntime.sleep(60)", "time"),
    Bomb("power", "print(len(str(9 ** 9 ** 9)))", "time"),
    Bomb("squares", "x = 3\nwhile True: x = x * x", "time"),
    Bomb("factorial", "import math\nmath.factorial(10 ** 7)", "time"),
    Bomb("regular_expression", "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')", "time"),
    Bomb("sort", "sorted(range(3 * 10 ** 7), key=lambda n: -n)\nprint('took it')", "time"),
    Bomb("list", "x = [0] * (4 * 10 ** 7)\nprint('took it')", "memory"),
    Bomb("growing_list", "xs = []\nfor n in range(300): xs.append('x' * 10 ** 6 + str(n))\nprint('took it')", "memory"),
    Bomb("doubled_text", "s = 'x'\nfor _ in range(28): s += s\nprint('took it')", "memory"),
    Bomb("dicts", "xs = [{str(n): [n]} for n in range(10 ** 6)]\nprint('took it')", "memory"),
    Bomb(
        "memory_that_is_asked_for_again",
        """
xs = []
while True:
    try:
        xs.append("x" * 10 ** 7)
    except MemoryError:
        pass
""",
        "time",
    ),
    Bomb(
        "shared_memory",
        """
import mmap
memory = mmap.mmap(-1, 3 * 10 ** 8)
for start in range(0, len(memory), 10 ** 6):
    memory[start : start + 10 ** 6] = bytes(10 ** 6)
print("took it")
""",
        "memory",
    ),
    Bomb(
        "memory_in_files",
        """
import os
files = [os.memfd_create(str(n)) for n in range(10)]
for file in files:
    for _ in range(30):
        os.write(file, bytes(10 ** 6))
print("took it")
""",
        "says",
    ),
    Bomb("print", "while True: print('x' * 1000)", "output"),
    Bomb("argument", "await lookup('x' * (3 * 10 ** 8))\nprint('took it')", "memory"),
    Bomb("calls", "while True: await lookup('x')", "time"),
    Bomb(
        "gathered_calls",
        "import asyncio\nawait asyncio.gather(*[lookup(n) for n in range(10 ** 6)])\nprint('took it')",
        "memory",
    ),
    Bomb(
        "recursion",
        """
import sys
sys.setrecursionlimit(10 ** 9)
def deeper(n):
    return [deeper(n + 1)]
deeper(0)
""",
        "memory",
    ),
    Bomb(
        "threads",
        """
import threading
def spin():
    while True:
        pass
for _ in range(20):
    threading.Thread(target=spin).start()
""",
        "time",
    ),
    Bomb("nested_code", "x = " + "(" * 10_000 + "1" + ")" * 10_000, "", "CPython's parser refuses it"),
    Bomb("operators", "x = " + "-" * 100_000 + "1", "", "CPython's compiler refuses it"),
    Bomb(
        "nested_value",
        "x = []\nfor _ in range(10 ** 5): x = [x]\nx",
        "",
        "what is built is small; a host is in danger when it walks through it",
    ),
    Bomb(
        "processes",
        "import os\nwhile True: os.fork()",
        "",
        "it would take the machine that runs the tests",
    ),
    Bomb(
        "files",
        """
for n in range(1000):
    with open(f"/tmp/batonflow-bomb-{n}", "wb") as file:
        for _ in range(20):
            file.write(bytes(10 ** 6))
print("took it")
""",
        "",
        "it would fill the disk of the machine that runs the tests",
    ),
]  # fmt: skip
