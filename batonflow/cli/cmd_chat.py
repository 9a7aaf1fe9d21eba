"""``chat``: talk to an agent at the terminal or through a pipe, with one context for all turns."""

import asyncio
import importlib.util
import re
import signal
import sys
from argparse import Namespace
from importlib import import_module
from typing import Any, cast

from batonflow.agents.approvals import ApprovalRequired
from batonflow.agents.handler import AgentHandler
from batonflow.agents.loop import AgentLoop
from batonflow.cli.errors import DONE, USAGE, CommandError
from batonflow.cli.loading import load_workflow
from batonflow.cli.output import complain, say
from batonflow.cli.questions import question_of
from batonflow.cli.run_session import result_text
from batonflow.cli.stores import with_store
from batonflow.cli.stream_lines import StreamPrinter, approval_text
from batonflow.cli.text import one_line
from batonflow.cli.values import json_object, json_or_text
from batonflow.workflow_core.context import Context
from batonflow.workflow_core.errors import BatonflowError, InputResponseError
from batonflow.workflow_core.events import InputRequiredEvent
from batonflow.workflow_core.inputs import InputRequest

__all__ = ["chat"]

_COMMAND = re.compile(r"/[a-z]+")
_HELP = "/new forgets the conversation, /help shows this, /quit or Ctrl-D leaves, Ctrl-C stops an answer"


def chat(given: Namespace) -> int:
    """Talk to an agent."""
    workflow = load_workflow(given.object)
    if not issubclass(type(workflow), AgentLoop):
        raise CommandError(f"{given.object} is not an agent: start it with `batonflow run {given.object}`", USAGE)
    return _Chat(cast("AgentLoop[Any, Any]", with_store(workflow, given))).talk()


class _Chat:
    """A conversation.

    Args:
        agent: The agent to talk to.
    """

    def __init__(self, agent: AgentLoop[Any, Any]) -> None:
        self._agent = agent
        self._context: Context[Any] = Context(agent)
        self._at_terminal = sys.stdin.isatty()

    def talk(self) -> int:
        """Take turns until the input ends."""
        if self._at_terminal:
            if importlib.util.find_spec("readline") is not None:
                import_module("readline")  # gives input() a history and line editing
            say(f"{self._agent.name}: {_HELP}")
        with asyncio.Runner() as runner:
            while True:
                try:
                    message = self._next()
                    if message in {None, "/quit", "/exit"}:
                        return DONE
                    if message == "/new":
                        self._context = Context(self._agent)
                    elif message == "/help":
                        say(_HELP)
                    elif message is not None and _COMMAND.fullmatch(message):
                        complain(f"there is no command {message}; /help lists the commands")
                    elif message:
                        runner.run(self._turn(message))
                except KeyboardInterrupt:
                    complain("stopped")

    def _next(self) -> str | None:
        """Return the user's message, or None at the end. Ctrl-C discards a line, not the conversation."""
        try:
            return self._line("> ")
        except KeyboardInterrupt:
            say()
            return ""
        except EOFError:
            if self._at_terminal:
                say()
            return None

    def _line(self, prompt: str) -> str:
        if self._at_terminal:
            return input(prompt).strip()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.strip()

    # --- a turn -------------------------------------------------------------------------------------------------------

    async def _turn(self, message: str) -> None:
        handler = self._agent.run(user_msg=message, ctx=self._context)
        printer = StreamPrinter()
        try:
            async for item in handler.subscribe():
                if isinstance(item.event, InputRequiredEvent):
                    printer.finish()
                    self._ask(handler, item.event)
                else:
                    printer.event(item.event)
            printer.finish()
            text = result_text(await handler)
            if text.strip() != printer.last_speech.strip():
                say(text)
        except (asyncio.CancelledError, KeyboardInterrupt) as stopped:
            printer.finish()
            await handler.cancel_run()
            await self._renew_context()
            if isinstance(stopped, asyncio.CancelledError):
                raise  # Ctrl-C; the runner raises KeyboardInterrupt
            complain("stopped")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a turn that fails does not end the conversation
            printer.finish()
            complain(str(error) if isinstance(error, BatonflowError) else f"{type(error).__name__}: {error}")
            if not handler.is_done():
                await handler.cancel_run()
            await self._renew_context()

    async def _renew_context(self) -> None:
        """Keep the state in a new context: the old one would resume the unfinished turn."""
        if self._context.is_resumable:
            state = await self._context.store.get_state()
            self._context = Context(self._agent)
            await self._context.store.set_state(state)

    # --- questions ----------------------------------------------------------------------------------------------------

    def _ask(self, handler: AgentHandler, event: InputRequiredEvent) -> None:
        """Ask the user the open question; the event loop is blocked meanwhile."""
        # asyncio's own handler would hold back a Ctrl-C until the line is complete.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if isinstance(event, ApprovalRequired):
                self._approval(handler, event)
            for request in handler.open_inputs():
                if request.event is event and not isinstance(event, ApprovalRequired):
                    self._question(request)
        finally:
            signal.signal(signal.SIGINT, before)

    def _approval(self, handler: AgentHandler, asked: ApprovalRequired) -> None:
        say(f"  ?? {approval_text(asked.model_dump())}")
        try:
            answer = ""
            while answer not in {"y", "yes", "n", "no", "e", "edit"}:
                answer = self._prompt("approve it? [y]es, [n]o, [e]dit: ").lower()
            if answer[0] == "y":
                handler.approve(asked.id)
            elif answer[0] == "n":
                handler.deny(asked.id, self._prompt("why not? "))
            else:
                handler.approve(asked.id, self._arguments())
        except EOFError:
            say("no answer: denied")
            handler.deny(asked.id, "no answer")

    def _arguments(self) -> dict[str, Any]:
        while True:
            try:
                return json_object(self._prompt("arguments as JSON: "), "the line")
            except CommandError as error:
                complain(str(error))

    def _question(self, request: InputRequest) -> None:
        say(f"  ?? {question_of(request).in_words}")
        while True:
            fields: dict[str, Any] = {}
            for name, schema in request.schema["properties"].items():
                text = self._prompt(f"{one_line(name)}: ")
                fields[name] = text if schema.get("type") == "string" else json_or_text(text)
            try:
                request.respond(**fields)
                return
            except InputResponseError as error:
                complain(str(error))

    def _prompt(self, text: str) -> str:
        if not self._at_terminal:
            say(text)
        return self._line(text)
