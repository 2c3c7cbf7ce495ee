-- Puts admitted items into the line, at the end of their chains, and gives them their numbers.
CREATE FUNCTION enter(
    p_now bigint, p_chosen integer[], p_due bigint[], p_queue_at integer[], p_chain_at integer[], p_recipient text[],
    p_lane smallint[], p_expires bigint[], p_queues text[], p_chain_queue text[], p_chain_recipient text[]
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    numbers bigint[];
    -- Chains with admitted items: the first item, and how many by lane.
    places integer[]; firsts integer[]; high integer[]; normal integer[]; low integer[];
    -- The same with those that were there.
    all_high integer[]; all_normal integer[]; all_low integer[];
    -- By chain: its lane, and the item that is its head, unless it had one.
    lanes smallint[];
    heads integer[];
    -- Chains that were there, and are more urgent now.
    hurried integer[] := '{}';
BEGIN
    IF cardinality(p_chain_queue) > 0 THEN
        SELECT array_agg(m.place), array_agg(m.first), array_agg(m.high), array_agg(m.normal), array_agg(m.low)
        INTO places, firsts, high, normal, low FROM (
            SELECT p_chain_at[i] AS place, min(i) AS first, count(*) FILTER (WHERE p_lane[i] = 0)::integer AS high,
                count(*) FILTER (WHERE p_lane[i] = 1)::integer AS normal,
                count(*) FILTER (WHERE p_lane[i] = 2)::integer AS low
            FROM unnest(p_chosen) AS i WHERE p_chain_at[i] IS NOT NULL GROUP BY 1 ORDER BY 1) m;
        -- What comes back comes in the order in which it was sent.
        WITH entered AS (
            INSERT INTO chain AS c (queue, recipient, high, normal, low)
            SELECT p_chain_queue[m.place], p_chain_recipient[m.place], m.high, m.normal, m.low
            FROM unnest(places, high, normal, low) WITH ORDINALITY AS m (place, high, normal, low, n) ORDER BY m.n
            ON CONFLICT (queue, recipient) DO UPDATE SET
                high = c.high + excluded.high, normal = c.normal + excluded.normal, low = c.low + excluded.low
            RETURNING c.high, c.normal, c.low)
        SELECT array_agg(e.high), array_agg(e.normal), array_agg(e.low) INTO all_high, all_normal, all_low
        FROM entered e;
        SELECT array_agg(c.lane), array_agg(CASE WHEN c.is_new THEN c.first END),
            coalesce(array_agg(c.place) FILTER (WHERE NOT c.is_new AND c.lane < c.former_lane), '{}')
        INTO lanes, heads, hurried FROM (
            SELECT m.place, m.first, lane_of(m.all_high, m.all_normal) AS lane,
                lane_of(m.all_high - m.high, m.all_normal - m.normal) AS former_lane,
                m.all_high = m.high AND m.all_normal = m.normal AND m.all_low = m.low AS is_new
            FROM unnest(places, firsts, high, normal, low, all_high, all_normal, all_low)
                AS m (place, first, high, normal, low, all_high, all_normal, all_low)) c;
        IF cardinality(places) < cardinality(p_chain_queue) THEN
            -- Not every chain has an admitted item: each to its place.
            FOR n IN REVERSE cardinality(places) .. 1 LOOP
                lanes[places[n]] := lanes[n];
                heads[places[n]] := heads[n];
            END LOOP;
        END IF;
    END IF;
    -- Only now, with the chains in hand: within a chain, numbers follow the order of admission.
    numbers := ARRAY(SELECT nextval('message_seq') FROM generate_series(1, cardinality(p_chosen)));
    INSERT INTO pending (seq, admitted_at, queue, recipient, chained, place, lane, is_head, line_lane, due_at,
        claimable_at, expires_at)
    SELECT w.seq, p_now, p_queues[p_queue_at[i]], p_recipient[i], w.chain IS NOT NULL, w.seq, p_lane[i],
        w.chain IS NULL OR heads[w.chain] IS NOT DISTINCT FROM w.i, coalesce(lanes[w.chain], p_lane[i]),
        p_due[i], p_due[i], p_expires[i]
    FROM (SELECT c.i, c.seq, p_chain_at[c.i] AS chain FROM unnest(p_chosen, numbers) AS c (i, seq)) w;
    IF cardinality(hurried) > 0 THEN
        -- A more urgent message lends its lane to the head that it waits behind.
        UPDATE pending p SET line_lane = lanes[o]
        FROM unnest(hurried) AS o
        WHERE p.seq = (
            SELECT h.seq FROM pending h
            WHERE h.queue = p_chain_queue[o] AND h.recipient = p_chain_recipient[o] AND h.chained
            ORDER BY h.place LIMIT 1);
    END IF;
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
    IF cardinality(p_keys) = 0 THEN
        RETURN;
    END IF;
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
