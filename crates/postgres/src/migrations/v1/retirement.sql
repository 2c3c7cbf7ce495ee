-- How old messages go. Of ranges that are old enough, what is kept (what is pending, dead, or ended too short a time ago) is
-- copied aside, slice by slice, while everybody works on; then the copies take the place of the ranges, which are dropped.
-- Only that last step stands in others' way, and it takes no longer for a million messages than for one.
-- Whoever may execute it need not own the tables.
CREATE TABLE retirement (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    first     bigint NOT NULL,
    past_end  bigint NOT NULL,
    -- The last number that was looked at, and how many messages were copied so far.
    copied_to bigint NOT NULL,
    kept      bigint NOT NULL DEFAULT 0
);

-- Messages of these ranges that somebody has changed meanwhile: to be copied again.
CREATE TABLE touched (
    seq bigint NOT NULL
);

CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO touched VALUES (coalesce(NEW.seq, OLD.seq));
    RETURN NULL;
END
$$;

-- Who may change partitions. One session at a time.
CREATE FUNCTION hold_partitions() RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT pg_try_advisory_xact_lock(hashtextextended('tidegate partitions', 0))
$$;

-- Whether the last message of a partition was admitted long enough ago.
CREATE FUNCTION is_old(p partition, p_before bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    youngest bigint;
BEGIN
    IF p.past_end > (SELECT last_value FROM message_seq) THEN
        RETURN false;
    END IF;
    EXECUTE format('SELECT admitted_at FROM %I ORDER BY seq DESC LIMIT 1', 'message_' || p.first) INTO youngest;
    RETURN coalesce(youngest <= p_before, true);
END
$$;

-- How much a retired range still holds, as far as the server has counted.
CREATE FUNCTION kept_now(p partition) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT nullif(c.reltuples, -1)::bigint FROM pg_class c
        WHERE c.oid = format('%I', 'message_' || p.first)::regclass), p.kept)
$$;

