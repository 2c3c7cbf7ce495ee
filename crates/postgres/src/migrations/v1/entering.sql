-- Puts admitted items into the line, at the end of their chains, and gives them their numbers.
-- `first_of` says of the first of its chain how many there are of it, and of the others 0; `line_lane` is the highest lane
-- among them. Chains, with how many come to them by lane, are sorted.
CREATE FUNCTION enter_all(
    p_now bigint, p_due bigint[], p_queue_at integer[], p_chain_at integer[], p_first_of integer[], p_recipient text[],
    p_lane smallint[], p_line_lane smallint[], p_expires bigint[], p_queues text[], p_chain_queue text[],
    p_chain_recipient text[], p_chain_high integer[], p_chain_normal integer[], p_chain_low integer[]
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    numbers bigint[];
    -- By chain: with those that were there.
    high integer[]; normal integer[]; low integer[];
BEGIN
    IF cardinality(p_chain_queue) > 0 THEN
        -- What comes back comes in the order in which it was sent.
        WITH entered AS (
            INSERT INTO chain AS c (queue, recipient, high, normal, low)
            SELECT unnest(p_chain_queue), unnest(p_chain_recipient), unnest(p_chain_high), unnest(p_chain_normal),
                unnest(p_chain_low)
            ON CONFLICT (queue, recipient) DO UPDATE SET
                high = c.high + excluded.high, normal = c.normal + excluded.normal, low = c.low + excluded.low
            RETURNING c.high, c.normal, c.low)
        SELECT array_agg(e.high), array_agg(e.normal), array_agg(e.low) INTO high, normal, low FROM entered e;
    END IF;
    -- Numbers are drawn only now, with the chains in hand: within a chain, they follow the order of admission.
    WITH entered AS (
        INSERT INTO pending AS p (seq, admitted_at, queue, recipient, chained, place, lane, is_head, line_lane, due_at,
            claimable_at, expires_at)
        SELECT w.seq, p_now, p_queues[w.q], w.recipient, w.chain IS NOT NULL, w.seq, w.lane,
            w.chain IS NULL OR w.first_of = high[w.chain] + normal[w.chain] + low[w.chain], w.line_lane,
            coalesce(w.due, p_now), coalesce(w.due, p_now), w.expires_at
        FROM (
            SELECT nextval('message_seq') AS seq, i.* FROM (
                SELECT unnest(p_queue_at) AS q, unnest(p_chain_at) AS chain, unnest(p_first_of) AS first_of,
                    unnest(p_recipient) AS recipient, unnest(p_lane) AS lane, unnest(p_line_lane) AS line_lane,
                    unnest(p_due) AS due, unnest(p_expires) AS expires_at) i) w
        RETURNING p.seq)
    SELECT array_agg(e.seq) INTO numbers FROM entered e;
    IF low <> p_chain_low OR normal <> p_chain_normal AND 0 = ANY (p_lane) THEN
        -- A more urgent message lends its lane to the head that it waits behind.
        UPDATE pending p SET line_lane = h.lane
        FROM (
            SELECT c.queue, c.recipient, lane_of(c.high, c.normal) AS lane
            FROM unnest(p_chain_queue, p_chain_recipient, high, normal, low, p_chain_high, p_chain_normal, p_chain_low)
                AS c (queue, recipient, high, normal, low, new_high, new_normal, new_low)
            WHERE c.high + c.normal + c.low > c.new_high + c.new_normal + c.new_low
                AND lane_of(c.high, c.normal) < lane_of(c.high - c.new_high, c.normal - c.new_normal)) h
        WHERE p.seq = (
            SELECT f.seq FROM pending f
            WHERE f.queue = h.queue AND f.recipient = h.recipient AND f.chained ORDER BY f.place LIMIT 1);
    END IF;
    RETURN numbers;
END
$$;

-- The same for chosen items of a batch. Nothing of them has been counted.
CREATE FUNCTION enter(
    p_now bigint, p_chosen integer[], p_due bigint[], p_queue_at integer[], p_chain_at integer[], p_recipient text[],
    p_lane smallint[], p_expires bigint[], p_queues text[], p_chain_queue text[], p_chain_recipient text[]
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    dues bigint[]; queue_at integer[]; chain_at integer[]; first_of integer[]; recipients text[]; lanes smallint[];
    line_lanes smallint[]; expiries bigint[];
    chain_queue text[]; chain_recipient text[]; high integer[]; normal integer[]; low integer[];
BEGIN
    -- Chains without a chosen item are left out.
    SELECT array_agg(p_due[w.i] ORDER BY w.n), array_agg(p_queue_at[w.i] ORDER BY w.n),
        array_agg(CASE WHEN w.chain IS NOT NULL THEN w.place END ORDER BY w.n),
        array_agg(CASE WHEN w.chain IS NULL THEN NULL WHEN w.turn = 1 THEN w.members ELSE 0 END ORDER BY w.n),
        array_agg(p_recipient[w.i] ORDER BY w.n), array_agg(w.lane ORDER BY w.n),
        array_agg(CASE WHEN w.chain IS NULL THEN w.lane ELSE w.line_lane END ORDER BY w.n),
        array_agg(p_expires[w.i] ORDER BY w.n)
    INTO dues, queue_at, chain_at, first_of, recipients, lanes, line_lanes, expiries
    FROM (
        SELECT c.i, c.n, p_lane[c.i] AS lane, p_chain_at[c.i] AS chain,
            dense_rank() OVER (ORDER BY p_chain_at[c.i])::integer AS place,
            row_number() OVER (PARTITION BY p_chain_at[c.i] ORDER BY c.n) AS turn,
            count(*) OVER (PARTITION BY p_chain_at[c.i])::integer AS members,
            min(p_lane[c.i]) OVER (PARTITION BY p_chain_at[c.i]) AS line_lane
        FROM unnest(p_chosen) WITH ORDINALITY AS c (i, n)) w;
    SELECT array_agg(p_chain_queue[m.chain]), array_agg(p_chain_recipient[m.chain]), array_agg(m.high),
        array_agg(m.normal), array_agg(m.low)
    INTO chain_queue, chain_recipient, high, normal, low FROM (
        SELECT p_chain_at[i] AS chain, count(*) FILTER (WHERE p_lane[i] = 0)::integer AS high,
            count(*) FILTER (WHERE p_lane[i] = 1)::integer AS normal,
            count(*) FILTER (WHERE p_lane[i] = 2)::integer AS low
        FROM unnest(p_chosen) AS i WHERE p_chain_at[i] IS NOT NULL GROUP BY 1 ORDER BY 1) m;
    RETURN enter_all(p_now, dues, queue_at, chain_at, first_of, recipients, lanes, line_lanes, expiries, p_queues,
        chain_queue, chain_recipient, high, normal, low);
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
