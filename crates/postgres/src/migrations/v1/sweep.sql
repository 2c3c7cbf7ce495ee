-- Leases that have ended unsettled: their attempt was spent, and failed, if it had begun. Says how many.
CREATE FUNCTION end_leases(p_max integer) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint := now_ms();
    seqs bigint[];
    ended integer;
BEGIN
    seqs := ARRAY(SELECT l.seq FROM lease l WHERE l.ends_at <= now LIMIT p_max);
    IF cardinality(seqs) = 0 THEN
        RETURN 0;
    END IF;
    seqs := ARRAY(SELECT p.seq FROM pending p WHERE p.seq = ANY (seqs) FOR UPDATE SKIP LOCKED);
    WITH gone AS (
        DELETE FROM lease l WHERE l.seq = ANY (seqs) AND l.ends_at <= now RETURNING l.seq, l.in_transit
    ), spent AS (
        UPDATE pending p SET spent = p.spent + 1, failures = p.failures + 1
        FROM gone g WHERE p.seq = g.seq AND NOT g.in_transit
    )
    SELECT count(*) INTO ended FROM gone;
    RETURN ended;
END
$$;

CREATE FUNCTION expire_all(p_max integer) RETURNS integer LANGUAGE sql VOLATILE AS $$
    SELECT expire(NULL, now_ms(), p_max)
$$;

-- Keys whose window is over, a slice of them. The time is read beforehand: a condition that reads it row by row has no use
-- for an index.
CREATE FUNCTION forget_keys(p_window_ms bigint, p_max integer) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    before bigint := now_ms() - p_window_ms;
    forgotten integer;
BEGIN
    DELETE FROM key WHERE key IN (
        SELECT o.key FROM key o WHERE o.admitted_at <= before
        ORDER BY o.admitted_at LIMIT p_max FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;
