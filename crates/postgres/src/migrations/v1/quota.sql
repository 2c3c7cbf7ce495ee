-- The fixed window per user, as in the domain's `Quota`: refreshed lazily, with deferrals into later windows.

-- Moves on to the window that p_now is in, or to the last one with deferred messages.
CREATE FUNCTION quota_opened(q quota, p_now bigint) RETURNS quota LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    last bigint := q.later_at[cardinality(q.later_at)];
BEGIN
    IF p_now - q.since >= q.window_ms AND last >= q.since + q.window_ms THEN
        q.since := q.since + (least(last, p_now) - q.since) / q.window_ms * q.window_ms;
        q.count := quota_within(q, q.since);
    END IF;
    RETURN q;
END
$$;

-- Deferred messages that go out in the window that begins then.
CREATE FUNCTION quota_within(q quota, p_begins bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(sum(w.count), 0)::bigint FROM unnest(q.later_at, q.later) AS w (due, count)
    WHERE w.due >= p_begins AND w.due < p_begins + q.window_ms
$$;

-- Without those that have gone out by then.
CREATE FUNCTION quota_ahead(q quota, p_now bigint) RETURNS quota LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    gone integer := 0;
BEGIN
    WHILE q.later_at[gone + 1] <= p_now LOOP
        gone := gone + 1;
    END LOOP;
    IF gone > 0 THEN
        q.later_at := q.later_at[gone + 1:];
        q.later := q.later[gone + 1:];
    END IF;
    RETURN q;
END
$$;

-- Counts one message, or defers it to the first later window with room that begins within the horizon (null: it is
-- denied instead).
CREATE FUNCTION quota_charge(
    INOUT q quota, p_now bigint, p_horizon_ms bigint, OUT passed boolean, OUT deferred_to bigint
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    dues integer;
    place integer := 1;
    first integer;
    begins bigint;
    held bigint;
BEGIN
    -- A window that seems to begin in the future (the clock was set back) begins now and keeps its count.
    q.since := least(q.since, p_now);
    q := quota_ahead(quota_opened(q, p_now), p_now);
    IF p_now - q.since >= q.window_ms THEN
        q.since := p_now;
        q.count := 0;
    END IF;
    passed := q.count < q.max;
    IF passed THEN
        q.count := q.count + 1;
        RETURN;
    ELSIF p_horizon_ms IS NULL THEN
        RETURN;
    END IF;
    dues := cardinality(q.later_at);
    WHILE place <= dues AND q.later_at[place] < q.since + q.window_ms LOOP
        place := place + 1;
    END LOOP;
    FOR number IN 1 .. 1000 LOOP
        begins := q.since + number * q.window_ms;
        IF begins - p_now > p_horizon_ms THEN
            RETURN;
        END IF;
        first := place;
        held := 0;
        WHILE place <= dues AND q.later_at[place] < begins + q.window_ms LOOP
            held := held + q.later[place];
            place := place + 1;
        END LOOP;
        IF held >= q.max THEN
            CONTINUE;
        ELSIF first <= dues AND q.later_at[first] = begins THEN
            q.later[first] := q.later[first] + 1;
        ELSIF dues >= 1000 THEN
            RETURN;
        ELSE
            q.later_at := q.later_at[:first - 1] || begins || q.later_at[first:];
            q.later := q.later[:first - 1] || 1::bigint || q.later[first:];
        END IF;
        deferred_to := begins;
        RETURN;
    END LOOP;
END
$$;

-- A fresh window. What was deferred stays due when it was, and counts in the windows it now falls into.
CREATE FUNCTION put_quota(p_user text, p_max bigint, p_window_ms bigint, p_exempts_high boolean) RETURNS quota
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint;
    q quota;
BEGIN
    INSERT INTO quota AS o (user_id, max, window_ms, count, since) VALUES (p_user, p_max, p_window_ms, 0, 0)
    ON CONFLICT (user_id) DO UPDATE SET user_id = o.user_id RETURNING * INTO q;
    -- With the row in hand: a window must not begin before one that a caller was told of while this call waited.
    now := now_ms();
    q := quota_ahead(q, now);
    q.max := p_max; q.window_ms := p_window_ms; q.since := now; q.exempts_high := p_exempts_high;
    q.count := quota_within(q, now);
    UPDATE quota o SET max = q.max, window_ms = q.window_ms, count = q.count, since = q.since,
        later_at = q.later_at, later = q.later, exempts_high = q.exempts_high
    WHERE o.user_id = p_user;
    RETURN q;
END
$$;

-- What is still to go out is kept: it counts, should the user have a quota again by then. False when there is none.
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
    q := quota_ahead(q, now);
    IF q.later_at = '{}' THEN
        DELETE FROM quota o WHERE o.user_id = p_user;
    ELSE
        UPDATE quota o SET max = 0, count = 0, later_at = q.later_at, later = q.later WHERE o.user_id = p_user;
    END IF;
    RETURN true;
END
$$;

-- Deleted ones whose last deferred message went out so long ago, a slice of them.
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
