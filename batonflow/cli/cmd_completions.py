"""``completions``: print shell scripts that complete command lines, derived from the parser."""

import argparse
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, cast

from batonflow.cli.arguments import parser
from batonflow.cli.errors import DONE
from batonflow.cli.output import say

__all__ = ["completions"]

_BASH = """_batonflow() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
}}
complete -o default -F _batonflow batonflow
"""
_CASE = """    {name}) COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;"""


def completions(given: Namespace) -> int:
    """Print the script for a shell."""
    commands = dict(_commands())
    if given.shell == "fish":
        say("\n".join(_fish(commands)))
        return DONE
    cases = "\n".join(
        _CASE.format(name=name, words=" ".join(_options_and_choices(one))) for name, one in commands.items()
    )
    script = _BASH.format(commands=" ".join(commands), cases=cases)
    say(("autoload -U +X bashcompinit && bashcompinit\n" if given.shell == "zsh" else "") + script.rstrip())
    return DONE


def _commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield every command with its parser; argparse has no public access to them."""
    for action in cast("Any", parser())._actions:
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            yield from cast("dict[str, argparse.ArgumentParser]", cast("Any", action).choices).items()


def _options_and_choices(command: argparse.ArgumentParser) -> list[str]:
    found: list[str] = []
    for action in cast("Any", command)._actions:
        found += [name for name in action.option_strings if name.startswith("--")]
        found += [str(choice) for choice in action.choices or ()]
    return found


def _fish(commands: dict[str, argparse.ArgumentParser]) -> Iterator[str]:
    yield f"complete -c batonflow -n __fish_use_subcommand -f -a '{' '.join(commands)}'"
    for name, command in commands.items():
        for word in _options_and_choices(command):
            given = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            yield f"complete -c batonflow -n '__fish_seen_subcommand_from {name}' {given}"
