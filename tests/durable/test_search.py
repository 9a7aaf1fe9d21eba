"""Search over runs: each search updates the index from the new records, and then asks it."""

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batonflow import FunctionAgent, ScriptedLLM
from batonflow.durable import search
from batonflow.durable.search import COUNTED, RunQuery, find_runs, update_index
from batonflow.durable.search_protocol import IndexEntry, SearchStore
from batonflow.durable.store_protocol import RunStore
from batonflow.durable.stores import sqlite_search
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.durable.words import words_of
from batonflow.llms import Price, tool_call
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.errors import StoreError
from tests.durable.conftest import Clock, Stores
from tests.durable.runs import begin, known, write


class Draft(Event):
    text: str


class Writes(Workflow):
    """Passes a text on in an event, and fails if it is about storms."""

    @step
    async def draft(self, ev: StartEvent) -> Draft:
        return Draft(text=f"Draft about {ev.topic}")

    @step
    async def finish(self, ev: Draft) -> StopEvent:
        if "storms" in ev.text:
            raise ValueError("The Barometer has fallen")
        return StopEvent(result={"chapters": ["introduction", ev.text.upper()]})


class Fails(Workflow):
    @step
    async def fail(self, ev: StartEvent) -> StopEvent:
        raise ValueError("Ärger im Hafen")


