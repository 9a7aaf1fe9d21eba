"""Find mistakes in a snippet before it runs, with the type checker inside Monty's worker.

The checker gets the tools' declarations, and ``name: Any`` for each name of earlier snippets, because inferred types
would reject ordinary code. A first line with an undefined name ensures that the snippet is only checked and never runs.
"""

import asyncio
import builtins
import json
import keyword
import re
from collections.abc import Mapping
from typing import Any

from batonflow.tools.code.base import Problem
from batonflow.tools.code.functions import CodeFunction

__all__ = ["names_in", "problems_of"]

_POISON = "__batonflow_check__"
_NAME = re.compile(r"\b[^\W\d]\w*\b", re.ASCII)
_BLOCKING = {
    "invalid-argument-type",
    "invalid-key",
    "invalid-syntax",
    "missing-argument",
    "parameter-already-assigned",
    "too-many-positional-arguments",
    "unknown-argument",
    "unresolved-import",
    "unresolved-reference",
    "unused-awaitable",
}
# These rules have false alarms, except about a tool that was called without await.
_BLOCKING_ON_COROUTINES = {"unresolved-attribute", "not-subscriptable", "not-iterable", "unsupported-operator"}
# Errors of the interpreter that its type checker does not know, with their base classes.
_UNHEARD_OF = {
    "FileExistsError": "OSError",
    "FileNotFoundError": "OSError",
    "ImportError": "Exception",
    "IsADirectoryError": "OSError",
    "ModuleNotFoundError": "ImportError",
    "NotADirectoryError": "OSError",
    "PermissionError": "OSError",
    "UnboundLocalError": "NameError",
}
_SECONDS = 5.0


def names_in(code: str) -> set[str]:
    """Return all words of ``code`` that could be variables. Parsing it would expose this process to it."""
    return {name for name in _NAME.findall(code) if not keyword.iskeyword(name)}


def _stubs(functions: Mapping[str, CodeFunction], known: set[str]) -> str:
    lines = ["from typing import Any, Literal"]
    lines += [f"class {name}({base}): ..." for name, base in _UNHEARD_OF.items()]
    lines += [f"{one.declaration}: ..." for one in functions.values()]
    lines += [f"{name}: Any" for name in sorted(known - set(functions) - set(dir(builtins)) - {"Any", "Literal"})]
    return "\n".join(lines) + "\n"


async def problems_of(
    module: Any, pool: Any, code: str, functions: Mapping[str, CodeFunction], known: set[str]
) -> list[Problem]:
    """Return the problems of ``code``.

    Args:
        module: ``pydantic_monty``.
        pool: Its pool.
        code: The snippet; it does not run.
        functions: The tools.
        known: Names of earlier snippets.
    """
    checkout = pool.checkout(
        type_check=True,
        type_check_stubs=_stubs(functions, known),
        type_check_format="json",
        limits={"max_feed_duration_secs": _SECONDS, "max_memory": 64 * 2**20},
    )
    async with checkout as session:
        try:
            async with asyncio.timeout(2 * _SECONDS):
                return await _checked(module, session, code)
        except TimeoutError:
            return []


async def _checked(module: Any, session: Any, code: str) -> list[Problem]:
    try:
        step = await session.feed_start(f"{_POISON}\n{code}", print_callback=_ignored)
        while isinstance(step, module.AsyncFunctionSnapshot) and step.is_os_function:
            step = await step.resume_not_handled()
    except module.MontyTypingError as err:
        return _problems(err.display())
    except module.MontySyntaxError as err:
        frames = err.traceback()
        return [Problem(err.display("type-msg"), frames[-1].line - 1 if frames else None)]
    except module.MontyError:
        # The checker itself failed; running the code will show its errors.
        return []
    return []


def _ignored(stream: str, text: str) -> None:
    """Ignore output: nothing runs, so nothing is printed."""


def _problems(text: str) -> list[Problem]:
    found: list[Problem] = []
    rows: list[dict[str, Any]] = json.loads(text)
    for row in rows:
        line = row["location"]["row"] - 1
        rule, message = row["code"], row["message"]
        on_coroutine = rule in _BLOCKING_ON_COROUTINES and "CoroutineType" in message
        # Inferred types of the code's own lists and dicts are narrower than the accepted ones.
        of_its_own = rule == "invalid-argument-type" and " to bound method " in message
        if line < 1 or of_its_own or not (rule in _BLOCKING or on_coroutine):
            continue
        if rule == "unused-awaitable" or on_coroutine:
            message += "; write `await` before the call"
        if (rule, line) not in {(one.text.partition(":")[0], one.line) for one in found}:
            found.append(Problem(f"{rule}: {message}", line))
    return found
