"""The same scripts with the vendors' SDKs and a server on loopback, which judges every request as it comes in."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from types import ModuleType

from batonflow.llms import Anthropic, OpenAI, OpenAIResponses
from batonflow.llms.sdk_model import SDKModel
from tests.agents.scripts.judging import judge
from tests.agents.scripts.playing import Broken
from tests.agents.scripts.script import Agent, Script
from tests.agents.scripts.stage import CLASSES, Classes, Stage
from tests.llms.loopback import Answer, Received, loopback
from tests.llms.rules import BrokenRule
from tests.llms.wire import anthropic, chat, responses
from tests.llms.wire.chunking import as_asked
from tests.llms.wire.content import Said
from tests.llms.wire.readers import http_client

__all__ = ["play_over_sockets"]

_WATCHDOG = 20.0


@dataclass(frozen=True)
class _Vendor:
    adapter: type[SDKModel]
    wire: ModuleType
    base: str = "/v1"
    nameless: bool = False


_VENDORS = (
    _Vendor(OpenAI, chat, nameless=True),
    _Vendor(OpenAIResponses, responses),
    _Vendor(Anthropic, anthropic, ""),
)


def play_over_sockets(script: Script, classes: Classes = CLASSES) -> Stage:
    """Play a script over sockets, each agent of it with a vendor that the seed decides.

    Raises:
        Broken: Something came out wrong.
    """
    stage = Stage(script, classes, sandbox=True)
    try:
        asyncio.run(_played(stage))
    except Exception as error:
        error.add_note(f"in the script of seed {script.seed}, over sockets")
        raise
    problems = [*stage.problems, *judge(stage)]
    if problems:
        raise Broken(script, problems, " --sockets")
    return stage


async def _played(stage: Stage) -> None:
    dice = Random(stage.script.seed)
    vendors = {agent.name: dice.choice(_VENDORS) for agent in stage.script.agents}
    async with loopback() as server, http_client() as http:
        server.answers = _answers(stage, vendors)

        def model(agent: Agent) -> SDKModel:
            vendor = vendors[agent.name]
            url = server.url + vendor.base
            return vendor.adapter(
                agent.name, api_key="key", base_url=url, http_client=http, max_retries=0, timeout=_WATCHDOG
            )

        try:
            async with asyncio.timeout(_WATCHDOG):
                await stage.play(model)
        except TimeoutError:
            stage.problem(f"run {len(stage.runs)} hangs")
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        # Sandboxes are closed behind the end of their run.
        _, left = await asyncio.wait(left, timeout=2)
    if left:
        stage.problem(f"tasks are left: {sorted(task.get_name() for task in left)}")


def _answers(stage: Stage, vendors: dict[str, _Vendor]) -> Callable[[Received], Answer]:
    def answered(request: Received) -> Answer:
        name: str = request.body["model"]
        vendor = vendors[name]
        try:
            given = stage.ask(name, {request.path: request.body})
        except BrokenRule:
            return vendor.wire.error("bad request")
        if given.turn.fails:
            return vendor.wire.error("server")
        said = given.said(nameless=vendor.nameless)
        try:
            body = vendor.wire.body(said)
        except ValueError:
            # Whole answers of Anthropic's hold arguments as values: text is what comes closest to broken ones.
            calls = [replace(one, arguments=json.dumps(one.arguments)) for one in said.calls]
            body = vendor.wire.body(Said((*[one for one in said.parts if one not in said.calls], *calls), said.usage))
        return as_asked(vendor.wire.stream(said), body)(request)

    return answered