class Asks(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        question = InputRequiredEvent(prefix="Which harbour?")
        reply = await ctx.wait_for_event(HumanResponseEvent, waiter_event=question, timeout=None)
        return StopEvent(result=reply.response)


def depth(harbour: str) -> str:
    """Return the depth of a harbour."""
    if harbour == "Cuxhaven":
        raise LookupError("no gauge there")
    return f"{harbour} measures eleven fathoms"


async def found(store: RunStore, **conditions: Any) -> list[str]:
    """Return the ids of the runs for which conditions hold, the oldest first."""
    return [info.run_id for info in (await find_runs(store, RunQuery(**conditions), newest_first=False)).runs]


async def writes(store: RunStore, *topics: str) -> None:
    for topic in topics:
        await asyncio.gather(Writes(store=store).run(run_id=topic.split()[0], topic=topic), return_exceptions=True)


async def answers(store: RunStore, run_id: str, *turns: Any, **options: Any) -> None:
    agent = FunctionAgent(tools=[depth], llm=ScriptedLLM(list(turns), **options), store=store)
    await agent.run("How deep is the harbour?", run_id=run_id)


class TestText:
    @pytest.mark.parametrize("text", ["tides", "TIDES", "tid", "draft tides", "chapters introduction", "introd tid"])
    async def test_is_found_in_inputs_events_and_results(self, store: RunStore, text: str):
        await writes(store, "tides", "moons")
        expected = ["tides"] if "tid" in text.lower() else ["tides", "moons"]
        # Names of fields are not contents.
        assert await found(store, text=text) == ([] if "chapters" in text else expected)

    async def test_all_words_are_wanted(self, store: RunStore):
        await writes(store, "tides and moons", "moons")
        assert await found(store, text="tides moons") == ["tides"]
        assert await found(store, text="moons") == ["tides", "moons"]
        assert await found(store, text="tides suns") == []

    async def test_is_found_in_calls_results_and_answers_of_an_agent(self, store: RunStore):
        await answers(store, "a", tool_call("depth", harbour="Emden"), "Deep enough for a barque.")
        for text in ("Emden", "eleven fathoms", "barque", "how deep"):
            assert await found(store, text=text) == ["a"], text

    async def test_numbers_are_words(self, store: RunStore):
        await Writes(store=store).run(run_id="r", topic={"order": 4711, "price": 8.5, "paid": True})
        assert await found(store, text="4711") == await found(store, text="8.5") == ["r"]

    async def test_fields_may_have_any_name(self, store: RunStore):
        fields = {"role": "captain", "traceback": "zigzag", "block_type": "granite", "qualified_name": "Ada"}
        await Writes(store=store).run(run_id="r", topic=fields)
        for word in ("captain", "zigzag", "ada"):
            assert await found(store, text=word) == ["r"], word
        assert await found(store, error="zigzag") == []

    async def test_of_earlier_turns_belongs_to_these(self, store: RunStore):
        agent = FunctionAgent(llm=ScriptedLLM(["Neaps are low.", "Springs are high."]), store=store)
        for question in ("What are neaps?", "And springs?"):
            await agent.run(question, session="tides")
        assert await found(store, text="neaps") == ["tides:1"]
        assert await found(store, text="springs") == ["tides:2"]
        assert await found(store, text="tides") == ["tides:1", "tides:2"], "the name of the session"

    async def test_of_a_question_and_its_answer_is_found_when_it_is_there(self, store: RunStore):
        handler = Asks(store=store).run(run_id="r")
        [question] = [request async for request in _first(handler.inputs())]
        await until(store, "r", seq=2)
        assert await found(store, text="which harbour") == ["r"]
        assert await found(store, text="Emden") == []
        question.respond("Emden")
        await handler
        assert await found(store, text="Emden") == ["r"]

    async def test_is_found_in_ids_and_metadata(self, store: RunStore):
        await begin(store, "order/4711", metadata={"customer": "Ann Müller"})
        assert await found(store, text="4711") == ["order/4711"]
        assert await found(store, text="muller") == ["order/4711"]

    @pytest.mark.parametrize("text", ["京都", "天気", "東京都", "の"])
    async def test_of_scripts_without_spaces_is_found(self, store: RunStore, text: str):
        await writes(store, "weather 東京都の天気", "moons")
        assert await found(store, text=text) == ["weather"]
        assert await found(store, text="都京") == []

    @pytest.mark.parametrize(
        "text", ['"', "*", "a OR b NOT", "tides -moons", "tides NEAR moons", "(", "words:tides", "--"]
    )
    async def test_is_never_a_command(self, store: RunStore, text: str):
        await writes(store, "tides")
        assert await found(store, text=text) == []

    async def test_without_words_is_everything_only_if_it_is_empty(self, store: RunStore):
        await writes(store, "tides")
        assert await found(store, text=" ") == ["tides"]
        assert await found(store, text="?!") == []


class TestConditions:
    async def test_models_and_costs(self, store: RunStore):
        await answers(store, "dear", "Deep.", price=Price(0, 1_000_000))
        await answers(store, "free", "Deep.", price=Price(0, 0))
        await answers(store, "unknown", "Deep.")
        await writes(store, "tides")
        assert await found(store, model="SCRIPT") == ["dear", "free", "unknown"]
        assert await found(store, model="gpt") == []
        assert await found(store, min_cost=0.5) == ["dear"]
        assert await found(store, max_cost=0.5) == ["free"]
        assert await found(store, min_cost=0) == ["dear", "free"]

    async def test_errors_of_runs_and_of_tools(self, store: RunStore):
        await writes(store, "storms", "tides")
        await answers(store, "tool", tool_call("depth", harbour="Cuxhaven"), "Nobody knows.")
        assert await found(store, error="barometer HAS") == ["storms"]
        assert await found(store, error="no gauge") == ["tool"]
        assert await found(store, error="elsewhere") == []
        assert await found(store, text="barometer") == ["storms"]
        assert await found(store, error="Ärger im ÖFEN") == []
        await asyncio.gather(Fails(store=store).run(run_id="umlauts"), return_exceptions=True)
        assert await found(store, error="ÄRGER") == await found(store, error="ärger") == ["umlauts"]

    async def test_times_statuses_workflows_and_metadata(self, store: RunStore, clock: Clock):
        await writes(store, "tides", "storms")
        clock.wall = 3600.0
        await begin(store, "later", "Other", metadata={"user": "ann"})
        start = (await known(store, "later")).created_at
        assert await found(store, since=start) == ["later"]
        assert await found(store, until=start) == ["tides", "storms"]
        assert await found(store, status="failed", text="draft") == ["storms"]
        assert await found(store, status=["failed", "completed"]) == ["tides", "storms"]
        assert await found(store, workflow="Other", since=0) == ["later"]
        assert await found(store, metadata={"user": "ann"}, text="ann") == ["later"]
        assert await found(store, metadata={"user": "ben"}, text="ann") == []

    async def test_pages_go_on_behind_a_run(self, store: RunStore):
        await writes(store, "tides 1", "moons", "tidal 2", "tide 3")
        query = RunQuery(text="tid")
        first = await find_runs(store, query, limit=2)
        assert [info.run_id for info in first.runs] == ["tide", "tidal"]
        rest = await find_runs(store, query, after="tidal", limit=2)
        assert [info.run_id for info in rest.runs] == ["tides"]
        with pytest.raises(StoreError, match="'gone', to list those behind it, is not there any more"):
            await find_runs(store, query, after="gone")

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"text": 7}, "text=7: give a text"),
            ({"since": "yesterday"}, "since='yesterday': give a number"),
            ({"max_cost": float("nan")}, "max_cost=nan: give a number"),
            ({"since": 10**400}, "since=1000"),
            ({"error": "\ud800"}, "error"),
            ({"workflow": "\ud800"}, "workflow"),
            ({"status": "done"}, "No run has the status 'done'"),
        ],
    )
    async def test_a_wrong_condition_is_named(self, store: RunStore, wrong: dict[str, Any], said: str):
        with pytest.raises(StoreError, match=said):
            await find_runs(store, RunQuery(**wrong))


