-- Locks the pending ones of these messages, and their chains. Says which messages are locked: a message that a requeue makes
-- pending meanwhile has a new row, maybe a new chain, and is not among them. The caller must leave it alone.
-- Chains are locked in the order of their key, and before any wait for one of their messages.
CREATE FUNCTION hold(p_seqs bigint[]) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    queues text[];
    recipients text[];
BEGIN
    SELECT array_agg(h.queue), array_agg(h.recipient) INTO queues, recipients FROM (
        SELECT c.queue, c.recipient FROM chain c
        JOIN (SELECT DISTINCT p.queue, p.recipient FROM pending p WHERE p.seq = ANY (p_seqs) AND p.chained) k
            USING (queue, recipient)
        ORDER BY c.queue, c.recipient
        FOR UPDATE OF c) h;
    RETURN ARRAY(
        SELECT p.seq FROM pending p
        WHERE p.seq = ANY (p_seqs)
            AND (NOT p.chained OR (p.queue, p.recipient) IN (SELECT * FROM unnest(queues, recipients)))
        ORDER BY p.seq FOR UPDATE);
END
$$;

CREATE FUNCTION lane_of(high integer, normal integer) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT (CASE WHEN high > 0 THEN 0 WHEN normal > 0 THEN 1 ELSE 2 END)::smallint
$$;

-- A deleted message has no text any more. Of its headers the caller's key is kept; a key made from the content is a digest
-- of it, by which a short text could be guessed. Headers are JSON, in which a quote within a value is never bare; those
-- that are damaged are no reason to keep a message.
CREATE FUNCTION erase(p_seqs bigint[]) RETURNS void LANGUAGE sql VOLATILE AS $$
    UPDATE message m SET body = '', checksum = 0,
        headers = CASE WHEN m.headers NOT LIKE '%["idempotency-key","content-%'
            THEN '[' || substring(m.headers FROM '\["idempotency-key","(?:[^"\\]|\\.)*"\]') || ']' END
    WHERE m.seq = ANY (p_seqs)
$$;

-- Ends pending messages whose rows and chains the caller holds: each becomes an outcome, with the attempt that ended it
-- where there was one, and its chain's next message steps forward. Says whether one did.
CREATE FUNCTION end_messages(
    p_now bigint, p_seqs bigint[], p_status smallint[], p_tried boolean[], p_latency bigint[], p_reason text[]
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    queues text[]; recipients text[]; lanes smallint[]; heads_at bigint[]; statuses smallint[];
    moved boolean;
BEGIN
    WITH item AS (
        SELECT * FROM unnest(p_seqs, p_status, p_tried, p_latency, p_reason)
            AS i (seq, status, tried, latency_ms, reason)
    ), gone AS (
        DELETE FROM pending p USING item i WHERE p.seq = i.seq
        RETURNING p.seq, p.queue, CASE WHEN p.chained THEN p.recipient END AS recipient, p.lane, p.due_at,
            CASE WHEN p.is_head THEN p.place END AS head_at, CASE WHEN i.tried THEN p.spent + 1 END AS number, i.status,
            CASE WHEN i.tried THEN i.latency_ms END AS latency_ms, i.reason
    ), ended AS (
        INSERT INTO outcome (seq, status, at, due_at, reason, number, latency_ms)
        SELECT g.seq, g.status, p_now, g.due_at, g.reason, g.number, g.latency_ms FROM gone g
    )
    SELECT array_agg(g.queue), array_agg(g.recipient), array_agg(g.lane), array_agg(g.head_at), array_agg(g.status)
    INTO queues, recipients, lanes, heads_at, statuses FROM gone g;
    IF queues IS NULL THEN
        RETURN false;
    END IF;
    IF 4 = ANY (statuses) THEN
        PERFORM erase(ARRAY(SELECT i.seq FROM unnest(p_seqs, p_status) AS i (seq, status) WHERE i.status = 4));
    END IF;
    moved := leave_chains(queues, recipients, lanes, heads_at);
    PERFORM book(queues, lanes, array_fill(0::smallint, ARRAY[cardinality(queues)]), statuses);
    RETURN moved;
END
$$;

-- Messages have left their chains (null: there was none): counts them off, and lets the next ones step forward. Of heads
-- the place is given: the next one is looked for behind it, and not among all that the chain's index remembers.
CREATE FUNCTION leave_chains(p_queue text[], p_recipient text[], p_lane smallint[], p_head_at bigint[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF array_remove(p_recipient, NULL) = '{}' THEN
        RETURN false;
    END IF;
    WITH left_by AS (
        SELECT m.queue, m.recipient, count(*) FILTER (WHERE lane = 0) AS high,
            count(*) FILTER (WHERE lane = 1) AS normal, count(*) FILTER (WHERE lane = 2) AS low,
            coalesce(max(m.head_at), -1) AS behind
        FROM unnest(p_queue, p_recipient, p_lane, p_head_at) AS m (queue, recipient, lane, head_at)
        WHERE m.recipient IS NOT NULL GROUP BY m.queue, m.recipient
    ), emptied AS (
        DELETE FROM chain c USING left_by l
        WHERE c.queue = l.queue AND c.recipient = l.recipient
            AND c.high = l.high AND c.normal = l.normal AND c.low = l.low
    ), shortened AS (
        UPDATE chain c SET high = c.high - l.high, normal = c.normal - l.normal, low = c.low - l.low
        FROM left_by l
        WHERE c.queue = l.queue AND c.recipient = l.recipient
            AND NOT (c.high = l.high AND c.normal = l.normal AND c.low = l.low)
        RETURNING c.queue, c.recipient, lane_of(c.high, c.normal) AS lane, l.behind
    ), next AS (
        -- Sees what was there before this statement: the ended ones are gone already.
        SELECT h.seq, s.lane FROM shortened s CROSS JOIN LATERAL (
            SELECT p.seq FROM pending p
            WHERE p.queue = s.queue AND p.recipient = s.recipient AND p.chained AND p.place > s.behind
            ORDER BY p.place LIMIT 1) h
    )
    UPDATE pending p SET is_head = true, line_lane = n.lane
    FROM next n WHERE p.seq = n.seq AND NOT (p.is_head AND p.line_lane = n.lane);
    RETURN FOUND;
END
$$;
