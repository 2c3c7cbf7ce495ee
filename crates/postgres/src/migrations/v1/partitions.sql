-- Messages, outcomes and attempts stand in partitions of so many numbers each, named alike by where they begin. What is
-- kept of a dropped range (dead letters, and what has not been settled for long enough) stands in the first ones.
CREATE TABLE message_kept PARTITION OF message FOR VALUES FROM (MINVALUE) TO (0);
CREATE TABLE outcome_kept PARTITION OF outcome FOR VALUES FROM (MINVALUE) TO (0);
CREATE TABLE attempt_kept PARTITION OF attempt FOR VALUES FROM (MINVALUE) TO (0);
CREATE INDEX outcome_kept_age ON outcome_kept (at) WHERE status <> 2;

CREATE TABLE partition (
    first    bigint PRIMARY KEY,
    past_end bigint NOT NULL
);

-- Makes sure of a partition beyond the one that is being filled. One session at a time does so.
-- Attached, not created in place: that stands in nobody's way.
CREATE FUNCTION ensure_partitions(p_messages bigint) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    next_seq bigint := (SELECT last_value + is_called::integer FROM message_seq);
    first bigint;
    made integer := 0;
    name text;
BEGIN
    SELECT coalesce(max(past_end), 0) INTO first FROM partition;
    IF first > next_seq + p_messages THEN
        RETURN 0;
    ELSIF first <= next_seq THEN
        -- There is none for the next message: whoever is making it is waited for.
        PERFORM pg_advisory_xact_lock(hashtextextended('tidegate partitions', 0));
    ELSIF NOT pg_try_advisory_xact_lock(hashtextextended('tidegate partitions', 0)) THEN
        RETURN 0;
    END IF;
    -- Numbers that nobody will draw any more need no partition.
    SELECT greatest(max(past_end), next_seq) INTO first FROM partition;
    WHILE first <= next_seq + p_messages LOOP
        FOREACH name IN ARRAY ARRAY['message', 'outcome', 'attempt'] LOOP
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', name || '_' || first, name);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
                name, name || '_' || first, first, first + p_messages);
        END LOOP;
        INSERT INTO partition VALUES (first, first + p_messages);
        first := first + p_messages;
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;

-- The first partition, if its last message was admitted long enough ago.
CREATE FUNCTION old_partition(p_retention_ms bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    oldest partition;
    youngest bigint;
BEGIN
    SELECT * INTO oldest FROM partition p ORDER BY p.first LIMIT 1;
    IF oldest.first IS NULL OR oldest.past_end > (SELECT last_value FROM message_seq) THEN
        RETURN NULL;
    END IF;
    EXECUTE format('SELECT admitted_at FROM %I ORDER BY seq DESC LIMIT 1', 'message_' || oldest.first) INTO youngest;
    RETURN CASE WHEN coalesce(youngest <= now_ms() - p_retention_ms, true) THEN oldest.first END;
END
$$;

-- Drops the first partition, and moves what is pending, dead, or ended too short a time ago to those of the kept. Whoever
-- reads or writes messages waits meanwhile. It waits for them only shortly, less than it takes to look for a deadlock: then
-- it fails, to be tried again.
CREATE FUNCTION drop_partition(p_first bigint, p_retention_ms bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    kept bigint[];
    oldest partition;
    name text;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('tidegate partitions', 0)) THEN
        RETURN;
    END IF;
    SELECT * INTO oldest FROM partition p ORDER BY p.first LIMIT 1;
    IF oldest.first IS DISTINCT FROM p_first THEN
        RETURN;
    END IF;
    PERFORM set_config('lock_timeout', '50', true);
    LOCK TABLE message, outcome, attempt IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('SELECT array_agg(seq) FROM (
            SELECT seq FROM pending WHERE seq >= $1 AND seq < $2
            UNION ALL SELECT seq FROM %I WHERE status = 2 OR at > $3) k', 'outcome_' || p_first)
        INTO kept USING oldest.first, oldest.past_end, now_ms() - p_retention_ms;
    FOREACH name IN ARRAY ARRAY['message', 'outcome', 'attempt'] LOOP
        EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', name, name || '_kept');
        EXECUTE format('INSERT INTO %I SELECT * FROM %I WHERE seq = ANY ($1)', name || '_kept', name || '_' || p_first)
            USING kept;
        EXECUTE format('DROP TABLE %I', name || '_' || p_first);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%s)',
            name, name || '_kept', oldest.past_end);
    END LOOP;
    DELETE FROM partition WHERE first = p_first;
END
$$;

-- A slice of what was kept and has been ended for long enough since.
CREATE FUNCTION forget_kept(p_retention_ms bigint, p_max integer) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    seqs bigint[];
BEGIN
    seqs := ARRAY(
        SELECT o.seq FROM outcome_kept o WHERE o.status <> 2 AND o.at <= now_ms() - p_retention_ms
        ORDER BY o.at LIMIT p_max FOR UPDATE SKIP LOCKED);
    DELETE FROM attempt a WHERE a.seq = ANY (seqs);
    DELETE FROM outcome o WHERE o.seq = ANY (seqs);
    DELETE FROM message m WHERE m.seq = ANY (seqs);
    RETURN cardinality(seqs);
END
$$;
