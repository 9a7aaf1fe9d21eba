"""The functions in the database of a PostgresStore for clocks, owners and claims; each operation is one call."""

from batonflow.durable.store_protocol import MOST_ATTEMPTS
from batonflow.durable.stores.attempts import LONGEST_PAUSE, SUSPECT_ATTEMPTS

__all__ = ["CLAIM_FUNCTIONS", "CLOCK_FUNCTIONS"]

YOUNG_SECONDS = 5
"""Seconds after the start of the server in which owners keep runs with an expired lease."""

# Leases have a clock of their own, so that tests can set the clocks differently.
CLOCK_FUNCTIONS = f"""
CREATE FUNCTION batonflow.wall() RETURNS float8 LANGUAGE sql VOLATILE AS
    $$ SELECT extract(epoch FROM clock_timestamp())::float8 $$;

CREATE FUNCTION batonflow.steady() RETURNS float8 LANGUAGE sql VOLATILE AS
    $$ SELECT extract(epoch FROM clock_timestamp())::float8 $$;

CREATE FUNCTION batonflow.lock_of(one text) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    $$ SELECT hashtextextended('batonflow.owners/' || one, 0) $$;

CREATE FUNCTION batonflow.lock_of_log(one bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    $$ SELECT hashtextextended('batonflow.logs/' || one, 0) $$;

CREATE FUNCTION batonflow.lock_of_bound(name text) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    $$ SELECT hashtextextended('batonflow.bounds/' || name, 0) $$;

CREATE FUNCTION batonflow.is_registered(one text) RETURNS boolean LANGUAGE sql STABLE AS
    $$ SELECT EXISTS (SELECT FROM batonflow.owners WHERE owner = one AND server = pg_postmaster_start_time()) $$;

CREATE FUNCTION batonflow.is_young() RETURNS boolean LANGUAGE sql VOLATILE AS
    $$ SELECT clock_timestamp() < pg_postmaster_start_time() + interval '{YOUNG_SECONDS} s' $$;

-- Tell whether the process of an owner lives, as far as it is known; a standby has neither its lock nor the table.
CREATE FUNCTION batonflow.is_alive(one text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF one IS NULL OR pg_is_in_recovery() THEN
        RETURN one IS NOT NULL;
    END IF;
    RETURN NOT batonflow.is_registered(one) OR NOT pg_try_advisory_xact_lock_shared(batonflow.lock_of(one));
END $$;

-- A lease that lasts longer than it ever did is from before the clock was set back.
CREATE FUNCTION batonflow.lease_left(until float8, ttl float8) RETURNS float8 LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    remaining float8 := until - batonflow.steady();
BEGIN
    RETURN CASE WHEN remaining <= ttl + 1 THEN greatest(remaining, 0) ELSE 0 END;
END $$;

-- Tell whether a run has a live owner with a valid lease.
CREATE FUNCTION batonflow.is_driven(run batonflow.runs) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN run.status = 'running' AND batonflow.is_alive(run.owner)
        AND (batonflow.lease_left(run.lease_until, run.lease_ttl) > 0
             OR (batonflow.is_young() AND NOT batonflow.is_registered(run.owner)));
END $$;
"""

# Names and queues come first, as most runs fail there at once.
_WANTED = """(names IS NULL OR workflow = ANY (names)) AND (queues IS NULL OR queue = ANY (queues))
                AND run_id <> ALL (skip) AND (serves IS NULL OR batonflow.is_served(workflow, version, serves))"""
_UNSUSPECTED = f"(with_suspects OR attempts < {SUSPECT_ATTEMPTS})"

