"""Runs a snippet with bare ``exec``, tools in scope, as programs without a sandbox do."""

import ast
import asyncio
import builtins
import inspect
import json
import os
import resource
import sys

SECRET = os.environ.pop("GLOBAL_SECRET", "")
CODE = os.environ.pop("BARE_CODE", "")
FINDERS = len(sys.meta_path)

resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))


def made(token: str):
    async def lookup(query="x"):
        return f"found {len(token)} {query}"

    return lookup


lookup = made(SECRET)


async def main() -> None:
    print("started", flush=True)
    names = {"lookup": lookup}
    result = eval(compile(CODE, "<code>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.iscoroutine(result):
        await result


before = (builtins.len, json.dumps, SECRET, lookup.__defaults__, sys.getrecursionlimit())
try:
    asyncio.run(main())
finally:
    if (builtins.len, json.dumps, SECRET, lookup.__defaults__, sys.getrecursionlimit()) != before:
        print("TAMPERED")
    if builtins.len(sys.meta_path) not in {FINDERS, 7}:
        print("TAMPERED")