class TestIndex:
    async def test_is_brought_up_to_date_by_a_search_of_any_process(self, stores: Stores):
        one, other = stores.open(), stores.open()
        await writes(one, "tides")
        assert await found(other, text="tides") == ["tides"]
        await writes(other, "moons")
        assert await found(one, text="draft") == ["tides", "moons"]
        assert isinstance(one, SearchStore)
        assert await one.outdated(10) == []

    async def test_a_run_that_goes_on_is_read_from_where_the_index_ends(self, store: RunStore):
        assert isinstance(store, SearchStore)
        epoch = await begin(store, "r")
        await write(store, epoch, 0, [_records("one")], "r")
        await update_index(store)
        await write(store, epoch, 1, [_records("two")], "r")
        [(info, entry)] = await store.outdated(10)
        assert entry is not None
        assert (info.seq, entry.commit, entry.is_over) == (2, 1, False)
        assert "one" in entry.words
        assert await found(store, text="one two") == ["r"]

    async def test_a_deleted_run_leaves_it(self, store: RunStore):
        await writes(store, "tides", "moons")
        assert await found(store, text="draft") == ["tides", "moons"]
        await store.delete("tides")
        assert await found(store, text="draft") == ["moons"]
        if isinstance(store, SQLiteStore):
            with sqlite3.connect(store.path) as file:
                assert file.execute("SELECT count(*) FROM index_entries").fetchone() == (1,)
                assert file.execute("SELECT count(*) FROM index_words WHERE index_words MATCH 'tides'").fetchone() == (
                    0,
                )
            file.close()

    async def test_a_later_run_with_the_id_of_a_deleted_one_is_another(self, store: RunStore):
        await writes(store, "tides and moons")
        assert await found(store, text="moons") == ["tides"]
        await store.delete("tides")
        await writes(store, "tides and suns")
        assert await found(store, text="moons") == []
        assert await found(store, text="suns") == ["tides"]

    async def test_an_entry_of_an_earlier_run_is_dropped(self, store: RunStore):
        assert isinstance(store, SearchStore)
        await begin(store, "r")
        info = await known(store, "r")
        entry = IndexEntry("r", info.created_at, words=frozenset({"tides"}))
        await store.index([replace(entry, created_at=info.created_at - 1), replace(entry, run_id="gone")])
        assert (await store.search(RunQuery(text="tides"))) == []
        await store.index([entry])
        assert [one.run_id for one in await store.search(RunQuery(text="tides"))] == ["r"]

    async def test_an_unreadable_run_does_not_hide_the_others(self, store: RunStore, caplog: pytest.LogCaptureFixture):
        epoch = await begin(store, "broken")
        await write(store, epoch, 0, [b"not JSON"], "broken")
        await writes(store, "tides")
        assert await found(store, text="tides") == ["tides"]
        assert await found(store, text="broken") == ["broken"], "by its id"
        assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
            "run broken can be found by a part of its contents only"
        ]

    async def test_a_search_may_answer_before_it_is_whole(self, store: RunStore):
        for number in range(5):
            await begin(store, f"r{number}")
        first = await find_runs(store, RunQuery(text="r0"), seconds=0)
        assert first.unread == 4
        assert [info.run_id for info in first.runs] == ["r0"]
        while await update_index(store, seconds=0):
            pass
        assert await found(store, text="r4") == ["r4"]

    async def test_runs_that_are_left_are_counted_to_a_bound(self, store: RunStore):
        assert isinstance(store, SearchStore)
        for number in range(12):
            await begin(store, f"r{number}")
        assert len(await store.outdated(10)) == 10
        assert (await store.count_outdated(10), await store.count_outdated(COUNTED)) == (10, 12)

    async def test_new_runs_are_read_before_those_that_go_on_and_these_by_how_late_they_are(self, store: RunStore):
        assert isinstance(store, SearchStore)
        epochs = {name: await begin(store, name) for name in ("a", "b")}
        await update_index(store)
        for name, commits in (("a", 1), ("b", 2)):
            await write(store, epochs[name], 0, [_records(name)] * commits, name)
        await begin(store, "new")
        late = [info.run_id for info, _ in await store.outdated(10)]
        assert late[0] == "new"
        assert set(late[1:]) == {"a", "b"}

    async def test_runs_that_go_on_meanwhile_are_read_once(self, store: RunStore, monkeypatch: pytest.MonkeyPatch):
        epochs = {f"r{number}": await begin(store, f"r{number}") for number in range(3)}
        made = dict.fromkeys(epochs, 0)

        async def index(entries: Any) -> None:
            await type(store).index(store, entries)  # type: ignore[attr-defined]
            for name, epoch in epochs.items():
                await write(store, epoch, made[name], [_records("more")], name)
                made[name] += 1

        monkeypatch.setattr(store, "index", index)
        assert await update_index(store) == 0
        assert set(made.values()) == {1}

    async def test_a_long_run_is_read_in_pieces(self, store: RunStore, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(search, "_COMMITS_AT_ONCE", 2)
        epoch = await begin(store, "r")
        await write(store, epoch, 0, [_records(word) for word in ("one", "two", "three")], "r")
        assert await update_index(store, seconds=0) == 1
        assert await update_index(store, seconds=0) == 0
        assert await found(store, text="one three") == ["r"]

    async def test_a_failure_of_the_store_is_not_taken_for_an_empty_run(
        self, store: RunStore, monkeypatch: pytest.MonkeyPatch
    ):
        await writes(store, "tides")

        async def fail(*_: Any) -> Any:
            raise OSError("the disk is gone")

        with monkeypatch.context() as patched:
            patched.setattr(store, "read", fail)
            with pytest.raises(OSError, match="the disk is gone"):
                await found(store, text="tides")
        assert await found(store, text="tides") == ["tides"]

    async def test_one_of_another_form_is_made_anew(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        store = SQLiteStore(tmp_path / "runs.db")
        await writes(store, "tides")
        assert await found(store, text="tides") == ["tides"]
        with sqlite3.connect(store.path) as file:
            file.execute("UPDATE index_state SET form = 0")
            file.execute("UPDATE index_entries SET models = '[\"old\"]'")
        file.close()
        assert await found(store, model="old") == []
        assert await found(store, text="tides") == ["tides"]
        await store.aclose()

    async def test_a_sqlite_without_full_text_says_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(sqlite_search, "_TABLES", ("CREATE VIRTUAL TABLE t USING fts5_is_missing(x)",))
        store = SQLiteStore(tmp_path / "runs.db")
        await writes(store, "tides")
        with pytest.raises(StoreError, match="SQLite of this Python was built without FTS5"):
            await found(store, text="tides")
        await store.aclose()

    async def test_a_store_without_an_index_says_so(self):
        class Plain:
            pass

        with pytest.raises(StoreError, match="Plain cannot search"):
            await find_runs(Plain(), RunQuery(text="x"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The Tide, the tide!", ["the", "tide", "the", "tide"]),
        ("snake_case and x-ray", ["snake", "case", "and", "x", "ray"]),
        ("Café Straße ÉTÉ", ["cafe", "strasse", "ete"]),
        ("東京 GPT5天気予報", ["東京", "gpt5", "天気", "気予", "予報"]),
        ("字", ["字"]),
        ("x" * 100, ["x" * 64]),
        ("", []),
    ],
)
def test_the_words_of_a_text(text: str, words: list[str]):
    assert list(words_of(text)) == words


def _records(word: str) -> bytes:
    event = f'["x.StartEvent",{{"topic":"{word}"}}]'
    return f'{{"t":1.0,"r":[{{"kind":"started","id":1,"path":"","event":{event}}}]}}'.encode()


async def until(store: RunStore, run_id: str, *, seq: int) -> None:
    """Wait for a commit of a run."""
    while (await known(store, run_id)).seq < seq:  # noqa: ASYNC110 - of a store
        await asyncio.sleep(0.01)


async def _first(requests: Any) -> Any:
    yield await anext(requests)