CLAIM_FUNCTIONS = f"""
CREATE TYPE batonflow.created AS (outcome text, epoch bigint, log bigint);

CREATE FUNCTION batonflow.create_run(
    new_id text, new_workflow text, new_version text, new_digest text, new_shape text, new_owner text, ttl float8,
    first bytea, first_crc bigint, streamed bigint, new_metadata jsonb, new_session bigint, new_turn bigint,
    bodies bytea[], crcs bigint[], continues bigint, continues_at bigint, new_queue text, new_priority integer,
    earliest float8, new_nonce bigint
) RETURNS batonflow.created LANGUAGE plpgsql AS $$
DECLARE
    new_epoch bigint;
    log_of_run bigint;
    now float8 := batonflow.wall();
    other batonflow.runs;
    floor bigint;
    length bigint;
    shares boolean := FALSE;
    number bigint;
BEGIN
    SELECT * INTO other FROM batonflow.runs WHERE run_id = new_id;
    IF NOT FOUND THEN
        IF continues IS NOT NULL THEN
            PERFORM pg_advisory_xact_lock(batonflow.lock_of_log(continues));
            length := batonflow.log_length(continues);
            IF length < continues_at THEN
                RAISE EXCEPTION 'The parts of log % were deleted', continues USING ERRCODE = 'BF001';
            END IF;
            shares := length = continues_at AND NOT EXISTS (
                SELECT FROM batonflow.runs
                WHERE (part_log = continues OR (id = continues AND part_log IS NULL))
                    AND status IN ('running', 'ready', 'waiting'));
        END IF;
        SELECT epoch_floor INTO floor FROM batonflow.facts;
        INSERT INTO batonflow.runs (
            run_id, workflow, version, digest, shape, status, owner, epoch, claimed_at, lease_until, lease_ttl, due_at,
            seq, stream_seq, created_at, updated_at, metadata, session, turn, part_log, queue, priority, not_before,
            nonce
        ) VALUES (
            new_id, new_workflow, new_version, new_digest, new_shape,
            CASE WHEN new_owner IS NULL THEN 'ready' ELSE 'running' END, new_owner,
            CASE WHEN new_owner IS NULL THEN floor ELSE floor + 1 END,
            CASE WHEN new_owner IS NOT NULL THEN now END,
            CASE WHEN new_owner IS NOT NULL THEN batonflow.steady() + ttl END,
            CASE WHEN new_owner IS NOT NULL THEN ttl END,
            CASE WHEN new_owner IS NULL THEN greatest(now, earliest) END,
            CASE WHEN first IS NULL THEN 0 ELSE 1 END, streamed, now, now, new_metadata, new_session, new_turn,
            CASE WHEN shares THEN continues END, new_queue, new_priority,
            CASE WHEN new_owner IS NULL THEN earliest END, new_nonce
        ) ON CONFLICT (run_id) DO NOTHING RETURNING id, epoch INTO number, new_epoch;
        IF NOT FOUND THEN  -- another process has created it meanwhile
            SELECT * INTO other FROM batonflow.runs WHERE run_id = new_id;
        END IF;
    END IF;
    IF number IS NULL THEN
        RETURN ROW (CASE WHEN other.nonce = new_nonce THEN 'created' ELSE 'existing' END, other.epoch,
            coalesce(other.part_log, other.id))::batonflow.created;
    END IF;
    log_of_run := CASE WHEN shares THEN continues ELSE number END;
    IF first IS NOT NULL THEN
        INSERT INTO batonflow.commits VALUES (number, 1, now, first, first_crc);
    END IF;
    IF continues IS NOT NULL AND NOT shares THEN
        INSERT INTO batonflow.part_logs VALUES (number, continues, continues_at);
    END IF;
    INSERT INTO batonflow.parts
        SELECT log_of_run, coalesce(continues_at, 0) + place - 1, body, crc
        FROM unnest(bodies, crcs) WITH ORDINALITY AS part (body, crc, place);
    RETURN ROW ('created', new_epoch, log_of_run)::batonflow.created;
END $$;

CREATE TYPE batonflow.claimed AS (
    run_id text, epoch bigint, seq bigint, stream_seq bigint, workflow text, abandoned boolean, delay float8
);

-- Give a run, whose row is locked, to an owner.
CREATE FUNCTION batonflow.take(run batonflow.runs, new_owner text, ttl float8, new_claim bigint)
RETURNS batonflow.claimed
LANGUAGE plpgsql AS $$
DECLARE
    now float8 := batonflow.wall();
    taken batonflow.claimed;
BEGIN
    UPDATE batonflow.runs AS r
    SET status = 'running', owner = new_owner, epoch = r.epoch + 1, claimed_at = now,
        lease_until = batonflow.steady() + ttl, lease_ttl = ttl, due_at = NULL, updated_at = now, not_before = NULL,
        attempts = r.attempts + CASE WHEN run.status = 'running' AND run.owner <> new_owner THEN 1 ELSE 0 END,
        held = NULL, claim = new_claim
    WHERE r.id = run.id
    RETURNING r.run_id, r.epoch, r.seq, r.stream_seq, r.workflow,
        run.status = 'running' AND run.owner IS NOT NULL AND NOT batonflow.is_alive(run.owner),
        greatest(now - coalesce(run.due_at, now), 0)
    INTO taken;
    RETURN taken;
END $$;

CREATE FUNCTION batonflow.claim(
    wanted text, new_owner text, ttl float8, only_due boolean,
    OUT outcome text, OUT other text, OUT since float8, OUT seconds float8, OUT taken batonflow.claimed
) LANGUAGE plpgsql AS $$
DECLARE
    run batonflow.runs;
BEGIN
    SELECT * INTO run FROM batonflow.runs WHERE run_id = wanted FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        outcome := 'unknown';
    ELSIF run.status IN ('completed', 'failed', 'cancelled') THEN
        outcome := 'ended';
    ELSIF run.owner <> new_owner AND batonflow.is_driven(run) THEN
        outcome := 'busy';
        other := run.owner;
        since := coalesce(run.claimed_at, run.created_at);
        seconds := batonflow.lease_left(run.lease_until, run.lease_ttl);
    ELSIF only_due AND run.status = 'waiting' AND run.unread = 0
        AND (run.wake_at IS NULL OR run.wake_at > batonflow.wall()) THEN
        outcome := 'not due';
        since := run.wake_at;
    ELSE
        outcome := 'claimed';
        taken := batonflow.take(run, new_owner, ttl, NULL);
    END IF;
END $$;

-- Return the workflows of serves, which has pairs of a workflow and its versions, or null for all.
CREATE FUNCTION batonflow.names_of(serves jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN serves IS NOT NULL
        THEN ARRAY(SELECT DISTINCT pair ->> 0 FROM jsonb_array_elements(serves) AS s (pair)) END
$$;

-- Return the workflows of ready runs, each by one step in the index.
CREATE FUNCTION batonflow.names_of_ready() RETURNS text[] LANGUAGE sql STABLE AS $$
    WITH RECURSIVE found (name) AS (
        SELECT min(workflow) FROM batonflow.runs WHERE status = 'ready'
        UNION ALL SELECT (SELECT min(workflow) FROM batonflow.runs WHERE status = 'ready' AND workflow > name)
        FROM found WHERE name IS NOT NULL
    )
    SELECT array_agg(name) FROM found WHERE name IS NOT NULL
$$;

CREATE FUNCTION batonflow.is_served(name text, wanted text, serves jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT EXISTS (
        SELECT FROM jsonb_array_elements(serves) AS served (pair)
        WHERE pair ->> 0 = name AND (pair -> 1 = 'null' OR pair -> 1 @> coalesce(to_jsonb(wanted), 'null')))
$$;

-- Return and lock runs with a dead owner or an expired lease, the longest first.
CREATE FUNCTION batonflow.left_behind(most integer, serves jsonb, queues text[], skip text[])
RETURNS SETOF batonflow.runs LANGUAGE plpgsql AS $$
DECLARE
    names text[] := batonflow.names_of(serves);
    owners text[] := ARRAY(SELECT DISTINCT owner FROM batonflow.runs WHERE status = 'running');
    dead text[] := ARRAY(SELECT one FROM unnest(owners) AS one WHERE NOT batonflow.is_alive(one));
    away text[] := '{{}}';
    now float8 := batonflow.steady();
BEGIN
    IF batonflow.is_young() THEN
        away := ARRAY(SELECT one FROM unnest(owners) AS one WHERE NOT batonflow.is_registered(one));
    END IF;
    RETURN QUERY SELECT * FROM batonflow.runs AS run
        WHERE status = 'running'
            AND (owner = ANY (dead)
                 OR ((lease_until <= now OR lease_until > now + lease_ttl + 1) AND owner <> ALL (away)))
            AND {_WANTED}
        ORDER BY updated_at, id LIMIT most FOR NO KEY UPDATE SKIP LOCKED;
END $$;

-- Make a run ready whose owner has ended or lost its lease; return whether it can be claimed at once.
CREATE FUNCTION batonflow.pause(run batonflow.runs) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    tries integer := run.attempts + 1;
    now float8 := batonflow.wall();
    seconds float8 := CASE WHEN tries <= 1 THEN 0
        ELSE least({LONGEST_PAUSE}, 2.0 ^ least(tries - 2, 30) * (1 + random())) END;
BEGIN
    UPDATE batonflow.runs
    SET status = 'ready', owner = NULL, lease_until = NULL, wake_no = wake_no + 1, due_at = now + seconds,
        updated_at = now, attempts = tries, not_before = CASE WHEN seconds > 0 THEN now + seconds END,
        held = CASE WHEN tries >= {MOST_ATTEMPTS} THEN tries || ' attempts ended without a commit, the last one of '
            || coalesce(run.owner, 'an unknown owner') END
    WHERE id = run.id;
    RETURN seconds = 0 AND tries < {MOST_ATTEMPTS};
END $$;

-- Claim runs, whatever the bounds of their workflows.
CREATE FUNCTION batonflow.claim_some(
    new_owner text, ttl float8, most integer, serves jsonb, queues text[], skip text[], new_claim bigint
) RETURNS SETOF batonflow.claimed LANGUAGE plpgsql AS $$
DECLARE
    run batonflow.runs;
    taken integer := 0;
    looked boolean := TRUE;
    is_calm boolean;  -- whether the owner drives no suspect
BEGIN
    WHILE looked AND taken < most LOOP
        looked := FALSE;
        FOR run IN SELECT * FROM batonflow.left_behind(most - taken, serves, queues, skip) LOOP
            looked := TRUE;
            IF run.attempts > 0 THEN
                PERFORM batonflow.pause(run);
            ELSE
                RETURN NEXT batonflow.take(run, new_owner, ttl, new_claim);
                taken := taken + 1;
            END IF;
        END LOOP;
    END LOOP;
    is_calm := NOT EXISTS (
        SELECT FROM batonflow.runs WHERE status = 'running' AND owner = new_owner AND attempts >= {SUSPECT_ATTEMPTS});
    looked := TRUE;
    WHILE looked AND taken < most LOOP
        looked := FALSE;
        FOR run IN SELECT * FROM batonflow.to_drive(most - taken, serves, queues, skip, is_calm) LOOP
            IF is_calm OR run.attempts < {SUSPECT_ATTEMPTS} THEN
                is_calm := is_calm AND run.attempts < {SUSPECT_ATTEMPTS};
                RETURN NEXT batonflow.take(run, new_owner, ttl, new_claim);
                taken := taken + 1;
            ELSE
                looked := TRUE;  -- other runs get the places of further suspects
            END IF;
        END LOOP;
    END LOOP;
END $$;

-- Return and lock ready runs and those with a due timer, by priority, the longest first.
CREATE FUNCTION batonflow.to_drive(most integer, serves jsonb, queues text[], skip text[], with_suspects boolean)
RETURNS SETOF batonflow.runs LANGUAGE plpgsql AS $$
DECLARE
    now float8 := batonflow.wall();
    names text[] := batonflow.names_of(serves);
    found integer;
BEGIN
    RETURN QUERY SELECT * FROM (
        SELECT ready.* FROM unnest(coalesce(names, batonflow.names_of_ready())) AS name CROSS JOIN LATERAL (
            SELECT * FROM batonflow.runs AS r
            WHERE status = 'ready' AND workflow = name AND due_at <= now AND held IS NULL
                AND {_WANTED} AND {_UNSUSPECTED}
            ORDER BY priority DESC, due_at, id LIMIT most FOR NO KEY UPDATE SKIP LOCKED
        ) AS ready
        UNION ALL SELECT * FROM (
            SELECT * FROM batonflow.runs AS r
            WHERE status = 'waiting' AND due_at <= now AND {_WANTED} AND {_UNSUSPECTED}
            ORDER BY due_at, id LIMIT most FOR NO KEY UPDATE SKIP LOCKED
        ) AS timed
    ) AS found ORDER BY priority DESC, due_at, id LIMIT most;
    GET DIAGNOSTICS found = ROW_COUNT;
    RETURN QUERY SELECT * FROM batonflow.ready_since_later(most - found, serves, queues, skip, with_suspects);
END $$;

-- Claim runs, step by step, so that no workflow gets more than its bound, the third value in serves.
CREATE FUNCTION batonflow.claim_due(
    new_owner text, ttl float8, most integer, serves jsonb, queues text[], skip text[], new_claim bigint
) RETURNS SETOF batonflow.claimed LANGUAGE plpgsql AS $$
DECLARE
    free jsonb := (
        SELECT jsonb_object_agg(name, bound) FROM (
            SELECT pair ->> 0 AS name, min((pair ->> 2)::integer) AS bound
            FROM jsonb_array_elements(serves) AS served (pair) WHERE pair ->> 2 IS NOT NULL GROUP BY pair ->> 0
        ) AS bounds);
    name text;
    open jsonb;
    step integer;
    found integer;
    one batonflow.claimed;
BEGIN
    IF free IS NULL THEN
        RETURN QUERY SELECT * FROM batonflow.claim_some(new_owner, ttl, most, serves, queues, skip, new_claim);
        RETURN;
    END IF;
    -- Claims of a workflow with a bound wait for each other, so that each of them counts the runs of the others.
    FOR name IN SELECT jsonb_object_keys(free) AS key ORDER BY key LOOP
        PERFORM pg_advisory_xact_lock(batonflow.lock_of_bound(name));
        free := jsonb_set(free, ARRAY[name], to_jsonb((free ->> name)::integer - (
            SELECT count(*) FROM batonflow.runs AS run
            WHERE status = 'running' AND workflow = name AND batonflow.is_driven(run))));
    END LOOP;
    LOOP
        SELECT jsonb_agg(pair), least(most, min((free ->> (pair ->> 0))::integer)) INTO open, step
        FROM jsonb_array_elements(serves) AS served (pair) WHERE coalesce((free ->> (pair ->> 0))::integer, 1) > 0;
        EXIT WHEN open IS NULL OR most <= 0;
        found := 0;
        FOR one IN SELECT * FROM batonflow.claim_some(new_owner, ttl, step, open, queues, skip, new_claim) LOOP
            RETURN NEXT one;
            found := found + 1;
            IF free ? one.workflow THEN
                free := jsonb_set(free, ARRAY[one.workflow], to_jsonb((free ->> one.workflow)::integer - 1));
            END IF;
        END LOOP;
        most := most - found;
        EXIT WHEN found < step;
    END LOOP;
END $$;

-- Return runs that are ready since a future time, because the clock was set back.
CREATE FUNCTION batonflow.ready_since_later(
    most integer, serves jsonb, queues text[], skip text[], with_suspects boolean
) RETURNS SETOF batonflow.runs LANGUAGE plpgsql AS $$
DECLARE
    now float8 := batonflow.wall();
    names text[] := batonflow.names_of(serves);
BEGIN
    RETURN QUERY SELECT later.* FROM unnest(coalesce(names, batonflow.names_of_ready())) AS name CROSS JOIN LATERAL (
        SELECT * FROM batonflow.runs AS run
        WHERE status = 'ready' AND workflow = name AND due_at > now AND not_before IS NULL AND held IS NULL
            AND {_WANTED} AND {_UNSUSPECTED}
        ORDER BY priority DESC, due_at, id LIMIT greatest(most, 0) FOR NO KEY UPDATE SKIP LOCKED
    ) AS later ORDER BY priority DESC, due_at, id LIMIT greatest(most, 0);
END $$;

-- Make a run, whose row is locked, ready from now on, or leave it ready since it was due.
CREATE FUNCTION batonflow.make_ready(number bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE batonflow.runs
    SET status = 'ready', owner = NULL, lease_until = NULL, wake_no = wake_no + 1,
        due_at = least(due_at, batonflow.wall()), rung_at = batonflow.wall(), updated_at = batonflow.wall(),
        not_before = NULL, held = NULL
    WHERE id = number
$$;

CREATE FUNCTION batonflow.sweep(most integer, grace float8) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    now float8 := batonflow.wall();
    run batonflow.runs;
    rung integer := 0;
BEGIN
    FOR run IN SELECT * FROM batonflow.left_behind(most, NULL, NULL, '{{}}') LOOP
        IF batonflow.pause(run) THEN
            RETURN NEXT run.run_id;
            rung := rung + 1;
        END IF;
    END LOOP;
    FOR run IN
        SELECT * FROM (
            SELECT * FROM batonflow.runs WHERE status = 'waiting' AND due_at <= now
            ORDER BY due_at, id LIMIT most - rung FOR NO KEY UPDATE SKIP LOCKED
        ) AS timed
        UNION ALL SELECT * FROM (
            SELECT * FROM batonflow.runs
            WHERE status = 'ready' AND due_at <= now - grace AND held IS NULL
                AND (rung_at <= now - grace OR rung_at > now) IS NOT FALSE
            ORDER BY due_at, id LIMIT most - rung FOR NO KEY UPDATE SKIP LOCKED
        ) AS late
        ORDER BY due_at, id LIMIT most - rung
    LOOP
        PERFORM batonflow.make_ready(run.id);
        RETURN NEXT run.run_id;
        rung := rung + 1;
    END LOOP;
    FOR run IN SELECT * FROM batonflow.ready_since_later(most - rung, NULL, NULL, '{{}}', TRUE) LOOP
        PERFORM batonflow.make_ready(run.id);
        RETURN NEXT run.run_id;
    END LOOP;
END $$;

CREATE FUNCTION batonflow.append(
    wanted text, new_key text, new_kind text, new_payload bytea, new_crc bigint,
    OUT outcome text, OUT place bigint, OUT became_ready boolean
) LANGUAGE plpgsql AS $$
DECLARE
    target batonflow.runs;
    now float8 := batonflow.wall();
BEGIN
    SELECT * INTO target FROM batonflow.runs WHERE run_id = wanted FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        outcome := 'unknown';
        RETURN;
    END IF;
    SELECT position INTO place FROM batonflow.inbox WHERE run = target.id AND key = new_key;
    IF FOUND THEN
        outcome := 'known';
    ELSIF target.status IN ('completed', 'failed', 'cancelled') THEN
        outcome := 'ended';
    ELSE
        outcome := 'new';
        place := target.inbox_head + 1;
        INSERT INTO batonflow.inbox VALUES (
            target.id, place, new_key, new_kind, new_payload, now, target.seq, NULL, new_crc);
        UPDATE batonflow.runs SET inbox_head = place, unread = unread + 1, updated_at = now WHERE id = target.id;
        became_ready := target.status = 'waiting';
        IF became_ready THEN
            PERFORM batonflow.make_ready(target.id);
        END IF;
    END IF;
END $$;
"""
