"""The functions in the database of a PostgresStore for logs of parts, forks, deletion and sessions."""

__all__ = ["LOG_FUNCTIONS", "SESSION_FUNCTIONS", "UPKEEP_FUNCTIONS"]

LOG_FUNCTIONS = """
-- Return the number of parts of a log, with those of the logs that it continues.
CREATE FUNCTION batonflow.log_length(wanted bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        (SELECT max(number) + 1 FROM batonflow.parts WHERE log = wanted),
        (SELECT begins FROM batonflow.part_logs WHERE id = wanted), 0)
$$;

-- Return the log and those that it continues, with the ends of the ranges that are read of them.
CREATE FUNCTION batonflow.line_of(wanted bigint) RETURNS TABLE (log bigint, until bigint) LANGUAGE sql STABLE AS $$
    WITH RECURSIVE line (log, until) AS (
        SELECT wanted, NULL::bigint
        UNION ALL
        SELECT p.parent, least(p.begins, line.until) FROM batonflow.part_logs AS p JOIN line ON p.id = line.log
    )
    SELECT * FROM line
$$;

-- Return the runs that write into a log, into the logs that it continues, and into all that continue these.
CREATE FUNCTION batonflow.conversation_of(wanted bigint) RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
    WITH RECURSIVE line (log) AS (
        SELECT log FROM batonflow.line_of(wanted) AS root (log, until)
        WHERE NOT EXISTS (SELECT FROM batonflow.part_logs WHERE id = root.log)
        UNION ALL
        SELECT p.id FROM batonflow.part_logs AS p JOIN line ON p.parent = line.log
    )
    SELECT id FROM batonflow.runs
    WHERE part_log IN (SELECT log FROM line) OR (part_log IS NULL AND id IN (SELECT log FROM line))
$$;

-- Delete a log that no run, no session and no other log needs, and then the log that it continues.
CREATE FUNCTION batonflow.collect_log(wanted bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    following bigint := wanted;
    parent_log bigint;
BEGIN
    WHILE following IS NOT NULL LOOP
        PERFORM pg_advisory_xact_lock(batonflow.lock_of_log(following));
        IF EXISTS (SELECT FROM batonflow.runs WHERE id = following AND part_log IS NULL)
            OR EXISTS (SELECT FROM batonflow.runs WHERE part_log = following)
            OR EXISTS (SELECT FROM batonflow.sessions WHERE part_log = following)
            OR EXISTS (SELECT FROM batonflow.part_logs WHERE parent = following) THEN
            RETURN;
        END IF;
        parent_log := (SELECT parent FROM batonflow.part_logs WHERE id = following);
        DELETE FROM batonflow.parts WHERE log = following;
        DELETE FROM batonflow.part_logs WHERE id = following;
        following := parent_log;
    END LOOP;
END $$;
"""

