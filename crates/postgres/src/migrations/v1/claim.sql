-- Expires waiting messages whose time is over, of one queue or (null) of all. Skips what others hold; only for the head of
-- a chain that it has in hand, whose lane may change, does it wait. Says how many it has ended.
CREATE FUNCTION expire(p_queue text, p_now bigint, p_max integer) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found_seqs bigint[];
    queues text[];
    recipients text[];
    seqs bigint[];
BEGIN
    -- Two statements: neither reads what is over in other queues.
    IF p_queue IS NULL THEN
        found_seqs := ARRAY(
            SELECT p.seq FROM pending p
            WHERE p.expires_at <= p_now
                AND (p.ends_at IS NULL OR p.ends_at <= p_now)
            ORDER BY p.expires_at LIMIT p_max);
    ELSE
        found_seqs := ARRAY(
            SELECT p.seq FROM pending p
            WHERE p.queue = p_queue AND p.expires_at <= p_now
                AND (p.ends_at IS NULL OR p.ends_at <= p_now)
            ORDER BY p.expires_at LIMIT p_max);
    END IF;
    IF cardinality(found_seqs) = 0 THEN
        RETURN 0;
    END IF;
    SELECT array_agg(h.queue), array_agg(h.recipient) INTO queues, recipients FROM (
        SELECT c.queue, c.recipient FROM chain c
        JOIN (SELECT DISTINCT p.queue, p.recipient FROM pending p WHERE p.seq = ANY (found_seqs) AND p.chained) k
            USING (queue, recipient)
        FOR UPDATE OF c SKIP LOCKED) h;
    seqs := ARRAY(
        SELECT p.seq FROM pending p
        WHERE p.seq = ANY (found_seqs) AND (p.ends_at IS NULL OR p.ends_at <= p_now) AND (NOT p.chained
            OR (p.queue, p.recipient) IN (SELECT * FROM unnest(queues, recipients)))
        FOR UPDATE OF p SKIP LOCKED);
    PERFORM end_messages(p_now, seqs, array_fill(3::smallint, ARRAY[cardinality(seqs)]), NULL, NULL, NULL);
    RETURN cardinality(seqs);
END
$$;

-- Leases of a queue that have ended unsettled with the last attempt that its rule grants: their messages are dead, and the
-- attempt stands with them. Skips what others hold; the next look finds it. Says how many it has ended.
--
-- What ends is the head of its chain, which is in hand, so nothing here waits.
CREATE FUNCTION give_up(p_queue text, p_now bigint, p_max integer, p_attempts_max integer) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    seqs bigint[];
    recipients text[];
    reasons text[];
BEGIN
    seqs := ARRAY(
        SELECT p.seq FROM pending p
        WHERE p.queue = p_queue AND p.token IS NOT NULL AND NOT p.in_transit AND p.ends_at <= p_now
            AND p.failures + 1 >= p_attempts_max
        LIMIT p_max);
    IF cardinality(seqs) = 0 THEN
        RETURN 0;
    END IF;
    recipients := ARRAY(
        SELECT c.recipient FROM chain c
        WHERE c.queue = p_queue
            AND c.recipient IN (SELECT p.recipient FROM pending p WHERE p.seq = ANY (seqs) AND p.chained)
        FOR UPDATE SKIP LOCKED);
    seqs := ARRAY(
        SELECT p.seq FROM pending p
        WHERE p.seq = ANY (seqs) AND p.token IS NOT NULL AND NOT p.in_transit AND p.ends_at <= p_now
            AND p.failures + 1 >= p_attempts_max AND (NOT p.chained OR p.recipient = ANY (recipients))
        FOR UPDATE SKIP LOCKED);
    SELECT array_agg(format('gave up after %s attempt%s: the last lease ended unsettled', p.failures + 1,
        CASE WHEN p.failures > 0 THEN 's' END) ORDER BY w.place)
    INTO reasons FROM unnest(seqs) WITH ORDINALITY AS w (seq, place) JOIN pending p ON p.seq = w.seq;
    PERFORM end_messages(p_now, seqs, array_fill(2::smallint, ARRAY[cardinality(seqs)]),
        array_fill(true, ARRAY[cardinality(seqs)]), array_fill(0::bigint, ARRAY[cardinality(seqs)]), reasons);
    RETURN cardinality(seqs);
