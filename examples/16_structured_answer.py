"""An answer as data: what does not fit goes back to the model, and objects show while they are still being written."""

import asyncio
from datetime import time

from models import model_or
from pydantic import BaseModel, Field

from batonflow.llms import tool_call


class Tide(BaseModel):
    """One tide."""

    at: time
    metres: float = Field(ge=0)


class Tides(BaseModel):
    """The tides of a day."""

    harbour: str
    tides: list[Tide]


TEXT = "Saint-Malo: high water at 06:12 (11.9 m) and 18:41 (11.6 m), low water at 12:55 (1.8 m)."
GOOD = [{"at": "06:12", "metres": 11.9}, {"at": "12:55", "metres": 1.8}, {"at": "18:41", "metres": 11.6}]
BAD = [{"at": "6 in the morning", "metres": -1}]


async def main() -> None:
    llm = model_or(
        tool_call("Tides", harbour="Saint-Malo", tides=BAD),
        tool_call("Tides", harbour="Saint-Malo", tides=GOOD),
        tool_call("Tides", harbour="Saint-Malo", tides=GOOD),
    )
    found = await llm.astructured_predict(Tides, "Read the tides from this: {text}", text=TEXT)
    for tide in found.tides:
        print(f"{found.harbour} {tide.at:%H:%M} {tide.metres:4.1f} m")

    pieces = await llm.astream_structured_predict(Tides, "Read the tides from this: {text}", text=TEXT)
    seen = [len(getattr(piece, "tides", None) or []) async for piece in pieces]
    print("tides there, piece by piece:", sorted(set(seen)))


asyncio.run(main())
