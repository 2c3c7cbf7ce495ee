-- What a crash takes from the embedded ledger, and a restart of one gateway leaves alone here: leases, the attempts that
-- only leases knew of, and holds.
UPDATE tidegate.pending p SET
    token = NULL, ends_at = NULL, in_transit = false,
    claimable_at = p.due_at,
    spent = coalesce((SELECT max(a.number) FROM tidegate.attempt a WHERE a.seq = p.seq), 0),
    failures = (
        SELECT count(*) FROM tidegate.attempt a
        WHERE a.seq = p.seq AND a.result = 1 AND a.number > coalesce(
            (SELECT max(r.number) FROM tidegate.attempt r WHERE r.seq = p.seq AND r.result = 4), 0));
