"""What the example of a team stands on: notes to search, and a model (see `models.py`)."""

from models import model_or

from batonflow import ToolRetry
from batonflow.llms import tool_call

NOTES = {"tides": "The moon pulls the sea; high water comes twice a day."}


def search(topic: str) -> str:
    """Look up facts about a topic."""
    if topic not in NOTES:
        raise ToolRetry(f"there is no note on {topic}; there are notes on {', '.join(NOTES)}")
    return NOTES[topic]


# One script for both agents: they take turns.
llm = model_or(
    tool_call("search", topic="tide"),
    tool_call("search", topic="tides"),
    tool_call("handoff", to_agent="writer", reason="the facts are there"),
    tool_call("publish", title="Tides", body=NOTES["tides"]),
    lambda request: f"The article about tides is out: {request.messages[-1].content}.",
)
