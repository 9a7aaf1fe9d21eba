"""The team of the demo: one agent finds facts, another writes and publishes. Its files are kept in `.demo`."""

import os
from collections import Counter
from pathlib import Path

from models import model_or

from batonflow import AgentWorkflow, FunctionAgent, tool
from batonflow.llms import tool_call
from batonflow.llms.scripted import Answer
from batonflow.llms.stream import ChatRequest
from batonflow.tools import ToolRetry

FOLDER = Path(".demo")
CALLS = FOLDER / "calls.txt"
NOTES = {
    "moon": "The moon goes round the earth in 27 days and 8 hours.",
    "tides": "The moon pulls the sea towards it. High water comes twice a day, every 12 hours and 25 minutes.",
}
TEXT = "The moon pulls the sea towards it. So high water comes twice a day."
SCRIPT: list[Answer] = [  # the answer of the model after this number of results of tools
    ["I will look for notes.", tool_call("search", topic="tide")],
    ["The note has another name.", tool_call("search", topic="tides")],
    tool_call("handoff", to_agent="writer", reason="the facts are there"),
    ["I have all the facts now. I will publish two sentences.", tool_call("publish", title="Tides", body=TEXT)],
]


def prepare(is_new: bool) -> None:
    """Write the notes, and forget the calls of the demo before a new one."""
    (FOLDER / "notes").mkdir(parents=True, exist_ok=True)
    if is_new:
        CALLS.unlink(missing_ok=True)
    for topic, text in NOTES.items():
        (FOLDER / "notes" / f"{topic}.txt").write_text(text)


def note_call() -> None:
    """Note outside the run that this process has called a tool."""
    with CALLS.open("a") as calls:
        calls.write(f"{os.getpid()}\n")


def calls_by_process() -> Counter[str]:
    """Return the number of calls that each process has made."""
    return Counter(CALLS.read_text().split())


def answer(request: ChatRequest) -> Answer:
    """Answer as the script says. The conversation alone decides, so that another process can carry on."""
    results = [message for message in request.messages if message.role == "tool"]
    return SCRIPT[len(results)] if len(results) < len(SCRIPT) else f"Here is the outcome: {results[-1].content}"


@tool(idempotent=True)
def search(topic: str) -> str:
    """Read the note on a topic."""
    note_call()
    note = FOLDER / "notes" / f"{Path(topic).name}.txt"
    if not note.exists():
        names = ", ".join(sorted(other.stem for other in note.parent.iterdir()))
        raise ToolRetry(f"there is no note on {topic}; there are notes on {names}")
    return note.read_text()


@tool(requires_approval=True)
def publish(title: str, body: str) -> str:
    """Publish the article."""
    note_call()
    article = FOLDER / f"{Path(title).name}.md"
    article.write_text(f"# {title}\n\n{body}\n")
    return f"published {article.name}, {article.stat().st_size} bytes"


def make_team() -> AgentWorkflow:
    """Make the team. Each process that works on a run makes it anew."""
    llm = model_or(*[answer] * 999, delay=0.05)
    researcher = FunctionAgent(
        name="researcher", description="Finds facts.", tools=[search], can_handoff_to=["writer"], llm=llm
    )
    writer = FunctionAgent(name="writer", description="Writes and publishes.", tools=[publish], llm=llm)
    return AgentWorkflow(agents=[researcher, writer], root_agent="researcher", store=FOLDER / "runs.db")
