"""The calls of models: as a tree, and each on a page of its own, with texts of every kind in it."""

import asyncio
import base64
import struct
import zlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from batonflow import FunctionAgent, tool
from batonflow.llms import ChatMessage, DocumentBlock, ImageBlock, RateLimitError, ScriptedLLM, TextBlock, tool_call
from batonflow.llms.stream import ChatRequest, StreamEvent
from batonflow.server import WorkflowServer
from tests.server.conftest import Serving
from tests.server.page.browser import Chromium, Watched
from tests.server.page.conftest import Exported
from tests.server.page.flows import HOSTILE, Making, agent_run, conversation_of, team_run

pytestmark = [pytest.mark.external("chromium"), pytest.mark.asyncio(loop_scope="module")]

NODES = ".row.node:not([hidden])"


async def levels(watched: Watched) -> list[tuple[int, str]]:
    """The nodes of the tree: their level and their name."""
    await watched.settle()
    nodes = await watched.page.locator(NODES).all()
    return [(int(await one.get_attribute("aria-level") or 0), (await one.inner_text()).split("\n")[0]) for one in nodes]


async def opened(watched: Watched, number: int) -> None:
    """Open a call by its place in the run."""
    await watched.page.locator(".opener").nth(number).click()
    await watched.page.locator(".call-main .answer").wait_for()


async def test_a_run_of_agents_opens_with_the_tree_of_their_calls(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(team_run())) as watched:
        whole = [
            (1, "researcher"), (2, "Call 1"), (3, "surveyor"), (4, "surveyor"), (5, "Call 1"), (6, "search"),
            (5, "Call 2"), (3, "search"), (2, "Call 2"), (3, "handoff"), (1, "author"), (2, "Call 1"),
        ]  # fmt: skip
        assert await levels(watched) == whole
        assert "4 calls · 4 tool calls" in (await watched.texts(NODES))[0], "those of agents inside tools count"
        assert await watched.page.locator(f'{NODES}[data-state="failed"]').count() == 1
        assert (await watched.page.get_by_role("tab", name="Errors").inner_text()).split() == ["Errors", "1"]
        await watched.page.get_by_role("tree", name="Calls").focus()
        await watched.presses("ArrowDown", "ArrowDown", "ArrowDown", "ArrowLeft")
        assert await levels(watched) == [*whole[:3], *whole[7:]]
        assert await watched.texts(".inspector h2") == ["ToolCallResult"]
        await watched.presses("ArrowRight", "ArrowUp", "Enter")
        await watched.page.get_by_role("heading", name="researcher: call 1").wait_for()
        await watched.presses("j")
        await watched.page.get_by_role("heading", name="surveyor: call 1").wait_for()
        await watched.presses("Escape")
        assert await levels(watched) == whole
        assert await watched.page.evaluate("document.activeElement.getAttribute('role')") == "tree"
        await watched.page.get_by_role("slider").focus()
        await watched.presses("Home", "ArrowRight", "ArrowRight", "ArrowRight")
        assert await levels(watched) == whole[:2], "the tree is that of the chosen moment"


async def test_a_call_is_a_page_of_its_own_with_an_address(browser: Chromium, exported: Exported) -> None:
    address = await exported(agent_run())
    async with browser.page(address) as watched:
        await opened(watched, 1)
        here: str = await watched.page.evaluate("location.href")
        assert await watched.texts(".call-main .message > header b") == ["user", "assistant", "tool", "assistant"]
        assert await watched.texts(".message.fresh > header b") == ["assistant", "tool"]
        assert "2 new since call 1" in (await watched.texts(".call-main .sub-head"))[0]
        assert await watched.texts(".message.tool.failed > header small") == ["search", "error", "new"]
        answer = (await watched.texts(".answer"))[0]
        assert "ended by tool_calls" in answer
        assert "The moon pulls the sea towards it." in answer, "the result of the tool that the answer calls"
        side = (await watched.texts(".call-side"))[0]
        assert "parallel_tool_calls" in side
        await watched.page.locator(".tool-spec", has_text="publish").locator("summary").first.click()
        assert "title" in (await watched.texts(".tool-spec[open] .tree"))[0]
        await watched.page.go_back()
        await watched.page.locator(NODES).first.wait_for()
        assert await watched.page.locator(".call-page").is_hidden()
    async with browser.page(f"{address}#{here.partition('#')[2]}", wait=".call-main .message") as again:
        assert await again.texts(".call-head h1") == ["writer: call 2"]
        await again.page.get_by_role("link", name="Run").click()
        await again.page.locator(NODES).first.wait_for()


