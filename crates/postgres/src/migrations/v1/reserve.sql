-- Gives each event a slot, and admits its message with it. Items are decided in order, with their configurations in hand.
--
-- As in `admit`, distinct events, configurations, queues and chains stand in arrays of their own, sorted. Open windows
-- come as ranges: those of item i are p_range_at[i] up to, and without, p_range_at[i + 1].
-- verdict: 0 assigned, 1 existing, 2 unknown configuration, 3 no room, 4 full.
CREATE FUNCTION reserve(
    p_event_at integer[], p_config_at integer[], p_requested bigint[], p_first bigint[], p_share bigint[],
    p_first_at bigint[], p_jitter_ms bigint[], p_range_at integer[], p_range_from bigint[], p_range_past bigint[],
    p_queue_at integer[], p_chain_at integer[], p_recipient text[], p_lane smallint[], p_headers text[],
    p_body bytea[], p_checksum bigint[], p_events text[], p_configs text[], p_versions integer[],
    p_queues text[], p_queue_max bigint[], p_queue_hard_max bigint[], p_chain_queue text[], p_chain_recipient text[],
    p_pending_max bigint, p_pending_spare bigint, p_slots_max bigint
) RETURNS TABLE (
    verdict smallint, config text, requested bigint, scheduled bigint, window_start bigint, created_at bigint,
    message_seq bigint, message_ms bigint
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    items integer := cardinality(p_event_at);
    verdicts smallint[] := array_fill(NULL::smallint, ARRAY[items]);
    windows bigint[] := array_fill(NULL::bigint, ARRAY[items]);
    dues bigint[] := array_fill(NULL::bigint, ARRAY[items]);
    books slot_book[];
    book slot_book;
    known boolean[];
    event_items integer[];
    chosen integer[] := '{}';
    carriers integer[] := '{}';
    numbers bigint[];
    seqs bigint[] := array_fill(NULL::bigint, ARRAY[items]);
    room bigint;
    slots_left bigint;
    queue_room bigint[];
    queue_hard_room bigint[];
    taken integer;
    place bigint;
    q integer;
    r record;
BEGIN
    FOR r IN SELECT array_position(p_configs, b.name) AS at, b AS taken FROM take_slot_books(p_configs, p_versions) b LOOP
        books[r.at] := r.taken;
    END LOOP;
    now := now_ms();
    FOR r IN SELECT w.at FROM unnest(p_events) WITH ORDINALITY AS w (event, at) JOIN slot s USING (event) LOOP
        known[r.at] := true;
    END LOOP;
    SELECT p_slots_max - coalesce(sum(b.held), 0) INTO slots_left FROM slot_book b;
    room := room_in('', p_pending_max, items, now);
    FOR i IN 1 .. cardinality(p_queues) LOOP
        IF p_queue_max[i] IS NOT NULL THEN
            queue_room[i] := room_in(p_queues[i], p_queue_max[i], items, now);
            queue_hard_room[i] := queue_room[i] + p_queue_hard_max[i] - p_queue_max[i];
        END IF;
    END LOOP;

    FOR i IN 1 .. items LOOP
        book := books[p_config_at[i]];
        q := p_queue_at[i];
        IF known[p_event_at[i]] OR event_items[p_event_at[i]] IS NOT NULL THEN
            verdicts[i] := 1;
            CONTINUE;
        ELSIF book.name IS NULL THEN
            verdicts[i] := 2;
            CONTINUE;
        ELSIF slots_left <= 0 THEN
            verdicts[i] := 4;
            CONTINUE;
        END IF;
        place := slot_place(book.name, p_first[i], p_share[i],
            p_range_from[p_range_at[i]:p_range_at[i + 1] - 1], p_range_past[p_range_at[i]:p_range_at[i + 1] - 1]);
        IF place IS NULL THEN
            verdicts[i] := 3;
            CONTINUE;
        ELSIF q IS NOT NULL AND (room <= 0 AND NOT (p_lane[i] = 0 AND room + p_pending_spare > 0)
            OR queue_room[q] <= 0 AND NOT (p_lane[i] = 0 AND queue_hard_room[q] > 0))
        THEN
            verdicts[i] := 4;
            CONTINUE;
        END IF;
        PERFORM slot_take(book.name, place, book.max_per_window);
        verdicts[i] := 0;
        windows[i] := place;
        dues[i] := CASE WHEN place = p_first[i] THEN p_first_at[i] ELSE place * book.window_ms + p_jitter_ms[i] END;
        chosen := chosen || i;
        event_items[p_event_at[i]] := i;
        slots_left := slots_left - 1;
        IF q IS NOT NULL THEN
            carriers := carriers || i;
            room := room - 1;
            queue_room[q] := queue_room[q] - 1;
            queue_hard_room[q] := queue_hard_room[q] - 1;
        END IF;
    END LOOP;

    UPDATE slot_book b SET held = b.held + n.count FROM (
        SELECT p_configs[p_config_at[i]] AS name, count(*) AS count FROM unnest(chosen) AS i GROUP BY 1) n
    WHERE b.name = n.name;
    IF cardinality(carriers) > 0 THEN
        numbers := admit_plain(now, carriers, dues, p_queue_at, p_chain_at, p_recipient, p_lane, p_headers, p_body,
            p_checksum, p_queues, p_chain_queue, p_chain_recipient);
        FOR i IN 1 .. cardinality(carriers) LOOP
            seqs[carriers[i]] := numbers[i];
        END LOOP;
    END IF;
    INSERT INTO slot (event, config, generation, requested, scheduled, window_no, window_start, created_at, over_at,
        message_seq)
    SELECT p_events[p_event_at[i]], b.name, b.generation, p_requested[i], dues[i], windows[i],
        windows[i] * b.window_ms, now, greatest((windows[i] + 1) * b.window_ms, now), seqs[i]
    FROM unnest(chosen) AS i JOIN unnest(books) b ON b.name = p_configs[p_config_at[i]]
    ORDER BY p_event_at[i] ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS taken = ROW_COUNT;
    IF taken < cardinality(chosen) THEN
        RAISE EXCEPTION 'an event was placed at the same moment' USING ERRCODE = 'TG001';
    END IF;
    IF cardinality(carriers) > 0 THEN
        PERFORM book(
            array_agg(p_queues[p_queue_at[i]]), array_agg(p_lane[i]),
            array_fill(NULL::smallint, ARRAY[cardinality(carriers)]),
            array_fill(0::smallint, ARRAY[cardinality(carriers)]))
        FROM unnest(carriers) AS i;
    END IF;
    FOR verdict, config, requested, scheduled, window_start, created_at, message_seq, message_ms IN
        SELECT w.verdict, s.config, s.requested, s.scheduled, s.window_start, s.created_at, s.message_seq, m.admitted_at
        FROM unnest(verdicts, p_event_at) WITH ORDINALITY AS w (verdict, event_at, place)
        LEFT JOIN slot s ON s.event = p_events[w.event_at] AND w.verdict IN (0, 1)
        LEFT JOIN message m ON m.seq = s.message_seq
        ORDER BY w.place
    LOOP
        IF verdict = 1 AND config IS NULL THEN
            -- It was another configuration's, which we don't hold.
            RAISE EXCEPTION 'an event was given back at the same moment' USING ERRCODE = 'TG001';
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Messages without charge, key or expiry, due when they are told. The caller books them.
CREATE FUNCTION admit_plain(
    p_now bigint, p_chosen integer[], p_due bigint[], p_queue_at integer[], p_chain_at integer[], p_recipient text[],
    p_lane smallint[], p_headers text[], p_body bytea[], p_checksum bigint[], p_queues text[], p_chain_queue text[],
    p_chain_recipient text[]
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    numbers bigint[];
BEGIN
    numbers := enter(p_now, p_chosen, p_due, p_queue_at, p_chain_at, p_recipient, p_lane, NULL, p_queues,
        p_chain_queue, p_chain_recipient);
    INSERT INTO message (seq, admitted_at, queue, recipient, chained, lane, headers, ack_required, body, checksum)
    SELECT n, p_now, p_queues[p_queue_at[i]], p_recipient[i], p_chain_at[i] IS NOT NULL, p_lane[i], p_headers[i], false,
        p_body[i], p_checksum[i]
    FROM unnest(p_chosen, numbers) AS w (i, n);
    RETURN numbers;
END
$$;
