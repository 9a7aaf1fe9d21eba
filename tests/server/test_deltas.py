"""Answers on the wire: each text once, lossless, with pieces put together when a reader asks for it."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonflow import FunctionAgent, ScriptedLLM
from batonflow.agents import AgentStream
from batonflow.server import WorkflowServer
from batonflow.server.client import WorkflowClient
from batonflow.server.deltas import MOST_ANSWERS, Deltas, Rebuilding, Told, put_together
from batonflow.server.envelopes import envelope
from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, step
from tests.server.conftest import Running, Serving

ANSWER = "tides " * 2000


class Note(Event):
    delta: str
    response: str
    about: str = ""


class Number(Event):
    n: int


def piece(seq: int, delta: str, response: str, *, agent: str = "a", cause: int = 1, **fields: Any) -> dict[str, Any]:
    event = AgentStream(delta=delta, response=response, current_agent_name=agent, **fields)
    return json.loads(json.dumps(envelope(event, seq=seq, ts=1.0, step="s", cause=cause)))


@st.composite
def streams(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Answers of several agents at a time, whose deltas may leave text out, begin anew, and think."""
    texts: dict[tuple[str, int], str] = {}
    events: list[dict[str, Any]] = []
    short = st.text(alphabet="ab \U0001f30a", max_size=3)
    for seq in range(draw(st.integers(0, 12))):
        key = draw(st.sampled_from("xy")), draw(st.integers(1, 2))
        new = draw(short)
        text = new if draw(st.integers(0, 9)) == 0 else texts.get(key, draw(short)) + new
        texts[key] = text
        delta = draw(st.sampled_from([new, new, new, "", new[:1]]))
        fields: dict[str, Any] = {"thinking_delta": draw(st.sampled_from([None, None, "hm"]))}
        if draw(st.booleans()):
            fields["place"] = draw(st.integers(0, 1))
        events.append(piece(seq, delta, text, agent=key[0], cause=key[1], **fields))
    return events


@given(streams(), st.integers(0, 12))
def test_a_lean_stream_is_rebuilt_from_wherever_a_reader_joins(events: list[dict[str, Any]], begin: int) -> None:
    deltas, answers = Deltas(), Rebuilding()
    for event in events[begin:]:
        lean = json.loads(json.dumps(deltas.lean(event)))
        whole = answers.whole(lean)
        # A field that an earlier piece had, and this one has not, stays.
        assert {name: whole["value"][name] for name in event["value"]} == event["value"]
        assert (whole["type"], whole["step"], whole["cause"]) == (event["type"], event["step"], event["cause"])


@given(streams(), st.lists(st.integers(0, 4)))
async def test_pieces_put_together_have_the_same_text_and_the_same_last_fields(
    events: list[dict[str, Any]], sizes: list[int]
) -> None:
    deltas = Deltas()
    lean: list[Told] = [(event["seq"], deltas.lean(event)) for event in events]

    async def groups() -> AsyncGenerator[list[Told]]:
        left = lean
        for size in sizes:
            yield left[:size]
            left = left[size:]
        yield left

    joined = [told async for group in put_together(groups(), 5.0) for told in group]
    assert sums(joined) == sums(lean)
    places = [seq for seq, _ in joined]
    assert places == sorted(places)
    assert places[-1:] == [event["seq"] for event in events][-1:]


def sums(told: list[Told]) -> dict[Any, tuple[str, str]]:
    """The last text and the deltas in a row of each answer."""
    answers, found = Rebuilding(), dict[Any, tuple[str, str]]()
    for _, event in told:
        whole = answers.whole(event)
        key = whole["value"]["current_agent_name"], whole["cause"], event["of"]
        found[key] = whole["value"]["response"], found.get(key, ("", ""))[1] + whole["value"]["delta"]
    return found


async def test_pieces_wait_no_longer_than_asked_and_other_events_not_at_all() -> None:
    deltas = Deltas()
    sent = asyncio.Queue[list[Told]]()

    async def groups() -> AsyncGenerator[list[Told]]:
        while True:
            yield await sent.get()

    def lean(event: dict[str, Any]) -> Told:
        return event["seq"], deltas.lean(event)

    number = json.loads(json.dumps(envelope(Number(n=1), seq=3)))
    together = put_together(groups(), 0.01)
    sent.put_nowait([lean(piece(1, "a", "a")), lean(piece(2, "b", "ab"))])
    [(seq, first)] = await anext(together)
    assert (seq, first["seq"], first["value"]["delta"]) == (2, 2, "ab")
    sent.put_nowait([])
    assert await anext(together) == [], "a pause stays one"
    sent.put_nowait([lean(piece(3, "c", "abc")), (4, number)])
    assert [seq for seq, _ in await anext(together)] == [3, 4]
    await together.aclose()


