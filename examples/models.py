"""The model of the examples: a real one where there is a key, else a script, so that they run offline."""

import os

from batonflow.llms import LLM, ScriptedLLM, llm_from
from batonflow.llms.scripted import Turn


def model_or(*turns: Turn, delay: float = 0.0) -> LLM:
    """A model of OpenAI's or Anthropic's when there is a key for one, else one that answers with ``turns``."""
    if os.environ.get("OPENAI_API_KEY"):
        return llm_from(f"openai:{os.environ.get('OPENAI_MODEL', 'gpt-5.6')}")
    if os.environ.get("ANTHROPIC_API_KEY"):
        return llm_from(f"anthropic:{os.environ.get('ANTHROPIC_MODEL', 'claude-sonnet-5')}")
    return ScriptedLLM(turns, delay=delay)
