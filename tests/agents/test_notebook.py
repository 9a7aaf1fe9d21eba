"""Answers and runs in a notebook: Markdown with small print, and plain text elsewhere."""

import asyncio
import html
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from batonflow import Context, FunctionAgent, HumanResponseEvent, InputRequiredEvent, Price, ScriptedLLM, tool
from batonflow.llms import tool_call

MARKDOWN, PLAIN = "text/markdown", "text/plain"


def shown(value: Any) -> dict[str, str]:
    """Return the forms of an object as IPython's display formatter asks for them."""
    assert not hasattr(value, "_ipython_canary_method_should_not_exist_")
    return value._repr_mimebundle_(include=None, exclude=None)


def small_print(markdown: str) -> str:
    (found,) = re.findall(r"<sub>(.*)</sub>$", markdown)
    assert "<" not in found
    return html.unescape(found)


async def test_an_answer_is_markdown_with_what_it_took() -> None:
    llm = ScriptedLLM(["# Tides\n\nTwice a *day*."], price=Price(input=1000, output=1000))
    forms = shown(await FunctionAgent(name="sea", llm=llm).run("Tides?"))
    assert forms[MARKDOWN].startswith("# Tides\n\nTwice a *day*.\n\n<sub>")
    assert re.fullmatch(r"sea · \d+ tokens in, \d+ out · 0\.\d{4} USD · \d\.\d s", small_print(forms[MARKDOWN]))
    assert re.fullmatch(r"# Tides\n\nTwice a \*day\*\.\n\[sea, .* s\]", forms[PLAIN])


async def test_small_print_is_neither_markup_nor_a_formula() -> None:
    name = "<img src=x onerror=alert(1)> **b** `c` $x$ [d](http://e) |"
    markdown = shown(await FunctionAgent(name=name, llm=ScriptedLLM(["Yes."])).run("?"))[MARKDOWN]
    assert small_print(markdown).startswith(name)
    assert not set("<>*`$[](){}|_:/=\\") & set(markdown.split("<sub>")[1].removesuffix("</sub>"))


@pytest.mark.parametrize(
    ("text", "fence"), [("```python\nx = 1", "```"), ("~~~\nx", "~~~"), ("```\na\n```\n````\nb\n```", "````")]
)
async def test_small_print_stays_outside_of_an_open_block_of_code(text: str, fence: str) -> None:
    markdown = shown(await FunctionAgent(llm=ScriptedLLM([text])).run("?"))[MARKDOWN]
    assert markdown.startswith(f"{text}\n{fence}\n\n<sub>")


async def test_a_closed_block_of_code_stays_as_it_is() -> None:
    text = "```python\nx = 1\n```\nThat is it."
    assert shown(await FunctionAgent(llm=ScriptedLLM([text])).run("?"))[MARKDOWN].startswith(f"{text}\n\n<sub>")


class Tide(BaseModel):
    note: str


async def test_a_structured_answer_is_a_block_of_json() -> None:
    llm = ScriptedLLM(["At six.", '{"note": "``` high"}'])
    forms = shown(await FunctionAgent(llm=llm, output_cls=Tide).run("?"))
    assert forms[MARKDOWN].startswith('At six.\n\n````json\n{\n  "note": "``` high"\n}\n````\n\n<sub>')
    assert forms[PLAIN].startswith('At six.\n{\n  "note"')


async def test_a_typed_answer_is_shown_once() -> None:
    llm = ScriptedLLM(['{"note": "high"}', tool_call("final_answer", note="high")])
    forms = shown(await FunctionAgent(llm=llm, output_type=Tide).run("?"))
    assert forms[MARKDOWN].count('"note"') == 1


@tool(requires_approval=True)
def refund(order: str) -> str:
    """Pay back."""
    return "paid"


async def waiting(handler: Any) -> None:
    while not handler.is_waiting:  # noqa: ASYNC110 - nothing tells when a run begins to wait
        await asyncio.sleep(0.001)


async def test_a_run_shows_its_open_approvals_and_then_its_answer() -> None:
    llm = ScriptedLLM([tool_call("refund", order="<b>A</b>"), "Done."])
    handler = FunctionAgent(name="desk", llm=llm, tools=[refund]).run("Pay.")
    assert shown(handler)[PLAIN] == f"desk is running\n[run {handler.run_id}]"
    await waiting(handler)
    (request,) = handler.open_inputs()
    forms = shown(handler)
    assert "<b>" not in forms[MARKDOWN]
    plain = html.unescape(forms[MARKDOWN])
    assert plain.startswith("**desk** waits\n\n- desk wants to call refund(order='<b>A</b>'): <code>handler.approve(")
    assert f"desk wants to call refund(order='<b>A</b>') (handler.approve('{request.event.id}')" in forms[PLAIN]
    handler.approve(request.event.id)
    output = await handler
    assert shown(handler)[MARKDOWN].startswith("Done.\n\n<sub>desk")
    assert small_print(shown(handler)[MARKDOWN]) == f"{small_print(shown(output)[MARKDOWN])} · run {handler.run_id}"


async def test_a_run_shows_other_questions_too() -> None:
    async def paint(ctx: Context) -> str:
        """Paint."""
        question = InputRequiredEvent(prefix="Which *colour*?")
        return str((await ctx.wait_for_event(HumanResponseEvent, waiter_event=question)).response)

    handler = FunctionAgent(llm=ScriptedLLM([tool_call("paint"), "Done."]), tools=[paint]).run("Paint.")
    await waiting(handler)
    assert "Which *colour*?" in shown(handler)[PLAIN]
    assert "*colour*" not in shown(handler)[MARKDOWN]
    handler.open_inputs()[0].respond(response="red")
    await handler


async def test_a_failed_run_says_why() -> None:
    handler = FunctionAgent(name="sea", llm=ScriptedLLM([ConnectionError("no <line>")])).run("?")
    with pytest.raises(ConnectionError):
        await handler
    forms = shown(handler)
    assert forms[PLAIN].startswith("sea ended with ConnectionError: no <line>\n[run ")
    assert "<line>" not in forms[MARKDOWN]


async def test_a_result_from_a_store_is_shown_too(tmp_path) -> None:
    agent = FunctionAgent(llm=ScriptedLLM(["Yes."]), store=tmp_path / "runs.db")
    await agent.run("?", run_id="one")
    assert shown(await agent.resume("one"))[MARKDOWN].startswith("Yes.\n\n<sub>")


@pytest.mark.parametrize("store", [None, "runs.db"])
async def test_a_session_shows_its_turns(store: str | None, tmp_path: Path) -> None:
    llm = ScriptedLLM(["```\nopen", "*Six*.", ConnectionError("no <line>")], price=Price(input=1000, output=1000))
    agent = FunctionAgent(name="sea", llm=llm, store=None if store is None else tmp_path / store)
    chat = agent.session("ann")
    assert shown(chat)[PLAIN] == "[session ann, 0 turns]"
    await chat.run("*When* is\nhigh <b>water</b>?")
    await chat.run("And then?")
    with pytest.raises(ConnectionError):
        await chat.run("And?")
    markdown = shown(chat)[MARKDOWN]
    assert re.fullmatch(r"session ann · 3 turns · \d+ tokens in, \d+ out · \d\.\d{4} USD", small_print(markdown))
    assert "\n```\nopen\n```\n\n> And then" in f"\n{html.unescape(markdown)}"
    assert "<b>" not in markdown
    assert "<line>" not in markdown
    conversation = "> *When* is\nhigh <b>water</b>?\n```\nopen\n> And then?\n*Six*.\n> And?\n(failed"
    assert shown(chat)[PLAIN].startswith(conversation)