-- What is to be retired next: the first range that is old enough, or two that were and hold little. A retired range that
-- holds little joins the one behind it, so that there are never many.
CREATE FUNCTION to_retire(p_before bigint, p_little bigint, OUT first bigint, OUT past_end bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    -- Named in full: these types are looked up once per session, whoever calls first.
    p tidegate.partition;
    before_it tidegate.partition;
    held bigint;
    held_before bigint;
BEGIN
    FOR p IN SELECT * FROM partition o ORDER BY o.first LOOP
        IF p.kept IS NULL AND NOT is_old(p, p_before) THEN
            RETURN;
        END IF;
        held := CASE WHEN p.kept IS NULL THEN 0 ELSE kept_now(p) END;
        IF p.kept IS NULL OR held_before + held <= p_little THEN
            first := CASE WHEN held_before <= p_little THEN before_it.first ELSE p.first END;
            past_end := p.past_end;
            RETURN;
        END IF;
        before_it := p;
        held_before := held;
    END LOOP;
END
$$;

-- Begins to retire a range, unless one is being retired. Says whether there is one.
CREATE FUNCTION begin_retirement(p_retention_ms bigint, p_little bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE
SECURITY DEFINER SET search_path TO tidegate, pg_temp AS $$
DECLARE
    chosen record;
    source bigint;
    name text;
BEGIN
    IF NOT hold_partitions() THEN
        RETURN false;
    ELSIF EXISTS (SELECT FROM retirement) THEN
        RETURN true;
    END IF;
    SELECT * INTO chosen FROM to_retire(now_ms() - p_retention_ms, p_little);
    IF chosen.first IS NULL THEN
        RETURN false;
    END IF;
    -- A trigger waits for those who write, and they for it: shortly, less than it takes to look for a deadlock.
    PERFORM set_config('lock_timeout', '50', true);
    FOREACH name IN ARRAY ARRAY['message', 'outcome', 'attempt'] LOOP
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', name || '_rest', name);
        -- With it, nobody has to look at the rows when they take their place.
        EXECUTE format('ALTER TABLE %I ADD CONSTRAINT rest_range CHECK (seq >= %s AND seq < %s)',
            name || '_rest', chosen.first, chosen.past_end);
        FOR source IN SELECT p.first FROM partition p WHERE p.first >= chosen.first AND p.first < chosen.past_end LOOP
            EXECUTE format('CREATE TRIGGER touched AFTER INSERT OR UPDATE OR DELETE ON %I
                FOR EACH ROW EXECUTE FUNCTION touch()', name || '_' || source);
        END LOOP;
    END LOOP;
    CREATE INDEX ON outcome_rest (at) WHERE status <> 2;
    INSERT INTO retirement (first, past_end, copied_to) VALUES (chosen.first, chosen.past_end, chosen.first - 1);
    RETURN true;
END
$$;

CREATE FUNCTION copy_aside(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['message', 'outcome', 'attempt'] LOOP
        EXECUTE format('INSERT INTO %I SELECT * FROM %I WHERE seq = ANY ($1)', name || '_rest', name) USING p_seqs;
    END LOOP;
END
$$;

-- Copies what is kept of the next so many messages. Says whether that was all.
CREATE FUNCTION retire_slice(p_retention_ms bigint, p_max integer) RETURNS boolean LANGUAGE plpgsql VOLATILE
SECURITY DEFINER SET search_path TO tidegate, pg_temp AS $$
DECLARE
    before bigint := now_ms() - p_retention_ms;
    r retirement;
    upto bigint;
    seqs bigint[];
BEGIN
    IF NOT hold_partitions() THEN
        RETURN false;
    END IF;
    SELECT * INTO r FROM retirement;
    IF r.first IS NULL OR r.copied_to = r.past_end - 1 THEN
        RETURN r.first IS NOT NULL;
    END IF;
    SELECT m.seq INTO upto FROM message m
    WHERE m.seq > r.copied_to AND m.seq < r.past_end ORDER BY m.seq OFFSET p_max - 1 LIMIT 1;
    upto := coalesce(upto, r.past_end - 1);
    -- What has ended stays as it is, and what is kept tells when it is touched.
    seqs := ARRAY(
        SELECT p.seq FROM pending p WHERE p.seq > r.copied_to AND p.seq <= upto
        UNION SELECT o.seq FROM outcome o
        WHERE o.seq > r.copied_to AND o.seq <= upto AND (o.status = 2 OR o.at > before));
    PERFORM copy_aside(seqs);
    UPDATE retirement SET copied_to = upto, kept = kept + cardinality(seqs);
    RETURN upto = r.past_end - 1;
END
$$;

-- Copies again what was changed since it was copied. Says how much that was.
CREATE FUNCTION catch_up(p_max integer) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    seqs bigint[];
    found integer;
    name text;
BEGIN
    WITH gone AS (
        DELETE FROM touched WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM touched t LIMIT p_max)) RETURNING seq
    )
    SELECT array_agg(DISTINCT g.seq) FILTER (WHERE g.seq <= r.copied_to), count(*) INTO seqs, found
    FROM gone g CROSS JOIN retirement r;
    IF seqs IS NOT NULL THEN
        FOREACH name IN ARRAY ARRAY['message', 'outcome', 'attempt'] LOOP
            EXECUTE format('DELETE FROM %I WHERE seq = ANY ($1)', name || '_rest') USING seqs;
        END LOOP;
        PERFORM copy_aside(seqs);
    END IF;
    RETURN found;
END
$$;

-- Puts the copies into the place of the ranges, when all is copied. Says whether it is done. Waits for others only shortly,
-- less than it takes to look for a deadlock: then it fails, to be tried again.
CREATE FUNCTION end_retirement() RETURNS boolean LANGUAGE plpgsql VOLATILE
SECURITY DEFINER SET search_path TO tidegate, pg_temp AS $$
DECLARE
    r retirement;
    source bigint;
    name text;
BEGIN
    IF NOT hold_partitions() THEN
        RETURN false;
    END IF;
    SELECT * INTO r FROM retirement;
    IF r.first IS NULL OR r.copied_to < r.past_end - 1 OR catch_up(1000) = 1000 THEN
        RETURN false;
    END IF;
    PERFORM set_config('lock_timeout', '50', true);
    LOCK TABLE message, outcome, attempt IN ACCESS EXCLUSIVE MODE;
    IF catch_up(1000) = 1000 THEN
        RETURN false;
    END IF;
    FOREACH name IN ARRAY ARRAY['message', 'outcome', 'attempt'] LOOP
        FOR source IN SELECT p.first FROM partition p WHERE p.first >= r.first AND p.first < r.past_end LOOP
            EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', name, name || '_' || source);
            EXECUTE format('DROP TABLE %I', name || '_' || source);
        END LOOP;
        EXECUTE format('ALTER TABLE %I RENAME TO %I', name || '_rest', name || '_' || r.first);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
            name, name || '_' || r.first, r.first, r.past_end);
        EXECUTE format('ALTER TABLE %I DROP CONSTRAINT rest_range', name || '_' || r.first);
    END LOOP;
    DELETE FROM partition p WHERE p.first >= r.first AND p.first < r.past_end;
    INSERT INTO partition VALUES (r.first, r.past_end, r.kept);
    DELETE FROM retirement;
    RETURN true;
END
$$;

-- A slice of what was kept and has been ended for long enough since.
CREATE FUNCTION forget_kept(p_retention_ms bigint, p_max integer) RETURNS integer LANGUAGE plpgsql VOLATILE
SECURITY DEFINER SET search_path TO tidegate, pg_temp AS $$
DECLARE
    before bigint := now_ms() - p_retention_ms;
    place text;
    seqs bigint[];
BEGIN
    FOR place IN SELECT 'kept' UNION ALL (SELECT p.first::text FROM partition p WHERE p.kept IS NOT NULL ORDER BY p.first) LOOP
        EXECUTE format('SELECT ARRAY(
                SELECT o.seq FROM %I o WHERE o.status <> 2 AND o.at <= $1
                ORDER BY o.at LIMIT $2 FOR UPDATE SKIP LOCKED)', 'outcome_' || place)
            INTO seqs USING before, p_max;
        EXIT WHEN cardinality(seqs) > 0;
    END LOOP;
    DELETE FROM attempt a WHERE a.seq = ANY (seqs);
    DELETE FROM outcome o WHERE o.seq = ANY (seqs);
    DELETE FROM message m WHERE m.seq = ANY (seqs);
    RETURN cardinality(seqs);
END
$$;
