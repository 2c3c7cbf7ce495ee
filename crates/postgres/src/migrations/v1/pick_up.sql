-- Leases the first message of each of these recipients, if a claim could take it now; with bodies of no more than so many
-- bytes save for the first. The columns are those of a claim. `p_recipients` are different ones.
--
-- Each recipient costs one look into the index of chains, however many messages wait for others. As with every claim, what
-- others hold is skipped: nothing here waits for a lock.
CREATE FUNCTION pick_up(
    p_queue text, p_recipients text[], p_max integer, p_lease_ms bigint, p_bytes bigint, p_attempts_max integer
)
RETURNS TABLE (
    seq bigint, token bigint, ends_at bigint, attempt integer, failures integer, acks integer, admitted_at bigint,
    recipient text, lane smallint, user_id text, ack_required boolean, headers text, body bytea, checksum bigint,
    back_in_line integer
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now bigint := now_ms();
    lapsed integer;
    first bigint[];
    chosen bigint[];
    claim_number bigint;
BEGIN
    PERFORM expire(p_queue, now, 1000);
    PERFORM give_up(p_queue, now, 1000, p_attempts_max);
    lapsed := lapse(p_queue, now, 1000, p_attempts_max);
    IF (SELECT q.paused FROM queue q WHERE q.name = p_queue) THEN
        RETURN;
    END IF;
    -- Two statements: the planner must not begin with the queue's line, where all that waits for others stands.
    first := ARRAY(
        SELECT head.seq FROM unnest(p_recipients) AS r (recipient)
        CROSS JOIN LATERAL (
            SELECT p.seq, p.token, p.claimable_at FROM pending p
            WHERE p.queue = p_queue AND p.recipient = r.recipient AND p.chained
            ORDER BY p.place LIMIT 1) head
        WHERE head.token IS NULL AND head.claimable_at <= now);
    IF cardinality(first) = 0 THEN
        RETURN;
    END IF;
    chosen := ARRAY(
        SELECT p.seq FROM pending p
        WHERE p.seq = ANY (first) AND p.is_head AND p.token IS NULL
            AND p.claimable_at <= now AND (p.expires_at IS NULL OR p.expires_at > now)
        ORDER BY p.line_lane, p.claimable_at, p.seq LIMIT p_max
        FOR UPDATE SKIP LOCKED);
    chosen := chosen[:fitting(chosen, p_bytes, true)];
    IF cardinality(chosen) = 0 THEN
        RETURN;
    END IF;
    claim_number := nextval('lease_seq');
    RETURN QUERY
    WITH leased AS (
        UPDATE pending p SET token = claim_number * 65536 + w.place, ends_at = now + p_lease_ms, in_transit = false
        FROM unnest(chosen) WITH ORDINALITY AS w (seq, place) WHERE p.seq = w.seq
        RETURNING p.seq, p.token, p.ends_at, p.spent, p.failures, p.acks
    )
    SELECT l.seq, l.token, l.ends_at, l.spent + 1, l.failures, l.acks, m.admitted_at, m.recipient, m.lane, m.user_id,
        m.ack_required, m.headers, m.body, m.checksum, lapsed
    FROM leased l JOIN message m ON m.seq = l.seq
    ORDER BY l.token;
END
$$;