def test_only_a_bounded_number_of_answers_is_followed() -> None:
    deltas = Deltas()
    for cause in range(MOST_ANSWERS + 1):
        deltas.lean(piece(cause, "a", "a", cause=cause))
    known = deltas.lean(piece(100, "b", "ab", cause=1))
    forgotten = deltas.lean(piece(101, "b", "ab", cause=0))
    assert (known["of"], known["value"]) == (1, {"delta": "b", "at": 1})
    assert (forgotten["of"], forgotten["value"]["text"], forgotten["value"]["at"]) == (101, "ab", 0)


def test_an_event_of_a_program_with_the_same_fields_is_sent_in_the_same_way() -> None:
    deltas = Deltas()
    first = deltas.lean(envelope(Note(delta="a", response="a", about="tides"), seq=1))
    second = deltas.lean(envelope(Note(delta="b", response="ab", about="tides"), seq=2))
    assert first["value"] == {"about": "tides", "delta": "a", "at": 0}
    assert second == {"of": 1, "value": {"delta": "b", "at": 1}}
    other = envelope(Number(n=1), seq=3)
    assert deltas.lean(other) is other


def talker() -> FunctionAgent:
    return FunctionAgent(llm=ScriptedLLM([ANSWER], delay=0.0002), name="talker", streaming=True)


async def sent(running: Running, run_id: str, **query: Any) -> tuple[int, list[dict[str, Any]]]:
    """The bytes of a stream, and its events."""
    body = (await running.http.get(f"/events/{run_id}", params=query)).content
    return len(body), [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ")]


async def test_a_long_answer_is_sent_once_and_put_together_it_is_hardly_longer_than_its_text(serving: Serving) -> None:
    async with serving(WorkflowServer(), talker=talker()) as running:
        run_id = await running.start("talker", user_msg="Tell me of tides.")
        (size, pieces), (size_together, together) = await asyncio.gather(
            sent(running, run_id, deltas=1), sent(running, run_id, deltas=1, pieces="50ms")
        )
        _, whole = await sent(running, run_id)
        lines = (await running.http.get(f"/events/{run_id}", params={"deltas": 1, "sse": "false"})).text.splitlines()
    for events in (pieces, together):
        assert "".join(event["value"]["delta"] for event in events if "of" in event) == ANSWER
    assert sum("of" in event for event in pieces) >= 1900
    assert size <= 15 * len(ANSWER)
    assert size_together <= 5 * len(ANSWER)
    assert [event for event in whole if event["type"] == "AgentStream"][-1]["value"]["response"] == ANSWER
    assert all("seq" in json.loads(line) for line in lines)


class Talks(Workflow):
    @step
    async def talk(self, ctx: Context, ev: StartEvent) -> StopEvent:
        text = ""
        for word in ANSWER.split()[:40]:
            text += f"{word} "
            ctx.write_event_to_stream(AgentStream(delta=f"{word} ", response=text, current_agent_name="a"))
            await asyncio.sleep(0.005)
        return StopEvent(result=text)


@pytest.mark.parametrize("pieces", [0, 0.05])
async def test_the_client_has_whole_events_also_when_it_joins_in_the_middle(serving: Serving, pieces: float) -> None:
    async with serving(WorkflowServer(), talks=Talks()) as running, WorkflowClient(running.url) as client:
        run = await client.start("talks")
        first = [event async for event in client.stream(run.run_id, pieces=pieces)]
        whole = "tides " * 40
        assert first[-2].value["response"] == first[-1].value["result"] == whole
        assert "".join(event.value["delta"] for event in first[:-1]) == whole
        assert all(event.value["response"].endswith(event.value["delta"]) for event in first[:-1])
        assert all((event.step, event.type) == ("talk", "AgentStream") for event in first[:-1])
        assert len(first) < 40 if pieces else len(first) == 41
        again = await client.start("talks")
        event = await anext(aiter(client.stream(again.run_id, pieces=pieces)))
        later = [one async for one in client.stream(again.run_id, after=event.seq, pieces=pieces)]
        assert later[0].value["response"] == event.value["response"] + later[0].value["delta"]
        assert later[-2].value["response"] == whole


@pytest.mark.parametrize("query", ["pieces=50ms", "deltas=1&pieces=50", "deltas=1&pieces=-1ms", "deltas=maybe"])
async def test_a_query_that_does_not_fit_is_refused_by_name(serving: Serving, query: str) -> None:
    async with serving(WorkflowServer(), talks=Talks()) as running:
        run_id = await running.start("talks")
        answer = await running.http.get(f"/events/{run_id}?{query}")
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith(("pieces", "deltas"))
