"""Runs a snippet with bare ``exec``, tools in scope, as programs without a sandbox do."""

import builtins
import json
import os
import resource
import sys

SECRET = os.environ.pop("GLOBAL_SECRET", "")
CODE = os.environ.pop("BARE_CODE", "")
TOP_LEVEL_AWAIT = 0x2000
FINDERS = len(sys.meta_path)

resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))


def made(token: str):
    async def lookup(query="x"):
        return f"found {len(token)} {query}"

    return lookup


lookup = made(SECRET)


def main() -> None:
    print("started", flush=True)
    result = eval(compile(CODE, "<code>", "exec", flags=TOP_LEVEL_AWAIT), {"lookup": lookup})
    if result is not None:
        # It takes longer to import than most attacks need.
        import asyncio

        asyncio.run(result)


before = (builtins.len, json.dumps, SECRET, lookup.__defaults__, sys.getrecursionlimit())
try:
    main()
finally:
    if (builtins.len, json.dumps, SECRET, lookup.__defaults__, sys.getrecursionlimit()) != before:
        print("TAMPERED")
    if builtins.len(sys.meta_path) not in {FINDERS, 7}:
        print("TAMPERED")