END
$$;

-- Leases of a queue that have ended unsettled: their messages are back in line, where they were. The attempt was spent, and
-- failed, if it had begun. What has no attempt left is left to `give_up`. Skips what others hold, and says how many there
-- were.
CREATE FUNCTION lapse(p_queue text, p_now bigint, p_max integer, p_attempts_max integer) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    seqs bigint[];
BEGIN
    seqs := ARRAY(
        SELECT p.seq FROM pending p
        WHERE p.queue = p_queue AND p.token IS NOT NULL AND p.in_transit IN (false, true) AND p.ends_at <= p_now
            AND (p.in_transit OR p.failures + 1 < p_attempts_max)
        LIMIT p_max FOR UPDATE SKIP LOCKED);
    IF cardinality(seqs) > 0 THEN
        UPDATE pending p SET token = NULL, ends_at = NULL, in_transit = false,
            spent = p.spent + (NOT p.in_transit)::integer, failures = p.failures + (NOT p.in_transit)::integer
        WHERE p.seq = ANY (seqs);
    END IF;
    RETURN cardinality(seqs);
END
$$;

-- Due heads of one lane of a queue that nobody holds, with their rows locked.
CREATE FUNCTION heads(p_queue text, p_lane smallint, p_now bigint, p_max integer) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ARRAY(
        SELECT p.seq FROM pending p
        WHERE p.queue = p_queue AND p.is_head AND p.line_lane = p_lane AND p.token IS NULL
            AND p.claimable_at <= p_now AND (p.expires_at IS NULL OR p.expires_at > p_now)
        ORDER BY p.claimable_at, p.seq LIMIT p_max
        FOR UPDATE SKIP LOCKED);
END
$$;

