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

-- Books messages from one status (null: none yet) to another. The last step of every change, in the order of names.
CREATE FUNCTION book(p_queue text[], p_lane smallint[], p_was smallint[], p_became smallint[]) RETURNS void
LANGUAGE sql VOLATILE AS $$
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
        normal = t.normal + excluded.normal, low = t.low + excluded.low
$$;

-- How many are pending, without those whose time is over and that nobody has booked as expired yet.
CREATE FUNCTION pending_in(p_queue text, p_now bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    pending bigint;
BEGIN
    SELECT coalesce(sum(t.high + t.normal + t.low), 0) INTO pending FROM tally t WHERE t.queue = p_queue;
    IF EXISTS (SELECT FROM pending p WHERE p.expires_at <= p_now) THEN
        pending := pending - (
            SELECT count(*) FROM pending p
            WHERE p.expires_at <= p_now AND p_queue IN ('', p.queue)
                AND NOT EXISTS (SELECT FROM lease l WHERE l.seq = p.seq AND l.ends_at > p_now));
    END IF;
    RETURN pending;
END
$$;
