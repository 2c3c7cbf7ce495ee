-- Makes a new version the active one, and answers its number. A window size that slots ahead depend on is kept: then the
-- version is null, and the answer says which size, and until when.
CREATE FUNCTION put_slot_config(
    p_name text, p_max bigint, p_window_ms bigint, p_headroom bigint, p_calendar text,
    OUT version integer, OUT created_at bigint, OUT kept_window_ms bigint, OUT kept_until bigint
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    book slot_book;
BEGIN
    INSERT INTO slot_book AS b (name, version, max_per_window, window_ms, generation, held)
    VALUES (p_name, 0, p_max, p_window_ms, 1, 0)
    ON CONFLICT (name) DO UPDATE SET version = b.version RETURNING * INTO book;
    created_at := now_ms();
    IF book.window_ms <> p_window_ms THEN
        SELECT (max(w.window_no) + 1) * book.window_ms INTO kept_until FROM slot_window w WHERE w.config = p_name;
        IF kept_until > created_at THEN
            kept_window_ms := book.window_ms;
            RETURN;
        END IF;
        DELETE FROM slot_window w WHERE w.config = p_name;
        INSERT INTO slot_window (config, window_no, count)
        SELECT p_name, slot_window_of(s.scheduled, p_window_ms), count(*) FROM slot s WHERE s.config = p_name GROUP BY 2;
    END IF;
    version := book.version + 1;
    INSERT INTO slot_config (name, version, max_per_window, window_ms, headroom_windows, calendar, created_at)
    VALUES (p_name, version, p_max, p_window_ms, p_headroom, p_calendar, created_at);
    UPDATE slot_book b SET version = book.version + 1, max_per_window = p_max, window_ms = p_window_ms,
        generation = b.generation + (book.window_ms <> p_window_ms)::integer
    WHERE b.name = p_name;
    -- Which windows are full depends on the maximum.
    DELETE FROM slot_run r WHERE r.config = p_name;
    INSERT INTO slot_run (config, first, past_end)
    SELECT p_name, min(f.window_no), max(f.window_no) + 1 FROM (
        SELECT w.window_no, w.window_no - row_number() OVER (ORDER BY w.window_no) AS island
        FROM slot_window w WHERE w.config = p_name AND w.count >= p_max) f
    GROUP BY f.island;
END
$$;

-- Takes the books of these configurations, in the order of their names. The caller has read the versions before.
CREATE FUNCTION take_slot_books(p_names text[], p_versions integer[]) RETURNS SETOF slot_book
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY SELECT b.* FROM slot_book b WHERE b.name = ANY (p_names) ORDER BY b.name FOR UPDATE;
    IF EXISTS (
        SELECT FROM unnest(p_names, p_versions) AS k (name, version) LEFT JOIN slot_book b USING (name)
        WHERE k.version <> coalesce(b.version, 0))
    THEN
        RAISE EXCEPTION 'a slot configuration has changed' USING ERRCODE = 'TG002';
    END IF;
END
$$;

CREATE FUNCTION release(p_event text) RETURNS TABLE (
    answer smallint, config text, requested bigint, scheduled bigint, window_start bigint, created_at bigint,
    message_seq bigint, message_ms bigint
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    book slot_book;
    held slot;
    held_messages bigint[];
BEGIN
    SELECT b.* INTO book FROM slot s JOIN slot_book b ON b.name = s.config WHERE s.event = p_event FOR UPDATE OF b;
    SELECT s.* INTO held FROM slot s WHERE s.event = p_event AND s.config = book.name FOR UPDATE;
    IF held.event IS NULL THEN
        RETURN;
    END IF;
    answer := 0;
    now := now_ms();
    IF held.message_seq IS NOT NULL THEN
        held_messages := hold(ARRAY[held.message_seq]);
        now := now_ms();
        IF NOT EXISTS (
            SELECT FROM pending p WHERE p.seq = ANY (held_messages) AND (p.ends_at IS NULL OR p.ends_at <= now))
        THEN
            answer := 1;
        END IF;
    END IF;
    RETURN QUERY SELECT answer, held.config, held.requested, held.scheduled, held.window_start, held.created_at,
        held.message_seq, (SELECT m.admitted_at FROM message m WHERE m.seq = held.message_seq);
    IF answer = 1 THEN
        RETURN;
    END IF;
    DELETE FROM slot s WHERE s.event = p_event;
    PERFORM slot_give_back(held.config, slot_window_of(held.scheduled, book.window_ms), book.max_per_window);
    UPDATE slot_book b SET held = b.held - 1 WHERE b.name = book.name;
    IF held.message_seq IS NOT NULL THEN
        PERFORM end_messages(now, ARRAY[held.message_seq], ARRAY[4::smallint], NULL, NULL, NULL);
    END IF;
END
$$;

-- A slice of the slots whose time is over.
CREATE FUNCTION forget_slots(p_retention_ms bigint, p_max integer) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint := now_ms();
    events text[];
    forgotten integer := 0;
    r record;
BEGIN
    events := ARRAY(
        SELECT s.event FROM slot s WHERE s.over_at <= now - p_retention_ms ORDER BY s.over_at LIMIT p_max);
    IF cardinality(events) = 0 THEN
        RETURN 0;
    END IF;
    PERFORM FROM slot_book b WHERE b.name IN (SELECT s.config FROM slot s WHERE s.event = ANY (events))
    ORDER BY b.name FOR UPDATE;
    FOR r IN
        WITH gone AS (DELETE FROM slot s WHERE s.event = ANY (events) AND s.over_at <= now - p_retention_ms RETURNING s.*)
        SELECT g.config, slot_window_of(g.scheduled, b.window_ms) AS window_no, b.max_per_window
        FROM gone g JOIN slot_book b ON b.name = g.config
    LOOP
        forgotten := forgotten + 1;
        UPDATE slot_book b SET held = b.held - 1 WHERE b.name = r.config;
        PERFORM slot_give_back(r.config, r.window_no, r.max_per_window);
    END LOOP;
    RETURN forgotten;
END
$$;