-- Chooses up to so many due heads: higher lanes first, but one of a lower lane for every p_share of higher ones. `streak` and
-- `lowest` are the turn of the caller's process: how many passed over a lower lane, and which lower lane came last.
CREATE FUNCTION choose(
    p_queue text, p_max integer, p_now bigint, p_share integer, INOUT streak integer, INOUT lowest boolean,
    OUT chosen bigint[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    high bigint[]; normal bigint[]; low bigint[];
    h integer := 1; m integer := 1; l integer := 1;
    lanes integer; lane integer;
    -- Lower lanes are asked for no more than their turns, and what higher ones leave over.
    turns integer := p_max / p_share + 2;
BEGIN
    chosen := '{}';
    IF (SELECT q.paused FROM queue q WHERE q.name = p_queue) THEN
        RETURN;
    END IF;
    high := heads(p_queue, 0::smallint, p_now, p_max);
    normal := heads(p_queue, 1::smallint, p_now, least(p_max, p_max - cardinality(high) + turns));
    low := heads(p_queue, 2::smallint, p_now,
        least(p_max, greatest(p_max - cardinality(high) - cardinality(normal), 0) + turns));
    IF greatest(cardinality(high), cardinality(normal), cardinality(low))
        = cardinality(high) + cardinality(normal) + cardinality(low)
    THEN
        -- There is one lane, if any: nobody is passed over.
        chosen := high || normal || low;
        IF cardinality(chosen) > 0 THEN
            streak := 0;
        END IF;
        RETURN;
    END IF;
    WHILE cardinality(chosen) < p_max LOOP
        lanes := (h <= cardinality(high))::integer + (m <= cardinality(normal))::integer
            + (l <= cardinality(low))::integer;
        EXIT WHEN lanes = 0;
        lane := 1;
        IF lanes = 1 THEN
            streak := 0;
        ELSIF streak < p_share THEN
            streak := streak + 1;
        ELSE
            streak := 0;
            lowest := NOT lowest;
            lane := CASE WHEN lowest THEN 2 ELSE lanes END;
        END IF;
        -- The first, second or third of the lanes that have one.
        IF h <= cardinality(high) THEN
            lane := lane - 1;
            IF lane = 0 THEN
                chosen := chosen || high[h];
                h := h + 1;
                CONTINUE;
            END IF;
        END IF;
        IF m <= cardinality(normal) AND lane = 1 THEN
            chosen := chosen || normal[m];
            m := m + 1;
        ELSE
            chosen := chosen || low[l];
            l := l + 1;
        END IF;
    END LOOP;
END
$$;

-- How many of these messages, in their order, have bodies of so many bytes together. The first one fits if `p_first`.
CREATE FUNCTION fitting(p_chosen bigint[], p_bytes bigint, p_first boolean) RETURNS integer LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT count(*) FROM (
            SELECT w.place, sum(coalesce(octet_length(m.body), 0)) OVER (ORDER BY w.place) AS bytes
            FROM unnest(p_chosen) WITH ORDINALITY AS w (seq, place) LEFT JOIN message m ON m.seq = w.seq) t
        WHERE t.bytes <= p_bytes OR p_first AND t.place = 1);
END
$$;

-- How many more messages of a queue may be in transit. Reads no more of those under way than the answer takes.
CREATE FUNCTION room_in_transit(p_queue text, p_max integer, p_now bigint) RETURNS integer
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN p_max - (
        SELECT count(*) FROM (
            SELECT FROM pending p
            WHERE p.queue = p_queue AND p.token IS NOT NULL AND p.in_transit AND p.ends_at > p_now LIMIT p_max) t);
END
$$;

-- Leases up to so many messages, with bodies of no more than so many bytes save for the first. Tokens grow: a number for the claim, then places within it.
-- `in_transit_max` is null for attempts, which begin with their lease; otherwise the messages are in transit, and no more
-- of the queue than so many at a time. `back_in_line`: how many leases had ended unsettled; others could not see their
-- messages meanwhile.
CREATE FUNCTION claim(
    p_queue text, p_max integer, p_lease_ms bigint, p_streak integer, p_lowest boolean, p_in_transit_max integer,
    p_bytes bigint, p_share integer, p_attempts_max integer
) RETURNS TABLE (
    seq bigint, token bigint, ends_at bigint, attempt integer, failures integer, acks integer, admitted_at bigint,
    recipient text, lane smallint, user_id text, ack_required boolean, headers text, body bytea, checksum bigint,
    streak integer, lowest boolean, back_in_line integer
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now bigint := now_ms();
    turn record;
    lapsed integer;
    claim_number bigint;
    fits integer;
BEGIN
    IF p_in_transit_max IS NOT NULL THEN
        p_max := least(p_max, room_in_transit(p_queue, p_in_transit_max, now));
        IF p_max = 0 THEN
            RETURN;
        END IF;
    END IF;
    -- In this order: what ends may wait for its chain's head, with no other one in hand.
    PERFORM expire(p_queue, now, 1000);
    PERFORM give_up(p_queue, now, 1000, p_attempts_max);
    lapsed := lapse(p_queue, now, 1000, p_attempts_max);
    SELECT * INTO turn FROM choose(p_queue, p_max, now, p_share, p_streak, p_lowest);
    IF cardinality(turn.chosen) = 0 THEN
        RETURN;
    END IF;
    IF cardinality(turn.chosen) > 1 THEN
        fits := fitting(turn.chosen, p_bytes, true);
        IF fits < cardinality(turn.chosen) THEN
            -- The turn of those that are left is not over.
            SELECT * INTO turn FROM choose(p_queue, fits, now, p_share, p_streak, p_lowest);
        END IF;
    END IF;
    claim_number := nextval('lease_seq');
    RETURN QUERY
    WITH leased AS (
        UPDATE pending p SET token = claim_number * 65536 + w.place, ends_at = now + p_lease_ms,
            in_transit = p_in_transit_max IS NOT NULL
        FROM unnest(turn.chosen) WITH ORDINALITY AS w (seq, place) WHERE p.seq = w.seq
        RETURNING p.seq, p.token, p.ends_at, p.spent, p.failures, p.acks
    )
    SELECT l.seq, l.token, l.ends_at, l.spent + 1, l.failures, l.acks, m.admitted_at, m.recipient, m.lane, m.user_id,
        m.ack_required, m.headers, m.body, m.checksum, turn.streak, turn.lowest, lapsed
    FROM leased l JOIN message m ON m.seq = l.seq
    ORDER BY l.token;
END
$$;