UPKEEP_FUNCTIONS = """
CREATE FUNCTION batonflow.fork(
    wanted text, place bigint, new_id text, bodies bytea[], crcs bigint[], new_nonce bigint
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    now float8 := batonflow.wall();
    source batonflow.runs;
    snapshot bigint;
    made bigint;
    length bigint;
BEGIN
    SELECT * INTO source FROM batonflow.runs WHERE run_id = wanted FOR NO KEY UPDATE;
    IF NOT FOUND OR place NOT BETWEEN 0 AND source.seq THEN
        RETURN 'unknown';
    END IF;
    IF EXISTS (SELECT FROM batonflow.runs WHERE run_id = new_id AND nonce = new_nonce) THEN
        RETURN 'forked';
    ELSIF EXISTS (SELECT FROM batonflow.runs WHERE run_id = new_id) THEN
        RETURN 'exists';
    END IF;
    snapshot := (SELECT max(seq) FROM batonflow.snapshots WHERE run = source.id AND seq <= place);
    IF place > 0 AND coalesce(snapshot, 0) < least(place, source.compacted) THEN
        RETURN 'compacted';
    END IF;
    INSERT INTO batonflow.runs (
        run_id, workflow, version, digest, shape, status, epoch, seq, compacted, stream_seq, due_at, created_at,
        updated_at, forked_from, forked_at, metadata, queue, priority, nonce
    ) VALUES (
        new_id, source.workflow, source.version, source.digest, source.shape, 'ready',
        (SELECT epoch_floor FROM batonflow.facts), place + cardinality(bodies), least(source.compacted, place),
        source.stream_seq, now, now, now, source.run_id, place, source.metadata, source.queue, source.priority,
        new_nonce
    ) ON CONFLICT (run_id) DO NOTHING RETURNING id INTO made;
    IF made IS NULL THEN
        RETURN 'exists';
    END IF;
    INSERT INTO batonflow.commits
        SELECT made, seq, at, body, crc FROM batonflow.commits WHERE run = source.id AND seq <= place;
    INSERT INTO batonflow.snapshots
        SELECT made, seq, body, crc FROM batonflow.snapshots WHERE run = source.id AND seq = snapshot;
    INSERT INTO batonflow.commits
        SELECT made, place + number, now, body, crc
        FROM unnest(bodies, crcs) WITH ORDINALITY AS new (body, crc, number);
    length := batonflow.log_length(coalesce(source.part_log, source.id));
    IF length > 0 THEN
        INSERT INTO batonflow.part_logs VALUES (made, coalesce(source.part_log, source.id), length);
    END IF;
    RETURN 'forked';
END $$;

CREATE FUNCTION batonflow.end_turn(
    turn_session bigint, turn_number bigint, new_status text, new_body bytea, new_crc bigint, log bigint
) RETURNS void LANGUAGE sql AS $$
    UPDATE batonflow.turns
    SET status = new_status, ended = batonflow.wall(), body = new_body, body_crc = new_crc
    WHERE session = turn_session AND number = turn_number AND status = 'running';
    UPDATE batonflow.sessions SET updated_at = batonflow.wall(), part_log = coalesce(part_log, log)
    WHERE id = turn_session;
$$;

-- Delete a run, whose row is locked, with its records; its turn in a session stays.
CREATE FUNCTION batonflow.remove(one batonflow.runs) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM batonflow.index_entries WHERE run = one.id;
    DELETE FROM batonflow.commits WHERE run = one.id;
    DELETE FROM batonflow.snapshots WHERE run = one.id;
    DELETE FROM batonflow.inbox WHERE run = one.id;
    DELETE FROM batonflow.results WHERE run = one.id;
    DELETE FROM batonflow.runs WHERE id = one.id;
    PERFORM batonflow.collect_log(coalesce(one.part_log, one.id));
    -- A former owner has an epoch up to this one, so a new run of the same name begins above it.
    UPDATE batonflow.facts SET epoch_floor = one.epoch WHERE epoch_floor < one.epoch;
    IF one.session IS NOT NULL AND one.status NOT IN ('completed', 'failed', 'cancelled') THEN
        PERFORM batonflow.end_turn(one.session, one.turn, 'cancelled', '', 0, coalesce(one.part_log, one.id));
    END IF;
END $$;

-- Delete a run, perhaps with its conversation; return the deleted ones, or the one that keeps all from being deleted.
CREATE FUNCTION batonflow.delete(wanted bigint, is_forced boolean, with_conversation boolean)
RETURNS TABLE (outcome text, deleted text, driver text) LANGUAGE plpgsql AS $$
DECLARE
    first batonflow.runs;
    one batonflow.runs;
    numbers bigint[];
BEGIN
    SELECT * INTO first FROM batonflow.runs WHERE id = wanted;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    numbers := ARRAY[first.id];
    IF with_conversation THEN
        numbers := ARRAY(SELECT batonflow.conversation_of(coalesce(first.part_log, first.id)));
    END IF;
    FOR one IN SELECT * FROM batonflow.runs WHERE id = ANY (numbers) ORDER BY run_id FOR UPDATE LOOP
        IF with_conversation AND one.session IS NOT NULL THEN
            RETURN QUERY SELECT 'in session', one.run_id, one.owner;
            RETURN;
        ELSIF NOT is_forced AND batonflow.is_driven(one) THEN
            RETURN QUERY SELECT 'driven', one.run_id, one.owner;
            RETURN;
        END IF;
    END LOOP;
    FOR one IN SELECT * FROM batonflow.runs WHERE id = ANY (numbers) ORDER BY id LOOP
        PERFORM batonflow.remove(one);
        RETURN QUERY SELECT 'deleted', one.run_id, one.owner;
    END LOOP;
END $$;

CREATE FUNCTION batonflow.compact(wanted text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    one batonflow.runs;
    newest bigint;
    dropped bigint;
BEGIN
    SELECT * INTO one FROM batonflow.runs WHERE run_id = wanted FOR NO KEY UPDATE;
    newest := (SELECT max(seq) FROM batonflow.snapshots WHERE run = one.id AND seq <= one.seq);
    IF newest IS NULL THEN
        RETURN 0;
    END IF;
    DELETE FROM batonflow.commits WHERE run = one.id AND seq <= newest;
    GET DIAGNOSTICS dropped = ROW_COUNT;
    DELETE FROM batonflow.snapshots WHERE run = one.id AND seq < newest;
    UPDATE batonflow.runs SET compacted = newest WHERE id = one.id;
    RETURN dropped;
END $$;

-- Delete some of the runs that ended before a time, the oldest first, and return their ids.
CREATE FUNCTION batonflow.retire(age float8, most bigint) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    before float8 := batonflow.wall() - age;
    one batonflow.runs;
BEGIN
    FOR one IN
        SELECT * FROM batonflow.runs WHERE ended_at < before ORDER BY ended_at LIMIT most FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM batonflow.remove(one);
        RETURN NEXT one.run_id;
    END LOOP;
END $$;
"""

