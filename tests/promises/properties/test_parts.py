"""Records refer to parts that are written once, and nothing of what they say is lost or changed by it."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pydantic import BaseModel, RootModel

from batonflow.agents import AgentInput
from batonflow.agents.memory import ChatMemoryBuffer
from batonflow.durable.codec import Codec
from batonflow.durable.parts.objects import PartObjects
from batonflow.durable.parts.references import PartReader
from batonflow.durable.parts.writer import LONG_TEXT, PartWriter
from batonflow.instrumentation.redaction import redacted
from batonflow.llms import ChatMessage, MessageRole, Messages, TextBlock
from batonflow.llms.blocks import ToolCallBlock
from batonflow.values.serializers import JsonSerializer, as_json, read_json
from batonflow.workflow_core import Event
from tests.promises.properties.plain_data import MARKS, like_marks

long_texts = st.integers(LONG_TEXT - 2, LONG_TEXT + 2).map(lambda size: "tide " * (size // 5) + "~" * (size % 5))
names = st.text(max_size=3) | st.sampled_from(["$", "data", "items", "of", "redacted", *MARKS])
data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | long_texts,
    lambda inner: st.one_of(
        st.lists(inner), st.dictionaries(names, inner), like_marks(inner), inner.map(lambda one: {"$": one})
    ),
    max_leaves=12,
)  # fmt: skip


def stored(lean: Any) -> Any:
    return read_json(as_json(lean))


@given(data)
def test_data_are_the_same_when_their_references_are_resolved(value: Any) -> None:
    writer = PartWriter()
    lean = stored(writer.lean(value))
    assert PartReader(writer.take_new()).expanded(lean) == value


@given(data)
def test_values_are_the_same_when_they_are_read_by_the_serializer(value: Any) -> None:
    writer = PartWriter()
    lean = stored(Codec(JsonSerializer(), writer).value(value))
    objects = PartObjects(PartReader(writer.take_new()))
    assert Codec(JsonSerializer(), stored=objects).read(lean) == value


def test_data_of_a_record_do_not_change_with_the_value() -> None:
    value: dict[str, Any] = {"short": 1, "inside": {"short": 1}}
    lean = PartWriter().lean([value, value["inside"]])
    value["short"] = value["inside"]["short"] = 2
    assert lean == [{"short": 1, "inside": {"short": 1}}, {"short": 1}]


class Note(BaseModel):
    free: Any = None
    by_name: dict[str, Any] = {}
    messages: Messages = []
    inner: "Note | NoteRoot | None" = None


class NoteRoot(RootModel[Any]):
    """Any data as a model."""


class NoteEvent(Event):
    free: Any = None
    messages: Messages
    note: Note


odd_data = data | st.dates() | st.tuples(data, st.dates()) | st.dictionaries(names, st.dates() | data, max_size=3)
odd_messages = st.lists(
    st.builds(
        ChatMessage,
        st.text(max_size=3) | long_texts,
        additional_kwargs=st.dictionaries(names, odd_data, max_size=2).filter(lambda held: "tool_calls" not in held),
    ),
    max_size=12,
)
notes = st.deferred(lambda: st.builds(
    Note, free=odd_data, by_name=st.dictionaries(names, odd_data, max_size=2), messages=odd_messages,
    inner=st.none() | notes | st.builds(NoteRoot, odd_data),
))  # fmt: skip
note_events = st.builds(
    lambda more, **fields: NoteEvent(**fields, **more),
    st.dictionaries(st.sampled_from(["$", "data", "other"]), odd_data, max_size=2),
    free=odd_data | notes, messages=odd_messages, note=notes,
)  # fmt: skip


@given(notes | note_events | st.lists(notes, max_size=2))
def test_models_with_free_fields_and_messages_are_the_same_when_they_are_read(value: Any) -> None:
    writer = PartWriter()
    codec = Codec(JsonSerializer(), writer)
    lean = stored(codec.event(value) if isinstance(value, Event) else codec.value(value))
    reader = PartReader(writer.take_new())
    assert Codec(JsonSerializer(), stored=PartObjects(reader)).read(lean) == value
    assert Codec(JsonSerializer()).read(reader.expanded(lean)) == value


@given(st.lists(data, min_size=1, max_size=4))
def test_a_value_that_comes_again_is_not_written_again(values: list[Any]) -> None:
    writer = PartWriter()
    first = [writer.lean(value) for value in values]
    count = writer.count
    assert [writer.lean(value) for value in values] == first
    assert writer.count == count


texts = st.text(max_size=5) | long_texts | st.just("token sk-abcdefghijklmnop1234") | st.just("yes")
messages = st.builds(
    lambda text, role, more: ChatMessage(text, role=role, **({"additional_kwargs": more} if more else {})),
    texts,
    st.sampled_from(["user", "assistant"]),
    st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)
calls = st.builds(
    lambda name, arguments: ChatMessage(
        [ToolCallBlock(tool_call_id="c", tool_name=name, tool_kwargs=arguments)], role="assistant"
    ),
    st.sampled_from(["look", "write"]),
    st.dictionaries(names, st.text(max_size=3) | like_marks(st.none()), max_size=2),
)


def set_text(message: ChatMessage) -> None:
    for block in message.blocks[:1]:
        if isinstance(block, TextBlock):
            block.text = "changed"


EDITS: list[Callable[[ChatMessage], Any]] = [
    lambda one: setattr(one, "role", MessageRole.SYSTEM),
    lambda one: setattr(one, "blocks", [TextBlock(text="set")]),
    lambda one: one.blocks.append(TextBlock(text="more")),
    lambda one: one.blocks.extend([TextBlock(text="a"), TextBlock(text="b")]),
    lambda one: one.blocks.reverse(),
    lambda one: one.blocks.clear(),
    set_text,
    lambda one: one.additional_kwargs.update(name="Ann"),
    lambda one: one.additional_kwargs.pop("name", None),
    lambda one: one.additional_kwargs.setdefault("n", 1),
]  # fmt: skip


class Conversation(RuleBasedStateMachine):
    """A memory changes in any way, and each record of it, and of lists made of it, says what is in it."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = ChatMemoryBuffer.from_defaults([], token_limit=10**9)
        self.bodies: list[bytes] = []
        self.writer = PartWriter()
        self.whole = Codec(JsonSerializer())

    @property
    def held(self) -> list[ChatMessage]:
        return self.memory.chat_store.store[self.memory.chat_store_key]  # type: ignore[attr-defined]

    @rule(message=messages | calls)
    def add(self, message: ChatMessage) -> None:
        self.held.append(message)

    @rule(new=st.lists(messages, min_size=8, max_size=12))
    def add_many(self, new: list[ChatMessage]) -> None:
        self.held.extend(new)

    @rule(place=st.integers(0, 20), edit=st.sampled_from(EDITS))
    def edit(self, place: int, edit: Callable[[ChatMessage], Any]) -> None:
        if self.held:
            edit(self.held[place % len(self.held)])

    @rule()
    def say_the_last_again(self) -> None:
        if self.held:
            self.held.append(self.held[-1].model_copy())

    @rule()
    def take_the_last_back(self) -> None:
        if self.held:
            self.held.pop()

    @rule(summary=messages)
    def replace_the_older_half(self, summary: ChatMessage) -> None:
        del self.held[: len(self.held) // 2]
        self.held.insert(0, summary)

    @rule()
    def go_on_in_another_process(self) -> None:
        """What was stored is known there, so nothing is written again."""
        Codec(JsonSerializer(), self.writer).value(self.memory)
        self.bodies += self.writer.take_new()
        self.writer = PartWriter(PartReader(self.bodies))
        lean = Codec(JsonSerializer(), self.writer).value(self.memory)
        assert self.writer.take_new() == []
        objects = PartObjects(PartReader(self.bodies))
        self.memory = Codec(JsonSerializer(), stored=objects).read(stored(lean))
        self.writer.adopt(objects.made)
        Codec(JsonSerializer(), self.writer).value(self.memory)
        assert self.writer.take_new() == []

    @rule(more=st.lists(messages, max_size=2), place=st.integers(0, 3))
    def record_an_event(self, more: list[ChatMessage], place: int) -> None:
        event = AgentInput(input=[*self.held[place:], *more], current_agent_name="a")
        codec = Codec(JsonSerializer(), self.writer)
        self.check(codec.event(event), self.whole.event(event))
        name, values, *marked = codec.whole_event(event)
        shown = codec.lean([name, redacted(values), *marked])
        name, values, *marked = self.whole.event(event)
        self.check(shown, [name, redacted(values), *marked])

    @invariant()
    def a_record_says_what_is_in_the_memory(self) -> None:
        codec = Codec(JsonSerializer(), self.writer)
        before = codec.digest(self.memory)
        self.check(codec.value(self.memory), self.whole.value(self.memory))
        self.check(codec.value(list(self.held)), self.whole.value(list(self.held)))
        assert codec.digest(self.memory) == before

    def check(self, lean: Any, whole: Any) -> None:
        self.bodies += self.writer.take_new()
        assert self.writer.count == len(self.bodies)
        assert PartReader(self.bodies).expanded(stored(lean)) == stored(whole)


TestConversation = Conversation.TestCase
