-- Which messages concern which recipient or charged user. An index over all messages would cost each admission a random
-- page; so the numbers of a block (seq >> 14) are put together once, when all its messages have come, by hash.
CREATE TABLE party_run (
    -- Some bits of the hash: a look-up reads one row of a block.
    slot   smallint NOT NULL,
    block  bigint NOT NULL,
    hashes integer[] NOT NULL,
    -- Their messages' places in the block.
    places smallint[] NOT NULL,
    PRIMARY KEY (slot, block)
);
-- Hashes don't get smaller by compression.
ALTER TABLE party_run ALTER hashes SET STORAGE EXTERNAL, ALTER places SET STORAGE EXTERNAL;

CREATE TABLE party_mark (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Earlier blocks have their rows.
    past_end bigint NOT NULL,
    -- A hash, to notice a server that hashes otherwise: then all rows are made anew.
    probe    integer NOT NULL
);
INSERT INTO party_mark (past_end, probe) VALUES (0, hashtext('tidegate'));

-- One block at a time, so that it is grouped by one key and sorted in memory.
CREATE FUNCTION put_parties(p_block bigint) RETURNS void LANGUAGE sql VOLATILE AS $$
    INSERT INTO party_run (slot, block, hashes, places)
    SELECT (w.hash >> 25) & 127, p_block, array_agg(w.hash), array_agg(w.place)
    FROM (
        SELECT (m.seq & 16383)::smallint AS place, hashtext(m.recipient) AS hash FROM message m
        WHERE m.seq >= p_block << 14 AND m.seq < (p_block + 1) << 14 AND m.recipient IS NOT NULL
        UNION ALL
        -- One entry is enough for a recipient who is charged.
        SELECT (m.seq & 16383)::smallint, hashtext(m.user_id) FROM message m
        WHERE m.seq >= p_block << 14 AND m.seq < (p_block + 1) << 14 AND m.user_id IS DISTINCT FROM m.recipient
            AND m.user_id IS NOT NULL) w
    GROUP BY 1
$$;

-- Who has drawn a number of a message and has not ended yet: the lock comes before the number, and stays until the end.
CREATE FUNCTION drawing() RETURNS SETOF text LANGUAGE sql VOLATILE AS $$
    SELECT l.virtualtransaction FROM pg_locks l
    WHERE l.locktype = 'relation' AND l.relation = 'tidegate.message_seq'::regclass AND l.mode = 'RowExclusiveLock'
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND l.pid <> pg_backend_pid()
$$;

-- Makes the rows of the next blocks that are full. Says how many blocks it went on by.
CREATE FUNCTION summarize_parties(p_blocks integer) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET jit TO off SET max_parallel_workers_per_gather TO 0 AS $$
DECLARE
    m party_mark;
    drawn bigint;
    waited_for text[];
    first bigint;
    until bigint;
BEGIN
    -- One session at a time does so.
    SELECT * INTO m FROM party_mark FOR UPDATE SKIP LOCKED;
    IF m.past_end IS NULL THEN
        RETURN 0;
    ELSIF m.probe <> hashtext('tidegate') THEN
        DELETE FROM party_run;
        m.past_end := 0;
    END IF;
    SELECT last_value INTO drawn FROM message_seq;
    until := (drawn + 1) >> 14;
    IF until <= m.past_end THEN
        RETURN 0;
    END IF;
    -- Only now: those with earlier numbers are among them, or their messages can be seen.
    waited_for := ARRAY(SELECT drawing());
    FOR i IN 1 .. 50 LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM drawing() d WHERE d = ANY (waited_for));
        IF i = 50 THEN
            RETURN 0;
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
    -- Numbers without messages take no time.
    SELECT least(coalesce((SELECT o.seq >> 14 FROM message o WHERE o.seq >= m.past_end << 14 ORDER BY o.seq LIMIT 1), until),
        until) INTO first;
    until := least(until, first + p_blocks);
    FOR block IN first .. until - 1 LOOP
        PERFORM put_parties(block);
    END LOOP;
    UPDATE party_mark SET past_end = until, probe = hashtext('tidegate');
    RETURN until - m.past_end;
END
$$;

-- Of a range of old messages that was retired: makes the rows of what was kept anew. Says whether there was one.
CREATE FUNCTION tidy_parties(p_kept_max bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    p tidegate.partition;
    first bigint;
    until bigint;
BEGIN
    SELECT * INTO p FROM partition o WHERE o.kept IS NOT NULL AND NOT o.tidied ORDER BY o.first LIMIT 1;
    SELECT least(m.past_end, p.past_end >> 14) INTO until FROM party_mark m FOR UPDATE SKIP LOCKED;
    IF p.first IS NULL OR until IS NULL THEN
        RETURN false;
    END IF;
    -- Blocks at its ends also hold messages of its neighbours, and stay as they are.
    first := (p.first + 16383) >> 14;
    -- Where most of it was kept, it is not worth it.
    IF p.kept <= p_kept_max AND first < until THEN
        DELETE FROM party_run r WHERE r.block >= first AND r.block < until;
        FOR block IN first .. until - 1 LOOP
            PERFORM put_parties(block);
        END LOOP;
    END IF;
    UPDATE partition o SET tidied = true WHERE o.first = p.first;
    RETURN true;
END
$$;

-- Numbers after that one of messages whose recipient or user may be this one, ascending: at least so many, if there are.
-- What has no rows yet is read itself, so many numbers at the most. Unless that was all, says how far it looked.
-- The rows are read by their key, whatever the server knows about the table.
CREATE FUNCTION find_party(p_name text, p_after bigint, p_max integer, p_read_max bigint,
    OUT seqs bigint[], OUT looked_to bigint
) LANGUAGE plpgsql STABLE SET enable_seqscan TO off SET enable_bitmapscan TO off SET jit TO off AS $$
DECLARE
    wanted integer := hashtext(p_name);
    past_end bigint;
    tail bigint;
    r record;
BEGIN
    seqs := '{}';
    SELECT CASE WHEN m.probe = hashtext('tidegate') THEN m.past_end ELSE 0 END INTO past_end FROM party_mark m;
    FOR r IN
        SELECT o.block, o.hashes, o.places FROM party_run o
        WHERE o.slot = ((wanted >> 25) & 127)::smallint AND o.block >= greatest(p_after + 1, 0) >> 14
            AND o.block < past_end AND wanted = ANY (o.hashes)
        ORDER BY o.block
    LOOP
        seqs := seqs || ARRAY(
            SELECT (r.block << 14) + r.places[n] FROM unnest(array_positions(r.hashes, wanted)) AS n
            WHERE (r.block << 14) + r.places[n] > p_after ORDER BY 1);
        IF cardinality(seqs) >= p_max THEN
            looked_to := seqs[cardinality(seqs)];
            RETURN;
        END IF;
    END LOOP;
    tail := greatest(p_after + 1, past_end << 14);
    seqs := seqs || ARRAY(
        SELECT m.seq FROM message m WHERE m.seq >= tail AND m.seq < tail + p_read_max
            AND (m.recipient = p_name OR m.user_id = p_name) ORDER BY m.seq);
    IF EXISTS (SELECT FROM message m WHERE m.seq >= tail + p_read_max) THEN
        looked_to := tail + p_read_max - 1;
    END IF;
END
$$;