async def test_attempts_of_a_call_stand_together(browser: Chromium, exported: Exported) -> None:
    run = conversation_of([ChatMessage("Hello")], answers=[RateLimitError("slow down"), "Hi."])
    async with browser.page(await exported(run)) as watched:
        assert await levels(watched) == [(1, "ask"), (2, "Call 1"), (2, "Call 2")]
        await opened(watched, 0)
        assert await watched.texts(".answer .failure-text") == ["RateLimitError: slow down"]
        first, second = await watched.texts(".call-side .history li")
        assert first.startswith("Attempt 1: RateLimitError: slow down")
        assert second.startswith("Attempt 2: answered")
        await watched.page.locator(".call-side .history a").click()
        await watched.page.locator(".answer .md", has_text="Hi.").wait_for()


MARKDOWN = """# Head

Some *soft*, **strong**, ***both***, ~~gone~~ and `code` words, snake_case_word and 2 * 3 * 4.

- one
  - deep
- two

3. three

> quoted

```python
x = "*plain*"
```

| port | metres |
|:--|--:|
| Dover | `6.1` |

[web](https://example.test/a_(b)) [mail](mailto:a@b.test) <https://example.test/c>
https://example.test/d. *unclosed **marks
"""


async def test_texts_are_rendered_as_markdown_or_as_they_are_written(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(conversation_of([ChatMessage("Go")], answers=[MARKDOWN]))) as watched:
        await opened(watched, 0)
        said = watched.page.locator(".answer .md")
        assert await said.locator("> *").evaluate_all("all => all.map(one => one.tagName)") == [
            "H3", "P", "UL", "OL", "BLOCKQUOTE", "FIGURE", "DIV", "P",
        ]  # fmt: skip
        for selector, texts in {
            "p em": ["soft", "both"], "p strong": ["strong", "both"], "del": ["gone"], "p code": ["code"],
            "ul ul li": ["deep"], "pre": ['x = "*plain*"'], "th": ["port", "metres"], "td code": ["6.1"],
        }.items():  # fmt: skip
            assert await said.locator(selector).all_inner_texts() == texts
        text = await said.inner_text()
        assert "snake_case_word and 2 * 3 * 4." in text
        assert "*unclosed **marks" in text
        links = await said.locator("a").evaluate_all("all => all.map(one => [one.href, one.rel])")
        safe = "noopener noreferrer"
        assert links == [
            ["https://example.test/a_(b)", safe], ["mailto:a@b.test", safe], ["https://example.test/c", safe],
            ["https://example.test/d", safe],
        ]  # fmt: skip
        await watched.page.get_by_role("button", name="As written").click()
        assert await watched.page.locator(".answer .say").text_content() == MARKDOWN


