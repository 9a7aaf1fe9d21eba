"""Rows about what else a request can hold: forms of answers, pictures, documents, cache points, options."""

import base64
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from batonflow.llms import (
    CacheControl,
    CachePoint,
    ChatMessage,
    DocumentBlock,
    FetchPolicy,
    ImageBlock,
    OpenAI,
    TextBlock,
    ToolCallBlock,
)
from batonflow.llms.stream import OutputSchema
from tests.llms.loopback import Answer, Received
from tests.llms.matrix.apis import API, APIS, HEADER_VALUE, MODEL, AnthropicAPI, ChatAPI, ResponsesAPI, check_answer
from tests.llms.matrix.cells import Bench, row
from tests.llms.matrix.content import ASK, NOW, SHORT, SYSTEM, USER, WEATHER
from tests.llms.wire.content import Said, Text, ToolCall

_COMPATIBLE = [api.name for api in APIS if isinstance(api, ChatAPI) and api.adapter is not OpenAI]
_BY_TOOL = [name for name in _COMPATIBLE if name != "Ollama"]


class Weather(BaseModel):
    """How the weather is."""

    where: str
    degrees: int


_FORM = {
    "description": "How the weather is.",
    "type": "object",
    "properties": {"where": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["where", "degrees"],
    "additionalProperties": False,
}
_JSON = '{"where": "Büsum 🌊", "degrees": 17}'


def _held_to(api: API, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """What the form of the answer adds to the body where the vendor holds the model to it."""
    match api:
        case AnthropicAPI():
            return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
        case ResponsesAPI():
            return {"text": {"format": {"type": "json_schema", "name": name, "schema": schema, "strict": True}}}
        case _:
            named = {"name": name, "schema": schema, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": named}}


@row(
    "structured output",
    notes=dict.fromkeys(_BY_TOOL, "by a tool that must be called; `json_schema=True` is for servers that can more"),
)
async def structured_output(bench: Bench) -> None:
    llm = bench.model()
    if bench.api.name in _BY_TOOL:
        schema = Weather.model_json_schema()
        tool = {"name": "Weather", "description": "How the weather is.", "parameters": schema}
        held = bench.api.tools(tool) | {"tool_choice": "required", "parallel_tool_calls": False}
        bench.answers(Said((ToolCall("call_form", "Weather", _JSON),)))
    else:
        held = _held_to(bench.api, "Weather", _FORM)
        bench.answers(Said((Text(_JSON),)))
    response = await llm.as_structured_llm(Weather).achat(ASK)
    assert response.raw == Weather(where="Büsum 🌊", degrees=17)
    assert bench.bodies == [bench.api.asked(SYSTEM, USER) | held]

    bench.answers(Said((Text(_JSON),)))
    response = await llm.achat(ASK, output_schema=OutputSchema(name="Sky", parameters=_FORM))
    check_answer(bench.api, response, await bench.raw())
    assert bench.bodies[1:] == [bench.api.asked(SYSTEM, USER) | _held_to(bench.api, "Sky", _FORM)]


_PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(32))
_PICTURE_URL = "https://pictures.test/ebbe.png"


def _url_of(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _picture(api: API, data: bytes | None = None, detail: str = "auto") -> dict[str, Any]:
    """A picture in the API's form: its bytes, or else its address."""
    url = _PICTURE_URL if data is None else _url_of("image/png", data)
    match api:
        case AnthropicAPI() if data is None:
            return {"type": "image", "source": {"type": "url", "url": url}}
        case AnthropicAPI():
            encoded = base64.b64encode(data or b"").decode()
            return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded}}
        case ResponsesAPI():
            return {"type": "input_image", "image_url": url, "detail": detail}
        case _:
            return {"type": "image_url", "image_url": {"url": url, "detail": detail}}


def _words(api: API, text: str) -> dict[str, Any]:
    return {"type": "input_text" if isinstance(api, ResponsesAPI) else "text", "text": text}


@contextmanager
def _file(name: str, data: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_bytes(data)
        yield file


def _user_content(body: dict[str, Any]) -> Any:
    return body.get("input", body.get("messages"))[-1]["content"]


@row("images")
async def images(bench: Bench) -> None:
    llm, api = bench.model(), bench.api
    bench.answers(SHORT)
    with _file("flut.png", _PNG[::-1]) as file:
        blocks = [
            TextBlock(text="Was ist das?"),
            ImageBlock(image=_PNG),
            ImageBlock(path=file, detail="high"),
            ImageBlock(url=_PICTURE_URL, detail="low"),
        ]
        response = await llm.achat([ASK[0], ChatMessage(blocks=blocks)])
    check_answer(api, response, await bench.raw())
    [body] = bench.bodies
    content = [
        _words(api, "Was ist das?"),
        _picture(api, _PNG),
        _picture(api, _PNG[::-1], detail="high"),
        _picture(api, detail="low"),
    ]
    assert _user_content(body) == content
    # Apart from these the request is as any other.
    plain = api.asked(SYSTEM, USER)
    list(plain.get("input", plain.get("messages")))[-1]["content"] = content
    assert body == plain


_PICTURES_BEHIND = dict.fromkeys(
    ("Chat", *_COMPATIBLE), "the API takes nothing but text as a tool's result: pictures follow as the user's"
)


@row("images in tools' results", further=True, notes=_PICTURES_BEHIND)
async def images_in_results(bench: Bench) -> None:
    llm, api = bench.model(), bench.api
    bench.answers(SHORT)
    call = ToolCallBlock(tool_call_id="call_pic", tool_name="now")
    result = [TextBlock(text="So:"), ImageBlock(image=_PNG), ImageBlock(url=_PICTURE_URL)]
    asked = [ChatMessage(role="assistant", blocks=[call])]
    told = [ChatMessage(role="tool", blocks=result, additional_kwargs={"tool_call_id": "call_pic"})]
    await llm.achat_with_tools([NOW], chat_history=[*ASK, *asked, *told], allow_parallel_tool_calls=True)
    [body] = bench.bodies
    content = [_words(api, "So:"), _picture(api, _PNG), _picture(api)]
    if isinstance(api, AnthropicAPI):
        result = {"type": "tool_result", "tool_use_id": "call_pic", "content": content}
        assert body["messages"][-1] == {"role": "user", "content": [result]}
    elif isinstance(api, ResponsesAPI):
        assert body["input"][-1] == {"type": "function_call_output", "call_id": "call_pic", "output": content}
    else:
        assert body["messages"][-2] == {"role": "tool", "tool_call_id": "call_pic", "content": "So:"}
        shown = body["messages"][-1]
        assert (shown["role"], shown["content"][1:]) == ("user", content[1:])


_PDF = b"%PDF-1.7\n\xff\xfe Ebbe"


def _documents(api: API, url: str) -> list[dict[str, Any]]:
    """A PDF, a text and the address of a PDF in the API's form."""
    pdf, text = _url_of("application/pdf", _PDF), "Flut um 12:04. 🌊"
    match api:
        case AnthropicAPI():
            encoded = base64.b64encode(_PDF).decode()
            sources = [
                ({"type": "base64", "media_type": "application/pdf", "data": encoded}, "paper.pdf"),
                ({"type": "text", "media_type": "text/plain", "data": text}, "notes.txt"),
                ({"type": "url", "url": url}, "input_document"),
            ]
            return [{"type": "document", "source": source, "title": title} for source, title in sources]
        case ResponsesAPI():
            return [
                {"type": "input_file", "filename": "paper.pdf", "file_data": pdf},
                {"type": "input_file", "filename": "notes.txt", "file_data": _url_of("text/plain", text.encode())},
                {"type": "input_file", "file_url": url},
            ]
        case _:
            # The API takes no addresses, so the document is fetched.
            return [
                {"type": "file", "file": {"filename": "paper.pdf", "file_data": pdf}},
                {"type": "text", "text": text},
                {"type": "file", "file": {"filename": "input_document", "file_data": pdf}},
            ]


@row("documents", further=True)
async def documents(bench: Bench) -> None:
    # The server of the row is on this machine, whose addresses are not fetched otherwise.
    llm, api = bench.model(fetch_urls=FetchPolicy(private_addresses=True)), bench.api

    def answer(request: Received) -> Answer:
        if request.method == "GET":
            return bench.cut(Answer([_PDF], content_type="application/pdf"))
        return bench.streamed(api.stream(SHORT))

    bench.server.answers = answer
    url = f"{bench.server.url}/paper.pdf"
    with _file("notes.txt", "Flut um 12:04. 🌊".encode()) as file:
        blocks = [DocumentBlock(data=_PDF, title="paper.pdf"), DocumentBlock(path=file), DocumentBlock(url=url)]
        if bench.chunking == "crlf":
            # The bytes of a document that is fetched would be others.
            blocks.pop()
        await llm.achat([ASK[0], ChatMessage(blocks=[TextBlock(text="Lies:"), *blocks])])
    [body] = bench.bodies
    assert _user_content(body) == [_words(api, "Lies:"), *_documents(api, url)[: len(blocks)]]


@row(
    "cached prompt",
    notes=dict.fromkeys(_COMPATIBLE, "these servers cache by themselves: cache points are left out, the counts read"),
)
async def cached_prompt(bench: Bench) -> None:
    llm, api = bench.model(), bench.api
    bench.answers(SHORT)
    hour = CachePoint(cache_control=CacheControl(type="ephemeral", ttl="1h"))
    half = CachePoint(cache_control=CacheControl(type="ephemeral", ttl="30m"))
    messages = [
        ChatMessage(role="system", blocks=[TextBlock(text=SYSTEM), hour]),
        ChatMessage(blocks=[TextBlock(text="Davor."), half, TextBlock(text=USER)]),
    ]
    response = await llm.achat(messages)
    check_answer(api, response, await bench.raw())
    assert response.usage is not None
    assert (response.usage.cached_tokens, response.usage.cache_write_tokens) == (8, 2)
    assert response.usage.input_tokens == 30

    expected = api.asked(SYSTEM, f"Davor.\n{USER}")
    if isinstance(api, AnthropicAPI):
        for_hour, for_half = ({"cache_control": {"type": "ephemeral", "ttl": ttl}} for ttl in ("1h", "30m"))
        expected["system"] = [{"type": "text", "text": SYSTEM, **for_hour}]
        expected["messages"][0]["content"] = [{**_words(api, "Davor."), **for_half}, _words(api, USER)]
    elif api.name not in _COMPATIBLE:
        # Of the lifetimes these have only one is asked for; the vendor chooses where it has no such thing.
        for_hour = {"prompt_cache_breakpoint": {"mode": "explicit"}}
        for_half = {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}}
        system, user = expected.get("input", expected.get("messages"))
        system["content"] = [{**_words(api, SYSTEM), **for_hour}]
        user["content"] = [{**_words(api, "Davor."), **for_half}, _words(api, USER)]
    assert bench.bodies == [expected]


def _choice(api: API, choice: str) -> dict[str, Any]:
    named = choice not in {"auto", "required", "none"}
    match api:
        case AnthropicAPI():
            words = {"required": {"type": "any"}, "none": {"type": "none"}, "auto": None}
            chosen = words.get(choice, {"type": "tool", "name": choice})
            return {} if chosen is None else {"tool_choice": chosen}
        case ResponsesAPI() if named:
            return {"tool_choice": {"type": "function", "name": choice}}
        case _ if named:
            return {"tool_choice": {"type": "function", "function": {"name": choice}}}
        case _:
            return {"tool_choice": choice}


@row("choice of tools, strict tools", further=True)
async def tool_choice(bench: Bench) -> None:
    llm, api = bench.model(), bench.api
    bench.answers(SHORT)
    choices = ("auto", "required", "none", "weather")
    for choice in choices:
        await llm.achat_with_tools([WEATHER, NOW], chat_history=ASK, tool_choice=choice, allow_parallel_tool_calls=True)
    await llm.achat_with_tools([WEATHER, NOW], chat_history=ASK, tool_required=True, allow_parallel_tool_calls=True)
    plain = api.asked(SYSTEM, USER) | api.tools(WEATHER, NOW)
    assert bench.bodies == [plain | _choice(api, choice) for choice in (*choices, "required")]

    await llm.achat_with_tools([WEATHER], chat_history=ASK, tool_choice="weather")
    one = plain | api.tools(WEATHER) | _choice(api, "weather")
    if isinstance(api, AnthropicAPI):
        one["tool_choice"]["disable_parallel_tool_use"] = True
    else:
        one["parallel_tool_calls"] = False
    assert bench.bodies[-1] == one

    await bench.model(strict_tools=True).achat_with_tools(
        [WEATHER, NOW], chat_history=ASK, allow_parallel_tool_calls=True
    )
    closed = {
        "type": "object",
        "properties": {"where": {"type": "string"}, "days": {"type": ["array", "null"], "items": {"type": "integer"}}},
        "required": ["where", "days"],
        "additionalProperties": False,
    }
    empty = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    strict = api.tools({**WEATHER, "parameters": closed}, {**NOW, "parameters": empty}, strict=True)
    assert bench.bodies[-1] == api.asked(SYSTEM, USER) | strict


@row("options", further=True)
async def options(bench: Bench) -> None:
    api = bench.api
    limit = "max_output_tokens" if isinstance(api, ResponsesAPI) else "max_tokens"
    limit = "max_completion_tokens" if api.name == "Chat" else limit
    plain = api.asked(SYSTEM, USER)
    bench.answers(SHORT)

    llm = bench.model(
        temperature=0.1,
        max_tokens=99,
        default_headers={"x-team": HEADER_VALUE},
        additional_kwargs={"temperature": 0.9, "x_unknown": {"deep": [1, "ü"]}},
    )
    await llm.achat(ASK)
    settled = plain | {"temperature": 0.9, limit: 99, "x_unknown": {"deep": [1, "ü"]}}
    assert bench.bodies[-1] == settled
    assert bench.requests[-1].headers["x-team"] == HEADER_VALUE

    # Those of the call win over all others; None takes a key out.
    await llm.achat(ASK, temperature=0.5, max_tokens=64, x_unknown=None, x_other=True)
    del settled["x_unknown"]
    assert bench.bodies[-1] == settled | {"temperature": 0.5, limit: 64, "x_other": True}

    match api:
        case AnthropicAPI():
            await bench.model(thinking={"type": "adaptive"}, effort="low").achat(ASK)
            assert bench.bodies[-1] == plain | {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}
            await bench.model(additional_kwargs={"betas": ["tides-2026-01-01"]}).achat(ASK)
            request = bench.requests[-1]
            assert request.path == "/v1/messages"
            assert request.headers["anthropic-beta"] == "tides-2026-01-01"
            assert request.body == plain
        case ResponsesAPI():
            await bench.model(reasoning_effort="low", reasoning={"summary": "auto"}, store=True).achat(ASK)
            assert bench.bodies[-1] == plain | {"reasoning": {"summary": "auto", "effort": "low"}, "store": True}
        case _:
            await bench.model(reasoning_effort="low").achat(ASK)
            assert bench.bodies[-1] == plain | {"reasoning_effort": "low"}
    assert all(body["model"] == MODEL for body in bench.bodies)
