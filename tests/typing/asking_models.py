"""How models are made and asked, as a type checker sees it."""

from pathlib import Path
from typing import assert_type

from pydantic import BaseModel

from batonflow.llms import (
    LLM,
    Anthropic,
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    DeepSeek,
    FallbackLLM,
    Faults,
    Ollama,
    OpenAI,
    OpenAILike,
    OpenAIResponses,
    RateLimitedLLM,
    RateLimits,
    RecordingLLM,
    ReplayLLM,
    ScriptedLLM,
    StructuredLLM,
    Usage,
    llm_from,
    price,
    tool_call,
    track_usage,
)


class Tide(BaseModel):
    metres: float


def models() -> list[LLM]:
    first, second = OpenAI("gpt-5.6", temperature=0.2), Anthropic("claude-sonnet-5", thinking={"type": "adaptive"})
    return [
        OpenAIResponses("gpt-5.6", reasoning={"summary": "auto"}),
        DeepSeek("deepseek-chat", api_key="k"),
        Ollama("qwen3:8b"),
        OpenAILike("m", base_url="http://127.0.0.1:1/v1", json_schema=True),
        llm_from("openai:gpt-5.6", api_key="k"),
        FallbackLLM([first, second]),
        RateLimitedLLM(first, requests_per_minute=60),
        RateLimitedLLM(second, limits=RateLimits(max_concurrency=2)),
        RecordingLLM(first, Path("answers.json")),
        ReplayLLM("answers.json", delay=0.1),
        ScriptedLLM(["yes", tool_call("add", a=1)], faults=Faults(seed=1, cut=0.1)),
    ]


async def ask(llm: LLM) -> None:
    assert_type(await llm.achat([ChatMessage("Hello")]), ChatResponse)
    assert_type(llm.complete("Hello"), CompletionResponse)
    async for response in await llm.astream_chat([ChatMessage("Hello")]):
        assert_type(response, ChatResponse)
    assert_type(await llm.astructured_predict(Tide, "How high in {city}?", city="Brest"), Tide)
    assert_type(llm.structured_predict(Tide, "How high?"), Tide)
    assert_type(llm.as_structured_llm(Tide), StructuredLLM)
    assert_type(await llm.apredict("Hello, {name}", name="Ann"), str)
    with track_usage() as totals:
        assert_type(totals.usage, Usage)
    assert_type(price(Usage(), "gpt-5.6"), float | None)
