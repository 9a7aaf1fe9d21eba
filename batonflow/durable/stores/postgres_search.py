"""The search index in the database of a PostgresStore; its entries are derived from the records."""

from collections.abc import Sequence
from typing import Any

from batonflow.durable.search_protocol import IndexEntry, RunQuery
from batonflow.durable.store_protocol import RunInfo
from batonflow.durable.stores.postgres_reads import listed, values_of
from batonflow.durable.stores.postgres_rows import RUN_COLUMNS, Query, Steps, Writing, infos_of, plain, stored_text
from batonflow.durable.words import words_of

__all__ = ["count_outdated", "index", "outdated", "search"]

_FORM = 2
"""The form of entries; those with another number are built anew."""

_MOST_BYTES = 1_000_000
"""Bytes of all words of a run; PostgreSQL does not keep more than 2^20 in one vector."""

# A run with a smaller id may be committed a little later, so the last ids before ``done`` are looked at again.
_NEW = """
FROM batonflow.runs WHERE id > coalesce((SELECT max(done) FROM batonflow.index_state WHERE form = %(form)s), 0) - 1000
    AND NOT EXISTS (SELECT FROM batonflow.index_entries WHERE run = runs.id)
"""
_LATE = """
FROM batonflow.index_entries JOIN batonflow.runs ON runs.id = run
WHERE NOT is_over AND runs.seq <> index_entries.seq
"""
_OUTDATED = f"""
SELECT found.run, index_entries.seq, is_over, models, errors, cost, tsvector_to_array(words)
FROM (
    (SELECT id AS run, 0 AS place, id AS rank {_NEW} ORDER BY id LIMIT %(limit)s::bigint)
    UNION ALL
    (SELECT run, CASE WHEN ended_at IS NULL THEN 2 ELSE 1 END, index_entries.seq - runs.seq {_LATE}
     ORDER BY ended_at IS NULL, index_entries.seq - runs.seq LIMIT %(limit)s::bigint)
) AS found LEFT JOIN batonflow.index_entries USING (run)
ORDER BY place, rank LIMIT %(limit)s::bigint
"""
_RENEW = """
WITH old AS (DELETE FROM batonflow.index_state WHERE form <> %(form)s RETURNING 1)
DELETE FROM batonflow.index_entries WHERE EXISTS (SELECT FROM old)
"""


def outdated(limit: int) -> Steps[list[tuple[RunInfo, IndexEntry | None]]]:
    """See ``SearchStore.outdated``."""
    _, found = yield [Query(_RENEW, {"form": _FORM}, ""), Query(_OUTDATED, {"form": _FORM, "limit": limit}, "")]
    rows = yield Query(
        f"SELECT {RUN_COLUMNS} WHERE runs.id = ANY (%(ids)b::bigint[])", {"ids": [row[0] for row in found]}
    )
    infos = dict(zip((row[0] for row in rows), (yield from infos_of(rows)), strict=True))
    return [(infos[row[0]], _entry(infos[row[0]], row)) for row in found if row[0] in infos]


def _entry(info: RunInfo, row: Sequence[Any]) -> IndexEntry | None:
    _, seq, is_over, models, errors, cost, words = row
    if seq is None:
        return None
    return IndexEntry(
        info.run_id, info.created_at, seq, is_over, tuple(map(plain, models)), tuple(map(plain, errors)), cost,
        frozenset(words),
    )  # fmt: skip


def count_outdated(most: int) -> Steps[int]:
    """See ``SearchStore.count_outdated``."""
    ((count,),) = yield Query(
        f"SELECT count(*) FROM (SELECT id {_NEW} UNION ALL SELECT run {_LATE} LIMIT %(most)s::bigint) AS found",
        {"form": _FORM, "most": most},
    )
    return count


_INDEX = """
WITH run AS (
    SELECT id FROM batonflow.runs WHERE run_id = %(run_id)s AND created_at = %(created_at)s::float8 FOR KEY SHARE
), state AS (
    UPDATE batonflow.index_state SET done = greatest(done, (SELECT id FROM run))
)
INSERT INTO batonflow.index_entries
SELECT id, %(seq)s::bigint, %(is_over)s, %(models)s::text[], %(errors)s::text[], %(cost)s::float8,
    array_to_tsvector(%(words)s::text[])
FROM run
ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, is_over = excluded.is_over, models = excluded.models,
    errors = excluded.errors, cost = excluded.cost, words = excluded.words
"""
_STATE = """
INSERT INTO batonflow.index_state
SELECT %(form)s, 0 WHERE NOT EXISTS (SELECT FROM batonflow.index_state)
"""


def index(_writing: Writing, entries: Sequence[IndexEntry]) -> Steps[None]:
    """See ``SearchStore.index``."""
    queries = [Query(_STATE, {"form": _FORM}, "")]
    for entry in entries:
        values = {
            "run_id": entry.run_id,
            "created_at": entry.created_at,
            "seq": entry.commit,
            "is_over": entry.is_over,
            "models": [stored_text(model) for model in entry.models],
            "errors": [stored_text(error) for error in entry.errors],
            "cost": entry.cost,
            "words": _bounded(sorted(entry.words)),
        }
        queries.append(Query(_INDEX, values, entry.run_id))
    yield queries


def _bounded(words: Sequence[str]) -> list[str]:
    """Return the words that fit into a vector."""
    kept: list[str] = []
    size = 0
    for word in words:
        size += len(word.encode()) + 8
        if size > _MOST_BYTES:
            break
        kept.append(word)
    return kept


_JOINED = "JOIN batonflow.index_entries ON index_entries.run = runs.id"

_CONDITIONS = {
    "text": "words @@ %(text)s::tsquery",
    "model": "EXISTS (SELECT FROM unnest(models) AS model WHERE strpos(model, %(model)s) > 0)",
    "error": "EXISTS (SELECT FROM unnest(errors) AS error WHERE strpos(error, %(error)s) > 0)",
    "since": "created_at >= %(since)s::float8",
    "until": "created_at < %(until)s::float8",
    "min_cost": "cost >= %(min_cost)s::float8",
    "max_cost": "cost <= %(max_cost)s::float8",
}


def search(query: RunQuery, after: str | None, limit: int, newest_first: bool) -> Steps[list[RunInfo]]:
    """See ``SearchStore.search``."""
    words = " & ".join(f"'{word}':*" for word in words_of(query.text))  # words have no quotes
    if query.text.strip() and not words:
        return []
    values: dict[str, Any] = {
        "text": words or None,
        "model": stored_text(query.model.casefold()) or None,
        "error": stored_text(query.error.casefold()) or None,
        "since": query.since,
        "until": query.until,
        "min_cost": query.min_cost,
        "max_cost": query.max_cost,
        **values_of(query.status, query.workflow, query.metadata),  # pyright: ignore[reportArgumentType]
    }
    return (yield from listed(values, after, limit, newest_first, conditions=_CONDITIONS, joined=_JOINED))
