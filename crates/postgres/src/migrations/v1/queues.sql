-- Of chosen heads, in their order, those that would be chosen one by one just the same: up to the first that the next
-- message of an earlier one's chain comes before. Across lanes it may come before any.
CREATE FUNCTION undisturbed(p_chosen bigint[]) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ARRAY(
        WITH head AS (
            SELECT w.place, w.seq, p.line_lane, ARRAY[p.claimable_at, p.seq] AS turn,
                CASE WHEN c.high + c.normal + c.low > 1 THEN (
                    SELECT CASE WHEN lane_of(c.high - (p.lane = 0)::integer, c.normal - (p.lane = 1)::integer)
                        = p.line_lane THEN ARRAY[n.claimable_at, n.seq] ELSE '{}' END
                    FROM pending n
                    WHERE n.queue = p.queue AND n.recipient = p.recipient AND n.chained AND n.place > p.place
                    ORDER BY n.place LIMIT 1) END AS next_turn
            FROM unnest(p_chosen) WITH ORDINALITY AS w (seq, place) JOIN pending p ON p.seq = w.seq
            LEFT JOIN chain c ON p.chained AND c.queue = p.queue AND c.recipient = p.recipient
        ), line AS (
            SELECT h.place, h.seq, h.line_lane <> first_value(h.line_lane) OVER w
                OR h.turn > min(h.next_turn) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS is_disturbed
            FROM head h WINDOW w AS (ORDER BY h.place)
        )
        SELECT l.seq FROM line l
        WHERE l.place < coalesce((SELECT min(d.place) FROM line d WHERE d.is_disturbed), cardinality(p_chosen) + 1)
        ORDER BY l.place);
END
$$;

