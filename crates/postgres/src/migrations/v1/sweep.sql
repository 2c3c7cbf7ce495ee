-- Leases that have ended unsettled, in whatever queue. Says how many. The queues' bounds on attempts are given by name; the
-- queue '' is every other one.
CREATE FUNCTION end_leases(p_max integer, p_queues text[], p_attempts_max integer[]) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint := now_ms();
    name text;
    bound integer;
    ended integer := 0;
BEGIN
    -- Of every queue with leases, no matter how many there are in it.
    SELECT min(p.queue) INTO name FROM pending p WHERE p.token IS NOT NULL;
    WHILE name IS NOT NULL AND ended < p_max LOOP
        bound := p_attempts_max[coalesce(array_position(p_queues, name), array_position(p_queues, ''))];
        ended := ended + give_up(name, now, p_max - ended, bound);
        ended := ended + lapse(name, now, p_max - ended, bound);
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

-- Queues that are empty, not paused and not among the configured ones, and whose books have not changed for so long, with
-- these books; what the whole ledger counts stays. Each queue is looked at so often and no more, by whichever gateway comes
-- first. Returns how many were looked at.
--
-- An admission changes a book of its queue, or makes one and touches the queue (`know_queue`). So a session that holds the queue's
-- row and all of its books knows that no admission is under way which another one could not see: a later one finds neither,
-- and makes both anew. Nothing here waits for a lock.
CREATE FUNCTION forget_queues(p_after_ms bigint, p_every_ms bigint, p_configured text[], p_max integer) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint := now_ms();
    looked integer := 0;
    q record;
    books bigint[];
    depth bigint;
    held integer;
BEGIN
    FOR q IN
        SELECT o.name, o.seen, o.idle_since FROM queue o
        WHERE o.looked_at <= now - p_every_ms AND NOT o.paused AND NOT o.name = ANY (p_configured)
        ORDER BY o.looked_at LIMIT p_max FOR UPDATE SKIP LOCKED
    LOOP
        looked := looked + 1;
        SELECT ARRAY[coalesce(sum(t.admitted), 0), coalesce(sum(t.delivered), 0), coalesce(sum(t.dead), 0),
                coalesce(sum(t.expired), 0), coalesce(sum(t.deleted), 0)]::bigint[],
            coalesce(sum(t.high + t.normal + t.low), 0)
        INTO books, depth FROM tally t WHERE t.queue = q.name;
        IF depth <> 0 OR books <> q.seen THEN
            UPDATE queue o SET seen = books, idle_since = now, looked_at = now WHERE o.name = q.name;
            CONTINUE;
        END IF;
        IF now - q.idle_since >= p_after_ms THEN
            SELECT count(*) INTO held FROM (
                SELECT FROM tally t WHERE t.queue = q.name FOR UPDATE SKIP LOCKED) t;
            -- Read again: what committed before its book could be held is seen now.
            SELECT ARRAY[coalesce(sum(t.admitted), 0), coalesce(sum(t.delivered), 0), coalesce(sum(t.dead), 0),
                coalesce(sum(t.expired), 0), coalesce(sum(t.deleted), 0)]::bigint[]
            INTO books FROM tally t WHERE t.queue = q.name HAVING count(*) = held;
            IF books = q.seen THEN
                DELETE FROM tally t WHERE t.queue = q.name;
                DELETE FROM queue o WHERE o.name = q.name;
                CONTINUE;
            END IF;
        END IF;
        UPDATE queue o SET looked_at = now WHERE o.name = q.name;
    END LOOP;
    RETURN looked;
END
$$;
