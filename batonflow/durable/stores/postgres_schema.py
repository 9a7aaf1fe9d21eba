"""The tables of a PostgresStore, and their versions.

The statements name the schema ``batonflow``; ``in_schema`` puts another name in its place.
"""

from typing import Any

from batonflow.durable.stores.postgres_functions import CLAIM_FUNCTIONS, CLOCK_FUNCTIONS
from batonflow.durable.stores.postgres_upkeep_functions import LOG_FUNCTIONS, SESSION_FUNCTIONS, UPKEEP_FUNCTIONS
from batonflow.workflow_core.errors import StoreError

__all__ = ["MIGRATIONS", "in_schema", "is_newest", "migrate"]

_DEFAULT = "batonflow."

# Bodies are compressed before, so PostgreSQL stores them as they are (EXTERNAL). No index has a column that each commit
# changes, and pages have room, so that a commit changes the row of its run in place.
_TABLES = """
CREATE TABLE batonflow.runs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- not used again, so a reader notices that a run was replaced
    run_id text COLLATE "C" NOT NULL UNIQUE,
    workflow text COLLATE "C" NOT NULL,
    version text COLLATE "C",
    digest text NOT NULL,
    shape text NOT NULL,
    status text COLLATE "C" NOT NULL,
    owner text COLLATE "C",
    epoch bigint NOT NULL,
    claimed_at float8,
    lease_until float8,
    lease_ttl float8,
    seq bigint NOT NULL,
    compacted bigint NOT NULL DEFAULT 0,                 -- commits up to here are only in the snapshot
    stream_seq bigint NOT NULL DEFAULT 0,
    wake_at float8,
    wake_no bigint NOT NULL DEFAULT 0,                   -- how often it was made ready
    due_at float8,                                       -- since when it is ready; while it waits, its timer
    rung_at float8,                                      -- when it was last made known as ready, later than due_at
    inbox_head bigint NOT NULL DEFAULT 0,
    unread bigint NOT NULL DEFAULT 0,
    created_at float8 NOT NULL,
    updated_at float8 NOT NULL,
    ended_at float8,
    forked_from text COLLATE "C",
    forked_at bigint,
    metadata jsonb,
    session bigint,                                      -- the session of which it is a turn, and the turn's number
    turn bigint,
    part_log bigint,                                     -- a run without one writes into the log of its own id
    queue text COLLATE "C" NOT NULL DEFAULT 'default',
    priority integer NOT NULL DEFAULT 0,
    not_before float8,                                   -- a ready run is not taken up before its due_at
    attempts integer NOT NULL DEFAULT 0,
    held text,
    nonce bigint NOT NULL,                               -- of the call that made it, which may be made again
    claim bigint                                         -- of the call that claimed it with others
) WITH (fillfactor = 60);
CREATE INDEX runs_by_status ON batonflow.runs (status, id);
CREATE INDEX runs_by_workflow ON batonflow.runs (workflow, id);
CREATE INDEX runs_ready ON batonflow.runs (workflow, priority DESC, due_at, id) WHERE status = 'ready';
CREATE INDEX runs_timed ON batonflow.runs (due_at, id) WHERE status = 'waiting' AND due_at IS NOT NULL;
CREATE INDEX runs_ended ON batonflow.runs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_by_part_log ON batonflow.runs (part_log) WHERE part_log IS NOT NULL;

CREATE TABLE batonflow.commits (
    run bigint, seq bigint, at float8 NOT NULL, body bytea NOT NULL, crc bigint NOT NULL,
    PRIMARY KEY (run, seq)
);
CREATE TABLE batonflow.snapshots (
    run bigint, seq bigint, body bytea NOT NULL, crc bigint NOT NULL, PRIMARY KEY (run, seq)
);
CREATE TABLE batonflow.results (
    run bigint PRIMARY KEY, body bytea NOT NULL, crc bigint NOT NULL
);
CREATE TABLE batonflow.inbox (
    run bigint,
    position bigint,
    key text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    payload bytea NOT NULL,
    at float8 NOT NULL,
    came bigint NOT NULL,                                -- the run's last commit when it came
    used bigint,                                         -- the first of the commits that have used it
    crc bigint NOT NULL,
    PRIMARY KEY (run, position),
    UNIQUE (run, key)
);
CREATE INDEX inbox_unused ON batonflow.inbox (run, position) WHERE used IS NULL;
CREATE TABLE batonflow.parts (
    log bigint, number bigint, body bytea NOT NULL, crc bigint NOT NULL, PRIMARY KEY (log, number)
);
CREATE TABLE batonflow.part_logs (
    id bigint PRIMARY KEY,
    parent bigint NOT NULL,
    begins bigint NOT NULL                               -- the number of its first part; the parent has those before it
);
CREATE INDEX part_logs_by_parent ON batonflow.part_logs (parent);
ALTER TABLE batonflow.commits ALTER body SET STORAGE EXTERNAL;
ALTER TABLE batonflow.snapshots ALTER body SET STORAGE EXTERNAL;
ALTER TABLE batonflow.results ALTER body SET STORAGE EXTERNAL;
ALTER TABLE batonflow.parts ALTER body SET STORAGE EXTERNAL;

CREATE TABLE batonflow.sessions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    workflow text COLLATE "C" NOT NULL,
    last bigint NOT NULL DEFAULT 0,
    turns bigint NOT NULL DEFAULT 0,
    created_at float8 NOT NULL,
    updated_at float8 NOT NULL,
    part_log bigint,
    change bigint                                        -- of the call that changed it last
);
CREATE INDEX sessions_by_part_log ON batonflow.sessions (part_log) WHERE part_log IS NOT NULL;
CREATE TABLE batonflow.turns (
    session bigint,
    number bigint,
    run_id text COLLATE "C" NOT NULL,
    status text NOT NULL,
    started float8 NOT NULL,
    ended float8,
    request_id text COLLATE "C",
    digest text NOT NULL,
    asked bytea NOT NULL,
    body bytea NOT NULL,
    asked_crc bigint NOT NULL,
    body_crc bigint NOT NULL,
    undone boolean NOT NULL DEFAULT FALSE,
    PRIMARY KEY (session, number)
);
CREATE INDEX turns_by_request ON batonflow.turns (session, request_id) WHERE request_id IS NOT NULL;
CREATE TABLE batonflow.session_queue (
    ticket bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    until float8 NOT NULL
);
CREATE INDEX session_queue_by_session ON batonflow.session_queue (session, ticket);

CREATE TABLE batonflow.index_state (form integer NOT NULL, done bigint NOT NULL);
CREATE TABLE batonflow.index_entries (
    run bigint PRIMARY KEY,
    seq bigint NOT NULL,
    is_over boolean NOT NULL,
    models text[] NOT NULL,
    errors text[] NOT NULL,
    cost float8,
    words tsvector NOT NULL
);
CREATE INDEX index_entries_open ON batonflow.index_entries (run) WHERE NOT is_over;
CREATE INDEX index_entries_words ON batonflow.index_entries USING gin (words);

-- The owners that have taken their lock under this start of the server. A crash empties a table that is not logged, as
-- it ends the locks; so the missing lock of an owner says something only if the owner is in this table.
CREATE UNLOGGED TABLE batonflow.owners (
    owner text COLLATE "C" PRIMARY KEY, server timestamptz NOT NULL, since float8 NOT NULL
);
CREATE TABLE batonflow.workers (
    name text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    body jsonb NOT NULL,
    since float8 NOT NULL,
    seen_at float8 NOT NULL,
    is_draining boolean NOT NULL
);
-- epoch_floor: the highest epoch of deleted runs.
CREATE TABLE batonflow.facts (version integer NOT NULL, epoch_floor bigint NOT NULL);
INSERT INTO batonflow.facts VALUES (0, 0);
"""

