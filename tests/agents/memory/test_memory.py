"""Memory: the newest turns, what blocks know, and what goes to them."""

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from batonflow.agents.memory import (
    BaseMemoryBlock,
    InsertMethod,
    Memory,
    MessageStatus,
    SimpleChatStore,
    SQLiteChatStore,
    StaticMemoryBlock,
)
from batonflow.agents.memory.turns import as_shown, observation
from batonflow.llms import ChatMessage, ContentBlock, ImageBlock, TextBlock
from batonflow.workflow_core import JsonSerializer
from tests.agents.memory.conversations import called, conversations, of_size, result, shows_whole_calls
from tests.agents.memory.list_store import ListStore


class Notes(BaseMemoryBlock[str]):
    """Remembers the beginnings of the messages that fell out."""

    name: str = "notes"
    seen: list[str] = Field(default_factory=list)
    sessions: list[str] = Field(default_factory=list)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        return ", ".join(self.seen)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        self.seen += [(message.content or "").rstrip(".") for message in messages]
        self.sessions += [message.additional_kwargs["session_id"] for message in messages]


class Shown(BaseMemoryBlock[list[ContentBlock]]):
    """Shows what it is told to, and can be shortened."""

    content: Any
    asked: list[Any] = Field(default_factory=list)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> Any:
        self.asked.append(([message.content for message in messages or ()], block_kwargs))
        return self.content

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Learns nothing."""


class Shortened(Shown):
    async def atruncate(self, content: Any, tokens_to_truncate: int) -> Any:
        return content[: -4 * tokens_to_truncate]


def contents(messages: list[ChatMessage]) -> list[str]:
    return [(message.content or "").rstrip(".") for message in messages]


def said(*marks: str, tokens: int = 10) -> list[ChatMessage]:
    return [of_size("user" if mark.startswith("q") else "assistant", tokens, mark) for mark in marks]


def small(**options: Any) -> Memory:
    """A memory with room for 50 tokens of conversation among 100."""
    return Memory.from_defaults(
        **{"token_limit": 100, "chat_history_token_ratio": 0.5, "token_flush_size": 10, **options}
    )


class TestTheConversation:
    async def test_everything_is_shown_while_it_fits(self) -> None:
        memory = small()
        await memory.aput_messages(said("q1", "a1", "q2", "a2", "q3"))
        assert contents(await memory.aget()) == ["q1", "a1", "q2", "a2", "q3"]

    async def test_the_oldest_turns_are_archived_and_kept(self) -> None:
        memory = small()
        for message in said("q1", "a1", "q2", "a2", "q3", "a3"):
            await memory.aput(message)
        assert contents(await memory.aget()) == ["q2", "a2", "q3", "a3"]
        assert contents(await memory.aget_all()) == ["q1", "a1", "q2", "a2", "q3", "a3"]
        assert contents(await memory.aget_all(MessageStatus.ARCHIVED)) == ["q1", "a1"]

    async def test_the_newest_turn_is_shown_whole_even_if_it_is_too_long(self) -> None:
        memory = small()
        turn = [of_size("user", 10), called("1"), result("1", 100), of_size("assistant", 10)]
        await memory.aput_messages([*said("q1", "a1"), *turn])
        assert await memory.aget() == turn

    async def test_a_result_that_comes_when_its_call_is_archived_is_not_shown(self) -> None:
        memory = small()
        await memory.aput_messages([of_size("user", 10), called("1"), *said("q2", "a2", "q3", "a3", "q4")])
        await memory.aput(result("1"))
        assert contents(await memory.aget())[-1] == "q4"
        assert (await memory.aget_all())[-1].role == "tool"

    async def test_results_without_a_call_are_shown_as_they_were_put(self) -> None:
        memory = small()
        await memory.aput_messages([*said("q1"), result("elsewhere")])
        assert len(await memory.aget()) == 2

    async def test_setting_and_resetting(self) -> None:
        memory = small()
        await memory.aset(said("q1", "a1", "q2", "a2", "q3", "a3"))
        await memory.areset(MessageStatus.ARCHIVED)
        assert contents(await memory.aget_all()) == ["q2", "a2", "q3", "a3"]
        await memory.aset(said("q4"))
        assert contents(await memory.aget_all()) == ["q4"]
        await memory.areset()
        assert await memory.aget_all() == await memory.aget() == []

    def test_the_synchronous_forms_do_the_same(self) -> None:
        memory = small(chat_history=said("q0"))
        memory.put(of_size("assistant", 10, "a0"))
        memory.put_messages(said("q1", "a1", "q2", "a2"))
        assert contents(memory.get()) == ["q1", "a1", "q2", "a2"]
        assert len(memory.get_all()) == 6
        assert len(memory.get_all(status=MessageStatus.ARCHIVED)) == 2
        memory.set(said("q3"))
        assert contents(memory.get()) == ["q3"]
        memory.reset()
        assert memory.get_all() == []

    async def test_synchronous_calls_work_under_a_running_loop(self) -> None:
        memory = small()
        await memory.aput_messages(said("q1"))
        memory.put(said("a1")[0])
        assert contents(memory.get()) == ["q1", "a1"]

    @given(conversations(), st.integers(1, 150), st.booleans())
    async def test_whole_calls_whatever_the_limit(
        self, conversation: list[ChatMessage], limit: int, one_by_one: bool
    ) -> None:
        memory = Memory.from_defaults(token_limit=limit, chat_history_token_ratio=1.0)
        for piece in [[message] for message in conversation] if one_by_one else [conversation]:
            await memory.aput_messages(piece)
        shown = await memory.aget()
        assert bool(shown) == bool(conversation)
        assert await memory.aget_all() == conversation
        ids = [message.additional_kwargs.get("tool_call_id") for message in shown]
        if one_by_one:  # a result that came after its call was archived is left out, and so it is no suffix
            assert [message for message in as_shown(conversation) if message in shown][-len(shown) :] == shown
        else:
            assert shown == as_shown(conversation)[len(conversation) - len(shown) :]
            assert shows_whole_calls(shown, conversation)
        assert shows_whole_calls(shown, shown), ids


class TestThePrefix:
    async def test_what_is_shown_begins_alike_for_a_flush_at_least(self) -> None:
        memory = Memory.from_defaults(token_limit=1000, chat_history_token_ratio=1.0, token_flush_size=200)
        beginnings: list[str | None] = []
        for number in range(200):
            await memory.aput(of_size("user", 10, str(number)))
            beginnings.append((await memory.aget())[0].content)
        assert (
            sum(one != other for one, other in pairwise(beginnings)) == 5
        )  # 1,000 of 2,000 tokens left, 200 at a time

    async def test_blocks_that_are_cut_are_not_cut_a_little_more_with_every_message(self) -> None:
        memory = Memory.from_defaults(
            token_limit=1000,
            chat_history_token_ratio=0.7,
            token_flush_size=100,
            memory_blocks=[Shortened(name="facts", content="f" * 4 * 600, priority=1)],
        )
        sections: list[str | None] = []
        for number in range(60):
            await memory.aput(of_size("user", 10, str(number)))
            sections.append((await memory.aget())[0].content)
        assert sum(one != other for one, other in pairwise(sections)) <= 4

    async def test_blocks_see_a_question_once_however_the_agent_asks(self) -> None:
        block = Shown(name="facts", content="known")
        memory = small(memory_blocks=[block], session_id="ann")
        await memory.aput(ChatMessage("When?"))
        first = await memory.aget()
        assert await memory.aget("When?") == first
        assert await memory.aget(ChatMessage("When?"), depth=2) == first
        assert block.asked == [
            (["When?"], {"session_id": "ann"}),
            (["When?"], {"session_id": "ann"}),
            (["When?"], {"session_id": "ann", "depth": 2}),
        ]
        await memory.aget("And where?")
        assert block.asked[-1][0] == ["When?", "And where?"]


class TestBlocks:
    async def test_they_are_given_what_falls_out(self) -> None:
        notes, deaf = Notes(), Notes(name="deaf", accept_short_term_memory=False)
        memory = small(memory_blocks=[notes, deaf], session_id="ann")
        for message in said("q1", "a1", "q2", "a2", "q3", "a3"):
            await memory.aput(message)
        assert (notes.seen, notes.sessions) == (["q1", "a1"], ["ann", "ann"])
        assert deaf.seen == []
        assert all(not message.additional_kwargs for message in await memory.aget_all())

    async def test_sections_in_a_system_message_of_their_own(self) -> None:
        memory = small(
            memory_blocks=[
                StaticMemoryBlock(name="user", static_content="Ann"),
                Notes(seen=["likes tea"]),
                Notes(name="empty"),
            ]
        )
        await memory.aput(ChatMessage("hello"))
        system, user = await memory.aget()
        assert (system.role, user.content) == ("system", "hello")
        assert system.content == "<memory>\n<user>\nAnn\n</user>\n<notes>\nlikes tea\n</notes>\n</memory>"

    async def test_sections_before_the_system_message_that_is_there(self) -> None:
        memory = small(memory_blocks=[Notes(seen=["tea"])], memory_blocks_template="Known: {memory_blocks}!")
        await memory.aput_messages([ChatMessage("Be kind.", role="system"), ChatMessage("hello")])
        system, _ = await memory.aget()
        assert system.content == "Known: <notes>\ntea\n</notes>!\nBe kind."
        assert (await memory.aget_all())[0].content == "Be kind."

    async def test_sections_before_the_newest_user_message(self) -> None:
        memory = small(memory_blocks=[Notes(seen=["tea"])], insert_method=InsertMethod.USER)
        assert [message.role for message in await memory.aget()] == ["user"]
        await memory.aput_messages([ChatMessage("hello"), ChatMessage("there"), ChatMessage("hi", role="assistant")])
        assert contents(await memory.aget()) == [
            "hello", "<memory>\n<notes>\ntea\n</notes>\n</memory>\nthere", "hi",
        ]  # fmt: skip
        assert contents(await memory.aget_all()) == ["hello", "there", "hi"]

    async def test_an_observation_is_not_the_newest_user_message(self) -> None:
        memory = small(memory_blocks=[Notes(seen=["tea"])], insert_method=InsertMethod.USER)
        await memory.aput_messages([ChatMessage("hello"), ChatMessage("1", role="assistant"), observation("one")])
        assert contents(await memory.aget()) == ["<memory>\n<notes>\ntea\n</notes>\n</memory>\nhello", "1", "one"]

    async def test_pictures_stand_in_their_section(self) -> None:
        picture = ImageBlock(url="https://example.org/a.png")
        memory = small(memory_blocks=[Shown(name="p", content=[TextBlock(text="See:"), picture])], token_limit=1000)
        (shown,) = await memory.aget()
        assert shown.blocks == [
            TextBlock(text="<memory>\n<p>\nSee:\n"), picture, TextBlock(text="\n</p>\n</memory>"),
        ]  # fmt: skip

    async def test_messages_come_first(self) -> None:
        memory = small(memory_blocks=[Shown(name="old", content=said("q0", "a0"))])
        await memory.aput_messages(said("q1"))
        assert contents(await memory.aget()) == ["q0", "a0", "q1"]

    async def test_too_much_is_cut_by_priority(self) -> None:
        def block(cls: type[Shown], name: str, priority: int) -> Shown:
            return cls(name=name, content=name * 4 * 60, priority=priority)

        memory = small(memory_blocks=[block(Shown, "k", 0), block(Shown, "l", 1), block(Shortened, "h", 2)])
        (shown,) = await memory.aget()
        text = shown.content or ""
        assert ("k" * 4 * 60 in text, "<l>" in text, "h" * 4 * 30 in text) == (True, False, True)
        assert text.count("h") < 4 * 60

    async def test_what_is_still_too_much_is_left_out_unless_priority_is_0(self) -> None:
        class Stubborn(Shown):
            async def atruncate(self, content: Any, tokens_to_truncate: int) -> Any:
                return content

        memory = small(
            memory_blocks=[Shown(name="k", content="k" * 4 * 200), Stubborn(name="s", content="s" * 4 * 60, priority=3)]
        )
        (shown,) = await memory.aget()
        assert "<k>" in (shown.content or "")
        assert "<s>" not in (shown.content or "")

    async def test_other_content_is_an_error_that_names_the_block(self) -> None:
        memory = small(memory_blocks=[Shown(name="odd", content={"a": 1})])
        with pytest.raises(ValueError, match="Memory block odd gave a dict: give text, a list of blocks"):
            await memory.aget()

    async def test_a_block_that_fails_does_not_keep_messages_from_the_others(self) -> None:
        class Broken(Notes):
            async def _aput(self, messages: list[ChatMessage]) -> None:
                raise OSError("disk full")

        class Slow(Notes):
            async def _aput(self, messages: list[ChatMessage]) -> None:
                await asyncio.sleep(0.01)
                await super()._aput(messages)

        notes = Slow()
        memory = small(memory_blocks=[Broken(name="broken"), notes])
        with pytest.raises(OSError, match="disk full"):
            await memory.aput_messages(said("q1", "a1", "q2", "a2", "q3", "a3"))
        assert notes.seen == ["q1", "a1"]
        assert len(await memory.aget_all()) == 6
        await memory.aput_messages(said("q4"))  # and goes on

    def test_two_blocks_of_one_name_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="must have unique names: 'notes' is there twice"):
            Memory(memory_blocks=[Notes(), Notes()])

    def test_what_is_no_block_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="memory_blocks takes memory blocks, got str"):
            Memory(memory_blocks=["Ann"])

    def test_a_template_needs_its_placeholder(self) -> None:
        with pytest.raises(ValidationError, match=r"must contain \{memory_blocks\}"):
            Memory(memory_blocks_template="nothing")


class TestManyTasks:
    @pytest.mark.parametrize("in_file", [False, True])
    async def test_nothing_is_lost_and_everyone_s_order_is_kept(self, in_file: bool, tmp_path: Path) -> None:
        class EverFaster(Notes):
            wait: float = 0.01

            async def _aput(self, messages: list[ChatMessage]) -> None:
                self.wait *= 0.7
                await asyncio.sleep(self.wait)
                await super()._aput(messages)

        notes = EverFaster()
        memory = small(memory_blocks=[notes], chat_store=tmp_path / "chats.db" if in_file else None)

        async def talk(name: int) -> None:
            for number in range(8):
                await memory.aput(of_size("user", 10, f"{name}.{number}"))

        await asyncio.gather(*(talk(name) for name in range(5)))
        everything = contents(await memory.aget_all())
        assert len(everything) == 40
        for name in range(5):
            assert [one for one in everything if one.startswith(f"{name}.")] == [f"{name}.{n}" for n in range(8)]
        assert notes.seen + contents(await memory.aget_all(MessageStatus.ACTIVE)) == everything

    async def test_calls_are_served_in_their_order(self, tmp_path: Path) -> None:
        memory = Memory.from_defaults(chat_store=tmp_path / "chats.db")
        await asyncio.gather(*(memory.aput(ChatMessage(str(number))) for number in range(20)))
        assert contents(await memory.aget()) == [str(number) for number in range(20)]

    async def test_synchronous_and_asynchronous_calls_at_the_same_time(self, tmp_path: Path) -> None:
        notes = Notes()
        memory = small(memory_blocks=[notes], chat_store=tmp_path / "chats.db")
        threads = [asyncio.to_thread(memory.put, of_size("user", 10, f"t{number}")) for number in range(8)]
        await asyncio.gather(*threads, *(memory.aput(of_size("user", 10, f"l{number}")) for number in range(8)))
        everything = contents(await memory.aget_all())
        assert sorted(everything) == sorted(f"{kind}{number}" for kind in "tl" for number in range(8))
        shown = contents(await memory.aget_all(MessageStatus.ACTIVE))
        assert sorted(notes.seen + shown) == sorted(everything)


class TestSessions:
    async def test_two_memories_of_one_session_and_file_see_the_same(self, tmp_path: Path) -> None:
        path = tmp_path / "chats.db"
        one, two, other = (Memory.from_defaults(session_id=name, chat_store=path) for name in ("ann", "ann", "ben"))
        await one.aput(ChatMessage("hello"))
        await two.aput(ChatMessage("hi", role="assistant"))
        assert contents(await one.aget()) == contents(await two.aget()) == ["hello", "hi"]
        assert await other.aget() == []

    def test_sessions_have_ids_of_their_own_unless_given(self) -> None:
        assert Memory.from_defaults().session_id != Memory.from_defaults().session_id

    async def test_one_with_less_room_makes_room(self, tmp_path: Path) -> None:
        path = tmp_path / "chats.db"
        large = Memory.from_defaults(session_id="ann", chat_store=path)
        await large.aput_messages(said("q1", "a1", "q2", "a2", "q3", "a3"))
        assert contents(await small(session_id="ann", chat_store=path).aget()) == ["q2", "a2", "q3", "a3"]


class TestOptions:
    def test_defaults(self) -> None:
        memory = Memory()
        assert (memory.token_limit, memory.token_flush_size, memory.chat_history_token_ratio) == (30_000, 3000, 0.7)
        assert Memory(token_limit=500).token_flush_size == 50
        assert Memory(token_limit=500, token_flush_size=600).token_flush_size == 50
        assert Memory.from_defaults(token_limit=500).token_flush_size == 50

    def test_a_limit_below_1_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="greater than or equal to 1"):
            Memory(token_limit=0)

    async def test_a_tokenizer_and_estimates_of_your_own_count(self) -> None:
        memory = small(tokenizer_fn=str.split, image_token_size_estimate=40, token_limit=10)
        await memory.aput_messages([ChatMessage("one two"), ChatMessage("three four five")])
        assert contents(await memory.aget()) == ["one two", "three four five"]
        await memory.aput(ChatMessage([ImageBlock(url="https://example.org/a.png")]))
        assert len(await memory.aget()) == 1

    def test_the_address_of_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "chats.db"
        memory = Memory.from_defaults(async_database_uri=f"sqlite+aiosqlite:///{path}", table_name="old")
        assert memory.chat_store == SQLiteChatStore(path, "old")
        assert Memory.from_defaults(async_database_uri="sqlite+aiosqlite:///:memory:").chat_store == SimpleChatStore()
        assert Memory.from_defaults(chat_store="memory:").chat_store == SimpleChatStore()
        with pytest.raises(ValidationError, match="address of another database: give a path or sqlite:///path"):
            Memory.from_defaults(async_database_uri="mysql+aiomysql://host/db")

    def test_the_schema_of_a_file(self, tmp_path: Path) -> None:
        address = f"sqlite+aiosqlite:///{tmp_path / 'chats.db'}"
        memory = Memory.from_defaults("ann", async_database_uri=address, table_name="old", db_schema="port")
        assert memory.chat_store == SQLiteChatStore(tmp_path / "chats.db", "port_old")
        with pytest.raises(ValueError, match="db_schema='port' is for a file"):
            Memory.from_defaults(chat_store=SimpleChatStore(), db_schema="port")

    def test_the_table_of_a_file(self, tmp_path: Path) -> None:
        for table in ("one", "two"):
            memory = Memory.from_defaults("ann", chat_store=tmp_path / "chats.db", table_name=table)
            assert memory.get_all() == []
            memory.put(ChatMessage(table))
        assert Memory.from_defaults(table_name="one").get_all() == []
        with pytest.raises(ValueError, match="table_name='one' is for a file"):
            Memory.from_defaults(chat_store=SimpleChatStore(), table_name="one")

    def test_a_store_that_cannot_archive_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"ListStore cannot: .* derive your store from ArchivingChatStore"):
            Memory.from_defaults(chat_store=ListStore())


class TestSnapshots:
    async def test_messages_blocks_and_options_survive_every_form_of_json(self) -> None:
        notes = Notes(priority=2)
        memory = small(memory_blocks=[StaticMemoryBlock(static_content="Ann"), notes], insert_method=InsertMethod.USER)
        await memory.aput_messages(said("q1", "a1", "q2", "a2", "q3", "a3"))
        serializer = JsonSerializer()
        for again in (
            Memory.from_string(memory.to_string()),
            Memory.from_dict(json.loads(json.dumps(memory.to_dict()))),
            serializer.deserialize(serializer.serialize(memory)),
        ):
            assert again == memory
            assert again.memory_blocks[1].seen == ["q1", "a1"]
            assert await again.aget() == await memory.aget()
            assert await again.aget_all(MessageStatus.ARCHIVED) == await memory.aget_all(MessageStatus.ARCHIVED)

    async def test_a_shared_store_is_written_without_other_sessions(self) -> None:
        store = SimpleChatStore()
        ann, ben = (Memory.from_defaults(session_id=name, chat_store=store) for name in ("ann", "ben"))
        await ann.aput(ChatMessage("a secret"))
        assert "a secret" in ann.to_string()
        assert "a secret" not in ben.to_string()

    def test_of_classes_of_one_name_the_newest_is_meant(self) -> None:
        def make(text: str) -> type[Notes]:
            class Local(Notes):
                version: str = text

            return Local

        _old, new = make("old"), make("new")
        again = Memory.from_string(Memory(memory_blocks=[new()]).to_string())
        assert type(again.memory_blocks[0]) is new

    def test_data_that_name_an_unknown_block_are_refused(self) -> None:
        data = {**Memory().to_dict(), "memory_blocks": [{"class_name": "os.system"}]}
        with pytest.raises(ValidationError, match=r"os\.system, which is not a loaded BaseMemoryBlock"):
            Memory.from_dict(data)
