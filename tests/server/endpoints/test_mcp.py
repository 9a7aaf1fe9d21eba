"""Workflows and agents as tools of an MCP server, called by the client of the mcp package in both eras."""

import asyncio
import base64
import re
import sys
from enum import Enum
from pathlib import Path
from typing import Literal

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult

from batonflow import FunctionAgent, tool
from batonflow.agents import AgentOutput
from batonflow.llms import ChatMessage, ImageBlock, ScriptedLLM, TextBlock, tool_call
from batonflow.server.endpoints import mcp_app
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    MemoryStore,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from tests.serving import serving

ERAS = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


class Order(StartEvent):
    """What to order.

    Attributes:
        sku: The article.
        pieces: How many.
    """

    sku: str
    pieces: int = 1


class Packed(Event):
    box: int


class Shop(Workflow):
    """Packs an order."""

    @step
    async def pack(self, ctx: Context, ev: Order) -> StopEvent:
        if ev.pieces < 0:
            raise ValueError("the password of the shop is swordfish")
        for box in range(2):
            ctx.write_event_to_stream(Packed(box=box))
        return StopEvent(result={"sku": ev.sku, "pieces": ev.pieces})


class Paint(Enum):
    RED = "red"
    BLUE = "blue"


class Colour(HumanResponseEvent):
    colour: str
    gloss: bool = False
    paint: Paint = Paint.RED
    layers: int | None = None


