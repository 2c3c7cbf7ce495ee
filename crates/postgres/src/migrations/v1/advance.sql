-- Settles, and leases the recipients' next messages to the same caller, where a settlement ended its message and a claim could
-- take the next one now. `wakes` is the queue in which there may be something for others to take.
--
-- What settles holds the chain, and the next message steps forward in this very transaction: no claim can see it before.
-- A next message that has expired and is still in the way is left to the sweep: expiring it here would lock chains out of
-- their order.
CREATE FUNCTION advance(
    p_seq bigint[], p_ms bigint[], p_token bigint[], p_kind smallint[], p_delay_ms bigint[], p_latency_ms bigint[],
    p_reason text[], p_lease_ms bigint[]
) RETURNS TABLE (
    seq bigint, token bigint, ends_at bigint, attempt integer, failures integer, acks integer, admitted_at bigint,
    recipient text, lane smallint, user_id text, ack_required boolean, headers text, body bytea, checksum bigint,
    queue text, place integer, wakes text
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    places integer[];
    queues text[];
    recipients text[];
    behind bigint[];
    settled_at integer[];
    settled_in text[];
    next_places integer[];
    next_seqs bigint[];
    claim_number bigint;
BEGIN
    -- A leased message keeps its queue, its recipient and its place, so they can be read before anything is locked.
    SELECT array_agg(i.n), array_agg(p.queue), array_agg(p.recipient), array_agg(p.place)
    INTO places, queues, recipients, behind
    FROM unnest(p_seq, p_kind, p_lease_ms) WITH ORDINALITY AS i (seq, kind, lease_ms, n)
    JOIN pending p ON p.seq = i.seq AND p.chained
    WHERE i.lease_ms IS NOT NULL AND i.kind IN (0, 2, 4, 7);
    SELECT coalesce(array_agg(s.place), '{}'), coalesce(array_agg(s.queue), '{}') INTO settled_at, settled_in
    FROM settle(p_seq, p_ms, p_token, p_kind, p_delay_ms, p_latency_ms, p_reason) s;
    now := now_ms();
    -- Behind the ended ones, and not among all that the chains' index remembers. In a statement of its own: joined with the
    -- update, a planner that knows nothing of the table yet walks over all heads of the queue for each of these.
    SELECT array_agg(c.place), array_agg(next.seq) INTO next_places, next_seqs
    FROM unnest(places, queues, recipients, behind) AS c (place, queue, recipient, behind)
    CROSS JOIN LATERAL (
        SELECT n.seq, n.is_head, n.token, n.claimable_at, n.expires_at FROM pending n
        WHERE n.queue = c.queue AND n.recipient = c.recipient AND n.chained AND n.place > c.behind
        ORDER BY n.place LIMIT 1) next
    WHERE c.place = ANY (settled_at) AND next.is_head AND next.token IS NULL
        AND next.claimable_at <= now AND (next.expires_at IS NULL OR next.expires_at > now)
        AND NOT EXISTS (SELECT FROM queue q WHERE q.name = c.queue AND q.paused);
    IF cardinality(next_seqs) > 0 THEN
        claim_number := nextval('lease_seq');
    END IF;
    RETURN QUERY
    WITH leased AS (
        UPDATE pending p SET token = claim_number * 65536 + w.place % 65536, ends_at = now + p_lease_ms[w.place]
        FROM unnest(next_places, next_seqs) AS w (place, seq) WHERE p.seq = w.seq
        RETURNING w.place, p.seq, p.token, p.ends_at, p.spent, p.failures, p.acks
    )
    SELECT l.seq, l.token, l.ends_at, l.spent + 1, l.failures, l.acks, m.admitted_at, m.recipient, m.lane, m.user_id,
        m.ack_required, m.headers, m.body, m.checksum, m.queue, s.place, CASE WHEN l.seq IS NULL THEN s.queue END
    FROM unnest(settled_at, settled_in) AS s (place, queue)
    LEFT JOIN leased l ON l.place = s.place
    LEFT JOIN message m ON m.seq = l.seq;
END
$$;