SESSION_FUNCTIONS = """
-- Return the next number of a turn without a run. A deleted session of this name may have left runs.
CREATE FUNCTION batonflow.next_turn(wanted text, last bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    number bigint := last + 1;
BEGIN
    WHILE EXISTS (SELECT FROM batonflow.runs WHERE run_id = wanted || ':' || number) LOOP
        number := number + 1;
    END LOOP;
    RETURN number;
END $$;

CREATE FUNCTION batonflow.live_tickets(wanted text) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now float8 := batonflow.wall();
BEGIN
    RETURN ARRAY(
        SELECT ticket FROM batonflow.session_queue
        WHERE session = wanted AND until > now AND batonflow.is_alive(owner) ORDER BY ticket);
END $$;

-- Return the locked row of a session, which is made if it does not exist.
CREATE FUNCTION batonflow.hold_session(wanted text, new_workflow text) RETURNS batonflow.sessions
LANGUAGE plpgsql AS $$
DECLARE
    now float8 := batonflow.wall();
    one batonflow.sessions;
BEGIN
    SELECT * INTO one FROM batonflow.sessions WHERE name = wanted FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO batonflow.sessions (name, workflow, created_at, updated_at) VALUES (wanted, new_workflow, now, now)
        ON CONFLICT (name) DO NOTHING;
        SELECT * INTO one FROM batonflow.sessions WHERE name = wanted FOR UPDATE;
    END IF;
    RETURN one;
END $$;

-- Tell whether the last turn of a session is not over.
CREATE FUNCTION batonflow.has_open_turn(one batonflow.sessions) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM batonflow.turns WHERE session = one.id AND number = one.last AND status = 'running')
$$;

-- Say whether a turn may begin, and lock its session; otherwise give it a ticket, if it queues.
CREATE FUNCTION batonflow.admit_turn(
    wanted text, new_workflow text, new_number bigint, request text, seen_turns bigint, old_ticket bigint,
    queues boolean, patience float8, new_owner text, new_nonce bigint,
    OUT outcome text, OUT session bigint, OUT ticket bigint
) LANGUAGE plpgsql AS $$
DECLARE
    now float8 := batonflow.wall();
    one batonflow.sessions := batonflow.hold_session(wanted, new_workflow);
    waiting bigint[] := batonflow.live_tickets(wanted);
    is_known boolean := EXISTS (
        SELECT FROM batonflow.turns AS t
        WHERE t.session = one.id AND t.request_id = request AND t.number <= one.last);
BEGIN
    session := one.id;
    IF EXISTS (SELECT FROM batonflow.runs WHERE run_id = wanted || ':' || new_number AND nonce = new_nonce) THEN
        outcome := 'begun';
    ELSIF batonflow.has_open_turn(one) OR is_known OR batonflow.next_turn(wanted, one.last) <> new_number
        OR seen_turns <> one.turns OR coalesce(waiting[1], old_ticket) IS DISTINCT FROM old_ticket THEN
        outcome := 'refused';
        IF queues AND NOT is_known THEN
            UPDATE batonflow.session_queue AS q SET until = now + patience
            WHERE q.ticket = old_ticket AND q.session = wanted RETURNING q.ticket INTO ticket;
            IF ticket IS NULL THEN
                DELETE FROM batonflow.session_queue AS q WHERE q.session = wanted AND q.until <= now;
                INSERT INTO batonflow.session_queue AS q (session, owner, until)
                VALUES (wanted, new_owner, now + patience) RETURNING q.ticket INTO ticket;
            END IF;
        END IF;
    ELSE
        outcome := 'admitted';
    END IF;
END $$;

-- Add the turn of a run that was created in this transaction.
CREATE FUNCTION batonflow.begin_turn(
    wanted bigint, new_number bigint, new_run text, request text, new_digest text, new_asked bytea, new_crc bigint,
    log bigint, old_ticket bigint
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO batonflow.turns
    VALUES (wanted, new_number, new_run, 'running', batonflow.wall(), NULL, request, new_digest, new_asked, '', new_crc,
            0);
    UPDATE batonflow.sessions
    SET last = new_number, turns = turns + 1, updated_at = batonflow.wall(), part_log = log WHERE id = wanted;
    DELETE FROM batonflow.session_queue AS q USING batonflow.sessions AS s
    WHERE q.ticket = old_ticket AND s.id = wanted AND q.session = s.name;
$$;

CREATE FUNCTION batonflow.change_session(
    wanted text, new_workflow text, seen_last bigint, seen_turns bigint, is_deleted boolean, undo_after bigint,
    added jsonb, new_change bigint
) RETURNS TABLE (is_done boolean, deleted text) LANGUAGE plpgsql AS $$
DECLARE
    one batonflow.sessions;
    run batonflow.runs;
BEGIN
    SELECT * INTO one FROM batonflow.sessions WHERE name = wanted FOR UPDATE;
    IF one.change = new_change THEN
        RETURN QUERY SELECT TRUE, NULL;
        RETURN;
    ELSIF coalesce(one.last, 0) <> seen_last OR coalesce(one.turns, 0) <> seen_turns
        OR (one.id IS NOT NULL AND batonflow.has_open_turn(one)) THEN
        RETURN QUERY SELECT FALSE, NULL;
        RETURN;
    END IF;
    IF is_deleted THEN
        FOR run IN
            SELECT r.* FROM batonflow.turns AS t JOIN batonflow.runs AS r
                ON r.run_id = t.run_id AND r.session = t.session AND r.turn = t.number
            WHERE t.session = one.id ORDER BY r.run_id FOR UPDATE OF r
        LOOP
            PERFORM batonflow.remove(run);
            RETURN QUERY SELECT TRUE, run.run_id;
        END LOOP;
        DELETE FROM batonflow.turns WHERE session = one.id;
        DELETE FROM batonflow.session_queue WHERE session = wanted;
        DELETE FROM batonflow.sessions WHERE id = one.id;
        IF one.part_log IS NOT NULL THEN
            PERFORM batonflow.collect_log(one.part_log);
        END IF;
    ELSE
        one := batonflow.hold_session(wanted, new_workflow);
        UPDATE batonflow.turns SET undone = TRUE WHERE session = one.id AND number > undo_after;
        INSERT INTO batonflow.turns
            SELECT one.id, new.number, new.run_id, new.status, new.started, new.ended, new.request_id, new.digest,
                new.asked, new.body, new.asked_crc, new.body_crc
            FROM jsonb_populate_recordset(NULL::batonflow.turns, added) AS new;
        UPDATE batonflow.sessions
        SET last = greatest(one.last, (SELECT max(number) FROM batonflow.turns WHERE session = one.id)),
            updated_at = batonflow.wall(), change = new_change,
            turns = (SELECT count(*) FROM batonflow.turns WHERE session = one.id AND NOT undone)
        WHERE id = one.id;
    END IF;
    RETURN QUERY SELECT TRUE, NULL;
END $$;
"""
