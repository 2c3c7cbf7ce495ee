-- The fixed window per user, as in the domain's `Quota`: refreshed lazily, with deferrals into later windows.

-- Windows that have begun since are open.
CREATE FUNCTION quota_opened(q quota, p_now bigint) RETURNS quota LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    WHILE cardinality(q.later_at) > 0 AND q.later_at[1] <= p_now LOOP
        IF q.later_at[1] > q.since THEN
            q.since := q.later_at[1];
            q.count := q.later[1];
        ELSE
            q.count := q.count + q.later[1];
        END IF;
        q.later_at := q.later_at[2:];
        q.later := q.later[2:];
    END LOOP;
    RETURN q;
END
$$;

-- Counts one message, or defers it to the first later window with room that begins within the horizon (null: it is
-- denied instead).
CREATE FUNCTION quota_charge(
    INOUT q quota, p_now bigint, p_horizon_ms bigint, OUT passed boolean, OUT deferred_to bigint
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    begins bigint;
    place integer;
    windows integer;
BEGIN
    -- A window that seems to begin in the future (the clock was set back) begins now and keeps its count.
    q.since := least(q.since, p_now);
    q := quota_opened(q, p_now);
    IF p_now - q.since >= q.window_ms THEN
        q.since := p_now;
        q.count := 0;
        -- What is already due within the new window is part of it.
        WHILE cardinality(q.later_at) > 0 AND q.later_at[1] < p_now + q.window_ms LOOP
            q.count := q.count + q.later[1];
            q.later_at := q.later_at[2:];
            q.later := q.later[2:];
        END LOOP;
    END IF;
    passed := q.count < q.max;
    IF passed THEN
        q.count := q.count + 1;
        RETURN;
    ELSIF p_horizon_ms IS NULL THEN
        RETURN;
    END IF;
    windows := cardinality(q.later_at);
    place := 1;
    WHILE place <= windows AND q.later[place] >= q.max LOOP
        place := place + 1;
    END LOOP;
    IF place <= windows THEN
        begins := q.later_at[place];
    ELSE
        begins := (CASE WHEN windows > 0 THEN q.later_at[windows] ELSE q.since END) + q.window_ms;
        IF windows >= 1000 THEN
            RETURN;
        END IF;
    END IF;
    IF begins - p_now > p_horizon_ms THEN
        RETURN;
    END IF;
    q.later_at[place] := begins;
    q.later[place] := coalesce(q.later[place], 0) + 1;
    deferred_to := begins;
END
$$;

-- A fresh window. What was deferred stays due when it was, and counts in the windows it now falls into.
CREATE FUNCTION put_quota(p_user text, p_max bigint, p_window_ms bigint, p_exempts_high boolean) RETURNS quota
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint;
    q quota;
    former quota;
    later bigint;
    begins bigint;
BEGIN
    INSERT INTO quota AS o (user_id, max, window_ms, count, since) VALUES (p_user, p_max, p_window_ms, 0, 0)
    ON CONFLICT (user_id) DO UPDATE SET user_id = o.user_id RETURNING * INTO former;
    -- With the row in hand: a window must not begin before one that somebody was told of while we waited.
    now := now_ms();
    q := former;
    q.max := p_max; q.window_ms := p_window_ms; q.count := 0; q.since := now; q.exempts_high := p_exempts_high;
    WITH window_of AS (
        SELECT (w.begins - now) / p_window_ms AS number, w.count
        FROM unnest(former.later_at, former.later) AS w (begins, count) WHERE w.begins > now
    ), counted AS (
        SELECT number, sum(count)::bigint AS count FROM window_of GROUP BY number
    ), numbers AS (
        -- Windows follow one another without gaps, up to a bound.
        SELECT number FROM counted WHERE number > 0
        UNION SELECT generate_series(1, least(coalesce((SELECT max(number) FROM counted), 0), 1000))
    ), kept AS (
        SELECT n.number, coalesce(c.count, 0) AS count FROM numbers n LEFT JOIN counted c USING (number)
    )
    SELECT coalesce((SELECT count FROM counted WHERE number = 0), 0),
        coalesce((SELECT array_agg(now + number * p_window_ms ORDER BY number) FROM kept), '{}'),
        coalesce((SELECT array_agg(count ORDER BY number) FROM kept), '{}')
    INTO q.count, q.later_at, q.later;
    UPDATE quota o SET max = q.max, window_ms = q.window_ms, count = q.count, since = q.since,
        later_at = q.later_at, later = q.later, exempts_high = q.exempts_high
    WHERE o.user_id = p_user;
    RETURN q;
END
$$;

-- Later windows that hold messages are kept: they count, should the user have a quota again by then. False when there is
-- none.
CREATE FUNCTION delete_quota(p_user text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint;
    q quota;
BEGIN
    SELECT * INTO q FROM quota o WHERE o.user_id = p_user AND o.max > 0 FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    now := now_ms();
    SELECT array_agg(w.begins ORDER BY w.begins), array_agg(w.count ORDER BY w.begins) INTO q.later_at, q.later
    FROM unnest(q.later_at, q.later) AS w (begins, count) WHERE w.begins > now AND w.count > 0;
    IF q.later_at IS NULL THEN
        DELETE FROM quota o WHERE o.user_id = p_user;
    ELSE
        UPDATE quota o SET max = 0, count = 0, later_at = q.later_at, later = q.later WHERE o.user_id = p_user;
    END IF;
    RETURN true;
END
$$;

-- Deleted ones whose last window began so long ago, a slice of them.
CREATE FUNCTION forget_quotas(p_age_ms bigint, p_max integer) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    before bigint := now_ms() - p_age_ms;
    forgotten integer;
BEGIN
    DELETE FROM quota WHERE user_id IN (
        SELECT o.user_id FROM quota o WHERE o.max = 0 AND o.later_at[cardinality(o.later_at)] <= before
        LIMIT p_max FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;

-- By user id, as a charge now would find them.
CREATE FUNCTION quotas(p_after text, p_max bigint) RETURNS SETOF quota LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint := now_ms();
    q quota;
BEGIN
    FOR q IN SELECT * FROM quota o
        WHERE (p_after IS NULL OR o.user_id > p_after) AND o.max > 0 ORDER BY o.user_id LIMIT p_max LOOP
        RETURN NEXT quota_opened(q, now);
    END LOOP;
END
$$;

CREATE FUNCTION quota_of(p_user text) RETURNS SETOF quota LANGUAGE sql VOLATILE AS $$
    SELECT (quota_opened(o, now_ms())).* FROM quota o WHERE o.user_id = p_user AND o.max > 0
$$;
