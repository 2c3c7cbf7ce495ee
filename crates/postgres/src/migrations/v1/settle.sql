-- Ends leases, item by item: the first settlement of a message with its current token counts.
-- kind: 0 delivered, 1 retry, 2 dead, 3 accepted, 4 expired, 5 released, 6 held, 7 given up. 4 and 7 are no attempts.
-- Answers those that counted by their place, with the queue where there is something to take now: what came back, what
-- stepped forward, or room in transit.
CREATE FUNCTION settle(
    p_seq bigint[], p_ms bigint[], p_token bigint[], p_kind smallint[], p_delay_ms bigint[], p_latency_ms bigint[],
    p_reason text[]
) RETURNS TABLE (place integer, queue text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    valid integer[];
    queues text[];
    ended integer[];
    freed boolean;
    moved boolean := false;
BEGIN
    -- The token tells below which ones are held: no requeued message has it.
    PERFORM hold(p_seq);
    now := now_ms();
    SELECT coalesce(array_agg(v.n), '{}'), array_agg(v.queue), bool_or(v.in_transit) INTO valid, queues, freed FROM (
        SELECT DISTINCT ON (i.seq) i.n::integer AS n, p.queue, p.in_transit
        FROM unnest(p_seq, p_ms, p_token) WITH ORDINALITY AS i (seq, ms, token, n)
        JOIN pending p ON p.seq = i.seq AND p.admitted_at = i.ms AND p.token = i.token AND p.ends_at > now
        ORDER BY i.seq, i.n) v;
    ended := ARRAY(SELECT n FROM unnest(valid) AS n WHERE p_kind[n] IN (0, 2, 4, 7));
    -- What came back, or was held by us for a moment in vain.
    freed := freed OR cardinality(ended) < cardinality(p_seq);
    IF cardinality(ended) < cardinality(valid) THEN
        INSERT INTO attempt (seq, number, at, latency_ms, result, reason)
        SELECT p.seq, p.spent + 1, now, p_latency_ms[n], CASE p_kind[n] WHEN 1 THEN 1 ELSE 2 END, p_reason[n]
        FROM unnest(valid) AS n JOIN pending p ON p.seq = p_seq[n] WHERE p_kind[n] IN (1, 3);
        UPDATE pending p SET token = NULL, ends_at = NULL, in_transit = false,
            spent = p.spent + (i.kind IN (1, 3))::integer, failures = p.failures + (i.kind = 1)::integer,
            acks = p.acks + (i.kind = 3)::integer,
            due_at = CASE WHEN i.kind IN (1, 3) THEN now + i.delay_ms ELSE p.due_at END,
            claimable_at = CASE WHEN i.kind = 5 THEN p.claimable_at ELSE now + i.delay_ms END
        FROM (
            SELECT p_seq[n] AS seq, p_kind[n] AS kind, p_delay_ms[n] AS delay_ms FROM unnest(valid) AS n
            WHERE p_kind[n] IN (1, 3, 5, 6)) i
        WHERE p.seq = i.seq;
    END IF;
    IF cardinality(ended) > 0 THEN
        SELECT end_messages(now, array_agg(p_seq[n]),
            array_agg((CASE p_kind[n] WHEN 0 THEN 1 WHEN 4 THEN 3 ELSE 2 END)::smallint), array_agg(p_kind[n] IN (0, 2)),
            array_agg(p_latency_ms[n]), array_agg(p_reason[n]))
        INTO moved FROM unnest(ended) AS n;
    END IF;
    RETURN QUERY SELECT w.n, CASE WHEN freed OR moved THEN w.queue END FROM unnest(valid, queues) AS w (n, queue);
END
$$;
