"""Models in front of models: a limit on how many ask at a time, another vendor when one fails, and what it took."""

import asyncio
import logging
import os

from batonflow.llms import LLM, Anthropic, FallbackLLM, Faults, OpenAI, RateLimitedLLM, ScriptedLLM, track_usage

CITIES = ("Brest", "Dover", "Emden", "Lisbon")


def models() -> tuple[LLM, LLM]:
    """Two vendors' models where there are keys for both; else two scripts, the first of which often fails."""
    if os.environ.get("OPENAI_API_KEY") and os.environ.get("ANTHROPIC_API_KEY"):
        return OpenAI(max_retries=1), Anthropic()
    first = ScriptedLLM(["First says: high."] * 9, model="first", faults=Faults(seed=1, rate_limited=0.5))
    return first, ScriptedLLM(["Second says: low."] * 9, model="second")


async def main() -> None:
    logging.getLogger("batonflow").setLevel(logging.ERROR)  # it would tell of every switch
    llm = RateLimitedLLM(FallbackLLM(list(models())), max_concurrency=2, requests_per_minute=600)
    with track_usage() as totals:
        answers = await asyncio.gather(*(llm.acomplete(f"Is the water high in {city} now?") for city in CITIES))
    for city, answer in zip(CITIES, answers, strict=True):
        print(f"{city}: {answer.text} (answered by {answer.additional_kwargs['answered_by']})")
    print(f"{totals.requests} answers, {totals.usage.total_tokens} tokens")


asyncio.run(main())
