-- Leases that have ended unsettled, in whatever queue. Says how many.
CREATE FUNCTION end_leases(p_max integer) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint := now_ms();
    name text;
    ended integer := 0;
BEGIN
    -- Of every queue with leases, no matter how many there are in it.
    SELECT min(p.queue) INTO name FROM pending p WHERE p.token IS NOT NULL;
    WHILE name IS NOT NULL AND ended < p_max LOOP
        ended := ended + lapse(name, now, p_max - ended);
        SELECT min(p.queue) INTO name FROM pending p WHERE p.token IS NOT NULL AND p.queue > name;
    END LOOP;
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