_FUNCTIONS = CLOCK_FUNCTIONS + LOG_FUNCTIONS + CLAIM_FUNCTIONS + UPKEEP_FUNCTIONS + SESSION_FUNCTIONS

MIGRATIONS: list[str] = [_TABLES + _FUNCTIONS]
"""The statements at index n turn version n into n + 1, in one transaction. Version 0 is an empty schema.

Processes with an earlier version go on with its functions, so a function that is changed gets another name.
"""


def in_schema(statements: str, schema: str) -> str:
    """Return statements with the name of the schema."""
    return statements.replace(_DEFAULT, f'"{schema}".')


def migrate(connection: Any, schema: str, address: str) -> None:
    """Create or change the tables of a schema to the newest version.

    Args:
        connection: A connection without an open transaction.
        schema: The name of the schema.
        address: The address of the database, for messages.

    Raises:
        StoreError: The tables have a newer version.
    """
    if is_newest(connection, schema, address):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"batonflow/{schema}",))
        version = _version(connection, schema, address)
        if version == len(MIGRATIONS):
            return
        if not connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", (schema,)).rowcount:
            connection.execute(f'CREATE SCHEMA "{schema}"')
        for statements in MIGRATIONS[version:]:
            connection.execute(in_schema(statements, schema), prepare=False)
        connection.execute(in_schema("UPDATE batonflow.facts SET version = %s", schema), (len(MIGRATIONS),))


def is_newest(connection: Any, schema: str, address: str) -> bool:
    """Tell whether the tables of a schema have the newest version. The arguments are those of ``migrate``.

    Raises:
        StoreError: The tables have a newer version.
    """
    return _version(connection, schema, address) == len(MIGRATIONS)


def _version(connection: Any, schema: str, address: str) -> int:
    # Not to_regclass, which remembers that a table was not there.
    (is_there,) = connection.execute(
        "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = %s AND tablename = 'facts')", (schema,)
    ).fetchone()
    if not is_there:
        return 0
    (version,) = connection.execute(in_schema("SELECT version FROM batonflow.facts", schema)).fetchone()
    if version > len(MIGRATIONS):
        raise StoreError(
            f"The store {address} has schema version {version}, and this version of batonflow knows those up to "
            f"{len(MIGRATIONS)}: use a newer batonflow, or another schema"
        )
    return version
