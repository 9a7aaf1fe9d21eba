"""The research asks, searches, writes and revises; killed in the middle of its searches, it searches only the rest."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

from research import DeepResearch, Question

from batonflow.llms import ScriptedLLM
from batonflow.llms.stream import ChatRequest

TOPICS = [f"topic {number}" for number in range(8)]


def says(request: ChatRequest) -> str:
    """Answer by the prompt alone, as the same model in another process would."""
    prompt = str(request.messages[-1].content)
    if prompt.startswith("Ask one question"):
        return "Which sea?"
    if prompt.startswith("Name the topics"):
        return "\n".join(f"- {topic}" for topic in TOPICS)
    if prompt.startswith("State facts"):
        return "facts"
    return f"Report: {'longer, ' if 'Heed: longer' in prompt else ''}{prompt.count('facts')} facts"


def write_down(topic: str) -> None:
    with Path("searched.txt").open("a") as searched:
        searched.write(f"{topic}\n")


class Slow(DeepResearch):
    """Writes down each search, and takes its time."""

    async def search(self, topic: str) -> str:
        write_down(topic)
        await asyncio.sleep(0.2)
        return await super().search(topic)


async def research() -> None:
    handler = Slow(ScriptedLLM([says] * 99), store="research.db").run(
        start_event=Question(text="Tides?"), run_id="tides"
    )
    answers = {"Which": "the Channel", "Report: longer": "", "Report: 8": "longer"}
    async for request in handler.inputs():
        (answer,) = [one for begin, one in answers.items() if request.event.prefix.startswith(begin)]
        request.respond(answer)
    report = await handler
    print(report.text, report.revisions)


async def test_the_report_is_revised_by_feedback() -> None:
    handler = DeepResearch(ScriptedLLM([says] * 99)).run(start_event=Question(text="Tides?"))
    answers = iter(["the Channel", "longer", ""])
    async for request in handler.inputs():
        request.respond(next(answers))
    report = await handler
    assert (report.text, report.revisions) == ("Report: longer, 8 facts", 1)


def test_after_kill_9_only_the_rest_of_the_topics_is_searched(tmp_path: Path) -> None:
    searched = tmp_path / "searched.txt"
    first = subprocess.Popen([sys.executable, __file__], cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not searched.exists() or len(searched.read_text().splitlines()) < 5:
        assert time.monotonic() < deadline
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = searched.read_text().splitlines()
    assert len(before) < len(TOPICS)
    ended = subprocess.run([sys.executable, __file__], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout == "Report: longer, 8 facts 1\n"
    again = searched.read_text().splitlines()[len(before) :]
    assert sorted({*before, *again}) == TOPICS
    assert len(again) <= len(TOPICS) - len(before) + 2  # the two that were under way when the process was killed


if __name__ == "__main__":
    asyncio.run(research())
