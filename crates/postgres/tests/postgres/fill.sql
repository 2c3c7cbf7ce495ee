SET search_path TO tidegate;
INSERT INTO queue (name) VALUES ('big');
INSERT INTO message (seq, admitted_at, queue, recipient, chained, lane, ack_required, body, checksum)
SELECT n, 1763243000000 + n, 'big', 'r' || n / 10, n % 20 < 10, 1, false, 'x', 2363233923
FROM generate_series(1, 120000) n;
INSERT INTO pending (seq, admitted_at, queue, recipient, chained, place, lane, is_head, line_lane, due_at, claimable_at)
SELECT n, 1763243000000 + n, 'big', 'r' || n / 10, n % 20 < 10, n, 1, n % 20 >= 10 OR n % 10 = 0, 1, d, d
FROM (SELECT n, CASE WHEN n % 3 = 0 THEN 1863243000000 ELSE 1763243000000 END + n AS d
    FROM generate_series(60001, 120000) n) w;
INSERT INTO chain (queue, recipient, high, normal, low)
SELECT queue, recipient, 0, count(*), 0 FROM pending WHERE chained GROUP BY 1, 2;
INSERT INTO outcome (seq, status, at, due_at, reason, number, latency_ms)
SELECT n, CASE WHEN n % 30 = 0 THEN 2 ELSE 1 END, 1763243000000 + n, 1763243000000 + n, NULL, 2, 1
FROM generate_series(1, 60000) n;
INSERT INTO attempt (seq, number, at, latency_ms, result, reason)
SELECT n, 1, 1763243000000 + n, 1, 1, 'busy' FROM generate_series(1, 60000) n;
INSERT INTO key (key, fingerprint, seq, admitted_at)
SELECT decode(md5(n::text), 'hex'), '\x00', n, 1763243000000 + n FROM generate_series(1, 60000) n;
INSERT INTO tally VALUES ('big', 99, 120000, 58000, 2000, 0, 0, 0, 60000, 0), ('', 99, 120000, 58000, 2000, 0, 0, 0, 60000, 0);
SELECT setval('message_seq', 120000);
