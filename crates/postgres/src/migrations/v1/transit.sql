-- Attempts begin with messages in transit: their leases become ordinary ones, under new tokens, item by item: the first of a
-- message with the token of its current lease in transit counts. Holds the messages meanwhile, as an extension does:
-- nobody claims one, or settles it with the old token, while its attempt is beginning.
CREATE FUNCTION begin_attempts(p_seq bigint[], p_ms bigint[], p_token bigint[], p_lease_ms bigint[])
RETURNS TABLE (place integer, token bigint, ends_at bigint, queue text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    begin_number bigint;
BEGIN
    PERFORM hold(p_seq);
    now := now_ms();
    begin_number := nextval('lease_seq');
    RETURN QUERY
    WITH item AS (
        SELECT DISTINCT ON (i.seq) i.seq, i.lease_ms, i.n
        FROM unnest(p_seq, p_ms, p_token, p_lease_ms) WITH ORDINALITY AS i (seq, ms, token, lease_ms, n)
        JOIN pending p ON p.seq = i.seq AND p.admitted_at = i.ms AND p.token = i.token AND p.in_transit
            AND p.ends_at > now
        ORDER BY i.seq, i.n
    )
    UPDATE pending p
    SET token = begin_number * 65536 + i.n % 65536, ends_at = now + i.lease_ms, in_transit = false
    FROM item i WHERE p.seq = i.seq
    RETURNING i.n::integer, p.token, p.ends_at, p.queue;
END
$$;
