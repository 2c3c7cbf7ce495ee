-- Admits a batch as a whole, where nobody meets a key or a limit, so that the order of the items decides nothing.
-- Otherwise they are decided one by one (`admit_singly`).
--
-- Arrays run over the items. Distinct users, keys, queues and chains stand in arrays of their own, sorted, and the items
-- hold places in these (`…_at`), so that locks are taken in the order of keys and nothing is searched for. What can be
-- counted beforehand has been: charges by user, members by chain, and by book (the whole ledger, then each queue). Where
-- no item has a value, an array may be empty.
--
-- verdict: 0 admitted, 1 deferred, 2 duplicate, 3 key conflict, 4 unknown user, 5 over quota, 6 full, 7 queue full. Without
-- verdicts all are admitted at once, and counts and sinces are those of the users, after all of their items.
CREATE FUNCTION admit(
    p_queue_at integer[], p_chain_at integer[], p_first_of integer[], p_recipient text[], p_lane smallint[],
    p_line_lane smallint[], p_due bigint[], p_expires bigint[], p_user_at integer[], p_horizon_ms bigint[],
    p_key_at integer[], p_fingerprint bytea[], p_headers text[], p_ack boolean[], p_body bytea[], p_checksum bigint[],
    p_queues text[], p_queue_max bigint[], p_queue_hard_max bigint[],
    p_book_high bigint[], p_book_normal bigint[], p_book_low bigint[],
    p_chain_queue text[], p_chain_recipient text[], p_chain_high integer[], p_chain_normal integer[],
    p_chain_low integer[], p_users text[], p_charges integer[], p_keys bytea[], p_keys_repeat boolean,
    p_pending_max bigint, p_pending_spare bigint, p_key_window_ms bigint,
    OUT verdicts smallint[], OUT at bigint, OUT seqs bigint[], OUT ats bigint[], OUT dues bigint[],
    OUT maxima bigint[], OUT windows bigint[], OUT counts bigint[], OUT sinces bigint[], OUT exempts boolean[]
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    items integer := cardinality(p_lane);
    fits boolean;
    room bigint;
    -- Of all windows: when the last one has begun, and when the first one ends.
    begun bigint;
    ending bigint;
BEGIN
    -- The rows are taken in the order of the users.
    WITH charged AS (
        UPDATE quota o SET count = o.count + a.charge
        FROM (SELECT unnest(p_users) AS user_id, unnest(p_charges) AS charge) a
        WHERE o.user_id = a.user_id AND o.max > 0
        RETURNING o.max, o.window_ms, o.count, o.since, o.later_at, o.exempts_high)
    SELECT array_agg(c.max), array_agg(c.window_ms), array_agg(c.count), array_agg(c.since), array_agg(c.exempts_high),
        max(c.since), min(c.since + c.window_ms),
        count(*) = cardinality(p_users) AND coalesce(bool_and(c.count <= c.max AND cardinality(c.later_at) = 0), true),
        p_pending_max - coalesce((SELECT sum(t.high + t.normal + t.low) FROM tally t WHERE t.queue = ''), 0)
    INTO maxima, windows, counts, sinces, exempts, begun, ending, fits, room FROM charged c;
    -- Only now: whoever had to wait for a quota would be late with an earlier time.
    at := now_ms();
    fits := fits AND NOT p_keys_repeat AND room >= items AND coalesce(begun <= at AND at < ending, true);
    IF cardinality(p_keys) > 0 THEN
        fits := fits AND NOT EXISTS (
            SELECT FROM key k WHERE k.key = ANY (p_keys) AND k.admitted_at > at - p_key_window_ms);
    END IF;
    FOR i IN 1 .. cardinality(p_queues) LOOP
        IF p_queue_max[i] IS NOT NULL THEN
            fits := fits AND room_in(p_queues[i], p_queue_max[i], items, at) >= items;
        END IF;
    END LOOP;
    IF NOT fits THEN
        SELECT s.verdicts, s.seqs, s.ats, s.dues, s.maxima, s.windows, s.counts_then, s.sinces_then, s.exempts
        INTO verdicts, seqs, ats, dues, maxima, windows, counts, sinces, exempts
        FROM admit_singly(
            at, p_queue_at, p_chain_at, p_recipient, p_lane, p_due, p_expires, p_user_at, p_horizon_ms, p_key_at,
            p_fingerprint, p_headers, p_ack, p_body, p_checksum, p_queues, p_queue_max, p_queue_hard_max,
            p_chain_queue, p_chain_recipient, p_users, p_charges, p_keys, p_pending_max,
            p_pending_spare, p_key_window_ms) s;
        RETURN;
    END IF;
    seqs := enter_all(
        at, p_due, p_queue_at, p_chain_at, p_first_of, p_recipient, p_lane, p_line_lane, p_expires, p_queues,
        p_chain_queue, p_chain_recipient, p_chain_high, p_chain_normal, p_chain_low);
    INSERT INTO message (seq, admitted_at, queue, recipient, chained, lane, user_id, expires_at, headers,
        ack_required, body, checksum)
    SELECT w.seq, at, p_queues[w.q], w.recipient, w.chain IS NOT NULL, w.lane, p_users[w.u], w.expires_at, w.headers,
        w.ack_required, w.body, w.checksum
    FROM (
        SELECT unnest(seqs) AS seq, unnest(p_queue_at) AS q, unnest(p_recipient) AS recipient,
            unnest(p_chain_at) AS chain, unnest(p_lane) AS lane, unnest(p_user_at) AS u,
            unnest(p_expires) AS expires_at, unnest(p_headers) AS headers, unnest(p_ack) AS ack_required,
            unnest(p_body) AS body, unnest(p_checksum) AS checksum) w;
    IF cardinality(p_keys) > 0 THEN
        PERFORM use_keys(
            at, p_keys, p_key_at, p_fingerprint, ARRAY(SELECT generate_series(1, items)), seqs, p_key_window_ms);
    END IF;
    INSERT INTO tally AS t (queue, stripe, admitted, delivered, dead, expired, deleted, high, normal, low)
    SELECT b.queue, (pg_backend_pid() % 32)::smallint, b.high + b.normal + b.low, 0, 0, 0, 0, b.high, b.normal, b.low
    FROM (
        SELECT unnest(array_prepend('', p_queues)) AS queue, unnest(p_book_high) AS high,
            unnest(p_book_normal) AS normal, unnest(p_book_low) AS low) b
    ON CONFLICT (queue, stripe) DO UPDATE SET
        admitted = t.admitted + excluded.admitted, high = t.high + excluded.high,
        normal = t.normal + excluded.normal, low = t.low + excluded.low;
END
$$;
