"""Chat stores: in memory, in a SQLite file, and of one's own."""

import asyncio
import copy
import gc
import json
import os
import sqlite3
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from batonflow.agents.memory import (
    ArchivingChatStore,
    BaseChatStore,
    ChatMemoryBuffer,
    Memory,
    MessageStatus,
    PostgresChatStore,
    SimpleChatStore,
    SQLiteChatStore,
)
from batonflow.agents.memory.table_store import DEFAULT_TABLE
from batonflow.llms import ChatMessage, ImageBlock, TextBlock, ToolCallBlock
from batonflow.tools import ToolSelection
from batonflow.workflow_core.errors import StoreError
from tests.agents.memory.list_store import ListStore
from tests.postgres import drop_schema, new_schema, server_address, skip_without_driver
from tests.promises.programs.running import ROOT

MAKERS: list[Callable[[Path], BaseChatStore]] = [
    lambda folder: SimpleChatStore(),
    lambda folder: SQLiteChatStore(folder / "chats.db"),
    lambda folder: PostgresChatStore(server_address(), f"messages_{new_schema()}"),
    lambda folder: ListStore(),
]


@pytest.fixture(params=MAKERS, ids=["simple", "sqlite", "postgres", "own"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BaseChatStore:
    return request.param(tmp_path)


@pytest.fixture(params=MAKERS[:3], ids=["simple", "sqlite", "postgres"])
def archiving(request: pytest.FixtureRequest, tmp_path: Path) -> ArchivingChatStore:
    return request.param(tmp_path)


def contents(messages: list[ChatMessage] | None) -> list[str | None]:
    return [message.content for message in messages or []]


def said(*texts: str) -> list[ChatMessage]:
    return [ChatMessage(text) for text in texts]


class TestMessagesInBetween:
    def test_a_store_in_memory_inserts_before_a_position_as_a_list_does(self) -> None:
        store = SimpleChatStore()
        store.add_messages("ann", said("0", "1", "2"))
        for text, position in (("first", 0), ("before the last", -1), ("beyond", 99), ("end", None)):
            store.add_message("ann", ChatMessage(text), position)
        assert contents(store.get_messages("ann")) == ["first", "0", "1", "before the last", "2", "beyond", "end"]
        store.add_message("ben", ChatMessage("only"), idx=3)
        assert contents(store.get_messages("ben")) == ["only"]

    async def test_so_does_its_async_form(self) -> None:
        store = SimpleChatStore()
        await store.async_add_message("ann", ChatMessage("1"))
        await store.async_add_message("ann", ChatMessage("0"), idx=0)
        assert contents(store.get_messages("ann")) == ["0", "1"]

    async def test_a_store_derived_from_it_that_adds_at_the_end_only_is_called_as_before(self) -> None:
        class Noting(SimpleChatStore):
            def add_message(self, key: str, message: ChatMessage) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
                super().add_message(key, ChatMessage(f"noted: {message.content}"))

        store = Noting()
        await store.async_add_message("ann", ChatMessage("1"))
        store.add_messages("ann", said("2"))
        assert contents(store.get_messages("ann")) == ["noted: 1", "noted: 2"]


class TestEveryStore:
    def test_conversations_are_kept_apart_and_in_order(self, store: BaseChatStore) -> None:
        assert (store.get_messages("ann"), store.get_keys()) == ([], [])
        store.add_message("ben", ChatMessage("hello"))
        store.add_messages("ann", said("1", "2"))
        store.add_message("ann", ChatMessage("3"))
        assert contents(store.get_messages("ann")) == ["1", "2", "3"]
        assert contents(store.get_messages("ben")) == ["hello"]
        assert store.get_keys() == ["ben", "ann"]

    def test_setting_replaces(self, store: BaseChatStore) -> None:
        store.add_messages("ann", said("1", "2"))
        store.set_messages("ann", said("3"))
        assert contents(store.get_messages("ann")) == ["3"]

    def test_deleting_gives_back_what_was_there(self, store: BaseChatStore) -> None:
        store.add_messages("ann", said("0", "1", "2", "3"))
        deleted = [store.delete_message("ann", 1), store.delete_last_message("ann")]
        assert [one and one.content for one in deleted] == ["1", "3"]
        assert store.delete_message("ann", 2) is store.delete_message("ann", -1) is None
        assert store.delete_message("ben", 0) is store.delete_last_message("ben") is None
        assert contents(store.delete_messages("ann")) == ["0", "2"]
        assert store.delete_messages("ann") is None
        assert store.get_messages("ann") == []

    async def test_the_async_forms_do_the_same(self, store: BaseChatStore) -> None:
        await store.aset_messages("ann", said("0", "1"))
        await store.async_add_message("ann", ChatMessage("2"))
        await store.aadd_messages("ann", said("3", "4"))
        assert contents(await store.aget_messages("ann")) == ["0", "1", "2", "3", "4"]
        assert await store.aget_keys() == ["ann"]
        last, first = await store.adelete_last_message("ann"), await store.adelete_message("ann", 0)
        assert contents([one for one in (last, first) if one]) == ["4", "0"]
        assert contents(await store.adelete_messages("ann")) == ["1", "2", "3"]

    async def test_calls_at_the_same_time_are_served_in_their_order(self, store: BaseChatStore) -> None:
        await asyncio.gather(*(store.async_add_message("ann", ChatMessage(str(number))) for number in range(30)))
        assert contents(store.get_messages("ann")) == [str(number) for number in range(30)]

    def test_what_is_given_out_is_not_what_is_kept(self, store: BaseChatStore) -> None:
        store.add_messages("ann", said("1"))
        store.get_messages("ann").clear()
        assert contents(store.get_messages("ann")) == ["1"]

    def test_a_buffer_lies_in_it_and_survives_json_with_it(self, store: BaseChatStore) -> None:
        memory = ChatMemoryBuffer.from_defaults(chat_history=said("1", "2"), chat_store=store, chat_store_key="ann")
        again = ChatMemoryBuffer.from_dict(json.loads(json.dumps(memory.to_dict())))
        assert again == memory
        assert contents(again.get()) == ["1", "2"]


class TestArchives:
    def test_the_oldest_go_and_come_first_among_all(self, archiving: ArchivingChatStore) -> None:
        archiving.add_messages("ann", said("0", "1", "2", "3"))
        offered: list[list[str | None]] = []

        def two(messages: list[ChatMessage]) -> int:
            offered.append(contents(messages))
            return 2

        assert contents(archiving.archive_messages("ann", two)) == ["0", "1"]
        assert contents(archiving.archive_messages("ann", lambda messages: 0)) == []
        archiving.add_messages("ann", said("4"))
        assert offered == [["0", "1", "2", "3"]]
        assert contents(archiving.get_messages("ann")) == ["2", "3", "4"]
        assert contents(archiving.get_messages("ann", MessageStatus.ARCHIVED)) == ["0", "1"]
        assert contents(archiving.get_messages("ann", None)) == ["0", "1", "2", "3", "4"]
        assert archiving.get_keys() == ["ann"]

    def test_positions_count_the_active_ones(self, archiving: ArchivingChatStore) -> None:
        archiving.add_messages("ann", said("0", "1", "2"))
        archiving.archive_messages("ann", lambda messages: 1)
        deleted = archiving.delete_message("ann", 0)
        assert deleted is not None
        assert deleted.content == "1"

    def test_deleting_by_status(self, archiving: ArchivingChatStore) -> None:
        archiving.add_messages("ann", said("0", "1", "2"))
        archiving.archive_messages("ann", lambda messages: 1)
        assert contents(archiving.delete_messages("ann", MessageStatus.ARCHIVED)) == ["0"]
        assert contents(archiving.delete_messages("ann")) == ["1", "2"]

    def test_setting_forgets_the_archive(self, archiving: ArchivingChatStore) -> None:
        archiving.add_messages("ann", said("0", "1"))
        archiving.archive_messages("ann", lambda messages: 1)
        archiving.set_messages("ann", said("2"))
        assert contents(archiving.get_messages("ann", None)) == ["2"]

    def test_a_choice_that_fails_archives_nothing(self, archiving: ArchivingChatStore) -> None:
        archiving.add_messages("ann", said("0", "1"))
        with pytest.raises(ZeroDivisionError):
            archiving.archive_messages("ann", lambda messages: 1 // 0)
        assert contents(archiving.get_messages("ann")) == ["0", "1"]


class TestJSONFiles:
    def test_a_simple_store_is_written_and_read(self, tmp_path: Path) -> None:
        store = SimpleChatStore()
        store.add_messages("ann", said("прилив", "2"))
        store.archive_messages("ann", lambda messages: 1)
        store.persist(str(tmp_path / "chats.json"))
        assert SimpleChatStore.from_persist_path(str(tmp_path / "chats.json")) == store
        assert SimpleChatStore.from_persist_path(str(tmp_path / "none.json")) == SimpleChatStore()


class TestSQLite:
    @pytest.mark.parametrize("address", ["{}", "sqlite:///{}", "sqlite+aiosqlite:///{}"])
    def test_paths_and_addresses(self, address: str, tmp_path: Path) -> None:
        assert SQLiteChatStore(address.format(tmp_path / "a.db")).path == tmp_path / "a.db"
        assert SQLiteChatStore(tmp_path / "a.db") == SQLiteChatStore(str(tmp_path / "a.db"))

    def test_a_relative_path_stays_where_it_was(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        store = SQLiteChatStore("sqlite:///a.db")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.add_message("ann", ChatMessage("hello"))
        assert (tmp_path / "a.db").exists()

    @pytest.mark.parametrize("address", ["", ":memory:", "sqlite://", "sqlite:///:memory:"])
    def test_a_file_is_needed(self, address: str) -> None:
        with pytest.raises(ValidationError, match="needs a file: give a path, or use SimpleChatStore"):
            SQLiteChatStore(address)

    def test_other_databases_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="mysql:// is the address of another database"):
            SQLiteChatStore("mysql://host/db")

    def test_the_refusal_names_what_there_is_and_no_password(self) -> None:
        with pytest.raises(ValidationError) as caught:
            SQLiteChatStore("postgresql+asyncpg://ann:secret@host/db")
        assert "a SQLiteChatStore keeps messages in a file, and postgresql+asyncpg:// is" in str(caught.value)
        own = "or a store of your own derived from ArchivingChatStore"
        assert f"sqlite:///path, a PostgresChatStore, {own}" in str(caught.value)
        assert "secret" not in str(caught.value)

    def test_a_schema_is_a_part_of_the_tables_name(self, tmp_path: Path) -> None:
        one = SQLiteChatStore(tmp_path / "a.db", db_schema="one")
        one.add_message("ann", ChatMessage("hello"))
        assert SQLiteChatStore(tmp_path / "a.db").get_messages("ann") == []
        assert SQLiteChatStore(tmp_path / "a.db", f"one_{DEFAULT_TABLE}").get_messages("ann") != []
        with pytest.raises(ValidationError, match="table_name"):
            SQLiteChatStore(tmp_path / "a.db", db_schema="one; DROP")

    def test_the_name_of_the_table_is_a_plain_one(self, tmp_path: Path) -> None:
        with pytest.raises(ValidationError, match="table_name"):
            SQLiteChatStore(tmp_path / "a.db", "messages; DROP TABLE messages")

    def test_tables_are_kept_apart(self, tmp_path: Path) -> None:
        one, two = (SQLiteChatStore(tmp_path / "a.db", name) for name in ("one", "two"))
        one.add_message("ann", ChatMessage("1"))
        assert (contents(one.get_messages("ann")), two.get_messages("ann")) == (["1"], [])

    def test_every_kind_of_message_comes_back(self, tmp_path: Path) -> None:
        store = SQLiteChatStore(tmp_path / "a.db")
        call = ToolCallBlock(tool_call_id="1", tool_name="tide", tool_kwargs={"at": [1, 2.5, None]})
        messages = [
            ChatMessage([TextBlock(text="潮"), ImageBlock(image=b"\x89PNG\r\n\x1a\n")]),
            ChatMessage([call], role="assistant"),
            ChatMessage("six", role="tool", additional_kwargs={"tool_call_id": "1"}),
        ]
        store.set_messages("ann", messages)
        assert store.get_messages("ann") == messages
        selection = ToolSelection(tool_id="2", tool_name="tide", tool_kwargs={})
        store.set_messages("ann", [ChatMessage(None, additional_kwargs={"tool_calls": [selection]})])
        assert store.get_messages("ann")[0].additional_kwargs == {"tool_calls": [selection.model_dump()]}

    def test_a_message_that_is_no_json_is_named_and_nothing_is_written(self, tmp_path: Path) -> None:
        store = SQLiteChatStore(tmp_path / "a.db")
        bad = ChatMessage("with a file", additional_kwargs={"file": object()})
        with pytest.raises(StoreError, match="The user message 'user: with a file' cannot be written as JSON"):
            store.add_messages("ann", [ChatMessage("fine"), bad])
        assert store.get_messages("ann") == []

    def test_a_folder_that_is_not_there_is_an_error_that_names_the_file(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match=r"none/a\.db cannot be read or written: unable to open"):
            SQLiteChatStore(tmp_path / "none" / "a.db").get_keys()

    def test_a_file_that_is_no_database_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "a.db").write_text("not a database, but rather a long text" * 100)
        with pytest.raises(StoreError, match="file is not a database"):
            SQLiteChatStore(tmp_path / "a.db").get_messages("ann")

    def test_a_file_in_wal_mode_stays_in_it(self, tmp_path: Path) -> None:
        connection = sqlite3.connect(tmp_path / "a.db")
        assert connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
        store = SQLiteChatStore(tmp_path / "a.db")
        store.add_message("ann", ChatMessage("1"))
        assert contents(store.get_messages("ann")) == ["1"]
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.close()

    @pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files in /proc")
    def test_nothing_stays_open(self, tmp_path: Path) -> None:
        store = SQLiteChatStore(tmp_path / "a.db")
        store.add_message("ann", ChatMessage("1"))
        copied = copy.deepcopy(store)
        assert contents(copied.get_messages("ann")) == ["1"]
        links = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        assert not [link for link in links if "a.db" in link]
        del store, copied
        gc.collect()  # a connection that was forgotten would warn here

    async def test_processes_share_a_file_and_lose_nothing(self, tmp_path: Path) -> None:
        program = """
import asyncio, sys
from batonflow.agents.memory import Memory
from batonflow.llms import ChatMessage

async def main(path, name):
    memory = Memory.from_defaults(
        session_id="all", chat_store=path, token_limit=100, chat_history_token_ratio=0.5, token_flush_size=10
    )
    for number in range(20):
        await memory.aput(ChatMessage(f"{name}.{number}".ljust(40, ".")))

asyncio.run(main(*sys.argv[1:]))
"""
        path = tmp_path / "chats.db"
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-W", "error", "-c", program, str(path), name,
                env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=asyncio.subprocess.PIPE,
            )
            for name in ("a", "b")
        ]  # fmt: skip
        for process in processes:
            _, errors = await process.communicate()
            assert (process.returncode, errors.decode()) == (0, "")
        store = SQLiteChatStore(path)
        everything = [(text or "").rstrip(".") for text in contents(store.get_messages("all", None))]
        assert len(everything) == 40
        for name in ("a", "b"):
            assert [one for one in everything if one.startswith(name)] == [f"{name}.{n}" for n in range(20)]
        assert len(store.get_messages("all")) == 5


