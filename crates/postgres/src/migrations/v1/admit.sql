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
    same_as integer[] := array_fill(NULL::integer, ARRAY[items]);
    accounts quota[];
    answers quota[];
    account quota;
    charged record;
    keys key[];
    key_items integer[];
    room bigint;
    queue_room bigint[];
    queue_hard_room bigint[];
    chosen integer[] := '{}';
    numbers bigint[];
    k integer;
    u integer;
    kept key;
    r record;
BEGIN
    IF cardinality(p_users) > 0 THEN
        FOR r IN
            SELECT w.place, q AS account
            FROM unnest(p_users) WITH ORDINALITY AS w (user_id, place) JOIN quota q USING (user_id)
            ORDER BY q.user_id FOR UPDATE OF q
        LOOP
            accounts[r.place] := r.account;
        END LOOP;
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

    FOR i IN 1 .. items LOOP
        k := p_key_at[i];
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
        ELSIF queue_room[p_queue_at[i]] <= 0
            AND NOT (p_lane[i] = 0 AND queue_hard_room[p_queue_at[i]] > 0)
        THEN
            verdicts[i] := 7;
            CONTINUE;
        END IF;
        dues[i] := coalesce(p_due[i], now);
        verdicts[i] := 0;
        u := p_user_at[i];
        IF u IS NOT NULL THEN
            account := accounts[u];
            IF account.user_id IS NULL THEN
                verdicts[i] := 4;
                CONTINUE;
            ELSIF account.since <= now AND now - account.since < account.window_ms
                AND account.count < account.max AND account.later_at = '{}'
            THEN
                account.count := account.count + 1;
            ELSE
                charged := quota_charge(account, now, p_horizon_ms[i]);
                account := charged.q;
                IF charged.deferred_to IS NOT NULL THEN
                    verdicts[i] := 1;
                    -- The later of what the caller asked for and what the quota allows.
                    dues[i] := greatest(dues[i], charged.deferred_to);
                ELSIF NOT charged.passed THEN
                    verdicts[i] := 5;
                END IF;
            END IF;
            accounts[u] := account;
            answers[i] := account;
            CONTINUE WHEN verdicts[i] = 5;
        END IF;
        chosen := chosen || i;
        room := room - 1;
        queue_room[p_queue_at[i]] := queue_room[p_queue_at[i]] - 1;
        queue_hard_room[p_queue_at[i]] := queue_hard_room[p_queue_at[i]] - 1;
        IF k IS NOT NULL THEN
            key_items[k] := i;
        END IF;
    END LOOP;

    IF cardinality(p_users) > 0 THEN
        UPDATE quota q SET count = a.count, since = a.since, later_at = a.later_at, later = a.later
        FROM unnest(accounts) a WHERE q.user_id = a.user_id;
    END IF;
    IF cardinality(chosen) > 0 THEN
        INSERT INTO queue (name)
        SELECT DISTINCT p_queues[p_queue_at[i]] FROM unnest(chosen) AS i
        WHERE NOT EXISTS (SELECT FROM queue o WHERE o.name = p_queues[p_queue_at[i]])
        ORDER BY 1 ON CONFLICT DO NOTHING;
        numbers := enter(
            now, chosen, dues, p_queue_at, p_chain_at, p_recipient, p_lane, p_expires, p_queues,
            p_chain_queue, p_chain_recipient);
        INSERT INTO message (seq, admitted_at, queue, recipient, chained, lane, user_id, expires_at, headers,
            ack_required, body, checksum)
        SELECT n, now, p_queues[p_queue_at[i]], p_recipient[i], p_chain_at[i] IS NOT NULL, p_lane[i],
            p_users[p_user_at[i]], p_expires[i], p_headers[i], p_ack[i], p_body[i], p_checksum[i]
        FROM unnest(chosen, numbers) AS w (i, n);
        FOR i IN 1 .. cardinality(chosen) LOOP
            seqs[chosen[i]] := numbers[i];
        END LOOP;
        PERFORM use_keys(now, p_keys, p_key_at, p_fingerprint, chosen, numbers, p_key_window_ms);
        PERFORM book(
            array_agg(p_queues[p_queue_at[i]]), array_agg(p_lane[i]),
            array_fill(NULL::smallint, ARRAY[cardinality(chosen)]),
            array_fill(0::smallint, ARRAY[cardinality(chosen)]))
        FROM unnest(chosen) AS i;
    END IF;
    FOR i IN 1 .. items LOOP
        account := answers[i];
        verdict := verdicts[i];
        seq := coalesce(seqs[i], seqs[same_as[i]]);
        at := ats[i];
        due := dues[i];
        quota_max := account.max;
        quota_window_ms := account.window_ms;
        quota_count := account.count;
        quota_since := account.since;
        RETURN NEXT;
    END LOOP;
END
$$;
