-- Admits a batch: items are decided in order, in memory, and written set by set.
--
-- Arrays run over the items. Distinct users, keys, queues and chains stand in arrays of their own, sorted, and the items
-- hold places in these (`…_at`), so that locks are taken in the order of keys and nothing is searched for.
-- verdict: 0 admitted, 1 deferred, 2 duplicate, 3 key conflict, 4 unknown user, 5 over quota, 6 full, 7 queue full.
CREATE FUNCTION admit(
    p_queue_at integer[], p_chain_at integer[], p_recipient text[], p_lane smallint[], p_due bigint[],
    p_expires bigint[], p_user_at integer[], p_horizon_ms bigint[], p_key_at integer[], p_fingerprint bytea[],
    p_headers text[], p_ack boolean[], p_body bytea[], p_checksum bigint[],
    p_queues text[], p_queue_max bigint[], p_queue_hard_max bigint[],
    p_chain_queue text[], p_chain_recipient text[], p_users text[], p_keys bytea[],
    p_pending_max bigint, p_key_window_ms bigint
) RETURNS TABLE (
    verdict smallint, seq bigint, at bigint, due bigint,
    quota_max bigint, quota_window_ms bigint, quota_count bigint, quota_since bigint
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    items integer := cardinality(p_lane);
    verdicts smallint[] := array_fill(NULL::smallint, ARRAY[items]);
    dues bigint[] := p_due;
    -- Answers that are known before the numbers are given out.
    seqs bigint[] := array_fill(NULL::bigint, ARRAY[items]);
    ats bigint[];
    same_as integer[] := '{}';
    known integer[];
    members bigint[];
    -- By user: the quota's window. Of those who have later ones, or ask for one, all of it.
    maxima bigint[]; windows bigint[]; counts bigint[]; sinces bigint[]; deferring boolean[];
    accounts quota[];
    account quota;
    charged record;
    -- By item: the window as the item left it.
    counts_then bigint[] := array_fill(NULL::bigint, ARRAY[items]);
    sinces_then bigint[] := array_fill(NULL::bigint, ARRAY[items]);
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
    IF cardinality(p_users) > 0 THEN
        SELECT array_agg(a.place), array_agg(a.max), array_agg(a.window_ms), array_agg(a.count), array_agg(a.since),
            array_agg(a.deferring)
        INTO known, maxima, windows, counts, sinces, deferring FROM (
            SELECT w.place, o.max, o.window_ms, o.count, o.since, o.later_at <> '{}' AS deferring
            FROM unnest(p_users) WITH ORDINALITY AS w (user_id, place) JOIN quota o USING (user_id)
            ORDER BY o.user_id FOR UPDATE OF o) a;
        IF cardinality(known) < cardinality(p_users) THEN
            -- Not everybody has one: each to their place.
            FOR n IN REVERSE cardinality(known) .. 1 LOOP
                maxima[known[n]] := maxima[n];
                windows[known[n]] := windows[n];
                counts[known[n]] := counts[n];
                sinces[known[n]] := sinces[n];
                deferring[known[n]] := deferring[n];
                IF known[n] > n THEN
                    maxima[n] := NULL;
                END IF;
            END LOOP;
        END IF;
    END IF;
    -- Only now: whoever had to wait for a quota would be late with an earlier time.
    now := now_ms();
    ats := array_fill(now, ARRAY[items]);
    IF cardinality(p_keys) > 0 THEN
        FOR r IN
            SELECT w.place, o AS used FROM unnest(p_keys) WITH ORDINALITY AS w (key, place) JOIN key o USING (key)
            WHERE o.admitted_at > now - p_key_window_ms
        LOOP
            keys[r.place] := r.used;
        END LOOP;
    END IF;
    room := room_in('', p_pending_max, items, now);
    FOR i IN 1 .. cardinality(p_queues) LOOP
        IF p_queue_max[i] IS NOT NULL THEN
            queue_room[i] := room_in(p_queues[i], p_queue_max[i], items, now);
            queue_hard_room[i] := queue_room[i] + p_queue_hard_max[i] - p_queue_max[i];
        END IF;
    END LOOP;

    -- The common case as one set: nobody meets a limit or a key, so the order of the items decides nothing.
    members := ARRAY(SELECT count(*) FROM unnest(p_user_at) AS w WHERE w IS NOT NULL GROUP BY w ORDER BY w);
    IF keys IS NULL AND cardinality(array_remove(p_key_at, NULL)) = cardinality(p_keys)
        AND room >= items AND items <= ALL (coalesce(array_remove(queue_room, NULL), '{}'))
        AND (SELECT coalesce(bool_and(coalesce(NOT a.deferring AND a.since <= now AND now - a.since < a.window_ms
                AND a.count + a.members <= a.max, false)), true)
            FROM unnest(maxima, windows, counts, sinces, deferring, members)
                AS a (max, window_ms, count, since, deferring, members))
    THEN
        verdicts := array_fill(0::smallint, ARRAY[items]);
        SELECT array_agg(a.i), array_agg(coalesce(a.due, now)), array_agg(counts[a.u] + a.turn), array_agg(sinces[a.u])
        INTO chosen, dues, counts_then, sinces_then FROM (
            SELECT w.i::integer, w.due, w.u, row_number() OVER (PARTITION BY w.u ORDER BY w.i) AS turn
            FROM unnest(p_due, p_user_at) WITH ORDINALITY AS w (due, u, i) ORDER BY w.i) a;
        counts := ARRAY(SELECT a.count + a.members FROM unnest(counts, members) AS a (count, members));
        -- Nothing is left to be decided one by one.
        items := 0;
    END IF;
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
        ELSIF room <= 0 THEN
            verdicts[i] := 6;
            CONTINUE;
        ELSIF queue_room[q] <= 0 AND NOT (p_lane[i] = 0 AND queue_hard_room[q] > 0) THEN
            verdicts[i] := 7;
            CONTINUE;
        END IF;
        dues[i] := coalesce(p_due[i], now);
        verdicts[i] := 0;
        u := p_user_at[i];
        IF u IS NOT NULL THEN
            IF maxima[u] IS NULL THEN
                verdicts[i] := 4;
                CONTINUE;
            ELSIF NOT deferring[u] AND sinces[u] <= now AND now - sinces[u] < windows[u] AND counts[u] < maxima[u] THEN
                counts[u] := counts[u] + 1;
            ELSE
                account := accounts[u];
                IF account.user_id IS NULL THEN
                    SELECT * INTO account FROM quota o WHERE o.user_id = p_users[u];
                END IF;
                account.count := counts[u];
                account.since := sinces[u];
                charged := quota_charge(account, now, p_horizon_ms[i]);
                account := charged.q;
                accounts[u] := account;
                counts[u] := account.count;
                sinces[u] := account.since;
                deferring[u] := account.later_at <> '{}';
                IF charged.deferred_to IS NOT NULL THEN
                    verdicts[i] := 1;
                    -- The later of what the caller asked for and what the quota allows.
                    dues[i] := greatest(dues[i], charged.deferred_to);
                ELSIF NOT charged.passed THEN
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
        IF (SELECT count(*) FROM queue o WHERE o.name = ANY (p_queues)) < cardinality(p_queues) THEN
            INSERT INTO queue (name)
            SELECT DISTINCT p_queues[p_queue_at[i]] FROM unnest(chosen) AS i ORDER BY 1 ON CONFLICT DO NOTHING;
        END IF;
        numbers := enter(
            now, chosen, dues, p_queue_at, p_chain_at, p_recipient, p_lane, p_expires, p_queues,
            p_chain_queue, p_chain_recipient);
        INSERT INTO message (seq, admitted_at, queue, recipient, chained, lane, user_id, expires_at, headers,
            ack_required, body, checksum)
        SELECT n, now, p_queues[p_queue_at[i]], p_recipient[i], p_chain_at[i] IS NOT NULL, p_lane[i],
            p_users[p_user_at[i]], p_expires[i], p_headers[i], p_ack[i], p_body[i], p_checksum[i]
        FROM unnest(chosen, numbers) AS w (i, n);
        IF cardinality(chosen) = cardinality(p_lane) THEN
            seqs := numbers;
        ELSE
            FOR i IN 1 .. cardinality(chosen) LOOP
                seqs[chosen[i]] := numbers[i];
            END LOOP;
        END IF;
        PERFORM use_keys(now, p_keys, p_key_at, p_fingerprint, chosen, numbers, p_key_window_ms);
        PERFORM book(
            array_agg(p_queues[p_queue_at[i]]), array_agg(p_lane[i]),
            array_fill(NULL::smallint, ARRAY[cardinality(chosen)]),
            array_fill(0::smallint, ARRAY[cardinality(chosen)]))
        FROM unnest(chosen) AS i;
    END IF;
    RETURN QUERY
    SELECT a.verdict, coalesce(a.seq, seqs[same_as[a.place]]), a.at, a.due,
        CASE WHEN a.count IS NOT NULL THEN maxima[a.user_at] END,
        CASE WHEN a.count IS NOT NULL THEN windows[a.user_at] END, a.count, a.since
    FROM unnest(verdicts, seqs, ats, dues, p_user_at, counts_then, sinces_then)
        WITH ORDINALITY AS a (verdict, seq, at, due, user_at, count, since, place)
    ORDER BY a.place;
END
$$;
