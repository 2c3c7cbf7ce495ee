-- Puts admitted items into the line, at the end of their chains, and gives them their numbers.
CREATE FUNCTION enter(
    p_now bigint, p_chosen integer[], p_due bigint[], p_queue_at integer[], p_chain_at integer[], p_recipient text[],
    p_lane smallint[], p_expires bigint[], p_queues text[], p_chain_queue text[], p_chain_recipient text[]
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    numbers bigint[];
    -- By chain: whether it begins with this batch, and its lane with it.
    is_new boolean[] := '{}';
    lanes smallint[] := '{}';
    older integer[] := '{}';
    places integer[]; high integer[]; normal integer[]; low integer[];
    n integer;
    r record;
BEGIN
    IF cardinality(p_chain_queue) > 0 THEN
        SELECT array_agg(m.place), array_agg(m.high), array_agg(m.normal), array_agg(m.low)
        INTO places, high, normal, low FROM (
            SELECT p_chain_at[i] AS place, count(*) FILTER (WHERE p_lane[i] = 0)::integer AS high,
                count(*) FILTER (WHERE p_lane[i] = 1)::integer AS normal,
                count(*) FILTER (WHERE p_lane[i] = 2)::integer AS low
            FROM unnest(p_chosen) AS i WHERE p_chain_at[i] IS NOT NULL GROUP BY 1 ORDER BY 1) m;
        n := 0;
        -- What comes back comes in the order in which it was sent.
        FOR r IN
            INSERT INTO chain AS c (queue, recipient, high, normal, low)
            SELECT p_chain_queue[m.place], p_chain_recipient[m.place], m.high, m.normal, m.low
            FROM unnest(places, high, normal, low) WITH ORDINALITY AS m (place, high, normal, low, n) ORDER BY m.n
            ON CONFLICT (queue, recipient) DO UPDATE SET
                high = c.high + excluded.high, normal = c.normal + excluded.normal, low = c.low + excluded.low
            RETURNING lane_of(c.high, c.normal) AS lane, c.high + c.normal + c.low AS members
        LOOP
            n := n + 1;
            is_new[places[n]] := r.members = high[n] + normal[n] + low[n];
            lanes[places[n]] := r.lane;
            IF NOT is_new[places[n]] THEN
                older := older || places[n];
            END IF;
        END LOOP;
    END IF;
    -- Only now, with the chains in hand: within a chain, numbers follow the order of admission.
    numbers := ARRAY(SELECT nextval('message_seq') FROM generate_series(1, cardinality(p_chosen)));
    INSERT INTO pending (seq, admitted_at, queue, recipient, chained, place, lane, is_head, line_lane, due_at,
        claimable_at, expires_at)
    SELECT w.seq, p_now, p_queues[p_queue_at[i]], p_recipient[i], w.chain IS NOT NULL, w.seq, p_lane[i],
        w.chain IS NULL OR is_new[w.chain] AND row_number() OVER (PARTITION BY w.chain ORDER BY w.seq) = 1,
        coalesce(lanes[w.chain], p_lane[i]), p_due[i], p_due[i], p_expires[i]
    FROM (SELECT c.i, c.seq, p_chain_at[c.i] AS chain FROM unnest(p_chosen, numbers) AS c (i, seq)) w;
    -- A more urgent message lends its lane to the head that it waits behind.
    UPDATE pending p SET line_lane = lanes[o]
    FROM unnest(older) AS o
    WHERE p.line_lane > lanes[o] AND p.seq = (
        SELECT h.seq FROM pending h
        WHERE h.queue = p_chain_queue[o] AND h.recipient = p_chain_recipient[o] AND h.chained
        ORDER BY h.place LIMIT 1);
    RETURN numbers;
END
$$;

-- Keys of admitted items, in their order. One that another gateway has used since we looked makes the whole batch fail,
-- to be decided anew (TG001).
CREATE FUNCTION use_keys(
    p_now bigint, p_keys bytea[], p_key_at integer[], p_fingerprint bytea[], p_chosen integer[], p_numbers bigint[],
    p_window_ms bigint
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    wanted integer;
    used integer;
BEGIN
    SELECT count(p_key_at[i]) INTO wanted FROM unnest(p_chosen) AS i;
    IF wanted = 0 THEN
        RETURN;
    END IF;
    INSERT INTO key AS k (key, fingerprint, seq, admitted_at)
    SELECT p_keys[p_key_at[i]], p_fingerprint[i], n, p_now
    FROM unnest(p_chosen, p_numbers) AS w (i, n) WHERE p_key_at[i] IS NOT NULL
    ORDER BY p_key_at[i]
    ON CONFLICT (key) DO UPDATE SET
        fingerprint = excluded.fingerprint, seq = excluded.seq, admitted_at = excluded.admitted_at
    WHERE k.admitted_at <= p_now - p_window_ms;
    GET DIAGNOSTICS used = ROW_COUNT;
    IF used < wanted THEN
        RAISE EXCEPTION 'a key was used at the same moment' USING ERRCODE = 'TG001';
    END IF;
END
$$;
