-- Puts down what the ledger says, unless the quota was changed since the ticket was given.
-- KEYS: the user's hash, and the ticket. ARGV: the caller's ticket, limit, count, milliseconds until the window ends.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[1], 'rateLimit', ARGV[2], 'currentCount', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
