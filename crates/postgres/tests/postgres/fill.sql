SET search_path TO tidegate;
INSERT INTO queue (name) VALUES ('big');
INSERT INTO message (seq, admitted_at, queue, recipient, chained, lane, ack_required, body, checksum)
SELECT n, 1763243000000 + n / {step}, 'big', 'r' || n / 10, n % 20 < 10, 1, false, 'x', 2363233923
FROM generate_series(1, {all}) n;
INSERT INTO pending (seq, admitted_at, queue, recipient, chained, place, lane, is_head, line_lane, due_at, claimable_at)
SELECT n, 1763243000000 + n / {step}, 'big', 'r' || n / 10, n % 20 < 10, n, 1, n % 20 >= 10 OR n % 10 = 0, 1, d, d
FROM (SELECT n, CASE WHEN n % 3 = 0 THEN 1863243000000 ELSE 1763243000000 END + n / {step} AS d
    FROM generate_series({settled} + 1, {all}) n) w;
INSERT INTO chain (queue, recipient, high, normal, low)
SELECT queue, recipient, 0, count(*), 0 FROM pending WHERE chained GROUP BY 1, 2;
INSERT INTO outcome (seq, status, at, due_at, reason, number, latency_ms)
SELECT n, CASE WHEN n % 30 = 0 THEN 2 ELSE 1 END, 1763243000000 + n / {step}, 1763243000000 + n / {step}, NULL, 2, 1
FROM generate_series(1, {settled}) n;
INSERT INTO attempt (seq, number, at, latency_ms, result, reason)
SELECT n, 1, 1763243000000 + n / {step}, 1, 1, 'busy' FROM generate_series(1, {settled}) n;
INSERT INTO key (key, fingerprint, seq, admitted_at)
SELECT decode(md5(n::text), 'hex'), '\x00', n, 1763243000000 + n / {step} FROM generate_series(1, {settled}) n;
INSERT INTO tally SELECT name, 99, {all}, {settled} - {settled} / 30, {settled} / 30, 0, 0, 0, {all} - {settled}, 0 FROM unnest('{big, ""}'::text[]) AS name;
SELECT setval('message_seq', {all});
