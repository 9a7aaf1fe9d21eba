"""The search index in the file of a SQLiteStore.

Its tables are made by the first search, and can be dropped together: they are derived from the records. So they do not
change the version of the file; an index of another form is built anew.
"""

import json
import sqlite3
import zlib
from collections.abc import Sequence
from typing import Any

from batonflow.durable.search_protocol import IndexEntry, RunQuery
from batonflow.durable.store_protocol import RunInfo
from batonflow.durable.stores.sqlite_listing import listed, values_of
from batonflow.durable.stores.sqlite_parts import info_of
from batonflow.durable.stores.sqlite_rows import DatabaseSession, RunRow, find_run
from batonflow.durable.words import words_of
from batonflow.workflow_core.errors import StoreError

__all__ = ["count_outdated", "forget_entry", "index", "outdated", "search"]

_FORM = 2
"""The form of entries; one with another number is built anew."""

# Runs have growing numbers: those up to ``done`` have entries. An entry that is not final is looked at again.
_TABLES = (
    "CREATE TABLE IF NOT EXISTS index_state (one INTEGER PRIMARY KEY, form INTEGER NOT NULL, done INTEGER NOT NULL)",
    """
    CREATE TABLE IF NOT EXISTS index_entries (
        run INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        is_over INTEGER NOT NULL,
        models TEXT NOT NULL,
        errors TEXT NOT NULL,
        cost REAL,
        words BLOB NOT NULL                    -- compressed; needed to take them out of the index
    )
    """,
    "CREATE INDEX IF NOT EXISTS index_entries_open ON index_entries (run) WHERE NOT is_over",
    """
    CREATE VIRTUAL TABLE IF NOT EXISTS index_words
    USING fts5(words, content='', columnsize=0, detail=none, tokenize="unicode61 remove_diacritics 0")
    """,
)


_LATE = """
FROM index_entries JOIN runs ON runs.id = index_entries.run
WHERE NOT index_entries.is_over AND runs.seq <> index_entries.seq
"""


def _is_there(session: DatabaseSession) -> bool:
    found = session.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'index_words'").fetchone()
    return found is not None


def _prepare(session: DatabaseSession) -> None:
    """Make the tables, or make them anew if they have another form."""
    if _is_there(session):
        (form,) = session.connection.execute("SELECT form FROM index_state").fetchone()
        if form == _FORM:
            return
        for table in ("index_words", "index_entries", "index_state"):
            session.connection.execute(f"DROP TABLE {table}")
    try:
        for statement in _TABLES:
            session.connection.execute(statement)
    except sqlite3.OperationalError as error:
        if "fts5" not in str(error):
            raise
        raise StoreError(
            "Runs cannot be searched: the SQLite of this Python was built without FTS5. Use another Python"
        ) from error
    session.connection.execute("INSERT INTO index_state VALUES (1, ?, 0)", (_FORM,))


def outdated(session: DatabaseSession, limit: int) -> list[tuple[RunInfo, IndexEntry | None]]:
    """See ``SearchStore.outdated``."""
    _prepare(session)
    found = session.connection.execute(
        "SELECT run_id FROM runs WHERE id > (SELECT done FROM index_state) ORDER BY id LIMIT ?", (limit,)
    ).fetchall()
    found += session.connection.execute(
        f"SELECT runs.run_id {_LATE} ORDER BY runs.ended_at IS NULL, index_entries.seq - runs.seq LIMIT ?",
        (limit - len(found),),
    ).fetchall()
    rows = [row for (run_id,) in found if (row := find_run(session, run_id)) is not None]
    return [(info_of(session, row), _entry(session, row)) for row in rows]


def count_outdated(session: DatabaseSession, most: int) -> int:
    """See ``SearchStore.count_outdated``."""
    _prepare(session)
    (count,) = session.connection.execute(
        f"""
        SELECT count(*) FROM (
            SELECT id FROM runs WHERE id > (SELECT done FROM index_state)
            UNION ALL SELECT runs.id {_LATE} LIMIT ?)
        """,  # noqa: S608 - a constant
        (most,),
    ).fetchone()
    return count


def _entry(session: DatabaseSession, row: RunRow) -> IndexEntry | None:
    found = session.connection.execute("SELECT * FROM index_entries WHERE run = ?", (row.id,)).fetchone()
    if found is None:
        return None
    _, seq, is_over, models, errors, cost, words = found
    return IndexEntry(
        row.run_id,
        row.created_at,
        seq,
        bool(is_over),
        tuple(json.loads(models)),
        tuple(json.loads(errors)),
        cost,
        frozenset(_unpacked(words).split()),
    )


def index(session: DatabaseSession, entries: Sequence[IndexEntry]) -> None:
    """See ``SearchStore.index``."""
    _prepare(session)
    for entry in entries:
        row = find_run(session, entry.run_id)
        if row is None or row.created_at != entry.created_at:
            continue
        _remove(session, row.id)
        words = " ".join(sorted(entry.words))
        session.connection.execute(
            "INSERT INTO index_entries VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                row.id,
                entry.commit,
                entry.is_over,
                json.dumps(entry.models, ensure_ascii=False),
                json.dumps(entry.errors, ensure_ascii=False),
                entry.cost,
                zlib.compress(words.encode()),
            ),
        )
        session.connection.execute("INSERT INTO index_words (rowid, words) VALUES (?, ?)", (row.id, words))
        session.connection.execute("UPDATE index_state SET done = max(done, ?)", (row.id,))


def forget_entry(session: DatabaseSession, row: RunRow) -> None:
    """Take a run that is deleted out of the index."""
    if _is_there(session):
        _remove(session, row.id)


def _remove(session: DatabaseSession, number: int) -> None:
    found = session.connection.execute("SELECT words FROM index_entries WHERE run = ?", (number,)).fetchone()
    if found is not None:
        session.connection.execute(
            "INSERT INTO index_words (index_words, rowid, words) VALUES ('delete', ?, ?)", (number, _unpacked(found[0]))
        )
        session.connection.execute("DELETE FROM index_entries WHERE run = ?", (number,))


def _unpacked(words: bytes) -> str:
    return zlib.decompress(words).decode()


_JOINED = "JOIN index_entries ON index_entries.run = run_infos.id"

_CONDITIONS = {
    "text": "id IN (SELECT rowid FROM index_words WHERE index_words MATCH :text)",
    "model": "EXISTS (SELECT 1 FROM json_each(models) WHERE instr(value, :model))",
    "error": "EXISTS (SELECT 1 FROM json_each(errors) WHERE instr(value, :error))",
    "since": "created_at >= :since",
    "until": "created_at < :until",
    "min_cost": "cost >= :min_cost",
    "max_cost": "cost <= :max_cost",
}


def search(
    session: DatabaseSession, query: RunQuery, after: str | None, limit: int, newest_first: bool
) -> list[RunInfo]:
    """See ``SearchStore.search``."""
    words = " ".join(f'"{word}"*' for word in words_of(query.text))
    if not _is_there(session) or (query.text.strip() and not words):
        return []
    values: dict[str, Any] = {
        "text": words or None,
        "model": query.model.casefold() or None,
        "error": query.error.casefold() or None,
        "since": query.since,
        "until": query.until,
        "min_cost": query.min_cost,
        "max_cost": query.max_cost,
        **values_of(query.status, query.workflow, query.metadata),
    }
    try:
        return listed(session, values, after, limit, newest_first, conditions=_CONDITIONS, joined=_JOINED)
    except sqlite3.OperationalError as error:
        # SQLite takes a character of a newer Unicode for a gap in a word, which no entry has.
        if "phrase queries" in str(error):
            return []
        raise