class Painter(Workflow):
    """Asks for a colour."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        question = InputRequiredEvent(prefix="Which colour?")
        answer = await ctx.wait_for_event(Colour, waiter_event=question, waiter_id="colour")
        return StopEvent(result=f"painted {answer.colour}, {'gloss' if answer.gloss else 'matt'}")


class Echo(Workflow):
    """Asks anything."""

    @step
    async def ask(self, ev: StartEvent) -> InputRequiredEvent:
        return InputRequiredEvent(prefix="What?")

    @step
    async def end(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=ev.response)


def publisher(store=None):
    done = []

    @tool(requires_approval=True)
    def publish(title: str) -> str:
        """Publish."""
        done.append(title)
        return "published"

    llm = ScriptedLLM([tool_call("publish", title="Tides"), lambda request: f"So: {request.messages[-1].content}"])
    return FunctionAgent(name="writer", description="Writes.", tools=[publish], llm=llm, store=store), done


async def no_elicitation(context, params):
    raise AssertionError(f"nothing should be asked, but: {params.message}")


@pytest.fixture
def connected():
    """A client of an HTTP server with these workflows."""

    class Connection:
        def __init__(self, workflows, mode, elicitation):
            self._app, self._mode, self._elicitation = mcp_app(workflows), mode, elicitation

        async def __aenter__(self):
            self._serving = serving(self._app)
            url = self._serving.__enter__()
            self._client = Client(url + "/", mode=self._mode, elicitation_callback=self._elicitation)
            return await self._client.__aenter__()

        async def __aexit__(self, *error):
            try:
                await self._client.__aexit__(*error)
            finally:
                self._serving.__exit__(None, None, None)

    def connect(workflows, mode="auto", elicitation=no_elicitation):
        return Connection(workflows, mode, elicitation)

    return connect


def text_of(result):
    return "".join(part.text for part in result.content)


@ERAS
async def test_tools_take_the_fields_of_the_start_event_or_a_message(connected, mode):
    async with connected({"shop": Shop(), "writer": publisher()[0]}, mode) as client:
        shop, writer = (await client.list_tools()).tools
    assert (shop.name, shop.description) == ("shop", "Packs an order.")
    assert shop.input_schema["required"] == ["sku"]
    assert set(shop.input_schema["properties"]) == {"sku", "pieces"}
    assert (writer.description, writer.input_schema["required"]) == ("Writes.", ["message"])


@ERAS
async def test_a_call_is_a_run_and_its_events_are_progress(connected, mode):
    seen = []

    async def progress(number, total, message):
        seen.append((number, message))

    async with connected({"shop": Shop()}, mode) as client:
        result = await client.call_tool("shop", {"sku": "a-1"}, progress_callback=progress)
    assert result.structured_content == {"sku": "a-1", "pieces": 1}
    assert text_of(result) == '{"sku":"a-1","pieces":1}'
    assert seen[:2] == [(1, "Packed"), (2, "Packed")]


@ERAS
async def test_what_is_wrong_is_told_to_the_model_and_texts_of_errors_stay_inside(connected, mode):
    async with connected({"shop": Shop(), "writer": publisher()[0]}, mode) as client:
        missing = await client.call_tool("shop", {})
        unknown = await client.call_tool("bakery", {})
        failed = await client.call_tool("shop", {"sku": "a-1", "pieces": -1})
        silent = await client.call_tool("writer", {"message": 5})
    assert all(result.is_error for result in (missing, unknown, failed, silent))
    assert text_of(missing) == "sku: Field required"
    assert text_of(unknown) == "unknown tool 'bakery'; the tools are shop, writer"
    assert re.fullmatch(r"run mcp-shop-\w+ failed with an error", text_of(failed))
    assert text_of(silent) == "the argument message must be a text"


@ERAS
async def test_a_question_becomes_a_form(connected, mode):
    asked = []

    async def answer(context, params):
        asked.append((params.message, params.requested_schema))
        return ElicitResult(action="accept", content={"colour": "red", "gloss": True})

    async with connected({"paint": Painter()}, mode, answer) as client:
        result = await client.call_tool("paint", {})
    assert text_of(result) == "painted red, gloss"
    [(message, form)] = asked
    assert message == "Which colour?"
    assert form["properties"]["colour"]["type"] == "string"
    assert form["properties"]["gloss"]["type"] == "boolean"
    assert form["properties"]["paint"]["enum"] == ["red", "blue"]
    assert form["properties"]["layers"]["type"] == "integer"
    assert form["required"] == ["colour"]


class Topping(Enum):
    CHEESE = "cheese"
    OLIVES = "olives"


class Toppings(HumanResponseEvent):
    toppings: list[Topping]
    extras: set[Literal["salt", "oil"]] = set()
    notes: list[str] = []
    size: Literal["large"] = "large"


class Bake(Workflow):
    @step
    async def ask(self, ctx: Context, ev: Order) -> StopEvent:
        question = InputRequiredEvent(prefix="What on it?")
        answer = await ctx.wait_for_event(Toppings, waiter_event=question, waiter_id="toppings")
        return StopEvent(result=[[one.name for one in answer.toppings], sorted(answer.extras)])


@ERAS
async def test_several_choices_are_one_field_of_the_form(connected, mode):
    forms = []

    async def answer(context, params):
        forms.append(params.requested_schema)
        return ElicitResult(action="accept", content={"toppings": ["cheese", "olives"], "extras": ["oil"]})

    async with connected({"bake": Bake()}, mode, answer) as client:
        result = await client.call_tool("bake", {"sku": "pizza"})
    assert result.content[0].text == '[["CHEESE","OLIVES"],["oil"]]'
    [form] = forms
    assert form["required"] == ["toppings"]
    assert form["properties"] == {
        "toppings": {"type": "array", "items": {"type": "string", "enum": ["cheese", "olives"]}, "title": "Toppings"},
        "extras": {
            "type": "array", "items": {"type": "string", "enum": ["salt", "oil"]}, "title": "Extras", "default": [],
        },
        "size": {"type": "string", "enum": ["large"], "title": "Size", "default": "large"},
    }  # fmt: skip


PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Draw(Workflow):
    """Draws."""

    @step
    async def draw(self, ev: StartEvent) -> StopEvent:
        picture = ImageBlock(image=PIXEL, image_mimetype="image/png")
        message = ChatMessage(role="assistant", blocks=[TextBlock(text="There:"), picture])
        forms = {
            "block": picture,
            "blocks": [TextBlock(text="There:"), picture],
            "message": message,
            "output": AgentOutput(response=message, current_agent_name="artist"),
            "address": [ImageBlock(url="http://127.0.0.1:1/picture.png", image_mimetype="image/png")],
        }
        return StopEvent(result=forms[ev.get("form")])


@ERAS
async def test_pictures_are_contents_of_their_own(connected, mode):
    async with connected({"draw": Draw()}, mode) as client:
        for form in ("block", "blocks", "message", "output"):
            content = (await client.call_tool("draw", {"form": form})).content
            kinds = ["image"] if form == "block" else ["text", "image"]
            assert [part.type for part in content] == kinds
            assert (base64.b64decode(content[-1].data), content[-1].mime_type) == (PIXEL, "image/png")
        [part] = (await client.call_tool("draw", {"form": "address"})).content
        assert part.text == "http://127.0.0.1:1/picture.png"


class Bare(Workflow):
    @step
    async def end(self, ev: StartEvent) -> StopEvent:
        return StopEvent()


@ERAS
async def test_every_tool_has_a_description(connected, mode):
    agent = FunctionAgent(name="writer", tools=[], llm=ScriptedLLM([]))
    workflows = {"shop": Shop(), "bake": Bake(), "bare": Bare(), "writer": agent}
    async with connected(workflows, mode) as client:
        told = {tool.name: tool.description for tool in (await client.list_tools()).tools}
    assert told.pop("writer")
    assert told == {
        "shop": "Packs an order.",
        "bake": "Runs the workflow bake. What to order. Takes sku, pieces.",
        "bare": "Runs the workflow bare.",
    }


@ERAS
async def test_a_misspelt_argument_is_told_to_the_model(connected, mode):
    async with connected({"shop": Shop()}, mode) as client:
        result = await client.call_tool("shop", {"sku": "a-1", "peices": 3})
    assert result.is_error
    assert result.content[0].text == "Order has no field 'peices'. Did you mean 'pieces'?"


@ERAS
async def test_the_timeout_of_a_run_stands_still_while_a_person_is_asked(connected, mode):
    async def slowly(context, params):
        await asyncio.sleep(0.6)
        return ElicitResult(action="accept", content={"colour": "blue"})

    async with connected({"paint": Painter(timeout=0.3)}, mode, slowly) as client:
        result = await client.call_tool("paint", {})
    assert result.content[0].text == "painted blue, matt"


@ERAS
async def test_a_question_without_fields_of_its_own_is_answered_with_a_text(connected, mode):
    async def answer(context, params):
        assert list(params.requested_schema["properties"]) == ["response"]
        return ElicitResult(action="accept", content={"response": "this"})

    async with connected({"echo": Echo()}, mode, answer) as client:
        assert text_of(await client.call_tool("echo", {})) == "this"


@ERAS
@pytest.mark.parametrize(
    ("answered", "says", "published"),
    [
        (ElicitResult(action="accept", content={"approved": True}), "So: published", ["Tides"]),
        (ElicitResult(action="accept", content={"approved": False, "reason": "too short"}), "too short", []),
        (ElicitResult(action="decline"), "the person declined", []),
    ],
)
async def test_approvals_are_asked_of_the_caller(connected, mode, answered, says, published):
    asked = []

    async def answer(context, params):
        asked.append(params.message)
        return answered

    agent, done = publisher()
    async with connected({"writer": agent}, mode, answer) as client:
        result = await client.call_tool("writer", {"message": "Publish."})
    assert says in text_of(result)
    assert done == published
    assert asked == ["May publish(title='Tides') run?"]


@ERAS
async def test_who_declines_a_question_ends_the_run(connected, mode):
    async def decline(context, params):
        return ElicitResult(action="decline")

    store = MemoryStore()
    async with connected({"paint": Painter(store=store)}, mode, decline) as client:
        result = await client.call_tool("paint", {})
    assert (result.is_error, text_of(result)) == (True, "the person did not answer")


async def test_a_call_that_is_given_up_cancels_its_run(connected):
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Slow(Workflow):
        @step
        async def wait(self, ev: StartEvent) -> StopEvent:
            loop.call_soon_threadsafe(begun.set)
            await asyncio.sleep(60)
            return StopEvent()

    store = MemoryStore()
    async with connected({"slow": Slow(store=store)}, "legacy") as client:
        call = asyncio.create_task(client.call_tool("slow", {}))
        await asyncio.wait_for(begun.wait(), 30)
        call.cancel()
        await asyncio.wait([call])
        while (await store.list_runs())[0].status != "cancelled":  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)


async def test_only_runs_that_a_call_of_the_tool_began_can_be_gone_on_with(connected):
    store = MemoryStore()
    painter, echo = Painter(store=store), Echo(store=store)
    async with connected({"paint": painter, "echo": echo}, "2026-07-28") as client:
        asked = await client.session.call_tool("echo", {}, allow_input_required=True)
        own = asked.request_state
        assert own.startswith("mcp-echo-")
        await Shop(store=store).run(sku="secret", run_id="mcp-paint-1234")  # of another workflow, in the same store
        waits = painter.run(run_id="from-elsewhere")
        for state in (own, "mcp-paint-1234", "from-elsewhere", "mcp-paint-nobody", "mcp-paint-../x", "mcp-paint- ", ""):
            result = await client.session.call_tool("paint", {}, request_state=state, allow_input_required=True)
            assert text_of(result) == "the run to continue has ended: call the tool again"
        assert not waits.is_done()
        await waits.cancel_run()
        again = await client.session.call_tool("echo", {}, request_state=own, allow_input_required=True)
        assert again.input_requests.keys() == asked.input_requests.keys()


async def test_a_run_that_waits_in_a_store_is_gone_on_with_by_another_server(connected):
    store = MemoryStore()
    async with connected({"paint": Painter(store=store)}, "2026-07-28") as client:
        asked = await client.session.call_tool("paint", {}, allow_input_required=True)
    async with connected({"paint": Painter(store=MemoryStore(beside=store))}, "2026-07-28") as client:
        answers = {name: ElicitResult(action="accept", content={"colour": "red"}) for name in asked.input_requests}
        result = await client.session.call_tool("paint", {}, request_state=asked.request_state, input_responses=answers)
    assert text_of(result) == "painted red, matt"


@pytest.mark.parametrize(
    ("hosts", "host", "served"),
    [((), "evil.test", False), (("flows.example",), "flows.example", True), (None, "any.test", True)],
)
def test_hosts_are_checked_here_or_by_the_server_around(hosts, host, served):
    with serving(mcp_app({"shop": Shop()}, allowed_hosts=hosts)) as url:
        answer = httpx2.post(f"{url}/", headers={"host": host}, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert (answer.status_code != 421) is served


def test_a_name_that_no_tool_can_have_is_refused():
    with pytest.raises(ValueError, match="'my shop' cannot be the name of a tool"):
        mcp_app({"my shop": Shop()})


@ERAS
async def test_over_stdio_a_process_serves_its_workflows(tmp_path: Path, mode):
    program = tmp_path / "shop.py"
    program.write_text(
        "import asyncio\n"
        "from batonflow.server.endpoints import serve_mcp_stdio\n"
        "from tests.server.endpoints.test_mcp import Shop\n"
        "asyncio.run(serve_mcp_stdio({'shop': Shop()}))\n"
    )
    root = str(Path(__file__).parents[3])
    parameters = StdioServerParameters(command=sys.executable, args=[str(program)], env={"PYTHONPATH": root})
    async with Client(parameters, mode=mode) as client:
        assert text_of(await client.call_tool("shop", {"sku": "b-2"})) == '{"sku":"b-2","pieces":1}'
