-- Counts one message of a user if the running window has room for it, or only looks.
-- KEYS: the user's hash, and the ticket of whoever is about to fill it.
-- ARGV: 1 to count or 0 to look; a ticket for the caller, empty if it wants none; how long that is good for.
-- Returns {1 passed or 0 denied, limit, count, length of the window, its end by the ledger's clock, milliseconds until
-- then}, or {2, 1 if the caller has the ticket now}.
local kept = redis.call('HMGET', KEYS[1], 'rateLimit', 'currentCount', 'windowMs', 'endsAtMs')
local limit, count = tonumber(kept[1] or nil), tonumber(kept[2] or nil)
local window_ms, ends_at_ms = tonumber(kept[3] or nil), tonumber(kept[4] or nil)
local rest_ms = redis.call('PTTL', KEYS[1])
-- Without an end, a window would deny for ever; one that ends too late was moved by a clock that was set back.
if not (limit and count and window_ms and ends_at_ms) or rest_ms < 0 or rest_ms > window_ms then
  local mine = ARGV[2] ~= '' and redis.call('SET', KEYS[2], ARGV[2], 'NX', 'PX', ARGV[3])
  return {2, mine and 1 or 0}
end
if count >= limit then return {0, limit, count, window_ms, ends_at_ms, rest_ms} end
count = redis.call('HINCRBY', KEYS[1], 'currentCount', ARGV[1])
return {1, limit, count, window_ms, ends_at_ms, rest_ms}
