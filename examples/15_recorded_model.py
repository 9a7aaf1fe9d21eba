"""A model's answers, recorded once and replayed without key and network; ``--record`` asks the model anew."""

import asyncio
import sys
from pathlib import Path

from models import model_or

from batonflow import FunctionAgent
from batonflow.llms import LLM, RecordingLLM, ReplayLLM, tool_call

RECORDING = Path(__file__).with_name("15_recorded_model.json")


def height(hour: int) -> float:
    """Height of the water in metres.

    Args:
        hour: Hour of the day.
    """
    return {6: 5.7, 12: 0.9, 18: 5.5}[hour]


async def main(llm: LLM) -> None:
    agent = FunctionAgent(
        llm=llm, tools=[height], system_prompt="Look up what you do not know. Answer in one sentence."
    )
    output = await agent.run("How far does the water fall between 6 and 12?")
    print(output)
    if output.usage is not None:  # not every server counts
        read, written = output.usage.input_tokens, output.usage.output_tokens
        print(f"{read} tokens read, {written} written, by {llm.metadata.model_name}")


def recording() -> LLM:
    llm = model_or(
        [tool_call("height", hour=6), tool_call("height", hour=12)], "It falls by 4.8 metres, from 5.7 to 0.9."
    )
    return RecordingLLM(llm, RECORDING)


asyncio.run(main(recording() if "--record" in sys.argv else ReplayLLM(RECORDING)))