# --- files ------------------------------------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.skipif(os.name != "posix", reason="modes of files are of POSIX")
def test_only_the_owner_can_read_what_is_remembered(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        SQLiteChatStore(tmp_path / "chats.db").add_message("ann", ChatMessage(content="a secret"))
        SimpleChatStore().persist(str(tmp_path / "chats.json"))
    finally:
        os.umask(before)
    modes = {one.name: mode(one) for one in tmp_path.iterdir()}
    assert modes.keys() >= {"chats.db", "chats.json"}
    assert set(modes.values()) == {0o600}


@pytest.mark.skipif(os.name != "posix", reason="modes of files are of POSIX")
def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    for name in ("chats.db", "chats.json"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o640)
    SQLiteChatStore(tmp_path / "chats.db").add_message("ann", ChatMessage(content="for the group"))
    SimpleChatStore().persist(str(tmp_path / "chats.json"))
    assert {mode(one) for one in tmp_path.iterdir()} == {0o640}


class TestDatabase:
    def test_an_address_is_a_store_in_a_database(self) -> None:
        table = f"messages_{new_schema()}"
        address = server_address()
        memory = Memory.from_defaults(session_id="ann", async_database_uri=address, table_name=table)
        memory.put(ChatMessage("hello"))
        assert contents(PostgresChatStore(address, table).get_messages("ann")) == ["hello"]
        assert isinstance(Memory.from_defaults(chat_store=address).chat_store, PostgresChatStore)

    def test_schemas_keep_their_messages_apart(self) -> None:
        one, two = (PostgresChatStore(server_address(), db_schema=new_schema()) for _ in range(2))
        one.add_message("ann", ChatMessage("hello"))
        assert two.get_keys() == []
        for store in (one, two):
            drop_schema(server_address(), store.db_schema)

    def test_a_password_is_not_shown(self) -> None:
        skip_without_driver()
        store = PostgresChatStore("postgresql://ann:secret@127.0.0.1:1/prod")
        assert "secret" not in repr(store)
        with pytest.raises(StoreError, match=r"postgresql://127\.0\.0\.1:1/prod cannot be reached") as raised:
            store.get_keys()
        assert "secret" not in str(raised.value)
        with pytest.raises(ValidationError) as refused:
            PostgresChatStore("mysql://ann:secret@host/db")
        assert "secret" not in str(refused.value)