SIZE = 60_000
ATTACKS = (
    *HOSTILE,
    "[x](javascript:window.hit=1) [y]( java\tscript:window.hit=1) [z](data:text/html,<script>window.hit=1</script>)",
    "![p](http://elsewhere.test/x.png) ![q](data:image/svg+xml;base64,PHN2Zy8+) [r](//elsewhere.test) [s](https://a b)",
    '[t](https://example.test/"onmouseover="window.hit=1") <a href="javascript:1">u</a> <b onclick=window.hit=1>v</b>',
    "*" * SIZE, "_a" * (SIZE // 2), "*a **b " * (SIZE // 7), "[" * SIZE, "[a](" * (SIZE // 4), "](" * (SIZE // 2),
    "[a]( " + " " * SIZE, "![" * (SIZE // 2), "> " * (SIZE // 2), "- " * (SIZE // 2) + "x",
    "\n".join("  " * depth + "- x" for depth in range(300)), "".join("`" * size + "x" for size in range(1, 340)),
    "`a" * (SIZE // 2), "|" * SIZE + "\n" + "|-" * (SIZE // 2), "a|b\n" + " " * SIZE + "-|-", "#" * SIZE,
    "# " + " #" * (SIZE // 2), "```\n" * (SIZE // 4), "\\" * SIZE, "<" * SIZE, "https://" * (SIZE // 8), "x" * SIZE,
    "\n" * SIZE,
    "\N{RIGHT-TO-LEFT OVERRIDE}" * 2_000, "(" * SIZE, "[a](" + "(" * SIZE, "~~" * (SIZE // 2),
    "- - " * (SIZE // 4) + "x",
)  # fmt: skip


async def test_hostile_texts_are_inert_and_quick(browser: Chromium, exported: Exported) -> None:
    messages = [ChatMessage(text, role="user" if at % 2 else "assistant") for at, text in enumerate(ATTACKS)]
    async with browser.page(await exported(conversation_of(messages, answers=[HOSTILE[0]]))) as watched:
        await opened(watched, 0)
        assert await watched.page.locator(".call-main .message").count() == len(ATTACKS) + 1
        for _ in range(2):
            # Each press shows the next part of every long text at once.
            slowest: float = await watched.page.evaluate("""() => {
                let slowest = 0;
                for (const more of document.querySelectorAll(".long-text > button")) {
                    const began = performance.now();
                    more.click();
                    slowest = Math.max(slowest, performance.now() - began);
                }
                return slowest;
            }""")
            assert slowest < 2000, "a quadratic pass over such a text takes many seconds"
        assert await watched.page.locator(".long-text > button").count() == 0
        inside = watched.page.locator("#main")
        for selector in (
            "script",
            "iframe",
            "svg[onload]",
            "img",
            "[onclick]",
            "[onerror]",
            "[onmouseover]",
            "b[onclick]",
        ):
            assert await inside.locator(selector).count() == 0
        addresses = await inside.locator("a:not([data-call])").evaluate_all("all => all.map(one => one.href)")
        assert all(address.startswith(("https://", "http://", "mailto:")) for address in addresses)
        assert "[U+202E]turned" in await watched.page.locator(".message", has_text="turned").inner_text()
        assert await inside.locator(".md :is(ul, blockquote)").count() < 400, "nesting has an end"


def png(width: int = 4, height: int = 3) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\x40\x80\xc0" * width) * height
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


async def test_pictures_are_shown_and_none_is_loaded_from_elsewhere(
    browser: Chromium, exported: Exported, tmp_path: Path
) -> None:
    inline = f"data:image/png;base64,{base64.b64encode(png()).decode()}"
    blocks: list[Any] = [
        TextBlock(text=f"See ![the harbour]({inline})."),
        ImageBlock(image=png()),
        ImageBlock(url="https://elsewhere.test/x.png", image_mimetype="image/png"),
        ImageBlock(image=b"<svg onload='window.hit=1'/>", image_mimetype="image/svg+xml"),
        ImageBlock(image=b"\x89PNG\r\n\x1a\n" + b"0" * 1_100_000, image_mimetype="image/png"),
        DocumentBlock(data=b"%PDF-1.4", document_mimetype="application/pdf", title="chart.pdf"),
    ]  # fmt: skip
    run = conversation_of(
        [ChatMessage(role="user", blocks=blocks)], answers=["A harbour."], picture=ImageBlock(image=png())
    )
    async with browser.page(await exported(run)) as watched:
        await opened(watched, 0)
        pictures = watched.page.locator("#main img")
        await pictures.last.scroll_into_view_if_needed()
        assert await pictures.evaluate_all("all => all.map(one => [one.alt, one.naturalWidth])") == [
            ["the harbour", 4],
            ["A picture in the message", 4],
        ]
        texts = await watched.texts(".media figcaption")
        assert "at https://elsewhere.test/x.png, not loaded" in texts[1]
        assert "image/svg+xml" in texts[2]
        assert "not kept" in texts[3]
        async with watched.page.expect_download() as download:
            await watched.page.locator(".media", has_text="chart.pdf").get_by_role("button", name="Save").click()
        await (await download.value).save_as(tmp_path / "saved")
        assert (tmp_path / "saved").read_bytes() == b"%PDF-1.4"
        await watched.presses("Escape")
        await watched.page.get_by_role("tab", name="Summary").click()
        await watched.page.locator("#panel-summary .media img").wait_for()


async def test_the_tree_grows_with_the_run_and_a_call_is_fetched_whole(
    browser: Chromium, serving: Serving, tmp_path: Path
) -> None:
    go_on, answer = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedLLM):
        async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
            await answer.wait()
            async for event in super()._stream(request):
                yield event

    @tool
    async def wait(text: str) -> str:
        """Wait."""
        await go_on.wait()
        return "waited"

    model = Slow([tool_call("wait", text="x"), "Done."])
    answer.set()
    async with serving(WorkflowServer(), agent=FunctionAgent(name="waiter", tools=[wait], llm=model)) as served:
        run_id = await served.start("agent", user_msg=f"Wait. {'A long text. ' * 700}the end")
        async with browser.page(f"{served.url}/#run={run_id}", wait=NODES) as watched:
            running = watched.page.locator(f'{NODES}[data-state="running"]')
            await running.wait_for()
            assert await levels(watched) == [(1, "waiter"), (2, "Call 1"), (3, "wait")]
            answer.clear()
            go_on.set()
            await watched.page.get_by_text("run_agent_step waits for the model.").wait_for()
            answer.set()
            await watched.page.locator(NODES, has_text="Done.").wait_for()
            assert await running.count() == 0
            await opened(watched, 1)
            assert await watched.texts(".message.fresh > header b") == ["assistant", "tool"]
            await watched.page.get_by_role("button", name="Show more").click()
            assert (await watched.page.locator(".message.user").inner_text()).endswith("the end")
            await watched.presses("Escape")
            async with watched.page.expect_download() as download:
                await watched.page.get_by_role("button", name="Export").click()
            await (await download.value).save_as(tmp_path / "run.html")
    async with browser.page((tmp_path / "run.html").as_uri()) as file:
        await opened(file, 1)
        await file.page.get_by_role("button", name="Show more").click()
        assert (await file.page.locator(".message.user").inner_text()).endswith("the end")


async def test_two_runs_are_compared_from_where_they_part(browser: Chromium, serving: Serving) -> None:
    def answer(request: ChatRequest) -> Any:
        last = request.messages[-1]
        if last.role == "tool":
            return f"I looked at {last.content}."
        return tool_call("look", place="Leith" if "north" in (last.content or "") else "Dover")

    def look(place: str) -> str:
        """Look."""
        return place

    agent = FunctionAgent(name="looker", tools=[look], llm=ScriptedLLM([answer] * 9))
    async with serving(WorkflowServer(), agent=agent, making=Making()) as served:
        south, north, again = [
            await served.start("agent", user_msg=message) for message in ("Look south.", "Look north.", "Look south.")
        ]
        making = await served.start("making", item="tea", count=1)
        for run_id in (south, north, again, making):
            await served.over(run_id)
        await served.post(f"/handlers/{making}/fork", {"at": 2, "new_id": "fork", "state": {"item": "salt"}})
        await served.over("fork")
        async with browser.page(f"{served.url}/#compare={south},{north}", wait=".compare") as watched:
            assert "The runs differ from the first call on." in (await watched.texts(".compare .sub-head"))[0]
            left, right = (await watched.texts(".pair-cell"))[:2]
            assert ["Look south." in left, "Dover" in left] == [True, True]
            assert ["Look north." in right, "Leith" in right] == [True, True]
            await watched.page.goto(f"{served.url}/#compare={south},{again}")
            await watched.page.get_by_text("All 2 calls are the same.").wait_for()
            await watched.page.goto(f"{served.url}/#run=fork")
            await watched.page.get_by_role("link", name="Compare").click()
            await watched.page.locator(".compare").wait_for()
            assert "The first" in (await watched.texts(".compare .sub-head"))[0]
            assert (await watched.texts(".compare .card"))[-1].split()[-3:] == ["item", "tea", "salt"]
            await watched.page.locator(".compare-run").last.get_by_role("link").click()
            await watched.page.locator(".run-id", has_text="fork").wait_for()


async def test_a_call_is_changed_in_forms_and_made_again(browser: Chromium, serving: Serving) -> None:
    def look(place: str) -> str:
        """Look."""
        return f"{place} is calm"

    script = [tool_call("look", place="Leith"), "Calm.", tool_call("look", place="Dover"), "Rough."]
    llm = ScriptedLLM(script)
    agent = FunctionAgent(name="looker", system_prompt="Be **kind**.", tools=[look], llm=llm)
    async with serving(WorkflowServer(), agent=agent) as served:
        run_id = await served.start("agent", user_msg="Look north.")
        await served.over(run_id)
        async with browser.page(f"{served.url}/#run={run_id}") as watched:
            await opened(watched, 1)
            page = watched.page
            await page.get_by_role("button", name="Try again").click()
            assert await page.get_by_role("button", name="message").all_inner_texts() == [
                *["Edit", "Leave out"] * 2,
                "Edit",
            ], "a message with tool calls and its results stay together"
            await page.get_by_role("button", name="Edit: message 1").click()
            text = page.get_by_label("Text of message 1")
            assert await text.input_value() == "Be **kind**."
            await text.fill("Be rude.")
            await page.get_by_role("button", name="Edit: message 4").click()
            await page.get_by_label("Text of message 4").fill("Leith is rough")
            await page.get_by_role("button", name="Undo: message 4").click()
            assert await page.get_by_role("button", name="Leave out: message 2").count() == 1
            form = page.locator(".try-again")
            await form.get_by_label("temperature").fill("warm")
            await form.get_by_role("button", name="Run from here").click()
            await form.get_by_text("This is not a number.").wait_for()
            await form.get_by_label("temperature").fill("0")
            await form.get_by_label("Model").fill("nobody:knows")
            await form.get_by_role("button", name="Run from here").click()
            await page.locator(".notice.bad", has_text="names no model").wait_for()
            await form.get_by_label("Model").fill("")
            await form.get_by_label("Ask before tools run").uncheck()
            await form.get_by_role("button", name="Run from here").click()
            await form.get_by_role("link", name="Open the new run").wait_for()
            [fork] = await form.locator("code").all_inner_texts()
            await served.over(fork)
            sent = llm.requests[2]
            assert (str(sent.messages[0].content), sent.options["temperature"]) == ("Be rude.", 0)
            await form.get_by_role("link", name="Compare the two runs").click()
            await page.locator(".compare").wait_for()
            watched.problems.clear()  # the refused model
