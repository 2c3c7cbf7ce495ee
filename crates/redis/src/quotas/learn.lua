-- What the ledger says of a user's window.
-- KEYS: the user's hash, and the ticket. ARGV: the caller's ticket, empty if it has none; how long it was good for;
-- limit, count, length of the window, its end by the ledger's clock, milliseconds until then.
-- Returns 1 if the hash says the same now.
local kept = redis.call('HMGET', KEYS[1], 'rateLimit', 'windowMs', 'endsAtMs', 'currentCount')
local same = kept[1] == ARGV[3] and kept[2] == ARGV[5] and kept[3] == ARGV[6]
local count = tonumber(ARGV[4])
-- Those who were counted here may still be on their way to the ledger.
if same then count = math.max(count, tonumber(kept[4] or nil) or 0) end
-- A change of the quota has taken the ticket along.
if redis.call('GET', KEYS[2]) == ARGV[1] then
  -- Since the ticket was given the window has come closer to its end; it must not end later here than in the ledger.
  local rest_ms = ARGV[7] - (ARGV[2] - redis.call('PTTL', KEYS[2]))
  redis.call('DEL', KEYS[1], KEYS[2])
  if rest_ms < 1 then return 0 end
  redis.call('HSET', KEYS[1], 'rateLimit', ARGV[3], 'currentCount', count, 'windowMs', ARGV[5], 'endsAtMs', ARGV[6])
  redis.call('PEXPIRE', KEYS[1], rest_ms)
  return 1
end
if same then
  redis.call('HSET', KEYS[1], 'currentCount', count)
  return 1
end
-- Of two windows nobody here can tell which is the newer one. Without either, the next caller asks the ledger.
redis.call('DEL', KEYS[1])
return 0
