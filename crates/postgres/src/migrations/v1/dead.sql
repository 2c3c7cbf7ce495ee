-- Locks the dead ones of these messages. Says which messages are locked: one that has been requeued and died again meanwhile
-- has a new outcome, and is not among them. The caller must leave it alone.
CREATE FUNCTION hold_dead(p_seqs bigint[]) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ARRAY(SELECT o.seq FROM outcome o WHERE o.seq = ANY (p_seqs) AND o.status = 2 ORDER BY o.seq FOR UPDATE);
END
$$;

-- Makes dead letters pending again, at the end of their chains: with all their attempts, the failed ones forgotten.
-- The rules name queues with limits; the queue '' is every other one.
-- answer: 0 requeued, 1 not dead, 2 full, 3 expired: it would end before it is due, 4 its queue is full.
CREATE FUNCTION requeue(
    p_seq bigint[], p_ms bigint[], p_delay_ms bigint[], p_body bytea[], p_checksum bigint[],
    p_rule_queues text[], p_rule_max bigint[], p_rule_hard_max bigint[], p_pending_max bigint,
    p_pending_spare bigint
) RETURNS TABLE (answer smallint) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    items integer := cardinality(p_seq);
    held bigint[];
    answers smallint[] := '{}';
    chosen integer[] := '{}';
    -- By the first place of a message: whether one of its places was chosen.
    taken boolean[] := '{}';
    room bigint;
    -- Queues with a limit, and what is left of it.
    limited text[] := '{}';
    rooms bigint[] := '{}';
    rule integer;
    k integer;
    r record;
BEGIN
    held := hold_dead(p_seq);
    now := now_ms();
    room := room_in('', p_pending_max, items, now);
    FOR r IN
        SELECT i.place::integer AS place, m.queue, m.lane, m.expires_at, i.seq IN (SELECT unnest(held)) AS is_held,
            min(i.place) OVER (PARTITION BY m.seq)::integer AS first_place
        FROM unnest(p_seq, p_ms) WITH ORDINALITY AS i (seq, ms, place)
        LEFT JOIN message m ON m.seq = i.seq AND m.admitted_at = i.ms
        ORDER BY i.place
    LOOP
        IF r.queue IS NULL OR NOT r.is_held OR taken[r.first_place] THEN
            answers[r.place] := 1;
            CONTINUE;
        ELSIF r.expires_at <= now + p_delay_ms[r.place] THEN
            answers[r.place] := 3;
            CONTINUE;
        END IF;
        rule := coalesce(array_position(p_rule_queues, r.queue), array_position(p_rule_queues, ''));
        k := NULL;
        IF p_rule_max[rule] IS NOT NULL THEN
            k := array_position(limited, r.queue);
            IF k IS NULL THEN
                limited := limited || r.queue;
                k := cardinality(limited);
                rooms[k] := room_in(r.queue, p_rule_max[rule], items, now);
            END IF;
        END IF;
        IF room <= 0 AND NOT (r.lane = 0 AND room + p_pending_spare > 0) THEN
            answers[r.place] := 2;
            CONTINUE;
        ELSIF rooms[k] <= 0 AND NOT (r.lane = 0 AND rooms[k] + p_rule_hard_max[rule] - p_rule_max[rule] > 0) THEN
            answers[r.place] := 4;
            CONTINUE;
        END IF;
        answers[r.place] := 0;
        taken[r.first_place] := true;
        chosen := chosen || r.place;
        room := room - 1;
        IF k IS NOT NULL THEN
            rooms[k] := rooms[k] - 1;
        END IF;
    END LOOP;
    IF cardinality(chosen) > 0 THEN
        PERFORM return_to_line(now, chosen, p_seq, p_delay_ms, p_body, p_checksum);
    END IF;
    RETURN QUERY SELECT unnest(answers);
END
$$;

