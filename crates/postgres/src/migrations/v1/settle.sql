-- Ends leases, item by item: the first settlement of a message with its current token counts.
-- kind: 0 delivered, 1 retry, 2 dead, 3 accepted, 4 expired, 5 released, 6 held.
-- Answers the queues of those that counted, by the item's place.
CREATE FUNCTION settle(
    p_seq bigint[], p_ms bigint[], p_token bigint[], p_kind smallint[], p_delay_ms bigint[], p_latency_ms bigint[],
    p_reason text[]
) RETURNS TABLE (place integer, queue text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    valid integer[];
    ended integer[];
BEGIN
    PERFORM take_chains(p_seq);
    PERFORM FROM pending p WHERE p.seq = ANY (p_seq) ORDER BY p.seq FOR UPDATE;
    now := now_ms();
    SELECT coalesce(array_agg(v.n), '{}') INTO valid FROM (
        SELECT DISTINCT ON (i.seq) i.n::integer AS n
        FROM unnest(p_seq, p_ms, p_token) WITH ORDINALITY AS i (seq, ms, token, n)
        JOIN lease l ON l.seq = i.seq AND l.token = i.token AND l.ends_at > now
        JOIN pending p ON p.seq = i.seq AND p.admitted_at = i.ms
        ORDER BY i.seq, i.n) v;
    RETURN QUERY SELECT n, p.queue FROM unnest(valid) AS n JOIN pending p ON p.seq = p_seq[n];

    INSERT INTO attempt (seq, number, at, latency_ms, result, reason)
    SELECT p.seq, p.spent + 1, now, p_latency_ms[n], CASE p_kind[n] WHEN 1 THEN 1 ELSE 2 END, p_reason[n]
    FROM unnest(valid) AS n JOIN pending p ON p.seq = p_seq[n] WHERE p_kind[n] IN (1, 3);
    UPDATE pending p SET spent = p.spent + 1, failures = p.failures + (p_kind[n] = 1)::integer,
        acks = p.acks + (p_kind[n] = 3)::integer, due_at = now + p_delay_ms[n], claimable_at = now + p_delay_ms[n]
    FROM unnest(valid) AS n WHERE p.seq = p_seq[n] AND p_kind[n] IN (1, 3);
    UPDATE pending p SET claimable_at = now + p_delay_ms[n]
    FROM unnest(valid) AS n WHERE p.seq = p_seq[n] AND p_kind[n] = 6;
    DELETE FROM lease l USING unnest(valid) AS n WHERE l.seq = p_seq[n] AND p_kind[n] NOT IN (0, 2, 4);

    ended := ARRAY(SELECT n FROM unnest(valid) AS n WHERE p_kind[n] IN (0, 2, 4));
    IF cardinality(ended) > 0 THEN
        PERFORM end_messages(now, array_agg(p_seq[n]),
            array_agg((CASE p_kind[n] WHEN 0 THEN 1 WHEN 2 THEN 2 ELSE 3 END)::smallint), array_agg(true),
            array_agg(p_latency_ms[n]), array_agg(p_reason[n]))
        FROM unnest(ended) AS n;
    END IF;
END
$$;