-- Takes up to so many messages for good, with bodies of no more than so many bytes save for the first. What is taken lets
-- its chain's next one step forward, which may be taken too.
CREATE FUNCTION pop(
    p_queue text, p_max integer, p_streak integer, p_lowest boolean, p_bytes bigint, p_share integer,
    p_attempts_max integer
)
RETURNS TABLE (
    seq bigint, token bigint, ends_at bigint, attempt integer, failures integer, acks integer, admitted_at bigint,
    recipient text, lane smallint, user_id text, ack_required boolean, headers text, body bytea, checksum bigint,
    streak integer, lowest boolean, back_in_line integer
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now bigint := now_ms();
    turn record;
    lapsed integer;
    pop_number bigint;
    taken integer := 0;
    bytes_left bigint := p_bytes;
    fits integer;
    -- How many are chosen at a time: few where the line changes with every one that is taken.
    pace integer := p_max;
    seqs bigint[];
    free bigint[];
BEGIN
    -- In this order: what ends may wait for its chain's head, with no other one in hand.
    PERFORM expire(p_queue, now, 1000);
    PERFORM give_up(p_queue, now, 1000, p_attempts_max);
    lapsed := lapse(p_queue, now, 1000, p_attempts_max);
    WHILE taken < p_max LOOP
        SELECT * INTO turn FROM choose(p_queue, least(p_max - taken, pace), now, p_share, p_streak, p_lowest);
        EXIT WHEN cardinality(turn.chosen) = 0;
        -- Chains that somebody changes just now are left to the next pop: it must not wait with locks in its hands.
        free := ARRAY(
            SELECT p.seq FROM pending p JOIN chain c USING (queue, recipient)
            WHERE p.seq = ANY (turn.chosen) AND p.chained FOR UPDATE OF c SKIP LOCKED);
        seqs := undisturbed(turn.chosen);
        -- What does not fit is the first of the next round, and ends it.
        fits := fitting(seqs, bytes_left, taken = 0);
        EXIT WHEN fits = 0;
        seqs := seqs[1:fits];
        IF cardinality(seqs) < cardinality(turn.chosen) THEN
            -- The turn of those that were not taken is not over.
            SELECT * INTO turn FROM choose(p_queue, cardinality(seqs), now, p_share, p_streak, p_lowest);
            seqs := turn.chosen;
            pace := 1;
        ELSE
            pace := least(pace * 2, p_max);
        END IF;
        p_streak := turn.streak;
        p_lowest := turn.lowest;
        SELECT array_agg(w.seq ORDER BY w.place) INTO seqs
        FROM unnest(seqs) WITH ORDINALITY AS w (seq, place) JOIN pending p ON p.seq = w.seq
        WHERE NOT p.chained OR p.seq = ANY (free);
        EXIT WHEN seqs IS NULL;
        pop_number := nextval('lease_seq');
        RETURN QUERY
        SELECT p.seq, pop_number * 65536 + w.place, now, p.spent + 1, p.failures, p.acks,
            m.admitted_at, m.recipient, m.lane, m.user_id, m.ack_required, m.headers, m.body, m.checksum,
            p_streak, p_lowest, lapsed
        FROM unnest(seqs) WITH ORDINALITY AS w (seq, place)
        JOIN pending p ON p.seq = w.seq JOIN message m ON m.seq = w.seq
        ORDER BY w.place;
        taken := taken + cardinality(seqs);
        bytes_left := bytes_left
            - (SELECT coalesce(sum(octet_length(m.body)), 0) FROM message m WHERE m.seq = ANY (seqs));
        PERFORM end_messages(now, seqs, array_fill(1::smallint, ARRAY[cardinality(seqs)]),
            array_fill(true, ARRAY[cardinality(seqs)]), array_fill(0::bigint, ARRAY[cardinality(seqs)]), NULL);
    END LOOP;
END
$$;

-- Holds the messages meanwhile: nobody claims one, or ends it, whose lease seems over and is being extended.
CREATE FUNCTION extend(p_seq bigint[], p_ms bigint[], p_token bigint[], p_lease_ms bigint[])
RETURNS TABLE (place integer) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint;
    given integer;
BEGIN
    PERFORM hold(p_seq);
    now := now_ms();
    -- One by one: the same lease may be there twice, and be cut short to nothing by the first.
    FOR i IN 1 .. cardinality(p_seq) LOOP
        UPDATE pending p SET ends_at = now + p_lease_ms[i]
        WHERE p.seq = p_seq[i] AND p.admitted_at = p_ms[i] AND p.token = p_token[i] AND p.ends_at > now;
        GET DIAGNOSTICS given = ROW_COUNT;
        IF given > 0 THEN
            place := i;
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;

-- What became of the messages that are pending no longer; null for what there never was.
CREATE FUNCTION status_of(p_seq bigint, p_ms bigint) RETURNS smallint LANGUAGE sql STABLE AS $$
    SELECT o.status FROM outcome o JOIN message m USING (seq) WHERE o.seq = p_seq AND m.admitted_at = p_ms
$$;

-- The recipient's word wins over an end that was a guess: dead or expired messages, whose outcomes the caller holds, are
-- delivered. The attempt that killed one is one of many now.
CREATE FUNCTION deliver_late(p_now bigint, p_seqs bigint[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    queues text[]; lanes smallint[]; statuses smallint[];
BEGIN
    SELECT array_agg(m.queue), array_agg(m.lane), array_agg(o.status) INTO queues, lanes, statuses
    FROM outcome o JOIN message m USING (seq) WHERE o.seq = ANY (p_seqs);
    INSERT INTO attempt (seq, number, at, latency_ms, result, reason)
    SELECT o.seq, o.number, o.at, o.latency_ms, 1, o.reason FROM outcome o
    WHERE o.seq = ANY (p_seqs) AND o.number IS NOT NULL;
    UPDATE outcome o SET status = 1, at = p_now, reason = NULL, number = NULL, latency_ms = NULL
    WHERE o.seq = ANY (p_seqs);
    PERFORM book(queues, lanes, statuses, array_fill(1::smallint, ARRAY[cardinality(queues)]));
END
$$;

-- Whether the ack of a message that is dead or has expired counts: a channel accepted it since it was admitted or requeued,
-- or it requires one and was out.
CREATE FUNCTION is_awaited_late(p_seq bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT m.ack_required AND (o.status = 2 OR EXISTS (SELECT FROM attempt a WHERE a.seq = p_seq)) OR EXISTS (
        SELECT FROM attempt a WHERE a.seq = p_seq AND a.result = 2 AND a.number > coalesce(
            (SELECT max(b.number) FROM attempt b WHERE b.seq = p_seq AND b.result = 4), 0))
    FROM outcome o JOIN message m USING (seq) WHERE o.seq = p_seq
$$;

-- Ends pending messages on demand. p_acked: as delivered, those that a channel has accepted, or that require an ack and
-- have been out; an attempt under way that no channel had accepted yet is recorded. Otherwise: as deleted, those that
-- no lease holds and no channel has. Acks also count for what is dead or has expired, if it requires one and was out, or a
-- channel had accepted it.
-- answer: 0 done, 1 under a lease, 2 no ack is awaited, 3 ended before, with its status, 4 unknown, 5 a channel has it.
CREATE FUNCTION end_by_hand(p_seq bigint[], p_ms bigint[], p_acked boolean)
RETURNS TABLE (answer smallint, status smallint) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    r record;
    held bigint[];
    seqs bigint[] := '{}';
    statuses smallint[] := '{}';
    tried boolean[] := '{}';
    done integer;
    -- Dead and expired ones that are held, and those of them that are delivered now.
    over bigint[] := '{}';
    late bigint[] := '{}';
BEGIN
    IF p_acked THEN
        -- Before the chains: the order of all locks.
        over := ARRAY(
            SELECT o.seq FROM outcome o WHERE o.seq = ANY (p_seq) AND o.status IN (2, 3) ORDER BY o.seq FOR UPDATE);
    END IF;
    held := hold(p_seq);
    now := now_ms();
    FOR i IN 1 .. cardinality(p_seq) LOOP
        status := NULL;
        done := array_position(seqs, p_seq[i]);
        SELECT p.acks, p.expires_at <= now AS is_over, coalesce(p.ends_at > now, false) AS is_held,
            p.token IS NOT NULL AND NOT p.in_transit AS is_begun,
            p.acks > 0 OR m.ack_required AND (p.spent > 0 OR p.token IS NOT NULL AND NOT p.in_transit) AS is_awaited,
            p.acks > 0 OR m.ack_required AND EXISTS (SELECT FROM attempt a WHERE a.seq = p.seq) AS is_awaited_late
        INTO r FROM pending p JOIN message m ON m.seq = p.seq
        WHERE p.seq = p_seq[i] AND p.admitted_at = p_ms[i] AND array_position(held, p.seq) IS NOT NULL;
        IF r IS NULL OR done IS NOT NULL THEN
            -- Neither held nor ended: it was dead, and has been requeued meanwhile.
            status := coalesce(statuses[done], status_of(p_seq[i], p_ms[i]),
                (SELECT 2 FROM message m WHERE m.seq = p_seq[i] AND m.admitted_at = p_ms[i]));
            IF p_seq[i] = ANY (late) THEN
                status := 1;
            END IF;
            answer := CASE WHEN status IS NULL THEN 4 ELSE 3 END;
            IF status IN (2, 3) AND p_seq[i] = ANY (over) AND is_awaited_late(p_seq[i]) THEN
                late := late || p_seq[i];
                answer := 0;
            END IF;
        ELSIF r.is_over AND NOT r.is_held AND NOT (p_acked AND r.is_awaited_late) THEN
            status := 3;
            answer := 3;
            seqs := seqs || p_seq[i];
            statuses := statuses || 3::smallint;
            tried := tried || false;
        ELSIF NOT p_acked AND r.is_held THEN
            answer := 1;
        ELSIF NOT p_acked AND r.acks > 0 THEN
            answer := 5;
        ELSIF p_acked AND NOT r.is_awaited THEN
            answer := 2;
        ELSE
            answer := 0;
            seqs := seqs || p_seq[i];
            statuses := statuses || (CASE WHEN p_acked THEN 1 ELSE 4 END)::smallint;
            tried := tried || (r.is_held AND r.is_begun AND r.acks = 0);
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM end_messages(now, seqs, statuses, tried, array_fill(0::bigint, ARRAY[cardinality(seqs)]), NULL);
    IF cardinality(late) > 0 THEN
        PERFORM deliver_late(now, late);
    END IF;
END
$$;

-- Deletes a slice of what waits in a queue, is with no channel, and came no later than that place in line. Says how many were
-- deleted, and whether there may be more.
CREATE FUNCTION purge(p_queue text, p_last_place bigint, p_max integer, OUT deleted integer, OUT more boolean)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint := now_ms();
    seqs bigint[];
    statuses smallint[];
BEGIN
    seqs := ARRAY(
        SELECT p.seq FROM pending p
        WHERE p.queue = p_queue AND (p.is_head AND p.token IS NULL OR p.chained OR p.token IS NOT NULL)
            AND p.place <= p_last_place AND (p.ends_at IS NULL OR p.ends_at <= now) AND p.acks = 0
        ORDER BY p.seq LIMIT p_max);
    more := cardinality(seqs) = p_max;
    seqs := hold(seqs);
    now := now_ms();
    SELECT coalesce(array_agg(p.seq), '{}'),
        coalesce(array_agg((CASE WHEN p.expires_at <= now THEN 3 ELSE 4 END)::smallint), '{}')
    INTO seqs, statuses FROM pending p
    WHERE p.seq = ANY (seqs) AND p.place <= p_last_place AND (p.ends_at IS NULL OR p.ends_at <= now) AND p.acks = 0;
    PERFORM end_messages(now, seqs, statuses, NULL, NULL, NULL);
    deleted := cardinality(array_remove(statuses, 3::smallint));
END
$$;

-- False when there is no such queue. One that the settings name is there before its first message.
CREATE FUNCTION pause(p_queue text, p_paused boolean, p_configured boolean) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF p_configured THEN
        INSERT INTO queue (name) VALUES (p_queue) ON CONFLICT DO NOTHING;
    END IF;
    UPDATE queue SET paused = p_paused, idle_since = now_ms() WHERE name = p_queue;
    RETURN FOUND;
END
$$;
