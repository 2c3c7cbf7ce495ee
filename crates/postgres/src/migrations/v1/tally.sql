-- The books. Every connection adds to rows of its own, so that nobody waits for a counter; a sum is the truth.
-- The queue '' is the whole ledger.
CREATE TABLE tally (
    queue     text COLLATE "C" NOT NULL,
    stripe    smallint NOT NULL,
    admitted  bigint NOT NULL,
    delivered bigint NOT NULL,
    dead      bigint NOT NULL,
    expired   bigint NOT NULL,
    deleted   bigint NOT NULL,
    high      bigint NOT NULL,
    normal    bigint NOT NULL,
    low       bigint NOT NULL,
    PRIMARY KEY (queue, stripe)
) WITH (fillfactor = 50);

-- Where there is a book, there is its queue. Touching the queue's row keeps it from being forgotten before this book can be
-- seen. Only the first use of a book by a connection comes here: later ones meet the book itself.
CREATE FUNCTION know_queue() RETURNS trigger LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO queue (name) VALUES (NEW.queue) ON CONFLICT (name) DO UPDATE SET seen = '{}';
    RETURN NULL;
END
$$;
CREATE TRIGGER tally_queue AFTER INSERT ON tally FOR EACH ROW WHEN (NEW.queue <> '') EXECUTE FUNCTION know_queue();

-- Books messages from one status (null: none yet) to another. The last step of every change, in the order of names.
CREATE FUNCTION book(p_queue text[], p_lane smallint[], p_was smallint[], p_became smallint[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO tally AS t
    SELECT coalesce(m.queue, ''), (pg_backend_pid() % 32)::smallint,
        count(*) FILTER (WHERE was IS NULL),
        count(*) FILTER (WHERE became = 1) - count(*) FILTER (WHERE was = 1),
        count(*) FILTER (WHERE became = 2) - count(*) FILTER (WHERE was = 2),
        count(*) FILTER (WHERE became = 3) - count(*) FILTER (WHERE was = 3),
        count(*) FILTER (WHERE became = 4) - count(*) FILTER (WHERE was = 4),
        count(*) FILTER (WHERE became = 0 AND lane = 0) - count(*) FILTER (WHERE was = 0 AND lane = 0),
        count(*) FILTER (WHERE became = 0 AND lane = 1) - count(*) FILTER (WHERE was = 0 AND lane = 1),
        count(*) FILTER (WHERE became = 0 AND lane = 2) - count(*) FILTER (WHERE was = 0 AND lane = 2)
    FROM unnest(p_queue, p_lane, p_was, p_became) AS m (queue, lane, was, became)
    GROUP BY GROUPING SETS ((m.queue), ())
    HAVING count(*) > 0
    ORDER BY 1
    ON CONFLICT (queue, stripe) DO UPDATE SET
        admitted = t.admitted + excluded.admitted, delivered = t.delivered + excluded.delivered,
        dead = t.dead + excluded.dead, expired = t.expired + excluded.expired,
        deleted = t.deleted + excluded.deleted, high = t.high + excluded.high,
        normal = t.normal + excluded.normal, low = t.low + excluded.low;
END
$$;

-- How many more messages there is room for. Those whose time is over stand in the books until somebody ends them, so they
-- are counted off where the room would not do without them, as far as that takes, and up to a bound.
CREATE FUNCTION room_in(p_queue text, p_max bigint, p_wanted bigint, p_now bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    room bigint;
    over bigint := 0;
    over_max bigint;
BEGIN
    SELECT p_max - coalesce(sum(t.high + t.normal + t.low), 0) INTO room FROM tally t WHERE t.queue = p_queue;
    over_max := least(p_wanted - room, 10000);
    IF over_max > 0 AND p_queue = '' THEN
        SELECT count(*) INTO over FROM (
            SELECT FROM pending p
            WHERE p.expires_at <= p_now
                AND (p.ends_at IS NULL OR p.ends_at <= p_now)
            ORDER BY p.expires_at LIMIT over_max) o;
    ELSIF over_max > 0 THEN
        SELECT count(*) INTO over FROM (
            SELECT FROM pending p
            WHERE p.queue = p_queue AND p.expires_at <= p_now
                AND (p.ends_at IS NULL OR p.ends_at <= p_now)
            ORDER BY p.expires_at LIMIT over_max) o;
    END IF;
    RETURN room + over;
END
$$;
