-- Admits a batch whose items meet a key or a limit: they are decided in order, one by one, in memory, and written set by
-- set. The caller has charged all of them to their quotas, whose rows it holds since; what is not admitted is taken back.
CREATE FUNCTION admit_singly(
    p_now bigint, p_queue_at integer[], p_chain_at integer[], p_recipient text[], p_lane smallint[], p_due bigint[],
    p_expires bigint[], p_user_at integer[], p_horizon_ms bigint[], p_key_at integer[], p_fingerprint bytea[],
    p_headers text[], p_ack boolean[], p_body bytea[], p_checksum bigint[],
    p_queues text[], p_queue_max bigint[], p_queue_hard_max bigint[],
    p_chain_queue text[], p_chain_recipient text[], p_users text[], p_charges integer[], p_keys bytea[],
    p_pending_max bigint, p_pending_spare bigint, p_key_window_ms bigint,
    OUT verdicts smallint[], OUT seqs bigint[], OUT ats bigint[], OUT dues bigint[],
    -- By user: the quota's window.
    OUT maxima bigint[], OUT windows bigint[], OUT exempts boolean[],
    -- By item: the window as the item left it.
    OUT counts_then bigint[], OUT sinces_then bigint[]
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    items integer := cardinality(p_lane);
    same_as integer[] := '{}';
    known integer[];
    -- By user: as it is while items are decided. Of those who have later windows, or ask for one, all of it.
    counts bigint[]; sinces bigint[]; deferring boolean[];
    accounts quota[];
    account quota;
    charged record;
    -- Passes when the window is full, uncounted.
    exempt boolean;
    keys key[];
    key_items integer[];
    room bigint;
    queue_room bigint[];
    queue_hard_room bigint[];
    chosen integer[] := '{}';
    numbers bigint[];
    k integer;
    u integer;
    q integer;
    kept key;
    r record;
BEGIN
    verdicts := array_fill(NULL::smallint, ARRAY[items]);
    seqs := array_fill(NULL::bigint, ARRAY[items]);
    ats := array_fill(p_now, ARRAY[items]);
    dues := array_fill(NULL::bigint, ARRAY[items]);
    counts_then := array_fill(NULL::bigint, ARRAY[items]);
    sinces_then := array_fill(NULL::bigint, ARRAY[items]);
    IF cardinality(p_users) > 0 THEN
        -- Those that we have charged. Whose quota is younger had none when we looked.
        SELECT array_agg(a.place), array_agg(a.max), array_agg(a.window_ms), array_agg(a.count), array_agg(a.since),
            array_agg(a.deferring), array_agg(a.exempts_high)
        INTO known, maxima, windows, counts, sinces, deferring, exempts FROM (
            SELECT w.place, o.max, o.window_ms, o.count - w.charge AS count, o.since, o.later_at <> '{}' AS deferring,
                o.exempts_high
            FROM unnest(p_users, p_charges) WITH ORDINALITY AS w (user_id, charge, place) JOIN quota o USING (user_id)
            WHERE o.xmin = pg_current_xact_id()::xid ORDER BY w.place) a;
        IF cardinality(known) < cardinality(p_users) THEN
            -- Not everybody has one: each to their place.
            FOR n IN REVERSE cardinality(known) .. 1 LOOP
                maxima[known[n]] := maxima[n];
                windows[known[n]] := windows[n];
                counts[known[n]] := counts[n];
                sinces[known[n]] := sinces[n];
                deferring[known[n]] := deferring[n];
                exempts[known[n]] := exempts[n];
                IF known[n] > n THEN
                    maxima[n] := NULL;
                END IF;
            END LOOP;
        END IF;
    END IF;
    IF cardinality(p_keys) > 0 THEN
        FOR r IN
            SELECT w.place, o AS used FROM unnest(p_keys) WITH ORDINALITY AS w (key, place) JOIN key o USING (key)
            WHERE o.admitted_at > p_now - p_key_window_ms
        LOOP
            keys[r.place] := r.used;
        END LOOP;
    END IF;
    room := room_in('', p_pending_max, items, p_now);
    FOR i IN 1 .. cardinality(p_queues) LOOP
        IF p_queue_max[i] IS NOT NULL THEN
            queue_room[i] := room_in(p_queues[i], p_queue_max[i], items, p_now);
            queue_hard_room[i] := queue_room[i] + p_queue_hard_max[i] - p_queue_max[i];
        END IF;
    END LOOP;

    FOR i IN 1 .. items LOOP
        k := p_key_at[i];
        q := p_queue_at[i];
        IF k IS NOT NULL AND (keys[k] IS NOT NULL OR key_items[k] IS NOT NULL) THEN
            IF key_items[k] IS NOT NULL THEN
                same_as[i] := key_items[k];
                verdicts[i] := CASE WHEN p_fingerprint[key_items[k]] = p_fingerprint[i] THEN 2 ELSE 3 END;
            ELSE
                kept := keys[k];
                verdicts[i] := CASE WHEN kept.fingerprint = p_fingerprint[i] THEN 2 ELSE 3 END;
                seqs[i] := kept.seq;
                ats[i] := kept.admitted_at;
            END IF;
            CONTINUE;
        ELSIF room <= 0 AND NOT (p_lane[i] = 0 AND room + p_pending_spare > 0) THEN
            verdicts[i] := 6;
            CONTINUE;
        ELSIF queue_room[q] <= 0 AND NOT (p_lane[i] = 0 AND queue_hard_room[q] > 0) THEN
            verdicts[i] := 7;
            CONTINUE;
        END IF;
        dues[i] := coalesce(p_due[i], p_now);
        verdicts[i] := 0;
        u := p_user_at[i];
        IF u IS NOT NULL THEN
            IF maxima[u] IS NULL THEN
                verdicts[i] := 4;
                CONTINUE;
            ELSIF NOT deferring[u] AND sinces[u] <= p_now AND p_now - sinces[u] < windows[u] AND counts[u] < maxima[u] THEN
                counts[u] := counts[u] + 1;
            ELSE
                account := accounts[u];
                IF account.user_id IS NULL THEN
                    SELECT * INTO account FROM quota o WHERE o.user_id = p_users[u];
                END IF;
                account.count := counts[u];
                account.since := sinces[u];
                exempt := account.exempts_high AND p_lane[i] = 0;
                charged := quota_charge(account, p_now, CASE WHEN NOT exempt THEN p_horizon_ms[i] END);
                account := charged.q;
                accounts[u] := account;
                counts[u] := account.count;
                sinces[u] := account.since;
                deferring[u] := account.later_at <> '{}';
                IF charged.deferred_to IS NOT NULL THEN
                    verdicts[i] := 1;
                    -- The later of what the caller asked for and what the quota allows.
                    dues[i] := greatest(dues[i], charged.deferred_to);
                ELSIF NOT charged.passed AND NOT exempt THEN
                    verdicts[i] := 5;
                END IF;
            END IF;
            counts_then[i] := counts[u];
            sinces_then[i] := sinces[u];
            CONTINUE WHEN verdicts[i] = 5;
        END IF;
        chosen := chosen || i;
        room := room - 1;
        queue_room[q] := queue_room[q] - 1;
        queue_hard_room[q] := queue_hard_room[q] - 1;
        IF k IS NOT NULL THEN
            key_items[k] := i;
        END IF;
    END LOOP;

    IF cardinality(p_users) > 0 THEN
        UPDATE quota o SET count = a.count, since = a.since
        FROM unnest(p_users, maxima, counts, sinces) AS a (user_id, max, count, since)
        WHERE o.user_id = a.user_id AND a.max IS NOT NULL;
    END IF;
    IF accounts IS NOT NULL THEN
        UPDATE quota o SET later_at = a.later_at, later = a.later FROM unnest(accounts) a WHERE o.user_id = a.user_id;
    END IF;
    IF cardinality(chosen) > 0 THEN
        numbers := enter(
            p_now, chosen, dues, p_queue_at, p_chain_at, p_recipient, p_lane, p_expires, p_queues,
            p_chain_queue, p_chain_recipient);
        INSERT INTO message (seq, admitted_at, queue, recipient, chained, lane, user_id, expires_at, headers,
            ack_required, body, checksum)
        SELECT n, p_now, p_queues[p_queue_at[i]], p_recipient[i], p_chain_at[i] IS NOT NULL, p_lane[i],
            p_users[p_user_at[i]], p_expires[i], p_headers[i], p_ack[i], p_body[i], p_checksum[i]
        FROM unnest(chosen, numbers) AS w (i, n);
        FOR i IN 1 .. cardinality(chosen) LOOP
            seqs[chosen[i]] := numbers[i];
        END LOOP;
        PERFORM use_keys(p_now, p_keys, p_key_at, p_fingerprint, chosen, numbers, p_key_window_ms);
        PERFORM book(
            array_agg(p_queues[p_queue_at[i]]), array_agg(p_lane[i]),
            array_fill(NULL::smallint, ARRAY[cardinality(chosen)]),
            array_fill(0::smallint, ARRAY[cardinality(chosen)]))
        FROM unnest(chosen) AS i;
    END IF;
    FOR i IN 1 .. coalesce(array_upper(same_as, 1), 0) LOOP
        IF same_as[i] IS NOT NULL THEN
            seqs[i] := seqs[same_as[i]];
        END IF;
    END LOOP;
END
$$;