-- Dead letters whose outcomes the caller holds step into the line again.
CREATE FUNCTION return_to_line(
    p_now bigint, p_chosen integer[], p_seq bigint[], p_delay_ms bigint[], p_body bytea[], p_checksum bigint[]
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    items integer := cardinality(p_chosen);
    seqs bigint[]; queues text[]; recipients text[]; lanes smallint[]; expiries bigint[]; ms bigint[]; dues bigint[];
    chain_at integer[]; chain_queue text[]; chain_recipient text[]; numbers bigint[];
BEGIN
    SELECT array_agg(m.seq ORDER BY w.place), array_agg(m.queue ORDER BY w.place),
        array_agg(m.recipient ORDER BY w.place), array_agg(m.lane ORDER BY w.place),
        array_agg(m.expires_at ORDER BY w.place), array_agg(m.admitted_at ORDER BY w.place),
        array_agg(p_now + p_delay_ms[w.i] ORDER BY w.place)
    INTO seqs, queues, recipients, lanes, expiries, ms, dues
    FROM unnest(p_chosen) WITH ORDINALITY AS w (i, place) JOIN message m ON m.seq = p_seq[w.i];
    SELECT coalesce(array_agg(c.queue ORDER BY c.queue, c.recipient), '{}'),
        coalesce(array_agg(c.recipient ORDER BY c.queue, c.recipient), '{}')
    INTO chain_queue, chain_recipient FROM (
        SELECT DISTINCT m.queue, m.recipient FROM message m WHERE m.seq = ANY (seqs) AND m.chained) c;
    SELECT array_agg(c.place::integer ORDER BY w.place) INTO chain_at
    FROM unnest(seqs) WITH ORDINALITY AS w (seq, place) JOIN message m ON m.seq = w.seq
    LEFT JOIN unnest(chain_queue, chain_recipient) WITH ORDINALITY AS c (queue, recipient, place)
        ON m.chained AND c.queue = m.queue AND c.recipient = m.recipient;

    -- The attempt that killed a message is one of many now, and its return is the last.
    INSERT INTO attempt (seq, number, at, latency_ms, result, reason)
    SELECT o.seq, o.number, o.at, o.latency_ms, 1, o.reason FROM outcome o WHERE o.seq = ANY (seqs) AND o.number IS NOT NULL;
    INSERT INTO attempt (seq, number, at, latency_ms, result)
    SELECT s, coalesce((SELECT max(a.number) FROM attempt a WHERE a.seq = s), 0) + 1, p_now, 0, 4 FROM unnest(seqs) AS s;
    DELETE FROM outcome o WHERE o.seq = ANY (seqs);
    UPDATE message m SET body = p_body[i], checksum = p_checksum[i]
    FROM unnest(p_chosen) AS i WHERE m.seq = p_seq[i] AND p_body[i] IS NOT NULL;

    numbers := enter(p_now, ARRAY(SELECT generate_series(1, items)), dues, ARRAY(SELECT generate_series(1, items)),
        chain_at, recipients, lanes, expiries, queues, chain_queue, chain_recipient);
    -- They keep their own numbers; the new ones are their places.
    UPDATE pending p SET seq = s.seq, admitted_at = s.ms,
        spent = (SELECT max(a.number) FROM attempt a WHERE a.seq = s.seq)
    FROM unnest(numbers, seqs, ms) AS s (number, seq, ms) WHERE p.seq = s.number;
    PERFORM book(queues, lanes, array_fill(2::smallint, ARRAY[items]), array_fill(0::smallint, ARRAY[items]));
END
$$;

CREATE FUNCTION delete_dead(p_seq bigint[], p_ms bigint[]) RETURNS TABLE (seq bigint, ms bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    held bigint[];
    seqs bigint[]; times bigint[]; queues text[]; lanes smallint[];
BEGIN
    held := hold_dead(p_seq);
    SELECT array_agg(m.seq), array_agg(m.admitted_at), array_agg(m.queue), array_agg(m.lane)
    INTO seqs, times, queues, lanes
    FROM (SELECT DISTINCT seq, ms FROM unnest(p_seq, p_ms) AS i (seq, ms)) i
    JOIN message m ON m.seq = i.seq AND m.admitted_at = i.ms
    WHERE i.seq = ANY (held);
    IF seqs IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM attempt a WHERE a.seq = ANY (seqs);
    DELETE FROM outcome o WHERE o.seq = ANY (seqs);
    DELETE FROM message m WHERE m.seq = ANY (seqs);
    PERFORM book(queues, lanes, array_fill(2::smallint, ARRAY[cardinality(seqs)]),
        array_fill(4::smallint, ARRAY[cardinality(seqs)]));
    RETURN QUERY SELECT * FROM unnest(seqs, times);
END
$$;

-- Messages that can't be read are dead, unless somebody has come first.
CREATE FUNCTION bury(p_seq bigint[], p_reason text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint;
    seqs bigint[];
BEGIN
    seqs := hold(p_seq);
    now := now_ms();
    seqs := ARRAY(
        SELECT p.seq FROM pending p
        WHERE p.seq = ANY (seqs) AND (p.ends_at IS NULL OR p.ends_at <= now));
    PERFORM end_messages(now, seqs, array_fill(2::smallint, ARRAY[cardinality(seqs)]),
        NULL, NULL, array_fill(p_reason, ARRAY[cardinality(seqs)]));
END
$$;
