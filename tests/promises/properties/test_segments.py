"""Whatever depends on whatever: nothing is committed before what it built upon, and in the end all is committed."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from batonflow.durable.attempt_record import AttemptRecord
from batonflow.durable.recorder import Recorder, RecordSink
from batonflow.workflow_core import Event, JsonSerializer, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.engine.state import RunState, WorkItem


class Groups:
    """A journal that remembers in which group each segment came; segments are named by their delivery."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self.order: list[list[int]] = []

    def commit(self, group: Sequence[AttemptRecord]) -> None:
        numbers = [segment.item for segment in group if segment.kind == "segment"]
        for number in numbers:
            assert number not in self.of, "a segment was committed twice"
            self.of[number] = len(self.order)
        self.order.append(numbers)


class Flow(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent: ...


class World:
    """Segments that open, read and write keys, cause one another and close, with the edges they thereby get."""

    def __init__(self) -> None:
        self.journal = Groups()
        journal: RecordSink = self.journal
        self.recorder = Recorder(journal, JsonSerializer())
        self.state = RunState("run", Flow().step_table)
        self.open: dict[int, WorkItem] = {}
        self.closed: list[int] = []
        self.after: dict[int, set[int]] = {}
        self.writers: dict[str, int] = {}

    def begin(self, cause: int | None) -> None:
        number = len(self.after)
        step_state = self.state.step(self.state.table.steps["work"])
        item = WorkItem(number, step_state, StartEvent(), None, None)
        if cause is not None:
            item.causes = self.open[cause].as_cause()
        self.after[number] = {cause} - {None}
        self.recorder.open(item, Event())
        self.open[number] = item

    def read(self, number: int, key: str | None) -> None:
        self.recorder.read(self.open[number], key)
        keys = [key] if key is not None else list(self.writers)
        self.after[number] |= {self.writers[key] for key in keys if key in self.writers} - {number}

    def write(self, number: int, key: str) -> None:
        self.recorder.wrote(self.open[number], f"{key}.part", 0)
        self.after[number] |= {self.writers[key]} - {number} if key in self.writers else set()
        self.writers[key] = number

    def close(self, number: int) -> None:
        item = self.open.pop(number)
        self.recorder.returned(item, None)
        self.recorder.close(item)
        self.closed.append(number)

    def needed_by(self, number: int) -> set[int]:
        """The segment and all that it directly or indirectly builds upon."""
        found: set[int] = set()
        stack = [number]
        while stack:
            number = stack.pop()
            if number not in found:
                found.add(number)
                stack.extend(self.after[number])
        return found

    def check(self) -> None:
        committed = self.journal.of
        for number in self.after:
            needed = self.needed_by(number)
            ready = needed <= set(self.closed)
            assert (number in committed) == ready, f"segment {number} is {'held back' if ready else 'committed early'}"
            if ready:
                assert all(committed[other] <= committed[number] for other in needed)
        for together in self.journal.order:
            needed = {number: self.needed_by(number) for number in together}
            for place, number in enumerate(together):
                for later in together[place + 1 :]:
                    mutual = later in needed[number] and number in needed[later]
                    in_order = number < later if mutual else later not in needed[number]
                    assert in_order, "records of a group are not in order"


@given(st.data())
def test_a_segment_is_committed_as_soon_as_all_it_built_upon_has_ended_and_not_before(data):
    world = World()
    for _ in range(data.draw(st.integers(1, 30))):
        opened = list(world.open)
        action = data.draw(st.sampled_from(["begin", *(["read", "read all", "write", "close"] if opened else [])]))
        number = data.draw(st.sampled_from(opened)) if opened else 0
        key = data.draw(st.sampled_from("xyz"))
        if action == "begin":
            world.begin(data.draw(st.sampled_from([None, *opened])))
        elif action == "read":
            world.read(number, key)
        elif action == "read all":
            world.read(number, None)
        elif action == "write":
            world.write(number, key)
        else:
            world.close(number)
        world.check()
    for number in data.draw(st.permutations(list(world.open))):
        world.close(number)
        world.check()
    assert set(world.journal.of) == set(world.after)
